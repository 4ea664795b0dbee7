//! Quorum rounds (ReadIndex), shared: one round serves everybody who waited when it began, never anybody who came
//! later (PROTOCOL rule 13).

use super::types::Raft;
use openraft::ReadPolicy;
use openraft::errors::{LinearizableReadError, RaftError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

/// Most requests that may wait for a round.
const WAITING_MAX: usize = 16_384;
/// How long one round may take before those who wait are told that there is no quorum.
const ROUND_DEADLINE: Duration = Duration::from_millis(500);

/// How a round ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Round {
    /// A quorum confirmed the leadership of this term, and everything committed before is applied.
    Confirmed {
        /// The term.
        term: u64,
    },
    /// This coordinator does not lead.
    NotLeading,
    /// A quorum did not answer in time.
    NoQuorum,
    /// Too many wait.
    Overloaded,
}

/// Where to wait for a round.
#[derive(Clone)]
pub(crate) struct Rounds {
    waiting: mpsc::Sender<oneshot::Sender<Round>>,
}

impl Rounds {
    /// Starts the task that runs the rounds, one at a time, until `stop`.
    pub(super) fn start(raft: Raft, stop: CancellationToken) -> (Self, tokio::task::JoinHandle<()>) {
        let (waiting, queue) = mpsc::channel(WAITING_MAX);
        let task = tokio::spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = run(raft, queue) => {}
            }
        });
        (Self { waiting }, task)
    }

    /// Waits for a round that begins after this call.
    pub(super) async fn wait(&self, within: Duration) -> Round {
        let (done, round) = oneshot::channel();
        match self.waiting.try_send(done) {
            Ok(()) => {}
            Err(mpsc::error::TrySendError::Full(_)) => return Round::Overloaded,
            Err(mpsc::error::TrySendError::Closed(_)) => return Round::NotLeading,
        }
        match tokio::time::timeout(within, round).await {
            Ok(Ok(round)) => round,
            Ok(Err(_)) => Round::NotLeading,
            Err(_) => Round::NoQuorum,
        }
    }
}

async fn run(raft: Raft, mut queue: mpsc::Receiver<oneshot::Sender<Round>>) {
    let mut waiting = Vec::new();
    while queue.recv_many(&mut waiting, WAITING_MAX).await > 0 {
        waiting.retain(|one| !one.is_closed());
        if waiting.is_empty() {
            continue;
        }
        let round = tokio::time::timeout(ROUND_DEADLINE, one_round(&raft)).await.unwrap_or(Round::NoQuorum);
        for one in waiting.drain(..) {
            let _ = one.send(round);
        }
    }
}

async fn one_round(raft: &Raft) -> Round {
    let linearizer = match raft.get_read_linearizer(ReadPolicy::ReadIndex).await {
        Ok(linearizer) => linearizer,
        Err(RaftError::APIError(LinearizableReadError::QuorumNotEnough(_))) => return Round::NoQuorum,
        Err(RaftError::APIError(LinearizableReadError::ForwardToLeader(_)) | RaftError::Fatal(_)) => {
            return Round::NotLeading;
        }
    };
    let term = linearizer.read_log_id().committed_leader_id().term;
    match linearizer.try_await_ready(raft, Some(ROUND_DEADLINE)).await {
        Ok(Ok(_)) => Round::Confirmed { term },
        Ok(Err(_)) => Round::NoQuorum,
        Err(_) => Round::NotLeading,
    }
}

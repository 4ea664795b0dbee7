//! Shared quorum rounds (ReadIndex): one round serves every request that waited when it began, never a later one
//! (PROTOCOL rule 13).

use crate::quorum::timing::QuorumTiming;
use crate::raft::machine::raft::Raft;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use openraft::ReadPolicy;
use openraft::errors::{LinearizableReadError, RaftError};
use std::collections::VecDeque;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Maximum number of requests that wait for a round.
const WAITING_MAX: usize = 16_384;
/// Deadline of one round, unless the quorum's timing requires a longer one. Its waiters then get `NoQuorum`.
const ROUND_DEADLINE: Duration = Duration::from_millis(500);

/// Duration of a round after which another is begun beside it.
const ROUND_TIMEOUT: Duration = Duration::from_millis(40);
/// Maximum number of concurrent rounds.
const ROUNDS_MAX: usize = 16;

/// Result of a round.
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
    /// Too many requests wait.
    Overloaded,
}

/// Handle to wait for a round.
#[derive(Clone)]
pub(crate) struct Rounds {
    waiting: mpsc::Sender<oneshot::Sender<Round>>,
}

impl Rounds {
    /// Starts the task that runs the rounds until `stop`.
    pub(in crate::raft) fn start(
        raft: Raft,
        timing: QuorumTiming,
        stop: CancellationToken,
    ) -> (Self, tokio::task::JoinHandle<()>) {
        let (waiting, queue) = mpsc::channel(WAITING_MAX);
        let task = tokio::spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = run(raft, timing.round(ROUND_DEADLINE), queue) => {}
            }
        });
        (Self { waiting }, task)
    }

    /// Waits for a round that begins after this call.
    pub(in crate::raft) async fn wait(&self, within: Duration) -> Round {
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

/// Rounds in progress and the requests that wait for each.
struct PendingRounds {
    rounds: FuturesUnordered<BoxFuture<'static, (u64, Round)>>,
    /// Requests waiting since before the round of this number began; numbers rise.
    waiting: VecDeque<(u64, Vec<oneshot::Sender<Round>>)>,
    last_number: u64,
    last_began: Instant,
    /// True while the newest round is in progress; older ones may hang.
    last_runs: bool,
    /// Deadline of one round.
    deadline: Duration,
}

impl PendingRounds {
    fn begin(&mut self, raft: &Raft, waiting: Vec<oneshot::Sender<Round>>) {
        self.last_number += 1;
        self.last_began = Instant::now();
        self.last_runs = true;
        let (number, raft, deadline) = (self.last_number, raft.clone(), self.deadline);
        self.waiting.push_back((number, waiting));
        self.rounds.push(Box::pin(async move {
            let round = tokio::time::timeout(deadline, one_round(&raft, deadline)).await.unwrap_or(Round::NoQuorum);
            (number, round)
        }));
    }

    /// Answers the requests that the end of a round concerns: if it confirmed or denied the leadership, every request
    /// that waited when it began, regardless of the round it first waited for; if it failed, the requests of that
    /// round.
    fn end(&mut self, ended: u64, round: Round) {
        self.last_runs &= ended != self.last_number;
        let concerns = |number: u64| if round == Round::NoQuorum { number == ended } else { number <= ended };
        for (_, waiting) in self.waiting.iter_mut().filter(|(number, _)| concerns(*number)) {
            for one in waiting.drain(..) {
                let _ = one.send(round);
            }
        }
        self.waiting.retain(|(_, waiting)| !waiting.is_empty());
    }

    fn anybody_waits(&mut self) -> bool {
        for (_, waiting) in &mut self.waiting {
            waiting.retain(|one| !one.is_closed());
        }
        self.waiting.retain(|(_, waiting)| !waiting.is_empty());
        !self.waiting.is_empty()
    }
}

/// Runs rounds. A round whose messages were lost (for example by a follower that is just coming back) hangs until its
/// deadline. So that this costs no lease, another one is begun beside it after [`ROUND_TIMEOUT`]; the first to end
/// serves all.
async fn run(raft: Raft, deadline: Duration, mut queue: mpsc::Receiver<oneshot::Sender<Round>>) {
    let mut under = PendingRounds {
        rounds: FuturesUnordered::new(),
        waiting: VecDeque::new(),
        last_number: 0,
        last_began: Instant::now(),
        last_runs: false,
        deadline,
    };
    let mut fresh = Vec::new();
    loop {
        let (runs, hangs_at) = (under.last_runs, under.last_began + ROUND_TIMEOUT);
        tokio::select! {
            received = queue.recv_many(&mut fresh, WAITING_MAX), if !runs && fresh.is_empty() => {
                if received == 0 {
                    return;
                }
            }
            Some((number, round)) = under.rounds.next(), if !under.rounds.is_empty() => under.end(number, round),
            () = tokio::time::sleep_until(hangs_at), if runs || !under.waiting.is_empty() => {}
        }
        while fresh.len() < WAITING_MAX
            && let Ok(one) = queue.try_recv()
        {
            fresh.push(one);
        }
        fresh.retain(|one| !one.is_closed());
        let overdue = Instant::now() >= under.last_began + ROUND_TIMEOUT;
        if under.last_runs && !overdue {
            continue;
        }
        let needed = !fresh.is_empty() || (overdue && under.anybody_waits());
        if needed && under.rounds.len() < ROUNDS_MAX {
            under.begin(&raft, std::mem::take(&mut fresh));
        } else if overdue {
            // No request waits any longer, or too many rounds hang: check again later.
            under.last_began = Instant::now();
        }
    }
}

async fn one_round(raft: &Raft, deadline: Duration) -> Round {
    let linearizer = match raft.get_read_linearizer(ReadPolicy::ReadIndex).await {
        Ok(linearizer) => linearizer,
        Err(RaftError::APIError(LinearizableReadError::QuorumNotEnough(_))) => return Round::NoQuorum,
        Err(RaftError::APIError(LinearizableReadError::ForwardToLeader(_)) | RaftError::Fatal(_)) => {
            return Round::NotLeading;
        }
    };
    let term = linearizer.read_log_id().committed_leader_id().term;
    match linearizer.try_await_ready(raft, Some(deadline)).await {
        Ok(Ok(_)) => Round::Confirmed { term },
        Ok(Err(_)) => Round::NoQuorum,
        Err(_) => Round::NotLeading,
    }
}

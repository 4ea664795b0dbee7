//! Proposals: decided under one term, written only in that term; `apply` voids one that lands in another.

use super::Quorum;
use crate::clock::wall_now;
use crate::raft::log::codec;
use crate::raft::log::log_space::{LogRefusal, LogReservation, Purpose};
use crate::raft::machine::raft::Raft;
use crate::raft::types::{CommittedLeaderId, TypeConfig};
use archon_coordinator_core::{Actor, Command, CommandBatch, Response, check_commands};
use archon_types::{ErrorDetail, ErrorKind, RequestId};
use openraft::errors::{ClientWriteError, ForwardReason};
use openraft::impls::ProgressResponder;
use openraft::raft::ClientWriteResult;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout_at};

/// Pause before a proposal that met an expired leader lease is repeated; it was never appended.
const LEASE_RETRY: Duration = Duration::from_millis(10);

/// A batch to commit.
#[derive(Clone, Debug)]
pub(crate) struct Proposal {
    /// The term in which it was decided.
    pub(crate) term: u64,
    /// The id by which a repetition is recognised.
    pub(crate) request: Option<RequestId>,
    /// Originator.
    pub(crate) who: Actor,
    /// The commands.
    pub(crate) commands: Vec<Command>,
}

impl Quorum {
    /// Commits and applies a batch; returns one answer per command.
    ///
    /// # Errors
    /// `NotCoordinatorLeader` or `NoQuorum` when leadership was lost: repeat it with the leader, under the same
    /// request id, since it may have been committed. `DeadlineExceeded`: the outcome is unknown. `Overloaded`. `ReadOnly`:
    /// there is no space for it on the disk of this coordinator, or of too many others. `InvalidArgument`: it is too large. `Refused`: not
    /// every member of the cluster can read it yet.
    pub(crate) async fn propose(&self, proposal: Proposal, within: Duration) -> Result<Vec<Response>, ErrorDetail> {
        let begun = Instant::now();
        let deadline = begun + within;
        self.replicated().read(|state| check_commands(state, &proposal.commands))?;
        let batch = Arc::new(CommandBatch {
            request: proposal.request,
            at: wall_now(),
            who: proposal.who,
            proposer: self.local_voter.id,
            term: proposal.term,
            commands: proposal.commands,
        });
        loop {
            let Ok(Ok(permit)) = timeout_at(deadline, Arc::clone(&self.proposals).acquire_owned()).await else {
                let message = "too many changes are under way";
                return Err(ErrorDetail::new(ErrorKind::Overloaded, message).with_retry_after_ms(100));
            };
            let admitted = self.admit(&batch, deadline).await?;
            // It continues if the caller stops waiting: its space is held until it is answered.
            let writing = tokio::spawn(write(self.raft.clone(), Arc::clone(&batch), (admitted, permit)));
            let written = timeout_at(deadline, async { writing.await.unwrap_or(WriteOutcome::Stopped) }).await;
            match written {
                Err(_) => return Err(self.unknown()),
                Ok(WriteOutcome::Answered(responses)) => {
                    self.times().commits.observe(begun.elapsed());
                    return Ok(responses);
                }
                Ok(WriteOutcome::Retry) if self.leading_term() == Some(batch.term) => {
                    if timeout_at(deadline, tokio::time::sleep(LEASE_RETRY)).await.is_err() {
                        return Err(self.not_leading());
                    }
                }
                Ok(WriteOutcome::Retry | WriteOutcome::NotLeading) => return Err(self.not_leading()),
                Ok(WriteOutcome::Stopped) => {
                    return Err(ErrorDetail::new(ErrorKind::ShuttingDown, "this coordinator is stopping"));
                }
            }
        }
    }

    fn unknown(&self) -> ErrorDetail {
        let message = "the change was not confirmed in time; whether it took effect is unknown";
        ErrorDetail::new(ErrorKind::DeadlineExceeded, message).with_leader(self.leader_address())
    }

    /// Returns true if one entry can hold these commands.
    pub(crate) fn fits(&self, commands: &[Command]) -> bool {
        let bytes = codec::size("commands", &commands).unwrap_or(usize::MAX);
        // Their envelope takes less than one more request.
        self.space.check_size(bytes.saturating_add(1_024)).is_ok()
    }

    /// Reserves the space of a batch in this coordinator's log, before Raft receives it.
    async fn admit(&self, batch: &CommandBatch, deadline: Instant) -> Result<LogReservation, ErrorDetail> {
        if let Some(why) = self.read_only() {
            return Err(self.disk_full(&why));
        }
        let bytes = codec::size("log entry", batch);
        let bytes = bytes.map_err(|error| ErrorDetail::new(ErrorKind::Internal, error.to_string()))?;
        let admitted = match self.space.check_size(bytes) {
            Ok(()) => self.space.admitted(Purpose::Change, 1, bytes, deadline).await,
            Err(refused) => Err(refused),
        };
        admitted.map_err(|refused| match refused {
            LogRefusal::Lack(lack) => self.disk_full(&format!("coordinator {}: {lack}", self.local_voter.id)),
            LogRefusal::Busy => {
                let message = "the coordinator's log is making space; try again";
                ErrorDetail::new(ErrorKind::Overloaded, message).with_retry_after_ms(100)
            }
            LogRefusal::TooLarge { bytes, max } => {
                let message = format!("a change of {bytes} bytes is above the limit of {max}: ask for less at once");
                ErrorDetail::new(ErrorKind::InvalidArgument, message)
            }
        })
    }

    fn disk_full(&self, why: &str) -> ErrorDetail {
        let own = match self.space.lack() {
            Some(_) => format!(" (its log is in {})", self.space.directory().display()),
            None => String::new(),
        };
        let message = format!(
            "the coordinators refuse changes because their disks lack space: {why}{own}; free disk space there, and \
             changes resume automatically. Meanwhile nodes keep their leases and serve reads and writes of keys"
        );
        ErrorDetail::new(ErrorKind::ReadOnly, message).with_retry_after_ms(1_000)
    }
}

/// Makes Raft write a batch; `held` is released once that is answered.
async fn write(raft: Raft, batch: Arc<CommandBatch>, held: (LogReservation, OwnedSemaphorePermit)) -> WriteOutcome {
    let term = CommittedLeaderId::new(batch.term);
    let (responder, answer) = ProgressResponder::<TypeConfig, ClientWriteResult<TypeConfig>>::complete_only();
    if raft.write(batch).with_leader(term).responder(responder).await.is_err() {
        return WriteOutcome::Stopped;
    }
    let answer = answer.await;
    drop(held);
    match answer {
        Err(_) => WriteOutcome::Stopped,
        Ok(Ok(response)) if response.data.void => WriteOutcome::NotLeading,
        Ok(Ok(response)) => WriteOutcome::Answered(response.data.responses),
        Ok(Err(ClientWriteError::ForwardToLeader(forward))) if forward.reason == ForwardReason::LeaseExpired => {
            WriteOutcome::Retry
        }
        Ok(Err(_)) => WriteOutcome::NotLeading,
    }
}

enum WriteOutcome {
    Answered(Vec<Response>),
    /// Never appended, and this coordinator may still lead the term.
    Retry,
    NotLeading,
    Stopped,
}

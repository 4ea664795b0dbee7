//! Proposals: decided under one term, written only in that term, voided by `apply` should they land in another.

use super::quorum::Quorum;
use super::types::{CommittedLeaderId, TypeConfig};
use crate::clock::wall_now;
use archon_coordinator_core::{Actor, Command, CommandBatch, Response};
use archon_types::{ErrorDetail, ErrorKind, RequestId};
use openraft::errors::{ClientWriteError, ForwardReason};
use openraft::impls::ProgressResponder;
use openraft::raft::ClientWriteResult;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Pause before a proposal that met an expired leader lease is repeated; it was never appended.
const LEASE_RETRY: Duration = Duration::from_millis(10);

/// What is to be committed.
#[derive(Clone, Debug)]
pub(crate) struct Proposal {
    /// The term in which it was decided.
    pub(crate) term: u64,
    /// The id by which a repetition is recognised.
    pub(crate) request: Option<RequestId>,
    /// Who caused it.
    pub(crate) who: Actor,
    /// The commands.
    pub(crate) commands: Vec<Command>,
}

impl Quorum {
    /// Commits and applies a batch; gives one answer per command.
    ///
    /// # Errors
    /// `NotCoordinatorLeader` or `NoQuorum` when leadership was lost: repeat it with the leader, under the same
    /// request id, since it may have been committed. `DeadlineExceeded`: the outcome is unknown. `Overloaded`.
    pub(crate) async fn propose(&self, proposal: Proposal, within: Duration) -> Result<Vec<Response>, ErrorDetail> {
        let deadline = Instant::now() + within;
        let permit = timeout_at(deadline, self.proposals.acquire()).await;
        let Ok(Ok(_permit)) = permit else {
            let message = "too many changes are under way";
            return Err(ErrorDetail::new(ErrorKind::Overloaded, message).with_retry_after_ms(100));
        };
        let batch = Arc::new(CommandBatch {
            request: proposal.request,
            at: wall_now(),
            who: proposal.who,
            proposer: self.myself.id,
            term: proposal.term,
            commands: proposal.commands,
        });
        loop {
            let written = timeout_at(deadline, self.write(Arc::clone(&batch))).await;
            match written {
                Err(_) => return Err(self.unknown()),
                Ok(Written::Answered(responses)) => return Ok(responses),
                Ok(Written::Retry) if self.leading_term() == Some(batch.term) => {
                    if timeout_at(deadline, tokio::time::sleep(LEASE_RETRY)).await.is_err() {
                        return Err(self.not_leading());
                    }
                }
                Ok(Written::Retry | Written::NotLeading) => return Err(self.not_leading()),
                Ok(Written::Stopped) => {
                    return Err(ErrorDetail::new(ErrorKind::ShuttingDown, "this coordinator is stopping"));
                }
            }
        }
    }

    fn unknown(&self) -> ErrorDetail {
        let message = "the change was not confirmed in time; whether it took effect is unknown";
        ErrorDetail::new(ErrorKind::DeadlineExceeded, message).with_leader(self.leader_address())
    }

    async fn write(&self, batch: Arc<CommandBatch>) -> Written {
        let term = CommittedLeaderId::new(batch.term);
        let (responder, answer) = ProgressResponder::<TypeConfig, ClientWriteResult<TypeConfig>>::complete_only();
        if self.raft.write(batch).with_leader(term).responder(responder).await.is_err() {
            return Written::Stopped;
        }
        match answer.await {
            Err(_) => Written::Stopped,
            Ok(Ok(response)) if response.data.void => Written::NotLeading,
            Ok(Ok(response)) => Written::Answered(response.data.responses),
            Ok(Err(ClientWriteError::ForwardToLeader(forward))) if forward.reason == ForwardReason::LeaseExpired => {
                Written::Retry
            }
            Ok(Err(_)) => Written::NotLeading,
        }
    }
}

enum Written {
    Answered(Vec<Response>),
    /// Never appended, and the term may still be ours.
    Retry,
    NotLeading,
    Stopped,
}

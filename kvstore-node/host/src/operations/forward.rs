//! Forwarding: an operation on a partition that this node does not lead goes, once, to the leader in its table, or is
//! refused (PROTOCOL rule 32). The forwarding node decides nothing; the leader checks everything itself.

use crate::mutant::Mutant;
use crate::operations::refusal::Refusal;
use crate::operations::request::{Origin, Request};
use crate::shell::Shell;
use crate::turn::Turn;
use archon_types::{ErrorKind, Millis, Op, OpId};

/// Possible effect of a forwarded operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PassedOn {
    /// None.
    Read,
    /// A change that takes effect once, however often it is sent.
    NamedWrite,
    /// A change.
    UnnamedWrite,
}

impl PassedOn {
    /// Classifies an operation by its name, if it has one.
    pub const fn of(op: &Op, id: Option<&OpId>) -> Self {
        match (op.is_read(), id) {
            (true, _) => Self::Read,
            (false, Some(_)) => Self::NamedWrite,
            (false, None) => Self::UnnamedWrite,
        }
    }

    /// Returns the error kind for an operation without an answer. Only one that was not `sent`, or a read, is known to
    /// have had no effect; a named write stays open and can be retried under its name.
    pub const fn unanswered(self, sent: bool) -> ErrorKind {
        match (sent, self) {
            (false, _) | (true, Self::Read) => ErrorKind::Unreachable,
            (true, Self::NamedWrite) => ErrorKind::DeadlineExceeded,
            (true, Self::UnnamedWrite) => ErrorKind::MaybeApplied,
        }
    }
}

impl<S: Shell> Turn<S> {
    /// Forwards an operation that this node cannot serve, or refuses it with the reason. `log_time` is zero without a
    /// local copy.
    pub(crate) fn turn_away(&mut self, mut request: Request<S::Reply>, log_time: Millis, refusal: Refusal) {
        if self.broken.breaks(Mutant::ForwardedAgain) && request.origin == Origin::Forwarded {
            request.origin = Origin::AnyNodeClient;
        }
        let this = self.shell.life().map(|life| life.node);
        let leader = match refusal {
            Refusal::Elsewhere => request.origin.goes_to(self.shell.leader(request.partition), this),
            _ => None,
        };
        let Some(leader) = leader else {
            return self.shell.refuse(request.partition, request.reply, log_time, refusal);
        };
        if self.broken.breaks(Mutant::ForwardRenamed) {
            request.id = request.id.map(|id| OpId { number: self.now.get(), ..id });
        }
        self.shell.forward(leader, request);
    }
}

#[cfg(test)]
#[path = "forward_tests.rs"]
mod tests;

//! Operations on partitions that this node does not lead: passed on, once, to the node that its table names as leader, or
//! refused (PROTOCOL rule 32). Whoever passes one on decides nothing about it: the leader looks at everything itself.

use crate::mutant::Mutant;
use crate::refusal::Refusal;
use crate::request::Request;
use crate::shell::Shell;
use crate::turn::Turn;
use archon_types::{ErrorKind, Millis, NodeId, Op, OpId};

/// How an operation came to a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// From a client that goes to leaders itself, and wants to be told who leads.
    RoutingClient,
    /// From a client that leaves it to the node to find the leader.
    AnyNodeClient,
    /// From another node, which passed it on.
    Forwarded,
}

impl Origin {
    /// How an operation came that says whether it was `passed_on`, in a stream whose client `asks` for it to be.
    pub const fn of(passed_on: bool, asks: bool) -> Self {
        match (passed_on, asks) {
            (true, _) => Self::Forwarded,
            (false, true) => Self::AnyNodeClient,
            (false, false) => Self::RoutingClient,
        }
    }

    /// The node to which an operation goes that `this` node does not lead, if `leader` is who its table names; `None` if the
    /// operation is refused.
    pub fn goes_to(self, leader: Option<NodeId>, this: Option<NodeId>) -> Option<NodeId> {
        leader.filter(|leader| self == Self::AnyNodeClient && Some(*leader) != this)
    }
}

/// What an operation that is passed on may leave behind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PassedOn {
    /// Nothing.
    Read,
    /// A change that is made once, however often it is asked for.
    NamedWrite,
    /// A change.
    UnnamedWrite,
}

impl PassedOn {
    /// What an operation with this name, or none, may leave behind.
    pub const fn of(op: &Op, id: Option<&OpId>) -> Self {
        match (op.is_read(), id) {
            (true, _) => Self::Read,
            (false, Some(_)) => Self::NamedWrite,
            (false, None) => Self::UnnamedWrite,
        }
    }

    /// What kind of error says that it got no answer. Only of what was not `sent`, or is a read, it is said that it had no
    /// effect; what has a name is left open, to be asked for again under that name.
    pub const fn unanswered(self, sent: bool) -> ErrorKind {
        match (sent, self) {
            (false, _) | (true, Self::Read) => ErrorKind::Unreachable,
            (true, Self::NamedWrite) => ErrorKind::DeadlineExceeded,
            (true, Self::UnnamedWrite) => ErrorKind::MaybeApplied,
        }
    }
}

impl<S: Shell> Turn<S> {
    /// Passes an operation on that is not for this node, or tells its client why not. `log_time` is zero if no copy is here.
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

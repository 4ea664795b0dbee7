//! Client operation on its way through a node.

use archon_types::{Answer, Epoch, ErrorDetail, Millis, NodeId, Op, OpId, PartitionId, Version};

/// Answer to a client for an operation that was carried out.
pub type Outcome = Result<Answer, ErrorDetail>;

/// Destination of an answer.
pub trait Reply {
    /// Checks that there is room for the result of a read. Called before any row is read: otherwise a client that
    /// accepts no answers would have rows read for nothing.
    ///
    /// # Errors
    /// The error for the client, with a delay to wait.
    fn room(&self) -> Result<(), ErrorDetail>;

    /// Counts the answer to a read before it waits for an entry to commit, as one that waits for its client.
    ///
    /// # Errors
    /// The error for the client if there is no room for it, with a delay to wait.
    fn hold(&mut self, _: &Outcome) -> Result<(), ErrorDetail> {
        Ok(())
    }

    /// Notes that the operation cannot be evaluated yet, for reports of slow operations.
    fn waits(&mut self, _: WaitsFor) {}
}

/// Cause of an operation's wait before it is evaluated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitsFor {
    /// The leader of the partition is not settled yet.
    Leadership,
    /// A split or merge in progress decides which partition has the key.
    Reshaping,
    /// The leader has not read the client records yet.
    Clients,
    /// The engine, the log or followers have no room yet.
    Room,
    /// The other copies have to confirm this leader.
    Confirmation,
    /// An entry that ends a value is not committed yet.
    Commit,
}

/// One admitted operation.
#[derive(Clone, Debug)]
pub struct Request<R> {
    /// The partition that it is for.
    pub partition: PartitionId,
    /// Path by which it arrived.
    pub origin: Origin,
    /// Queue that it takes a turn of: a stream, or the unary calls from one address.
    pub client: u64,
    /// The operation.
    pub op: Op,
    /// Its name, if it must take effect once however often it is sent.
    pub id: Option<OpId>,
    /// The table version by which the client chose this node; zero if unknown.
    pub known: Version,
    /// Start of its wait to be evaluated, on the local clock.
    pub parked_at: Option<Millis>,
    /// The epoch whose leadership was confirmed by a round that began after this read arrived.
    pub confirmed: Option<Epoch>,
    /// It is a read that has waited for an entry of others to end a value that is due.
    pub awaited_entry: bool,
    /// Destination of the answer.
    pub reply: R,
}

/// Path by which an operation reached a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// From a client that routes to leaders itself and needs to know the leader.
    RoutingClient,
    /// From a client that lets the node find the leader.
    AnyNodeClient,
    /// From another node, which forwarded it.
    Forwarded,
}

impl Origin {
    /// Classifies an operation by whether it was `passed_on`, and whether the client of its stream `asks` for
    /// forwarding.
    pub const fn of(passed_on: bool, asks: bool) -> Self {
        match (passed_on, asks) {
            (true, _) => Self::Forwarded,
            (false, true) => Self::AnyNodeClient,
            (false, false) => Self::RoutingClient,
        }
    }

    /// Returns the node to forward to, given the `leader` in the table of `this` node; `None` if the operation is
    /// refused.
    pub fn goes_to(self, leader: Option<NodeId>, this: Option<NodeId>) -> Option<NodeId> {
        leader.filter(|leader| self == Self::AnyNodeClient && Some(*leader) != this)
    }
}

//! An operation of a client on its way through a node.

use crate::forward::Origin;
use archon_types::{Epoch, ErrorDetail, Millis, Op, OpId, PartitionId, Version};

/// To whom an answer goes.
pub trait Reply {
    /// Whether there is room for what a read may find. Asked before anything is read: otherwise a client that takes no answers
    /// has rows read for nothing.
    ///
    /// # Errors
    /// What the client is told, with a time to wait.
    fn room(&self) -> Result<(), ErrorDetail>;

    /// The operation cannot be evaluated yet. Whoever tells what slow operations wait for notes it.
    fn waits(&mut self, _: WaitsFor) {}
}

/// What an operation waits for before it is evaluated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitsFor {
    /// It is not clear yet who leads the partition.
    Leadership,
    /// A split or a merge, under way, is to decide whose the key is.
    Reshaping,
    /// The leader is still to read whom the partition remembers.
    Clients,
    /// The engine, the log or followers are to take what is before it.
    Room,
    /// The other copies are to confirm that this one still leads.
    Confirmation,
}

/// One admitted operation.
#[derive(Clone, Debug)]
pub struct Request<R> {
    /// The partition that it is for.
    pub partition: PartitionId,
    /// How it came here.
    pub origin: Origin,
    /// Whose turn it takes: that of a stream, or of the plain calls from one address.
    pub client: u64,
    /// The operation.
    pub op: Op,
    /// Its name, if it is to take effect once however often it is sent.
    pub id: Option<OpId>,
    /// The table version by which the client came here; zero if it did not say.
    pub known: Version,
    /// Since when it has waited to be evaluated, on the local clock.
    pub parked_at: Option<Millis>,
    /// The epoch whose leadership was confirmed by a round that began after this read had arrived.
    pub confirmed: Option<Epoch>,
    /// Who waits for the answer.
    pub reply: R,
}

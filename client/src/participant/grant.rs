//! The right to act for a partition.

use super::shared::Shared;
use archon_member::Acquired;
use archon_types::{Epoch, PartitionId};
use std::fmt;
use std::sync::Arc;

/// What a participant owns: a partition in an epoch. It holds for as long as a lease covers it, so it is to be asked each time
/// before something is done in its name: [`Grant::check`].
#[derive(Clone)]
pub struct Grant {
    acquired: Acquired,
    table: Arc<str>,
    shared: Arc<Shared>,
}

/// The partition is owned no more: another participant may have it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("partition {partition} is lost: it was owned in epoch {epoch}")]
pub struct Lost {
    /// The partition.
    pub partition: PartitionId,
    /// The epoch in which it was owned.
    pub epoch: Epoch,
}

impl Grant {
    pub(super) fn new(acquired: Acquired, shared: Arc<Shared>) -> Self {
        Self { acquired, table: shared.table_name(acquired.partition.table), shared }
    }

    /// The name of the partition's table, as operators use it (`jobs`). Of several tables it is the number instead while the
    /// coordinators are of a version that does not name them.
    pub fn table(&self) -> &str {
        &self.table
    }

    /// The partition.
    pub const fn partition(&self) -> PartitionId {
        self.acquired.partition
    }

    /// The epoch. Any other participant that owns the partition later has a higher one, and so has this one in a later life, so
    /// storage that refuses lower ones than it has seen is safe from whoever was too slow to notice that it lost the partition.
    ///
    /// It does not fence a process from itself. If its lease runs out and nobody else owned the partition before it has a lease again,
    /// it is acquired anew *in the same epoch*: a write that this process sent before is then not refused. So nothing that writes may
    /// outlive the loss of its grant unseen: make writes conditional on what was read, as the example `counter` does (it compares and
    /// sets), or have `acquire` wait for what is still under way.
    pub const fn epoch(&self) -> Epoch {
        self.acquired.epoch
    }

    /// Whether the partition is owned at this moment: not before [`super::Callbacks::acquire`] has succeeded, and never again after it
    /// was lost, also if it is acquired anew in the same epoch. Gives the epoch to be handed to storage with whatever is done next.
    /// Neither waits nor locks.
    ///
    /// # Errors
    /// [`Lost`]: nothing may be done in its name any more.
    pub fn check(&self) -> Result<Epoch, Lost> {
        let Acquired { partition, epoch, .. } = self.acquired;
        if self.shared.check(self.acquired) { Ok(epoch) } else { Err(Lost { partition, epoch }) }
    }
}

impl fmt::Debug for Grant {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Grant")
            .field("table", &self.table())
            .field("partition", &self.partition())
            .field("epoch", &self.epoch())
            .finish()
    }
}

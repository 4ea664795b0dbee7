//! Grants: the right to act for a partition.

use super::state::ParticipantState;
use archon_member::Acquisition;
use archon_types::{Epoch, PartitionId};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A partition owned by a participant in an epoch. It is valid while a lease covers it, so call [`Grant::check`]
/// before each use.
#[derive(Clone)]
pub struct Grant {
    acquired: Acquisition,
    table: Arc<str>,
    shared: Arc<ParticipantState>,
}

/// The partition is no longer owned: another participant may own it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("partition {partition} is lost: it was owned in epoch {epoch}")]
pub struct PartitionLost {
    /// The partition.
    pub partition: PartitionId,
    /// Its epoch.
    pub epoch: Epoch,
}

impl Grant {
    pub(super) fn new(acquired: Acquisition, shared: Arc<ParticipantState>) -> Self {
        Self { acquired, table: shared.table_name(acquired.partition.table), shared }
    }

    /// Returns the name of the partition's table, as operators use it (`jobs`). With several tables, returns the
    /// number if the coordinators' version does not send names.
    pub fn table(&self) -> &str {
        &self.table
    }

    /// Returns the partition.
    pub const fn partition(&self) -> PartitionId {
        self.acquired.partition
    }

    /// Returns the epoch. Later owners have a higher one, as does this participant in a later incarnation, so storage
    /// that rejects lower epochs than it has seen is protected from a former owner that has not noticed the loss.
    ///
    /// The epoch does not fence a process from itself. If its lease expires and no other participant owned the
    /// partition before the next lease, it acquires the partition again *in the same epoch*: earlier writes of this
    /// process are then not rejected. So writes must not outlive the loss of their grant unnoticed: make them
    /// conditional on the data that was read, like the example `counter` (compare-and-set), or let `acquire` wait for
    /// pending ones.
    pub const fn epoch(&self) -> Epoch {
        self.acquired.epoch
    }

    /// Returns the epoch to pass to storage if the partition is owned now: not before [`super::Callbacks::acquire`]
    /// has succeeded, and never again after it was lost, even if it is acquired again in the same epoch. Neither
    /// waits nor locks.
    ///
    /// # Errors
    /// [`PartitionLost`]: stop acting for the partition.
    pub fn check(&self) -> Result<Epoch, PartitionLost> {
        let Acquisition { partition, epoch, .. } = self.acquired;
        if self.shared.check(self.acquired) { Ok(epoch) } else { Err(PartitionLost { partition, epoch }) }
    }

    /// Returns the remaining time of the participant's lease, zero without one. No grant of this participant outlives
    /// it unless a heartbeat extends it; a partition can be lost before. It is also zero from the loss of any
    /// partition until [`super::Callbacks::lost`] has returned: a process that passes this time on to another one,
    /// together with the losses, permits nothing beyond a loss that it does not know yet.
    pub fn lease_left(&self) -> Duration {
        self.shared.lease_left()
    }

    /// Returns the time for which the lease covers this partition unless a heartbeat extends it; zero if
    /// [`Self::check`] fails. A partition can be lost before.
    pub fn valid_for(&self) -> Duration {
        self.shared.valid_for(self.acquired)
    }

    /// Returns the time that [`super::Callbacks::release`] has at a hand-over: eight failure time-outs of the
    /// participant.
    pub fn hand_over_limit(&self) -> Duration {
        self.shared.hand_over_limit()
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

//! Read-only view of one copy, from its row and its replica.

use archon_replica::{Position, Replica, ReplicaStatus};
use archon_types::{Epoch, Partition, PlacementId, ReplicaState};

/// Answers questions about a copy; decides nothing.
#[derive(Clone, Copy, Debug)]
pub struct CopyView<'a> {
    /// Its placement.
    pub placement: PlacementId,
    /// Its replica.
    pub replica: &'a Replica,
    /// Set aside: no duty names it, and it serves nothing.
    pub set_aside: bool,
}

impl<'a> CopyView<'a> {
    fn row(self) -> Option<&'a Partition> {
        self.replica.configuration().map(|configuration| &configuration.row)
    }

    fn state(self) -> Option<ReplicaState> {
        self.row().and_then(|row| row.placement(self.placement)).map(|own| own.state)
    }

    /// Returns whether its row has at most one Live copy, or it knows no row: every operation needs the lease.
    pub fn is_alone(self) -> bool {
        self.row().is_none_or(|row| row.live().count() <= 1)
    }

    /// Returns whether it is Live, and `min_in_sync` others would remain Live without it.
    pub fn is_spare(self) -> bool {
        let enough = |row: &Partition| row.live().count() > usize::from(row.min_in_sync);
        self.state() == Some(ReplicaState::Live) && self.row().is_some_and(enough)
    }

    /// Returns whether this copy is not in sync and holds nothing at all.
    pub fn is_emptied(self) -> bool {
        self.state() == Some(ReplicaState::Load) && self.replica.last() == Position::ZERO
    }

    /// Returns whether the leadership may still come here: the row names this copy or no leader, or it knows no row.
    pub fn is_unsettled(self) -> bool {
        self.row().and_then(|row| row.leader).is_none_or(|leader| leader == self.placement)
    }

    /// Returns the epoch that it leads, if copies may be pulled from it now.
    pub fn gives_copies(self) -> Option<Epoch> {
        let leads = matches!(
            self.replica.status(),
            ReplicaStatus::TakingOver | ReplicaStatus::Serving | ReplicaStatus::HandingOver
        );
        (leads && !self.set_aside).then(|| self.replica.epoch())
    }

    /// Returns whether the row has `other` loading.
    pub fn loads(self, other: PlacementId) -> bool {
        self.row().and_then(|row| row.placement(other)).is_some_and(|other| other.state == ReplicaState::Load)
    }

    /// Returns whether `row` makes this copy leader in an epoch higher than any it knows.
    pub fn would_take_up(self, row: &Partition) -> bool {
        row.leader == Some(self.placement) && self.replica.epoch() < row.epoch
    }
}

//! Copies that are kept as they are, and not served: with a log entry that this version cannot read, or with rows that
//! the engine refuses to read.
//!
//! The log checks its records, so such an entry was written by another version; it is not damage. The copy stays listed
//! as held: it is neither abandoned nor deleted, and a version that can read the entry continues with it (PROTOCOL rule
//! 64). No later entry is written to its log, so the log stays readable up to there.
//!
//! An engine that met a full disk may refuse reads until it is opened again. A leader without its rows knows neither its
//! seal nor its merge record, so such a copy acknowledges, answers and reports nothing either. The next start finds it
//! whole.

use crate::copies::local_copy::{LocalCopy, RecoveredCopy};
use crate::copies::reconcile::Action;
use crate::copies::unreadable_copy::{AliveHeir, UnreadableCopy};
use crate::operations::refusal::Cause;
use crate::partitions::Partitions;
use crate::shell::{CopyEvent, CopyLocation, Shell};
use crate::turn::Turn;
use archon_replica::Position;
use archon_types::{Epoch, Fact, Partition, PartitionId, PlacementId, Report, Seq};

impl<S: Shell> Partitions<S> {
    /// Returns the copies with an entry that this version cannot read, with the partition of each.
    pub fn unreadable(&self) -> impl Iterator<Item = (PlacementId, PartitionId)> {
        self.unreadable.iter().map(|(placement, copy)| (placement, copy.partition))
    }

    /// Keeps a copy that recovery found with an unreadable entry.
    pub(crate) fn keep_found(&mut self, placement: PlacementId, found: &RecoveredCopy, why: &str) {
        let (partition, epoch) = (found.partition, found.recovered.epoch);
        let at = CopyLocation { partition, placement, epoch, commit: Seq::ZERO };
        self.turn.shell.observe(at, CopyEvent::Unreadable(why));
        self.unreadable.insert(placement, UnreadableCopy::new(partition, epoch, found.recovered.last_position()));
    }

    /// Stops a copy after its leader sent an entry that this version cannot read.
    pub(crate) fn stop_unreadable(&mut self, placement: PlacementId, why: &str) {
        let Some(local) = self.stop_serving(placement, Cause::Unreadable) else { return };
        self.turn.shell.observe(local.at(), CopyEvent::Unreadable(why));
        self.unreadable.insert(placement, kept(&local));
    }

    /// Stops a copy after the engine refused to read its rows, and gives up its leadership. `row` is the row that its
    /// replica did not get for that reason.
    pub(crate) fn stop_unread(&mut self, placement: PlacementId, row: Option<&Partition>) {
        if let Some(local) = self.stop_serving(placement, Cause::Unread) {
            self.turn.shell.observe(local.at(), CopyEvent::Unread);
            let mut copy = UnreadableCopy { is_unread: true, ..kept(&local) };
            if let Some(row) = local.row() {
                copy.apply_row(row, placement);
            }
            self.unreadable.insert(placement, copy);
        }
        let Some(copy) = self.unreadable.get_mut(placement) else { return };
        if let Some(row) = row {
            copy.apply_row(row, placement);
        }
        self.turn.release_unreadable(placement, copy);
    }

    /// Keeps a copy that was formed here, after the engine refused to read its rows.
    pub(crate) fn keep_unread(&mut self, placement: PlacementId, at: CopyLocation, base: Position) {
        self.turn.shell.observe(at, CopyEvent::Unread);
        let copy = UnreadableCopy::new(at.partition, at.epoch, base);
        self.unreadable.insert(placement, UnreadableCopy { is_unread: true, ..copy });
    }

    /// Returns whether the engine refuses to read the rows of this node's copy of a partition.
    pub(crate) fn is_unread(&self, partition: PartitionId) -> bool {
        let mut copies = self.unreadable.placements_of(partition);
        copies.any(|placement| self.unreadable.get(placement).is_some_and(|copy| copy.is_unread))
    }

    fn stop_serving(&mut self, placement: PlacementId, cause: Cause) -> Option<LocalCopy<S>> {
        let mut local = self.copies.remove(&placement)?;
        self.turn.rest(&mut local);
        self.turn.fail_waiting(&mut local, cause);
        self.turn.shell.stop_copy(placement);
        self.active.retain(|_, active| *active != placement);
        Some(local)
    }

    /// Handles a duty for such a copy, which only gives up the leadership that the duty names it for. Returns whether the
    /// duty is for such a copy.
    pub(crate) fn decline(&mut self, action: &Action) -> bool {
        let (Action::Open { partition: row, placement, .. }
        | Action::Configure { partition: row, placement }
        | Action::HandOver { partition: row, placement, .. }) = action
        else {
            return false;
        };
        self.decline_row(row, *placement)
    }

    /// As [`Partitions::decline`], with the row of the duty.
    pub(crate) fn decline_row(&mut self, row: &Partition, placement: PlacementId) -> bool {
        let Some(copy) = self.unreadable.get_mut(placement) else { return false };
        copy.apply_row(row, placement);
        self.turn.release_unreadable(placement, copy);
        true
    }

    /// Gives up the leaderships of such copies that are due.
    pub(crate) fn release_unreadable(&mut self) {
        for (placement, copy) in self.unreadable.iter_mut() {
            self.turn.release_unreadable(placement, copy);
        }
    }

    /// Confirms that the copies of a partition that are not served do not lead it in `epoch` and never will: the
    /// coordinators wait for that, or else until the lease expires.
    pub(crate) fn confirm_withdrawn(&mut self, partition: PartitionId, epoch: Epoch) {
        for placement in self.unreadable.placements_of(partition).collect::<Vec<_>>() {
            if let Some(copy) = self.unreadable.get_mut(placement) {
                self.turn.report_released(placement, copy, epoch);
            }
        }
    }
}

impl<S: Shell> Turn<S> {
    /// Gives up the leadership that a copy is named for, if that is due.
    fn release_unreadable(&mut self, placement: PlacementId, copy: &mut UnreadableCopy) {
        let Some(epoch) = copy.named else { return };
        if copy.may_release(self.now, &self.alive_heirs(copy)) {
            self.report_released(placement, copy, epoch);
        }
    }

    fn report_released(&mut self, placement: PlacementId, copy: &mut UnreadableCopy, epoch: Epoch) {
        let (partition, version) = (copy.partition, copy.version);
        let is_reported = self.shell.report(Report { partition, placement, epoch, version, fact: Fact::Released });
        if is_reported && copy.named == Some(epoch) {
            copy.record_release(self.now, self.alive_heirs(copy));
        }
    }

    fn alive_heirs(&self, copy: &UnreadableCopy) -> Vec<AliveHeir> {
        let alive = |node| self.shell.peer(node).filter(|(_, has_failed)| !has_failed);
        copy.heirs.iter().filter_map(|node| alive(*node).map(|(incarnation, _)| (*node, incarnation))).collect()
    }
}

/// Returns a stopped copy as it is kept.
fn kept<S: Shell>(local: &LocalCopy<S>) -> UnreadableCopy {
    let LocalCopy { partition, replica, .. } = local;
    // Entries that are not durable were not acknowledged by this copy, and may be gone at the next start.
    let last = replica.position_at(replica.durable()).unwrap_or_else(|| replica.base());
    UnreadableCopy::new(*partition, replica.epoch(), last)
}

#[cfg(test)]
#[path = "unreadable_tests.rs"]
mod tests;

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

use crate::copies::local_copy::{Found, LocalCopy};
use crate::copies::reconcile::Action;
use crate::copies::unreadable_copy::UnreadableCopy;
use crate::operations::refusal::Cause;
use crate::partitions::Partitions;
use crate::shell::{At, Observed, Shell};
use archon_replica::Position;
use archon_types::{Fact, NodeId, Partition, PartitionId, PlacementId, ReplicaState, Report, Seq};

/// Pause before the node gives up the next leadership of such a copy, in milliseconds: if no other copy can lead, the
/// coordinators name this one again at once.
const RELEASE_PAUSE_MS: u64 = 5_000;

impl<S: Shell> Partitions<S> {
    /// Returns the copies with an entry that this version cannot read, with the partition of each.
    pub fn unreadable(&self) -> impl Iterator<Item = (PlacementId, PartitionId)> {
        self.unreadable.iter().map(|(placement, copy)| (*placement, copy.partition))
    }

    /// Keeps a copy that recovery found with an unreadable entry.
    pub(crate) fn keep_found(&mut self, placement: PlacementId, found: &Found, why: &str) {
        let (partition, epoch) = (found.partition, found.recovered.epoch);
        let at = At { partition, placement, epoch, commit: Seq::ZERO };
        self.turn.shell.observe(at, Observed::Unreadable(why));
        self.unreadable.insert(placement, UnreadableCopy::new(partition, epoch, found.recovered.last_position()));
    }

    /// Stops a copy after its leader sent an entry that this version cannot read.
    pub(crate) fn stop_unreadable(&mut self, placement: PlacementId, why: &str) {
        let Some(local) = self.stop_serving(placement, Cause::Unreadable) else { return };
        self.turn.shell.observe(local.at(), Observed::Unreadable(why));
        self.unreadable.insert(placement, kept(&local));
    }

    /// Stops a copy after the engine refused to read its rows.
    pub(crate) fn stop_unread(&mut self, placement: PlacementId) {
        let Some(local) = self.stop_serving(placement, Cause::Unread) else { return };
        self.turn.shell.observe(local.at(), Observed::Unread);
        let mut copy = UnreadableCopy { heirs: Some(Vec::new()), ..kept(&local) };
        if let Some(row) = local.row() {
            copy.name(row, placement);
        }
        self.unreadable.insert(placement, copy);
        self.release_unreadable();
    }

    /// Keeps a copy that was formed here, after the engine refused to read its rows.
    pub(crate) fn keep_unread(&mut self, placement: PlacementId, at: At, base: Position) {
        self.turn.shell.observe(at, Observed::Unread);
        let copy = UnreadableCopy::new(at.partition, at.epoch, base);
        self.unreadable.insert(placement, UnreadableCopy { heirs: Some(Vec::new()), ..copy });
    }

    /// Returns whether the engine refuses to read the rows of this node's copy of a partition.
    pub(crate) fn is_unread(&self, partition: PartitionId) -> bool {
        self.unreadable.values().any(|copy| copy.heirs.is_some() && copy.partition == partition)
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
        let Some(copy) = self.unreadable.get_mut(placement) else { return false };
        copy.name(row, *placement);
        self.release_unreadable();
        true
    }

    /// Gives up leaderships of such copies, each once per [`RELEASE_PAUSE_MS`], as far as that helps.
    pub(crate) fn release_unreadable(&mut self) {
        let now = self.turn.now;
        for (placement, copy) in &mut self.unreadable {
            let Some((epoch, version)) = copy.named.filter(|_| now >= copy.not_before) else { continue };
            let is_alive = |node: &NodeId| self.turn.shell.peer(*node).is_some_and(|(_, has_failed)| !has_failed);
            if copy.is_released && copy.heirs.as_ref().is_some_and(|heirs| !heirs.iter().any(is_alive)) {
                continue;
            }
            let (partition, placement) = (copy.partition, *placement);
            if self.turn.shell.report(Report { partition, placement, epoch, version, fact: Fact::Released }) {
                (copy.named, copy.is_released) = (None, true);
                copy.not_before = now.plus(RELEASE_PAUSE_MS);
            }
        }
    }
}

impl UnreadableCopy {
    /// Notes the row, and with it the leadership that it names the copy for.
    fn name(&mut self, row: &Partition, own: PlacementId) {
        self.named = (row.leader == Some(own)).then_some((row.epoch, row.version));
        if let Some(heirs) = &mut self.heirs {
            let others = row.placements.iter().filter(|other| other.id != own && other.state == ReplicaState::Live);
            *heirs = others.map(|other| other.node).collect();
        }
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

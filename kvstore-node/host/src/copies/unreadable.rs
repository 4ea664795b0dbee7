//! Copies with a log entry that this version cannot read: kept as they are, and not served.
//!
//! The log checks its records, so such an entry was written by another version; it is not damage. The copy stays listed
//! as held: it is neither abandoned nor deleted, and a version that can read the entry continues with it (PROTOCOL rule
//! 64). No later entry is written to its log, so the log stays readable up to there.

use crate::copies::local_copy::{Found, LocalCopy};
use crate::copies::reconcile::Action;
use crate::copies::unreadable_copy::UnreadableCopy;
use crate::operations::refusal::Cause;
use crate::partitions::Partitions;
use crate::shell::{At, Observed, Shell};
use archon_types::{Fact, PartitionId, PlacementId, Report, Seq};

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
        let Some(mut local) = self.copies.remove(&placement) else { return };
        self.turn.rest(&mut local);
        self.turn.fail_waiting(&mut local, Cause::Unreadable);
        self.turn.shell.stop_copy(placement);
        self.active.retain(|_, active| *active != placement);
        self.turn.shell.observe(local.at(), Observed::Unreadable(why));
        let LocalCopy { partition, replica, .. } = &local;
        let last = replica.position_at(replica.durable()).unwrap_or_else(|| replica.base());
        self.unreadable.insert(placement, UnreadableCopy::new(*partition, replica.epoch(), last));
    }

    /// Handles a duty for an unreadable copy, which only gives up the leadership that the duty names it for. Returns
    /// whether the duty is for such a copy.
    pub(crate) fn decline(&mut self, action: &Action) -> bool {
        let (Action::Open { partition: row, placement, .. }
        | Action::Configure { partition: row, placement }
        | Action::HandOver { partition: row, placement, .. }) = action
        else {
            return false;
        };
        let Some(copy) = self.unreadable.get_mut(placement) else { return false };
        copy.named = (row.leader == Some(*placement)).then_some((row.epoch, row.version));
        self.release_unreadable();
        true
    }

    /// Gives up leaderships of unreadable copies, each once per [`RELEASE_PAUSE_MS`].
    pub(crate) fn release_unreadable(&mut self) {
        let now = self.turn.now;
        for (placement, copy) in &mut self.unreadable {
            let Some((epoch, version)) = copy.named.filter(|_| now >= copy.not_before) else { continue };
            let (partition, placement) = (copy.partition, *placement);
            if self.turn.shell.report(Report { partition, placement, epoch, version, fact: Fact::Released }) {
                copy.named = None;
                copy.not_before = now.plus(RELEASE_PAUSE_MS);
            }
        }
    }
}

#[cfg(test)]
#[path = "unreadable_tests.rs"]
mod tests;

//! Stale reads at a copy that need not lead: committed rows as of a log position, without a bound on their age
//! (PROTOCOL rule 33). They need no lease, round or leader.

use crate::copies::local_copy::{ENGINE_AHEAD_UNKNOWN, LocalCopy};
use crate::mutant::Mutant;
use crate::operations::refusal::Refusal;
use crate::partitions::Partitions;
use crate::ranges::absorb::has_absorbed;
use crate::shell::Shell;
use crate::turn::Turn;
use archon_kv::{Merged, PartitionView, Reader, View, ViewError, reshape, row};
use archon_types::{PartitionId, Revision, Stored, Version};

/// Value of a key at a copy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StaleRow {
    /// The value, if the key was there.
    pub found: Option<Stored>,
    /// Revision of the read: it sees the partition's writes up to this revision, and no other.
    pub as_of: Revision,
}

impl<S: Shell> Partitions<S> {
    /// Reads a key from this node's copy of the partition.
    ///
    /// # Errors
    /// The reason why this copy cannot answer, above all that it is not in sync, or does not know which of its rows are
    /// committed.
    pub fn read_stale(&mut self, partition: PartitionId, key: &[u8]) -> Result<StaleRow, Refusal> {
        let shell = &self.turn.shell;
        if shell.is_stopping() {
            return Err(Refusal::Stopping);
        }
        if shell.is_dropped(partition) {
            return Err(Refusal::Dropped);
        }
        if shell.is_misrouted(partition, key) {
            return Err(Refusal::Misrouted);
        }
        let local = self.active.get(&partition).and_then(|placement| self.copies.get(placement));
        let local = local.filter(|local| !local.set_aside).ok_or(Refusal::NoCopy)?;
        if local.is_beyond(key) {
            return Err(Refusal::Moved);
        }
        self.turn.read_stale(local, key)
    }
}

impl<S: Shell> Turn<S> {
    fn read_stale(&mut self, local: &LocalCopy<S>, key: &[u8]) -> Result<StaleRow, Refusal> {
        let counts = local.replica.counts() && !local.is_pulling();
        if !counts && !self.broken.breaks(Mutant::StaleWhileLoading) {
            return Err(Refusal::NotLive);
        }
        let as_of = local.memtable.committed();
        // After a restart or a pull the engine may have rows of positions not yet known to be committed here.
        let ahead = local.memtable.engine_ahead();
        let known = ahead != ENGINE_AHEAD_UNKNOWN && ahead.max(local.memtable.engine_position()) <= as_of;
        if !known && !self.broken.breaks(Mutant::StaleBeyondCommit) {
            return Err(Refusal::CommitUnknown);
        }
        // The row may give it keys whose merge is not known to be in its log, or that its log has given to another
        // partition.
        let merged = self.merged_by(local).map_err(|error| self.unreadable(local, &error))?;
        if !has_absorbed(local, merged.as_ref()) && !self.broken.breaks(Mutant::StaleUnabsorbed) {
            return Err(Refusal::CommitUnknown); // rule 48
        }
        let committed = PartitionView::new(&local.memtable, self.shell.engine(), local.placement, Reader::Committed);
        match reshape::cleared_since(&committed) {
            Ok(since) if since > local.row().map_or(Version::ZERO, |row| row.version) => {
                return Err(Refusal::CommitUnknown); // rule 41
            }
            Ok(_) => {}
            Err(error) => return Err(self.unreadable(local, &error)),
        }
        let reader = if self.broken.breaks(Mutant::StaleShowsOpen) { Reader::Newest } else { Reader::Committed };
        let view = PartitionView::new(&local.memtable, self.shell.engine(), local.placement, reader);
        let found = view.get(&row::value_key(key));
        let found = found.and_then(|row| Ok(row.map(|row| row::decode_stored(&row)).transpose()?));
        match found.and_then(|found| self.hide_expired(local, found)) {
            Ok(found) => Ok(StaleRow { found, as_of: Merged::revision(merged.as_ref(), as_of) }),
            Err(error) => Err(self.unreadable(local, &error)),
        }
    }

    /// Returns a value unless it has expired, by the committed log time or by this node's clock. Only an entry decides
    /// that it has, so it may appear at another copy still: stale reads promise no order among copies.
    fn hide_expired(&self, local: &LocalCopy<S>, found: Option<Stored>) -> Result<Option<Stored>, ViewError> {
        let Some(expires) = found.as_ref().and_then(|stored| stored.expires) else { return Ok(found) };
        let is_due = expires <= self.shell.wall() || expires <= self.committed_time(local)?;
        Ok(found.filter(|_| !is_due))
    }
}

#[cfg(test)]
#[path = "stale_tests.rs"]
mod tests;

//! Reads at a copy that need not lead: of committed rows alone, as of a position of the log, of which no age is promised
//! (PROTOCOL rule 33). No lease, no round and no leader has a part in them.

use crate::absorb::has_absorbed;
use crate::local_copy::{ENGINE_AHEAD_UNKNOWN, LocalCopy};
use crate::mutant::Mutant;
use crate::partitions::Partitions;
use crate::refusal::Refusal;
use crate::shell::Shell;
use crate::turn::Turn;
use archon_kv::{Merged, PartitionView, Reader, View, reshape, row};
use archon_types::{PartitionId, Revision, Version};
use bytes::Bytes;

/// What a copy shows of a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StaleRow {
    /// The value and its revision, if the key was there.
    pub found: Option<(Bytes, Revision)>,
    /// As of which it was so: of the partition's writes those with a revision up to this one are seen, and no other.
    pub as_of: Revision,
}

impl<S: Shell> Partitions<S> {
    /// Reads a key as this node's copy of the partition has it.
    ///
    /// # Errors
    /// Why this copy shows nothing: above all if it does not count, or does not know which of its rows are committed.
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
        // After a restart or a copy the engine may have rows of positions that are not known to be committed here yet.
        let ahead = local.memtable.engine_ahead();
        let known = ahead != ENGINE_AHEAD_UNKNOWN && ahead.max(local.memtable.engine_position()) <= as_of;
        if !known && !self.broken.breaks(Mutant::StaleBeyondCommit) {
            return Err(Refusal::CommitUnknown);
        }
        // The row may give it keys that its log does not know to have come, or that are another partition's by what its log says.
        let merged = self.merged_by(local);
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
        match found.and_then(|row| Ok(row.map(|row| row::decode_value(&row)).transpose()?)) {
            Ok(found) => Ok(StaleRow { found, as_of: Merged::revision(merged.as_ref(), as_of) }),
            Err(error) => Err(self.unreadable(local, &error)),
        }
    }
}

#[cfg(test)]
#[path = "stale_tests.rs"]
mod tests;

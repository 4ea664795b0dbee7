//! Stale reads at a copy that need not lead: committed rows as of a log position, without a bound on their age
//! (PROTOCOL rule 33). They need no lease, round or leader.

use crate::copies::local_copy::{ENGINE_AHEAD_UNKNOWN, LocalCopy};
use crate::mutant::Mutant;
use crate::operations::refusal::Refusal;
use crate::partitions::Partitions;
use crate::ranges::absorb::has_absorbed;
use crate::shell::Shell;
use crate::turn::Turn;
use archon_kv::{MergeRecord, PartitionView, Reader, View, ViewError, reshape, row};
use archon_types::transaction::within_bytes;
use archon_types::{ManyKeys, PartitionId, PlacementId, Revision, StoredValue, Version};

/// Value of a key at a copy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StaleRow {
    /// The value, if the key was there.
    pub found: Option<StoredValue>,
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
        let placement = self.readable(partition, std::iter::once(key))?;
        let local = self.copies.get(&placement).ok_or(Refusal::NoCopy)?;
        let merged = self.turn.check_committed(local)?;
        let found = self.turn.committed_value(local, key)?;
        Ok(StaleRow { found, as_of: MergeRecord::revision(merged.as_ref(), local.memtable.committed()) })
    }

    /// Reads several keys from this node's copy, as of one position of its log. Unlike [`Partitions::read_stale`] it
    /// bounds what a read may miss (ADR 0100): the copy has accepted an append of its leader within
    /// [`Shell::replica_lag_ms`], knows committed what that announced, and the node has a lease.
    ///
    /// # Errors
    /// The reason why this copy cannot answer, or why the answer is too large.
    pub fn read_replica(
        &mut self,
        partition: PartitionId,
        many: &ManyKeys,
    ) -> Result<Vec<Option<StoredValue>>, Refusal> {
        let placement = self.readable(partition, many.keys().iter().map(|key| &key[..]))?;
        let local = self.copies.get(&placement).ok_or(Refusal::NoCopy)?;
        self.turn.check_committed(local)?;
        let now = self.turn.shell.clock();
        let broken = self.turn.broken;
        let lag_ms = if broken.breaks(Mutant::ReplicaUnheard) { u64::MAX } else { self.turn.shell.replica_lag_ms() };
        let is_level = local.replica.level_since().is_some_and(|at| now.since(at) <= lag_ms);
        if !is_level || !self.turn.shell.has_lease(now) && !broken.breaks(Mutant::ReplicaUnleased) {
            return Err(Refusal::Behind);
        }
        let (mut values, mut bytes) = (Vec::with_capacity(many.keys().len()), many.bytes());
        for key in many.keys() {
            let found = self.turn.committed_value(local, key)?;
            bytes += found.as_ref().map_or(0, |stored| stored.value.len());
            within_bytes("the answer", bytes).map_err(Refusal::Detail)?;
            values.push(found);
        }
        Ok(values)
    }

    /// Returns this node's copy of the partition, if that has these keys.
    fn readable<'a>(
        &self,
        partition: PartitionId,
        mut keys: impl Iterator<Item = &'a [u8]>,
    ) -> Result<PlacementId, Refusal> {
        let shell = &self.turn.shell;
        if shell.is_stopping() {
            return Err(Refusal::Stopping);
        }
        if shell.is_dropped(partition) {
            return Err(Refusal::Dropped);
        }
        let placement = *self.active.get(&partition).ok_or(Refusal::NoCopy)?;
        let local = self.copies.get(&placement).filter(|local| !local.set_aside).ok_or(Refusal::NoCopy)?;
        keys.try_for_each(|key| match (shell.is_misrouted(partition, key), local.is_beyond(key)) {
            (true, _) => Err(Refusal::Misrouted),
            (false, true) => Err(Refusal::Moved),
            (false, false) => Ok(()),
        })?;
        Ok(placement)
    }
}

impl<S: Shell> Turn<S> {
    /// Checks that a copy is in sync, and knows which of its rows are committed. Returns the last merge into it.
    fn check_committed(&mut self, local: &LocalCopy<S>) -> Result<Option<MergeRecord>, Refusal> {
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
                Err(Refusal::CommitUnknown) // rule 41
            }
            Ok(_) => Ok(merged),
            Err(error) => Err(self.unreadable(local, &error)),
        }
    }

    /// Returns the committed value of a key at a copy, unless it has expired.
    fn committed_value(&mut self, local: &LocalCopy<S>, key: &[u8]) -> Result<Option<StoredValue>, Refusal> {
        let reader = if self.broken.breaks(Mutant::StaleShowsOpen) { Reader::Newest } else { Reader::Committed };
        let view = PartitionView::new(&local.memtable, self.shell.engine(), local.placement, reader);
        let found = row::with_value_key(key, |key| view.get(key));
        let found = found.and_then(|row| Ok(row.map(|row| row::decode_stored(&row)).transpose()?));
        found.and_then(|found| self.hide_expired(local, found)).map_err(|error| self.unreadable(local, &error))
    }

    /// Returns a value unless it has expired, by the committed log time or by this node's clock. Only an entry decides
    /// that it has, so it may appear at another copy still: stale reads promise no order among copies.
    fn hide_expired(&self, local: &LocalCopy<S>, found: Option<StoredValue>) -> Result<Option<StoredValue>, ViewError> {
        let Some(expires) = found.as_ref().and_then(|stored| stored.expires) else { return Ok(found) };
        let is_due = expires <= self.shell.wall() || expires <= self.committed_time(local)?;
        Ok(found.filter(|_| !is_due))
    }
}

#[cfg(test)]
#[path = "stale_tests.rs"]
mod tests;

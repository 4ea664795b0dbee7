//! Merge source: the leader of the right partition gives its rows to the leader of the left one, page by page, once its
//! log seals all of them (PROTOCOL rule 45). The rows no longer change then, so each page is the same at any time and
//! under any leader.

use crate::copies::local_copy::LocalCopy;
use crate::mutant::Mutant;
use crate::partitions::Partitions;
use crate::ranges::yield_page::YieldPage;
use crate::shell::Shell;
use crate::turn::Turn;
use archon_kv::engine::PageLimit;
use archon_kv::{MergeRecord, PartitionView, Reader, Seal, View, ViewError, row};
use archon_types::{PartitionId, ScanOrder, Version};
use bytes::Bytes;
use std::ops::Bound;

impl<S: Shell> Partitions<S> {
    /// Returns a page of this partition for its left neighbour; `None` if this copy does not lead it, or its log has
    /// not committed the seal of all keys in this attempt.
    pub fn yielded(
        &mut self,
        right: PartitionId,
        attempt: Version,
        after: Option<&Bytes>,
        limit: PageLimit,
    ) -> Option<YieldPage> {
        let local = self.active.get(&right).and_then(|placement| self.copies.get(placement));
        let local = local.filter(|local| local.serving && !local.set_aside && !local.is_pulling())?;
        match self.turn.yielded(local, attempt, after, limit) {
            Ok(page) => page,
            Err(error) => {
                self.turn.unusable(local, &error);
                None
            }
        }
    }
}

impl<S: Shell> Turn<S> {
    fn yielded(
        &self,
        local: &LocalCopy<S>,
        attempt: Version,
        after: Option<&Bytes>,
        limit: PageLimit,
    ) -> Result<Option<YieldPage>, ViewError> {
        let Some(range) = local.range() else { return Ok(None) };
        let unsealed = self.broken.breaks(Mutant::PullUnsealed); // rule 45
        let view = PartitionView::new(&local.memtable, self.shell.engine(), local.placement, Reader::Committed);
        let seal = Seal::current(&view)?.filter(|seal| seal.attempt == attempt && seal.at == range.begin);
        let sealed_at = seal.map(|seal| seal.position.seq).or(unsealed.then(|| local.memtable.committed()));
        let Some(sealed_at) = sealed_at else { return Ok(None) };
        let (begin, end) = row::value_bounds(range);
        let from = match after {
            Some(after) if *after >= begin => Bound::Excluded(&after[..]),
            _ => Bound::Included(&begin[..]),
        };
        let page = view.page(from, &end, ScanOrder::Ascending, limit)?;
        let merged = MergeRecord::current(&view)?;
        let revision = MergeRecord::revision(merged.as_ref(), sealed_at);
        let log_time = self.committed_time(local)?;
        Ok(Some(YieldPage { rows: page.rows, more: page.more, revision, log_time }))
    }
}

//! Merges, from the side of the right partition: its leader gives its rows to the leader of the left one, page by page, once its log
//! gives all of them away (PROTOCOL rule 45). They do not change any more then, so that a page is the same whenever it is read, and
//! whoever leads.

use crate::local_copy::LocalCopy;
use crate::mutant::Mutant;
use crate::partitions::Partitions;
use crate::shell::Shell;
use crate::turn::Turn;
use archon_kv::engine::{PageLimit, Row};
use archon_kv::{Merged, PartitionView, Reader, Seal, View, ViewError, row};
use archon_types::{PartitionId, PlacementId, Revision, ScanOrder, Version};
use bytes::Bytes;
use std::ops::Bound;

/// A leader's question for rows of the partition that it absorbs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct YieldAsk {
    /// Who asks.
    pub left: PartitionId,
    /// Its copy that leads.
    pub placement: PlacementId,
    /// The number of the question, which the answer bears.
    pub ask: u64,
    /// The partition whose rows are wanted.
    pub right: PartitionId,
    /// The attempt to merge.
    pub attempt: Version,
    /// The key of the last row that came before; `None` for the first page.
    pub after: Option<Bytes>,
}

/// Some rows of a partition that is absorbed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct YieldPage {
    /// In order of key, as they are stored.
    pub rows: Vec<Row>,
    /// There are more.
    pub more: bool,
    /// None of the partition has a higher revision, or ever had.
    pub revision: Revision,
}

impl<S: Shell> Partitions<S> {
    /// A page of this partition, which is to be absorbed by its left neighbour; `None` if this copy does not lead it, or its log has
    /// not committed that it gives all keys away in this attempt.
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
        let merged = Merged::current(&view)?;
        let revision = Merged::revision(merged.as_ref(), sealed_at);
        Ok(Some(YieldPage { rows: page.rows, more: page.more, revision }))
    }
}

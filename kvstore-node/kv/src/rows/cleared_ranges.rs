//! Cleared ranges of user keys: the entry that cleared a range removes all older rows in it.

use super::row_map::is_value;
use archon_types::{KeyRange, Seq};
use bytes::Bytes;
use std::collections::VecDeque;

/// Cost of a cleared range beside its bounds, in bytes.
const CLEAR_OVERHEAD_BYTES: usize = 128;

/// Cleared ranges, in order of position. Nearly always empty.
#[derive(Debug, Default)]
pub(crate) struct ClearedRanges(VecDeque<(Seq, KeyRange)>);

impl ClearedRanges {
    /// Adds the range cleared by the entry at `seq`, which is after all entries here.
    pub(crate) fn add(&mut self, seq: Seq, range: KeyRange) {
        self.0.push_back((seq, range));
    }

    /// Drops the ranges up to `seq`.
    pub(crate) fn settled(&mut self, seq: Seq) {
        while self.0.pop_front_if(|(at, _)| *at <= seq).is_some() {}
    }

    /// Drops the ranges after `seq`, which are truncated.
    pub(crate) fn cut(&mut self, seq: Seq) {
        while self.0.pop_back_if(|(at, _)| *at > seq).is_some() {}
    }

    /// Returns whether a range hides the older row with this key.
    pub(crate) fn hide(&self, key: &[u8]) -> bool {
        !self.0.is_empty() && self.0.iter().any(|(_, range)| clears(range, key))
    }

    /// Returns whether any range overlaps these keys.
    pub(crate) fn reach(&self, keys: &KeyRange) -> bool {
        self.0.iter().any(|(_, range)| range.overlaps(keys))
    }

    /// Returns the ranges, in order of position.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = &KeyRange> {
        self.0.iter().map(|(_, range)| range)
    }

    /// Returns the ranges.
    pub(crate) fn into_ranges(self) -> impl Iterator<Item = KeyRange> {
        self.0.into_iter().map(|(_, range)| range)
    }
}

/// Returns whether clearing `range` removes the row with this key.
pub(crate) fn clears(range: &KeyRange, key: &[u8]) -> bool {
    is_value(key) && key.get(1..).is_some_and(|key| range.contains(key))
}

/// Returns the cost of a cleared range to the budget.
pub(crate) fn clear_cost(range: &KeyRange) -> usize {
    CLEAR_OVERHEAD_BYTES + range.begin.len() + range.end.as_ref().map_or(0, Bytes::len)
}

//! Ranges of users' keys of which everything older is gone, by the entries that cleared them.

use super::row_map::is_value;
use archon_types::{KeyRange, Seq};
use bytes::Bytes;
use std::collections::VecDeque;

/// What a cleared range costs beside its bounds.
const CLEAR_OVERHEAD_BYTES: usize = 128;

/// Cleared ranges, in order of position. There are none, nearly always.
#[derive(Debug, Default)]
pub(crate) struct Clears(VecDeque<(Seq, KeyRange)>);

impl Clears {
    /// The entry at `seq`, after all that are here, clears this.
    pub(crate) fn add(&mut self, seq: Seq, range: KeyRange) {
        self.0.push_back((seq, range));
    }

    /// Those up to `seq` are here no more.
    pub(crate) fn settled(&mut self, seq: Seq) {
        while self.0.pop_front_if(|(at, _)| *at <= seq).is_some() {}
    }

    /// Those after `seq` are cut off.
    pub(crate) fn cut(&mut self, seq: Seq) {
        while self.0.pop_back_if(|(at, _)| *at > seq).is_some() {}
    }

    /// Whether what is below has lost the row with this key.
    pub(crate) fn hide(&self, key: &[u8]) -> bool {
        !self.0.is_empty() && self.0.iter().any(|(_, range)| clears(range, key))
    }

    /// Whether any of them reaches into these keys.
    pub(crate) fn reach(&self, keys: &KeyRange) -> bool {
        self.0.iter().any(|(_, range)| range.overlaps(keys))
    }

    /// The ranges, in order of position.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = &KeyRange> {
        self.0.iter().map(|(_, range)| range)
    }

    /// The ranges.
    pub(crate) fn into_ranges(self) -> impl Iterator<Item = KeyRange> {
        self.0.into_iter().map(|(_, range)| range)
    }
}

/// Whether clearing `range` removes the row with this key.
pub(crate) fn clears(range: &KeyRange, key: &[u8]) -> bool {
    is_value(key) && key.get(1..).is_some_and(|key| range.contains(key))
}

/// What a cleared range counts against the budget.
pub(crate) fn clear_cost(range: &KeyRange) -> usize {
    CLEAR_OVERHEAD_BYTES + range.begin.len() + range.end.as_ref().map_or(0, Bytes::len)
}

//! What of a placement is committed but not in the engine yet, told to whoever counts what is stored.

use super::Shard;
use archon_kv::{Growth, Reader, Recent};
use archon_types::PlacementId;
use bytes::Bytes;
use std::ops::Bound;

/// Rows told at once. Walking over them is all that counting costs the shard: less than a tenth of a millisecond.
const ROWS_MAX: usize = 1_024;

/// Some consecutive rows of a window.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Gathered {
    /// In order of key: how long the value is, `None` where the row is removed.
    pub(crate) rows: Vec<(Bytes, Option<usize>)>,
    /// Whether there may be rows after the last one.
    pub(crate) more: bool,
}

impl Gathered {
    /// Committed rows of `recent` from `from` on, at most `rows_max`.
    pub(crate) fn of(recent: &Recent, from: Bound<&[u8]>, rows_max: usize) -> Self {
        let mut found = recent.range(from, Bound::Unbounded, Reader::Committed);
        let rows = found.by_ref().take(rows_max).map(|(key, value)| (key.clone(), value.map(Bytes::len))).collect();
        Self { rows, more: found.next().is_some() }
    }
}

impl Shard {
    /// A placement's window, whether it is served or not.
    pub(super) fn window(&mut self, placement: PlacementId) -> Option<&mut Recent> {
        let active = self.slots.get_mut(&placement).map(|slot| &mut slot.recent);
        active.or_else(|| self.dormant.get_mut(&placement).map(|found| &mut found.recent))
    }

    /// How much each placement has grown since it was counted.
    pub(super) fn grown(&self) -> Vec<(PlacementId, Growth)> {
        self.slots.iter().map(|(placement, slot)| (*placement, slot.recent.grown())).collect()
    }

    /// What a placement's window holds from `from` on; `None` if it is not here (any more).
    pub(super) fn gathered(&self, placement: PlacementId, from: Bound<&[u8]>) -> Option<Gathered> {
        let active = self.slots.get(&placement).map(|slot| &slot.recent);
        let recent = active.or_else(|| self.dormant.get(&placement).map(|found| &found.recent))?;
        Some(Gathered::of(recent, from, ROWS_MAX))
    }
}

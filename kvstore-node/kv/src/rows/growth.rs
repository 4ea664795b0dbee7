//! Growth of a partition's committed rows since the last count. A count takes time, and proceeds in key order while
//! rows before and behind it change.

use super::row_map::is_value;
use crate::operations::trend::Trend;
use bytes::Bytes;

/// A change of size. The replaced row is known only while it is in the memtable; otherwise a write counts as new, so
/// that overwriting looks like growth until the next count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Growth {
    /// Bytes of keys and values of all rows.
    pub bytes: i64,
    /// User rows.
    pub keys: i64,
}

impl Growth {
    /// Subtracts a part.
    #[must_use]
    pub const fn without(self, part: Self) -> Self {
        Self { bytes: self.bytes.saturating_sub(part.bytes), keys: self.keys.saturating_sub(part.keys) }
    }

    /// Returns the growth of a row that gets the value `after`. `before` is its state in the memtable; `None` if not
    /// there.
    pub(crate) fn of(key: &Bytes, before: Option<Option<&Bytes>>, after: Option<&Bytes>) -> Self {
        let length = |bytes: &Bytes| i64::try_from(bytes.len()).unwrap_or(i64::MAX);
        let size = |value: Option<&Bytes>| value.map_or(0, |value| length(key) + length(value));
        let (bytes, existed) = match before {
            Some(before) => (size(before), before.is_some()),
            // A removed row existed, with unknown length; a set row did not, as far as known.
            None if after.is_none() => (length(key), true),
            None => (0, false),
        };
        let keys = i64::from(after.is_some()) - i64::from(existed);
        Self { bytes: size(after) - bytes, keys: if is_value(key) { keys } else { 0 } }
    }

    fn add(&mut self, other: Self) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.keys = self.keys.saturating_add(other.keys);
    }
}

/// Growth since the last complete count, and the part that the present count misses.
#[derive(Debug, Default)]
pub(crate) struct GrowthTracker {
    /// Since the last count, or since the memtable began.
    since: Growth,
    /// Rows that the count may have included were cleared since.
    cleared: bool,
    /// The present count.
    counting: Option<CountProgress>,
    trend: Trend,
}

/// A count in progress.
#[derive(Debug)]
struct CountProgress {
    /// Last key counted.
    reached: Bytes,
    /// Last user row to count; there was none beyond it when the count began.
    last: Option<Bytes>,
    /// Growth of keys already counted, and of keys beyond the count.
    missed: Growth,
}

impl CountProgress {
    fn misses(&self, key: &[u8]) -> bool {
        key <= &self.reached[..] || (is_value(key) && self.last.as_ref().is_none_or(|last| key > &last[..]))
    }
}

impl GrowthTracker {
    /// Records the change of a row.
    pub(crate) fn note(&mut self, key: &[u8], change: Growth) {
        self.since.add(change);
        if is_value(key) {
            self.trend.note(key, change.bytes);
        }
        if let Some(counting) = self.counting.as_mut().filter(|counting| counting.misses(key)) {
            counting.missed.add(change);
        }
    }

    /// Starts a count of user rows up to `last`, after which there are none now.
    pub(crate) fn begin(&mut self, last: Option<Bytes>) {
        // Copied: a slice would keep the whole entry of the row.
        let last = last.map(|last| Bytes::copy_from_slice(&last));
        self.trend.look_from(last.clone());
        // No key is empty: nothing is counted yet.
        self.counting = Some(CountProgress { reached: Bytes::new(), last, missed: Growth::default() });
    }

    /// Records that the count includes rows up to this key; ignored if the count began on another memtable.
    pub(crate) fn reached(&mut self, key: Bytes) {
        if let Some(counting) = &mut self.counting {
            counting.reached = Bytes::copy_from_slice(&key);
        }
    }

    /// Completes the count: the growth it missed counts from now on. Returns the growth since the previous count;
    /// `None` if the count does not apply to this memtable: it began on another one, or rows were cleared meanwhile.
    pub(crate) fn counted(&mut self) -> Option<Growth> {
        let counting = self.counting.take()?;
        self.cleared = false;
        Some(std::mem::replace(&mut self.since, counting.missed))
    }

    /// Returns whether nearly all growth is at the end: seven eighths.
    pub(crate) const fn is_at_the_end(&self) -> bool {
        self.trend.is_at_the_end()
    }

    /// Invalidates counts and trend after a clearing of an unknown number of rows.
    pub(crate) fn clear(&mut self) {
        self.cleared = true;
        self.counting = None;
        self.forget_trend();
    }

    /// Drops the trend, which does not predict the growth of rows to come.
    pub(crate) fn forget_trend(&mut self) {
        self.trend = Trend::default();
    }

    /// Returns the growth since the last count; `None` once rows were cleared that it may have included.
    pub(crate) const fn since(&self) -> Option<Growth> {
        if self.cleared { None } else { Some(self.since) }
    }
}

//! How much a partition's committed rows have grown since somebody counted them: a count takes its time, and goes from the
//! first key to the last while rows are written before and behind it.

use super::row_map::is_value;
use super::trend::Trend;
use bytes::Bytes;

/// A change of size. What a row replaces is known only where it is still in the memtable; otherwise it is taken for new, so
/// that overwriting looks like growth until the next count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Growth {
    /// Bytes of keys and values of all rows.
    pub bytes: i64,
    /// Rows of users.
    pub keys: i64,
}

impl Growth {
    /// This without a part of it.
    #[must_use]
    pub const fn without(self, part: Self) -> Self {
        Self { bytes: self.bytes.saturating_sub(part.bytes), keys: self.keys.saturating_sub(part.keys) }
    }

    /// How much a row grows that has the value `after`. `before` is the one that the memtable had; `None`: it had no such row.
    pub(crate) fn of(key: &Bytes, before: Option<Option<&Bytes>>, after: Option<&Bytes>) -> Self {
        let length = |bytes: &Bytes| i64::try_from(bytes.len()).unwrap_or(i64::MAX);
        let size = |value: Option<&Bytes>| value.map_or(0, |value| length(key) + length(value));
        let (bytes, existed) = match before {
            Some(before) => (size(before), before.is_some()),
            // What is removed was there, of unknown length; what is set was not, as far as is known.
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

/// What has grown since the last count that came to its end, and what the one under way misses.
#[derive(Debug, Default)]
pub(crate) struct Growing {
    /// Since the last count, or since the memtable began.
    since: Growth,
    /// Rows were cleared since that count that it may have counted.
    cleared: bool,
    /// The count under way.
    counting: Option<Counting>,
    trend: Trend,
}

/// A count under way.
#[derive(Debug)]
struct Counting {
    /// Up to which key it has come.
    reached: Bytes,
    /// The last of users' rows that it will come to; beyond it there was none when it began.
    last: Option<Bytes>,
    /// What has grown since where it has been, and where it does not come to.
    missed: Growth,
}

impl Counting {
    fn misses(&self, key: &[u8]) -> bool {
        key <= &self.reached[..] || (is_value(key) && self.last.as_ref().is_none_or(|last| key > &last[..]))
    }
}

impl Growing {
    /// A row changed by that much.
    pub(crate) fn note(&mut self, key: &[u8], change: Growth) {
        self.since.add(change);
        if is_value(key) {
            self.trend.note(key, change.bytes);
        }
        if let Some(counting) = self.counting.as_mut().filter(|counting| counting.misses(key)) {
            counting.missed.add(change);
        }
    }

    /// A count begins that comes to users' rows up to this one, after which there is none now.
    pub(crate) fn begin(&mut self, last: Option<Bytes>) {
        self.trend.look_from(last.clone());
        // No key is empty: nothing is behind it yet.
        self.counting = Some(Counting { reached: Bytes::new(), last, missed: Growth::default() });
    }

    /// The count has come up to this key and includes it; nothing if it was begun on another memtable.
    pub(crate) fn reached(&mut self, key: Bytes) {
        if let Some(counting) = &mut self.counting {
            counting.reached = key;
        }
    }

    /// The count has come to its end: what it missed is what has grown since. Returns what had grown since the one before;
    /// `None` if the count says nothing of this memtable: it was begun on another one, or rows were cleared meanwhile.
    pub(crate) fn counted(&mut self) -> Option<Growth> {
        let counting = self.counting.take()?;
        self.cleared = false;
        Some(std::mem::replace(&mut self.since, counting.missed))
    }

    /// Whether nearly all that comes comes at the end: seven parts in eight.
    pub(crate) const fn is_at_the_end(&self) -> bool {
        self.trend.is_at_the_end()
    }

    /// Rows were cleared, nobody knows how many: what was counted and seen of them says nothing of those that stay.
    pub(crate) fn clear(&mut self) {
        self.cleared = true;
        self.counting = None;
        self.forget_trend();
    }

    /// What was seen says nothing of where those rows grow that are to come.
    pub(crate) fn forget_trend(&mut self) {
        self.trend = Trend::default();
    }

    /// `None` once rows were cleared that may have been counted.
    pub(crate) const fn since(&self) -> Option<Growth> {
        if self.cleared { None } else { Some(self.since) }
    }
}

//! Cache of engine rows: an engine read costs more than everything else that answers a get.
//!
//! All copies of a shard share one bound, so a partition with many reads uses the room that others leave. `quick_cache`
//! decides which rows stay: a row read once goes before those read again (Yang et al., "FIFO queues are all you need
//! for cache eviction", SOSP 2023), so that a scan does not evict rows that are read all the time. While there is room,
//! written rows are kept as well, before any read; that never evicts a row.

use archon_telemetry::Metric;
use bytes::Bytes;
use hashbrown::DefaultHashBuilder;
use quick_cache::unsync::{Cache, DefaultLifecycle};
use quick_cache::{Equivalent, Weighter};
use std::hash::Hash;
use std::num::NonZeroU64;

/// Cost of a row beside its key and value, in bytes.
const ROW_OVERHEAD_BYTES: usize = 160;
/// Inverse of the largest share of the cache that one row may take.
const ROW_PART: u64 = 16;

/// Cache identity of one copy of a partition, until its rows are dropped.
#[derive(Debug, Default)]
pub(super) struct KeptRows(Option<NonZeroU64>);

/// The rows of all copies of a shard.
///
/// The cache represents the engine and never the memtable: readers check the memtable first, and every write to the
/// engine comes out of the memtable, which hides the row until [`RowCache::written`] has reported it.
pub(super) struct RowCache {
    rows: Cache<RowKey, Option<Bytes>, RowWeight, DefaultHashBuilder, DefaultLifecycle<RowKey, Option<Bytes>>>,
    /// The last number assigned to a copy.
    last: u64,
    /// Bytes last reported.
    told_bytes: u64,
}

impl std::fmt::Debug for RowCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RowCache").field("rows", &self.rows.len()).field("bytes", &self.bytes()).finish()
    }
}

#[derive(PartialEq, Eq, Hash)]
struct RowKey {
    of: NonZeroU64,
    key: Bytes,
}

#[derive(Hash)]
struct RowKeyRef<'a> {
    of: NonZeroU64,
    key: &'a [u8],
}

impl Equivalent<RowKey> for RowKeyRef<'_> {
    fn equivalent(&self, held: &RowKey) -> bool {
        self.of == held.of && self.key == held.key
    }
}

#[derive(Clone)]
struct RowWeight;

impl Weighter<RowKey, Option<Bytes>> for RowWeight {
    fn weight(&self, key: &RowKey, row: &Option<Bytes>) -> u64 {
        cost(&key.key, row.as_deref())
    }
}

impl RowCache {
    /// Creates a cache of about this size.
    pub(super) fn new(bytes_max: u64) -> Self {
        // Only a guess, for the number of evicted rows that are remembered.
        let rows = usize::try_from(bytes_max / 512).unwrap_or(usize::MAX).max(16);
        let hasher = DefaultHashBuilder::default();
        Self {
            rows: Cache::with(rows, bytes_max, RowWeight, hasher, DefaultLifecycle::default()),
            last: 0,
            told_bytes: 0,
        }
    }

    /// Returns the row with this key, `Some(None)` if the engine has none; `None` if the engine must be asked.
    pub(super) fn get(&self, of: &KeptRows, key: &[u8]) -> Option<Option<Bytes>> {
        self.rows.get(&RowKeyRef { of: of.0?, key }).cloned()
    }

    /// Caches an engine's answer, in memory of its own: the engine's row may be a small part of a block of many.
    pub(super) fn put(&mut self, of: &mut KeptRows, key: Bytes, row: Option<&[u8]>) {
        let of = self.named(of);
        self.keep(RowKey { of, key }, row);
    }

    fn named(&mut self, of: &mut KeptRows) -> NonZeroU64 {
        *of.0.get_or_insert_with(|| {
            self.last += 1;
            NonZeroU64::MIN.saturating_add(self.last)
        })
    }

    /// Caches a row in memory of its own, unless it is too large.
    fn keep(&mut self, key: RowKey, row: Option<&[u8]>) {
        if cost(&key.key, row) <= self.rows.capacity() / ROW_PART {
            self.rows.insert(key, row.map(Bytes::copy_from_slice));
        }
    }

    /// Records writes to the engine. Cached rows stay cached; for a copy that serves reads, other rows are cached if
    /// they evict nothing.
    pub(super) fn written<'a>(
        &mut self,
        of: &mut KeptRows,
        rows: impl Iterator<Item = (&'a Bytes, Option<&'a Bytes>)>,
        serves: bool,
    ) {
        if of.0.is_none() && !serves {
            return;
        }
        let of = self.named(of);
        for (key, row) in rows {
            let row = row.map(|row| &row[..]);
            // Copied again here, since it may be a small part of a long log entry.
            if let Some((held, _)) = self.rows.remove(&RowKeyRef { of, key }) {
                self.keep(held, row);
            } else if serves && row.is_some() && self.bytes() + cost(key, row) <= self.rows.capacity() {
                self.keep(RowKey { of, key: Bytes::copy_from_slice(key) }, row);
            }
        }
    }

    /// Adds the change of this cache's size to the node's total.
    pub(super) fn tell(&mut self, all: &Metric) {
        let now = self.bytes();
        let before = std::mem::replace(&mut self.told_bytes, now);
        all.add(now.saturating_sub(before));
        all.subtract(before.saturating_sub(now));
    }

    /// Returns the bytes of all rows.
    fn bytes(&self) -> u64 {
        self.rows.weight()
    }
}

impl KeptRows {
    /// Drops all rows of the copy, as the engine's rows are replaced. They are evicted as other rows are read.
    pub(super) fn forget(&mut self) {
        self.0 = None;
    }
}

/// Returns the cost of a row to the bound.
fn cost(key: &[u8], row: Option<&[u8]>) -> u64 {
    (ROW_OVERHEAD_BYTES + key.len() + row.map_or(0, <[u8]>::len)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_kv::RowChange;

    fn key(number: u64) -> Bytes {
        Bytes::from(number.to_be_bytes().to_vec())
    }

    fn row(text: &'static str) -> Option<Bytes> {
        Some(Bytes::from_static(text.as_bytes()))
    }

    fn written(cache: &mut RowCache, of: &mut KeptRows, rows: &[RowChange]) {
        cache.written(of, rows.iter().map(|row| (&row.key, row.value.as_ref())), false);
    }

    #[test]
    fn cache_sees_engine_writes_and_missing_rows() {
        let (mut cache, mut own) = (RowCache::new(100_000), KeptRows::default());
        assert_eq!(cache.get(&own, &key(1)), None);
        cache.put(&mut own, key(1), Some(b"a"));
        cache.put(&mut own, key(2), None);
        assert_eq!((cache.get(&own, &key(1)), cache.get(&own, &key(2))), (Some(row("a")), Some(None)));
        written(
            &mut cache,
            &mut own,
            &[
                RowChange { key: key(1), value: None },
                RowChange { key: key(2), value: row("b") },
                RowChange { key: key(3), value: row("c") },
            ],
        );
        assert_eq!((cache.get(&own, &key(1)), cache.get(&own, &key(2))), (Some(None), Some(row("b"))));
        assert_eq!(cache.get(&own, &key(3)), None);
        own.forget();
        assert_eq!(cache.get(&own, &key(1)), None);
    }

    #[test]
    fn copies_with_same_keys_are_kept_apart() {
        let mut cache = RowCache::new(100_000);
        let (mut one, mut other) = (KeptRows::default(), KeptRows::default());
        cache.put(&mut one, key(1), Some(b"one"));
        assert_eq!(cache.get(&other, &key(1)), None);
        cache.put(&mut other, key(1), Some(b"other"));
        assert_eq!((cache.get(&one, &key(1)), cache.get(&other, &key(1))), (Some(row("one")), Some(row("other"))));
        one.forget();
        cache.put(&mut one, key(2), Some(b"again"));
        assert_eq!((cache.get(&one, &key(1)), cache.get(&one, &key(2))), (None, Some(row("again"))));
        assert_eq!(cache.get(&other, &key(1)), Some(row("other")));
    }

    #[test]
    fn read_partition_uses_room_of_idle_ones() {
        let one = cost(&key(0), Some(b"y"));
        let mut cache = RowCache::new(1_000 * one);
        let mut own: Vec<KeptRows> = (0..64).map(|_| KeptRows::default()).collect();
        for own in &mut own {
            cache.put(own, key(0), Some(b"y"));
        }
        for _ in 0..3 {
            for number in 0..900 {
                if cache.get(&own[7], &key(number)).is_none() {
                    cache.put(&mut own[7], key(number), Some(b"y"));
                }
            }
        }
        let kept = (0..900).filter(|number| cache.get(&own[7], &key(*number)).is_some()).count();
        assert!(kept >= 850, "{kept} of 900 rows");
        assert!(cache.bytes() <= 1_000 * one);
    }

    #[test]
    fn scan_does_not_evict_hot_rows() {
        let room = 1_000 * cost(&key(0), Some(b"x"));
        let (mut cache, mut own) = (RowCache::new(room), KeptRows::default());
        for _ in 0..4 {
            for number in 0..500 {
                if cache.get(&own, &key(number)).is_none() {
                    cache.put(&mut own, key(number), Some(b"x"));
                }
            }
        }
        for number in 10_000..15_000 {
            cache.put(&mut own, key(number), Some(b"y"));
            assert!(cache.bytes() <= room);
        }
        let kept = (0..500).filter(|number| cache.get(&own, &key(*number)).is_some()).count();
        assert!(kept >= 450, "{kept} of 500 rows that were read four times");
        cache.put(&mut own, key(5_000), Some(&vec![0; usize::try_from(room).unwrap()]));
        assert_eq!(cache.get(&own, &key(5_000)), None, "larger than its part");
    }

    #[test]
    fn growing_rows_stay_within_bound() {
        let room = 100 * cost(&key(0), Some(b"x"));
        let (mut cache, mut own) = (RowCache::new(room), KeptRows::default());
        for number in 0..40 {
            cache.put(&mut own, key(number), Some(b"x"));
        }
        for length in [1, 500, 2_000, 1, usize::try_from(room).unwrap(), 3_000] {
            let grown = |number| RowChange { key: key(number), value: Some(Bytes::from(vec![7; length])) };
            written(&mut cache, &mut own, &(0..40).map(grown).collect::<Vec<_>>());
            assert!(cache.bytes() <= room, "{} of {room} bytes with rows of {length}", cache.bytes());
            for number in 0..40 {
                let found = cache.get(&own, &key(number));
                let is_new = found.is_none_or(|found| found.is_some_and(|found| found.len() == length));
                assert!(is_new, "row {number} of {length} bytes is old");
            }
            for number in 0..40 {
                if cache.get(&own, &key(number)).is_none() {
                    cache.put(&mut own, key(number), Some(b"x"));
                }
            }
        }
    }

    #[test]
    fn written_rows_are_cached_while_there_is_room() {
        let one = cost(&key(0), Some(b"x"));
        let (mut cache, mut own) = (RowCache::new(100 * one), KeptRows::default());
        for number in 0..50 {
            cache.put(&mut own, key(number), Some(b"x"));
        }
        let rows: Vec<(Bytes, Option<Bytes>)> =
            (50..1_000).map(|number| (key(number), row("x").filter(|_| number != 60))).collect();
        let rows = || rows.iter().map(|(key, row)| (key, row.as_ref()));
        cache.written(&mut own, rows(), false);
        assert_eq!(cache.get(&own, &key(50)), None, "nobody reads a copy that does not serve");
        cache.written(&mut own, rows(), true);
        let kept =
            |numbers: std::ops::Range<u64>| numbers.filter(|number| cache.get(&own, &key(*number)).is_some()).count();
        assert_eq!(kept(0..50), 50, "none of those that were read was pushed out");
        assert_eq!((kept(50..101), kept(101..1_000)), (50, 0));
        assert_eq!(cache.get(&own, &key(60)), None, "that there is none is not kept");
    }

    #[test]
    fn cached_row_does_not_retain_its_block() {
        let (mut cache, mut own) = (RowCache::new(100_000), KeptRows::default());
        let block = Bytes::from(vec![b'a'; 4_096]);
        let read = block.slice(..1);
        cache.put(&mut own, key(1), Some(&read));
        written(&mut cache, &mut own, &[RowChange { key: key(1), value: Some(block.slice(1..2)) }]);
        drop(read);
        assert_eq!(cache.get(&own, &key(1)), Some(row("a")));
        assert!(block.is_unique());
    }
}

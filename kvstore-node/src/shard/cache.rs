//! Rows as the engine holds them, kept for those who read them again: a read of the engine costs more than everything
//! else that answers a get.

use bytes::Bytes;
use std::collections::HashMap;

/// Bytes of rows that all caches of a node hold together, about.
pub(super) const CACHE_BYTES: usize = 128 * 1024 * 1024;
/// What a row costs beside its key and value.
const ROW_OVERHEAD_BYTES: usize = 160;

/// One partition's rows, in two generations: what is used goes to the young one, and when that is full the old one is
/// let go of as a whole.
///
/// It answers for the engine and never for the memtable: whoever asks looks into the memtable first, and every write to the
/// engine comes out of the memtable, which hides the row until [`RowCache::written`] has told of it.
#[derive(Debug, Default)]
pub(super) struct RowCache {
    young: HashMap<Bytes, Option<Bytes>>,
    old: HashMap<Bytes, Option<Bytes>>,
    young_bytes: usize,
}

impl RowCache {
    /// The row with this key, `Some(None)` if the engine has none; `None` if it must be asked. `bytes_max` as in
    /// [`RowCache::put`].
    pub(super) fn get(&mut self, key: &[u8], bytes_max: usize) -> Option<Option<Bytes>> {
        if let Some(found) = self.young.get(key) {
            return Some(found.clone());
        }
        let (key, row) = self.old.remove_entry(key)?;
        self.keep(key, row.clone(), bytes_max);
        Some(row)
    }

    /// Keeps what the engine answered, in memory of its own: the engine's row may be a small part of a block of many.
    /// Both generations together hold about `bytes_max` bytes.
    pub(super) fn put(&mut self, key: Bytes, row: Option<&[u8]>, bytes_max: usize) {
        self.keep(key, row.map(Bytes::copy_from_slice), bytes_max);
    }

    fn keep(&mut self, key: Bytes, row: Option<Bytes>, bytes_max: usize) {
        let cost = cost(&key, row.as_deref());
        if cost > bytes_max / 4 {
            return;
        }
        if self.young_bytes + cost > bytes_max / 2 {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
        self.young_bytes += cost;
        self.young.insert(key, row);
    }

    /// Takes in what the engine was given; only rows that are kept already are kept. `bytes_max` as in
    /// [`RowCache::put`].
    pub(super) fn written<'a>(&mut self, rows: impl Iterator<Item = (&'a Bytes, Option<&'a Bytes>)>, bytes_max: usize) {
        if self.young.is_empty() && self.old.is_empty() {
            return;
        }
        for (key, value) in rows {
            self.old.remove(key);
            // Anew, as whatever is kept: a row may have grown beyond its share, or the generation with it. In its own
            // memory here as well, since it may be a small part of a long entry of the log.
            if let Some((key, before)) = self.young.remove_entry(key) {
                self.young_bytes -= cost(&key, before.as_deref());
                self.put(key, value.map(|value| &value[..]), bytes_max);
            }
        }
    }

    /// Forgets everything: the engine's rows are replaced.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// What a row counts against the bound.
fn cost(key: &[u8], row: Option<&[u8]>) -> usize {
    ROW_OVERHEAD_BYTES + key.len() + row.map_or(0, <[u8]>::len)
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

    fn written(cache: &mut RowCache, rows: &[RowChange], bytes_max: usize) {
        cache.written(rows.iter().map(|row| (&row.key, row.value.as_ref())), bytes_max);
    }

    #[test]
    fn what_is_written_to_the_engine_is_seen_and_a_missing_row_is_known() {
        let mut cache = RowCache::default();
        assert_eq!(cache.get(&key(1), 10_000), None);
        cache.put(key(1), Some(b"a"), 10_000);
        cache.put(key(2), None, 10_000);
        assert_eq!((cache.get(&key(1), 10_000), cache.get(&key(2), 10_000)), (Some(row("a")), Some(None)));
        written(
            &mut cache,
            &[
                RowChange { key: key(1), value: None },
                RowChange { key: key(2), value: row("b") },
                RowChange { key: key(3), value: row("c") },
            ],
            10_000,
        );
        assert_eq!((cache.get(&key(1), 10_000), cache.get(&key(2), 10_000)), (Some(None), Some(row("b"))));
        assert_eq!(cache.get(&key(3), 10_000), None);
        cache.clear();
        assert_eq!(cache.get(&key(1), 10_000), None);
    }

    #[test]
    fn an_overwritten_row_is_not_answered_from_the_old_generation() {
        let mut cache = RowCache::default();
        let fits_two = 4 * (ROW_OVERHEAD_BYTES + 8 + 1);
        cache.put(key(1), Some(b"a"), fits_two);
        cache.put(key(2), Some(b"a"), fits_two);
        cache.put(key(3), Some(b"a"), fits_two);
        written(&mut cache, &[RowChange { key: key(1), value: row("b") }], fits_two);
        assert_eq!(cache.get(&key(1), fits_two), None);
    }

    #[test]
    fn it_is_bounded_and_keeps_what_is_used() {
        let mut cache = RowCache::default();
        let room = 100 * (ROW_OVERHEAD_BYTES + 8 + 1);
        cache.put(key(0), Some(b"x"), room);
        for number in 1..1_000 {
            cache.put(key(number), Some(b"y"), room);
            assert_eq!(cache.get(&key(0), room), Some(row("x")), "used before {number}");
            assert!(cache.young.len() + cache.old.len() <= 100);
        }
        assert_eq!(cache.get(&key(1), room), None);
        cache.put(key(5_000), Some(&vec![0; room]), room);
        assert_eq!(cache.get(&key(5_000), room), None, "larger than its share");
    }
    fn bytes(cache: &RowCache) -> usize {
        let rows = cache.young.iter().chain(&cache.old);
        rows.map(|(key, row)| cost(key, row.as_deref())).sum()
    }

    #[test]
    fn rows_that_grow_by_being_written_do_not_outgrow_the_bound() {
        let mut cache = RowCache::default();
        let room = 100 * (ROW_OVERHEAD_BYTES + 8 + 1);
        for number in 0..40 {
            cache.put(key(number), Some(b"x"), room);
        }
        for length in [1, 500, 2_000, 1, room, 3_000] {
            let grown = |number| RowChange { key: key(number), value: Some(Bytes::from(vec![7; length])) };
            written(&mut cache, &(0..40).map(grown).collect::<Vec<_>>(), room);
            assert!(bytes(&cache) <= room, "{} of {room} bytes with rows of {length}", bytes(&cache));
            let young: usize = cache.young.iter().map(|(key, row)| cost(key, row.as_deref())).sum();
            assert_eq!(cache.young_bytes, young, "with rows of {length}");
            for number in 0..40 {
                let found = cache.get(&key(number), room);
                assert!(
                    found.is_none_or(|found| found.unwrap().len() == length),
                    "row {number} of {length} bytes is old"
                );
            }
            for number in 0..40 {
                if cache.get(&key(number), room).is_none() {
                    cache.put(key(number), Some(b"x"), room);
                }
            }
        }
    }

    #[test]
    fn a_kept_row_does_not_keep_the_block_it_came_in() {
        let mut cache = RowCache::default();
        let block = Bytes::from(vec![b'a'; 4_096]);
        let read = block.slice(..1);
        cache.put(key(1), Some(&read), 10_000);
        written(&mut cache, &[RowChange { key: key(1), value: Some(block.slice(1..2)) }], 10_000);
        drop(read);
        assert_eq!(cache.get(&key(1), 10_000), Some(row("a")));
        assert!(block.is_unique());
    }
}

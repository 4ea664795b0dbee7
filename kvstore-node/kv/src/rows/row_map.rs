//! Rows in memory: found by key, and on demand in order of key.
//!
//! Nearly every access names one row, so user rows are hashed (with a seed per map, since users choose their keys); an
//! order of their keys is built on first use and kept from then on. The few others are in a list. Client rows are not
//! here: see `exactly_once::window`.

use super::cleared_ranges::clears;
use super::row::KIND_VALUE;
use crate::engine::is_empty_range;
use archon_types::KeyRange;
use bytes::Bytes;
use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashTable};
use std::collections::BTreeSet;
use std::hash::BuildHasher;
use std::ops::{Bound, RangeBounds};
use std::sync::OnceLock;

/// Rows by key. Setting a row replaces its key as well, which frees the memory of the previous one.
#[derive(Debug)]
pub(crate) struct RowMap<V> {
    values: HashTable<(Bytes, V)>,
    hasher: DefaultHashBuilder,
    /// The keys in `values`, copied, in order; built on first use.
    sorted: OnceLock<BTreeSet<Box<[u8]>>>,
    /// In order: a partition's own rows, of which there are a few.
    others: Vec<(Bytes, V)>,
}

impl<V> Default for RowMap<V> {
    fn default() -> Self {
        Self {
            values: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            sorted: OnceLock::new(),
            others: Vec::new(),
        }
    }
}

impl<V> RowMap<V> {
    /// Returns whether there is no row.
    pub(crate) fn is_empty(&self) -> bool {
        self.values.is_empty() && self.others.is_empty()
    }

    /// Returns the row with this key.
    pub(crate) fn get(&self, key: &[u8]) -> Option<&V> {
        if is_value(key) {
            return self.value(key).map(|(_, value)| value);
        }
        self.place_of_other(key).ok().map(|at| &self.others[at].1)
    }

    /// Sets the row of this key to the result of `decide` on the present one, or removes it.
    pub(super) fn update(&mut self, key: Bytes, decide: impl FnOnce(&Bytes, Option<&V>) -> Option<V>) {
        if is_value(&key) {
            return self.update_value(key, decide);
        }
        let place = self.place_of_other(&key);
        match (decide(&key, place.ok().map(|at| &self.others[at].1)), place) {
            (Some(value), Ok(at)) => self.others[at] = (key, value),
            (Some(value), Err(at)) => self.others.insert(at, (key, value)),
            (None, Ok(at)) => drop(self.others.remove(at)),
            (None, Err(_)) => {}
        }
    }

    /// Returns the index of one of the other rows, or its insertion point.
    fn place_of_other(&self, key: &[u8]) -> Result<usize, usize> {
        self.others.binary_search_by(|(held, _)| held.as_ref().cmp(key))
    }

    /// Removes the row with this key if it exists and `condition` holds.
    pub(super) fn remove_if(&mut self, key: &[u8], condition: impl FnOnce(&V) -> bool) {
        if is_value(key) {
            let hash = self.hasher.hash_one(key);
            let Ok(found) = self.values.find_entry(hash, |(held, _)| *held == key) else { return };
            if condition(&found.get().1) {
                if let Some(sorted) = self.sorted.get_mut() {
                    sorted.remove(key);
                }
                found.remove();
            }
            return;
        }
        if let Ok(at) = self.place_of_other(key)
            && condition(&self.others[at].1)
        {
            self.others.remove(at);
        }
    }

    /// Removes user rows of these keys, and passes each to `gone`. Walks over all user rows.
    pub(super) fn remove_values(&mut self, keys: &KeyRange, mut gone: impl FnMut(&Bytes, &V)) {
        let mut sorted = self.sorted.get_mut();
        self.values.retain(|(key, value)| {
            let cleared = clears(keys, key);
            if cleared {
                if let Some(sorted) = &mut sorted {
                    sorted.remove(&key[..]);
                }
                gone(key, value);
            }
            !cleared
        });
    }

    fn update_value(&mut self, key: Bytes, decide: impl FnOnce(&Bytes, Option<&V>) -> Option<V>) {
        let (hasher, hash) = (&self.hasher, self.hasher.hash_one(&key[..]));
        match self.values.entry(hash, |(held, _)| *held == key, |(held, _)| hasher.hash_one(&held[..])) {
            Entry::Vacant(vacant) => {
                if let Some(value) = decide(&key, None) {
                    if let Some(sorted) = self.sorted.get_mut() {
                        sorted.insert(Box::from(&key[..]));
                    }
                    vacant.insert((key, value));
                }
            }
            Entry::Occupied(mut occupied) => match decide(&key, Some(&occupied.get().1)) {
                Some(value) => *occupied.get_mut() = (key, value),
                None => {
                    if let Some(sorted) = self.sorted.get_mut() {
                        sorted.remove(&key[..]);
                    }
                    drop(occupied.remove());
                }
            },
        }
    }

    /// Returns the rows from `from` to `to`, in order of key.
    pub(crate) fn range(&self, from: Bound<&[u8]>, to: Bound<&[u8]>) -> impl Iterator<Item = (&Bytes, &V)> {
        let within = move |key: &Bytes| RangeBounds::<[u8]>::contains(&(from, to), &key[..]);
        let others = self.others.iter().filter(move |(key, _)| within(key)).map(|(key, value)| (key, value));
        merged(self.values_between(from, to), others)
    }

    /// Returns user rows from `from` to `to`, in order of key from either end.
    pub(super) fn values_between(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
    ) -> impl DoubleEndedIterator<Item = (&Bytes, &V)> {
        let asked = !is_empty_range(&from, &to) && spans_values(from, to);
        let values = asked.then(|| self.sorted().range::<[u8], _>((from, to)));
        values.into_iter().flatten().filter_map(|key| self.value(key))
    }

    fn value(&self, key: &[u8]) -> Option<(&Bytes, &V)> {
        let found = self.values.find(self.hasher.hash_one(key), |(held, _)| *held == key);
        found.map(|(key, value)| (key, value))
    }

    fn sorted(&self) -> &BTreeSet<Box<[u8]>> {
        self.sorted.get_or_init(|| self.values.iter().map(|(key, _)| Box::from(&key[..])).collect())
    }

    /// Returns all rows, in order of key. Sorts them, which takes time if there are many.
    pub(crate) fn rows(&self) -> Vec<(&Bytes, &V)> {
        let mut rows: Vec<_> = self.values().collect();
        rows.sort_unstable_by_key(|(key, _)| *key);
        rows.extend(self.others.iter().map(|(key, value)| (key, value)));
        // Two sorted lists, which a stable sort detects.
        rows.sort_by_key(|(key, _)| *key);
        rows
    }

    /// Returns user rows, in no order.
    pub(crate) fn values(&self) -> impl Iterator<Item = (&Bytes, &V)> {
        self.values.iter().map(|(key, value)| (key, value))
    }
}

/// Returns whether this is the key of a user row.
pub(super) fn is_value(key: &[u8]) -> bool {
    key.first() == Some(&KIND_VALUE)
}

/// Returns whether user rows may lie between two bounds.
pub(super) fn spans_values(from: Bound<&[u8]>, to: Bound<&[u8]>) -> bool {
    let kind = |bound: Bound<&[u8]>| match bound {
        Bound::Unbounded => None,
        Bound::Included(key) | Bound::Excluded(key) => Some(key.first().copied().unwrap_or(0)),
    };
    kind(from).is_none_or(|kind| kind <= KIND_VALUE) && kind(to).is_none_or(|kind| kind >= KIND_VALUE)
}

/// Merges two lists in order of key that have no key in common.
fn merged<'a, V: 'a>(
    first: impl Iterator<Item = (&'a Bytes, &'a V)>,
    second: impl Iterator<Item = (&'a Bytes, &'a V)>,
) -> impl Iterator<Item = (&'a Bytes, &'a V)> {
    let (mut first, mut second) = (first.peekable(), second.peekable());
    std::iter::from_fn(move || match (first.peek(), second.peek()) {
        (Some((one, _)), Some((other, _))) if one < other => first.next(),
        (Some(_), None) => first.next(),
        _ => second.next(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// Keys of all sorts, many of them near each other.
    fn key() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![Just(0_u8), Just(1), Just(2), Just(3), Just(255)];
        let length = prop_oneof![3 => 0..4_usize, 2 => Just(17_usize), 2 => Just(25), 2 => 15..28_usize];
        (byte.clone(), byte, length).prop_flat_map(|(kind, fill, length)| {
            proptest::collection::vec(prop_oneof![8 => Just(fill), 1 => Just(0_u8), 1 => Just(255)], length).prop_map(
                move |mut rest| {
                    rest.insert(0, kind);
                    rest
                },
            )
        })
    }

    fn bound() -> impl Strategy<Value = Bound<Vec<u8>>> {
        let bytes = prop_oneof![6 => key(), 1 => Just(Vec::new())];
        (bytes, 0..7_u8).prop_map(|(bytes, kind)| match kind {
            0 => Bound::Unbounded,
            1..4 => Bound::Included(bytes),
            _ => Bound::Excluded(bytes),
        })
    }

    fn slice(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
        bound.as_ref().map(|bytes| &bytes[..])
    }

    proptest! {
        #[test]
        fn row_map_agrees_with_sorted_map(
            steps in proptest::collection::vec((key(), proptest::option::weighted(0.7, any::<u32>())), 0..60),
            ranges in proptest::collection::vec((bound(), bound(), 0..60_usize), 1..12),
        ) {
            let (mut map, mut expected) = (RowMap::default(), BTreeMap::new());
            let agree = |map: &RowMap<u32>, expected: &BTreeMap<Vec<u8>, u32>, from, to| {
                let found: Vec<_> = map.range(slice(from), slice(to)).map(|(key, value)| (key.to_vec(), *value)).collect();
                let within = |key: &[u8]| std::ops::RangeBounds::<[u8]>::contains(&(slice(from), slice(to)), key);
                let right: Vec<_> = expected.iter().filter(|(key, _)| within(key)).map(|(key, value)| (key.clone(), *value)).collect();
                prop_assert_eq!(found, right);
                Ok(())
            };
            for (number, (key, value)) in steps.iter().enumerate() {
                let mut before = None;
                map.update(Bytes::from(key.clone()), |_, present| {
                    before = present.copied();
                    *value
                });
                prop_assert_eq!(before, match value {
                    Some(value) => expected.insert(key.clone(), *value),
                    None => expected.remove(key),
                });
                if number % 7 == 6 {
                    let (gone, kept) = (&steps[number / 2].0, &steps[number].0);
                    map.remove_if(gone, |_| true);
                    expected.remove(gone);
                    map.remove_if(kept, |_| false);
                }
                for (from, to, _) in ranges.iter().filter(|(.., at)| *at == number) {
                    agree(&map, &expected, from, to)?;
                }
            }
            for (key, _) in &steps {
                prop_assert_eq!(map.get(key), expected.get(key));
            }
            for (from, to, _) in &ranges {
                agree(&map, &expected, from, to)?;
            }
            prop_assert_eq!(map.is_empty(), expected.is_empty());
            let rows: Vec<_> = map.rows().into_iter().map(|(key, value)| (key.to_vec(), *value)).collect();
            prop_assert_eq!(rows, expected.into_iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn replaced_row_frees_memory_of_former_key() {
        for key in [&[KIND_VALUE, 7][..], b"\x03t"] {
            let entry = Bytes::from(key.to_vec());
            let mut map = RowMap::default();
            map.update(entry.clone(), |_, _| Some(1));
            assert_eq!(map.range(Bound::Unbounded, Bound::Unbounded).count(), 1);
            map.update(Bytes::copy_from_slice(key), |_, _| Some(2));
            assert!(entry.is_unique(), "{key:?}");
        }
    }
}

//! Rows in memory: found by key in one step, and in order of key for whoever asks for order.
//!
//! Nearly every access names one row, so users' rows are hashed (with a seed of each map's own, since users choose their
//! keys); an order of their keys is made when somebody first asks for one, and kept from then on. The exactly-once table's
//! rows are few, are read in order all the time, and have keys of one form, which compare as numbers.

use super::row::{CLIENT_HEAD_KEY_BYTES, CLIENT_OUTCOME_KEY_BYTES, KIND_CLIENT, KIND_VALUE};
use bytes::Bytes;
use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashTable};
use std::cell::OnceCell;
use std::cmp::Ordering;
use std::collections::btree_map;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::BuildHasher;
use std::ops::Bound;

/// A client, and the number of one of its operations; without one, its head. In the order of the rows' keys.
type ClientKey = (u128, Option<u64>);

/// What becomes of a row.
#[derive(Debug)]
pub(super) enum Verdict<V> {
    /// It stays as it is, absent or not.
    Keep,
    /// It is set to this.
    Set(V),
    /// It is removed, if it is there.
    Remove,
}

/// Rows by key. A row that is set anew is kept under the key that came with it: the memory of the former one is let go of.
#[derive(Debug)]
pub(super) struct RowMap<V> {
    values: HashTable<(Bytes, V)>,
    hasher: DefaultHashBuilder,
    /// The keys in `values`, copied, in order; from the first time on that they were asked for.
    sorted: OnceCell<BTreeSet<Box<[u8]>>>,
    clients: BTreeMap<ClientKey, (Bytes, V)>,
    others: BTreeMap<Bytes, V>,
}

impl<V> Default for RowMap<V> {
    fn default() -> Self {
        Self {
            values: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            sorted: OnceCell::new(),
            clients: BTreeMap::new(),
            others: BTreeMap::new(),
        }
    }
}

impl<V> RowMap<V> {
    /// Whether there is no row.
    pub(super) fn is_empty(&self) -> bool {
        self.values.is_empty() && self.clients.is_empty() && self.others.is_empty()
    }

    /// The row with this key.
    pub(super) fn get(&self, key: &[u8]) -> Option<&V> {
        if is_value(key) {
            return self.values.find(self.hasher.hash_one(key), |(held, _)| *held == key).map(|(_, value)| value);
        }
        match client_key(key) {
            Some(key) => self.clients.get(&key).map(|(_, value)| value),
            None => self.others.get(key),
        }
    }

    /// Does with the row of this key what `decide` says, which is shown the present one.
    pub(super) fn update(&mut self, key: Bytes, decide: impl FnOnce(&Bytes, Option<&V>) -> Verdict<V>) {
        if is_value(&key) {
            return self.update_value(key, decide);
        }
        match client_key(&key) {
            Some(client) => match self.clients.entry(client) {
                btree_map::Entry::Vacant(vacant) => {
                    if let Verdict::Set(value) = decide(&key, None) {
                        vacant.insert((key, value));
                    }
                }
                btree_map::Entry::Occupied(mut occupied) => match decide(&key, Some(&occupied.get().1)) {
                    Verdict::Keep => {}
                    Verdict::Set(value) => drop(occupied.insert((key, value))),
                    Verdict::Remove => drop(occupied.remove()),
                },
            },
            None => match decide(&key, self.others.get(&key)) {
                Verdict::Keep => {}
                Verdict::Set(value) => {
                    self.others.remove(&key);
                    self.others.insert(key, value);
                }
                Verdict::Remove => drop(self.others.remove(&key)),
            },
        }
    }

    fn update_value(&mut self, key: Bytes, decide: impl FnOnce(&Bytes, Option<&V>) -> Verdict<V>) {
        let (hasher, hash) = (&self.hasher, self.hasher.hash_one(&key[..]));
        match self.values.entry(hash, |(held, _)| *held == key, |(held, _)| hasher.hash_one(&held[..])) {
            Entry::Vacant(vacant) => {
                if let Verdict::Set(value) = decide(&key, None) {
                    if let Some(sorted) = self.sorted.get_mut() {
                        sorted.insert(Box::from(&key[..]));
                    }
                    vacant.insert((key, value));
                }
            }
            Entry::Occupied(mut occupied) => match decide(&key, Some(&occupied.get().1)) {
                Verdict::Keep => {}
                Verdict::Set(value) => *occupied.get_mut() = (key, value),
                Verdict::Remove => {
                    if let Some(sorted) = self.sorted.get_mut() {
                        sorted.remove(&key[..]);
                    }
                    drop(occupied.remove());
                }
            },
        }
    }

    /// The rows from `from` to `to`, in order of key.
    pub(super) fn range(&self, from: Bound<&[u8]>, to: Bound<&[u8]>) -> impl Iterator<Item = (&Bytes, &V)> {
        let empty = is_empty(&from, &to);
        let clients = clients_between(from, to).filter(|_| !empty).map(|range| self.clients.range(range));
        let clients = clients.into_iter().flatten().map(|(_, (key, value))| (key, value));
        let others = (!empty && !self.others.is_empty()).then(|| self.others.range::<[u8], _>((from, to)));
        let values = (!empty && spans_values(from, to)).then(|| self.sorted().range::<[u8], _>((from, to)));
        let values = values.into_iter().flatten().filter_map(|key| self.value(key));
        merged(values, merged(clients, others.into_iter().flatten()))
    }

    fn value(&self, key: &[u8]) -> Option<(&Bytes, &V)> {
        let found = self.values.find(self.hasher.hash_one(key), |(held, _)| *held == key);
        found.map(|(key, value)| (key, value))
    }

    fn sorted(&self) -> &BTreeSet<Box<[u8]>> {
        self.sorted.get_or_init(|| self.values.iter().map(|(key, _)| Box::from(&key[..])).collect())
    }

    /// All rows, in order of key.
    pub(super) fn into_rows(self) -> Vec<(Bytes, V)> {
        let mut rows: Vec<(Bytes, V)> = self.values.into_iter().chain(self.clients.into_values()).collect();
        rows.extend(self.others);
        rows.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        rows
    }
}

/// The client and number in a key of the exactly-once table; `None` for any other key.
fn client_key(key: &[u8]) -> Option<ClientKey> {
    let [KIND_CLIENT, rest @ ..] = key else { return None };
    if key.len() != CLIENT_HEAD_KEY_BYTES && key.len() != CLIENT_OUTCOME_KEY_BYTES {
        return None;
    }
    let (client, number) = rest.split_first_chunk::<16>()?;
    let number = number.first_chunk::<8>().map(|number| u64::from_be_bytes(*number));
    Some((u128::from_be_bytes(*client), number))
}

/// Where any bytes lie among the keys of the exactly-once table: right before a key, at it, or right after it.
fn place(bytes: &[u8]) -> Option<(ClientKey, Ordering)> {
    let rest = match bytes.first() {
        Some(kind) if *kind > KIND_CLIENT => return None, // after all of them
        Some(&KIND_CLIENT) => &bytes[1..],
        _ => return Some(((0, None), Ordering::Less)),
    };
    let (client, number) = rest.split_at(rest.len().min(16));
    let mut padded = [0; 16];
    padded[..client.len()].copy_from_slice(client);
    let client_number = u128::from_be_bytes(padded);
    if number.is_empty() {
        let order = if client.len() == 16 { Ordering::Equal } else { Ordering::Less };
        return Some(((client_number, None), order));
    }
    let (number, extra) = number.split_at(number.len().min(8));
    let mut padded = [0; 8];
    padded[..number.len()].copy_from_slice(number);
    let order = match number.len() {
        8 if extra.is_empty() => Ordering::Equal,
        8 => Ordering::Greater,
        _ => Ordering::Less,
    };
    Some(((client_number, Some(u64::from_be_bytes(padded))), order))
}

/// The keys of the exactly-once table between two bounds, if there can be any.
fn clients_between(from: Bound<&[u8]>, to: Bound<&[u8]>) -> Option<(Bound<ClientKey>, Bound<ClientKey>)> {
    let from = match from {
        Bound::Unbounded => Bound::Unbounded,
        Bound::Included(bytes) => match place(bytes)? {
            (key, Ordering::Less | Ordering::Equal) => Bound::Included(key),
            (key, Ordering::Greater) => Bound::Excluded(key),
        },
        Bound::Excluded(bytes) => match place(bytes)? {
            (key, Ordering::Less) => Bound::Included(key),
            (key, Ordering::Equal | Ordering::Greater) => Bound::Excluded(key),
        },
    };
    let to = match to {
        Bound::Unbounded => Bound::Unbounded,
        Bound::Included(bytes) => match place(bytes) {
            None => Bound::Unbounded,
            Some((key, Ordering::Less)) => Bound::Excluded(key),
            Some((key, Ordering::Equal | Ordering::Greater)) => Bound::Included(key),
        },
        Bound::Excluded(bytes) => match place(bytes) {
            None => Bound::Unbounded,
            Some((key, Ordering::Less | Ordering::Equal)) => Bound::Excluded(key),
            Some((key, Ordering::Greater)) => Bound::Included(key),
        },
    };
    (!is_empty(&from, &to)).then_some((from, to))
}

/// Whether this is the key of a user's row.
pub(super) fn is_value(key: &[u8]) -> bool {
    key.first() == Some(&KIND_VALUE)
}

/// Whether users' rows may lie between two bounds.
pub(super) fn spans_values(from: Bound<&[u8]>, to: Bound<&[u8]>) -> bool {
    let kind = |bound: Bound<&[u8]>| match bound {
        Bound::Unbounded => None,
        Bound::Included(key) | Bound::Excluded(key) => Some(key.first().copied().unwrap_or(0)),
    };
    kind(from).is_none_or(|kind| kind <= KIND_VALUE) && kind(to).is_none_or(|kind| kind >= KIND_VALUE)
}

/// Whether nothing lies between two bounds: a map panics on a range that ends before it starts.
pub(super) fn is_empty<T: Ord>(from: &Bound<T>, to: &Bound<T>) -> bool {
    match (from, to) {
        (Bound::Included(from), Bound::Included(to)) => from > to,
        (Bound::Included(from) | Bound::Excluded(from), Bound::Included(to) | Bound::Excluded(to)) => from >= to,
        _ => false,
    }
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
        fn it_agrees_with_a_map_in_order(
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
                    value.map_or(Verdict::Remove, Verdict::Set)
                });
                prop_assert_eq!(before, match value {
                    Some(value) => expected.insert(key.clone(), *value),
                    None => expected.remove(key),
                });
                map.update(Bytes::from(key.clone()), |_, _| Verdict::Keep);
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
            let rows: Vec<_> = map.into_rows().into_iter().map(|(key, value)| (key.to_vec(), value)).collect();
            prop_assert_eq!(rows, expected.into_iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_row_set_anew_lets_go_of_the_memory_of_its_former_key() {
        for key in [&[KIND_VALUE, 7][..], &[KIND_CLIENT; CLIENT_OUTCOME_KEY_BYTES], b"\x03t"] {
            let entry = Bytes::from(key.to_vec());
            let mut map = RowMap::default();
            map.update(entry.clone(), |_, _| Verdict::Set(1));
            assert_eq!(map.range(Bound::Unbounded, Bound::Unbounded).count(), 1);
            map.update(Bytes::copy_from_slice(key), |_, _| Verdict::Set(2));
            assert!(entry.is_unique(), "{key:?}");
        }
    }
}

//! Tests of a memtable's growth since the last count, and of its trend.

use super::tests::{key, push, seq};
use super::*;
use crate::ranges::merge_record::MergeRecord;
use crate::ranges::reshape;
use archon_types::{Revision, Version};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ops::Bound;

/// Writes of rows, each with the length of its value; one without any is removed.
fn writes(lengths: std::ops::Range<usize>, most: usize) -> impl Strategy<Value = Vec<(u8, usize)>> {
    proptest::collection::vec((0..60_u8, lengths), 0..most)
}

/// Writes rows of 1 KiB at these keys after a count has begun.
fn grows_at_the_end(keys: impl Iterator<Item = u32>) -> bool {
    let mut memtable = Memtable::new(Seq::ZERO, MemtableBudget::default());
    memtable.begin_count(Some(row::value_key(&1_000_u32.to_be_bytes())));
    for (at, key) in (1..).zip(keys) {
        let change = RowChange::set(row::value_key(&key.to_be_bytes()), Bytes::from(vec![7; 1_024]));
        push(&mut memtable, at, [change]).unwrap();
        memtable.commit(seq(at));
    }
    memtable.grows_at_the_end()
}

#[test]
fn trend_survives_next_count_but_not_clear() {
    let mut memtable = Memtable::new(Seq::ZERO, MemtableBudget::default());
    let mut at = 0;
    let mut write = |memtable: &mut Memtable, keys: std::ops::Range<u32>, clear: Option<KeyRange>| {
        for key in keys {
            at += 1;
            let change = RowChange::set(row::value_key(&key.to_be_bytes()), Bytes::from(vec![7; 1_024]));
            let effect = Effect { clear: clear.clone(), ..Effect::new(Millis::new(at), vec![change]) };
            memtable.push(seq(at), effect).unwrap();
            memtable.commit(seq(at));
        }
    };
    // The first count found nothing.
    memtable.begin_count(None);
    write(&mut memtable, 10_000..11_000, None);
    assert!(memtable.grows_at_the_end());
    memtable.begin_count(None);
    assert!(memtable.grows_at_the_end(), "nothing has come since");
    write(&mut memtable, 0..300, None);
    assert!(!memtable.grows_at_the_end());
    write(&mut memtable, 11_000..14_000, None);
    assert!(memtable.grows_at_the_end());
    write(&mut memtable, 14_000..14_001, Some(KeyRange { begin: Bytes::from_static(b"~"), end: None }));
    assert!(!memtable.grows_at_the_end(), "what grew may be another partition's");
}

/// A merge was undone within seconds, and the rows split 69 to 31.
#[test]
fn merged_rows_do_not_count_as_growth_at_end() {
    let mut memtable = Memtable::new(Seq::ZERO, MemtableBudget::default());
    memtable.begin_count(Some(row::value_key(&1_000_u32.to_be_bytes())));
    let mut at = 0;
    let mut write = |memtable: &mut Memtable, effect: Effect| {
        at += 1;
        memtable.push(seq(at), effect).unwrap();
        memtable.commit(seq(at));
    };
    let row = |key: u32| RowChange::set(row::value_key(&key.to_be_bytes()), Bytes::from(vec![7; 1_024]));
    let keys = KeyRange { begin: Bytes::copy_from_slice(&1_000_u32.to_be_bytes()), end: None };
    write(&mut memtable, Effect { clear: Some(keys.clone()), ..Effect::new(Millis::new(1), Vec::new()) });
    for key in 1_001..2_001 {
        write(&mut memtable, Effect::new(Millis::new(1), vec![row(key)]));
        if key == 1_500 {
            memtable.begin_count(None);
        }
    }
    let merged = MergeRecord::next(None, Version::new(2), keys.begin, Revision::ZERO, seq(1_002), Millis::new(1));
    write(&mut memtable, reshape::absorbed(Millis::new(1), &merged));
    assert!(!memtable.grows_at_the_end());
    memtable.begin_count(None);
    assert!(!memtable.grows_at_the_end(), "nothing has come since");
    for key in 2_001..2_301 {
        write(&mut memtable, Effect::new(Millis::new(1), vec![row(key)]));
    }
    assert!(memtable.grows_at_the_end(), "that is growth");
}

#[test]
fn counted_size_is_unknown_after_clear_until_next_count() {
    let mut memtable = Memtable::new(Seq::ZERO, MemtableBudget::default());
    push(&mut memtable, 1, [RowChange::set(key(1), Bytes::from(vec![7; 100]))]).unwrap();
    memtable.commit(seq(1));
    memtable.begin_count(None);
    assert!(memtable.counted().is_some() && memtable.grown().is_some());
    let count = memtable.begin_count(None);
    assert!(count.is_some(), "it is under way");
    let gone = Effect { clear: Some(KeyRange::ALL), ..Effect::new(Millis::new(2), Vec::new()) };
    memtable.push(seq(2), gone).unwrap();
    assert!(memtable.grown().is_some(), "it is not committed");
    memtable.commit(seq(2));
    assert_eq!((memtable.grown(), memtable.counted()), (None, None), "neither count says anything of what is left");
    memtable.begin_count(None);
    assert_eq!(memtable.grown(), None, "it is not counted yet");
    assert!(memtable.counted().is_some() && memtable.grown().is_some());
}

#[test]
fn only_time_series_grows_at_its_end() {
    assert!(grows_at_the_end(1_001..1_301));
    assert!(!grows_at_the_end(1_001..1_101), "that is too little to tell");
    assert!(!grows_at_the_end(0..300));
    assert!(!grows_at_the_end((0..400).map(|number| if number % 4 == 0 { number } else { 1_000 + number })));
}

proptest! {
    /// A count proceeds in key order while rows before and behind it change: its result plus the growth since equals
    /// the rows present, at any time.
    #[test]
    fn count_includes_writes_behind_it(
        before in writes(1..21, 40),
        meanwhile in proptest::array::uniform4(writes(0..20, 10)),
        after in writes(0..20, 30),
    ) {
        let mut memtable = Memtable::new(Seq::ZERO, MemtableBudget::default());
        let mut rows: BTreeMap<Bytes, usize> = BTreeMap::new();
        let bytes = |rows: &BTreeMap<Bytes, usize>| rows.iter().map(|(key, value)| key.len() + value).sum::<usize>();
        let mut at = 0;
        let mut write = |memtable: &mut Memtable, rows: &mut BTreeMap<Bytes, usize>, writes: Vec<(u8, usize)>| {
            for (number, length) in writes {
                at += 1;
                let row = key(number);
                let change = match length {
                    0 if rows.remove(&row).is_none() => continue,
                    0 => RowChange::remove(row),
                    _ => {
                        rows.insert(row.clone(), length);
                        RowChange::set(row, Bytes::from(vec![7; length]))
                    }
                };
                push(memtable, at, [change]).unwrap();
                memtable.commit(seq(at));
            }
        };
        write(&mut memtable, &mut rows, before);
        // The log-time row, present after the first commit, is not a user row and has a fixed length.
        let (mut found_bytes, mut found_keys) = (0, 0);
        let mut from = Bytes::new();
        // Existing rows are counted; rows beyond them are growth.
        let last = memtable.begin_count(None);
        let counted = |key: &Bytes| last.as_ref().is_some_and(|last| key <= last);
        for (end, writes) in [10, 25, 40, 255].into_iter().zip(meanwhile) {
            write(&mut memtable, &mut rows, writes);
            let end = key(end);
            let part = rows.range((Bound::Excluded(from), Bound::Included(end.clone())));
            let part = part.filter(|(key, _)| counted(key));
            let part: BTreeMap<Bytes, usize> = part.map(|(key, value)| (key.clone(), *value)).collect();
            (found_bytes, found_keys) = (found_bytes + bytes(&part), found_keys + part.len());
            memtable.count_reached(end.clone());
            from = end;
        }
        prop_assert!(memtable.counted().is_some());
        write(&mut memtable, &mut rows, after);
        let grown = memtable.grown().expect("nothing was cleared");
        prop_assert_eq!(found_keys as i64 + grown.keys, rows.len() as i64);
        let log_time = (row::LOG_TIME_KEY.len() + 8) as i64;
        let missed = bytes(&rows) as i64 - found_bytes as i64 - grown.bytes;
        prop_assert!(missed == 0 || missed == -log_time, "{}", missed);
        prop_assert!(memtable.counted().is_none(), "no count is under way");
    }
}

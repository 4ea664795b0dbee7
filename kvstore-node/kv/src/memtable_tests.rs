//! The memtable against a plain list of entries, and the view over memtable and engine against a plain map.

use super::*;
use crate::MemoryEngine;
use crate::Seal;
use crate::engine::{Change, Engine, PageLimit};
use crate::reshape;
use crate::rows::Rows;
use crate::view::{PartitionView, View};
use archon_types::{ClientId, Epoch, PlacementId, Position, ScanOrder, Version};
use proptest::prelude::*;
use std::collections::BTreeMap;
use uuid::Uuid;

const SPACE: PlacementId = PlacementId::new(1);

fn key(number: u8) -> Bytes {
    Bytes::from(vec![1, number])
}

/// Keys of all sorts: users' rows, and outcomes.
fn any_key(number: u8) -> Bytes {
    if number < 8 { key(number) } else { outcome(u64::from(number)) }
}

fn set(number: u8, value: u64) -> RowChange {
    RowChange::set(key(number), Bytes::from(value.to_string()))
}

fn seq(number: u64) -> Seq {
    Seq::new(number)
}

fn push(memtable: &mut Memtable, at: u64, changes: impl Into<Vec<RowChange>>) -> Result<(), MemtableError> {
    memtable.push(seq(at), Effect::new(Millis::new(at), changes.into()))
}

fn value(found: Option<Option<&Bytes>>) -> Option<Option<&[u8]>> {
    found.map(|found| found.map(|value| &value[..]))
}

/// What is flushed while a copy catches up is of lower positions than what its pages brought.
#[test]
fn the_engine_forgot_up_to_where_the_pages_of_a_copy_had_come() {
    let mut memtable = Memtable::new(seq(4), MemtableBudget::default());
    memtable.set_engine_position(seq(9));
    let mut position_after = |at: u64| {
        push(&mut memtable, at, [set(1, 10)]).unwrap();
        memtable.commit(seq(at));
        let frozen = memtable.freeze().unwrap();
        memtable.flushed(frozen.upto);
        frozen.rows().iter().find(|row| row.key == row::POSITION_KEY).and_then(|row| row.value.clone())
    };
    let named = |at| Some(row::encode_position(seq(at)));
    assert_eq!([5, 9, 10].map(&mut position_after), [named(9), named(9), named(10)]);
}

#[test]
fn three_readers_see_what_is_theirs() {
    let mut memtable = Memtable::new(seq(4), MemtableBudget::default());
    push(&mut memtable, 5, [set(1, 10)]).unwrap();
    push(&mut memtable, 6, [set(1, 20), set(2, 1)]).unwrap();
    push(&mut memtable, 7, [RowChange::remove(key(1))]).unwrap();
    assert_eq!(memtable.get(&key(1), Reader::Committed), None, "the engine is asked");
    memtable.commit(seq(6));
    assert_eq!(value(memtable.get(&key(1), Reader::Committed)), Some(Some(&b"20"[..])));
    assert_eq!(memtable.get(&key(1), Reader::Newest), Some(None));
    memtable.truncate(seq(6)).unwrap();
    assert_eq!(value(memtable.get(&key(1), Reader::Newest)), Some(Some(&b"20"[..])));
    let frozen = memtable.freeze().unwrap();
    let rows: Vec<&[u8]> = frozen.rows().iter().map(|row| &row.key[..]).collect();
    let expected = vec![&[1, 1][..], &[1, 2], row::POSITION_KEY, row::LOG_TIME_KEY];
    assert_eq!((frozen.upto, rows), (seq(6), expected), "one version of each row");
    memtable.flushed(seq(5));
    assert_eq!(value(memtable.get(&key(1), Reader::Committed)), Some(Some(&b"20"[..])));
    memtable.flushed(seq(6));
    assert_eq!((memtable.get(&key(1), Reader::Newest), memtable.bytes(), memtable.is_empty()), (None, 0, true));
}

#[test]
fn positions_rise_and_the_committed_part_stays() {
    let mut memtable = Memtable::new(seq(4), MemtableBudget::default());
    let last = seq(4);
    assert_eq!(push(&mut memtable, 4, []), Err(MemtableError::NotNext { found: seq(4), last }));
    push(&mut memtable, 5, [set(1, 1)]).unwrap();
    push(&mut memtable, 6, [set(1, 2)]).unwrap();
    memtable.commit(seq(5));
    let error = MemtableError::CutBelowCommit { after: seq(4), commit: seq(5) };
    assert_eq!(memtable.truncate(seq(4)), Err(error));
    assert_eq!(memtable.last(), seq(6));
    memtable.freeze();
    memtable.flushed(seq(6));
    assert!(memtable.get(&key(1), Reader::Newest).is_some(), "an uncommitted entry does not leave");
    memtable.truncate(seq(5)).unwrap();
    push(&mut memtable, 6, [set(1, 3)]).unwrap();
    assert_eq!(value(memtable.get(&key(1), Reader::Newest)), Some(Some(&b"3"[..])));
}

#[test]
fn the_budget_is_shared_and_given_back() {
    let budget = MemtableBudget::new(600);
    let mut one = Memtable::new(Seq::ZERO, budget.clone());
    let mut other = Memtable::new(Seq::ZERO, budget.clone());
    push(&mut one, 1, [set(1, 1), set(2, 1)]).unwrap();
    assert!(!budget.is_full());
    push(&mut other, 1, [set(1, 1), set(2, 1), set(3, 1)]).unwrap();
    assert!(budget.is_full());
    drop(other);
    assert_eq!(budget.bytes_used(), one.bytes());
    one.truncate(Seq::ZERO).unwrap();
    assert_eq!(budget.bytes_used(), 0);
}

fn outcome(number: u64) -> Bytes {
    row::client_outcome_key(ClientId::new(Uuid::from_u128(9)), number)
}

/// What the flusher is given after an outcome was recorded and removed.
fn removals(memtable: &mut Memtable, at: u64) -> usize {
    push(memtable, at, [RowChange::set(outcome(1), Bytes::new())]).unwrap();
    push(memtable, at + 1, [RowChange::remove(outcome(1))]).unwrap();
    memtable.commit(seq(at + 1));
    let frozen = memtable.freeze().unwrap();
    memtable.flushed(frozen.upto);
    frozen.rows().iter().filter(|row| row.value.is_none()).count()
}

#[test]
fn an_outcome_that_came_and_went_costs_the_engine_nothing_unless_the_engine_may_hold_it() {
    let mut memtable = Memtable::new(seq(4), MemtableBudget::default());
    assert_eq!(removals(&mut memtable, 5), 0);
    memtable.set_engine_ahead(seq(8));
    assert_eq!(removals(&mut memtable, 7), 1, "recorded at 7: the engine may hold it from there");
}

#[test]
fn an_outcome_that_is_on_its_way_to_the_engine_is_removed_there() {
    let mut memtable = Memtable::new(seq(4), MemtableBudget::default());
    push(&mut memtable, 5, [RowChange::set(outcome(1), Bytes::new())]).unwrap();
    memtable.commit(seq(5));
    let on_its_way = memtable.freeze().unwrap();
    push(&mut memtable, 6, [RowChange::remove(outcome(1))]).unwrap();
    memtable.commit(seq(6));
    assert_eq!(memtable.get(&outcome(1), Reader::Newest), Some(None));
    memtable.flushed(on_its_way.upto);
    let frozen = memtable.freeze().unwrap();
    let rows = frozen.rows();
    assert!(rows.iter().any(|row| row.key == outcome(1) && row.value.is_none()));
}

/// What a leader evaluates goes after the entry that cleared the range, also while that is not committed.
#[test]
fn a_cleared_row_is_gone_for_each_reader_from_when_the_entry_is_his() {
    let engine = MemoryEngine::new();
    let stored = |number| Change { space: SPACE, key: key(number), value: Some(Bytes::from_static(b"0")) };
    engine.write(&[stored(1), stored(2)]).unwrap();
    let mut memtable = Memtable::new(seq(4), MemtableBudget::default());
    push(&mut memtable, 5, [set(2, 10), set(3, 10)]).unwrap();
    memtable.commit(seq(5));
    memtable.freeze();
    push(&mut memtable, 6, [set(3, 20), set(4, 20)]).unwrap();
    memtable.commit(seq(6));
    push(&mut memtable, 7, [set(5, 30)]).unwrap();
    let end = Some(Bytes::from_static(&[5]));
    let clear = reshape::clear(Millis::new(8), KeyRange { begin: Bytes::from_static(&[2]), end }, Version::new(1));
    memtable.push(seq(8), clear).unwrap();
    push(&mut memtable, 9, [set(4, 40)]).unwrap();
    let seen = |memtable: &Memtable, reader| {
        let view = PartitionView::new(memtable, &engine, SPACE, reader);
        let rows = (1..6).map(|number| view.get(&key(number)).unwrap());
        rows.map(|row| row.map_or_else(String::new, |row| String::from_utf8_lossy(&row).into())).collect::<Vec<_>>()
    };
    assert_eq!(seen(&memtable, Reader::Newest), ["0", "", "", "40", "30"]);
    assert_eq!(seen(&memtable, Reader::Committed), ["0", "10", "20", "20", ""]);
    memtable.commit(seq(8));
    assert_eq!(seen(&memtable, Reader::Newest), ["0", "", "", "40", "30"]);
    assert_eq!(seen(&memtable, Reader::Committed), ["0", "", "", "", "30"]);
    memtable.flushed(seq(5));
    let frozen = memtable.freeze().unwrap();
    assert_eq!((frozen.clears().len(), frozen.rows().iter().any(|row| row.key == key(3))), (1, false));
    assert_eq!(seen(&memtable, Reader::Committed), ["0", "", "", "", "30"], "the engine still has it");
}

#[derive(Clone, Debug)]
enum Step {
    Push(Vec<(u8, bool)>),
    Reshape(Reshape),
    Commit(u64),
    Flush(u64),
    Truncate(u64),
    Restart,
}

#[derive(Clone, Debug)]
enum Reshape {
    Split(u8, Option<u8>),
    Open,
    /// A range is cleared, and one of its rows perhaps written in the same entry.
    Clear(u8, Option<u8>, Option<u8>),
}

fn reshape() -> impl Strategy<Value = Reshape> {
    let end = || proptest::option::of(0..10_u8);
    prop_oneof![
        (0..10_u8, end()).prop_map(|(at, end)| Reshape::Split(at, end)),
        Just(Reshape::Open),
        (0..10_u8, end(), proptest::option::of(0..8_u8)).prop_map(|(begin, end, row)| Reshape::Clear(begin, end, row)),
    ]
}

impl Reshape {
    fn effect(&self, at: u64) -> Effect {
        let bound = |number: &u8| Bytes::from(vec![*number]);
        let time = Millis::new(at);
        match self {
            Self::Split(from, end) => {
                let (at, end, position) = (bound(from), end.as_ref().map(bound), Position::new(Epoch::new(1), seq(at)));
                reshape::split(time, &Seal { attempt: Version::new(1), at, end, position })
            }
            Self::Open => reshape::open(time),
            Self::Clear(begin, end, row) => {
                let mut effect = reshape::clear(
                    time,
                    KeyRange { begin: bound(begin), end: end.as_ref().map(bound) },
                    Version::new(1),
                );
                effect.changes.extend(row.map(|row| set(row, at)));
                effect
            }
        }
    }
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        10 => proptest::collection::vec((0..12_u8, proptest::bool::weighted(0.3)), 0..4).prop_map(Step::Push),
        3 => reshape().prop_map(Step::Reshape),
        6 => (0..4_u64).prop_map(Step::Commit),
        4 => (0..4_u64).prop_map(Step::Flush),
        2 => (0..3_u64).prop_map(Step::Truncate),
        1 => Just(Step::Restart),
    ]
}

type Entries = Vec<(u64, Effect)>;

/// The state after every entry up to `upto`.
fn state(entries: &[(u64, Effect)], upto: u64) -> BTreeMap<Bytes, Bytes> {
    let mut rows = Rows::default();
    entries.iter().filter(|(at, _)| *at <= upto).for_each(|(_, effect)| rows.apply(effect));
    rows.0
}

/// Does what the flusher does: clears ranges, then writes rows. Of `steps` removals and rows no more than that.
fn carry_out(engine: &MemoryEngine, frozen: &Frozen, steps: usize) {
    let mut changes = Vec::new();
    for range in frozen.clears() {
        let (from, to) = row::value_bounds(range);
        let keys = (Bound::Included(&from[..]), Bound::Excluded(&to[..]));
        let page = engine.page(SPACE, keys, ScanOrder::Descending, PageLimit::bytes(usize::MAX)).unwrap();
        changes.extend(page.rows.into_iter().map(|row| RowChange::remove(row.key)));
    }
    changes.extend(frozen.rows().iter().cloned());
    let change = |RowChange { key, value }| Change { space: SPACE, key, value };
    engine.write(&changes.into_iter().take(steps).map(change).collect::<Vec<_>>()).unwrap();
}

fn agrees(view: &PartitionView<'_>, expected: &BTreeMap<Bytes, Bytes>) -> Result<(), TestCaseError> {
    for key in (0..12).map(any_key) {
        prop_assert_eq!(view.get(&key).unwrap(), expected.get(&key).cloned());
    }
    let seal = expected.get(row::SEAL_KEY).map(|row| Seal::decode(row).unwrap());
    prop_assert_eq!(Seal::current(view).unwrap(), seal);
    for rows_max in [1, 3, 100] {
        let limit = PageLimit { rows_max, bytes_max: usize::MAX };
        let (mut found, mut from) = (Vec::new(), Bound::Unbounded);
        loop {
            let page = view
                .page(from.as_ref().map(|key: &Bytes| &key[..]), &[row::KIND_META], ScanOrder::Ascending, limit)
                .unwrap();
            prop_assert!(page.rows.len() <= rows_max);
            prop_assert!(!page.more || page.rows.len() == rows_max);
            found.extend(page.rows.iter().map(|row| (row.key.clone(), row.value.clone())));
            match page.rows.last() {
                Some(last) if page.more => from = Bound::Excluded(last.key.clone()),
                _ => break,
            }
        }
        let expected = expected.iter().filter(|(key, _)| key[0] < row::KIND_META);
        let expected: Vec<_> = expected.map(|(key, value)| (key.clone(), value.clone())).collect();
        prop_assert_eq!(&found, &expected);
        let (mut back, mut to) = (Vec::new(), Bytes::from_static(&[row::KIND_VALUE + 1]));
        loop {
            let page = view.page(Bound::Unbounded, &to, ScanOrder::Descending, limit).unwrap();
            back.extend(page.rows.iter().map(|row| (row.key.clone(), row.value.clone())));
            match page.rows.last() {
                Some(last) if page.more => to = last.key.clone(),
                _ => break,
            }
        }
        let values = expected.into_iter().rev().filter(|(key, _)| key[0] == row::KIND_VALUE);
        prop_assert_eq!(back, values.collect::<Vec<_>>());
    }
    Ok(())
}

proptest! {
    #[test]
    fn memtable_over_engine_agrees_with_a_map(steps in proptest::collection::vec(step(), 1..60)) {
        let engine = MemoryEngine::new();
        let budget = MemtableBudget::default();
        let mut memtable = Memtable::new(Seq::ZERO, budget.clone());
        let mut entries: Entries = Vec::new();
        let (mut last, mut commit, mut flushed, mut stamp) = (0, 0, 0, 0);
        for step in steps {
            match step {
                Step::Push(rows) => {
                    last += 1;
                    stamp += 1;
                    let mut present = state(&entries, last);
                    let changes: Vec<_> = rows.into_iter().filter_map(|(number, removed)| {
                        let (key, value) = (any_key(number), Bytes::from(stamp.to_string()));
                        if removed {
                            present.remove(&key);
                            return Some(RowChange::remove(key));
                        }
                        // An outcome is recorded only where there is none.
                        let before = present.insert(key.clone(), value.clone());
                        (before.is_none() || !row::is_outcome_key(&key)).then(|| RowChange::set(key, value))
                    }).collect();
                    push(&mut memtable, last, changes.clone()).unwrap();
                    entries.push((last, Effect::new(Millis::new(last), changes)));
                }
                Step::Reshape(reshape) => {
                    last += 1;
                    entries.push((last, reshape.effect(last)));
                    memtable.push(seq(last), reshape.effect(last)).unwrap();
                }
                Step::Commit(by) => {
                    commit = (commit + by).min(last);
                    memtable.commit(seq(commit));
                }
                Step::Flush(by) => {
                    // As the flusher does: take what is frozen, write it, and only then let go.
                    if let Some(frozen) = memtable.freeze() {
                        carry_out(&engine, &frozen, if by == 3 { 3 } else { usize::MAX });
                        if by % 2 == 0 {
                            memtable.flushed(frozen.upto);
                            flushed = frozen.upto.get();
                        }
                    }
                }
                Step::Truncate(by) => {
                    last = last.saturating_sub(by).max(commit);
                    memtable.truncate(seq(last)).unwrap();
                    entries.retain(|(at, _)| *at <= last);
                }
                Step::Restart => {
                    // The log from where the engine is complete; what more there is in the engine is of unknown positions.
                    memtable = Memtable::new(seq(flushed), budget.clone());
                    memtable.set_engine_ahead(seq(u64::MAX));
                    for (at, effect) in entries.iter().filter(|(at, _)| *at > flushed) {
                        memtable.push(seq(*at), effect.clone()).unwrap();
                    }
                    memtable.commit(seq(commit));
                }
            }
            let view = |reader| PartitionView::new(&memtable, &engine, SPACE, reader);
            agrees(&view(Reader::Newest), &state(&entries, last))?;
            agrees(&view(Reader::Committed), &state(&entries, commit))?;
        }
        prop_assert_eq!(memtable.bytes(), budget.bytes_used());
        memtable.truncate(seq(commit)).unwrap();
        for _ in 0..2 {
            memtable.freeze();
            memtable.flushed(seq(commit));
        }
        prop_assert_eq!((memtable.bytes(), memtable.is_empty()), (0, true));
    }
}

/// Rows that are written, each with the length of its value; one without any is removed.
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
fn what_is_known_of_growth_outlives_the_next_count_and_no_clearing() {
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

#[test]
fn a_time_series_grows_at_its_end_and_others_do_not() {
    assert!(grows_at_the_end(1_001..1_301));
    assert!(!grows_at_the_end(1_001..1_101), "that is too little to tell");
    assert!(!grows_at_the_end(0..300));
    assert!(!grows_at_the_end((0..400).map(|number| if number % 4 == 0 { number } else { 1_000 + number })));
}

proptest! {
    /// Wherever the log is cut, frozen and replayed, and however much of what was frozen the engine has done before that: it
    /// ends in the same rows.
    #[test]
    fn a_log_with_clears_ends_in_the_same_rows_wherever_it_is_frozen_and_replayed(
        log in proptest::collection::vec(prop_oneof![
            3 => (0..8_u8, any::<bool>()).prop_map(Ok),
            2 => reshape().prop_map(Err),
        ], 1..9),
        steps in 0..6_usize,
    ) {
        let effect = |(at, entry): (u64, &Result<(u8, bool), Reshape>)| match entry {
            Ok((row, true)) => (at, Effect::new(Millis::new(at), vec![set(*row, at)])),
            Ok((row, false)) => (at, Effect::new(Millis::new(at), vec![RowChange::remove(key(*row))])),
            Err(reshape) => (at, reshape.effect(at)),
        };
        let entries: Entries = (1..).zip(&log).map(effect).collect();
        let end = log.len() as u64;
        for (first, second) in (0..=end).flat_map(|first| (first..=end).map(move |second| (first, second))) {
            let engine = MemoryEngine::new();
            let replayed = |after: u64| {
                let mut memtable = Memtable::new(seq(after), MemtableBudget::default());
                entries.iter().filter(|(at, _)| *at > after).for_each(|(at, effect)| {
                    memtable.push(seq(*at), effect.clone()).unwrap();
                });
                memtable
            };
            let freeze = |memtable: &mut Memtable, upto: u64, steps: usize| {
                memtable.commit(seq(upto));
                if let Some(frozen) = memtable.freeze() {
                    carry_out(&engine, &frozen, steps);
                }
            };
            let mut memtable = replayed(0);
            freeze(&mut memtable, first, usize::MAX);
            memtable.flushed(seq(first));
            freeze(&mut memtable, second, steps);
            // It ends in the midst of the second list. What is cut off was not committed.
            memtable.truncate(seq(second)).unwrap();
            agrees(&PartitionView::new(&memtable, &engine, SPACE, Reader::Newest), &state(&entries, second))?;
            let mut memtable = replayed(first);
            freeze(&mut memtable, end, usize::MAX);
            let view = PartitionView::new(&memtable, &engine, SPACE, Reader::Committed);
            agrees(&view, &state(&entries, end))?;
            memtable.flushed(seq(end));
            let view = PartitionView::new(&memtable, &engine, SPACE, Reader::Committed);
            agrees(&view, &state(&entries, end))?;
        }
    }

    /// A count goes from the first row to the last while rows change before and behind it: what it found and what has grown
    /// since are what is there, at any time.
    #[test]
    fn what_was_written_behind_a_count_was_missed_until_the_next(
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
        // The log time, whose row is there as soon as anything was committed, is no user's row and of one length.
        let (mut found_bytes, mut found_keys) = (0, 0);
        let mut from = Bytes::new();
        // What was there is counted; what comes beyond it has grown.
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
        let grown = memtable.grown();
        prop_assert_eq!(found_keys as i64 + grown.keys, rows.len() as i64);
        let log_time = (row::LOG_TIME_KEY.len() + 8) as i64;
        let missed = bytes(&rows) as i64 - found_bytes as i64 - grown.bytes;
        prop_assert!(missed == 0 || missed == -log_time, "{}", missed);
        prop_assert!(memtable.counted().is_none(), "no count is under way");
    }
}

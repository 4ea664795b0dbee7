//! Model test of the view over memtable and engine against a plain map, under writes, clears, freezes and replays.

use super::tests::{SPACE, any_key, key, push, seq, set};
use super::*;
use crate::MemoryEngine;
use crate::Seal;
use crate::engine::{Change, Engine, PageLimit};
use crate::ranges::reshape;
use crate::rows::plain::Rows;
use crate::rows::view::{PartitionView, Reader, View};
use archon_types::{Epoch, Position, ScanOrder, Version};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ops::Bound;

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
    /// Clears a range, and perhaps writes one of its rows in the same entry.
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

/// Acts as the flusher: clears ranges, then writes rows, limited to `steps` removals and rows.
fn carry_out(engine: &MemoryEngine, frozen: &FrozenRows, steps: usize) {
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
                    let changes: Vec<_> = rows.into_iter().map(|(number, removed)| {
                        let (key, value) = (any_key(number), Bytes::from(stamp.to_string()));
                        if removed { RowChange::remove(key) } else { RowChange::set(key, value) }
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
                    // As the flusher does: take the frozen rows, write them, and only then release them.
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
                    // The log from the engine's complete position; further rows in the engine have unknown positions.
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

proptest! {
    /// Wherever the log is cut, frozen and replayed, and however many frozen rows the engine has written before: it
    /// ends in the same rows.
    #[test]
    fn log_with_clears_is_independent_of_freeze_and_replay(
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
            // It ends in the middle of the second list. The truncated part was not committed.
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
}

//! The window against a plain list of entries, and the view over window and engine against a plain map.

use super::*;
use crate::MemoryEngine;
use crate::engine::{Change, Engine, PageLimit};
use crate::view::{PartitionView, View};
use archon_types::PlacementId;
use proptest::prelude::*;

const SPACE: PlacementId = PlacementId::new(1);

fn key(number: u8) -> Bytes {
    Bytes::from(vec![1, number])
}

fn set(number: u8, value: u64) -> RowChange {
    RowChange::set(key(number), Bytes::from(value.to_string()))
}

fn seq(number: u64) -> Seq {
    Seq::new(number)
}

fn value(found: Option<Option<&Bytes>>) -> Option<Option<&[u8]>> {
    found.map(|found| found.map(|value| &value[..]))
}

#[test]
fn three_readers_see_what_is_theirs() {
    let mut recent = Recent::new(seq(4), RecentBudget::default());
    recent.push(seq(5), [set(1, 10)]).unwrap();
    recent.push(seq(6), [set(1, 20), set(2, 1)]).unwrap();
    recent.push(seq(7), [RowChange::remove(key(1))]).unwrap();
    assert_eq!(recent.get(&key(1), Reader::Committed), None, "the engine is asked");
    recent.commit(seq(6));
    assert_eq!(value(recent.get(&key(1), Reader::Committed)), Some(Some(&b"20"[..])));
    assert_eq!(recent.get(&key(1), Reader::Newest), Some(None));
    recent.truncate(seq(6)).unwrap();
    assert_eq!(value(recent.get(&key(1), Reader::Newest)), Some(Some(&b"20"[..])));
    recent.flushed(seq(5));
    assert_eq!(value(recent.get(&key(1), Reader::Committed)), Some(Some(&b"20"[..])));
    recent.flushed(seq(6));
    assert_eq!((recent.get(&key(1), Reader::Newest), recent.bytes(), recent.is_empty()), (None, 0, true));
}

#[test]
fn positions_rise_and_the_committed_part_stays() {
    let mut recent = Recent::new(seq(4), RecentBudget::default());
    let last = seq(4);
    assert_eq!(recent.push(seq(4), []), Err(RecentError::NotNext { found: seq(4), last }));
    recent.push(seq(5), [set(1, 1)]).unwrap();
    recent.push(seq(6), [set(1, 2)]).unwrap();
    recent.commit(seq(5));
    let error = RecentError::CutBelowCommit { after: seq(4), commit: seq(5) };
    assert_eq!(recent.truncate(seq(4)), Err(error));
    assert_eq!(recent.last(), seq(6));
    recent.flushed(seq(6));
    assert!(recent.get(&key(1), Reader::Newest).is_some(), "an uncommitted entry does not leave");
    recent.truncate(seq(5)).unwrap();
    recent.push(seq(6), [set(1, 3)]).unwrap();
    assert_eq!(value(recent.get(&key(1), Reader::Newest)), Some(Some(&b"3"[..])));
}

#[test]
fn the_budget_is_shared_and_given_back() {
    let budget = RecentBudget::new(600);
    let mut one = Recent::new(Seq::ZERO, budget.clone());
    let mut other = Recent::new(Seq::ZERO, budget.clone());
    one.push(seq(1), [set(1, 1), set(2, 1)]).unwrap();
    assert!(!budget.is_full());
    other.push(seq(1), [set(1, 1), set(2, 1), set(3, 1)]).unwrap();
    assert!(budget.is_full());
    drop(other);
    assert_eq!(budget.bytes_used(), one.bytes());
    one.truncate(Seq::ZERO).unwrap();
    assert_eq!(budget.bytes_used(), 0);
}

#[derive(Clone, Debug)]
enum Step {
    Push(Vec<(u8, bool)>),
    Commit(u64),
    Flush(u64),
    Truncate(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => proptest::collection::vec((0..12_u8, proptest::bool::weighted(0.3)), 0..4).prop_map(Step::Push),
        3 => (0..4_u64).prop_map(Step::Commit),
        2 => (0..4_u64).prop_map(Step::Flush),
        1 => (0..3_u64).prop_map(Step::Truncate),
    ]
}

type Entries = Vec<(u64, Vec<RowChange>)>;

/// The state after every entry up to `upto`.
fn state(entries: &Entries, upto: u64) -> BTreeMap<Bytes, Bytes> {
    let mut state = BTreeMap::new();
    for change in entries.iter().filter(|(at, _)| *at <= upto).flat_map(|(_, changes)| changes) {
        match &change.value {
            Some(value) => state.insert(change.key.clone(), value.clone()),
            None => state.remove(&change.key),
        };
    }
    state
}

fn agrees(view: &PartitionView<'_>, expected: &BTreeMap<Bytes, Bytes>) -> Result<(), TestCaseError> {
    for number in 0..12 {
        prop_assert_eq!(view.get(&key(number)).unwrap(), expected.get(&key(number)).cloned());
    }
    for rows_max in [1, 3, 100] {
        let limit = PageLimit { rows_max, bytes_max: usize::MAX };
        let (mut found, mut from) = (Vec::new(), Bound::Unbounded);
        loop {
            let page = view.page(from.as_ref().map(|key: &Bytes| &key[..]), &key(10), limit).unwrap();
            prop_assert!(page.rows.len() <= rows_max);
            prop_assert!(!page.more || page.rows.len() == rows_max);
            found.extend(page.rows.iter().map(|row| (row.key.clone(), row.value.clone())));
            match page.rows.last() {
                Some(last) if page.more => from = Bound::Excluded(last.key.clone()),
                _ => break,
            }
        }
        let expected: Vec<_> = expected.range(..key(10)).map(|(key, value)| (key.clone(), value.clone())).collect();
        prop_assert_eq!(found, expected);
    }
    Ok(())
}

proptest! {
    #[test]
    fn window_over_engine_agrees_with_a_map(steps in proptest::collection::vec(step(), 1..60)) {
        let engine = MemoryEngine::new();
        let budget = RecentBudget::default();
        let mut recent = Recent::new(Seq::ZERO, budget.clone());
        let mut entries: Entries = Vec::new();
        let (mut last, mut commit, mut flushed, mut stamp) = (0, 0, 0, 0);
        for step in steps {
            match step {
                Step::Push(rows) => {
                    last += 1;
                    stamp += 1;
                    let changes: Vec<_> = rows.into_iter().map(|(number, removed)| {
                        if removed { RowChange::remove(key(number)) } else { set(number, stamp) }
                    }).collect();
                    recent.push(seq(last), changes.clone()).unwrap();
                    entries.push((last, changes));
                }
                Step::Commit(by) => {
                    commit = (commit + by).min(last);
                    recent.commit(seq(commit));
                }
                Step::Flush(by) => {
                    // As the flusher does: take what is committed, write it, and only then let go.
                    let upto = (flushed + by).min(commit);
                    let pending: Vec<_> = recent.committed_after(seq(flushed)).filter(|(at, _)| *at <= seq(upto)).collect();
                    for change in pending.into_iter().flat_map(|(_, changes)| changes) {
                        engine.write(&[Change { space: SPACE, key: change.key, value: change.value }]).unwrap();
                    }
                    flushed = upto;
                    if by != 1 {
                        recent.flushed(seq(flushed));
                    }
                }
                Step::Truncate(by) => {
                    last = last.saturating_sub(by).max(commit);
                    recent.truncate(seq(last)).unwrap();
                    entries.retain(|(at, _)| *at <= last);
                }
            }
            let view = |reader| PartitionView::new(&recent, &engine, SPACE, reader);
            agrees(&view(Reader::Newest), &state(&entries, last))?;
            agrees(&view(Reader::Committed), &state(&entries, commit))?;
        }
        prop_assert_eq!(recent.bytes(), budget.bytes_used());
        recent.truncate(seq(commit)).unwrap();
        recent.flushed(seq(commit));
        prop_assert_eq!((recent.bytes(), recent.rows.len()), (0, 0));
    }
}

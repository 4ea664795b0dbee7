//! Tests of a memtable's readers, and of the rows it gives to the engine.

use super::*;
use crate::MemoryEngine;
use crate::engine::{Change, Engine};
use crate::ranges::reshape;
use crate::rows::row::Outcome;
use crate::rows::view::{PartitionView, Reader, View};
use archon_types::{ClientId, PlacementId, Version};
use uuid::Uuid;

pub(super) const SPACE: PlacementId = PlacementId::new(1);

pub(super) fn key(number: u8) -> Bytes {
    Bytes::from(vec![1, number])
}

/// Keys of all sorts: user rows, and a partition's own.
pub(super) fn any_key(number: u8) -> Bytes {
    if number < 8 { key(number) } else { Bytes::from(vec![row::KIND_META, number]) }
}

pub(super) fn set(number: u8, value: u64) -> RowChange {
    RowChange::set(key(number), Bytes::from(value.to_string()))
}

pub(super) fn seq(number: u64) -> Seq {
    Seq::new(number)
}

pub(super) fn push(memtable: &mut Memtable, at: u64, changes: impl Into<Vec<RowChange>>) -> Result<(), MemtableError> {
    memtable.push(seq(at), Effect::new(Millis::new(at), changes.into()))
}

fn value(found: Option<Option<&Bytes>>) -> Option<Option<&[u8]>> {
    found.map(|found| found.map(|value| &value[..]))
}

/// Rows flushed while a copy catches up have lower positions than the rows of its pages.
#[test]
fn engine_position_does_not_fall_below_copied_pages() {
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
fn each_reader_sees_its_version() {
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
fn positions_rise_and_committed_part_is_kept() {
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
fn budget_is_shared_and_returned() {
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

#[test]
fn records_are_charged_until_they_are_flushed() {
    let budget = MemtableBudget::default();
    let mut memtable = Memtable::new(seq(4), budget.clone());
    let record = |number| {
        let client = ClientId::new(Uuid::from_u128(9));
        Some(Record { client, number, done_below: 0, outcome: Outcome::NotANumber })
    };
    memtable.push(seq(5), Effect { record: record(1), ..Effect::new(Millis::new(5), Vec::new()) }).unwrap();
    let uncommitted = budget.bytes_used();
    memtable.commit(seq(5));
    let committed = budget.bytes_used();
    assert!(size_of::<UncommittedEntry>() <= uncommitted && uncommitted < committed, "{uncommitted}, then {committed}");
    for number in 2..=100 {
        let effect = Effect { record: record(number), ..Effect::new(Millis::new(6), Vec::new()) };
        memtable.push(seq(4 + number), effect).unwrap();
        memtable.commit(seq(4 + number));
    }
    let more = budget.bytes_used() - committed;
    let outcome = size_of::<(u64, Outcome)>();
    assert!((99 * outcome..4 * 100 * outcome).contains(&more), "99 outcomes more: {more}");
    let frozen = memtable.freeze().unwrap();
    memtable.flushed(frozen.upto);
    assert_eq!((budget.bytes_used(), memtable.is_empty()), (0, true));
}

/// A leader's evaluation goes after the entry that cleared the range, even while that is not committed.
#[test]
fn clear_hides_rows_from_readers_that_see_its_entry() {
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

/// Entries with a small row of their own and a large row that all of them overwrite: the memory of at most one entry
/// stays, that of the large row.
#[test]
fn small_rows_do_not_keep_large_entries_in_memory() {
    let mut memtable = Memtable::new(seq(0), MemtableBudget::default());
    let large = Bytes::from(vec![7; 100_000]);
    let entries: Vec<Bytes> = (1..=50)
        .map(|at| {
            let changes = vec![set(1, at), RowChange::set(key(0), large.clone()), RowChange::remove(any_key(9))];
            let changes = changes.into_iter().chain([RowChange::set(key(100 + at as u8), Bytes::from("small"))]);
            let clear = KeyRange { begin: Bytes::from(vec![200, at as u8]), end: Some(Bytes::from(vec![201])) };
            let effect = Effect { clear: Some(clear), ..Effect::new(Millis::new(at), changes.collect()) };
            let (entry, effect) = effect.into_entry().unwrap();
            memtable.push(seq(at), effect).unwrap();
            entry
        })
        .collect();
    memtable.commit(seq(50));
    let kept = entries.into_iter().filter(|entry| !entry.is_unique()).count();
    assert!(kept <= 1, "{kept} entries of {} bytes are kept for rows of {} bytes", large.len(), memtable.bytes());
    let view = |number: u8| memtable.get(&key(number), Reader::Committed).flatten().cloned();
    assert_eq!((view(150), view(0)), (Some("small".into()), Some(large)));
    assert_eq!(memtable.get(&any_key(9), Reader::Committed), Some(None));
}

use super::*;
use crate::check::key_move::KeyMove;
use archon_kv::row::{MERGED_KEY, SEAL_KEY, encode_value, value_key};
use archon_kv::{Effect, MergeRecord, RowChange, Seal};
use archon_replica::{Entry, Position};
use archon_types::{Epoch, KeyRange, Millis, Op, PlacementId, Revision, Seq, TableId, Version};
use bytes::Bytes;

const LEFT: PartitionId = PartitionId::new(TableId::new(3), 0);
const RIGHT: PartitionId = PartitionId::new(TableId::new(3), 1);
const EPOCH: Epoch = Epoch::new(1);
const KEPT: &[u8] = b"a";
const MOVES: &[u8] = b"m";

fn keys() -> KeyRange {
    KeyRange { begin: Bytes::from_static(MOVES), end: None }
}

fn text(revision: u64) -> Bytes {
    Bytes::from(format!("v{revision}"))
}

fn value(key: &[u8], revision: u64) -> RowChange {
    RowChange::set(value_key(key), encode_value(Revision::new(revision), &text(revision)))
}

fn position(seq: u64) -> Position {
    Position::new(EPOCH, Seq::new(seq))
}

fn seal(attempt: u64, seq: u64) -> RowChange {
    let (at, end) = (keys().begin, None);
    let seal = Seal { attempt: Version::new(attempt), at, end, position: position(seq) };
    RowChange::set(Bytes::from_static(SEAL_KEY), seal.encode())
}

fn commit(checks: &mut Checks, partition: PartitionId, seq: u64, effect: &Effect) {
    let entry = Entry { at: position(seq), bytes: effect.encode().expect("a small effect") };
    checks.commit(partition, EPOCH, PlacementId::new(7), &entry).expect("a right entry");
}

fn put(checks: &mut Checks, partition: PartitionId, key: &'static [u8], seq: u64) {
    checks.of(partition).sent_unnumbered(&Op::Put { key: Bytes::from_static(key), value: text(seq) });
    commit(checks, partition, seq, &Effect::new(Millis::ZERO, vec![value(key, seq)]));
}

/// Begins an operation; returns the owner of its key and the minimum position.
fn begins(checks: &mut Checks, asked: PartitionId, key: &[u8]) -> (KeyOwner, u64) {
    let began = checks.begins_at(asked, Some(key));
    let floors = checks.of(began.owner).floors();
    (began, checks.of(began.owner).floor(&floors, EPOCH))
}

/// Answers a put from this partition.
fn answered(checks: &mut Checks, key: &'static [u8], began: (KeyOwner, u64), by: PartitionId, revision: u64) -> bool {
    let floor = checks.floor_where_done(key, began.0, began.1, by);
    let owner = checks.owner_of(began.0.owner, key);
    let history = &mut checks.of(owner).latest_mut().history;
    let op = Op::Put { key: Bytes::from_static(key), value: text(revision) };
    history.wrote(&op, &Bytes::from_static(key), floor, Revision::new(revision), &text(revision)).is_ok()
}

/// Left gives up the upper keys at 3, and gets two more acknowledged writes before that is committed. An operation on
/// one of those keys begins in between.
fn split() -> (Checks, (KeyOwner, u64)) {
    let mut checks = Checks::default();
    put(&mut checks, LEFT, KEPT, 1);
    put(&mut checks, LEFT, MOVES, 2);
    commit(&mut checks, LEFT, 3, &Effect::new(Millis::ZERO, vec![seal(10, 3)]));
    for revision in 4..=5 {
        let began = begins(&mut checks, LEFT, KEPT);
        put(&mut checks, LEFT, KEPT, revision);
        assert!(answered(&mut checks, KEPT, began, LEFT, revision));
    }
    let began = begins(&mut checks, LEFT, MOVES);
    assert_eq!(began.1, 5);
    checks.part(LEFT, RIGHT, position(3), keys()).expect("left gave the keys up");
    (checks, began)
}

/// Right's keys, last written at `seq`, come back to left.
fn merge(checks: &mut Checks, seq: u64) {
    commit(checks, RIGHT, seq + 1, &Effect::new(Millis::ZERO, vec![seal(20, seq + 1)]));
    let cleared = Effect { clear: Some(keys()), ..Effect::new(Millis::ZERO, vec![seal(20, 6)]) };
    commit(checks, LEFT, 6, &cleared);
    commit(checks, LEFT, 7, &Effect::new(Millis::ZERO, vec![value(MOVES, seq)]));
    let (attempt, base) = (Version::new(20), seq);
    let merged = MergeRecord { attempt, base, through: Millis::ZERO, from: keys().begin };
    let merged = RowChange::set(Bytes::from_static(MERGED_KEY), merged.encode());
    let opened = RowChange::remove(Bytes::from_static(SEAL_KEY));
    commit(checks, LEFT, 8, &Effect::new(Millis::ZERO, vec![merged, opened]));
    checks.merge(LEFT, RIGHT, attempt, &keys()).expect("left has what right had");
}

#[test]
fn late_answer_is_checked_against_its_own_log() {
    let (mut checks, began) = split();
    put(&mut checks, RIGHT, MOVES, 4);
    merge(&mut checks, 4);
    assert_eq!(checks.owner_of(LEFT, MOVES), LEFT);
    assert!(answered(&mut checks, MOVES, began, RIGHT, 4), "4 of left's log was about another key");
}

#[test]
fn answer_is_not_below_earlier_observations_of_its_key() {
    let (mut checks, first) = split();
    put(&mut checks, RIGHT, MOVES, 4);
    let second = begins(&mut checks, LEFT, MOVES);
    assert_eq!((second.0.owner, second.1), (RIGHT, 3), "up to where the keys were given up");
    assert!(!answered(&mut checks, MOVES, first, RIGHT, 2), "it was there before the keys were given up");
    assert!(answered(&mut checks, MOVES, first, RIGHT, 4));
    let third = begins(&mut checks, LEFT, MOVES);
    assert!(!answered(&mut checks, MOVES, third, RIGHT, 4), "it was seen before");
    merge(&mut checks, 4);
    assert!(!answered(&mut checks, MOVES, third, RIGHT, 4), "it was seen before, and is no less now");
    assert!(!answered(&mut checks, MOVES, third, LEFT, 4), "nor if another one says so");
    // Right no longer matters: its start above 3 excuses nothing.
    let late = begins(&mut checks, LEFT, MOVES);
    assert_eq!((late.0.owner, late.1), (LEFT, 5));
    assert!(!answered(&mut checks, MOVES, late, RIGHT, 4));
    assert_eq!(checks.floor_where_done(MOVES, late.0, late.1, RIGHT), 5);
}

#[test]
fn only_later_splits_lower_the_minimum_of_an_answer() {
    let mut checks = Checks::default();
    let (other, whole) = (PartitionId::new(TableId::new(3), 2), KeyRange::ALL);
    checks.key_moves.push(KeyMove { from: other, to: LEFT, keys: whole, sealed: Some(1) });
    let (before, _) = begins(&mut checks, RIGHT, MOVES);
    checks.key_moves.push(KeyMove { from: RIGHT, to: LEFT, keys: keys(), sealed: None });
    assert_eq!(checks.floor_where_done(MOVES, before, 8, LEFT), 8, "that split was about what left had then");
    checks.key_moves.push(KeyMove { from: LEFT, to: other, keys: keys(), sealed: Some(6) });
    assert_eq!(checks.floor_where_done(MOVES, before, 8, other), 6);
    assert_eq!(checks.floor_where_done(KEPT, before, 8, other), 8, "this key did not go along");
}

use super::*;
use crate::mutant::Broken;
use crate::test_shell::{OWN, PARTITION, TestShell, get, put, request, row, serving, settle};
use archon_types::{Expiry, ScanOrder};
use bytes::Bytes;

const KEY: &str = "key";

fn leader(mutant: Option<Mutant>) -> Partitions<TestShell> {
    serving(Broken::by(mutant), row(1, &[]))
}

fn expiring(key: &'static str, millis: u64) -> Op {
    let expiry = Expiry::After(millis);
    Op::PutExpiring { key: Bytes::from(key), value: Bytes::from_static(b"old"), expected: None, expiry }
}

fn scan() -> Op {
    Op::Scan { keys: KeyRange::ALL, order: ScanOrder::Ascending, limit: 10 }
}

/// Sets the clock, which may go back.
fn clock(node: &mut Partitions<TestShell>, at: u64) {
    node.shell_mut().now.set(Millis::new(at));
    node.begin(Millis::new(at));
}

fn ask(node: &mut Partitions<TestShell>, op: Op, reply: &'static str) -> Option<Outcome> {
    node.operate(request(op, reply));
    settle(node);
    answer(node, reply)
}

fn answer(node: &Partitions<TestShell>, reply: &str) -> Option<Outcome> {
    node.shell().answers.iter().rev().find(|(to, _)| *to == reply).map(|(_, outcome)| outcome.clone())
}

/// Returns the value that a get finds.
fn found(node: &mut Partitions<TestShell>) -> Option<Bytes> {
    match ask(node, get(KEY), "get") {
        Some(Ok(Answer::Value(found))) => found.map(|stored| stored.value),
        other => panic!("{other:?}"),
    }
}

fn position(node: &Partitions<TestShell>) -> u64 {
    node.copies()[&OWN].replica.last().seq.get()
}

fn has_row(node: &Partitions<TestShell>, key: &str) -> bool {
    let local = &node.copies()[&OWN];
    let view = PartitionView::new(&local.memtable, node.shell().engine(), OWN, Reader::Newest);
    view.get(&row::value_key(key.as_bytes())).expect("readable").is_some()
}

fn expired_value_stays_absent_when_clock_goes_back(mutant: Option<Mutant>) -> bool {
    let mut node = leader(mutant);
    ask(&mut node, expiring(KEY, 10), "put");
    assert_eq!(found(&mut node).as_deref(), Some(&b"old"[..]));
    clock(&mut node, 2_000);
    assert_eq!(found(&mut node), None);
    clock(&mut node, 1_000);
    found(&mut node).is_none()
}

/// The scan decides by an entry that removes no row.
fn read_compares_with_log_time_when_clock_is_behind(mutant: Option<Mutant>) -> bool {
    let mut node = leader(mutant);
    ask(&mut node, expiring(KEY, 10), "put");
    clock(&mut node, 2_000);
    let scanned = ask(&mut node, scan(), "scan");
    assert!(matches!(&scanned, Some(Ok(Answer::Page { entries, .. })) if entries.is_empty()), "{scanned:?}");
    assert!(has_row(&node, KEY));
    clock(&mut node, 1_000);
    let before = position(&node);
    let found = found(&mut node);
    found.is_none() && position(&node) == before
}

fn read_with_entry_sees_writes_before_it(mutant: Option<Mutant>) -> bool {
    let mut node = leader(mutant);
    ask(&mut node, expiring(KEY, 10), "put");
    clock(&mut node, 2_000);
    node.operate(request(put(KEY), "again"));
    node.settle();
    node.operate(request(get(KEY), "get"));
    node.settle();
    assert_eq!(answer(&node, "get"), None, "neither is committed");
    settle(&mut node);
    matches!(answer(&node, "get"), Some(Ok(Answer::Value(Some(stored)))) if stored.value == "value")
}

fn row_written_again_is_not_removed(mutant: Option<Mutant>) -> bool {
    let mut node = leader(mutant);
    ask(&mut node, expiring(KEY, 10), "put");
    ask(&mut node, put(KEY), "again");
    clock(&mut node, 2_000);
    node.tick(false, 0);
    settle(&mut node);
    found(&mut node).as_deref() == Some(b"value")
}

archon_types::shown_by! {
    ExpiryUnlogged => expired_value_stays_absent_when_clock_goes_back,
    ExpiryByClock => read_compares_with_log_time_when_clock_is_behind,
    ExpiryOfCommitted => read_with_entry_sees_writes_before_it,
    RemovedUnseen => row_written_again_is_not_removed,
}

#[test]
fn expired_value_is_answered_after_commit() {
    let mut node = leader(None);
    ask(&mut node, expiring(KEY, 10), "put");
    clock(&mut node, 1_009);
    let before = position(&node);
    assert!(found(&mut node).is_some());
    assert_eq!(position(&node), before, "a read of a value needs no entry");
    clock(&mut node, 1_010);
    node.operate(request(get(KEY), "absent"));
    node.settle();
    assert_eq!(answer(&node, "absent"), None, "the disk does not have the entry yet");
    settle(&mut node);
    assert_eq!(answer(&node, "absent"), Some(Ok(Answer::Value(None))));
    assert_eq!((position(&node), has_row(&node, KEY)), (before + 1, false));
    assert!(found(&mut node).is_none());
    assert_eq!(position(&node), before + 1, "one entry for all later reads");
}

#[test]
fn read_of_expired_value_waits_for_room() {
    let mut node = leader(None);
    ask(&mut node, expiring(KEY, 10), "put");
    clock(&mut node, 2_000);
    node.shell_mut().is_full = true;
    assert_eq!(ask(&mut node, get(KEY), "get"), None, "it would need an entry");
    assert_eq!(ask(&mut node, get("other"), "other"), Some(Ok(Answer::Value(None))));
    node.shell_mut().is_full = false;
    assert_eq!(found(&mut node), None);
}

#[test]
fn turn_removes_bounded_number_of_expired_rows() {
    let mut node = leader(None);
    let keys: Vec<&'static str> = (0..300).map(|number| &*format!("key/{number}").leak()).collect();
    for key in &keys {
        ask(&mut node, expiring(key, 10), "put");
    }
    ask(&mut node, expiring("later", 100_000), "put");
    clock(&mut node, 2_000);
    let left = |node: &Partitions<TestShell>| keys.iter().filter(|key| has_row(node, key)).count();
    let mut counts = vec![left(&node)];
    for _ in 0..4 {
        node.tick(false, 0);
        settle(&mut node);
        counts.push(left(&node));
    }
    assert_eq!(counts, [300, 172, 44, 0, 0]);
    assert!(has_row(&node, "later"));
    let before = position(&node);
    node.tick(false, 0);
    settle(&mut node);
    assert_eq!(position(&node), before, "nothing is due");
}

/// A new leader finds the rows in the engine.
#[test]
fn new_leader_removes_rows_that_expired_before() {
    let mut node = leader(None);
    ask(&mut node, expiring(KEY, 10), "put");
    node.copies.get_mut(&OWN).expect("a copy").expiry = archon_kv::ExpiryIndex::default();
    clock(&mut node, 2_000);
    for _ in 0..2 {
        node.tick(false, 0);
        settle(&mut node);
    }
    assert!(!has_row(&node, KEY));
}

#[test]
fn stale_read_hides_value_that_is_due() {
    let mut node = leader(None);
    ask(&mut node, expiring(KEY, 10), "put");
    let stale = |node: &mut Partitions<TestShell>| node.read_stale(PARTITION, KEY.as_bytes()).expect("it counts").found;
    assert!(stale(&mut node).is_some());
    clock(&mut node, 2_000);
    assert!(stale(&mut node).is_none(), "by its clock");
    ask(&mut node, scan(), "scan");
    clock(&mut node, 1_000);
    assert!(stale(&mut node).is_none(), "by the log time");
}

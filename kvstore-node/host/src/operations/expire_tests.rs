use super::*;
use crate::mutant::DisabledRule;
use crate::test_shell::OTHER;
use crate::test_shell::{OWN, PARTITION, TestShell, get, put, request, row, serving, settle};
use archon_replica::Input;
use archon_types::{Epoch, ErrorKind, Expiry, ManyKeys, ScanOrder};
use bytes::Bytes;

const KEY: &str = "key";

fn leader(mutant: Option<Mutant>) -> Partitions<TestShell> {
    serving(DisabledRule::by(mutant), row(1, &[]))
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

/// Removes expired rows, within the time of a turn or in one step.
fn expire(node: &mut Partitions<TestShell>, has_time: bool) {
    node.expire(|| has_time);
    settle(node);
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
    clock(&mut node, 1_005);
    node.operate(request(put(KEY), "again"));
    node.settle();
    clock(&mut node, 2_000);
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
    expire(&mut node, true);
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
    for has_time in [false, false, true] {
        expire(&mut node, has_time);
        counts.push(left(&node));
    }
    assert_eq!(counts, [300, 300 - ROWS_PER_LOOK, 300 - 2 * ROWS_PER_LOOK, 0]);
    assert!(has_row(&node, "later"));
    let before = position(&node);
    expire(&mut node, true);
    assert_eq!(position(&node), before, "nothing is due");
}

/// A new leader finds the rows in the engine.
#[test]
fn new_leader_removes_rows_that_expired_before() {
    let mut node = leader(None);
    ask(&mut node, expiring(KEY, 10), "put");
    node.copies.get_mut(&OWN).expect("a copy").expiry = archon_kv::ExpiryIndex::default();
    clock(&mut node, 2_000);
    expire(&mut node, true);
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

/// More values than one step removes, and than the index holds.
#[test]
fn removal_keeps_up_while_there_is_time() {
    let mut node = leader(None);
    for number in 0..5_000 {
        ask(&mut node, expiring(format!("{number:04}").leak(), 10), "put");
    }
    clock(&mut node, 2_000);
    let mut left = ALL_STEPS_MAX;
    while left > 0 && has_row(&node, "4999") | has_row(&node, "0000") {
        expire(&mut node, true);
        left -= 1;
        clock(&mut node, 2_000 + 20 * (ALL_STEPS_MAX - left) as u64);
    }
    let rows = (0..5_000).filter(|number| has_row(&node, &format!("{number:04}"))).count();
    assert_eq!(rows, 0, "after {} ticks", ALL_STEPS_MAX - left);
}

#[test]
fn many_reads_of_due_value_take_one_entry() {
    for read in [get(KEY), scan()] {
        let mut node = leader(None);
        ask(&mut node, expiring(KEY, 10), "put");
        clock(&mut node, 2_000);
        let before = position(&node);
        for reply in ["1", "2", "3", "4", "5"] {
            node.operate(request(read.clone(), reply));
            node.settle();
            assert_eq!(answer(&node, reply), None, "the entry is not on the disk yet");
        }
        settle(&mut node);
        for reply in ["1", "2", "3", "4", "5"] {
            let found = answer(&node, reply);
            let is_absent = match &found {
                Some(Ok(Answer::Page { entries, .. })) => entries.is_empty(),
                found => *found == Some(Ok(Answer::Value(None))),
            };
            assert!(is_absent, "{reply}: {found:?}");
        }
        assert_eq!(position(&node), before + 1, "{read:?}");
    }
}

/// It proposes no entries then, but answers other reads.
#[test]
fn read_of_due_value_waits_while_leader_hands_over() {
    let mut node = leader(None);
    ask(&mut node, expiring(KEY, 10), "put");
    clock(&mut node, 1_005);
    node.operate(request(put("other"), "other"));
    node.settle();
    let epoch = Epoch::new(1);
    node.step(OWN, Input::HandOver { epoch, to: OTHER });
    node.settle();
    assert_eq!(node.copies()[&OWN].replica.status(), ReplicaStatus::HandingOver);
    clock(&mut node, 1_100);
    node.operate(request(get(KEY), "get"));
    node.settle();
    assert_eq!((answer(&node, "get"), node.shell().refusals.len()), (None, 0), "{:?}", node.shell().refusals);
    node.step(OWN, Input::KeepLeading { epoch });
    node.tick(false, 0);
    settle(&mut node);
    assert_eq!(answer(&node, "get"), Some(Ok(Answer::Value(None))));
}

/// The read changed nothing, so it may be retried at the next leader.
#[test]
fn reads_that_await_entry_are_retried_after_leadership() {
    let mut node = leader(None);
    ask(&mut node, expiring(KEY, 10), "put");
    clock(&mut node, 2_000);
    for reply in ["first", "second"] {
        node.operate(request(get(KEY), reply));
        node.settle();
    }
    let local = node.copies.get_mut(&OWN).expect("a copy");
    node.turn.rest(local);
    let retried: Vec<_> = std::iter::from_fn(|| node.pop_unparked()).map(|request| request.reply).collect();
    assert_eq!(retried, ["second"]);
    assert_eq!(node.shell().refusals.iter().map(|(reply, _)| *reply).collect::<Vec<_>>(), ["first"]);
}

#[test]
fn scan_over_decided_rows_is_evaluated_once() {
    let mut node = leader(None);
    ask(&mut node, expiring(KEY, 10), "put");
    clock(&mut node, 2_000);
    ask(&mut node, scan(), "first");
    assert!(has_row(&node, KEY));
    node.shell_mut().look_ms = 1;
    node.operate(request(scan(), "second"));
    let looks = node.shell().now.get().since(Millis::new(2_000));
    assert!(answer(&node, "second").is_some());
    assert_eq!(looks, 1);
}

#[test]
fn scan_of_expired_rows_states_how_far_it_came() {
    let mut node = leader(None);
    for number in 0..2_500 {
        ask(&mut node, expiring(format!("{number:04}").leak(), 10), "put");
    }
    ask(&mut node, put("z"), "put");
    clock(&mut node, 2_000);
    let page = |node: &mut Partitions<TestShell>, keys| {
        let scan = Op::Scan { keys, order: ScanOrder::Ascending, limit: 10 };
        match ask(node, scan, "scan") {
            Some(Ok(Answer::Page { entries, more, range })) => (entries.len(), more, range),
            other => panic!("{other:?}"),
        }
    };
    let (entries, more, range) = page(&mut node, KeyRange::ALL);
    let end = range.end.clone().expect("it stopped");
    assert!(entries == 0 && more && range.begin.is_empty(), "{entries} {more} {range:?}");
    assert!(end > "0256" && end < "2499", "{end:?}");
    let rest = KeyRange { begin: end, end: None };
    assert_eq!(page(&mut node, rest), (1, false, KeyRange::ALL));
}

#[test]
fn mark_is_removed_once_no_value_expires() {
    let mut node = leader(None);
    let has_mark = |node: &Partitions<TestShell>| {
        let view = PartitionView::new(&node.copies()[&OWN].memtable, node.shell().engine(), OWN, Reader::Newest);
        view.get(row::EXPIRING_KEY).expect("readable").is_some()
    };
    ask(&mut node, expiring(KEY, 10), "put");
    clock(&mut node, 2_000);
    expire(&mut node, false);
    assert!(has_mark(&node), "the rows are not read yet");
    expire(&mut node, true);
    assert!(!has_mark(&node));
    ask(&mut node, expiring(KEY, 10), "put");
    assert!(has_mark(&node));
}

#[test]
fn read_without_room_for_its_answer_gets_no_entry() {
    let mut node = leader(None);
    ask(&mut node, expiring(KEY, 10), "put");
    ask(&mut node, put("other"), "put");
    let get_many = || Op::GetMany(Box::new(ManyKeys::new(vec![KEY.into(), "other".into()]).unwrap()));
    clock(&mut node, 2_000);
    let before = position(&node);
    assert_eq!(ask(&mut node, get_many(), "holds nothing"), None);
    let refused = node.shell().refusals.last();
    assert!(
        matches!(refused, Some((_, crate::Refusal::Detail(detail))) if detail.kind == ErrorKind::Overloaded),
        "{refused:?}"
    );
    assert_eq!(position(&node), before);
    let found = ask(&mut node, get_many(), "get");
    assert!(
        matches!(&found, Some(Ok(Answer::Values(values))) if values[0].is_none() && values[1].is_some()),
        "{found:?}"
    );
    assert_eq!(position(&node), before + 1);
}

//! Tests of operations on several keys at a leader.

use super::*;
use crate::mutant::DisabledRule;
use crate::partitions::Partitions;
use crate::ranges::split::tests::{configure, parted, splitting};
use crate::test_shell::{OWN, TestShell, get, put, request, row as partition_row, serving, settle};
use archon_types::{Answer, Change, Check, ClientId, Expiry, ManyKeys, Op, OpId, Revision, Transaction, Write};
use uuid::Uuid;

fn leader(mutant: Option<Mutant>) -> Partitions<TestShell> {
    serving(DisabledRule::by(mutant), partition_row(1, &[]))
}

fn transaction(checks: &[(&'static str, u64)], keys: &[&'static str]) -> Op {
    let check = |(key, expected): &(&'static str, u64)| Check {
        key: Bytes::from_static(key.as_bytes()),
        expected: Revision::new(*expected),
    };
    let write = |key: &&'static str| Write {
        key: Bytes::from_static(key.as_bytes()),
        change: Change::Put { value: Bytes::from_static(b"both"), expiry: None },
    };
    let checks = checks.iter().map(check).collect();
    Op::Transaction(Box::new(Transaction::new(checks, keys.iter().map(write).collect()).unwrap()))
}

fn many(keys: &[&'static str]) -> Op {
    let keys = keys.iter().map(|key| Bytes::from_static(key.as_bytes())).collect();
    Op::GetMany(Box::new(ManyKeys::new(keys).unwrap()))
}

fn ask(node: &mut Partitions<TestShell>, op: Op, reply: &'static str) -> Option<Outcome> {
    node.operate(request(op, reply));
    settle(node);
    answer(node, reply)
}

fn answer(node: &Partitions<TestShell>, reply: &str) -> Option<Outcome> {
    node.shell().answers.iter().rev().find(|(to, _)| *to == reply).map(|(_, outcome)| outcome.clone())
}

fn refusal<'a>(node: &'a Partitions<TestShell>, reply: &str) -> Option<&'a Refusal> {
    node.shell().refusals.iter().rev().find(|(to, _)| *to == reply).map(|(_, refusal)| refusal)
}

fn values(outcome: Option<Outcome>) -> Vec<Option<Bytes>> {
    match outcome {
        Some(Ok(Answer::Values(found))) => found.into_iter().map(|found| found.map(|found| found.value)).collect(),
        other => panic!("{other:?}"),
    }
}

fn position(node: &Partitions<TestShell>) -> u64 {
    node.copies()[&OWN].replica.last().seq.get()
}

fn transaction_is_one_entry(mutant: Option<Mutant>) -> bool {
    let mut node = leader(mutant);
    ask(&mut node, put("a"), "put");
    let before = position(&node);
    let done = ask(&mut node, transaction(&[("a", before), ("b", 0)], &["a", "b", "c"]), "both");
    assert!(matches!(done, Some(Ok(Answer::Applied { removed: 0, .. }))), "{done:?}");
    assert_eq!(values(ask(&mut node, many(&["a", "b", "c"]), "read")), vec![Some(Bytes::from_static(b"both")); 3]);
    position(&node) == before + 1
}

archon_types::shown_by! {
    TransactionInParts => transaction_is_one_entry,
}

#[test]
fn read_of_several_keys_sees_committed_transactions_whole() {
    let mut node = leader(None);
    ask(&mut node, put("a"), "put");
    node.operate(request(transaction(&[], &["a", "b"]), "both"));
    node.operate(request(many(&["a", "b"]), "before"));
    node.settle();
    let before = values(answer(&node, "before"));
    assert_eq!(before, [Some(Bytes::from_static(b"value")), None], "it is not committed");
    settle(&mut node);
    let both = Some(Bytes::from_static(b"both"));
    assert_eq!(values(ask(&mut node, many(&["b", "a"]), "after")), [both.clone(), both]);
}

#[test]
fn failed_check_is_answered_after_writes_before_it() {
    let mut node = leader(None);
    node.operate(request(put("a"), "put"));
    node.operate(request(transaction(&[("a", 0)], &["a", "b"]), "both"));
    node.settle();
    assert_eq!(answer(&node, "both"), None);
    settle(&mut node);
    assert!(matches!(answer(&node, "both"), Some(Ok(Answer::CheckFailed { check: 0, .. }))));
    assert!(matches!(ask(&mut node, get("b"), "get"), Some(Ok(Answer::Value(None)))));
}

#[test]
fn due_value_among_several_is_decided_by_an_entry() {
    let mut node = leader(None);
    let expiry = Expiry::After(10);
    let key = Bytes::from_static(b"due");
    ask(&mut node, Op::PutExpiring { key, value: Bytes::new(), expected: None, expiry }, "put");
    ask(&mut node, put("a"), "put");
    let before = position(&node);
    node.shell_mut().now.set(Millis::new(2_000));
    node.begin(Millis::new(2_000));
    let read = || many(&["a", "due"]);
    assert_eq!(values(ask(&mut node, read(), "read")), [Some(Bytes::from_static(b"value")), None]);
    assert_eq!(position(&node), before + 1);
    assert_eq!(values(ask(&mut node, read(), "again"))[1], None);
    assert_eq!(position(&node), before + 1, "once");
}

/// Keys from `m` on move to another partition.
#[test]
fn keys_on_both_sides_of_a_split_are_refused() {
    let mut node = leader(None);
    configure(&mut node, splitting(2, &[]));
    let divided = || transaction(&[], &["a", "z"]);
    let same = ask(&mut node, transaction(&[], &["a", "b"]), "same");
    assert!(matches!(same, Some(Ok(Answer::Applied { .. }))), "{same:?}");
    ask(&mut node, divided(), "waits");
    ask(&mut node, many(&["a", "z"]), "read");
    assert_eq!((answer(&node, "waits"), refusal(&node, "waits")), (None, None), "a key is sealed");
    configure(&mut node, parted(4));
    for reply in ["waits", "read"] {
        assert_eq!(refusal(&node, reply), Some(&Refusal::Moved), "{reply}");
    }
    ask(&mut node, divided(), "late");
    assert_eq!(refusal(&node, "late"), Some(&Refusal::Moved));
    // The name of a read has no meaning.
    node.operate(named(get("z"), "named read"));
    settle(&mut node);
    assert_eq!(refusal(&node, "named read"), Some(&Refusal::Moved));
}

fn named(op: Op, reply: &'static str) -> crate::operations::request::Request<&'static str> {
    let client = ClientId::new(Uuid::from_u128(7));
    let id = OpId { client, number: 1, done_below: 0, stamp: Millis::ZERO };
    Request { id: Some(id), ..request(op, reply) }
}

/// The client gets no answer to the first attempt, and retries after its keys were divided.
#[test]
fn retry_after_a_split_gets_the_recorded_outcome() {
    let mut node = leader(None);
    while node.clients_to_read() > 0 {
        node.read_clients();
    }
    let divided = || named(transaction(&[("a", 0)], &["a", "z"]), "first");
    node.operate(divided());
    settle(&mut node);
    let first = answer(&node, "first");
    assert!(matches!(first, Some(Ok(Answer::Applied { .. }))), "{first:?}");
    configure(&mut node, splitting(2, &[]));
    configure(&mut node, parted(4));
    node.operate(Request { reply: "again", ..divided() });
    settle(&mut node);
    assert_eq!(answer(&node, "again"), first);
}

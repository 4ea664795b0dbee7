//! Tests of histories without revisions, as replies of Redis listeners give them.

use super::store::{UnansweredRequest, outcome};
use super::*;
use crate::redis_driver::Reply;

fn bytes(value: &str) -> Reply {
    Reply::Bytes(value.as_bytes().to_vec())
}

fn put(value: &str) -> Request {
    Request::Put(value.into())
}

fn replace(old: Option<&str>, value: &str) -> Request {
    Request::Replace { expected: old.map(Into::into), value: value.into() }
}

/// Returns the history of one client that sends these requests one after the other, and gets these replies.
fn history(steps: Vec<(Request, Reply)>) -> Vec<Record> {
    let mut history = Vec::new();
    for (called_ns, (request, reply)) in (0..).step_by(10).zip(steps) {
        let outcome = match outcome(&request, reply) {
            Ok(outcome) => outcome,
            Err(UnansweredRequest { unknown: true, .. }) => Outcome::Unknown,
            // It had no effect.
            Err(_) => continue,
        };
        history.push(Record { client: 1, called_ns, returned_ns: called_ns + 5, request, outcome });
    }
    history
}

fn verdict(steps: Vec<(Request, Reply)>) -> Verdict {
    check(&history(steps))
}

#[test]
fn redis_histories_that_have_an_order_are_accepted() {
    let lost = || Reply::Lost("closed".into());
    let refused = || Reply::Refused("CLUSTERDOWN".into());
    let differs = || Reply::Nil;
    for good in [
        vec![(put("a"), Reply::ok()), (Request::Get, bytes("a")), (Request::Delete, Reply::Integer(1))],
        vec![(replace(None, "a"), Reply::ok()), (replace(None, "b"), differs()), (Request::Get, bytes("a"))],
        vec![(put("a"), Reply::ok()), (replace(Some("a"), "b"), Reply::ok()), (replace(Some("a"), "c"), differs())],
        vec![(put("a"), lost()), (Request::Get, Reply::Nil), (Request::Get, bytes("a"))],
        vec![(put("a"), Reply::ok()), (replace(Some("a"), "b"), lost()), (Request::Get, bytes("b"))],
        vec![(put("a"), Reply::ok()), (put("b"), refused()), (Request::Get, bytes("a"))],
        vec![(Request::Increment(2), Reply::Integer(2)), (Request::Increment(2), lost()), (Request::Get, bytes("4"))],
        vec![
            (put("a"), Reply::ok()),
            (Request::Increment(2), Reply::Refused("ERR value is not an integer or out of range".into())),
        ],
    ] {
        assert_eq!(verdict(good.clone()), Verdict::Linearizable, "{good:?}");
    }
}

#[test]
fn redis_histories_with_lost_writes_are_rejected() {
    let lost = || Reply::Lost("closed".into());
    let refused = || Reply::Refused("TRYAGAIN".into());
    for bad in [
        // An acknowledged write is lost.
        vec![(put("a"), Reply::ok()), (Request::Get, Reply::Nil)],
        vec![(put("a"), Reply::ok()), (put("b"), Reply::ok()), (Request::Get, bytes("a"))],
        vec![(Request::Increment(1), Reply::Integer(1)), (Request::Increment(1), Reply::Integer(1))],
        vec![(put("a"), Reply::ok()), (replace(None, "b"), Reply::ok())],
        vec![(put("a"), Reply::ok()), (replace(Some("a"), "b"), Reply::Nil)],
        vec![(replace(Some("a"), "b"), Reply::ok())],
        // A refused write took effect.
        vec![(put("a"), Reply::ok()), (put("b"), refused()), (Request::Get, bytes("b"))],
        // A write without a reply took effect twice.
        vec![(Request::Increment(1), lost()), (Request::Get, bytes("2"))],
        vec![
            (put("a"), lost()),
            (Request::Get, bytes("a")),
            (Request::Delete, Reply::Integer(1)),
            (Request::Get, bytes("a")),
        ],
    ] {
        assert_eq!(verdict(bad.clone()), Verdict::Violated, "{bad:?}");
    }
}

use super::*;
use archon_kv::RowChange;
use archon_kv::row::{encode_expiring, encode_value, value_key};

fn key(name: &'static str) -> Bytes {
    Bytes::from_static(name.as_bytes())
}

/// `a` is written at 1 and 4, `b` at 2, `a` deleted at 6 without an id, `b` at 7 with one.
fn history() -> History {
    let mut history = History::default();
    let mut commit = |at: u64, name: &'static str, value: Option<&'static str>, named: bool| {
        let row = value.map(|value| encode_value(Revision::new(at), value.as_bytes()));
        let changes = vec![RowChange { key: value_key(name.as_bytes()), value: row }];
        let effect = Effect::new(Millis::ZERO, changes);
        history.committed(Seq::new(at), &effect, named).expect("a right effect");
    };
    commit(1, "a", Some("one"), true);
    commit(2, "b", Some("two"), true);
    commit(4, "a", Some("four"), false);
    commit(6, "a", None, false);
    commit(7, "b", None, true);
    history
}

fn entry(name: &'static str, value: &'static str, revision: u64) -> Entry {
    Entry { key: key(name), value: key(value), revision: Revision::new(revision), expires: None }
}

#[test]
fn stale_read_is_reported() {
    let saw = |floor, revision| history().saw(&key("a"), floor, Revision::new(revision), None).is_ok();
    assert!(saw(0, 1) && saw(3, 1) && saw(5, 4));
    assert!(!saw(4, 1) && !saw(6, 4), "a later write was seen before");
    assert!(!saw(0, 2), "that is another key");
    assert!(history().saw(&key("a"), 0, Revision::new(1), Some(&key("four"))).is_err());
}

#[test]
fn key_is_absent_only_before_write_or_after_delete() {
    let missed = |name, floor| {
        let mut history = history();
        history.missed(&key(name), floor).is_ok().then_some(history.floor())
    };
    assert_eq!(missed("a", 0), Some(0));
    assert_eq!(missed("a", 1), Some(6), "it must have seen the delete");
    assert_eq!(missed("a", 6), Some(0));
    assert_eq!(missed("c", 9), Some(0));
    let mut never_deleted = History::default();
    let changes = vec![RowChange::set(value_key(b"a"), encode_value(Revision::new(1), b"one"))];
    never_deleted.committed(Seq::new(1), &Effect::new(Millis::ZERO, changes), true).expect("right");
    assert!(never_deleted.missed(&key("a"), 0).is_ok());
    assert!(never_deleted.missed(&key("a"), 1).is_err());
}

#[test]
fn delete_is_answered_once_and_after_its_begin() {
    let mut once = history();
    assert!(once.deleted(&key("a"), 0, None).is_ok());
    assert_eq!(once.floor(), 6);
    assert!(once.deleted(&key("a"), 0, None).is_err(), "one delete, two answers");
    assert!(history().deleted(&key("a"), 6, None).is_err());
    assert!(history().deleted(&key("b"), 0, Some(Some(Seq::new(7)))).is_ok());
    assert!(history().deleted(&key("b"), 7, Some(Some(Seq::new(7)))).is_err());
    assert!(history().deleted(&key("b"), 0, Some(Some(Seq::new(2)))).is_err(), "that is a put");
    assert!(history().deleted(&key("b"), 0, Some(None)).is_err(), "nothing of that name took effect");
}

#[test]
fn scan_sees_all_keys_at_one_moment() {
    let listed = |floor, entries: &[Entry], more, limit| {
        let mut history = history();
        let asked = (&KeyRange::ALL, ScanOrder::Ascending, limit);
        history.listed(asked, floor, entries, more).is_ok().then_some(history.floor())
    };
    let (one, four, two) = (entry("a", "one", 1), entry("a", "four", 4), entry("b", "two", 2));
    assert_eq!(listed(0, &[], false, 0), Some(0));
    assert_eq!(listed(0, &[one.clone(), two.clone()], false, 0), Some(2));
    assert_eq!(listed(0, &[four.clone(), two.clone()], false, 0), Some(4));
    assert_eq!(listed(4, std::slice::from_ref(&two), false, 0), Some(6));
    assert_eq!(listed(4, &[], false, 0), Some(7));
    assert_eq!(listed(4, &[one.clone(), two.clone()], false, 0), None, "replaced before it began");
    assert_eq!(listed(0, std::slice::from_ref(&four), false, 0), None, "b was there whenever that was");
    // A truncated page says so, and a complete one does not.
    assert_eq!(listed(0, std::slice::from_ref(&one), true, 1), Some(2));
    assert_eq!(listed(0, std::slice::from_ref(&one), false, 1), Some(1));
    assert_eq!(listed(2, std::slice::from_ref(&one), false, 1), None);
}

/// `a` is written at 1 and expires at 10 ms, and the entry of `b` at 2 ends it.
fn expired() -> History {
    let mut history = History::default();
    let mut commit = |at: u64, millis: u64, changes: Vec<RowChange>| {
        let effect = Effect::new(Millis::new(millis), changes);
        history.committed(Seq::new(at), &effect, true).expect("a right effect");
    };
    let row = encode_expiring(Revision::new(1), Millis::new(10), b"one");
    commit(1, 5, vec![RowChange::set(value_key(b"a"), row)]);
    commit(2, 12, vec![RowChange::set(value_key(b"b"), encode_value(Revision::new(2), b"two"))]);
    history
}

#[test]
fn value_ends_at_first_entry_that_reaches_its_expiry() {
    let mut history = expired();
    assert!(history.missed(&key("a"), 1).is_ok());
    assert_eq!(history.floor(), 2);
    assert!(history.saw(&key("a"), 2, Revision::new(1), None).is_err(), "it was found absent");
    assert!(expired().saw(&key("a"), 1, Revision::new(1), None).is_ok());
}

#[test]
fn value_that_expired_is_not_deleted() {
    for at in [1, 2] {
        assert!(expired().deleted(&key("a"), 0, Some(Some(Seq::new(at)))).is_err(), "{at}");
    }
    assert!(expired().deleted(&key("a"), 0, None).is_err());
}

/// The entry of a delete ends the value itself.
#[test]
fn delete_of_expired_value_finds_nothing() {
    let mut history = History::default();
    let row = encode_expiring(Revision::new(1), Millis::new(10), b"one");
    for (at, millis, change) in
        [(1, 5, RowChange::set(value_key(b"a"), row)), (2, 12, RowChange::remove(value_key(b"a")))]
    {
        history.committed(Seq::new(at), &Effect::new(Millis::new(millis), vec![change]), true).expect("a right effect");
    }
    assert!(history.deleted(&key("a"), 1, Some(Some(Seq::new(2)))).is_err());
    assert!(history.missed(&key("a"), 1).is_ok());
}

fn wrote(op: Op, before: Option<u64>, millis: u64, expires: Option<u64>) -> bool {
    let mut history = History::default();
    let mut commit = |at: u64, millis: u64, expires: Option<u64>| {
        let row = match expires {
            Some(expires) => encode_expiring(Revision::new(at), Millis::new(expires), b"5"),
            None => encode_value(Revision::new(at), b"5"),
        };
        let effect = Effect::new(Millis::new(millis), vec![RowChange::set(value_key(b"a"), row)]);
        history.committed(Seq::new(at), &effect, true).expect("a right effect");
    };
    commit(1, 1, before);
    commit(2, millis, expires);
    history.wrote(&op, &key("a"), 1, Revision::new(2), &key("5")).is_ok()
}

#[test]
fn condition_of_write_is_compared_with_value_before() {
    let set_if = |expected| Op::CompareAndSet { key: key("a"), expected: Revision::new(expected), value: key("5") };
    assert!(wrote(set_if(1), Some(10), 9, None) && !wrote(set_if(1), Some(10), 10, None));
    assert!(!wrote(set_if(0), Some(10), 9, None) && wrote(set_if(0), Some(10), 10, None));
    assert!(!wrote(set_if(2), None, 9, None));
}

#[test]
fn expiry_of_write_follows_from_its_operation() {
    let put = |expiry| Op::PutExpiring { key: key("a"), value: key("5"), expected: None, expiry };
    for (op, expires) in [
        (put(Expiry::After(30)), Some(39)),
        (put(Expiry::Keep), Some(10)),
        (put(Expiry::At(Millis::new(50))), Some(50)),
        (Op::Increment { key: key("a"), by: 1 }, Some(10)),
        (Op::Put { key: key("a"), value: key("5") }, None),
    ] {
        for found in [None, Some(10), Some(39), Some(50)] {
            assert_eq!(wrote(op.clone(), Some(10), 9, found), found == expires, "{op:?} {found:?}");
        }
    }
    // There is nothing to keep once the value has expired.
    assert!(wrote(put(Expiry::Keep), Some(10), 11, None));
    assert!(!wrote(put(Expiry::Keep), Some(10), 11, Some(20)));
}

use super::*;
use archon_kv::RowChange;
use archon_kv::row::{encode_value, value_key};
use archon_types::Millis;

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

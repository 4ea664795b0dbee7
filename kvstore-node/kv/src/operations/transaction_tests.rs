//! Tests of reads of several keys and of transactions. `evaluate_tests.rs` compares both with a map.

use super::*;
use crate::operations::effect::EFFECT_CHANGES_MAX;
use crate::operations::evaluate::{Request, evaluate};
use crate::rows::plain::Rows;
use crate::rows::row::{EXPIRING_KEY, encode_expiring};
use archon_types::transaction::{TRANSACTION_BYTES_MAX, TRANSACTION_KEYS_MAX};
use archon_types::{Check, ClientId, ErrorKind, Op, OpId, StoredValue, Write};
use bytes::Bytes;
use proptest::prelude::*;
use uuid::Uuid;

const AT: Millis = Millis::new(1_000);

fn check(key: &str, expected: u64) -> Check {
    Check { key: Bytes::copy_from_slice(key.as_bytes()), expected: Revision::new(expected) }
}

fn put(key: impl Into<Bytes>, value: impl Into<Bytes>) -> Write {
    Write { key: key.into(), change: Change::Put { value: value.into(), expiry: None } }
}

fn delete(key: impl Into<Bytes>) -> Write {
    Write { key: key.into(), change: Change::Delete }
}

fn transaction(checks: Vec<Check>, writes: Vec<Write>) -> Op {
    Op::Transaction(Box::new(Transaction::new(checks, writes).unwrap()))
}

fn many(keys: &[&'static str]) -> Op {
    let keys = keys.iter().map(|key| Bytes::from_static(key.as_bytes())).collect();
    Op::GetMany(Box::new(ManyKeys::new(keys).unwrap()))
}

fn evaluated(rows: &Rows, op: &Op, id: Option<&OpId>, position: u64, mutant: Option<Mutant>) -> Evaluation {
    let limits = DedupLimits { mutant, ..DedupLimits::DEFAULT };
    evaluate(Request { op, id }, rows, AT, Revision::new(position), &limits).unwrap()
}

/// Applies an operation as the entry at this position. Returns its answer, and whether there is an entry.
fn run(rows: &mut Rows, op: &Op, id: Option<&OpId>, position: u64) -> (Answer, bool) {
    let done = evaluated(rows, op, id, position, None);
    let effect = done.effect.map(|effect| Effect::decode(&effect.encode().unwrap()).unwrap());
    effect.iter().for_each(|effect| rows.apply(effect));
    (done.answer.unwrap(), effect.is_some())
}

/// Rows `a` and `b` of revisions 1 and 2, and `due`, which has expired.
fn rows() -> Rows {
    let mut rows = Rows::default();
    for (key, revision) in [("a", 1), ("b", 2)] {
        rows.0.insert(value_key(key.as_bytes()), encode_value(Revision::new(revision), key.as_bytes()));
    }
    rows.0.insert(value_key(b"due"), encode_expiring(Revision::new(3), AT, b"late"));
    rows
}

fn stored(value: &'static str, revision: u64) -> Option<StoredValue> {
    Some(StoredValue::new(Bytes::from_static(value.as_bytes()), Revision::new(revision)))
}

const fn id(number: u64) -> OpId {
    OpId { client: ClientId::new(Uuid::from_u128(7)), number, done_below: 0, stamp: Millis::ZERO }
}

#[test]
fn all_keys_are_written_by_one_entry() {
    let mut rows = rows();
    let op = transaction(vec![check("a", 1), check("new", 0)], vec![put("new", "n"), put("b", "c"), delete("a")]);
    let done = run(&mut rows, &op, None, 9);
    assert_eq!(done, (Answer::Applied { revision: Revision::new(9), removed: 1 }, true));
    let (values, _) = run(&mut rows, &many(&["a", "b", "new", "b"]), None, 10);
    assert_eq!(values, Answer::Values(vec![None, stored("c", 9), stored("n", 9), stored("c", 9)]));
}

fn check_that_fails_prevents_all_writes(mutant: Option<Mutant>) -> bool {
    let rows = rows();
    let op = transaction(vec![check("a", 1), check("b", 9)], vec![put("a", "x"), put("new", "x")]);
    let done = evaluated(&rows, &op, None, 9, mutant);
    done.effect.is_none() && done.answer == Ok(Answer::CheckFailed { check: 1, revision: Revision::new(2) })
}

archon_types::shown_by! {
    CheckSkipped => check_that_fails_prevents_all_writes,
}

#[test]
fn retry_gets_the_outcome_of_the_first_attempt() {
    let mut rows = rows();
    let moved = transaction(vec![check("a", 1)], vec![delete("a"), put("c", "a")]);
    let first = run(&mut rows, &moved, Some(&id(1)), 9).0;
    assert_eq!(first, Answer::Applied { revision: Revision::new(9), removed: 1 });
    // Its check would not hold any longer.
    assert_eq!(run(&mut rows, &moved, Some(&id(1)), 10), (first, false));
    let failed = run(&mut rows, &moved, Some(&id(2)), 10);
    assert_eq!(failed, (Answer::CheckFailed { check: 0, revision: Revision::ZERO }, true), "it is recorded");
    run(&mut rows, &transaction(vec![], vec![put("a", "again")]), None, 11);
    assert_eq!(run(&mut rows, &moved, Some(&id(2)), 12), (failed.0, false));
}

#[test]
fn due_value_is_absent_and_removed_by_a_transaction() {
    for (op, answer) in [
        (many(&["a", "due"]), Answer::Values(vec![stored("a", 1), None])),
        (transaction(vec![check("due", 0)], vec![]), Answer::Applied { revision: Revision::new(9), removed: 0 }),
        (transaction(vec![check("due", 3)], vec![]), Answer::CheckFailed { check: 0, revision: Revision::ZERO }),
        (transaction(vec![], vec![delete("due")]), Answer::Applied { revision: Revision::new(9), removed: 0 }),
    ] {
        let mut rows = rows();
        assert_eq!(run(&mut rows, &op, None, 9), (answer, true), "{op:?}");
        let is_read = matches!(op, Op::GetMany(_));
        assert_eq!(rows.0.contains_key(&value_key(b"due")), is_read, "{op:?}");
    }
    let written = transaction(vec![check("due", 0)], vec![put("due", "new")]);
    let mut rows = rows();
    run(&mut rows, &written, None, 9);
    assert_eq!(run(&mut rows, &many(&["due"]), None, 10).0, Answer::Values(vec![stored("new", 9)]));
}

#[test]
fn writes_with_expiry_mark_their_partition() {
    let mut rows = rows();
    let expiring = |key: &'static str, expiry| {
        let change = Change::Put { value: Bytes::from_static(b"v"), expiry: Some(expiry) };
        Write { key: Bytes::from_static(key.as_bytes()), change }
    };
    let at = |millis| Expiry::At(Millis::new(millis));
    let writes =
        vec![expiring("a", Expiry::Keep), expiring("b", at(1_000)), expiring("c", Expiry::After(5)), put("d", "v")];
    run(&mut rows, &transaction(vec![], writes), None, 9);
    let Answer::Values(found) = run(&mut rows, &many(&["a", "b", "c", "d"]), None, 10).0 else { panic!() };
    let expiries: Vec<_> = found.iter().map(|found| found.as_ref().map(|stored| stored.expires)).collect();
    assert_eq!(expiries, [Some(None), None, Some(Some(Millis::new(1_005))), Some(None)]);
    assert!(rows.0.contains_key(EXPIRING_KEY));
}

#[test]
fn answer_to_read_of_large_values_is_refused() {
    let mut rows = Rows::default();
    let value = vec![7; TRANSACTION_BYTES_MAX / 2];
    rows.0.insert(value_key(b"a"), encode_value(Revision::new(1), &value));
    assert!(evaluated(&rows, &many(&["a", "b"]), None, 9, None).answer.is_ok());
    let refused = evaluated(&rows, &many(&["a", "a"]), None, 9, None).answer.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::InvalidArgument);
    assert!(refused.message.contains("use fewer keys"), "{}", refused.message);
}

#[test]
fn bytes_of_values_that_are_looked_at_are_bounded() {
    const KEYS: usize = 9;
    let large = vec![7; 1024 * 1024];
    let key = |number: usize| Bytes::from(format!("{number}"));
    for expires in [None, Some(AT)] {
        let mut rows = Rows::default();
        for number in 0..KEYS {
            let row = match expires {
                None => encode_value(Revision::new(1), &large),
                Some(expires) => encode_expiring(Revision::new(1), expires, &large),
            };
            rows.0.insert(value_key(&key(number)), row);
        }
        let deletes = |count: usize| transaction(vec![], (0..count).map(|number| delete(key(number))).collect());
        assert!(evaluated(&rows, &deletes(KEYS - 1), Some(&id(1)), 9, None).answer.is_ok());
        let refused = evaluated(&rows, &deletes(KEYS), Some(&id(1)), 9, None);
        assert_eq!(refused.effect, None, "it is not recorded");
        assert!(refused.answer.unwrap_err().message.contains("use fewer keys"));
        let checked = transaction((0..KEYS).map(|number| check(&number.to_string(), 1)).collect(), vec![]);
        let checked = evaluated(&rows, &checked, None, 9, None).answer;
        assert_eq!(checked.is_err(), expires.is_none(), "the first check fails: {checked:?}");
    }
}

/// An entry that could not be written would have been answered by an internal error.
#[test]
fn largest_transactions_fit_into_an_entry() {
    let key = |number: usize, length: usize| Bytes::from(format!("{number:0length$}"));
    let mut rows = Rows::default();
    let checks: Vec<Check> = (0..TRANSACTION_KEYS_MAX)
        .map(|number| {
            let key = key(number, 1_000);
            rows.0.insert(value_key(&key), encode_expiring(Revision::new(1), AT, b""));
            Check { key, expected: Revision::ZERO }
        })
        .collect();
    let expiry = Some(Expiry::After(u64::MAX >> 1));
    let writes = |bytes: usize| -> Vec<Write> {
        let write = |number| {
            let change = Change::Put { value: vec![7; bytes].into(), expiry };
            Write { key: key(number, 5), change }
        };
        (0..TRANSACTION_KEYS_MAX).map(write).collect()
    };
    for op in [transaction(checks, writes(1_000)), transaction(vec![], writes(2_043))] {
        let done = evaluated(&rows, &op, Some(&id(1)), 9, None);
        let effect = done.effect.unwrap();
        assert!(effect.changes.len() < EFFECT_CHANGES_MAX);
        assert_eq!(Effect::decode(&effect.encode().unwrap()), Ok(effect));
    }
}

proptest! {
    /// The keys `x` and `y` have the same value after every transaction, with any other keys and checks.
    #[test]
    fn keys_written_together_agree_in_every_state(
        steps in proptest::collection::vec((0..4_u64, 0..3_u8, any::<bool>()), 1..40),
    ) {
        let mut rows = Rows::default();
        for (position, (expected, value, deletes)) in (1..).zip(steps) {
            let value = Bytes::from(vec![b'0' + value]);
            let writes = match deletes {
                true => vec![delete("x"), put("z", value), delete("y")],
                false => vec![put("x", value.clone()), put("y", value)],
            };
            run(&mut rows, &transaction(vec![check("x", expected.min(position))], writes), Some(&id(position)), position);
            let Answer::Values(found) = run(&mut rows, &many(&["x", "y"]), None, position).0 else { panic!() };
            prop_assert_eq!(&found[0], &found[1]);
        }
    }
}

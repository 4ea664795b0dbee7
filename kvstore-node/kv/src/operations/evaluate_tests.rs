//! Tests of evaluation: against a map, and the answer of each operation.

use super::*;
use crate::engine::Page;
use crate::exactly_once::dedup::forget;
use crate::exactly_once::window::Window;
use crate::rows::plain::Rows;
use crate::rows::view::ClientPage;
use archon_types::limits::{EXPIRY_MS_MAX, check_expiry};
use archon_types::{Change, Check, ClientId, ErrorKind, KeyRange, ManyKeys, ScanOrder, Transaction, Write};
use proptest::prelude::*;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use uuid::Uuid;

struct Partition {
    rows: Rows,
    position: u64,
    clock: u64,
    /// Log time of the last entry.
    logged: Option<Millis>,
}

impl Partition {
    fn new() -> Self {
        Self { rows: Rows::default(), position: 0, clock: 1_000, logged: None }
    }

    fn at(&self) -> Millis {
        Millis::new(self.clock)
    }

    fn run_as(&mut self, op: &Op, id: Option<&OpId>) -> Result<Answer, ErrorDetail> {
        let at = self.at();
        let revision = Revision::new(self.position + 1);
        let request = Request { op, id };
        let done = evaluate(request, &self.rows, at, revision, &DedupLimits::default()).unwrap();
        if let Some(effect) = done.effect {
            assert!(done.answer.is_ok(), "an error must change nothing");
            let effect = Effect::decode(&effect.encode().unwrap()).unwrap();
            self.rows.apply(&effect);
            self.position += 1;
            self.logged = Some(at);
        }
        done.answer
    }

    fn run(&mut self, op: &Op) -> Answer {
        self.run_as(op, None).unwrap()
    }
}

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn put(key: &str, value: &str) -> Op {
    Op::Put { key: bytes(key), value: bytes(value) }
}

fn get(key: &str) -> Op {
    Op::Get { key: bytes(key) }
}

fn delete(key: &str) -> Op {
    Op::Delete { key: bytes(key) }
}

fn set_if(key: &str, expected: u64, value: &str) -> Op {
    Op::CompareAndSet { key: bytes(key), expected: Revision::new(expected), value: bytes(value) }
}

fn increment(key: &str, by: i64) -> Op {
    Op::Increment { key: bytes(key), by }
}

fn scan(prefix: &str, after: &str, limit: u32) -> Op {
    let keys = KeyRange::of_prefix(bytes(prefix)).after(after.as_bytes());
    Op::Scan { keys, order: ScanOrder::Ascending, limit }
}

fn id(number: u64) -> OpId {
    OpId { client: ClientId::new(Uuid::from_u128(7)), number, done_below: 0, stamp: Millis::ZERO }
}

#[test]
fn each_operation_has_its_effect_and_answer() {
    let mut partition = Partition::new();
    let revision = Revision::new;
    assert_eq!(partition.run(&get("a")), Answer::Value(None));
    assert_eq!(partition.run(&put("a", "1")), Answer::Written { revision: revision(1) });
    assert_eq!(partition.run(&get("a")), Answer::Value(Some(StoredValue::new(bytes("1"), revision(1)))));
    assert_eq!(partition.run(&set_if("a", 9, "2")), Answer::ConditionFailed { revision: revision(1) });
    assert_eq!(partition.run(&set_if("a", 1, "2")), Answer::Written { revision: revision(2) });
    assert_eq!(partition.run(&set_if("b", 0, "x")), Answer::Written { revision: revision(3) });
    assert_eq!(partition.run(&set_if("c", 1, "x")), Answer::ConditionFailed { revision: Revision::ZERO });
    assert_eq!(partition.run(&increment("a", -5)), Answer::Counter { value: -3, revision: revision(4) });
    assert_eq!(partition.run(&increment("n", 5)), Answer::Counter { value: 5, revision: revision(5) });
    assert_eq!(partition.run(&increment("b", 1)), Answer::NotANumber);
    assert_eq!(partition.run(&put("a", &i64::MAX.to_string())), Answer::Written { revision: revision(6) });
    assert_eq!(partition.run(&increment("a", 1)), Answer::NotANumber);
    assert_eq!(partition.run(&delete("a")), Answer::Deleted { existed: true });
    assert_eq!(partition.run(&delete("a")), Answer::Deleted { existed: false });
    assert_eq!(partition.run(&get("a")), Answer::Value(None));
}

#[test]
fn unchanged_operation_has_no_effect() {
    let mut partition = Partition::new();
    for op in [delete("a"), set_if("a", 5, "x"), get("a"), scan("", "", 0)] {
        partition.run(&op);
        assert_eq!(partition.position, 0, "{op:?}");
    }
    // With an id it must be recorded: a late duplicate must not delete a value written meanwhile.
    assert_eq!(partition.run_as(&delete("a"), Some(&id(1))).unwrap(), Answer::Deleted { existed: false });
    partition.run(&put("a", "1"));
    assert_eq!(partition.run_as(&delete("a"), Some(&id(1))).unwrap(), Answer::Deleted { existed: false });
    assert_eq!(partition.run(&get("a")), Answer::Value(Some(StoredValue::new(bytes("1"), Revision::new(2)))));
}

#[test]
fn retry_gets_first_answer_of_every_operation() {
    let mut partition = Partition::new();
    partition.run(&put("text", "x"));
    let ops = [put("a", "1"), set_if("a", 99, "2"), increment("n", 2), increment("text", 1), delete("a"), delete("a")];
    let first: Vec<_> = (1..).zip(&ops).map(|(at, op)| partition.run_as(op, Some(&id(at))).unwrap()).collect();
    let position = partition.position;
    let again: Vec<_> = (1..).zip(&ops).map(|(at, op)| partition.run_as(op, Some(&id(at))).unwrap()).collect();
    assert_eq!(first, again);
    assert_eq!(partition.position, position);
}

#[test]
fn scan_respects_prefix_start_limit_and_row_kind() {
    let mut partition = Partition::new();
    for (at, key) in (1..).zip(["a", "b", "b1", "b2", "b\u{10FFFF}", "c"]) {
        partition.run_as(&put(key, key), Some(&id(at))).unwrap();
    }
    let effect = forget(id(1).client, None, &partition.rows, Millis::new(9), &DedupLimits::DEFAULT).unwrap().unwrap();
    partition.rows.apply(&effect);
    let mut keys = |prefix, after, limit| match partition.run(&scan(prefix, after, limit)) {
        Answer::Page { entries, more, .. } => {
            let keys: Vec<_> = entries.iter().map(|entry| String::from_utf8(entry.key.to_vec()).unwrap()).collect();
            (keys.join(" "), more)
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(keys("", "", 0), ("a b b1 b2 b\u{10FFFF} c".into(), false));
    assert_eq!(keys("b", "", 10), ("b b1 b2 b\u{10FFFF}".into(), false));
    assert_eq!(keys("b", "b", 2), ("b1 b2".into(), true));
    assert_eq!(keys("b", "b2", 1), ("b\u{10FFFF}".into(), false));
    assert_eq!(keys("b", "a", 1), ("b".into(), true));
    assert_eq!(keys("b", "c", 10), (String::new(), false));
}

#[test]
fn damaged_row_is_an_error() {
    let mut rows = Rows::default();
    rows.0.insert(value_key(b"a"), Bytes::from_static(b"\x09"));
    let op = get("a");
    let request = Request { op: &op, id: None };
    assert!(evaluate(request, &rows, Millis::ZERO, Revision::ZERO, &DedupLimits::default()).is_err());
}

#[test]
fn malformed_ids_are_refused() {
    let mut partition = Partition::new();
    let nil = OpId { client: ClientId::NIL, ..id(1) };
    for bad in [nil, id(0), OpId { done_below: 2, ..id(1) }] {
        let refusal = partition.run_as(&put("a", "1"), Some(&bad)).unwrap_err();
        assert_eq!(refusal.kind, ErrorKind::InvalidArgument);
    }
    assert_eq!(partition.position, 0);
}

fn expiry() -> impl Strategy<Value = Expiry> {
    let at = (900..1_200_u64).prop_map(|at| Expiry::At(Millis::new(at)));
    prop_oneof![Just(Expiry::Keep), (1..30_u64).prop_map(Expiry::After), at]
}

/// A transaction on the keys of [`any_op`], often with checks that hold.
fn transaction() -> impl Strategy<Value = Transaction> {
    let key = || (0..4_u8).prop_map(|key| Bytes::from(vec![b'a' + key]));
    let check = (key(), prop_oneof![Just(0), 0..20_u64])
        .prop_map(|(key, expected)| Check { key, expected: Revision::new(expected) });
    let put = (prop_oneof![Just("12"), Just("text")], proptest::option::of(expiry()))
        .prop_map(|(value, expiry)| Change::Put { value: value.into(), expiry });
    let change = prop_oneof![put, Just(Change::Delete)];
    let writes = proptest::collection::btree_map(key(), change, 0..4);
    (proptest::collection::vec(check, 0..3), writes).prop_filter_map("no keys", |(checks, writes)| {
        Transaction::new(checks, writes.into_iter().map(|(key, change)| Write { key, change }).collect()).ok()
    })
}

fn any_op() -> impl Strategy<Value = Op> {
    let key = || (0..4_u8).prop_map(|key| Bytes::from(vec![b'a' + key]));
    let value = || prop_oneof![Just("12"), Just("-7"), Just("text"), Just("")].prop_map(Bytes::from);
    prop_oneof![
        key().prop_map(|key| Op::Get { key }),
        (key(), value()).prop_map(|(key, value)| Op::Put { key, value }),
        key().prop_map(|key| Op::Delete { key }),
        (key(), 0..20_u64, value()).prop_map(|(key, expected, value)| Op::CompareAndSet {
            key,
            expected: Revision::new(expected),
            value
        }),
        (key(), value(), proptest::option::of(0..20_u64), expiry()).prop_map(|(key, value, expected, expiry)| {
            Op::PutExpiring { key, value, expected: expected.map(Revision::new), expiry }
        }),
        (key(), -20..20_i64).prop_map(|(key, by)| Op::Increment { key, by }),
        proptest::collection::vec(key(), 1..6).prop_map(|keys| Op::GetMany(Box::new(ManyKeys::new(keys).unwrap()))),
        transaction().prop_map(|transaction| Op::Transaction(Box::new(transaction))),
        (key(), proptest::option::of(key()), any::<bool>(), 0..5_u32).prop_map(|(begin, end, back, limit)| Op::Scan {
            keys: KeyRange { begin, end },
            order: if back { ScanOrder::Descending } else { ScanOrder::Ascending },
            limit
        }),
    ]
}

/// A value, its revision and its expiry.
type ValueRow = (Bytes, Revision, Option<Millis>);

/// The same operations, written naively.
fn naive(map: &mut BTreeMap<Bytes, ValueRow>, op: &Op, at: Millis, revision: Revision) -> Answer {
    map.retain(|_, held| held.2.is_none_or(|expires| expires > at));
    match op {
        Op::Get { key } => {
            let stored = |(value, revision, expires): ValueRow| StoredValue { value, revision, expires };
            Answer::Value(map.get(key).cloned().map(stored))
        }
        Op::Put { key, value } => {
            map.insert(key.clone(), (value.clone(), revision, None));
            Answer::Written { revision }
        }
        Op::Delete { key } => Answer::Deleted { existed: map.remove(key).is_some() },
        Op::CompareAndSet { key, value, .. } | Op::PutExpiring { key, value, .. } => {
            let found = map.get(key).map_or(Revision::ZERO, |found| found.1);
            let before = map.get(key).and_then(|found| found.2);
            let (expected, expires) = match op {
                Op::PutExpiring { expected, expiry: Expiry::Keep, .. } => (*expected, before),
                Op::PutExpiring { expected, expiry: Expiry::After(ttl), .. } => (*expected, Some(at.plus(*ttl))),
                Op::PutExpiring { expected, expiry: Expiry::At(time), .. } => (*expected, Some(*time)),
                Op::CompareAndSet { expected, .. } => (Some(*expected), None),
                _ => (None, None),
            };
            if expected.is_some_and(|expected| expected != found) {
                return Answer::ConditionFailed { revision: found };
            }
            match expires.is_some_and(|expires| expires <= at) {
                true => map.remove(key),
                false => map.insert(key.clone(), (value.clone(), revision, expires)),
            };
            Answer::Written { revision }
        }
        Op::Increment { key, by } => {
            let text = map.get(key).map_or("0".into(), |found| String::from_utf8(found.0.to_vec()).unwrap());
            let expires = map.get(key).and_then(|found| found.2);
            let Ok(number) = text.parse::<i64>() else { return Answer::NotANumber };
            map.insert(key.clone(), (Bytes::from((number + by).to_string()), revision, expires));
            Answer::Counter { value: number + by, revision }
        }
        Op::Scan { keys, order, limit } => {
            let mut all: Vec<_> = map.iter().filter(|(key, _)| keys.contains(key)).collect();
            if *order == ScanOrder::Descending {
                all.reverse();
            }
            let limit = if *limit == 0 { usize::MAX } else { *limit as usize };
            let entry = |(key, found): &(&Bytes, &ValueRow)| Entry {
                key: (*key).clone(),
                value: found.0.clone(),
                revision: found.1,
                expires: found.2,
            };
            let entries = all.iter().take(limit).map(entry).collect();
            Answer::Page { entries, more: all.len() > limit, range: KeyRange::ALL }
        }
        Op::GetMany(many) => {
            let stored = |(value, revision, expires): ValueRow| StoredValue { value, revision, expires };
            Answer::Values(many.keys().iter().map(|key| map.get(key).cloned().map(stored)).collect())
        }
        Op::Transaction(transaction) => {
            for (number, check) in (0..).zip(transaction.checks()) {
                let found = map.get(&check.key).map_or(Revision::ZERO, |found| found.1);
                if found != check.expected {
                    return Answer::CheckFailed { check: number, revision: found };
                }
            }
            let mut removed = 0;
            for Write { key, change } in transaction.writes() {
                let op = match change.clone() {
                    Change::Put { value, expiry } => Op::write(key.clone(), value, None, expiry),
                    Change::Delete => Op::Delete { key: key.clone() },
                };
                removed += u32::from(naive(map, &op, at, revision) == Answer::Deleted { existed: true });
            }
            Answer::Applied { revision, removed }
        }
    }
}

proptest! {
    #[test]
    fn evaluation_agrees_with_a_map(ops in proptest::collection::vec((any_op(), 0..4_u64), 1..60)) {
        let mut partition = Partition::new();
        let mut map = BTreeMap::new();
        for (op, millis) in ops {
            partition.clock += millis;
            let expected = naive(&mut map, &op, partition.at(), Revision::new(partition.position + 1));
            let found = partition.run(&op);
            match (&found, &expected) {
                // Rows of expired values count towards the limit of a page.
                (Answer::Page { entries, more: true, .. }, Answer::Page { entries: all, .. }) => {
                    prop_assert!(!entries.is_empty() && all.starts_with(entries), "{found:?}, not {expected:?}");
                }
                _ => prop_assert_eq!(&found, &expected),
            }
        }
    }
}

fn expiring(key: &str, expected: Option<u64>, expiry: Expiry) -> Op {
    Op::PutExpiring { key: bytes(key), value: bytes("5"), expected: expected.map(Revision::new), expiry }
}

#[test]
fn expired_value_is_absent_to_every_operation() {
    let absent: [(Op, Answer); 6] = [
        (get("a"), Answer::Value(None)),
        (delete("a"), Answer::Deleted { existed: false }),
        (set_if("a", 1, "x"), Answer::ConditionFailed { revision: Revision::ZERO }),
        (expiring("a", Some(1), Expiry::Keep), Answer::ConditionFailed { revision: Revision::ZERO }),
        (set_if("a", 0, "x"), Answer::Written { revision: Revision::new(2) }),
        (increment("a", 1), Answer::Counter { value: 1, revision: Revision::new(2) }),
    ];
    for (op, answer) in absent {
        for named in [None, Some(id(1))] {
            let mut partition = Partition::new();
            partition.run(&expiring("a", None, Expiry::After(10)));
            partition.clock += 10;
            assert_eq!(partition.run_as(&op, named.as_ref()).unwrap(), answer, "{op:?}");
            assert_eq!(partition.position, 2, "an entry carries the log time: {op:?}");
            let row = partition.rows.0.get(&value_key(b"a"));
            assert!(row.is_none_or(|row| expiry_of(row).is_none()), "nothing is left of it: {op:?}");
        }
    }
}

/// A copy or an import writes the value again with this time.
#[test]
fn longest_time_to_live_ends_within_the_limit() {
    let mut partition = Partition::new();
    partition.run(&expiring("a", None, Expiry::After(EXPIRY_MS_MAX)));
    let expires = partition.rows.0.get(&value_key(b"a")).and_then(|row| expiry_of(row)).expect("an expiry");
    assert!(check_expiry(Expiry::At(expires)).is_ok(), "{expires:?}");
}

fn write_takes_due_value_for_absent(mutant: Option<Mutant>) -> bool {
    let limits = DedupLimits { mutant, ..DedupLimits::DEFAULT };
    let mut partition = Partition::new();
    partition.run(&expiring("lock", None, Expiry::After(10)));
    let create = set_if("lock", 0, "mine");
    let request = Request { op: &create, id: None };
    let at = Millis::new(2_000);
    let done = evaluate(request, &partition.rows, at, Revision::new(2), &limits).unwrap();
    done.answer == Ok(Answer::Written { revision: Revision::new(2) })
}

archon_types::shown_by! {
    ExpiredSeen => write_takes_due_value_for_absent,
}

#[test]
fn entry_with_expiring_value_marks_its_partition() {
    let mut partition = Partition::new();
    partition.run(&put("a", "1"));
    assert!(!partition.rows.0.contains_key(EXPIRING_KEY));
    partition.run(&expiring("a", None, Expiry::Keep));
    assert!(!partition.rows.0.contains_key(EXPIRING_KEY), "there was nothing to keep");
    partition.run_as(&expiring("a", None, Expiry::After(9)), Some(&id(1))).unwrap();
    assert!(partition.rows.0.contains_key(EXPIRING_KEY));
    partition.rows.0.remove(EXPIRING_KEY);
    partition.run(&increment("a", 1));
    assert!(partition.rows.0.contains_key(EXPIRING_KEY), "it keeps its expiry");
}

#[test]
fn value_due_when_written_is_removed() {
    let mut partition = Partition::new();
    partition.run(&put("a", "1"));
    assert_eq!(
        partition.run(&expiring("a", Some(1), Expiry::At(Millis::new(7)))),
        Answer::Written { revision: Revision::new(2) }
    );
    assert_eq!(partition.run(&get("a")), Answer::Value(None));
}

/// A view that counts pages, rows and bytes.
struct CountingView<'a> {
    rows: &'a Rows,
    pages: Cell<(usize, usize, usize)>,
}

impl View for CountingView<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, ViewError> {
        self.rows.get(key)
    }

    fn page(&self, begin: Bound<&[u8]>, end: &[u8], order: ScanOrder, limit: PageLimit) -> Result<Page, ViewError> {
        let page = self.rows.page(begin, end, order, limit)?;
        let (pages, rows, bytes) = self.pages.get();
        let size = |row: &crate::engine::Row| row.key.len() + row.value.len();
        let read = page.rows.iter().map(size).sum::<usize>();
        self.pages.set((pages + 1, rows + page.rows.len(), bytes + read));
        Ok(page)
    }

    fn window(&self, client: ClientId) -> Result<Option<Arc<Window>>, ViewError> {
        self.rows.window(client)
    }

    fn clients(&self, from: ClientId, clients_max: usize) -> Result<ClientPage, ViewError> {
        self.rows.clients(from, clients_max)
    }
}

fn expired_rows(count: usize, value: &[u8]) -> Rows {
    let mut rows = Rows::default();
    let expired = |number: usize| {
        let row = crate::rows::row::encode_expiring(Revision::new(1), Millis::new(5), value);
        (value_key(format!("{number:06}").as_bytes()), row)
    };
    rows.0.extend((0..count).map(expired));
    rows
}

/// Returns the entries of a scan that goes on where each page ends.
fn walk(rows: &Rows, order: ScanOrder, limit: u32, most: (usize, usize, usize)) -> Vec<Bytes> {
    let mut keys = KeyRange::ALL;
    let mut found = Vec::new();
    loop {
        let op = Op::Scan { keys: keys.clone(), order, limit };
        let view = CountingView { rows, pages: Cell::default() };
        let request = Request { op: &op, id: None };
        let done = evaluate(request, &view, Millis::new(9), Revision::ZERO, &DedupLimits::DEFAULT).unwrap();
        let (pages, read, bytes) = view.pages.get();
        assert!(pages <= most.0 && read <= most.1 && bytes <= most.2, "{pages} pages, {read} rows, {bytes} bytes");
        let Ok(Answer::Page { entries, more, range }) = done.answer else { panic!("{:?}", done.answer) };
        let last = entries.last().map(|entry| entry.key.clone());
        found.extend(entries.into_iter().map(|entry| entry.key));
        if !more {
            return found;
        }
        let before = keys.clone();
        keys = match (last, order) {
            (Some(last), _) => keys.following(&last, order),
            (None, ScanOrder::Ascending) => keys.and(&KeyRange { begin: range.end.unwrap(), end: None }),
            (None, ScanOrder::Descending) => keys.before(range.begin),
        };
        assert!(keys != before && !keys.is_empty(), "a page comes further");
    }
}

#[test]
fn scan_of_expired_rows_reads_bounded_number_of_rows() {
    let mut rows = expired_rows(70_000, b"v");
    for key in ["!", "050000x", "z"] {
        rows.0.insert(value_key(key.as_bytes()), encode_value(Revision::new(1), b"v"));
    }
    for limit in [1, 10, 1_000, 4_096, 0] {
        let most = (10, PASSED_ROWS_MAX + SCAN_ENTRIES_MAX as usize, usize::MAX);
        assert_eq!(walk(&rows, ScanOrder::Ascending, limit, most), ["!", "050000x", "z"]);
        assert_eq!(walk(&rows, ScanOrder::Descending, limit, most), ["z", "050000x", "!"]);
    }
}

#[test]
fn scan_of_expired_rows_reads_bounded_number_of_bytes() {
    let mut rows = expired_rows(500, &[7; 10_000]);
    rows.0.insert(value_key(b"z"), encode_value(Revision::new(1), b"v"));
    for limit in [1, 1_000] {
        let most = (10, 500, PASSED_BYTES_MAX + scan_bytes_max(limit.max(256)) + 20_000);
        assert_eq!(walk(&rows, ScanOrder::Ascending, limit, most), ["z"]);
        assert_eq!(walk(&rows, ScanOrder::Descending, limit, most), ["z"]);
    }
}

#[test]
fn scan_states_latest_expiry_it_passed_over() {
    let mut rows = expired_rows(3, b"v");
    let row = crate::rows::row::encode_expiring(Revision::new(1), Millis::new(7), b"v");
    rows.0.insert(value_key(b"000001"), row);
    let ask = |at| {
        let op = scan("", "", 10);
        let request = Request { op: &op, id: None };
        evaluate(request, &rows, Millis::new(at), Revision::ZERO, &DedupLimits::DEFAULT).unwrap().expired
    };
    assert_eq!([ask(4), ask(6), ask(9)], [None, Some(Millis::new(5)), Some(Millis::new(7))]);
}

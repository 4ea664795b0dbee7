use super::*;
use crate::copies::reconcile::Action;
use crate::log_write::LogWrite;
use crate::mutant::DisabledRule;
use crate::operations::refusal::Refusal;
use crate::operations::request::Request;
use crate::test_shell::{LIFE, OTHER, OWN, PARTITION, TestShell, get, put, request, row, serving, settle};
use archon_kv::engine::{PageLimit, Row};
use archon_kv::{View, row};
use archon_types::{
    Answer, ClientId, Epoch, ErrorKind, KeyRange, Merge, MergeSide, Op, OpId, Partition, PartitionId, PlacementId,
    ReplicaState, RightCopy, RightStage, Split, StoredValue,
};

const RIGHT: PartitionId = PartitionId::new(PARTITION.table, 1);
/// A copy of a partition that is split off.
const FORMED: PlacementId = PlacementId::new(20);
/// The version in which the merge began.
const ATTEMPT: Version = Version::new(2);

archon_types::shown_by! {
    PullUnsealed => merge_source_gives_no_rows_before_seal,
    AbsorbOverRemains => merge_target_clears_remains_of_earlier_attempt,
    PageUncut => merge_page_of_any_size_is_cut_into_readable_entries,
    AbsorbedEarly => merge_is_not_reported_before_commit,
    WidenUnabsorbed => merged_keys_are_not_served_before_row_gives_them,
    StaleUnabsorbed => stale_read_waits_for_merged_rows_in_log,
    RevisionFalls => revisions_after_merge_exceed_source_revisions,
    MovedThroughKept => late_duplicate_from_before_merge_is_not_applied,
    ExpiryUnmerged => value_expired_before_merge_stays_absent,
}

fn range(begin: &'static str, end: Option<&'static str>) -> KeyRange {
    KeyRange { begin: Bytes::from_static(begin.as_bytes()), end: end.map(|end| Bytes::from_static(end.as_bytes())) }
}

/// The left partition, which ends at `m`.
fn narrow(version: u64) -> Partition {
    Partition { range: range("", Some("m")), ..row(version, &[]) }
}

fn absorbing(version: u64) -> Partition {
    let merge = Merge { attempt: ATTEMPT, side: MergeSide::Absorbs { right: RIGHT.index, end: None } };
    Partition { merge: Some(Box::new(merge)), ..narrow(version) }
}

fn widened(version: u64) -> Partition {
    Partition { absorbed: ATTEMPT, ..row(version, &[]) }
}

/// The right partition, which begins at `m`; here it has the number of the copy that the tests lead.
fn yielding(version: u64) -> Partition {
    let merge = Merge { attempt: ATTEMPT, side: MergeSide::Yields { left: 9 } };
    Partition { merge: Some(Box::new(merge)), range: range("m", None), ..row(version, &[]) }
}

fn configure(node: &mut Partitions<TestShell>, row: Partition) {
    assert!(node.duties(LIFE.incarnation, vec![Action::Configure { partition: row, placement: OWN }]));
    settle(node);
}

fn leader(mutant: Option<Mutant>, row: Partition) -> Partitions<TestShell> {
    let mut node = serving(DisabledRule::by(mutant), row);
    while node.clients_to_read() > 0 {
        node.read_clients();
    }
    node
}

fn ask(node: &mut Partitions<TestShell>, op: Op, reply: &'static str) {
    node.operate(request(op, reply));
    settle(node);
}

fn answer<'a>(node: &'a Partitions<TestShell>, reply: &str) -> Option<&'a crate::operations::request::Outcome> {
    node.shell().answers.iter().find(|(to, _)| *to == reply).map(|(_, outcome)| outcome)
}

fn refusal<'a>(node: &'a Partitions<TestShell>, reply: &str) -> Option<&'a Refusal> {
    node.shell().refusals.iter().find(|(to, _)| *to == reply).map(|(_, refusal)| refusal)
}

fn tick(node: &mut Partitions<TestShell>, at: u64) {
    node.shell_mut().now.set(Millis::new(at));
    node.begin(Millis::new(at));
    node.tick(false, 0);
    settle(node);
}

fn page(rows: &[(&'static str, u64)], more: bool, revision: u64) -> YieldPage {
    let row = |(key, revision): &(&'static str, u64)| Row {
        key: row::value_key(key.as_bytes()),
        value: row::encode_value(Revision::new(*revision), b"theirs"),
    };
    YieldPage { rows: rows.iter().map(row).collect(), more, revision: Revision::new(revision), log_time: Millis::ZERO }
}

/// Answers the last page request.
fn give(node: &mut Partitions<TestShell>, page: Option<YieldPage>) {
    let ask = node.shell().asks.last().expect("a question").ask;
    node.absorb_page(OWN, ask, page);
    settle(node);
}

fn said(node: &Partitions<TestShell>) -> Vec<Fact> {
    let of_merges = |fact: &&Fact| matches!(fact, Fact::Absorbed { .. } | Fact::Unabsorbable { .. });
    node.shell().reports.iter().map(|report| &report.fact).filter(of_merges).cloned().collect()
}

fn value(node: &Partitions<TestShell>, key: &str) -> Option<Bytes> {
    stored(node, &row::value_key(key.as_bytes()))
}

fn stored(node: &Partitions<TestShell>, key: &[u8]) -> Option<Bytes> {
    let local = &node.copies()[&OWN];
    let view = PartitionView::new(&local.memtable, node.shell().engine(), OWN, Reader::Newest);
    view.get(key).expect("readable")
}

/// The leader of the right partition had a clock that was ahead.
fn value_expired_before_merge_stays_absent(mutant: Option<Mutant>) -> bool {
    let mut node = leader(mutant, narrow(1));
    configure(&mut node, absorbing(2));
    let value = row::encode_expiring(Revision::new(3), Millis::new(5_000), b"theirs");
    let rows = vec![Row { key: row::value_key(b"z"), value }];
    let (revision, log_time) = (Revision::new(9), Millis::new(6_000));
    give(&mut node, Some(YieldPage { rows, more: false, revision, log_time }));
    configure(&mut node, widened(5));
    ask(&mut node, get("z"), "get z");
    assert!(stored(&node, row::EXPIRING_KEY).is_some());
    answer(&node, "get z") == Some(&Ok(Answer::Value(None)))
}

#[test]
fn merge_pages_are_visible_once_row_gives_their_keys() {
    let mut node = leader(None, narrow(1));
    configure(&mut node, absorbing(2));
    let first = node.shell().asks[0].clone();
    assert_eq!((first.right, first.attempt, first.after), (RIGHT, ATTEMPT, None));
    give(&mut node, Some(page(&[("m", 900), ("n", 901)], true, 1_000)));
    assert_eq!(node.shell().asks.len(), 2);
    assert_eq!(node.shell().asks[1].after, Some(row::value_key(b"n")));
    assert_eq!(said(&node), []);
    give(&mut node, Some(page(&[("z", 3)], false, 1_000)));
    assert_eq!(said(&node), [Fact::Absorbed { attempt: ATTEMPT }]);
    for (op, reply) in [(get("a"), "get a"), (put("a"), "put a"), (get("z"), "get z"), (put("m"), "put m")] {
        ask(&mut node, op, reply);
    }
    assert!(answer(&node, "put a").is_some() && answer(&node, "get a").is_some(), "what it has is served");
    assert!(answer(&node, "get z").is_none() && refusal(&node, "get z").is_none(), "it waits for what becomes of it");
    configure(&mut node, widened(5));
    let found = Some(StoredValue::new(Bytes::from_static(b"theirs"), Revision::new(3)));
    assert_eq!(answer(&node, "get z"), Some(&Ok(Answer::Value(found))));
    let Some(Ok(Answer::Written { revision })) = answer(&node, "put m") else { panic!("{:?}", answer(&node, "put m")) };
    assert!(*revision > Revision::new(1_000), "{revision}");
    assert!(node.turn.splitting.is_empty(), "nothing is left to do");
    // The stamp time must exceed the merge's, or a client refused within the same millisecond would retry with the old
    // stamp.
    let local = &node.copies()[&OWN];
    let through = local.absorb.merged().expect("a merge").through;
    assert!(local.waiting.log_time() > through, "{} and {through}", local.waiting.log_time());
}

#[test]
fn missing_merge_page_is_requested_again() {
    let mut node = leader(None, narrow(1));
    configure(&mut node, absorbing(2));
    give(&mut node, None);
    assert_eq!(node.shell().asks.len(), 1);
    tick(&mut node, 1_030);
    assert_eq!(node.shell().asks.len(), 2, "after a while");
    let late = node.shell().asks[0].ask;
    node.absorb_page(OWN, late, Some(page(&[("q", 1)], false, 9)));
    settle(&mut node);
    assert_eq!((value(&node, "q"), said(&node)), (None, vec![]), "nobody waits for that answer any more");
    tick(&mut node, 2_900);
    assert_eq!(node.shell().asks.len(), 2);
    tick(&mut node, 3_100);
    assert_eq!(node.shell().asks.len(), 3, "the answer was lost");
}

#[test]
fn cancelled_merge_clears_received_rows() {
    for whole in [false, true] {
        let mut node = leader(None, narrow(1));
        configure(&mut node, absorbing(2));
        give(&mut node, Some(page(&[("m", 900), ("n", 901)], !whole, 1_000)));
        assert!(value(&node, "n").is_some());
        ask(&mut node, get("z"), "get");
        configure(&mut node, narrow(4));
        assert_eq!((value(&node, "m"), value(&node, "n")), (None, None));
        assert_eq!(refusal(&node, "get"), Some(&Refusal::Moved));
        assert!(node.turn.splitting.is_empty());
        ask(&mut node, put("a"), "put");
        assert!(answer(&node, "put").is_some());
    }
}

#[test]
fn next_leader_restarts_or_reports_merge() {
    for whole in [false, true] {
        let mut node = leader(None, narrow(1));
        configure(&mut node, absorbing(2));
        give(&mut node, Some(page(&[("m", 900)], !whole, 1_000)));
        let told = said(&node).len();
        node.step(OWN, archon_replica::Input::Withdrawn { epoch: Epoch::new(1) });
        settle(&mut node);
        assert_eq!(node.leading(), 0);
        configure(&mut node, Partition { epoch: Epoch::new(2), ..absorbing(3) });
        assert_eq!(node.leading(), 1);
        if whole {
            assert_eq!((said(&node).len(), node.shell().asks.len()), (told + 1, 1));
            continue;
        }
        let again = node.shell().asks.last().expect("a question").clone();
        assert_eq!((again.after, value(&node, "m")), (None, None));
        give(&mut node, Some(page(&[("m", 900), ("z", 1)], false, 1_000)));
        assert_eq!(said(&node), [Fact::Absorbed { attempt: ATTEMPT }]);
        assert!(value(&node, "z").is_some());
    }
}

#[test]
fn merge_of_too_large_partition_is_refused() {
    let mut node = leader(None, narrow(1));
    configure(&mut node, absorbing(2));
    let large = |key: &'static str| Row { key: row::value_key(key.as_bytes()), value: vec![1; 3 * 1024 * 1024].into() };
    for key in ["m", "n", "o", "p", "q", "r"] {
        assert_eq!(said(&node), []);
        give(
            &mut node,
            Some(YieldPage { rows: vec![large(key)], more: true, revision: Revision::new(9), log_time: Millis::ZERO }),
        );
    }
    tick(&mut node, 1_100);
    let told = said(&node);
    assert!(
        matches!(told[..], [Fact::Unabsorbable { attempt: ATTEMPT, bytes }] if bytes > MERGE_BYTES_MAX),
        "{told:?}"
    );
    assert_eq!(node.shell().asks.len(), 6, "nothing more is asked for");
}

fn limit(rows_max: usize) -> PageLimit {
    PageLimit { rows_max, bytes_max: usize::MAX }
}

#[test]
fn merge_source_gives_its_rows_and_serves_nothing() {
    let mut node = leader(None, Partition { range: range("m", None), ..row(1, &[]) });
    for key in ["m", "p", "z"] {
        ask(&mut node, put(key), "before");
    }
    assert_eq!(node.yielded(PARTITION, ATTEMPT, None, limit(9)), None, "nobody has asked for it");
    configure(&mut node, yielding(2));
    let first = node.yielded(PARTITION, ATTEMPT, None, limit(2)).expect("a page");
    assert_eq!((first.rows.len(), first.more), (2, true));
    let rest = node.yielded(PARTITION, ATTEMPT, Some(&first.rows[1].key), limit(2)).expect("a page");
    assert_eq!((rest.rows.len(), rest.more, rest.rows[0].key.clone()), (1, false, row::value_key(b"z")));
    let revisions = first.rows.iter().chain(&rest.rows).map(|row| row::decode_value(&row.value).expect("a value").1);
    assert!(revisions.max().expect("three") < first.revision);
    assert_eq!(node.yielded(PARTITION, Version::new(7), None, limit(2)), None, "of another attempt");
    let scan = Op::Scan { keys: KeyRange::ALL, order: archon_types::ScanOrder::Ascending, limit: 10 };
    for (op, reply) in [(get("p"), "get"), (put("p"), "put"), (scan, "scan")] {
        ask(&mut node, op, reply);
        assert!(answer(&node, reply).is_none() && refusal(&node, reply).is_none(), "{reply} waits");
    }
    configure(&mut node, Partition { range: range("m", None), ..row(4, &[]) });
    assert!(["get", "put", "scan"].iter().all(|reply| answer(&node, reply).is_some()), "it was given up");
    assert_eq!(node.yielded(PARTITION, ATTEMPT, None, limit(9)), None);
}

fn merge_source_gives_no_rows_before_seal(mutant: Option<Mutant>) -> bool {
    let mut node = leader(mutant, Partition { range: range("m", None), ..row(1, &[]) });
    node.duties(LIFE.incarnation, vec![Action::Configure { partition: yielding(2), placement: OWN }]);
    node.settle();
    let early = node.yielded(PARTITION, ATTEMPT, None, limit(9));
    settle(&mut node);
    assert!(node.yielded(PARTITION, ATTEMPT, None, limit(9)).is_some());
    early.is_none()
}

fn merge_target_clears_remains_of_earlier_attempt(mutant: Option<Mutant>) -> bool {
    let mut node = leader(mutant, narrow(1));
    configure(&mut node, absorbing(2));
    give(&mut node, Some(page(&[("n", 901)], true, 1_000)));
    configure(&mut node, narrow(4));
    // The key is removed in the other partition, and then the merge succeeds.
    let merge = Merge { attempt: Version::new(6), side: MergeSide::Absorbs { right: RIGHT.index, end: None } };
    configure(&mut node, Partition { merge: Some(Box::new(merge)), ..narrow(6) });
    give(&mut node, Some(page(&[], false, 1_000)));
    value(&node, "n").is_none()
}

/// Rows of keys and values of these sizes, numbered.
fn rows(count: usize, value: usize) -> Vec<Row> {
    let value = row::encode_value(Revision::new(3), &vec![b'1'; value]);
    let key = |number: usize| row::value_key(format!("n{number:06}").as_bytes());
    (0..count).map(|number| Row { key: key(number), value: value.clone() }).collect()
}

/// The entries that the log was given, in order.
fn entries(node: &Partitions<TestShell>) -> Vec<Bytes> {
    let of = |write: &LogWrite| match write {
        LogWrite::Entries(entries) => entries.iter().map(|entry| entry.bytes.clone()).collect(),
        _ => Vec::new(),
    };
    node.shell().writes.iter().flat_map(of).collect()
}

/// Pages of the right partition's leader, possibly of an earlier version: many tiny rows, a few huge ones, or sizes
/// just at, below and above the limit of one entry.
fn merge_page_of_any_size_is_cut_into_readable_entries(mutant: Option<Mutant>) -> bool {
    let (most, bytes) = (PageLimit::PAGE.rows_max, PageLimit::PAGE.bytes_max);
    let pages = [
        rows(10_485, 1),
        rows(20_000, 1),
        rows(most - 1, 1),
        rows(most, 1),
        rows(most + 1, 1),
        rows(9, 1024 * 1024),
        rows(2, bytes / 2 - 1),
        rows(2, bytes / 2 + 1),
    ];
    pages.into_iter().all(|rows| {
        let mut node = leader(mutant, narrow(1));
        configure(&mut node, absorbing(2));
        let before = entries(&node).len();
        give(
            &mut node,
            Some(YieldPage { rows: rows.clone(), more: false, revision: Revision::new(9), log_time: Millis::ZERO }),
        );
        let fits = |effect: &Effect| {
            let bytes: usize = effect.changes.iter().map(|change| change.key.len()).sum();
            effect.changes.len() <= most && (effect.changes.len() == 1 || bytes <= PageLimit::PAGE.bytes_max)
        };
        let read = entries(&node).split_off(before).iter().map(Effect::decode).collect::<Result<Vec<_>, _>>();
        let written =
            said(&node) == [Fact::Absorbed { attempt: ATTEMPT }] && read.is_ok_and(|all| all.iter().all(fits));
        written && rows.iter().all(|row| stored(&node, &row.key).as_ref() == Some(&row.value))
    })
}

#[test]
fn cut_merge_page_resumes_where_log_had_no_room() {
    let mut node = leader(None, narrow(1));
    configure(&mut node, absorbing(2));
    node.shell_mut().is_full = true;
    let all = rows(10_000, 1);
    give(
        &mut node,
        Some(YieldPage { rows: all.clone(), more: false, revision: Revision::new(9), log_time: Millis::ZERO }),
    );
    assert_eq!((said(&node), stored(&node, &all[0].key)), (vec![], None));
    node.shell_mut().is_full = false;
    tick(&mut node, 1_030);
    assert_eq!(said(&node), [Fact::Absorbed { attempt: ATTEMPT }]);
    assert!(all.iter().all(|row| stored(&node, &row.key).is_some()));
}

fn merge_is_not_reported_before_commit(mutant: Option<Mutant>) -> bool {
    let mut node = leader(mutant, narrow(1));
    configure(&mut node, absorbing(2));
    let ask = node.shell().asks[0].ask;
    node.absorb_page(OWN, ask, Some(page(&[("z", 3)], false, 9)));
    node.settle();
    node.settle();
    let early = said(&node);
    settle(&mut node);
    assert_eq!(said(&node), [Fact::Absorbed { attempt: ATTEMPT }]);
    early.is_empty()
}

fn merged_keys_are_not_served_before_row_gives_them(mutant: Option<Mutant>) -> bool {
    let mut node = leader(mutant, narrow(1));
    configure(&mut node, absorbing(2));
    give(&mut node, Some(page(&[("z", 3)], false, 1_000)));
    for (op, reply) in [(get("z"), "get"), (put("z"), "put")] {
        ask(&mut node, op, reply);
    }
    let early = answer(&node, "get").or(answer(&node, "put")).is_some();
    configure(&mut node, widened(5));
    assert!(answer(&node, "get").is_some() && answer(&node, "put").is_some());
    !early
}

fn stale_read_waits_for_merged_rows_in_log(mutant: Option<Mutant>) -> bool {
    let mut node = leader(mutant, narrow(1));
    configure(&mut node, Partition { leader: Some(OTHER), ..row(2, &[(OTHER, ReplicaState::Live)]) });
    assert!(node.read_stale(PARTITION, b"z").is_ok());
    configure(
        &mut node,
        Partition { leader: Some(OTHER), absorbed: ATTEMPT, ..row(3, &[(OTHER, ReplicaState::Live)]) },
    );
    node.read_stale(PARTITION, b"z") == Err(Refusal::CommitUnknown)
}

#[test]
fn stale_read_after_merge_has_revision_above_source() {
    let mut node = leader(None, narrow(1));
    configure(&mut node, absorbing(2));
    give(&mut node, Some(page(&[("z", 3)], false, 1_000)));
    configure(&mut node, widened(5));
    let shown = node.read_stale(PARTITION, b"z").expect("it counts");
    assert!(shown.as_of > Revision::new(1_000) && shown.found.is_some_and(|found| found.revision == Revision::new(3)));
}

/// Before, a split that began before the engine had cleared the keys of the merge was abandoned each time, as no copy
/// was formed.
#[test]
fn split_after_merge_waits_for_engine_clear() {
    let split = |row: Partition| {
        let copies = vec![RightCopy { id: FORMED, node: LIFE.node, stage: RightStage::Copying }];
        let at = Bytes::from_static(b"p");
        let split = Split { attempt: row.version, at, right: 5, copies, position: None, cut: false };
        Partition { split: Some(Box::new(split)), ..row }
    };
    let mut node = leader(None, narrow(1));
    configure(&mut node, absorbing(2));
    give(&mut node, Some(page(&[("z", 3)], false, 1_000)));
    configure(&mut node, split(widened(5)));
    assert_eq!(node.shell().forms.len(), 1);
    let local = &node.copies()[&OWN];
    assert!(!local.memtable.is_to_clear(&range("p", None), local.flushing), "the engine has it before the job");
    // A copy whose log lags behind its row.
    let mut node = leader(None, narrow(1));
    configure(&mut node, split(Partition { leader: Some(OTHER), ..widened(5) }));
    assert!(node.shell().forms.is_empty());
}

fn revisions_after_merge_exceed_source_revisions(mutant: Option<Mutant>) -> bool {
    let mut node = leader(mutant, narrow(1));
    configure(&mut node, absorbing(2));
    give(&mut node, Some(page(&[("z", 990)], false, 1_000)));
    configure(&mut node, widened(5));
    ask(&mut node, put("z"), "put");
    let Some(Ok(Answer::Written { revision })) = answer(&node, "put") else { panic!("not written") };
    *revision > Revision::new(1_000)
}

fn named(stamp: u64, reply: &'static str) -> Request<&'static str> {
    let client = ClientId::new(uuid::Uuid::from_u128(7));
    let id = OpId { client, number: 1, done_below: 0, stamp: Millis::new(stamp) };
    Request { id: Some(id), ..request(put("z"), reply) }
}

fn late_duplicate_from_before_merge_is_not_applied(mutant: Option<Mutant>) -> bool {
    let mut node = leader(mutant, narrow(1));
    node.operate(named(900, "sent on"));
    settle(&mut node);
    let moved = |found: Option<&crate::operations::request::Outcome>| matches!(found, Some(Err(detail)) if detail.kind == ErrorKind::Moved);
    assert!(moved(answer(&node, "sent on")), "{:?}", answer(&node, "sent on"));
    configure(&mut node, absorbing(2));
    give(&mut node, Some(page(&[], false, 0)));
    configure(&mut node, widened(5));
    node.operate(named(900, "again"));
    settle(&mut node);
    matches!(answer(&node, "again"), Some(Err(detail)) if detail.kind == ErrorKind::MaybeApplied)
}

#[test]
fn stale_read_revision_holds_after_cancelled_merge() {
    let mut node = leader(None, narrow(1));
    configure(&mut node, absorbing(2));
    give(&mut node, Some(page(&[("m", 900)], false, 1_000)));
    assert_eq!(said(&node), [Fact::Absorbed { attempt: ATTEMPT }]);
    // The merge is cancelled all the same.
    configure(&mut node, narrow(4));
    ask(&mut node, put("a"), "put");
    let Some(Ok(Answer::Written { revision })) = answer(&node, "put") else { panic!("{:?}", answer(&node, "put")) };
    let revision = *revision;
    let seen = node.read_stale(PARTITION, b"a").expect("it counts");
    assert!(seen.found.as_ref().is_some_and(|found| found.revision == revision), "{seen:?}");
    assert!(seen.as_of >= revision, "of the writes up to {} it shows the one with {revision}", seen.as_of);
}

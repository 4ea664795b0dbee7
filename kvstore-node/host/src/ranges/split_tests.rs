use super::*;
use crate::copies::reconcile::Action;
use crate::mutant::DisabledRule;
use crate::test_shell::{LIFE, OTHER, OWN, PARTITION, TestShell, get, partitions, put, request, row, serving, settle};
use archon_kv::row as rows;
use archon_replica::Input;
use archon_types::{
    Answer, ClientId, Epoch, KeyRange, Millis, Op, OpId, Partition, PartitionId, PlacementId, ReplicaState, RightCopy,
    RightStage, Seq, Split, Version,
};
use bytes::Bytes;
use uuid::Uuid;

pub(crate) const RIGHT: PartitionId = PartitionId::new(PARTITION.table, 1);
/// The copy of the partition that is split off.
pub(crate) const FORMED: PlacementId = PlacementId::new(20);

archon_types::shown_by! {
    SealForgotten => new_leader_keeps_seal_of_its_log,
    ReadsWhileSealed => sealed_keys_are_not_read,
    SealGivenUp => seal_holds_while_row_has_split,
    FormedEarly => uncommitted_seal_forms_no_copy,
    ClearEarly => sealed_keys_are_not_cleared_before_split_ends,
    OwnerFirst => operation_done_before_split_is_not_repeated_after,
    MovedBeforePart => operation_is_not_redirected_before_split_ends,
}

/// The row while it is being split at `m`, in an attempt that began at version 2.
pub(crate) fn splitting(version: u64, others: &[(PlacementId, ReplicaState)]) -> Partition {
    let copies = vec![RightCopy { id: FORMED, node: LIFE.node, stage: RightStage::Copying }];
    let at = Bytes::from_static(b"m");
    let split = Split { attempt: Version::new(2), at, right: RIGHT.index, copies, cut: true, position: None };
    Partition { split: Some(Box::new(split)), ..row(version, others) }
}

/// The row while the copy is formed and no key is given up yet.
pub(crate) fn copying(version: u64, others: &[(PlacementId, ReplicaState)]) -> Partition {
    let mut row = splitting(version, others);
    if let Some(split) = &mut row.split {
        split.cut = false;
    }
    row
}

/// The row when the split is done.
pub(crate) fn parted(version: u64) -> Partition {
    let range = KeyRange { begin: Bytes::new(), end: Some(Bytes::from_static(b"m")) };
    Partition { range, ..row(version, &[]) }
}

pub(crate) fn configure(node: &mut Partitions<TestShell>, row: Partition) {
    assert!(node.duties(LIFE.incarnation, vec![Action::Configure { partition: row, placement: OWN }]));
    settle(node);
}

pub(crate) fn ask(node: &mut Partitions<TestShell>, op: Op, reply: &'static str) {
    node.operate(request(op, reply));
    settle(node);
}

pub(crate) fn is_answered(node: &Partitions<TestShell>, reply: &str) -> bool {
    node.shell().answers.iter().any(|(to, _)| *to == reply)
}

pub(crate) fn refusal<'a>(node: &'a Partitions<TestShell>, reply: &str) -> Option<&'a Refusal> {
    node.shell().refusals.iter().find(|(to, _)| *to == reply).map(|(_, refusal)| refusal)
}

/// A leader that has sealed its keys from `m` on in its log, after it accepted a write beyond.
pub(crate) fn sealed(mutant: Option<Mutant>) -> Partitions<TestShell> {
    let mut node = serving(DisabledRule::by(mutant), row(1, &[]));
    ask(&mut node, put("z"), "before");
    configure(&mut node, splitting(2, &[]));
    node
}

pub(crate) fn tick(node: &mut Partitions<TestShell>, at: u64) {
    node.begin(Millis::new(at));
    node.tick(false, 0);
    settle(node);
}

#[test]
fn sealed_keys_wait_and_other_keys_are_served() {
    let mut node = sealed(None);
    for (op, reply) in [(put("a"), "put a"), (get("a"), "get a"), (put("m"), "put m"), (get("z"), "get z")] {
        ask(&mut node, op, reply);
    }
    assert!(is_answered(&node, "put a") && is_answered(&node, "get a"));
    assert!(!is_answered(&node, "put m") && !is_answered(&node, "get z"));
    tick(&mut node, 1_900);
    assert_eq!(refusal(&node, "put m"), None, "it has a second");
    tick(&mut node, 2_100);
    assert_eq!(
        (refusal(&node, "put m"), refusal(&node, "get z")),
        (Some(&Refusal::Changing), Some(&Refusal::Changing))
    );
}

#[test]
fn snapshot_of_sealed_keys_is_refused() {
    let mut node = sealed(None);
    let keys = |node: &Partitions<TestShell>, begin: &'static [u8]| {
        let (wanted, at) =
            (KeyRange { begin: Bytes::from_static(begin), end: None }, node.copies()[&OWN].memtable.committed());
        node.snapshot_of(OWN, PARTITION, &wanted, at).map(|start| start.keys)
    };
    let below = parted(4).range;
    assert_eq!((keys(&node, b""), keys(&node, b"m")), (Ok(below.clone()), Err(Refusal::Changing)));
    configure(&mut node, parted(4));
    assert_eq!((keys(&node, b""), keys(&node, b"m")), (Ok(below), Err(Refusal::Moved)));
}

#[test]
fn finished_split_redirects_waiting_and_clears_rows() {
    let mut node = sealed(None);
    ask(&mut node, put("m"), "put");
    ask(&mut node, get("z"), "get");
    configure(&mut node, parted(4));
    assert_eq!((refusal(&node, "put"), refusal(&node, "get")), (Some(&Refusal::Moved), Some(&Refusal::Moved)));
    let local = &node.copies()[&OWN];
    let view = PartitionView::new(&local.memtable, node.shell().engine(), OWN, Reader::Committed);
    assert_eq!(archon_kv::View::get(&view, &rows::value_key(b"z")).expect("readable"), None, "it is another's");
    assert_eq!(Seal::current(&view).expect("readable"), None);
    assert!(node.turn.splitting.is_empty(), "nothing is left to do");
}

#[test]
fn cancelled_split_serves_waiting_operations() {
    let mut node = sealed(None);
    ask(&mut node, put("m"), "put");
    ask(&mut node, get("z"), "get");
    configure(&mut node, row(5, &[]));
    assert!(is_answered(&node, "put") && is_answered(&node, "get"), "{:?}", node.shell().refusals);
    configure(&mut node, Partition { split: None, ..row(5, &[]) });
    assert!(node.turn.splitting.is_empty());
}

#[test]
fn seal_duration_is_observed_when_seal_ends() {
    for over in [parted(4), row(5, &[])] {
        let mut node = sealed(None);
        tick(&mut node, 1_700);
        assert!(node.shell().sealed_ms.is_empty(), "they still are");
        node.begin(Millis::new(1_750));
        configure(&mut node, over);
        tick(&mut node, 1_900);
        assert_eq!(node.shell().sealed_ms, [750]);
    }
}

#[test]
fn row_no_newer_than_attempt_keeps_seal() {
    let mut node = sealed(None);
    ask(&mut node, put("m"), "put");
    configure(&mut node, row(1, &[]));
    assert!(!is_answered(&node, "put"), "it is older");
}

#[test]
fn scan_page_ends_at_sealed_keys() {
    let mut node = sealed(None);
    ask(&mut node, put("a"), "put");
    let scan = Op::Scan { keys: KeyRange::ALL, order: archon_types::ScanOrder::Ascending, limit: 10 };
    ask(&mut node, scan, "scan");
    let page = node.shell().answers.iter().find(|(to, _)| *to == "scan");
    let Some((_, Ok(Answer::Page { entries, range, .. }))) = page else { panic!("{page:?}") };
    assert_eq!((entries.len(), range.end.as_deref()), (1, Some(&b"m"[..])));
}

fn sealed_keys_are_not_read(mutant: Option<Mutant>) -> bool {
    let mut node = sealed(mutant);
    ask(&mut node, get("z"), "get");
    !is_answered(&node, "get")
}

fn seal_holds_while_row_has_split(mutant: Option<Mutant>) -> bool {
    let mut node = sealed(mutant);
    ask(&mut node, put("m"), "put");
    (1..40).for_each(|tenth| tick(&mut node, 1_000 + tenth * 50));
    !is_answered(&node, "put")
}

fn new_leader_keeps_seal_of_its_log(mutant: Option<Mutant>) -> bool {
    let mut node = sealed(mutant);
    node.step(OWN, Input::Withdrawn { epoch: Epoch::new(1) });
    settle(&mut node);
    assert_eq!(node.leading(), 0);
    // It leads again, and the row that it knows is older than the split.
    configure(&mut node, Partition { epoch: Epoch::new(2), ..row(2, &[]) });
    assert_eq!(node.leading(), 1);
    ask(&mut node, put("m"), "put");
    !is_answered(&node, "put")
}

fn uncommitted_seal_forms_no_copy(mutant: Option<Mutant>) -> bool {
    let others = [(OTHER, ReplicaState::Live)];
    let mut node = partitions(DisabledRule::by(mutant));
    let open = |row| Action::Open { partition: row, placement: OWN, fresh: true };
    node.duties(LIFE.incarnation, vec![open(splitting(2, &others))]);
    settle(&mut node);
    // A follower that has an entry and does not know that it is committed.
    let local = node.copies.get_mut(&OWN).expect("a copy");
    let seal = Seal {
        attempt: Version::new(2),
        at: Bytes::from_static(b"m"),
        end: None,
        position: Position::new(Epoch::new(1), Seq::new(1)),
    };
    local.memtable.push(Seq::new(1), reshape::split(Millis::new(1), &seal)).expect("the next one");
    local.flushing = Seq::new(1);
    settle(&mut node);
    node.split();
    assert_eq!(node.shell().forms.len(), 1, "its rows are copied meanwhile");
    node.shell().ends.is_empty()
}

fn sealed_keys_are_not_cleared_before_split_ends(mutant: Option<Mutant>) -> bool {
    let mut node = sealed(mutant);
    tick(&mut node, 1_100);
    let local = &node.copies()[&OWN];
    let view = PartitionView::new(&local.memtable, node.shell().engine(), OWN, Reader::Newest);
    archon_kv::View::get(&view, &rows::value_key(b"z")).expect("readable").is_some()
}

fn named(op: Op, reply: &'static str) -> Request<&'static str> {
    let client = ClientId::new(Uuid::from_u128(7));
    Request { id: Some(OpId { client, number: 1, done_below: 0, stamp: Millis::ZERO }), ..request(op, reply) }
}

fn increment() -> Op {
    Op::Increment { key: Bytes::from_static(b"z"), by: 1 }
}

fn leader_that_knows_its_clients(mutant: Option<Mutant>) -> Partitions<TestShell> {
    let mut node = serving(DisabledRule::by(mutant), row(1, &[]));
    while node.clients_to_read() > 0 {
        node.read_clients();
    }
    node
}

/// The client gets no answer to the first operation, and retries.
fn operation_done_before_split_is_not_repeated_after(mutant: Option<Mutant>) -> bool {
    let mut node = leader_that_knows_its_clients(mutant);
    node.operate(named(increment(), "first"));
    settle(&mut node);
    configure(&mut node, splitting(2, &[]));
    configure(&mut node, parted(4));
    node.operate(named(increment(), "again"));
    settle(&mut node);
    let again = node.shell().answers.iter().find(|(to, _)| *to == "again");
    matches!(again, Some((_, Ok(Answer::Counter { value: 1, .. }))))
}

fn operation_is_not_redirected_before_split_ends(mutant: Option<Mutant>) -> bool {
    let mut node = leader_that_knows_its_clients(mutant);
    configure(&mut node, splitting(2, &[]));
    node.operate(named(increment(), "put"));
    settle(&mut node);
    node.operate(request(put("y"), "plain"));
    settle(&mut node);
    let moved = |reply: &str| refusal(&node, reply) == Some(&Refusal::Moved);
    !is_answered(&node, "put") && !moved("put") && !moved("plain")
}

#[test]
fn new_named_write_on_moved_key_is_redirected() {
    let mut node = leader_that_knows_its_clients(None);
    configure(&mut node, splitting(2, &[]));
    configure(&mut node, parted(4));
    node.operate(named(increment(), "new"));
    settle(&mut node);
    let new = node.shell().answers.iter().find(|(to, _)| *to == "new");
    let Some((_, Err(detail))) = new else { panic!("{new:?}") };
    assert_eq!(detail.kind, archon_types::ErrorKind::Moved);
}

#[test]
fn cancelled_split_serves_reads_while_disk_is_full() {
    let mut node = sealed(None);
    let full = |node: &mut Partitions<TestShell>, at: u64| {
        node.begin(Millis::new(at));
        node.tick(true, 0);
        settle(node);
    };
    full(&mut node, 1_100);
    ask(&mut node, get("a"), "get a");
    assert!(is_answered(&node, "get a"), "what it leads can be read and not written");
    configure(&mut node, row(5, &[]));
    ask(&mut node, get("z"), "get z");
    full(&mut node, 2_500);
    assert!(is_answered(&node, "get z"), "{:?}", refusal(&node, "get z"));
}

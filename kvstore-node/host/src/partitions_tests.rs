use super::*;
use crate::test_shell::{LIFE, OTHER, OWN, PARTITION, get, put, request, row, serving, settle};
use crate::{LogWrite, Refusal};
use archon_kv::engine::{Change, Row};
use archon_replica::{Body, Input, Message, Position, ReplicaAddress};
use archon_types::{
    Answer, ErrorDetail, ErrorKind, Incarnation, KeyRange, NodeId, Op, Partition, Placement, ReplicaState, ScanOrder,
    Seq,
};
use bytes::Bytes;

fn refused(partitions: &Partitions<crate::test_shell::TestShell>) -> Vec<&Refusal> {
    partitions.shell().refusals.iter().map(|(_, refusal)| refusal).collect()
}

fn answered(partitions: &Partitions<crate::test_shell::TestShell>) -> Vec<&'static str> {
    partitions.shell().answers.iter().map(|(to, _)| *to).collect()
}

fn new_registration_leads_nothing(mutant: Option<Mutant>) -> bool {
    let mut partitions = serving(DisabledRule::by(mutant), row(1, &[]));
    partitions.renew(NodeRegistration { incarnation: Incarnation::new(2), ..LIFE });
    settle(&mut partitions);
    partitions.leading() == 0
}

/// The read of the engine takes until the lease has expired.
fn read_that_outlasts_lease_is_refused(mutant: Option<Mutant>) -> bool {
    let mut partitions = serving(DisabledRule::by(mutant), row(1, &[]));
    partitions.shell_mut().look_ms = 9_000;
    partitions.operate(request(get("key"), "read"));
    refused(&partitions) == [&Refusal::NoLease]
}

fn sole_copy_refuses_writes_without_lease(mutant: Option<Mutant>) -> bool {
    let mut partitions = serving(DisabledRule::by(mutant), row(1, &[]));
    partitions.shell_mut().lease_until = Millis::ZERO;
    partitions.operate(request(put("key"), "write"));
    settle(&mut partitions);
    refused(&partitions) == [&Refusal::NoLease]
}

fn former_leader_gives_no_copies(mutant: Option<Mutant>) -> bool {
    let mut partitions = serving(DisabledRule::by(mutant), row(1, &[(OTHER, ReplicaState::Load)]));
    let (source, epoch) = (OWN, Epoch::new(1));
    let ask = CopyAsk { partition: PARTITION, loader: OTHER, source, epoch, resume: Seq::new(1) };
    partitions.renew(NodeRegistration { incarnation: Incarnation::new(2), ..LIFE });
    partitions.copy_asked(ask, ()) == Err(CopyRefusal::NotHere)
}

archon_types::shown_by! {
    KeepsLeading => new_registration_leads_nothing,
    LeaseCheckedFirst => read_that_outlasts_lease_is_refused,
    AloneWithoutLease => sole_copy_refuses_writes_without_lease,
    CopyUnchecked => former_leader_gives_no_copies,
    RetentionUnreviewed => quiet_log_retention_is_bounded_by_node_log,
}

#[test]
fn write_is_answered_once_durable_and_then_readable() {
    let mut partitions = serving(DisabledRule::default(), row(1, &[]));
    partitions.operate(request(put("key"), "write"));
    partitions.settle();
    assert_eq!(answered(&partitions), [""; 0], "the disk does not have it yet");
    settle(&mut partitions);
    partitions.operate(request(get("key"), "read"));
    let answers = &partitions.shell().answers;
    assert!(matches!(&answers[..], [("write", Ok(_)), ("read", Ok(Answer::Value(Some(_))))]), "{answers:?}");
}

/// One write while a copy is away, and none after it: the engine has no further syncs of this partition.
fn after_a_quiet_write(broken: DisabledRule) -> Partitions<crate::test_shell::TestShell> {
    let mut partitions = serving(broken, row(1, &[(OTHER, ReplicaState::Load)]));
    partitions.operate(request(put("key"), "write"));
    settle(&mut partitions);
    let end = partitions.copies()[&OWN].replica.last().seq;
    partitions.each(|_, local| local.freeze());
    partitions.synced(OWN, end);
    settle(&mut partitions);
    assert_eq!(bases(&partitions), 0, "the log is kept for the copy that is away");
    partitions
}

fn bases(partitions: &Partitions<crate::test_shell::TestShell>) -> usize {
    partitions.shell().writes.iter().filter(|write| matches!(write, LogWrite::Base(_))).count()
}

fn tick_at(partitions: &mut Partitions<crate::test_shell::TestShell>, ms: u64) {
    partitions.begin(Millis::new(ms));
    partitions.tick(false, 1);
    settle(partitions);
}

fn quiet_log_retention_is_bounded_by_node_log(mutant: Option<Mutant>) -> bool {
    let mut partitions = after_a_quiet_write(DisabledRule::by(mutant));
    tick_at(&mut partitions, 3_000);
    partitions.shell_mut().log_written = crate::RetentionLimits::of_node(1).lagging_distance_max + 1;
    tick_at(&mut partitions, 4_000);
    bases(&partitions) == 1
}

#[test]
fn quiet_log_is_trimmed_once_node_has_logged_enough() {
    let mut partitions = after_a_quiet_write(DisabledRule::default());
    let distance = crate::RetentionLimits::of_node(1).lagging_distance_max;
    partitions.shell_mut().log_written = distance;
    tick_at(&mut partitions, 3_000);
    assert_eq!(bases(&partitions), 0);
    partitions.shell_mut().log_written = distance + 1;
    tick_at(&mut partitions, 4_000);
    assert_eq!(bases(&partitions), 1);
    assert_eq!(partitions.copies()[&OWN].replica.base().seq, partitions.copies()[&OWN].replica.last().seq);
    tick_at(&mut partitions, 5_000);
    assert_eq!(bases(&partitions), 1, "there is nothing left to forget");
}

#[test]
fn quiet_log_is_trimmed_once_absent_copy_is_removed() {
    let mut partitions = after_a_quiet_write(DisabledRule::default());
    let row = archon_types::Partition { version: archon_types::Version::new(9), ..row(9, &[]) };
    assert!(partitions.duties(LIFE.incarnation, vec![crate::Action::Configure { partition: row, placement: OWN }]));
    settle(&mut partitions);
    tick_at(&mut partitions, 3_000);
    assert_eq!(bases(&partitions), 1);
}

#[test]
fn operation_before_leader_serves_is_parked() {
    let action = |version| crate::Action::Open { partition: row(version, &[]), placement: OWN, fresh: true };
    let mut partitions = crate::test_shell::partitions(DisabledRule::default());
    partitions.duties(LIFE.incarnation, vec![action(1)]);
    partitions.operate(request(put("key"), "early"));
    assert_eq!((refused(&partitions).len(), answered(&partitions).len()), (0, 0));
    settle(&mut partitions);
    assert_eq!(answered(&partitions), ["early"]);
}

#[test]
fn write_without_room_is_parked_in_order_of_arrival() {
    let mut partitions = serving(DisabledRule::default(), row(1, &[]));
    let (begun, wait_ms) =
        (partitions.shell().now.get(), crate::operations::park_limits::ParkLimits::default().room_ms);
    let at = |partitions: &mut Partitions<crate::test_shell::TestShell>, ms, full| {
        partitions.shell_mut().is_full = full;
        partitions.begin(begun.plus(ms));
        partitions.tick(false, 1);
        settle(partitions);
    };
    partitions.shell_mut().is_full = true;
    partitions.operate(request(put("key"), "first"));
    partitions.operate(request(put("key"), "second"));
    partitions.operate(request(get("key"), "read"));
    assert_eq!(answered(&partitions), ["read"], "reads need no room");
    at(&mut partitions, 20, true);
    assert_eq!((refused(&partitions).len(), answered(&partitions).len()), (0, 1));
    at(&mut partitions, 40, false);
    assert_eq!(answered(&partitions), ["read", "first", "second"]);

    partitions.shell_mut().is_full = true;
    partitions.operate(request(put("key"), "in vain"));
    at(&mut partitions, 40 + wait_ms, true);
    assert_eq!(refused(&partitions), [&Refusal::NoWrites(ErrorKind::Overloaded)]);
}

/// The engine frees the gathered rows all at once, and every client waits for that once memory is full.
#[test]
fn gathered_bytes_are_bounded_while_engine_is_behind() {
    let mut partitions = serving(DisabledRule::default(), row(1, &[]));
    partitions.turn.park_limits.gathered_bytes_max = 1;
    let write = |partitions: &mut Partitions<crate::test_shell::TestShell>, to| {
        partitions.operate(request(put("key"), to));
        settle(partitions);
    };
    for to in ["first", "second"] {
        write(&mut partitions, to);
    }
    assert_eq!(answered(&partitions), ["first", "second"], "nothing is on its way to the engine");
    partitions.copies.get_mut(&OWN).unwrap().freeze();
    write(&mut partitions, "gathers");
    write(&mut partitions, "waits");
    assert_eq!(answered(&partitions), ["first", "second", "gathers"]);
    let memtable = &mut partitions.copies.get_mut(&OWN).unwrap().memtable;
    memtable.flushed(memtable.frozen().unwrap().upto);
    partitions.tick(false, 1);
    settle(&mut partitions);
    assert_eq!(answered(&partitions).len(), 4, "the engine has taken what was before it");
}

/// The row stays the same for weeks.
#[test]
fn replica_follows_changed_replication_timeout() {
    let mut partitions = serving(DisabledRule::default(), row(1, &[(OTHER, ReplicaState::Load)]));
    partitions.shell_mut().timing.replication_timeout_ms = 7_000;
    partitions.peers_changed();
    let copies = partitions.copies();
    let timing = copies[&OWN].replica.configuration().map(|configuration| configuration.timing.replication_timeout_ms);
    assert_eq!(timing, Some(7_000));
}

#[test]
fn operation_without_local_copy_is_refused() {
    let mut partitions = crate::test_shell::partitions(DisabledRule::default());
    partitions.operate(request(get("key"), "read"));
    assert_eq!(refused(&partitions), [&Refusal::Elsewhere]);
}

#[test]
fn duties_of_other_incarnation_are_ignored() {
    let mut partitions = crate::test_shell::partitions(DisabledRule::default());
    let open = crate::Action::Open { partition: row(1, &[]), placement: OWN, fresh: true };
    assert!(!partitions.duties(Incarnation::new(7), vec![open]));
    assert!(partitions.copies().is_empty());
}

#[test]
fn held_answer_is_sent_with_next_lease() {
    let mut partitions = serving(DisabledRule::default(), row(1, &[]));
    partitions.operate(request(put("key"), "write"));
    partitions.shell_mut().lease_until = Millis::ZERO;
    settle(&mut partitions);
    assert_eq!((partitions.tick(false, 1), answered(&partitions).len()), (1, 0));
    partitions.shell_mut().lease_until = Millis::new(10_000);
    assert_eq!((partitions.tick(false, 1), answered(&partitions)), (0, vec!["write"]));
}

#[test]
fn stopping_reports_unknown_outcome_of_waiting_write() {
    let mut partitions = serving(DisabledRule::default(), row(1, &[]));
    partitions.operate(request(put("key"), "write"));
    partitions.stop();
    assert_eq!(refused(&partitions), [&Refusal::Ended(crate::UnansweredOutcome::Unknown, Cause::Stopping)]);
}

#[test]
fn copy_is_deleted_by_its_own_clearing_only() {
    let mut partitions = serving(DisabledRule::default(), row(1, &[]));
    partitions.duties(LIFE.incarnation, vec![crate::Action::Unload { partition: PARTITION, placement: OWN }]);
    partitions.cleared(OWN, 7);
    assert!(partitions.shell().gathered.deletions.is_empty(), "of an earlier one");
    partitions.cleared(OWN, 1);
    assert_eq!(partitions.shell().gathered.deletions, [(PARTITION, OWN)]);
    settle(&mut partitions);
    let facts: Vec<&Fact> = partitions.shell().reports.iter().map(|report| &report.fact).collect();
    assert!(facts.contains(&&Fact::Unloaded), "{facts:?}");
}

#[test]
fn scan_without_reply_room_is_refused_before_reading() {
    let mut partitions = serving(DisabledRule::default(), row(1, &[]));
    let scan = Op::Scan { keys: KeyRange::ALL, order: ScanOrder::Ascending, limit: 10 };
    partitions.operate(request(scan, "takes nothing"));
    assert_eq!(refused(&partitions), [&Refusal::Detail(ErrorDetail::new(ErrorKind::Overloaded, "no room"))]);
}

/// The pages were read while the leader kept writing: some hold rows written after the copy began, others older ones.
#[test]
fn copy_behind_its_pages_does_not_lead() {
    let position = |seq| Position::new(Epoch::new(1), Seq::new(seq));
    let led_by_other = Partition {
        leader: Some(OTHER),
        placements: vec![
            Placement { id: OWN, node: NodeId::new(OWN.get()), state: ReplicaState::Load },
            Placement { id: OTHER, node: NodeId::new(OTHER.get()), state: ReplicaState::Live },
        ],
        ..row(1, &[])
    };
    let forced = Partition { epoch: Epoch::new(2), ..row(2, &[]) };
    for (pages_upto, whole) in [(12, false), (9, true)] {
        let mut partitions = crate::test_shell::partitions(DisabledRule::default());
        let open = crate::Action::Open { partition: led_by_other.clone(), placement: OWN, fresh: true };
        partitions.duties(LIFE.incarnation, vec![open]);
        let address = |placement: PlacementId, node| ReplicaAddress { placement, node, incarnation: LIFE.incarnation };
        let from = address(OTHER, NodeId::new(OTHER.get()));
        let (to, body) = (address(OWN, LIFE.node), Body::Behind { base: position(9) });
        partitions.step(OWN, Input::Message(Message { partition: PARTITION, from, to, epoch: Epoch::new(1), body }));
        settle(&mut partitions);
        partitions.cleared(OWN, 1);
        let mut rows = vec![Row { key: Bytes::from_static(b"\x01key"), value: Bytes::from_static(b"value") }];
        archon_kv::row::note_copied(&mut rows, Seq::new(pages_upto));
        let change = |Row { key, value }| Change { space: OWN, key, value: Some(value) };
        let changes: Vec<Change> = rows.into_iter().map(change).collect();
        partitions.shell().engine().write(&changes).unwrap();
        partitions.copy_done(OWN, 1, position(9), Version::new(1));
        settle(&mut partitions);
        partitions
            .duties(LIFE.incarnation, vec![crate::Action::Configure { partition: forced.clone(), placement: OWN }]);
        settle(&mut partitions);
        let reports = &partitions.shell().reports;
        let damaged = reports.iter().any(|report| matches!(report.fact, Fact::Damaged { .. }));
        assert_eq!(
            (damaged, partitions.leading()),
            (!whole, usize::from(whole)),
            "pages up to {pages_upto}: {reports:?}"
        );
    }
}

#[test]
fn request_of_leader_before_open_is_answered_on_open() {
    let led_by_other = Partition {
        leader: Some(OTHER),
        placements: [OWN, OTHER]
            .map(|id| Placement { id, node: NodeId::new(id.get()), state: ReplicaState::Live })
            .into(),
        ..row(1, &[])
    };
    let mut partitions = crate::test_shell::partitions(DisabledRule::default());
    partitions.dormant.insert(OWN, crate::test_shell::held(PARTITION));
    let address = |placement: PlacementId, node| ReplicaAddress { placement, node, incarnation: LIFE.incarnation };
    let (from, to) = (address(OTHER, NodeId::new(OTHER.get())), address(OWN, LIFE.node));
    let at = Position::new(Epoch::new(1), Seq::new(10));
    let body = Body::Adopt { at, start: Seq::ZERO, commit: at.seq };
    let ask = Message { partition: PARTITION, from, to, epoch: Epoch::new(1), body };
    partitions.step(OWN, Input::Message(ask.clone()));
    partitions.step(PlacementId::new(9), Input::Message(ask));
    assert_eq!(partitions.early.len(), 1, "of what is here alone");
    let open = crate::Action::Open { partition: led_by_other, placement: OWN, fresh: false };
    partitions.duties(LIFE.incarnation, vec![open]);
    settle(&mut partitions);
    let adopted = |message: &Message| message.to.placement == OTHER && matches!(message.body, Body::Adopted { .. });
    assert!(partitions.shell().sent.iter().any(adopted), "{:?}", partitions.shell().sent);
    assert!(partitions.early.is_empty());
}

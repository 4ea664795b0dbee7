//! Incarnations of a node: effects of a restart, the required proof, and messages of older incarnations.

use crate::bed::{TestBed, boxed, facts_of, part, register, settings};
use archon_coordinator_core::*;
use archon_types::*;
use uuid::Uuid;

#[test]
fn restart_ends_leaderships_and_waits_for_old_lease() {
    let mut bed = TestBed::running(settings(4, 2, 1), &["athens", "byzantium"]);
    let athens = bed.node("athens");
    let old = bed.incarnation(athens);
    bed.heartbeat_all();
    let epoch = bed.row(0).epoch;
    bed.rejoin(athens, 77);
    assert_eq!((bed.row(0).leader, bed.row(0).epoch), (None, epoch.next().unwrap()));
    assert_eq!(bed.row(0).status, PartitionStatus::Unavailable);
    assert_eq!(bed.leader(1), Some(bed.node("byzantium")));
    let former = bed.state.former_leaders.of_partition(part(0)).next().copied().unwrap();
    assert_eq!((former.node, former.incarnation, former.epoch, former.lapsed), (athens, old, epoch, false));

    // The lease of the old incarnation may run until a failure time-out after its last answer.
    assert_eq!(bed.turn(), vec![]);
    assert_eq!(
        facts_of(explain(&bed.state, &LeaderView::default(), part(0)).unwrap()),
        [Facts::WaitingForLease { node: "athens".to_owned() }]
    );
    bed.now = bed.now.plus(1_249);
    bed.heartbeat_all();
    assert_eq!(bed.turn(), vec![]);
    bed.now = bed.now.plus(1);
    let elected = bed.turn();
    assert_eq!(elected.len(), 2, "{elected:?}");
    bed.commit(elected);
    assert_eq!(bed.leader(0), Some(athens));
    assert!(bed.state.former_leaders.is_empty());
    bed.settle();
    assert_eq!(bed.online(), 4);
    bed.round_trip();
}

#[test]
fn new_coordinator_waits_failure_timeout_before_electing() {
    let mut bed = TestBed::running(settings(1, 1, 1), &["athens"]);
    let athens = bed.node("athens");
    bed.pass(5_000, &[athens].map(|_| NodeId::new(99)));
    bed.rejoin(athens, 77);
    bed.liveness = Liveness::new(bed.now);
    bed.now = bed.now.plus(1_249);
    bed.heartbeat_all();
    assert_eq!(bed.turn(), vec![]);
    bed.now = bed.now.plus(1);
    assert_eq!(bed.turn().len(), 1);
}

#[test]
fn node_acts_only_in_activated_incarnation() {
    let mut bed = TestBed::new(settings(3, 1, 1));
    bed.ok(boxed(register("athens", 1, 1)));
    let athens = bed.node("athens");
    assert_eq!(duties(&bed.state, athens), None);
    assert_eq!(bed.turn(), vec![]);
    let incarnation = bed.incarnation(athens);
    bed.ok(Command::Activate { node: athens, incarnation });
    assert_eq!(duties(&bed.state, athens), Some(vec![]));
    assert_eq!(bed.turn().len(), 1);
}

#[test]
fn missing_or_rolled_back_copy_is_lost() {
    type Damage = fn(&mut Register);
    let cases: [(&str, Damage); 3] = [
        ("not held", |r| r.held.clear()),
        ("rolled back", |r| r.last_incarnation = Some(Incarnation::new(1))),
        ("no incarnation", |r| r.last_incarnation = None),
    ];
    for (what, damage) in cases {
        let mut bed = TestBed::running(settings(2, 2, 1), &["athens", "byzantium"]);
        let athens = bed.node("athens");
        let mut back = register("athens", 1, 90);
        back.held = bed.row(0).placements.iter().map(|p| p.id).collect();
        back.last_incarnation = bed.state.node(athens).unwrap().activated;
        damage(&mut back);
        bed.ok(boxed(back));
        assert_eq!(bed.row(0).live().count(), 0, "{what}");
        // No other node has it: the copy is kept for the operator, not deleted.
        assert_eq!(bed.row(0).placements[0].state, ReplicaState::Load, "{what}");
        assert_eq!(bed.row(1).live().count(), 1);
    }
}

#[test]
fn unconfirmed_incarnation_loses_nothing() {
    let mut bed = TestBed::running(settings(1, 1, 1), &["athens"]);
    let held: Vec<PlacementId> = bed.row(0).placements.iter().map(|p| p.id).collect();
    let athens = bed.node("athens");
    let last_incarnation = bed.state.node(athens).unwrap().activated;
    let back = Register { held: held.clone(), last_incarnation, ..register("athens", 1, 90) };
    bed.ok(boxed(back.clone()));
    // It stored that incarnation and died before its confirmation.
    let stored = Some(bed.incarnation(athens));
    let boot = BootId::new(Uuid::from_u128(91));
    bed.ok(boxed(Register { last_incarnation: stored, boot, ..back.clone() }));
    assert_eq!(bed.row(0).live().count(), 1);
    // Or it died before it stored it.
    let boot = BootId::new(Uuid::from_u128(92));
    bed.join_with(Register { boot, ..back });
    assert_eq!(bed.row(0).live().count(), 1);
    bed.settle();
    assert_eq!(bed.online(), 1);
}

#[test]
fn stale_incarnation_must_register_again() {
    let mut bed = TestBed::running(settings(1, 1, 1), &["athens"]);
    let athens = bed.node("athens");
    let old = bed.incarnation(athens);
    bed.rejoin(athens, 90);
    let kind = |bed: &mut TestBed, incarnation| {
        let now = bed.now;
        bed.liveness.heard(&bed.state, athens, incarnation, 1_000, now).unwrap_err().kind
    };
    assert_eq!(kind(&mut bed, old), ErrorKind::StaleIncarnation);
    assert_eq!(kind(&mut bed, Incarnation::new(10_000)), ErrorKind::Unavailable);
    assert_eq!(bed.refused(Command::Activate { node: athens, incarnation: old }), ErrorKind::StaleIncarnation);
    let now = bed.now;
    let refused = bed.liveness.answer(&bed.state, athens, old, now).unwrap_err();
    assert_eq!(refused.kind, ErrorKind::StaleIncarnation);
}

#[test]
fn paused_coordinator_fences_no_incarnation() {
    let mut bed = TestBed::running(settings(1, 1, 1), &["athens"]);
    let athens = bed.node("athens");
    let incarnation = bed.incarnation(athens);
    bed.heartbeat_all();
    // Others lead by now, and its decisions are not committed.
    bed.now = bed.now.plus(60_000);
    assert_eq!(bed.turn(), vec![Command::NodeFailed { node: athens, incarnation, successors: vec![] }]);
    let refusal = |bed: &mut TestBed, node, incarnation| {
        let now = bed.now;
        bed.liveness.heard(&bed.state, node, incarnation, 1_000, now).unwrap_err().kind
    };
    assert_eq!(refusal(&mut bed, athens, incarnation), ErrorKind::Unavailable);
    let (byzantium, registered_since) = (NodeId::new(77), Incarnation::new(bed.state.applied + 3));
    assert_eq!(refusal(&mut bed, byzantium, registered_since), ErrorKind::Unavailable);
    // For a node that was registered before and is now unknown, a row recorded its removal.
    assert_eq!(refusal(&mut bed, byzantium, incarnation), ErrorKind::StaleIncarnation);
    // Its rows do not contain this new incarnation yet.
    let life = bed.ok(boxed(register("cyrene", 3, 3)));
    let Response::Registered { node: cyrene, .. } = life else { panic!("{life:?}") };
    let report = bed.fact(0, bed.row(0).placements[0].id, Fact::Online);
    assert_eq!(bed.report(cyrene, &report).unwrap_err().kind, ErrorKind::Unavailable);
}

#[test]
fn node_killed_before_first_store_keeps_its_assignment() {
    let mut bed = TestBed::new(settings(1, 1, 1));
    let athens = bed.join("athens", 1);
    // Assigned without any report: the push never arrived.
    for command in bed.turn() {
        bed.ok(command);
    }
    assert_eq!((bed.row(0).status, bed.leader(0)), (PartitionStatus::Assigned, Some(athens)));
    let stored = Some(bed.incarnation(athens));
    bed.ok(boxed(Register { held: vec![], last_incarnation: stored, ..register("athens", 1, 90) }));
    assert_eq!(bed.row(0).live().count(), 1, "there is nothing to lose yet: {:?}", bed.row(0));

    // Once it has been Online, the same registration means that data is gone.
    bed.ok(Command::Activate { node: athens, incarnation: bed.incarnation(athens) });
    bed.settle();
    assert_eq!(bed.row(0).status, PartitionStatus::Online);
    let stored = Some(bed.incarnation(athens));
    bed.ok(boxed(Register { held: vec![], last_incarnation: stored, ..register("athens", 1, 91) }));
    assert_eq!(bed.row(0).live().count(), 0, "{:?}", bed.row(0));
}

/// Found by the simulator: a registration waited in a stopped coordinator while the node started twice more. It named
/// an older incarnation as the last one stored, which was true at its time, and every copy of the node was given up.
#[test]
fn overtaken_registration_loses_no_copies() {
    let mut bed = TestBed::running(settings(4, 1, 2), &["athens", "byzantium"]);
    let athens = bed.node("athens");
    let late = Register {
        held: bed.state.partitions.on_node(athens).filter_map(|row| row.placement_on(athens)).map(|p| p.id).collect(),
        last_incarnation: bed.state.node(athens).unwrap().activated,
        expects: Some(bed.incarnation(athens)),
        ..register("athens", 1, 70)
    };
    bed.rejoin(athens, 71);
    bed.rejoin(athens, 72);
    let live = |bed: &TestBed| bed.state.partitions.iter().map(|row| row.live().count()).collect::<Vec<_>>();
    let (before, present) = (live(&bed), bed.incarnation(athens));
    let Response::Refused(error) = bed.one(boxed(late.clone())) else { panic!("an old registration took effect") };
    assert_eq!((error.kind, error.have), (ErrorKind::StaleVersion, Some(present.get())));
    assert_eq!((live(&bed), bed.incarnation(athens)), (before.clone(), present));
    // Once it knows the recorded incarnation, the present process registers; an older directory is detected.
    bed.ok(boxed(Register { last_incarnation: Some(present), expects: Some(present), ..late.clone() }));
    assert_eq!(live(&bed), before);
    let expects = Some(bed.incarnation(athens));
    bed.ok(boxed(Register { boot: BootId::new(Uuid::from_u128(73)), expects, ..late }));
    assert_ne!(live(&bed), before);
}

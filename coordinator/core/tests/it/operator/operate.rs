//! Operators' verbs on nodes and partitions: refused in advance with reasons, or carried out completely.

use crate::bed::{TestBed, part, register, settings};
use archon_coordinator_core::*;
use archon_types::*;

const CITIES: [&str; 3] = ["athens", "byzantium", "cyrene"];

fn events(bed: &TestBed, wanted: impl Fn(&EventKind) -> bool) -> usize {
    bed.state.events.iter().filter(|event| wanted(&event.what)).count()
}

/// Creates a partition with its only in-sync copy on a failed node; the follower was dropped before.
fn bereft() -> (TestBed, NodeId, NodeId) {
    let mut bed = TestBed::running(settings(1, 2, 2), &["athens", "byzantium"]);
    let leader = bed.leader(0).expect("set up");
    let own = bed.row(0).leader.expect("set up");
    let other = *bed.row(0).live().find(|live| live.id != own).expect("set up");
    let name = ReplicaName { placement: other.id, incarnation: bed.incarnation(other.node) };
    let silent = bed.fact(0, own, Fact::Silent { followers: vec![name] });
    bed.report(leader, &silent).expect("set up");
    bed.fail(leader);
    (bed, leader, other.node)
}

#[test]
fn impossible_drain_is_refused_with_every_reason() {
    let bed = TestBed::running(settings(6, 3, 3), &CITIES);
    let athens = bed.node("athens");
    let obstacles = check_drain(&bed.state, athens).unwrap_err();
    let short = Obstacle::TooFewNodes { table: "default".into(), node: "athens".into(), have: 2, need: 3 };
    assert_eq!(obstacles, vec![short]);
    let error = refusal(&obstacles);
    assert_eq!(error.kind, ErrorKind::Refused);
    assert!(error.message.contains("only 2 nodes take replicas; add a node"), "{error}");
    assert_eq!(
        check_drain(&bed.state, NodeId::new(99)).unwrap_err(),
        vec![Obstacle::NoSuchNode { node: NodeId::new(99) }]
    );
}

/// A node that `node list` shows as Live was no target until it had learned of its registration.
#[test]
fn drain_counts_newly_registered_nodes() {
    let mut bed = TestBed::running(settings(6, 3, 3), &CITIES);
    bed.ok(Command::Register(Box::new(register("delos", 9, 9))));
    let drain = check_drain(&bed.state, bed.node("athens")).unwrap();
    assert_eq!(drain.gains, [(bed.node("delos"), 6)].into());
}

#[test]
fn drain_plan_lists_targets() {
    let mut bed = TestBed::running(settings(6, 3, 3), &CITIES);
    let athens = bed.node("athens");
    let ephesus = bed.join_with(Register { partitions_max: Some(5), ..register("ephesus", 9, 9) });
    let limits = vec![("ephesus".to_owned(), 5)];
    assert_eq!(check_drain(&bed.state, athens).unwrap_err(), vec![Obstacle::NodesAtLimit { placements: 1, limits }]);
    bed.join_with(Register { zone: Some("east".into()), ..register("corinth", 10, 10) });
    let drain = check_drain(&bed.state, athens).unwrap();
    assert_eq!((drain.leaderships, drain.placements, drain.zones_doubled), (2, 6, 0));
    assert_eq!(drain.gains.values().sum::<u32>(), 6);
    assert!(drain.gains[&ephesus] <= 5);
    assert_eq!(
        drain.command,
        Command::SetNode { node: athens, goal: NodeGoal::Drain, if_nodes: Some(bed.state.nodes_version) }
    );
    bed.ok(drain.command);
    assert_eq!(
        events(&bed, |what| matches!(what, EventKind::NodeDraining { node, placements: 6 } if *node == athens)),
        1
    );
}

#[test]
fn two_conflicting_drains_do_not_both_pass() {
    let mut bed = TestBed::running(settings(6, 4, 3), &["a", "b", "c", "d"]);
    let first = check_drain(&bed.state, bed.node("a")).unwrap();
    let second = check_drain(&bed.state, bed.node("b")).unwrap();
    bed.ok(first.command);
    assert_eq!(bed.refused(second.command), ErrorKind::StaleVersion);
    assert!(check_drain(&bed.state, bed.node("b")).is_err());
}

#[test]
fn failed_node_with_only_copy_cannot_be_drained() {
    let mut bed = TestBed::running(settings(4, 2, 1), &["athens", "byzantium"]);
    let athens = bed.node("athens");
    bed.fail(athens);
    let obstacles = check_drain(&bed.state, athens).unwrap_err();
    assert!(matches!(&obstacles[..], [Obstacle::OnlyCopies { partitions: 2, .. }]), "{obstacles:?}");
}

#[test]
fn only_failed_nodes_data_can_be_declared_lost() {
    let mut bed = TestBed::running(settings(3, 3, 3), &CITIES);
    let athens = bed.node("athens");
    assert!(matches!(check_lose_node(&bed.state, athens).unwrap_err()[..], [Obstacle::Alive { .. }]));
    let version = bed.state.node(athens).unwrap().node.version;
    assert_eq!(bed.refused(Command::NodeLost { node: athens, if_version: version }), ErrorKind::Refused);
    bed.fail(athens);
    let lost = check_lose_node(&bed.state, athens).unwrap();
    assert_eq!((lost.placements, lost.counting, lost.last_copies.len()), (3, 3, 0));
    assert_eq!(bed.refused(Command::NodeLost { node: athens, if_version: version }), ErrorKind::StaleVersion);
    bed.ok(lost.command.clone());
    assert!(bed.state.partitions.iter().all(|row| row.live().count() == 2));
    assert_eq!(
        events(&bed, |what| matches!(what, EventKind::NodeDeclaredLost { placements: 3, last_copies: 0, .. })),
        1
    );
    bed.round_trip();
}

#[test]
fn node_is_removed_only_without_live_copies() {
    let mut bed = TestBed::running(settings(3, 3, 2), &CITIES);
    let athens = bed.node("athens");
    let obstacles = check_remove(&bed.state, athens).unwrap_err();
    assert!(
        matches!(obstacles[..], [Obstacle::HoldsCopies { partitions: 2, .. }, Obstacle::Alive { .. }]),
        "{obstacles:?}"
    );
    bed.fail(athens);
    let if_version = bed.state.node(athens).unwrap().node.version;
    assert!(matches!(check_remove(&bed.state, athens).unwrap_err()[..], [Obstacle::HoldsCopies { .. }]));
    assert_eq!(bed.refused(Command::RemoveNode { node: athens, if_version }), ErrorKind::Refused);
    bed.ok(check_lose_node(&bed.state, athens).unwrap().command);
    let removal = check_remove(&bed.state, athens).unwrap();
    bed.ok(removal.command);
    assert_eq!(bed.state.node(athens), None);
    assert!(bed.state.partitions.on_node(athens).next().is_none());
    bed.settle();
    assert_eq!(bed.online(), 3);
}

#[test]
fn last_remains_of_partition_block_removal() {
    let mut bed = TestBed::running(settings(1, 1, 1), &["athens"]);
    let athens = bed.node("athens");
    bed.fail(athens);
    let lost = check_lose_node(&bed.state, athens).unwrap();
    assert_eq!(lost.last_copies, vec![part(0)]);
    bed.ok(lost.command);
    assert!(matches!(check_remove(&bed.state, athens).unwrap_err()[..], [Obstacle::LastTraces { partitions: 1, .. }]));
}

#[test]
fn loss_cannot_be_accepted_with_alive_live_copy() {
    let mut bed = TestBed::running(settings(1, 3, 3), &CITIES);
    let now = bed.now;
    let served = check_force_leader(&bed.state, &bed.liveness, now, part(0), None).unwrap_err();
    assert!(matches!(served[..], [Obstacle::StillCounts { .. }]));
    assert_eq!(
        refusal(&check_force_leader(&bed.state, &bed.liveness, now, part(9), None).unwrap_err()).kind,
        ErrorKind::NotFound
    );
    let leader = bed.leader(0).unwrap();
    bed.fail(leader);
    assert!(check_force_leader(&bed.state, &bed.liveness, bed.now, part(0), None).is_err());
    let if_version = bed.row(0).version;
    assert_eq!(
        bed.refused(Command::AcceptLoss { partition: part(0), if_version, outcome: LossOutcome::Empty }),
        ErrorKind::Refused
    );
}

#[test]
fn accepted_loss_elects_whole_copy_and_retires_others() {
    let (mut bed, failed, other) = bereft();
    bed.pass(500, &[]);
    assert_eq!(bed.row(0).status, PartitionStatus::Unavailable);
    let forced = check_force_leader(&bed.state, &bed.liveness, bed.now, part(0), None).unwrap();
    assert_eq!((forced.leader, forced.condition), (Some(other), Some(Condition::Whole)));
    assert_eq!((forced.would_lose_nothing.clone(), forced.retired.clone()), (vec![failed], vec![failed]));
    let epoch = bed.row(0).epoch;
    bed.ok(forced.command);
    assert_eq!(bed.leader(0), Some(other));
    assert!(bed.row(0).epoch > epoch);
    assert_eq!(bed.row(0).placement_on(failed).unwrap().state, ReplicaState::Unload);
    let accepted = |what: &EventKind| matches!(what, EventKind::DataLossAccepted { leader: Some(node), retired: 1, .. } if *node == other);
    assert_eq!(events(&bed, accepted), 1);
    bed.settle();
    assert_eq!(bed.online(), 1);
    // The failed node returns with acknowledged writes: it must delete them, and loads the copy again.
    bed.rejoin(failed, 900);
    bed.settle();
    assert_eq!(bed.leader(0), Some(other));
    bed.round_trip();
}

#[test]
fn named_leader_must_hold_a_copy() {
    let (bed, failed, other) = bereft();
    let check = |node| check_force_leader(&bed.state, &bed.liveness, bed.now, part(0), Some(node));
    assert!(matches!(check(failed).unwrap_err()[..], [Obstacle::CannotLead { .. }]));
    assert!(matches!(check(NodeId::new(99)).unwrap_err()[..], [Obstacle::CannotLead { .. }]));
    assert_eq!(check(other).unwrap().leader, Some(other));
}

#[test]
fn partition_without_remains_starts_empty() {
    let mut bed = TestBed::running(settings(1, 2, 1), &["athens", "byzantium"]);
    let athens = bed.leader(0).unwrap();
    bed.fail(athens);
    let forced = check_force_leader(&bed.state, &bed.liveness, bed.now, part(0), None).unwrap();
    assert_eq!((forced.leader, forced.would_lose_nothing.clone()), (None, vec![athens]));
    bed.ok(forced.command);
    assert_eq!(bed.row(0).status, PartitionStatus::Unassigned);
    bed.join("corinth", 9);
    bed.settle();
    assert_eq!(bed.online(), 1);
    assert_ne!(bed.leader(0), Some(athens));
}

#[test]
fn removal_reports_out_of_sync_copies() {
    let mut bed = TestBed::running(settings(3, 3, 3), &CITIES);
    let athens = bed.node("athens");
    bed.fail(athens);
    bed.settle();
    for index in 0..3 {
        let (leader, own) = (bed.leader(index).unwrap(), bed.row(index).leader.unwrap());
        let gone = bed.row(index).placement_on(athens).unwrap().id;
        let silent = ReplicaName { placement: gone, incarnation: bed.incarnation(athens) };
        let report = bed.fact(index, own, Fact::Silent { followers: vec![silent] });
        bed.report(leader, &report).unwrap();
    }
    // Its copies left the Live sets when it fell silent, and are given up nevertheless.
    let lost = check_lose_node(&bed.state, athens).unwrap();
    assert_eq!((lost.placements, lost.counting, lost.last_copies.len()), (3, 0, 0));
    let removal = check_remove(&bed.state, athens).unwrap();
    assert_eq!(removal.placements, 3);
    let mut other =
        TestBed { state: bed.state.clone(), liveness: bed.liveness.clone(), now: bed.now, beats: bed.beats };
    assert_eq!(other.ok(lost.command), Response::NodeLost { placements: 3, counting: 0, last_copies: 0 });
    assert_eq!(bed.ok(removal.command), Response::NodeRemoved { placements: 3 });
    assert_eq!(events(&bed, |what| matches!(what, EventKind::NodeRemoved { placements: 3, .. })), 1);
}

#[test]
fn refusal_uses_display_names() {
    let mut bed = TestBed::running(settings(1, 1, 1), &["athens"]);
    let served = check_force_leader(&bed.state, &bed.liveness, bed.now, part(0), None).unwrap_err();
    assert_eq!(
        served[0].to_string(),
        "no data needs to be lost: athens is alive and holds an in-sync replica of partition default/0"
    );
    bed.fail(bed.node("athens"));
    let held = check_remove(&bed.state, bed.node("athens")).unwrap_err();
    assert!(held[0].to_string().contains("(default/0)"), "{held:?}");
}

//! First assignment, failure, election, withdrawal, reports, deltas.

use crate::bed::{TABLE, TestBed, facts_of, part, register, settings};
use archon_coordinator_core::*;
use archon_types::*;

const CITIES: [&str; 3] = ["athens", "byzantium", "cyrene"];

#[test]
fn first_assignment_is_round_robin() {
    let mut bed = TestBed::new(settings(9, 3, 1));
    bed.join("athens", 1);
    bed.join("byzantium", 2);
    assert_eq!(bed.turn(), vec![]);
    let error = table_ready(&bed.state, TABLE).unwrap_err();
    assert_eq!((error.kind, error.have, error.need), (ErrorKind::NotEnoughNodes, Some(2), Some(3)));
    assert_eq!(
        facts_of(explain(&bed.state, &LeaderView::default(), part(0)).unwrap()),
        [Facts::NotEnoughNodes { have: 2, need: 3 }]
    );

    bed.join("cyrene", 3);
    let commands = bed.turn();
    let expected: Vec<PartitionChange> = (0..9)
        .map(|p: u32| {
            let node = NodeId::new(1 + u64::from(p % 3));
            let placement = Placement { id: PlacementId::new(1 + u64::from(p)), node, state: ReplicaState::Live };
            PartitionChange::one(part(p), bed.row(p).version, Edit::Assign(vec![placement]))
        })
        .collect();
    assert_eq!(commands, vec![Command::Change(expected)]);
    // Until it is applied the same is not proposed again.
    assert_eq!(bed.turn(), vec![]);
    bed.commit(commands);
    assert!(table_ready(&bed.state, TABLE).is_ok());
    assert_eq!(bed.row(0).status, PartitionStatus::Assigned);
    bed.settle();
    assert_eq!((bed.online(), bed.spread()), (9, vec![3, 3, 3]));
}

#[test]
fn replicas_stand_on_distinct_nodes_and_zones() {
    let mut bed = TestBed::new(settings(12, 4, 2));
    for (number, zone) in ["east", "east", "west", "west"].iter().enumerate() {
        let register = register(&format!("n{number}"), 1 + number as u128, 50 + number as u128);
        bed.join_with(Register { zone: Some((*zone).into()), ..register });
    }
    bed.settle();
    for row in bed.state.partitions.iter() {
        let zones: Vec<_> = row.placements.iter().map(|p| bed.state.node(p.node).unwrap().node.zone.clone()).collect();
        assert_ne!(zones[0], zones[1], "{row:?}");
        assert_eq!(row.min_in_sync, 1);
    }
    assert_eq!(bed.online(), 12);
}

#[test]
fn silent_node_is_failed_once_and_returns_with_data() {
    let mut bed = TestBed::running(settings(9, 3, 1), &CITIES);
    let athens = bed.node("athens");
    let incarnation = bed.incarnation(athens);
    bed.heartbeat_all();
    bed.now = bed.now.plus(1_249);
    for other in ["byzantium", "cyrene"] {
        let other = bed.node(other);
        bed.heartbeat(other);
    }
    assert_eq!(bed.turn(), vec![]);
    bed.now = bed.now.plus(1);
    assert_eq!(bed.turn(), vec![Command::NodeFailed { node: athens, incarnation, successors: vec![] }]);
    // From here on it gets no answer, even before the entry is committed, and the command is not repeated at once.
    let now = bed.now;
    let refused = [
        bed.liveness.heard(&bed.state, athens, incarnation, 1_000, now).unwrap_err(),
        // Even if it was heard before.
        bed.liveness.answer(&bed.state, athens, incarnation, now).unwrap_err(),
    ];
    // A coordinator that was paused, and no longer leads, returns the same error.
    assert_eq!(refused.map(|error| error.kind), [ErrorKind::Unavailable; 2]);
    assert_eq!(bed.turn(), vec![]);
    let row = bed.row(0).clone();
    bed.ok(Command::NodeFailed { node: athens, incarnation, successors: vec![] });
    assert_eq!(bed.row(0).status, PartitionStatus::Unavailable);
    assert_eq!(bed.row(0).epoch, row.epoch.next().unwrap());
    assert_eq!(bed.online(), 6);
    let why = explain(&bed.state, &LeaderView::default(), part(0)).unwrap();
    assert_eq!(why[0].since, bed.now);
    assert_eq!(facts_of(why), [Facts::NoLiveReplica { node: bed.state.node_name(athens) }]);
    assert_eq!(duties(&bed.state, athens), None);

    // The same process, awake again, registers a new incarnation and is served at once: its lease ended long ago.
    bed.rejoin(athens, 1_001);
    assert_ne!(bed.incarnation(athens), incarnation);
    assert_eq!(bed.turn().len(), 3);
    bed.now = bed.now.plus(1_000);
    bed.settle();
    assert_eq!(bed.online(), 9);
    bed.round_trip();
}

#[test]
fn late_answer_postpones_failure() {
    let mut bed = TestBed::running(settings(2, 2, 2), &["athens", "byzantium"]);
    let (athens, byzantium) = (bed.node("athens"), bed.node("byzantium"));
    bed.heartbeat_all();
    // The quorum round for this heartbeat takes a second; the lease it grants is counted from its sending, the
    // failure from its answer.
    let incarnation = bed.incarnation(athens);
    bed.now = bed.now.plus(1_000);
    let now = bed.now;
    assert!(bed.liveness.answer(&bed.state, athens, incarnation, now).is_ok());
    bed.now = bed.now.plus(1_249);
    bed.heartbeat(byzantium);
    assert_eq!(bed.turn(), vec![]);
    bed.now = bed.now.plus(1);
    assert_eq!(bed.turn().len(), 1);
}

#[test]
fn one_entry_fails_node_and_names_successors() {
    let mut bed = TestBed::running(settings(6, 3, 3), &CITIES);
    let athens = bed.node("athens");
    bed.heartbeat_all();
    bed.pass(1_200, &[athens]);
    bed.now = bed.now.plus(100);
    let commands = bed.turn();
    let [Command::NodeFailed { node, successors, .. }] = &commands[..] else { panic!("{commands:?}") };
    assert_eq!((*node, successors.len()), (athens, 2));
    // They are spread over the nodes.
    let leaders: Vec<NodeId> = successors
        .iter()
        .map(|s| bed.state.partition(s.partition).unwrap().placement(s.placement).unwrap().node)
        .collect();
    assert_ne!(leaders[0], leaders[1]);
    bed.commit(commands);
    assert!(bed.state.partitions.iter().all(|row| row.leader.is_some()));
    assert_eq!(bed.row(0).live().count(), 3, "the Live set changes only at a leader's request");
}

#[test]
fn unable_successor_is_left_out() {
    let mut bed = TestBed::running(settings(3, 3, 3), &CITIES);
    let athens = bed.node("athens");
    let mut commands = on_stopping(&bed.state, &bed.liveness, athens, bed.incarnation(athens)).unwrap();
    let Command::NodeFailed { successors, .. } = &mut commands[0] else { panic!() };
    assert_eq!(successors.len(), 1);
    // Naming the failed node itself, or another incarnation, must not make it lead.
    let own = bed.row(0).leader.unwrap();
    successors[0].placement = own;
    successors[0].incarnation = bed.incarnation(athens);
    bed.commit(commands);
    assert_eq!(bed.row(0).leader, None);
    bed.settle();
    assert_eq!(bed.online(), 3);
}

#[test]
fn stopped_node_is_failed_and_served_again_at_once() {
    let mut bed = TestBed::running(settings(3, 1, 1), &["athens"]);
    let athens = bed.node("athens");
    bed.heartbeat_all();
    let commands = on_stopping(&bed.state, &bed.liveness, athens, bed.incarnation(athens)).unwrap();
    bed.commit(commands);
    assert_eq!(bed.state.node(athens).unwrap().node.status, NodeStatus::Failed);
    bed.rejoin(athens, 500);
    assert_eq!(bed.turn().len(), 3, "no lease to wait for");
}

#[test]
fn released_leadership_is_elected_again() {
    let mut bed = TestBed::running(settings(1, 1, 1), &["athens"]);
    let athens = bed.node("athens");
    let placement = bed.row(0).leader.unwrap();
    let released = bed.fact(0, placement, Fact::Released);
    let epoch = bed.row(0).epoch;
    bed.report(athens, &released).unwrap();
    assert_eq!((bed.row(0).leader, bed.row(0).epoch), (None, epoch.next().unwrap()));
    let commands = bed.turn();
    assert_eq!(commands.len(), 1);
    bed.commit(commands);
    assert!(bed.row(0).epoch > epoch.next().unwrap());
    // The report of the earlier epoch has no effect.
    assert_eq!(bed.report(athens, &released).unwrap_err().kind, ErrorKind::StaleEpoch);
}

#[test]
fn withdrawn_leadership_moves_after_last_covering_answer() {
    let mut bed = TestBed::running(settings(2, 2, 2), &["athens", "byzantium"]);
    let (athens, byzantium) = (bed.node("athens"), bed.node("byzantium"));
    let epoch = bed.row(0).epoch;
    assert_eq!(bed.leader(0), Some(athens));
    bed.heartbeat_all();
    assert!(bed.liveness.withdraw(&bed.state, part(0)));
    assert_eq!(bed.turn(), vec![]);
    // The holder is still heard: its lease covers the rest.
    bed.pass(1_200, &[]);
    assert_eq!(bed.leader(0), Some(athens));
    assert_eq!(bed.heartbeat(athens).unwrap().withdrawn, vec![(part(0), epoch)]);
    assert_eq!(bed.heartbeat(byzantium).unwrap().withdrawn, vec![]);
    bed.pass(100, &[]);
    assert!(bed.row(0).epoch > epoch);
    // Its incarnation goes on, and may not know: a new coordinator knows it too, from the state.
    bed.liveness = Liveness::new(bed.now);
    assert_eq!(bed.heartbeat(athens).unwrap().withdrawn, vec![(part(0), epoch)]);
    let placement = bed.state.former_leaders.get(part(0), epoch).unwrap().placement;
    let report = Report { epoch, ..bed.fact(0, placement, Fact::Released) };
    bed.report(athens, &report).unwrap();
    assert_eq!(bed.heartbeat(athens).unwrap().withdrawn, vec![]);
    assert!(bed.state.former_leaders.is_empty());
}

#[test]
fn leader_cannot_shrink_live_set_below_minimum() {
    let mut bed = TestBed::running(settings(1, 3, 3), &CITIES);
    let leader = bed.leader(0).unwrap();
    let row = bed.row(0).clone();
    let others: Vec<ReplicaName> = row
        .live()
        .filter(|p| p.node != leader)
        .map(|p| ReplicaName { placement: p.id, incarnation: bed.incarnation(p.node) })
        .collect();
    let own = row.leader.unwrap();
    let both = bed.fact(0, own, Fact::Silent { followers: others.clone() });
    bed.report(leader, &both).unwrap();
    assert_eq!(bed.row(0).live().count(), 3);
    assert!(bed.row(0).version > row.version, "the refusal consumes the version");
    // The same request again names an outdated version.
    assert_eq!(bed.report(leader, &both).unwrap_err().kind, ErrorKind::StaleVersion);
    let one = bed.fact(0, own, Fact::Silent { followers: vec![others[0], others[0]] });
    bed.report(leader, &one).unwrap();
    assert_eq!(bed.row(0).live().count(), 2);
    assert_eq!(bed.row(0).placement(others[0].placement).unwrap().state, ReplicaState::Load);
    // Another incarnation of the joiner voids the request, and the leader learns it from a new version.
    let stale = ReplicaName { incarnation: Incarnation::new(1), ..others[0] };
    let version = bed.row(0).version;
    let wrong = bed.fact(0, own, Fact::CaughtUp { joiner: stale });
    bed.report(leader, &wrong).unwrap();
    assert_eq!(bed.row(0).live().count(), 2);
    assert!(bed.row(0).version > version);
    let right = bed.fact(0, own, Fact::CaughtUp { joiner: others[0] });
    bed.report(leader, &right).unwrap();
    assert_eq!(bed.row(0).live().count(), 3);
    // Only the leader may ask.
    let follower = bed.row(0).placement(others[1].placement).unwrap().node;
    let forged = bed.fact(0, others[1].placement, Fact::CaughtUp { joiner: others[0] });
    assert_eq!(bed.report(follower, &forged).unwrap_err().kind, ErrorKind::NotPartitionLeader);
}

#[test]
fn damaged_copy_leaves_live_set() {
    let mut bed = TestBed::running(settings(1, 2, 2), &["athens", "byzantium"]);
    let leader = bed.leader(0).unwrap();
    let own = bed.row(0).leader.unwrap();
    let damaged = bed.fact(0, own, Fact::Damaged { why: "bad checksum".into() });
    bed.report(leader, &damaged).unwrap();
    assert_eq!(bed.row(0).live().count(), 1);
    // Its data stays where it is until the other node is certain to be alive.
    assert_eq!(bed.row(0).placement(own).unwrap().state, ReplicaState::Load);
    bed.settle();
    assert_eq!(bed.online(), 1);
    // The same node loads it from its peer by itself, as another copy, without waiting for `replace_after`.
    assert_eq!((bed.row(0).live().count(), bed.row(0).placement(own)), (2, None));
    assert!(bed.state.events.iter().any(|event| matches!(event.what, EventKind::CopyDamaged { .. })));
}

#[test]
fn contradiction_of_leader_is_an_event_naming_both() {
    let mut bed = TestBed::running(settings(1, 2, 2), &["athens", "byzantium"]);
    let leader = bed.row(0).leader.unwrap();
    let other = *bed.row(0).placements.iter().find(|copy| copy.id != leader).unwrap();
    let before = bed.row(0).clone();
    let lost = Fact::LostData { leader, commit: Seq::new(9), agreed: Seq::new(7) };
    let report = bed.fact(0, other.id, lost);
    bed.report(other.node, &report).unwrap();
    let disputed = bed.state.events.iter().find_map(|event| match &event.what {
        EventKind::DataDisputed { placement, leader, leader_node, commit, .. } => {
            Some((*placement, *leader, *leader_node, *commit))
        }
        _ => None,
    });
    let leader_node = before.placement(leader).map(|copy| copy.node);
    assert_eq!(disputed, Some((other.id, leader, leader_node, Seq::new(9))));
    // Neither copy is discarded for it.
    assert_eq!((before.placements, before.leader), (bed.row(0).placements.clone(), bed.row(0).leader));
}

#[test]
fn unfitting_reports_change_nothing() {
    let mut bed = TestBed::running(settings(2, 2, 1), &["athens", "byzantium"]);
    let (athens, byzantium) = (bed.node("athens"), bed.node("byzantium"));
    let placement = bed.row(0).leader.unwrap();
    let good = bed.fact(0, placement, Fact::Unloaded);
    let kind = |bed: &mut TestBed, node, report: &Report| bed.report(node, report).unwrap_err().kind;
    assert_eq!(kind(&mut bed, athens, &good), ErrorKind::Refused);
    let other = Report { fact: Fact::Online, ..good.clone() };
    assert_eq!(kind(&mut bed, byzantium, &other), ErrorKind::NotFound);
    let nowhere = Report { partition: part(99), ..good.clone() };
    assert_eq!(kind(&mut bed, athens, &nowhere), ErrorKind::NotFound);
    let old = Report { epoch: Epoch::ZERO, fact: Fact::Released, ..good.clone() };
    assert_eq!(kind(&mut bed, athens, &old), ErrorKind::StaleEpoch);
    // A fact that holds already needs no command.
    assert_eq!(bed.report(athens, &Report { fact: Fact::Online, ..good.clone() }).unwrap(), vec![]);
    assert_eq!(bed.report(byzantium, &good).unwrap(), vec![]);
    assert_eq!(
        on_report(&bed.state, &mut bed.liveness, bed.now, athens, Incarnation::new(1), &good).unwrap_err().kind,
        ErrorKind::StaleIncarnation
    );
}

#[test]
fn delta_brings_older_table_up_to_date() {
    let mut bed = TestBed::running(settings(9, 3, 1), &CITIES);
    let mut cached =
        PartitionTable::from_whole(table_piece(&bed.state, TABLE, Version::ZERO, 0).unwrap().delta).unwrap();
    let since = cached.version();
    assert_eq!(since, bed.state.table_version());
    assert!(table_piece(&bed.state, TABLE, since, 0).unwrap().delta.partitions.is_empty());
    let athens = bed.node("athens");
    bed.pass(2_000, &[athens]);
    let newer = table_piece(&bed.state, TABLE, since, 0).unwrap().delta;
    assert_eq!((newer.partitions.len(), newer.nodes.len()), (3, 1));
    assert!(cached.merge(newer));
    let whole = PartitionTable::from_whole(table_piece(&bed.state, TABLE, Version::ZERO, 0).unwrap().delta).unwrap();
    assert_eq!(cached, whole);
    assert_eq!(table_piece(&bed.state, TableId::new(9), Version::ZERO, 0), None);
    assert_eq!(table_piece(&bed.state, TABLE, Version::new(u64::MAX), 0).unwrap().delta.partitions, vec![]);
}

#[test]
fn change_is_all_or_nothing() {
    let mut bed = TestBed::running(settings(2, 2, 1), &["athens", "byzantium"]);
    let good = PartitionChange::one(part(0), bed.row(0).version, Edit::Vacate(LeadershipEnd::Released));
    let stale = PartitionChange::one(part(1), Version::new(1), Edit::Refuse);
    assert_eq!(bed.refused(Command::Change(vec![good.clone(), stale])), ErrorKind::StaleVersion);
    let wrong = PartitionChange {
        edits: vec![Edit::Vacate(LeadershipEnd::Released), Edit::Unload(bed.row(1).leader.unwrap())],
        ..PartitionChange::one(part(1), bed.row(1).version, Edit::Refuse)
    };
    assert_eq!(bed.refused(Command::Change(vec![good.clone(), wrong])), ErrorKind::NotEnoughReplicas);
    // Two changes of one row in one command: the second names an outdated version.
    assert_eq!(bed.refused(Command::Change(vec![good.clone(), good])), ErrorKind::StaleVersion);
}

#[test]
fn stopping_node_gets_no_released_leadership() {
    let mut bed = TestBed::running(settings(3, 1, 1), &["athens"]);
    bed.settle();
    let athens = bed.node("athens");
    let incarnation = bed.incarnation(athens);
    bed.liveness.note_stopping(athens, incarnation);
    let own = bed.row(0).leader.expect("it leads");
    bed.report(athens, &bed.fact(0, own, Fact::Released)).expect("a release is taken");
    bed.pass(100, &[]);
    assert_eq!(bed.turn(), [], "nothing is granted to a node that is about to exit");
    assert_eq!(bed.leader(0), None);

    // Its next incarnation leads again.
    bed.rejoin(athens, 77);
    bed.settle();
    assert_eq!(bed.leader(0), Some(athens));
}

#[test]
fn copies_of_stopping_node_leave_live_set_early() {
    let mut bed = TestBed::running(settings(3, 3, 3), &CITIES);
    let athens = bed.node("athens");
    let incarnation = bed.incarnation(athens);
    assert!(bed.liveness.note_stopping(athens, incarnation));
    assert!(!bed.liveness.note_stopping(athens, incarnation), "that is no news");
    // Its leaders, which find it caught up, request it repeatedly.
    for _ in 0..20 {
        bed.round(&[]);
    }
    for row in bed.state.partitions.iter() {
        let own = row.placement_on(athens).unwrap();
        let expected = if row.leader == Some(own.id) { ReplicaState::Live } else { ReplicaState::Load };
        assert_eq!(own.state, expected, "its own leaderships wait for its word: {row:?}");
    }
    // Another node leaves: two of three is the minimum, so no copy of it is dropped.
    let byzantium = bed.node("byzantium");
    let incarnation = bed.incarnation(byzantium);
    assert!(bed.liveness.note_stopping(byzantium, incarnation));
    for _ in 0..20 {
        bed.round(&[]);
    }
    for row in bed.state.partitions.iter() {
        assert!(row.live().count() >= usize::from(row.min_in_sync), "{row:?}");
    }
}

#[test]
fn copy_on_stopping_node_stays_live_while_needed() {
    let mut bed = TestBed::running(settings(1, 3, 3), &["athens", "byzantium", "cyrene"]);
    let leader = bed.leader(0).unwrap();
    let others: Vec<NodeId> = bed.row(0).live().map(|live| live.node).filter(|node| *node != leader).collect();
    // One follower's node has failed, and its copy is still in sync: the leader has not dropped it.
    bed.fail(others[0]);
    assert_eq!(bed.row(0).live().count(), 3);
    let incarnation = bed.incarnation(others[1]);
    bed.heartbeat_all();
    assert!(bed.liveness.note_stopping(others[1], incarnation));
    bed.pass(300, &[]);
    assert!(bed.row(0).live().any(|live| live.node == others[1]), "a write would rest on the leader alone");
    // Once the failed one is back, the stopping one may leave.
    bed.rejoin(others[0], 90);
    bed.pass(300, &[]);
    assert!(bed.row(0).live().all(|live| live.node != others[1]), "{:?}", bed.row(0));
}

//! Orders of operators about partitions and members, and their effects.

use crate::bed::{TABLE, TestBed, facts_of, part, register, settings};
use archon_coordinator_core::*;
use archon_types::*;

fn order(bed: &mut TestBed, order: Order) {
    let command = check_order(&bed.state, order, "a test").expect("possible").expect("news");
    bed.ok(command);
}

fn three() -> TestBed {
    TestBed::running(settings(6, 3, 2), &["athens", "byzantium", "cyrene"])
}

fn why(bed: &TestBed, index: u32) -> Vec<Finding> {
    let remembered = LeaderView::new(&bed.state, &bed.liveness, bed.now);
    explain(&bed.state, &remembered, part(index)).expect("a partition")
}

fn holds(bed: &TestBed, index: u32, node: NodeId) -> bool {
    bed.row(index).placement_on(node).is_some()
}

/// Releases a leadership like a node that learns of its withdrawal.
fn release(bed: &mut TestBed, index: u32) {
    let leader = *bed.row(index).leader_placement().expect("a leader");
    let listed = bed.heartbeat(leader.node).expect("an answer").withdrawn;
    assert_eq!(listed, [(part(index), bed.row(index).epoch)]);
    let report = bed.fact(index, leader.id, Fact::Released);
    bed.report(leader.node, &report).expect("taken in");
}

#[test]
fn bumped_partition_keeps_its_leader_in_next_epoch() {
    let mut bed = three();
    let (leader, epoch) = (bed.row(0).leader, bed.row(0).epoch);
    order(&mut bed, Order::Bump { partition: part(0), epoch });
    bed.turn();
    release(&mut bed, 0);
    assert_eq!((bed.row(0).leader, bed.row(0).epoch), (leader, epoch.next().unwrap()));
    assert!(!bed.state.is_bumped(part(0)), "once");
    bed.settle();
    assert_eq!(bed.row(0).epoch, epoch.next().unwrap());
    let stale = Command::Control {
        if_controls: bed.state.controls_version,
        order: Order::Bump { partition: part(0), epoch },
        why: String::new(),
    };
    assert_eq!(bed.refused(stale), ErrorKind::StaleVersion);
}

#[test]
fn offline_partition_has_no_leader_and_keeps_its_copies() {
    let mut bed = three();
    let (placements, epoch) = (bed.row(0).placements.clone(), bed.row(0).epoch);
    order(&mut bed, Order::Offline { partition: part(0) });
    bed.turn();
    release(&mut bed, 0);
    bed.settle();
    bed.round_trip();
    assert_eq!((bed.row(0).status, bed.row(0).leader), (PartitionStatus::Offline, None));
    assert_eq!(bed.row(0).placements, placements);
    assert_eq!(facts_of(why(&bed, 0)), [Facts::Offline { why: "a test".to_owned() }]);
    assert_eq!(counts(&bed.state).partitions_offline, 1);
    assert_eq!(check_order(&bed.state, Order::Offline { partition: part(0) }, ""), Ok(None), "it is");
    let bump = Order::Bump { partition: part(0), epoch };
    assert!(matches!(check_order(&bed.state, bump, "").unwrap_err()[..], [Obstacle::NoLeader { .. }]));
    order(&mut bed, Order::Online { partition: part(0) });
    bed.settle();
    assert_eq!(bed.row(0).status, PartitionStatus::Online);
    assert!(bed.row(0).epoch > epoch);
}

#[test]
fn offline_waits_for_lease_of_silent_leader() {
    let mut bed = three();
    let leader = bed.leader(0).unwrap();
    bed.heartbeat_all();
    order(&mut bed, Order::Offline { partition: part(0) });
    bed.turn();
    bed.pass(1_000, &[leader]);
    assert_eq!(bed.leader(0), Some(leader), "it may serve");
    bed.pass(500, &[leader]);
    assert_eq!(bed.row(0).status, PartitionStatus::Offline);
}

#[test]
fn unassigned_partition_can_be_taken_offline() {
    let mut bed = TestBed::new(settings(2, 1, 1));
    order(&mut bed, Order::Offline { partition: part(0) });
    bed.join("athens", 1);
    bed.settle();
    assert_eq!(bed.row(0).status, PartitionStatus::Unassigned);
    assert_eq!(bed.row(1).status, PartitionStatus::Online);
    order(&mut bed, Order::Online { partition: part(0) });
    bed.settle();
    assert_eq!(bed.row(0).status, PartitionStatus::Online);
}

#[test]
fn copy_on_barred_node_is_replaced_elsewhere() {
    let mut bed = three();
    let barred = bed.leader(0).unwrap();
    order(&mut bed, Order::Bar { bar: Bar::Partition(part(0)), member: barred });
    bed.settle();
    assert!(!holds(&bed, 0, barred));
    assert_eq!(bed.row(0).live().count(), 2);
    assert_eq!(bed.online(), 6);
    for node in ["athens", "byzantium", "cyrene"].map(|name| bed.node(name)).into_iter().filter(|node| *node != barred)
    {
        let order = Order::Bar { bar: Bar::Partition(part(0)), member: node };
        let obstacles = check_order(&bed.state, order, "").unwrap_err();
        assert!(matches!(obstacles[..], [Obstacle::TooFewUnbarred { have: 1, need: 2, .. }]), "{obstacles:?}");
    }
    let planned = plan(&bed.state, Goal::default()).moves;
    assert!(planned.iter().all(|planned| planned.partition != part(0) || planned.to != barred), "{planned:?}");
    order(&mut bed, Order::Unbar { bar: Bar::Partition(part(0)), member: barred });
    assert!(bed.state.controls.bars().next().is_none());
    bed.round_trip();
}

#[test]
fn node_barred_from_table_holds_no_copy_of_it() {
    let mut bed = three();
    let other = Command::CreateTable {
        name: "orders".into(),
        partitioning: Partitioning::Hash { partitions: 3 },
        replication: 2,
        holds: TableContent::Data,
    };
    bed.ok(other);
    bed.settle();
    let barred = bed.node("cyrene");
    let bar = Bar::Table(TABLE);
    order(&mut bed, Order::Bar { bar, member: barred });
    bed.settle();
    assert!((0..6).all(|index| !holds(&bed, index, barred)));
    assert!(bed.state.partitions.count_on(barred) > 0, "of the other table");
    bed.round_trip();
    bed.ok(Command::DropTable { table: TABLE });
    assert!(bed.state.controls.bars().next().is_none(), "gone with its table");
}

#[test]
fn node_in_maintenance_leads_nothing_and_keeps_its_copies() {
    let mut bed = TestBed::running(
        Settings { replace_after_ms: 2_000, ..settings(6, 3, 2) },
        &["athens", "byzantium", "cyrene", "delphi"],
    );
    let node = bed.node("athens");
    let held = bed.state.partitions.held_on(node);
    let until = bed.now.plus(60_000);
    order(&mut bed, Order::Maintain { member: node, until });
    bed.settle();
    assert_eq!((bed.state.partitions.leaders_on(node), bed.state.partitions.held_on(node)), (0, held));
    bed.pass(10_000, &[node]);
    assert!(!bed.state.is_alive(node));
    assert_eq!(bed.state.partitions.held_on(node), held, "somebody works on it");
    bed.pass(60_000, &[node]);
    assert_eq!(bed.state.node(node).unwrap().node.goal, NodeGoal::Serve, "over by itself");
    bed.settle();
    assert_eq!(bed.state.partitions.held_on(node), 0, "it did not come back");
}

/// The next leader's clock was three hours ahead: the order ended at once, and the copies of a node in maintenance were
/// replaced.
#[test]
fn maintenance_duration_is_independent_of_leader_clock() {
    let minute = 60_000;
    for wrong_by in [3 * 60 * minute, 0] {
        let mut bed = TestBed::new(settings(6, 3, 2));
        for (number, name) in (1..).zip(["athens", "byzantium", "cyrene"]) {
            bed.join_with(Register { protocol_max: 2, ..register(name, number, number + 1_000) });
        }
        bed.settle();
        bed.ok(Command::RaiseProtocol { to: 2 });
        let node = bed.node("athens");
        let until = bed.now.plus(10 * minute);
        order(&mut bed, Order::Maintain { member: node, until });
        bed.pass(5 * minute + 1_000, &[]);
        bed.liveness = Liveness::new(bed.now);
        bed.liveness.set_wall(bed.now, Millis::new(wrong_by));
        bed.pass(4 * minute, &[]);
        let goal = |bed: &TestBed| bed.state.node(node).unwrap().node.goal;
        assert_eq!(goal(&bed), NodeGoal::Maintain, "wrong by {wrong_by} ms");
        let remembered = LeaderView::new(&bed.state, &bed.liveness, bed.now);
        let left = remembered.maintenance_left_ms(&bed.state, node).expect("in maintenance");
        assert!((minute / 2..=2 * minute).contains(&left), "{left}");
        bed.round_trip();
        bed.pass(2 * minute, &[]);
        assert_eq!(goal(&bed), NodeGoal::Serve, "over by itself, a minute late at most");
    }
}

#[test]
fn record_of_an_earlier_maintenance_is_refused() {
    let mut bed = three();
    let member = bed.node("athens");
    let until = bed.now.plus(60_000);
    order(&mut bed, Order::Maintain { member, until });
    bed.ok(Command::RecordMaintenance { member, until, left_ms: 40_000 });
    bed.ok(Command::RecordMaintenance { member, until, left_ms: 50_000 });
    let left = |bed: &TestBed| bed.state.controls.maintenance_of(member).unwrap().left_ms();
    assert_eq!(left(&bed), 40_000, "it never rises");
    order(&mut bed, Order::Maintain { member, until: until.plus(1) });
    assert_eq!(bed.refused(Command::RecordMaintenance { member, until, left_ms: 1 }), ErrorKind::NotFound);
    assert_eq!(left(&bed), 60_001);
}

/// A surplus copy appeared because a third node failed and returned: the copy in maintenance was removed.
#[test]
fn copy_in_maintenance_is_kept_when_another_node_returns() {
    let mut bed = TestBed::running(
        Settings { replace_after_ms: 2_000, ..settings(8, 4, 3) },
        &["athens", "byzantium", "cyrene", "delphi"],
    );
    let (node, other) = (bed.node("athens"), bed.node("byzantium"));
    let held = bed.state.partitions.held_on(node);
    let until = bed.now.plus(600_000);
    order(&mut bed, Order::Maintain { member: node, until });
    bed.settle();
    bed.fail(node);
    bed.settle();
    bed.fail(other);
    bed.pass(10_000, &[node, other]);
    bed.settle();
    assert!(bed.state.partitions.iter().any(|row| row.placements.len() == 4), "{:#?}", bed.state.events);
    bed.rejoin(other, 900);
    bed.settle();
    assert_eq!(bed.state.partitions.held_on(node), held, "{:#?}", bed.state.events);
    bed.rejoin(node, 901);
    bed.settle();
    assert!(bed.state.partitions.iter().all(|row| row.live().count() == 3 && row.placements.len() == 3));
}

#[test]
fn end_of_maintenance_restores_previous_goal() {
    let mut bed = three();
    let node = bed.node("athens");
    bed.ok(Command::SetNode { node, goal: NodeGoal::Cordon, if_nodes: None });
    let until = bed.now.plus(60_000);
    order(&mut bed, Order::Maintain { member: node, until });
    order(&mut bed, Order::Maintain { member: node, until: until.plus(1) });
    order(&mut bed, Order::Resume { member: node });
    assert_eq!(bed.state.node(node).unwrap().node.goal, NodeGoal::Cordon);
    assert!(matches!(
        check_order(&bed.state, Order::Resume { member: node }, "").unwrap_err()[..],
        [Obstacle::NotInMaintenance { .. }]
    ));
    bed.ok(Command::SetNode { node, goal: NodeGoal::Drain, if_nodes: None });
    let obstacles = check_order(&bed.state, Order::Maintain { member: node, until }, "").unwrap_err();
    assert!(matches!(obstacles[..], [Obstacle::Draining { .. }]));
    let maintain = Command::SetNode { node, goal: NodeGoal::Maintain, if_nodes: None };
    assert_eq!(bed.refused(maintain), ErrorKind::InvalidArgument);
}

#[test]
fn order_checked_against_outdated_orders_is_refused() {
    let mut bed = three();
    let bar = |bed: &TestBed, name: &str| {
        check_order(&bed.state, Order::Bar { bar: Bar::Table(TABLE), member: bed.node(name) }, "").unwrap().unwrap()
    };
    let (first, second) = (bar(&bed, "athens"), bar(&bed, "byzantium"));
    bed.ok(first);
    assert_eq!(bed.refused(second), ErrorKind::StaleVersion, "both together leave one node for two copies");
}

#[test]
fn alerts_precede_unavailability() {
    let thresholds = Thresholds { stale_after_ms: Some(300_000), members_min: None, held_for_ms: 3_600_000 };
    let mut bed = three();
    let found = |bed: &TestBed, thresholds| alerts(&bed.state, &bed.liveness, bed.now, thresholds);
    assert_eq!(found(&bed, thresholds), []);
    let members_min = Some((None, 4));
    let few = found(&bed, Thresholds { members_min, ..thresholds });
    assert_eq!(few[0].subject, subject::Subject::Cluster);
    assert_eq!(facts_of(few), [Facts::TooFewMembers { have: 3, need: 4 }]);
    for (name, most) in [("athens", 4), ("byzantium", 4), ("cyrene", 4)] {
        let node = bed.node(name);
        let change = TraitsChange { partitions_max: Some(Some(most)), ..TraitsChange::default() };
        let command = check_alter_node(&bed.state, node, &change).unwrap().command.unwrap();
        bed.ok(command);
    }
    let without = bed.node("cyrene");
    let no_spare = Facts::NoSpareRoom { without: "cyrene".to_owned(), have: 8, need: 12 };
    assert_eq!(facts_of(found(&bed, thresholds)), [no_spare]);
    bed.ok(Command::SetNode { node: without, goal: NodeGoal::Cordon, if_nodes: None });
    let told = found(&bed, thresholds);
    assert_eq!(told[0].facts, Facts::TooLittleRoom { have: 8, need: 12 });
    assert!(is_cordon(&bed, &told[1], without, false) && told.len() == 2, "{told:?}");
    order(&mut bed, Order::Offline { partition: part(0) });
    let since = bed.state.controls.offline_of(part(0)).unwrap().at;
    let ordered = |order, code: fn(StandingOrder) -> Facts| {
        Finding::new(bed.state.partition_subject(part(0)), code(order)).since(since).alert()
    };
    let stands = |order| Facts::OrderStands { order, excluded: None };
    let forgotten = ordered(StandingOrder::Offline, |order| Facts::HeldTooLong { order, excluded: None });
    let ordered = [StandingOrder::GoingOffline, StandingOrder::Offline].map(|order| ordered(order, stands));
    assert!(found(&bed, thresholds).contains(&ordered[0]), "its leader has not released it yet");
    bed.settle();
    let reported = found(&bed, thresholds);
    assert!(!ordered.iter().any(|one| reported.contains(one)), "that it is offline has a reason of its own");
    bed.now = bed.now.plus(3_600_000);
    bed.heartbeat_all();
    let held = found(&bed, thresholds);
    assert_eq!(held[1], forgotten);
    assert!(is_cordon(&bed, &held[2], without, true), "{held:?}");
    assert_eq!(held.len(), 3);
}

/// Returns true if the alert reports `member` as cordoned with this `long` flag.
fn is_cordon(bed: &TestBed, alert: &Finding, member: NodeId, long: bool) -> bool {
    let order = StandingOrder::Cordon;
    let facts = match long {
        true => Facts::HeldTooLong { order, excluded: None },
        false => Facts::OrderStands { order, excluded: None },
    };
    alert.facts == facts && alert.subject == bed.state.node_subject(member)
}

#[test]
fn fresh_orders_are_reported() {
    let thresholds = Thresholds { stale_after_ms: None, members_min: None, held_for_ms: 86_400_000 };
    let mut bed = three();
    let (cordoned, barred) = (bed.node("cyrene"), bed.node("athens"));
    bed.ok(Command::SetNode { node: cordoned, goal: NodeGoal::Cordon, if_nodes: None });
    let bar = Bar::Partition(part(0));
    order(&mut bed, Order::Bar { bar, member: barred });
    let told = alerts(&bed.state, &bed.liveness, bed.now, thresholds);
    let excluded = Some(bed.state.node_name(barred));
    assert_eq!(told[0].facts, Facts::OrderStands { order: StandingOrder::Exclusion, excluded });
    assert_eq!(told[0].subject, bed.state.partition_subject(part(0)));
    assert!(is_cordon(&bed, &told[1], cordoned, false) && told.len() == 2, "{told:?}");
}

#[test]
fn unextended_lease_is_stale() {
    let mut bed = three();
    let silent = bed.node("athens");
    bed.heartbeat_all();
    let thresholds = Thresholds { stale_after_ms: Some(500), members_min: None, held_for_ms: 3_600_000 };
    bed.pass(600, &[silent]);
    let stale = alerts(&bed.state, &bed.liveness, bed.now, thresholds);
    assert_eq!(stale[0].subject, bed.state.node_subject(silent));
    assert_eq!(facts_of(stale), [Facts::LeaseStale { silent_for_ms: 600 }]);
}

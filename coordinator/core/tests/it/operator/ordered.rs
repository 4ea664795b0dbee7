//! Standing orders of operators: they hold until revoked or done, through all changes of their subjects, and later
//! decisions respect them.

use crate::bed::{JOBS, TABLE, TestBed, boxed, part, register, settings, worker};
use archon_coordinator_core::*;
use archon_types::*;

fn order(bed: &mut TestBed, order: Order) {
    let command = check_order(&bed.state, order, "a test").expect("possible").expect("news");
    bed.ok(command);
}

fn goal(bed: &mut TestBed, node: NodeId, goal: NodeGoal) {
    bed.ok(Command::SetNode { node, goal, if_nodes: None });
}

fn job(index: u32) -> PartitionId {
    PartitionId::new(JOBS, index)
}

fn owner(bed: &TestBed, index: u32) -> Option<NodeId> {
    bed.state.partition(job(index)).expect("a partition").leader_placement().map(|copy| copy.node)
}

/// Reports that the leader of a partition stopped.
fn release(bed: &mut TestBed, partition: PartitionId) {
    let row = bed.state.partition(partition).expect("a partition").clone();
    let leader = *row.leader_placement().expect("a leader");
    let (placement, epoch, version) = (leader.id, row.epoch, row.version);
    let report = Report { partition, placement, epoch, version, fact: Fact::Released };
    bed.report(leader.node, &report).expect("taken in");
}

/// It came back under its name without its orders.
#[test]
fn participant_with_orders_is_not_forgotten() {
    let mut bed = TestBed::jobs(4, 4);
    bed.settle();
    let [barred, cordoned, free] = ["worker-0", "worker-1", "worker-2"].map(|name| bed.node(name));
    order(&mut bed, Order::Bar { bar: Bar::Table(JOBS), member: barred });
    goal(&mut bed, cordoned, NodeGoal::Cordon);
    bed.pass(2_000, &[barred, cordoned, free]);
    bed.settle();
    let an_hour_later = |bed: &mut TestBed| {
        bed.heartbeat_all();
        bed.now = bed.now.plus(3_600_000);
        bed.heartbeat_all();
        bed.settle();
    };
    an_hour_later(&mut bed);
    assert_eq!([barred, cordoned, free].map(|node| bed.state.node(node).is_some()), [true, true, false]);
    order(&mut bed, Order::Unbar { bar: Bar::Table(JOBS), member: barred });
    goal(&mut bed, cordoned, NodeGoal::Serve);
    an_hour_later(&mut bed);
    assert_eq!([barred, cordoned].map(|node| bed.state.node(node).is_some()), [false, false]);
}

#[test]
fn other_ends_of_maintenance_are_events() {
    let mut bed = TestBed::running(settings(4, 3, 2), &["athens", "byzantium", "cyrene"]);
    let node = bed.node("athens");
    let until = bed.now.plus(60_000);
    order(&mut bed, Order::Maintain { member: node, until });
    goal(&mut bed, node, NodeGoal::Cordon);
    let over = |event: &&Event| event.what == EventKind::MaintenanceOver { member: node };
    assert_eq!(bed.state.events.iter().filter(over).count(), 1);
    goal(&mut bed, node, NodeGoal::Serve);
    assert_eq!(bed.state.events.iter().filter(over).count(), 1);
}

/// Every verb that takes a name or a number took this name for a number.
#[test]
fn name_of_digits_only_is_refused() {
    let mut bed = TestBed::jobs(1, 0);
    assert_eq!(bed.refused(boxed(register("1", 7, 8))), ErrorKind::InvalidArgument);
    assert_eq!(bed.refused(boxed(Register { name: "007".into(), ..worker(1) })), ErrorKind::InvalidArgument);
    bed.join("1a", 7);
    bed.join_with(Register { name: "2-".into(), ..worker(1) });
}

#[test]
fn renewed_leadership_avoids_leaving_owner() {
    let mut bed = TestBed::running(settings(4, 3, 2), &["athens", "byzantium", "cyrene"]);
    let (leader, epoch) = (bed.leader(0).unwrap(), bed.row(0).epoch);
    order(&mut bed, Order::Bump { partition: part(0), epoch });
    bed.turn();
    order(&mut bed, Order::Bar { bar: Bar::Partition(part(0)), member: leader });
    release(&mut bed, part(0));
    assert!(bed.leader(0).is_some_and(|next| next != leader), "excluded from it");
    let (leader, epoch) = (bed.leader(1).unwrap(), bed.row(1).epoch);
    order(&mut bed, Order::Bump { partition: part(1), epoch });
    bed.turn();
    goal(&mut bed, leader, NodeGoal::Drain);
    release(&mut bed, part(1));
    assert!(bed.leader(1).is_some_and(|next| next != leader), "being drained");

    let mut bed = TestBed::jobs(1, 2);
    bed.settle();
    let (former, epoch) = (owner(&bed, 0).unwrap(), bed.state.partition(job(0)).unwrap().epoch);
    order(&mut bed, Order::Bump { partition: job(0), epoch });
    bed.turn();
    let until = bed.now.plus(60_000);
    order(&mut bed, Order::Maintain { member: former, until });
    release(&mut bed, job(0));
    assert!(owner(&bed, 0).is_some_and(|next| next != former), "in maintenance");
    assert!(!bed.state.is_bumped(job(0)));
}

#[test]
fn renewed_leadership_without_alternative_stays() {
    let mut bed = TestBed::jobs(1, 1);
    bed.settle();
    let (only, epoch) = (bed.node("worker-0"), bed.state.partition(job(0)).unwrap().epoch);
    goal(&mut bed, only, NodeGoal::Drain);
    order(&mut bed, Order::Bump { partition: job(0), epoch });
    bed.turn();
    release(&mut bed, job(0));
    assert_eq!((owner(&bed, 0), bed.state.partition(job(0)).unwrap().epoch), (Some(only), epoch.next().unwrap()));
    let mut bed = TestBed::running(settings(2, 1, 1), &["athens"]);
    let epoch = bed.row(0).epoch;
    let athens = bed.node("athens");
    goal(&mut bed, athens, NodeGoal::Drain);
    order(&mut bed, Order::Bump { partition: part(0), epoch });
    bed.turn();
    release(&mut bed, part(0));
    assert_eq!((bed.leader(0), bed.row(0).epoch), (Some(athens), epoch.next().unwrap()));
}

/// The last owner stays in the row of a lease until the next one.
#[test]
fn dead_participant_is_removed_and_its_leases_pass_on() {
    let mut bed = TestBed::jobs(2, 1);
    bed.settle();
    let dead = bed.node("worker-0");
    bed.pass(2_000, &[dead]);
    assert_eq!(bed.state.partitions.count_on(dead), 2);
    let lost = check_lose_node(&bed.state, dead).unwrap_err();
    assert!(lost[0].to_string().contains("archon node remove worker-0"), "{lost:?}");
    let forced = check_force_leader(&bed.state, &bed.liveness, bed.now, job(0), None).unwrap_err();
    assert!(forced[0].to_string().contains("is a lease"), "{forced:?}");
    let removal = check_remove(&bed.state, dead).expect("nothing is lost with it");
    bed.ok(removal.command);
    bed.settle();
    let next = bed.join_with(worker(1));
    bed.settle();
    assert_eq!([owner(&bed, 0), owner(&bed, 1)], [Some(next), Some(next)]);
    assert!(bed.state.partitions.of_table(JOBS).all(|row| row.status == PartitionStatus::Online));
}

#[test]
fn drain_blocked_by_bar_names_it() {
    let mut bed = TestBed::running(settings(2, 4, 2), &["athens", "byzantium", "cyrene", "delphi"]);
    let [athens, byzantium] = ["athens", "byzantium"].map(|name| bed.node(name));
    order(&mut bed, Order::Bar { bar: Bar::Table(TABLE), member: athens });
    order(&mut bed, Order::Bar { bar: Bar::Table(TABLE), member: byzantium });
    bed.settle();
    let obstacles = check_drain(&bed.state, bed.node("cyrene")).unwrap_err();
    assert!(obstacles[0].to_string().contains("excluded"), "{obstacles:?}");
}

#[test]
fn maintenance_lists_what_stays_led() {
    let mut bed = TestBed::running(settings(6, 3, 2), &["athens", "byzantium", "cyrene"]);
    let nodes = ["athens", "byzantium", "cyrene"].map(|name| bed.node(name));
    let thresholds = Thresholds { stale_after_ms: Some(300_000), members_min: None, held_for_ms: 3_600_000 };
    let warned = |bed: &TestBed| {
        let found = alerts(&bed.state, &bed.liveness, bed.now, thresholds);
        let table = bed.state.table_subject(TABLE);
        found.iter().any(|alert| alert.code() == ReasonCode::OnlyInMaintenance && alert.subject == table)
    };
    let until = bed.now.plus(600_000);
    for (number, member) in nodes.into_iter().enumerate() {
        order(&mut bed, Order::Maintain { member, until });
        bed.settle();
        let led: usize = nodes[..=number].iter().map(|node| still_led(&bed.state, *node).count()).sum();
        let held_by_both = |row: &&Partition| row.placements.iter().all(|copy| nodes[..=number].contains(&copy.node));
        assert_eq!(led, bed.state.partitions.iter().filter(held_by_both).count());
        assert_eq!(warned(&bed), led > 0);
    }
    assert_eq!(bed.online(), 6, "served all the same");
    order(&mut bed, Order::Resume { member: nodes[0] });
    order(&mut bed, Order::Resume { member: nodes[1] });
    bed.settle();
    assert!(!warned(&bed));

    let mut bed = TestBed::jobs(4, 2);
    bed.settle();
    let [first, second] = ["worker-0", "worker-1"].map(|name| bed.node(name));
    order(&mut bed, Order::Maintain { member: first, until });
    bed.settle();
    assert_eq!((still_led(&bed.state, first).count(), bed.state.partitions.leaders_on(second)), (0, 4));
    order(&mut bed, Order::Maintain { member: second, until });
    bed.settle();
    assert_eq!(still_led(&bed.state, second).count(), 4);
    let cordoned = bed.join_with(worker(7));
    goal(&mut bed, cordoned, NodeGoal::Cordon);
    assert_eq!(still_led(&bed.state, second).count(), 4, "it takes none");
    goal(&mut bed, cordoned, NodeGoal::Serve);
    assert_eq!(still_led(&bed.state, second).count(), 0);
}

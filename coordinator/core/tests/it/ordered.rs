//! Orders of operators stand until they are taken back or done, whatever becomes of whom they are about; and whatever follows asks
//! for them.

use crate::bed::{Bed, JOBS, settings};
use archon_coordinator_core::*;
use archon_types::*;

fn order(bed: &mut Bed, order: Order) {
    let command = check_order(&bed.state, order, "a test").expect("possible").expect("news");
    bed.ok(command);
}

fn goal(bed: &mut Bed, node: NodeId, goal: NodeGoal) {
    bed.ok(Command::SetNode { node, goal, if_nodes: None });
}

/// It came back under its name free of what had been ordered of it.
#[test]
fn a_participant_of_which_something_was_ordered_was_forgotten_after_an_hour() {
    let mut bed = Bed::jobs(4, 4);
    bed.settle();
    let [barred, cordoned, free] = ["worker-0", "worker-1", "worker-2"].map(|name| bed.node(name));
    order(&mut bed, Order::Bar { bar: Bar::Table(JOBS), member: barred });
    goal(&mut bed, cordoned, NodeGoal::Cordon);
    bed.pass(2_000, &[barred, cordoned, free]);
    bed.settle();
    let an_hour_later = |bed: &mut Bed| {
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
fn what_ends_a_maintenance_beside_its_own_verb_says_so() {
    let mut bed = Bed::running(settings(4, 3, 2), &["athens", "byzantium", "cyrene"]);
    let node = bed.node("athens");
    let until = bed.now.plus(60_000);
    order(&mut bed, Order::Maintain { member: node, until });
    goal(&mut bed, node, NodeGoal::Cordon);
    let over = |event: &&Event| event.what == EventKind::MaintenanceOver { member: node };
    assert_eq!(bed.state.events.iter().filter(over).count(), 1);
    goal(&mut bed, node, NodeGoal::Serve);
    assert_eq!(bed.state.events.iter().filter(over).count(), 1);
}

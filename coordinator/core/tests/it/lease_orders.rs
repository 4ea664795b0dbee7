//! Orders of which leases take no notice, participants that serve what is no lease, and owners that may be dead: all of it is said.

use crate::bed::register;
use crate::leases::{JOBS, Jobs, worker};
use archon_coordinator_core::*;
use archon_types::*;

const THRESHOLDS: Thresholds = Thresholds { stale_after_ms: None, members_min: None, held_for_ms: 3_600_000 };

fn give(jobs: &mut Jobs, order: Order) {
    let command = check_order(&jobs.bed.state, order, "").expect("possible").expect("news");
    jobs.bed.ok(command);
    jobs.bed.settle();
}

fn why(jobs: &Jobs, partition: PartitionId) -> Vec<Why> {
    explain(&jobs.bed.state, &Remembered::new(&jobs.bed.state, &jobs.bed.liveness, jobs.bed.now), partition)
        .expect("a partition")
}

fn found(jobs: &Jobs) -> Vec<Alert> {
    alerts(&jobs.bed.state, &jobs.bed.liveness, jobs.bed.now, THRESHOLDS)
}

#[test]
fn an_owner_that_was_barred_stayed_when_nobody_else_could_own_it_and_nobody_was_told() {
    let mut jobs = Jobs::with_workers(4, 2);
    let partition = PartitionId::new(JOBS, 0);
    let bar = Bar::Partition(partition);
    let owner = jobs.owners()[&0];
    let other = [jobs.worker(0), jobs.worker(1)].into_iter().find(|node| *node != owner).unwrap();
    give(&mut jobs, Order::Bar { bar, member: other });
    assert_eq!(why(&jobs, partition), []);
    give(&mut jobs, Order::Bar { bar, member: owner });
    assert_eq!(jobs.owners()[&0], owner);
    assert_eq!(why(&jobs, partition), [Why::OwnerStays { node: owner }]);
    assert_eq!(staying_leases(&jobs.bed.state), [(owner, vec![partition])].into());
    give(&mut jobs, Order::Unbar { bar, member: other });
    assert_eq!(jobs.owners()[&0], other);
    assert!(why(&jobs, partition).is_empty() && staying_leases(&jobs.bed.state).is_empty());
}

/// `archon check` told twice of one lease, with two remedies.
#[test]
fn a_lease_that_stays_through_maintenance_was_told_of_twice() {
    let mut jobs = Jobs::with_workers(2, 1);
    let (owner, until) = (jobs.worker(0), jobs.bed.now.plus(600_000));
    give(&mut jobs, Order::Maintain { member: owner, until });
    assert_eq!(staying_leases(&jobs.bed.state)[&owner].len(), 2);
    assert_eq!(still_led(&jobs.bed.state, owner).count(), 2, "whoever gives the order is told");
    assert_eq!(found(&jobs), []);
}

#[test]
fn a_drain_of_a_participant_told_of_nothing_that_it_hands_over() {
    let mut jobs = Jobs::with_workers(12, 3);
    let drained = jobs.worker(0);
    let goes = |jobs: &Jobs| check_drain(&jobs.bed.state, drained).unwrap().leaderships;
    assert_eq!(goes(&jobs), 4);
    for (number, most) in [(1, 5), (2, 6)] {
        let change = TraitsChange { partitions_max: Some(Some(most)), ..TraitsChange::default() };
        let command = check_alter_node(&jobs.bed.state, jobs.worker(number), &change).unwrap().command.unwrap();
        jobs.bed.ok(command);
    }
    assert_eq!(goes(&jobs), 3, "as many as the others have room for");
    for number in [1, 2] {
        let node = jobs.worker(number);
        jobs.bed.ok(Command::SetNode { node, goal: NodeGoal::Cordon, if_nodes: None });
    }
    let drain = check_drain(&jobs.bed.state, drained).unwrap();
    assert_eq!(drain.leaderships, 0);
    jobs.bed.ok(drain.command);
    jobs.bed.settle();
    assert_eq!(jobs.counts(), [4, 4, 4]);
    assert_eq!(staying_leases(&jobs.bed.state)[&drained].len(), 4);
}

#[test]
fn a_participant_of_a_table_that_is_none_of_leases_owned_nothing_and_looked_well() {
    let mut jobs = Jobs::with_workers(2, 1);
    assert_eq!(found(&jobs), []);
    let tables = ["jobs", "jbos", "default"].map(str::to_owned).to_vec();
    let participant = Some(Participant { tables, timing: None });
    let member = jobs.bed.join_with(Register { participant, ..register("typo", 77, 78) });
    jobs.bed.settle();
    let none = |table: &str| Alert::NoLeaseTable { member, table: table.to_owned() };
    assert_eq!(found(&jobs), [none("jbos"), none("default")]);
}

#[test]
fn an_owner_that_was_killed_looked_well_until_its_long_time_out_was_over() {
    let mut jobs = Jobs::new(2);
    let timing = LeaseTiming { heartbeat_ms: 8_000, lease_ms: 30_000, failure_timeout_ms: 45_000, margin_ms: 100 };
    let participant = Some(Participant { tables: vec!["jobs".into()], timing: Some(timing) });
    let slow = jobs.bed.join_with(Register { participant, ..worker(0) });
    jobs.bed.settle();
    jobs.bed.heartbeat_all();
    jobs.bed.pass(23_900, &[slow]);
    assert_eq!(found(&jobs), []);
    jobs.bed.pass(100, &[slow]);
    assert_eq!(found(&jobs), [Alert::HeartbeatsOverdue { member: slow, for_ms: 24_000, left_ms: 21_000 }]);
    // A node of the cluster's timing is not overdue for a moment that it is late.
    let node = jobs.bed.leader(0).unwrap();
    jobs.bed.pass(900, &[slow, node]);
    assert!(
        !found(&jobs).iter().any(|alert| matches!(alert, Alert::HeartbeatsOverdue { member, .. } if *member == node))
    );
}

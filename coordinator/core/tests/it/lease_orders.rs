//! Orders of which leases take no notice: that is said.

use crate::leases::{JOBS, Jobs};
use archon_coordinator_core::*;
use archon_types::*;

fn give(jobs: &mut Jobs, order: Order) {
    let command = check_order(&jobs.bed.state, order, "").unwrap().expect("news");
    jobs.bed.ok(command);
    jobs.bed.settle();
}

fn why(jobs: &Jobs, partition: PartitionId) -> Vec<Why> {
    explain(&jobs.bed.state, &Remembered::new(&jobs.bed.state, &jobs.bed.liveness, jobs.bed.now), partition).unwrap()
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

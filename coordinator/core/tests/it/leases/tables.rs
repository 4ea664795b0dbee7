//! Lease tables that are dropped, created again, or taken for tables of data.

use crate::bed::{JOBS, Jobs};
use archon_coordinator_core::*;
use archon_types::*;

#[test]
fn recreated_lease_table_grants_higher_epochs() {
    let mut jobs = Jobs::with_workers(4, 2);
    let highest = jobs.rows().map(|row| row.epoch).max().unwrap();
    jobs.bed.ok(Command::DropTable { table: JOBS });
    let owner = jobs.worker(0);
    let answer = jobs.bed.heartbeat(owner).unwrap();
    assert_eq!(answer.withdrawn.len(), 2, "its lease covers none of them any more");
    jobs.bed.settle();
    assert_eq!(jobs.bed.state.condemned.len(), 0);
    let create = Command::CreateTable {
        name: "jobs".into(),
        partitioning: Partitioning::Hash { partitions: 4 },
        replication: 1,
        holds: TableContent::Lease,
    };
    let Response::TableCreated { table } = jobs.bed.ok(create) else { panic!("not created") };
    jobs.bed.settle();
    assert!(jobs.bed.state.partitions.of_table(table).all(|row| row.epoch > highest && row.leader.is_some()));
}

/// `status` waited for participants that are gone to delete copies that they never had.
#[test]
fn lease_table_without_participants_drops_without_deletion() {
    let mut jobs = Jobs::with_workers(4, 2);
    let (dead, alive) = (jobs.worker(0), jobs.worker(1));
    jobs.bed.ok(Command::SetNode { node: alive, goal: NodeGoal::Cordon, if_nodes: None });
    jobs.bed.heartbeat_all();
    jobs.bed.pass(1_500, &[dead]);
    assert!(!jobs.bed.state.is_alive(dead));
    jobs.bed.ok(Command::DropTable { table: JOBS });
    assert!(jobs.bed.state.condemned.nodes().all(|(node, _)| node == alive));
    jobs.bed.settle();
    assert!(jobs.bed.state.condemned.is_empty());
}

#[test]
fn lease_is_not_copied_planned_or_forced() {
    let mut jobs = Jobs::with_workers(4, 2);
    let replicated = Command::CreateTable {
        name: "more".into(),
        partitioning: Partitioning::Hash { partitions: 4 },
        replication: 3,
        holds: TableContent::Lease,
    };
    assert_eq!(jobs.bed.refused(replicated), ErrorKind::InvalidArgument);
    assert!(plan(&jobs.bed.state, Goal::default()).moves.is_empty());
    let row = jobs.rows().next().unwrap().clone();
    let outcome = LossOutcome::Empty;
    let force = Command::AcceptLoss { partition: row.id, if_version: row.version, outcome };
    assert_eq!(jobs.bed.refused(force), ErrorKind::Refused);
    let unload = Edit::Unload(row.placements[0].id);
    assert_eq!(
        jobs.bed.refused(Command::Change(vec![PartitionChange::one(row.id, row.version, unload)])),
        ErrorKind::Refused
    );
}

//! Lease tables: owners of another service's partitions, and few moves.

use crate::bed::{JOBS, Jobs, facts_of, worker};
use archon_coordinator_core::*;
use archon_types::*;

#[test]
fn lease_partitions_go_to_participants_only() {
    let jobs = Jobs::with_workers(12, 3);
    assert_eq!(jobs.counts(), [4, 4, 4]);
    assert!(jobs.rows().all(|row| row.status == PartitionStatus::Online && row.placements.len() == 1));
    let data = jobs.bed.state.partitions.of_table(TableId::new(1));
    assert!(data.flat_map(|row| &row.placements).all(|copy| copy.node == jobs.bed.node("athens")));
    jobs.bed.round_trip();
}

#[test]
fn first_owners_wait_for_participants_starting_together() {
    let mut jobs = Jobs::new(12);
    for number in 0..3 {
        jobs.bed.join_with(worker(number));
        jobs.bed.pass(500, &[]);
        assert!(jobs.owners().is_empty(), "the next one is just coming");
    }
    let before = jobs.bed.state.partitions.newest(JOBS);
    jobs.bed.settle();
    assert_eq!(jobs.counts(), [4, 4, 4]);
    assert!(jobs.bed.state.partitions.newest(JOBS) > before);
    // Each partition was granted once.
    let begun =
        jobs.rows().map(|row| row.epoch.get()).max().unwrap() - jobs.rows().map(|row| row.epoch.get()).min().unwrap();
    assert_eq!(begun, 0);
}

#[test]
fn newcomers_take_as_few_leases_as_possible() {
    let mut jobs = Jobs::with_workers(1_024, 64);
    assert!(jobs.counts().iter().all(|count| *count == 16));
    let before = jobs.owners();
    for number in 64..70 {
        jobs.bed.join_with(worker(number));
    }
    jobs.bed.settle();
    let counts = jobs.counts();
    assert!(counts.iter().all(|count| (14..=15).contains(count)), "{counts:?}");
    let newcomers: u32 = counts[64..].iter().sum();
    assert_eq!(jobs.moved(&before), newcomers as usize, "nothing moves but to newcomers");
}

#[test]
fn drained_participant_hands_over_cordoned_one_keeps() {
    let mut jobs = Jobs::with_workers(12, 3);
    let (drained, cordoned) = (jobs.worker(0), jobs.worker(1));
    jobs.bed.ok(Command::SetNode { node: cordoned, goal: NodeGoal::Cordon, if_nodes: None });
    let drain = check_drain(&jobs.bed.state, drained).unwrap();
    jobs.bed.ok(drain.command);
    jobs.bed.settle();
    assert_eq!(jobs.counts(), [0, 4, 8]);
    jobs.bed.ok(Command::SetNode { node: drained, goal: NodeGoal::Serve, if_nodes: None });
    jobs.bed.ok(Command::SetNode { node: cordoned, goal: NodeGoal::Serve, if_nodes: None });
    jobs.bed.settle();
    assert_eq!(jobs.counts(), [4, 4, 4]);
}

#[test]
fn dropped_partition_does_not_return_at_once() {
    let mut jobs = Jobs::with_workers(4, 2);
    let row = jobs.rows().next().unwrap().clone();
    let (owner, epoch) = (row.leader_placement().unwrap().node, row.epoch);
    jobs.bed.report(owner, &jobs.gives_up(&row, Fact::Declined)).unwrap();
    jobs.bed.pass(2_000, &[]);
    assert_ne!(jobs.owners()[&row.id.index], owner);
    assert!(jobs.bed.state.partition(row.id).unwrap().epoch > epoch);
}

/// A service that cannot load a partition refuses it, exits and starts again.
#[test]
fn declined_partition_avoids_the_next_processes_of_a_name() {
    for workers in [1, 2] {
        let mut jobs = Jobs::with_workers(4, workers);
        let owner = jobs.worker(0);
        let row =
            jobs.rows().find(|row| row.leader_placement().is_some_and(|copy| copy.node == owner)).unwrap().clone();
        jobs.bed.report(owner, &jobs.gives_up(&row, Fact::Declined)).unwrap();
        for boot in 500..505 {
            jobs.restart(0, boot);
            jobs.bed.pass(1_800, &[]);
            assert_ne!(jobs.owners().get(&row.id.index), Some(&owner), "process {boot} of {workers}");
        }
        assert!(jobs.owners().values().any(|other| *other == owner), "it gets others");
    }
}

#[test]
fn released_partition_goes_to_the_next_process_of_a_name() {
    let mut jobs = Jobs::with_workers(4, 1);
    let owner = jobs.worker(0);
    jobs.bed.liveness.note_stopping(owner, jobs.bed.incarnation(owner));
    for row in jobs.rows().cloned().collect::<Vec<_>>() {
        jobs.bed.report(owner, &jobs.gives_up(&row, Fact::Released)).unwrap();
    }
    jobs.restart(0, 500);
    jobs.bed.pass(1_800, &[]);
    assert_eq!(jobs.counts(), [4]);
}

#[test]
fn limits_hold_and_unowned_leases_state_reason() {
    let mut jobs = Jobs::new(4);
    let remembered = LeaderView::new(&jobs.bed.state, &jobs.bed.liveness, jobs.bed.now);
    let why = explain(&jobs.bed.state, &remembered, PartitionId::new(JOBS, 0)).unwrap();
    assert_eq!(facts_of(why), [Facts::AwaitsFirstParticipant {}]);
    jobs.bed.join_with(Register { partitions_max: Some(3), ..worker(0) });
    jobs.bed.settle();
    assert_eq!(jobs.counts(), [3]);
    let left = jobs.rows().find(|row| row.leader.is_none()).unwrap().id;
    let remembered = LeaderView::new(&jobs.bed.state, &jobs.bed.liveness, jobs.bed.now);
    let why = explain(&jobs.bed.state, &remembered, left).unwrap();
    let at_limit = Facts::NodesAtLimit { partitions_short: None, nodes_full: 1, plan: false, raisable: true };
    assert_eq!(facts_of(why), [at_limit]);
}

#[test]
fn participant_limit_covers_all_tables() {
    let mut jobs = Jobs::new(4);
    let more = Command::CreateTable {
        name: "more".into(),
        partitioning: Partitioning::Hash { partitions: 4 },
        replication: 1,
        holds: TableContent::Lease,
    };
    jobs.bed.ok(more);
    let served = Participant { tables: vec!["jobs".into(), "more".into()], timing: None };
    jobs.bed.join_with(Register { partitions_max: Some(3), participant: Some(served), ..worker(0) });
    jobs.bed.settle();
    assert_eq!(jobs.counts(), [3]);
}

/// The first assignment of a table ended at the first partition without a possible owner.
#[test]
fn partition_barred_from_all_does_not_block_others() {
    let mut jobs = Jobs::new(4);
    for number in 0..2 {
        jobs.bed.join_with(worker(number));
        let order = Order::Bar { bar: Bar::Partition(PartitionId::new(JOBS, 0)), member: jobs.worker(number) };
        let command = check_order(&jobs.bed.state, order, "").unwrap().expect("news");
        jobs.bed.ok(command);
    }
    jobs.bed.settle();
    assert_eq!(jobs.owners().into_keys().collect::<Vec<_>>(), [1, 2, 3]);
}

/// The balancing stalled: the partitions that should have left first were those barred from the newcomer.
#[test]
fn newcomer_barred_from_some_partitions_gets_others() {
    let mut jobs = Jobs::with_workers(6, 1);
    jobs.bed.join_with(worker(1));
    let newcomer = jobs.worker(1);
    for index in 0..3 {
        let order = Order::Bar { bar: Bar::Partition(PartitionId::new(JOBS, index)), member: newcomer };
        let command = check_order(&jobs.bed.state, order, "").unwrap().expect("news");
        jobs.bed.ok(command);
    }
    jobs.bed.settle();
    assert_eq!(jobs.counts(), [3, 3]);
}

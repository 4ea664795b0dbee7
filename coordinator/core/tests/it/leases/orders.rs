//! Orders about leases and their reports: orders without effect, participants of tables that hold data, and owners that
//! may be dead.

use crate::bed::{JOBS, Jobs, facts_of, register, worker};
use archon_coordinator_core::*;
use archon_types::*;

const THRESHOLDS: Thresholds = Thresholds { stale_after_ms: None, members_min: None, held_for_ms: 3_600_000 };

fn give(jobs: &mut Jobs, order: Order) {
    let command = check_order(&jobs.bed.state, order, "").expect("possible").expect("news");
    jobs.bed.ok(command);
    jobs.bed.settle();
}

fn why(jobs: &Jobs, partition: PartitionId) -> Vec<Facts> {
    let remembered = LeaderView::new(&jobs.bed.state, &jobs.bed.liveness, jobs.bed.now);
    facts_of(explain(&jobs.bed.state, &remembered, partition).expect("a partition"))
}

fn found(jobs: &Jobs) -> Vec<Finding> {
    alerts(&jobs.bed.state, &jobs.bed.liveness, jobs.bed.now, THRESHOLDS)
}

#[test]
fn leases_obey_bump_bar_and_offline() {
    let mut jobs = Jobs::with_workers(6, 3);
    let give = |jobs: &mut Jobs, order| {
        let command = check_order(&jobs.bed.state, order, "").unwrap().expect("news");
        jobs.bed.ok(command);
        jobs.bed.turn();
    };
    let release = |jobs: &mut Jobs, partition| {
        let row = jobs.bed.state.partition(partition).unwrap().clone();
        let (owner, placement) = (row.leader_placement().unwrap().node, row.leader.unwrap());
        let withdrawn = jobs.bed.heartbeat(owner).unwrap().withdrawn;
        assert!(!withdrawn.contains(&(partition, row.epoch)), "it is asked, for it may have work to finish");
        let asked = |duty: &Duty| matches!(duty, Duty::HandOver { placement: own, .. } if *own == placement);
        assert!(duties(&jobs.bed.state, owner).unwrap().iter().any(asked));
        let fact = Fact::Released;
        let report = Report { partition, placement, epoch: row.epoch, version: row.version, fact };
        jobs.bed.report(owner, &report).unwrap();
    };
    let before = jobs.rows().next().unwrap().clone();
    let (partition, epoch, owner) = (before.id, before.epoch, before.leader_placement().unwrap().node);
    give(&mut jobs, Order::Bump { partition, epoch });
    release(&mut jobs, partition);
    let now = jobs.bed.state.partition(partition).unwrap();
    assert_eq!((now.leader, now.epoch), (before.leader, epoch.next().unwrap()));
    jobs.bed.settle();

    let again = epoch.next().unwrap();
    give(&mut jobs, Order::Bump { partition, epoch: again });
    jobs.bed.pass(9 * jobs.bed.state.timing_of(owner).failure_timeout_ms, &[]);
    assert!(
        jobs.bed.state.partition(partition).unwrap().epoch > again,
        "it did not answer, and was not asked for ever"
    );

    give(&mut jobs, Order::Offline { partition });
    release(&mut jobs, partition);
    jobs.bed.settle();
    assert_eq!(jobs.owners().len(), 5);
    give(&mut jobs, Order::Online { partition });
    jobs.bed.settle();
    assert_eq!(jobs.owners().len(), 6);

    give(&mut jobs, Order::Bar { bar: Bar::Table(JOBS), member: owner });
    jobs.bed.settle();
    assert!(jobs.owners().values().all(|other| *other != owner), "it hands over what it has");
    for number in 0..3 {
        let member = jobs.worker(number);
        if member != owner {
            give(&mut jobs, Order::Bar { bar: Bar::Partition(partition), member });
        }
    }
    let row = jobs.bed.state.partition(partition).unwrap().clone();
    jobs.bed.ok(Command::Change(vec![PartitionChange::one(
        partition,
        row.version,
        Edit::Vacate(LeadershipEnd::Released),
    )]));
    jobs.bed.settle();
    assert_eq!(why(&jobs, partition), [Facts::AllBarred { participants_total: 3 }]);
    give(&mut jobs, Order::Unbar { bar: Bar::Table(JOBS), member: owner });
    jobs.bed.settle();
    assert_eq!(jobs.owners()[&partition.index], owner);

    let until = jobs.bed.now.plus(60_000);
    give(&mut jobs, Order::Maintain { member: owner, until });
    jobs.bed.settle();
    assert!(jobs.owners().values().all(|other| *other != owner) || jobs.owners().len() == 6, "the barred one stays");
    jobs.bed.round_trip();
}

#[test]
fn barred_owner_without_successor_is_reported() {
    let mut jobs = Jobs::with_workers(4, 2);
    let partition = PartitionId::new(JOBS, 0);
    let bar = Bar::Partition(partition);
    let owner = jobs.owners()[&0];
    let other = [jobs.worker(0), jobs.worker(1)].into_iter().find(|node| *node != owner).unwrap();
    give(&mut jobs, Order::Bar { bar, member: other });
    assert_eq!(why(&jobs, partition), []);
    give(&mut jobs, Order::Bar { bar, member: owner });
    assert_eq!(jobs.owners()[&0], owner);
    let node = jobs.bed.state.node_name(owner);
    assert_eq!(why(&jobs, partition), [Facts::OwnerStays { node, leases_kept: None, named: String::new() }]);
    assert_eq!(staying_leases(&jobs.bed.state), [(owner, vec![partition])].into());
    give(&mut jobs, Order::Unbar { bar, member: other });
    assert_eq!(jobs.owners()[&0], other);
    assert!(why(&jobs, partition).is_empty() && staying_leases(&jobs.bed.state).is_empty());
}

/// `archon check` reported one lease twice, with two remedies.
#[test]
fn lease_staying_through_maintenance_is_reported_once() {
    let mut jobs = Jobs::with_workers(2, 1);
    let (owner, until) = (jobs.worker(0), jobs.bed.now.plus(600_000));
    give(&mut jobs, Order::Maintain { member: owner, until });
    assert_eq!(staying_leases(&jobs.bed.state)[&owner].len(), 2);
    assert_eq!(still_led(&jobs.bed.state, owner).count(), 2, "whoever gives the order is told");
    let told = found(&jobs);
    let [alert] = &told[..] else { panic!("but for the order itself: {told:?}") };
    assert_eq!(alert.code(), ReasonCode::OrderStands);
}

#[test]
fn participant_drain_reports_its_hand_overs() {
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
fn participant_without_lease_table_is_reported() {
    let mut jobs = Jobs::with_workers(2, 1);
    assert_eq!(found(&jobs), []);
    let tables = ["jobs", "jbos", "default"].map(str::to_owned).to_vec();
    let participant = Some(Participant { tables, timing: None });
    let member = jobs.bed.join_with(Register { participant, ..register("typo", 77, 78) });
    jobs.bed.settle();
    let none = |table: &str, exists| Facts::NoLeaseTable { table: table.to_owned(), exists };
    let reported = found(&jobs);
    assert!(reported.iter().all(|alert| alert.subject == jobs.bed.state.node_subject(member)), "{reported:?}");
    assert_eq!(facts_of(reported), [none("jbos", false), none("default", true)]);
}

#[test]
fn overdue_heartbeats_of_owner_are_reported() {
    let mut jobs = Jobs::new(2);
    let timing = LeaseTiming { heartbeat_ms: 8_000, lease_ms: 30_000, failure_timeout_ms: 45_000, margin_ms: 100 };
    let participant = Some(Participant { tables: vec!["jobs".into()], timing: Some(timing) });
    let slow = jobs.bed.join_with(Register { participant, ..worker(0) });
    jobs.bed.settle();
    jobs.bed.heartbeat_all();
    jobs.bed.pass(23_900, &[slow]);
    assert_eq!(found(&jobs), []);
    jobs.bed.pass(100, &[slow]);
    let reported = found(&jobs);
    assert_eq!(reported[0].subject, jobs.bed.state.node_subject(slow));
    assert_eq!(facts_of(reported), [Facts::HeartbeatsOverdue { silent_for_ms: 24_000, left_for_ms: 21_000 }]);
    // The cluster's default timing does not report a short delay.
    let node = jobs.bed.leader(0).unwrap();
    jobs.bed.pass(900, &[slow, node]);
    let subject = jobs.bed.state.node_subject(node);
    let is_overdue = |alert: &Finding| alert.code() == ReasonCode::HeartbeatsOverdue && alert.subject == subject;
    assert!(!found(&jobs).iter().any(is_overdue));
}

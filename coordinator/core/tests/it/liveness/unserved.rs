//! Start of the unavailability of partitions, and its alerts.

use crate::bed::{JOBS, Jobs, TestBed, facts_of, part, settings, worker};
use archon_coordinator_core::*;
use archon_types::*;

fn job(index: u32) -> PartitionId {
    PartitionId::new(JOBS, index)
}

fn remembered(bed: &TestBed) -> LeaderView {
    LeaderView::new(&bed.state, &bed.liveness, bed.now)
}

fn not_served_of(bed: &TestBed) -> Vec<Finding> {
    not_served(&bed.state, &remembered(bed), bed.now)
}

/// Returns the number of unserved partitions of the only table with an alarm, and the one unserved for longest.
fn unserved(bed: &TestBed) -> (String, u32, u32) {
    let found = not_served_of(bed);
    let [Finding { subject, facts: Facts::NotServed { partitions_unserved: partitions, longest, .. }, .. }] =
        &found[..]
    else {
        panic!("{found:?}")
    };
    (subject.to_string(), *partitions, *longest)
}

/// Reports by every owner that it could not acquire its partition.
fn nothing_is_acquired(bed: &mut TestBed) {
    for row in bed.state.partitions.of_table(JOBS).cloned().collect::<Vec<_>>() {
        let Some(owner) = row.leader_placement().copied() else { continue };
        let (partition, placement, epoch) = (row.id, owner.id, row.epoch);
        let report = Report { partition, placement, epoch, version: row.version, fact: Fact::Declined };
        bed.report(owner.node, &report).expect("taken in");
    }
}

#[test]
fn owner_that_never_acquires_raises_alarm() {
    let mut bed = TestBed::jobs(2, 1);
    bed.liveness.set_wall(bed.now, bed.now.plus(7_000));
    bed.pass(100, &[]);
    let began = remembered(&bed).unserved_since(job(0)).expect("not served");
    assert_eq!(began, bed.now.plus(7_000), "on the wall clock");
    bed.pass(12_500, &[]);
    assert!(bed.state.partitions.of_table(JOBS).all(|row| row.status == PartitionStatus::Assigned));
    assert_eq!(not_served_of(&bed), []);
    bed.pass(100, &[]);
    assert_eq!(unserved(&bed), ("table jobs".to_owned(), 2, 0));
    assert_eq!(not_served_of(&bed)[0].since, began);
    bed.settle();
    assert_eq!(remembered(&bed).unserved_since(job(0)), None);
    assert_eq!(not_served_of(&bed), []);
}

#[test]
fn lease_table_without_participants_has_one_alarm() {
    let mut jobs = Jobs::new(2);
    jobs.bed.pass(60_000, &[]);
    assert!(remembered(&jobs.bed).unserved_since(job(0)).is_some());
    let why = explain(&jobs.bed.state, &remembered(&jobs.bed), job(0)).unwrap();
    assert_eq!(facts_of(why), [Facts::AwaitsFirstParticipant {}]);
    assert_eq!(not_served_of(&jobs.bed), []);
}

#[test]
fn partition_given_up_by_all_is_reported_and_raises_alarm() {
    let mut bed = TestBed::jobs(2, 2);
    for _ in 0..13 {
        bed.pass(1_000, &[]);
        nothing_is_acquired(&mut bed);
        nothing_is_acquired(&mut bed);
        assert!(bed.state.partitions.of_table(JOBS).all(|row| row.leader.is_none()));
    }
    let why = explain(&bed.state, &remembered(&bed), job(0)).unwrap();
    assert_eq!(facts_of(why), [Facts::GivenUp { participants_total: 2 }]);
    assert_eq!(unserved(&bed).1, 2);
}

#[test]
fn unserved_data_raises_alarm_unless_offline() {
    let mut bed = TestBed::running(settings(4, 2, 2), &["athens", "byzantium"]);
    bed.pass(60_000, &[]);
    assert_eq!(not_served_of(&bed), []);
    let order = Order::Offline { partition: part(3) };
    let command = check_order(&bed.state, order, "").unwrap().expect("news");
    bed.ok(command);
    let silent = bed.alive();
    bed.pass(20_000, &silent);
    assert_eq!(bed.online(), 0);
    assert_eq!(unserved(&bed), ("table default".to_owned(), 3, 0));
    let command = check_order(&bed.state, Order::Online { partition: part(3) }, "").unwrap().expect("news");
    bed.ok(command);
    bed.pass(12_000, &silent);
    assert_eq!(unserved(&bed).1, 3, "it was to be offline");
    bed.pass(1_000, &silent);
    assert_eq!(unserved(&bed).1, 4);
    bed.ok(Command::DropTable { table: part(0).table });
    bed.pass(100, &silent);
    assert_eq!(not_served_of(&bed), []);
}

#[test]
fn unserved_grace_follows_time_outs_and_restarts_with_leader() {
    let timing = LeaseTiming { heartbeat_ms: 2_000, lease_ms: 8_000, failure_timeout_ms: 10_000, margin_ms: 500 };
    let mut bed = TestBed::jobs(2, 0);
    let participant = Some(Participant { tables: vec!["jobs".into()], timing: Some(timing) });
    bed.join_with(Register { participant, ..worker(0) });
    bed.pass(29_900, &[]);
    assert_eq!(not_served_of(&bed), []);
    bed.pass(500, &[]);
    assert_eq!(unserved(&bed).1, 2);
    bed.liveness = Liveness::new(bed.now);
    bed.pass(1_000, &[]);
    assert_eq!(not_served_of(&bed), []);
    bed.pass(30_000, &[]);
    assert_eq!(unserved(&bed).1, 2);
}

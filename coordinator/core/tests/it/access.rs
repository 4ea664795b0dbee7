//! Rights of clients: granted, taken back, and told to nodes.

use crate::bed::{TABLE, TestBed, settings};
use crate::pushes::{all_taken, next};
use archon_coordinator_core::term::Due;
use archon_coordinator_core::*;
use archon_types::*;

const ONCE: [AccessChange; 4] = [
    AccessChange::Grant(Right::Read),
    AccessChange::Grant(Right::Write),
    AccessChange::Revoke(Right::Write),
    AccessChange::Revoke(Right::Read),
];

fn scope(client: Option<&str>, table: Option<TableId>) -> Scope {
    Scope { client: client.map(str::to_owned), table }
}

fn shop() -> Scope {
    scope(Some("shop"), Some(TABLE))
}

/// Changes a right as an operator does. Returns whether there was anything to change.
#[track_caller]
fn changed(bed: &mut TestBed, scope: &Scope, change: AccessChange) -> bool {
    let command = check_access(&bed.state, scope, change).expect("it may");
    command.is_some_and(|command| matches!(bed.ok(command), Response::Done { .. }))
}

#[test]
fn who_may_write_may_read_and_keeps_that_when_writing_is_taken_back() {
    let mut bed = TestBed::new(settings(1, 1, 1));
    // Of each change: whether it does anything, and what is granted then.
    let steps = [
        (ONCE[2], false, None),
        (ONCE[0], true, Some(Right::Read)),
        (ONCE[0], false, Some(Right::Read)),
        (ONCE[1], true, Some(Right::Write)),
        (ONCE[0], false, Some(Right::Write)),
        (ONCE[2], true, Some(Right::Read)),
        (ONCE[2], false, Some(Right::Read)),
        (ONCE[1], true, Some(Right::Write)),
        (ONCE[3], true, None),
        (ONCE[3], false, None),
    ];
    for (number, (change, news, right)) in steps.into_iter().enumerate() {
        assert_eq!(changed(&mut bed, &shop(), change), news, "step {number}");
        assert_eq!(bed.state.access.right("shop", TABLE), right, "step {number}");
    }
    bed.round_trip();
    let told = bed.state.events.iter().filter(|event| matches!(event.what, EventKind::AccessChanged { .. })).count();
    assert_eq!(told, 5, "what changes nothing is no event");
}

#[test]
fn a_right_that_somebody_else_changed_meanwhile_is_looked_at_again() {
    let mut bed = TestBed::new(settings(1, 1, 1));
    let grant = check_access(&bed.state, &shop(), ONCE[1]).unwrap().expect("a change");
    assert!(changed(&mut bed, &shop(), ONCE[0]));
    assert_eq!(bed.refused(grant), ErrorKind::StaleVersion);
    assert_eq!(bed.state.access.right("shop", TABLE), Some(Right::Read));
}

#[test]
fn rights_to_a_table_end_with_it_and_do_not_come_back_with_its_name() {
    let mut bed = TestBed::running(settings(1, 1, 1), &["athens"]);
    assert!(changed(&mut bed, &shop(), ONCE[1]) && changed(&mut bed, &scope(Some("ops"), None), ONCE[0]));
    let version = bed.state.access_version;
    let name = bed.state.tables[&TABLE].name.clone();
    bed.ok(Command::DropTable { table: TABLE });
    assert!(bed.state.access_version > version, "nodes are told");
    let partitioning = Partitioning::Hash { partitions: 1 };
    bed.ok(Command::CreateTable { name, partitioning, replication: 1, holds: Holds::Data });
    let table = bed.state.table_by_name(DEFAULT_TABLE).expect("it is there again").id;
    assert_eq!(bed.state.access.right("shop", table), None);
    assert_eq!(bed.state.access.right("ops", table), Some(Right::Read));
    assert_eq!(
        bed.refused(Command::SetAccess { scope: shop(), before: None, after: Some(Right::Read) }),
        ErrorKind::NotFound
    );
}

#[test]
fn what_cannot_be_granted_is_refused_and_nothing_changes() {
    let mut bed = TestBed::new(settings(1, 1, 1));
    let wrong = check_access(&bed.state, &scope(Some("*"), None), ONCE[0]).expect_err("no client has that name");
    assert_eq!(wrong.kind, ErrorKind::InvalidArgument);
    let partitioning = Partitioning::Hash { partitions: 1 };
    bed.ok(Command::CreateTable { name: "jobs".into(), partitioning, replication: 1, holds: Holds::Lease });
    let jobs = bed.state.table_by_name("jobs").expect("made").id;
    let wrong = check_access(&bed.state, &scope(Some("shop"), Some(jobs)), ONCE[0]).expect_err("there are no rows");
    assert!(wrong.kind == ErrorKind::Refused && wrong.message.contains("of leases"), "{wrong}");
    for number in 0..RIGHTS_MAX {
        std::sync::Arc::make_mut(&mut bed.state.access)
            .set(&scope(Some(&format!("c{number}")), None), Some(Right::Read));
    }
    let one_more = check_access(&bed.state, &shop(), ONCE[0]).unwrap().expect("a change");
    assert_eq!(bed.refused(one_more), ErrorKind::Refused);
    // What is there may be changed, and taken back.
    assert!(
        changed(&mut bed, &scope(Some("c7"), None), ONCE[1]) && changed(&mut bed, &scope(Some("c7"), None), ONCE[3])
    );
    assert!(changed(&mut bed, &shop(), ONCE[0]));
}

/// A node that was told nothing of rights lets no client in, so it is told even that there are none.
#[test]
fn a_node_is_told_of_rights_at_first_and_when_they_change() {
    let (mut bed, node, mut acknowledged) = all_taken();
    assert_eq!(acknowledged.access(), Some(Version::ZERO), "with the first push");
    assert!(changed(&mut bed, &shop(), ONCE[1]));
    assert_eq!(acknowledged.due(&bed.state, node), Some(Due::Table));
    let (push, promise) = next(&bed, node, &acknowledged);
    let list = push.access.clone().expect("the rights");
    assert_eq!((list.version, list.access.right("shop", TABLE)), (bed.state.access_version, Some(Right::Write)));
    assert!(push.duties.is_none() && push.nodes.is_none() && push.rows.is_empty());
    // Its answer is lost: it is told again.
    assert_eq!(next(&bed, node, &acknowledged).0, push);
    assert!(acknowledged.take(promise, push.version, false, bed.now));
    assert_eq!((acknowledged.due(&bed.state, node), acknowledged.access()), (None, Some(bed.state.access_version)));
    // With a gap it needs everything from the start.
    assert!(changed(&mut bed, &shop(), ONCE[3]));
    let (push, promise) = next(&bed, node, &acknowledged);
    assert!(!acknowledged.take(promise, push.version, true, bed.now));
    assert!(acknowledged.access().is_none() && next(&bed, node, &acknowledged).0.access.is_some());
}

fn member(id: u64) -> (u64, Coordinator) {
    let storage = StorageId::new(uuid::Uuid::from_u128(id.into()));
    (id, Coordinator { address: format!("127.0.0.1:{id}"), storage, voter: true })
}

fn remove_coordinator_3(bed: &mut TestBed) {
    let index = bed.state.applied + 1;
    members_changed(&mut bed.state, index, [1, 2].map(member).into(), false);
}

fn three_coordinators() -> TestBed {
    let mut bed = TestBed::new(settings(1, 1, 1));
    bed.state.protocol = 2;
    let index = bed.state.applied + 1;
    members_changed(&mut bed.state, index, [1, 2, 3].map(member).into(), false);
    bed
}

/// Withdraws certificates of coordinator 3 as an operator does. Returns false if they were withdrawn before.
fn withdraw(bed: &mut TestBed, begins_before: u64) -> bool {
    let command = check_withdrawal(&bed.state, "coordinator/3", Some(Millis::new(begins_before))).expect("it may");
    command.is_some_and(|command| matches!(bed.ok(command), Response::Done { .. }))
}

/// What coordinators refuse of coordinator 3, what is listed, and what nodes refuse.
fn refused(bed: &TestBed) -> (Option<u64>, Option<RefusedCertificates>, Option<Millis>) {
    let withdrawn = bed.state.access.withdrawn().get("coordinator/3").map(|moment| moment.get());
    let listed = bed.state.refused_certificates().remove("coordinator/3");
    (withdrawn, listed, bed.state.access_list().access.withdrawn().get("coordinator/3").copied())
}

fn both(begins_before: Option<u64>) -> Option<RefusedCertificates> {
    Some(RefusedCertificates { begins_before: begins_before.map(Millis::new), removed: true })
}

/// The entry of the removal replaced the moment, and coordinators let the stolen key in again.
#[test]
fn withdrawal_survives_the_removal_of_the_coordinator() {
    let mut bed = three_coordinators();
    assert!(withdraw(&mut bed, 70));
    let version = bed.state.access_version;
    remove_coordinator_3(&mut bed);
    assert_eq!(refused(&bed), (Some(70), both(Some(70)), Some(access::WHENEVER)));
    assert!(bed.state.access_version > version, "nodes are sent the new list");
    bed.round_trip();
}

#[test]
fn removed_coordinator_can_be_withdrawn() {
    let mut bed = three_coordinators();
    remove_coordinator_3(&mut bed);
    assert_eq!(refused(&bed), (None, both(None), Some(access::WHENEVER)));
    assert!(withdraw(&mut bed, 70));
    assert_eq!(refused(&bed), (Some(70), both(Some(70)), Some(access::WHENEVER)));
    assert!(!withdraw(&mut bed, 60) && withdraw(&mut bed, 80), "later moments replace earlier ones");
    let readmitted = check_withdrawal(&bed.state, "coordinator/3", None).expect_err("its number is not given again");
    assert!(readmitted.message.contains("was removed from the quorum"), "{readmitted}");
}

/// States of earlier versions hold removed coordinators among the withdrawn certificates.
#[test]
fn stored_removals_are_not_read_as_withdrawals() {
    let mut bed = three_coordinators();
    remove_coordinator_3(&mut bed);
    let (current, mut earlier) = (bed.state.clone(), bed.state.clone());
    std::sync::Arc::make_mut(&mut earlier.access).set_withdrawn("coordinator/3", Some(access::WHENEVER));
    let stored = serde_json::to_value(&earlier).expect("a state");
    assert_eq!(serde_json::from_value::<ClusterState>(stored).expect("a state"), current);
}

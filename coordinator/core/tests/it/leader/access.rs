//! Rights of clients: grants, revocations, and their delivery to nodes.

use super::pushes::{all_taken, next};
use crate::bed::{JOBS, Jobs, TABLE, TestBed, settings, worker};
use crate::quorum::upgrade::{range, upgrade};
use archon_coordinator_core::term::PushUrgency;
use archon_coordinator_core::*;
use archon_types::*;
use proptest::prelude::*;

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

/// Changes a right like an operator. Returns true if there was anything to change.
#[track_caller]
fn changed(bed: &mut TestBed, scope: &Scope, change: AccessChange) -> bool {
    let command = check_access(&bed.state, scope, change).expect("it may");
    command.is_some_and(|command| matches!(bed.ok(command), Response::Done { .. }))
}

#[test]
fn write_includes_read_and_revoked_write_leaves_read() {
    let mut bed = TestBed::new(settings(1, 1, 1));
    // For each change: true if it has an effect, and the right granted afterwards.
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
fn concurrently_changed_right_is_refused() {
    let mut bed = TestBed::new(settings(1, 1, 1));
    let grant = check_access(&bed.state, &shop(), ONCE[1]).unwrap().expect("a change");
    assert!(changed(&mut bed, &shop(), ONCE[0]));
    assert_eq!(bed.refused(grant), ErrorKind::StaleVersion);
    assert_eq!(bed.state.access.right("shop", TABLE), Some(Right::Read));
}

#[test]
fn rights_end_with_their_table() {
    let mut bed = TestBed::running(settings(1, 1, 1), &["athens"]);
    assert!(changed(&mut bed, &shop(), ONCE[1]) && changed(&mut bed, &scope(Some("ops"), None), ONCE[0]));
    let version = bed.state.access_version;
    let name = bed.state.tables[&TABLE].name.clone();
    bed.ok(Command::DropTable { table: TABLE });
    assert!(bed.state.access_version > version, "nodes are told");
    let partitioning = Partitioning::Hash { partitions: 1 };
    bed.ok(Command::CreateTable { name, partitioning, replication: 1, holds: TableContent::Data });
    let table = bed.state.table_by_name(DEFAULT_TABLE).expect("it is there again").id;
    assert_eq!(bed.state.access.right("shop", table), None);
    assert_eq!(bed.state.access.right("ops", table), Some(Right::Read));
    assert_eq!(
        bed.refused(Command::SetAccess {
            scope: shop(),
            before: None,
            after: Some(Right::Read),
            weight_before: None,
            weight_max: None
        }),
        ErrorKind::NotFound
    );
}

#[test]
fn invalid_grants_are_refused() {
    let mut bed = TestBed::new(settings(1, 1, 1));
    let wrong = check_access(&bed.state, &scope(Some("*"), None), ONCE[0]).expect_err("no client has that name");
    assert_eq!(wrong.kind, ErrorKind::InvalidArgument);
    let partitioning = Partitioning::Hash { partitions: 1 };
    bed.ok(Command::CreateTable { name: "jobs".into(), partitioning, replication: 1, holds: TableContent::Lease });
    let jobs = bed.state.table_by_name("jobs").expect("made").id;
    let wrong = check_access(&bed.state, &scope(Some("shop"), Some(jobs)), ONCE[0]).expect_err("there are no rows");
    assert!(wrong.kind == ErrorKind::Refused && wrong.message.contains("lease table"), "{wrong}");
    for number in 0..RIGHTS_MAX {
        std::sync::Arc::make_mut(&mut bed.state.access)
            .set(&scope(Some(&format!("c{number}")), None), Some(Right::Read));
    }
    let one_more = check_access(&bed.state, &shop(), ONCE[0]).unwrap().expect("a change");
    assert_eq!(bed.refused(one_more), ErrorKind::Refused);
    // Existing rights can be changed and revoked.
    assert!(
        changed(&mut bed, &scope(Some("c7"), None), ONCE[1]) && changed(&mut bed, &scope(Some("c7"), None), ONCE[3])
    );
    assert!(changed(&mut bed, &shop(), ONCE[0]));
}

/// A node without a list of rights admits no client, so it gets even an empty list.
#[test]
fn rights_are_pushed_first_and_on_change() {
    let (mut bed, node, mut acknowledged) = all_taken();
    assert_eq!(acknowledged.access(), Some(Version::ZERO), "with the first push");
    assert!(changed(&mut bed, &shop(), ONCE[1]));
    assert_eq!(acknowledged.due(&bed.state, node), Some(PushUrgency::Table));
    let (push, promise) = next(&bed, node, &acknowledged);
    let list = push.access.clone().expect("the rights");
    assert_eq!((list.version, list.access.right("shop", TABLE)), (bed.state.access_version, Some(Right::Write)));
    assert!(push.duties.is_none() && push.nodes.is_none() && push.rows.is_empty());
    // Its answer is lost: the list is pushed again.
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

/// Revokes certificates of coordinator 3 like an operator. Returns false if they were revoked before.
fn withdraw(bed: &mut TestBed, begins_before: u64) -> bool {
    let command = check_withdrawal(&bed.state, "coordinator/3", Some(Millis::new(begins_before))).expect("it may");
    command.is_some_and(|command| matches!(bed.ok(command), Response::Done { .. }))
}

/// Returns the refusals of coordinator 3: by coordinators, as listed, and by nodes.
fn refused(bed: &TestBed) -> (Option<u64>, Option<RefusedCertificates>, Option<Millis>) {
    let withdrawn = bed.state.access.withdrawn().get("coordinator/3").map(|moment| moment.get());
    let listed = bed.state.refused_certificates().remove("coordinator/3");
    (withdrawn, listed, bed.state.access_list().access.withdrawn().get("coordinator/3").copied())
}

fn both(begins_before: Option<u64>) -> Option<RefusedCertificates> {
    Some(RefusedCertificates { begins_before: begins_before.map(Millis::new), removed: true })
}

/// The entry of the removal replaced the time, and coordinators admitted the stolen key again.
#[test]
fn withdrawal_survives_the_removal_of_the_coordinator() {
    let mut bed = three_coordinators();
    assert!(withdraw(&mut bed, 70));
    let version = bed.state.access_version;
    remove_coordinator_3(&mut bed);
    assert_eq!(refused(&bed), (Some(70), both(Some(70)), Some(WHENEVER)));
    assert!(bed.state.access_version > version, "nodes are sent the new list");
    bed.round_trip();
}

#[test]
fn removed_coordinator_can_be_withdrawn() {
    let mut bed = three_coordinators();
    remove_coordinator_3(&mut bed);
    assert_eq!(refused(&bed), (None, both(None), Some(WHENEVER)));
    assert!(withdraw(&mut bed, 70));
    assert_eq!(refused(&bed), (Some(70), both(Some(70)), Some(WHENEVER)));
    assert!(!withdraw(&mut bed, 60) && withdraw(&mut bed, 80), "later moments replace earlier ones");
    let readmitted = check_withdrawal(&bed.state, "coordinator/3", None).expect_err("its number is not given again");
    assert!(readmitted.message.contains("was removed from the quorum"), "{readmitted}");
}

/// States of earlier versions hold removed coordinators among the revoked certificates.
#[test]
fn stored_removals_are_not_read_as_withdrawals() {
    let mut bed = three_coordinators();
    remove_coordinator_3(&mut bed);
    let (current, mut earlier) = (bed.state.clone(), bed.state.clone());
    std::sync::Arc::make_mut(&mut earlier.access).set_withdrawn("coordinator/3", Some(WHENEVER));
    let stored = serde_json::to_value(&earlier).expect("a state");
    assert_eq!(serde_json::from_value::<ClusterState>(stored).expect("a state"), current);
}

fn own(participant: Option<&str>) -> (Scope, AccessChange) {
    (scope(participant, Some(JOBS)), AccessChange::Grant(Right::Own))
}

fn certified(number: u32) -> Register {
    Register { certified: true, protocol_max: OWN_SINCE, ..worker(number) }
}

/// A lease table of four partitions, in a cluster with the right to own.
fn granting_cluster() -> TestBed {
    granting_cluster_of(4)
}

fn granting_cluster_of(partitions: u32) -> TestBed {
    let mut bed = TestBed::jobs(partitions, 0);
    upgrade(&mut bed, "athens", 500, range(1, OWN_SINCE));
    bed.settle();
    bed.state.protocol = OWN_SINCE;
    bed
}

/// Any participant's certificate was enough to own partitions of every lease table.
#[test]
fn participant_without_grant_owns_nothing() {
    let mut bed = granting_cluster();
    let mallory = bed.join_with(Register { weight: 10_000, ..certified(1) });
    bed.settle();
    let mut jobs = Jobs { bed };
    assert!(jobs.owners().is_empty());
    let ours = jobs.bed.join_with(certified(0));
    let (whose, grant) = own(Some("worker-0"));
    assert!(changed(&mut jobs.bed, &whose, grant));
    jobs.bed.settle();
    assert!(jobs.owners().len() == 4 && jobs.owners().values().all(|owner| *owner == ours));
    assert_eq!(jobs.bed.state.not_granted("worker-1", &served()).map(|table| table.id), Some(JOBS));
    assert_eq!(jobs.bed.state.not_granted("worker-0", &served()), None);
    let (whose, grant) = own(None);
    assert!(changed(&mut jobs.bed, &whose, grant));
    jobs.bed.settle();
    assert!(jobs.owners().values().any(|owner| *owner == mallory), "every participant may own them");
    jobs.bed.round_trip();
}

#[test]
fn participant_without_one_grant_of_two_is_reported() {
    let mut bed = granting_cluster();
    let name = "mails".to_owned();
    let partitioning = Partitioning::Hash { partitions: 2 };
    bed.ok(Command::CreateTable { name, partitioning, replication: 1, holds: TableContent::Lease });
    let mails = bed.state.table_by_name("mails").expect("a table").id;
    let tables = vec!["jobs".to_owned(), "mails".to_owned()];
    let participant = Some(Participant { tables, timing: None });
    let (whose, grant) = own(Some("worker-0"));
    assert!(changed(&mut bed, &whose, grant));
    let member = bed.join_with(Register { participant, ..certified(0) });
    bed.settle();
    let thresholds = Thresholds { stale_after_ms: None, members_min: None, held_for_ms: 3_600_000 };
    let reported = |bed: &TestBed| -> Vec<Finding> {
        let all = alerts(&bed.state, &bed.liveness, bed.now, thresholds);
        all.into_iter().filter(|alert| alert.code() == ReasonCode::TableNotGranted).collect()
    };
    let [alert] = &reported(&bed)[..] else { panic!("{:?}", reported(&bed)) };
    assert_eq!(alert.facts, Facts::TableNotGranted { table: "mails".to_owned() });
    assert_eq!(alert.subject, bed.state.node_subject(member));
    assert!(changed(&mut bed, &scope(Some("worker-0"), Some(mails)), AccessChange::Grant(Right::Own)));
    assert_eq!(reported(&bed), []);
}

fn served() -> Participant {
    worker(0).participant.expect("a participant")
}

#[test]
fn revoked_grant_moves_partitions_to_others() {
    let mut bed = granting_cluster();
    let [first, second] = [0, 1].map(|number| bed.join_with(certified(number)));
    for name in ["worker-0", "worker-1"] {
        let (whose, grant) = own(Some(name));
        assert!(changed(&mut bed, &whose, grant));
    }
    bed.settle();
    let mut jobs = Jobs { bed };
    assert_eq!(jobs.counts(), [2, 2]);
    assert!(changed(&mut jobs.bed, &own(Some("worker-0")).0, AccessChange::Revoke(Right::Own)));
    jobs.bed.settle();
    assert!(jobs.owners().len() == 4 && jobs.owners().values().all(|owner| *owner == second));
    assert!(changed(&mut jobs.bed, &own(Some("worker-1")).0, AccessChange::Revoke(Right::Own)));
    jobs.bed.settle();
    assert_eq!(staying_leases(&jobs.bed.state)[&second].len(), 4, "nobody else may own them");
    assert!(jobs.owners().values().all(|owner| *owner != first));
}

fn up_to(participant: Option<&str>, weight_max: u32) -> (Scope, AccessChange) {
    (scope(participant, Some(JOBS)), AccessChange::GrantOwn { weight_max })
}

/// A participant with an own grant chose its weight, and so its share of the partitions.
#[test]
fn weight_counts_up_to_the_limit_of_the_grant() {
    let mut bed = granting_cluster();
    for (whose, grant) in [own(Some("worker-0")), up_to(Some("worker-1"), 100)] {
        assert!(changed(&mut bed, &whose, grant));
    }
    // Registered before the limit was lowered: the process keeps its registration.
    bed.join_with(certified(0));
    bed.join_with(Register { weight: 300, ..certified(1) });
    bed.settle();
    let mut jobs = Jobs { bed };
    assert_eq!(jobs.counts(), [2, 2]);
    let (whose, raise) = up_to(Some("worker-1"), 300);
    assert!(changed(&mut jobs.bed, &whose, raise));
    assert!(!changed(&mut jobs.bed, &whose, raise), "the same limit is no change");
    jobs.bed.settle();
    assert_eq!(jobs.counts(), [1, 3]);
    assert!(changed(&mut jobs.bed, &whose, up_to(None, 100).1));
    jobs.bed.settle();
    assert_eq!(jobs.counts(), [2, 2]);
    let (whose, grant) = own(Some("worker-1"));
    assert!(changed(&mut jobs.bed, &whose, grant), "a grant without a limit removes it");
    jobs.bed.settle();
    assert_eq!(jobs.counts(), [1, 3]);
    jobs.bed.round_trip();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// First owners and moves apply the same weights: otherwise partitions would move back and forth.
    #[test]
    fn shares_converge_by_limited_weights(
        weights in prop::array::uniform3(1u32..500),
        limits in prop::collection::vec((0u32..3, 1u32..500), 1..6),
    ) {
        let (mut bed, mut limited) = (granting_cluster_of(12), weights);
        for number in 0..3 {
            bed.join_with(Register { weight: weights[number as usize], ..certified(number) });
            let (whose, grant) = own(Some(&format!("worker-{number}")));
            prop_assert!(changed(&mut bed, &whose, grant));
        }
        bed.settle();
        for (number, limit) in limits {
            let (whose, grant) = up_to(Some(&format!("worker-{number}")), limit);
            changed(&mut bed, &whose, grant);
            limited[number as usize] = weights[number as usize].min(limit);
            bed.settle();
        }
        let mut jobs = Jobs { bed };
        let (counts, owners, total) = (jobs.counts(), jobs.owners(), limited.iter().sum::<u32>());
        for (count, weight) in counts.iter().zip(limited) {
            let share = 12.0 * f64::from(weight) / f64::from(total);
            prop_assert!((f64::from(*count) - share).abs() < 1.0, "{counts:?} by {limited:?}");
        }
        jobs.bed.settle();
        prop_assert_eq!(jobs.owners(), owners, "nothing moves further");
    }
}

#[test]
fn registration_above_the_weight_limit_is_explained() {
    let mut bed = granting_cluster();
    let (whose, grant) = up_to(None, 100);
    assert!(changed(&mut bed, &whose, grant));
    assert_eq!(bed.state.weight_not_granted("worker-0", &served(), 100), None);
    let why = bed.state.weight_not_granted("worker-0", &served(), 101).expect("a refusal");
    assert!(why.contains("the limit of its grant is 100") && why.contains("--weight-max 101"), "{why}");
    let (whose, grant) = up_to(Some("worker-0"), 400);
    assert!(changed(&mut bed, &whose, grant));
    assert_eq!(bed.state.weight_not_granted("worker-0", &served(), 400), None, "the higher limit applies");
    bed.state.protocol = 1;
    assert_eq!(bed.state.weight_not_granted("worker-1", &served(), 101), None);
}

#[test]
fn operator_sets_no_weight_above_the_limit() {
    let mut bed = granting_cluster();
    let (whose, grant) = up_to(None, 100);
    assert!(changed(&mut bed, &whose, grant));
    let member = bed.join_with(certified(0));
    let weight = |weight| TraitsChange { weight: Some(weight), ..TraitsChange::default() };
    let refused = check_alter_node(&bed.state, member, &weight(101)).unwrap_err();
    assert!(refused.kind == ErrorKind::Refused && refused.message.contains("the limit of its grant is 100"));
    assert!(check_alter_node(&bed.state, member, &weight(50)).is_ok());
    let plain = bed.join_with(Register { certified: false, ..certified(1) });
    assert!(check_alter_node(&bed.state, plain, &weight(101)).is_ok());
}

#[test]
fn weight_limit_out_of_place_is_refused() {
    let mut bed = granting_cluster();
    for weight in [0, 10_001] {
        let (whose, grant) = up_to(None, weight);
        assert_eq!(check_access(&bed.state, &whose, grant).unwrap_err().kind, ErrorKind::InvalidArgument);
    }
    let misplaced = Command::SetAccess {
        scope: shop(),
        before: None,
        after: Some(Right::Read),
        weight_before: None,
        weight_max: Some(7),
    };
    assert_eq!(bed.refused(misplaced), ErrorKind::InvalidArgument);
    let (whose, grant) = up_to(None, 7);
    let late = check_access(&bed.state, &whose, grant).unwrap().expect("a change");
    assert!(changed(&mut bed, &whose, up_to(None, 9).1));
    assert_eq!(bed.refused(late), ErrorKind::StaleVersion);
}

/// Plaintext members have no identity, and before the protocol every participant may own all partitions.
#[test]
fn grants_bind_certified_participants_from_their_protocol_on() {
    let mut jobs = Jobs { bed: granting_cluster() };
    jobs.bed.join_with(Register { certified: false, ..certified(0) });
    jobs.bed.settle();
    assert_eq!(jobs.owners().len(), 4);

    let mut jobs = Jobs::new(4);
    jobs.bed.join_with(certified(0));
    jobs.bed.settle();
    assert_eq!(jobs.owners().len(), 4);
    let (whose, grant) = own(None);
    assert_eq!(check_access(&jobs.bed.state, &whose, grant).unwrap_err().kind, ErrorKind::Refused);
}

#[test]
fn own_is_granted_for_lease_tables_only() {
    let bed = granting_cluster();
    let refused = |table, right| {
        let change = AccessChange::Grant(right);
        check_access(&bed.state, &scope(Some("w"), table), change).map_err(|error| error.kind).err()
    };
    assert_eq!(refused(Some(TABLE), Right::Own), Some(ErrorKind::Refused));
    assert_eq!(refused(None, Right::Own), Some(ErrorKind::InvalidArgument));
    assert_eq!(refused(Some(JOBS), Right::Read), Some(ErrorKind::Refused));
    assert_eq!(refused(Some(JOBS), Right::Own), None);
}

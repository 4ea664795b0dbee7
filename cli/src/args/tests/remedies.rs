//! The commands in the texts of findings are commands of this program.

use super::fault;
use super::samples::{node, partition, table, text};
use archon_client::{MemberKind, Reason, ReasonCode, Subject};
use archon_types::{
    AuthorityUse, CondemnedCopies, DiskFull, DiskLimit, Facts, Finding, OutdatedMember, StandingOrder, Supply,
};
use std::collections::BTreeSet;

fn coordinator() -> Subject {
    Subject::Coordinator { coordinator_id: 3 }
}

const LACK: DiskFull = DiskFull { free_bytes: 0, needed_bytes: 1 << 24, limit: DiskLimit::Bytes };

/// Returns findings about partitions, tables and leases.
fn of_partitions() -> Vec<(Subject, Facts)> {
    let idle = |name: &str| Some(text(name));
    let supply = Supply {
        nodes_failed: 1,
        nodes_missing: 0,
        no_node: false,
        at_limit: false,
        withheld: false,
        replaced_after_for_ms: 600_000,
    };
    vec![
        (partition(), Facts::NotEnoughNodes { have: 1, need: 3 }),
        (table(), Facts::NoParticipant { drained: idle("a"), cordoned: idle("b"), in_maintenance: idle("c") }),
        (table(), Facts::AwaitsFirstParticipant {}),
        (partition(), Facts::AboutToBeAssigned {}),
        (partition(), Facts::NodesAtLimit { partitions_short: None, nodes_full: 3, plan: true, raisable: true }),
        (
            Subject::Copies,
            Facts::NodesAtLimit { partitions_short: Some(2), nodes_full: 3, plan: false, raisable: false },
        ),
        (table(), Facts::OnlyInMaintenance { node: text("athens"), partitions_led: 2, partition: 7 }),
        (partition(), Facts::Offline { why: text("a test") }),
        (partition(), Facts::AllBarred { participants_total: 2 }),
        (table(), Facts::AllBarred { participants_total: 2 }),
        (partition(), Facts::OwnerStays { node: text("w"), leases_kept: None, named: String::new() }),
        (node(), Facts::OwnerStays { node: text("w"), leases_kept: Some(2), named: text("orders/7, orders/8") }),
        (partition(), Facts::GivenUp { participants_total: 2 }),
        (table(), Facts::NotServed { partitions_unserved: 2, partitions_total: 16, longest: 7 }),
        (table(), Facts::TooLittleRoom { have: 8, need: 12 }),
        (Subject::Cluster, Facts::NoSpareRoom { without: text("athens"), have: 8, need: 12 }),
        (Subject::Cluster, Facts::TooFewMembers { have: 2, need: 3 }),
        (partition(), Facts::LeaderHearsTooFew { node: text("athens"), have: 1, need: 2 }),
        (Subject::Copies, Facts::RepairWithheld { partitions_short: Some(2), nodes_failed: 2, nodes_total: 4 }),
        (partition(), Facts::TakingOver { node: text("athens") }),
        (partition(), Facts::EpochSurpassed { epoch: 9 }),
        (partition(), Facts::WaitingForLease { node: text("athens") }),
        (partition(), Facts::NoLiveReplica { node: text("athens") }),
        (partition(), Facts::HolderRegistering { node: text("athens") }),
        (partition(), Facts::AboutToBeElected {}),
        (partition(), Facts::DataLost {}),
        (Subject::Copies, Facts::UnderReplicated { missing: 2, of: 16, supply: Some(supply) }),
        (partition(), Facts::LostCopyKept { node: text("athens"), have: 0, need: 1 }),
        (partition(), Facts::MoveWaits { move_id: 4, why: text("the node is full") }),
    ]
}

/// Returns findings about nodes and participants.
fn of_members() -> Vec<(Subject, Facts)> {
    let (address, why) = (text("athens:7201"), text("a test"));
    let holder = CondemnedCopies { node: text("athens"), copies_condemned: 2, alive: false };
    let (members, first) = (vec![text("athens")], text("athens"));
    let mut all = vec![
        (node(), Facts::NodeFailed { address: address.clone(), stopped: true, drained: true, lack: None }),
        (
            node(),
            Facts::InMaintenance { address: address.clone(), stopped: false, drained: false, lack: Some(LACK), why },
        ),
        (node(), Facts::NoLeaseTable { table: text("jobs"), exists: true }),
        (node(), Facts::NoLeaseTable { table: text("jobs"), exists: false }),
        (node(), Facts::TableNotGranted { table: text("jobs") }),
        (node(), Facts::HeartbeatsOverdue { silent_for_ms: 1_500, left_for_ms: 500 }),
        (node(), Facts::LeaseStale { silent_for_ms: 9_000 }),
        (
            node(),
            Facts::NodeUnreached { address: address.clone(), shut_to: vec![text("byzantium")], partitions_led: 0 },
        ),
        (node(), Facts::DiskFull { address, lack: LACK }),
        (node(), Facts::LogPinned { placement_id: 5, replica_of: Some(text("orders/7")), bytes_pinned: 1 << 30 }),
        (
            Subject::Copies,
            Facts::CopiesCondemned { copies_condemned: 2, holders: vec![holder], nodes_more: 0, away: true },
        ),
        (
            node(),
            Facts::CertificateExpires {
                members: members.clone(),
                members_total: 1,
                first: first.clone(),
                left_for_ms: 9,
            },
        ),
        (
            node(),
            Facts::CertificateExpired {
                members: members.clone(),
                members_total: 1,
                first: first.clone(),
                left_for_ms: -9,
            },
        ),
        (node(), Facts::CertificateNotTaken { members: members.clone(), members_total: 1, first }),
    ];
    for (subject, order, excluded) in [
        (partition(), StandingOrder::Exclusion, Some(text("athens"))),
        (table(), StandingOrder::Exclusion, Some(text("athens"))),
        (partition(), StandingOrder::Offline, None),
        (partition(), StandingOrder::GoingOffline, None),
        (node(), StandingOrder::Cordon, None),
        (node(), StandingOrder::Drain, None),
        (node(), StandingOrder::Maintenance, None),
    ] {
        all.push((subject.clone(), Facts::OrderStands { order, excluded: excluded.clone() }));
        all.push((subject, Facts::HeldTooLong { order, excluded }));
    }
    all
}

/// Returns findings about coordinators, authorities and upgrades.
fn of_the_quorum() -> Vec<(Subject, Facts)> {
    let address = || text("c3:7101");
    let unreachable = |learner, quorum_heartbeat_ms| Facts::CoordinatorUnreachable {
        address: address(),
        why: None,
        learner,
        spare_voters: 1,
        quorum_heartbeat_ms,
    };
    let outdated = |kind: MemberKind, supports: Option<&str>| OutdatedMember {
        kind: kind.into(),
        name: text("2"),
        supports: supports.map(text),
        answers: false,
    };
    let members = vec![
        outdated(MemberKind::Coordinator, None),
        outdated(MemberKind::Node, Some("1")),
        outdated(MemberKind::Participant, Some("1")),
    ];
    let other = |member: Option<&str>, waits| Facts::OtherHistory {
        member: member.map(text),
        why: text("a later recovery"),
        generation: Some(2),
        waits,
    };
    let authority = AuthorityUse { authority: text("ab12"), members: vec![text("athens")], members_more: 3 };
    vec![
        (coordinator(), unreachable(false, None)),
        (coordinator(), unreachable(true, None)),
        (coordinator(), unreachable(false, Some(250))),
        (coordinator(), Facts::DiskFails { address: address() }),
        (coordinator(), Facts::SnapshotWaits { address: address() }),
        (coordinator(), Facts::StatesDiffer { index: 9, wrong: true }),
        (coordinator(), Facts::StatesDiffer { index: 9, wrong: false }),
        (node(), other(Some("athens"), false)),
        (coordinator(), other(None, false)),
        (coordinator(), other(None, true)),
        (Subject::Coordinators, Facts::TooFewVoters { voters_total: 1, had_more: false }),
        (Subject::Coordinators, Facts::BeingRecovered { nodes_unheard: 2 }),
        (Subject::Coordinators, Facts::QuorumChanging { change: text("add coordinator 4") }),
        (Subject::Coordinators, Facts::NoQuorum { error: text("c1:7101 does not answer") }),
        (Subject::Coordinators, Facts::ReadOnly { why: text("coordinator 1: its disk is full") }),
        (Subject::Cluster, Facts::AuthoritiesDiffer { authorities: vec![authority] }),
        (Subject::Cluster, Facts::Upgrading { protocol: 1, newest: 2, outdated: members, members_more: 1 }),
        (Subject::Cluster, Facts::Upgrading { protocol: 1, newest: 2, outdated: Vec::new(), members_more: 0 }),
    ]
}

/// A remedy that names a command names one that exists, with its options and as many operands as it takes.
#[test]
fn every_command_of_a_finding_parses() {
    let all = [of_partitions(), of_members(), of_the_quorum()].concat();
    let codes: BTreeSet<ReasonCode> = all.iter().map(|(_, facts)| facts.code()).collect();
    let missing: Vec<_> = ReasonCode::ALL.iter().filter(|code| !codes.contains(code)).collect();
    assert!(missing.is_empty(), "without a sample: {missing:?}");
    let mut commands = 0;
    for (subject, facts) in all {
        let reason = Reason::from(Finding::new(subject, facts));
        let texts = format!("{}\n{}", reason.message, reason.remedy.unwrap_or_default());
        for (command, _) in texts.split("`archon ").skip(1).filter_map(|rest| rest.split_once('`')) {
            assert_eq!(fault(command), None, "{}: `archon {command}`", reason.code);
            commands += 1;
        }
    }
    assert!(commands > 30, "only {commands} commands are found");
}

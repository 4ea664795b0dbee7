//! Tests of a recovery of the coordinators from less than a majority: trusted facts, waits, and the replicas from which
//! partitions continue (rules 60 to 62). The simulator does it to a whole cluster.

use crate::bed::{TABLE, TestBed, boxed, part, register, settings};
use archon_coordinator_core::*;
use archon_types::*;
use std::sync::Arc;
use uuid::Uuid;

archon_types::shown_by! {
    LaterGenerationTaken => node_of_a_later_generation_is_refused,
    TakenWhileStandingBy => recovery_takes_no_node_before_it_takes_over,
    SettledUnheard => nothing_continues_before_every_node_has_reported,
    RowsTrusted => partition_continues_from_the_longest_replica,
    OlderByRow => older_directory_does_not_count_after_another_restart,
}

const CITIES: [&str; 3] = ["athens", "byzantium", "cyrene"];

fn founder() -> (u64, Coordinator) {
    let storage = StorageId::new(Uuid::from_u128(77));
    (9, Coordinator { address: "127.0.0.1:9".into(), storage, voter: true })
}

/// Returns a cluster with three replicas of one partition, recovered as it stands.
pub(crate) fn recovered(mutant: Option<Mutant>) -> TestBed {
    let mut bed = TestBed::running(settings(1, 3, 3), &CITIES);
    begin(&mut bed, 2, mutant);
    bed
}

pub(crate) fn begin(bed: &mut TestBed, generation: u64, mutant: Option<Mutant>) {
    begin_generation(&mut bed.state, (generation, GenerationKey::NIL), bed.now, founder())
        .expect("a state to begin with");
    check(&bed.state).expect("a state like any other");
    bed.state.mutant = mutant;
    bed.liveness = Liveness::new(bed.now);
}

/// Registers a node with its holdings, and reports the ends of its replicas' logs: in this epoch, at this position.
pub(crate) fn tells(bed: &mut TestBed, name: &str, change: impl FnOnce(&mut Register), end: (u64, u64)) -> NodeId {
    let mut register = bed.registration(name);
    change(&mut register);
    let node = bed.join_with(register);
    bed.tell_end(node, end);
    node
}

/// Passes time until earlier leases have expired, and a little more.
fn wait(bed: &mut TestBed) {
    bed.pass(2_000, &[]);
}

fn is_over(bed: &TestBed) -> bool {
    bed.state.recovery.is_none()
}

#[test]
fn recovery_without_loss_ends_once_all_have_reported() {
    let mut bed = recovered(None);
    assert!(bed.row(0).leader.is_none() && bed.row(0).epoch.get() >= first_number(2));
    for city in CITIES {
        assert!(!is_over(&bed));
        tells(&mut bed, city, |_| {}, (1, 5));
    }
    assert!(doubts(&bed.state).is_empty());
    assert!(!bed.turn().contains(&Command::SettleRecovery), "a lease of before may run");
    wait(&mut bed);
    assert!(is_over(&bed));
    bed.settle();
    assert!(bed.online() == 1 && bed.row(0).live().count() == 3);
    bed.round_trip();
}

#[test]
fn recovery_renews_versions_of_lost_changes() {
    let mut bed = TestBed::running(settings(1, 2, 2), &CITIES);
    let cyrene = bed.node("cyrene");
    bed.fail(cyrene);
    let recovered = bed.state.clone();
    // None of these changes is recovered, and members hold all of them.
    let shop = Scope { client: Some("shop".into()), table: None };
    let table = &bed.state.tables[&TABLE];
    let copies = TableChange { replication: Some(1), ..TableChange::default() };
    let zone = TraitsChange { zone: Some(Some("east".into())), ..TraitsChange::default() };
    let revoked = Command::Withdraw { identity: "client/shop".into(), before: None, after: Some(Millis::new(9)) };
    let moves = SettingChange { setting: Setting::CopiesPerNodeMax, value: 5 };
    let commands = [
        check_access(&bed.state, &shop, AccessChange::Grant(Right::Write)).expect("a grant"),
        check_alter_table(&bed.state, table, &copies).expect("fewer copies"),
        check_alter_node(&bed.state, cyrene, &zone).expect("a zone").command,
        check_configure(&bed.state, &[moves], None).expect("a setting").command,
        Some(revoked),
    ];
    for command in commands {
        bed.ok(command.expect("a change"));
    }
    let lost = std::mem::replace(&mut bed.state, recovered);
    begin(&mut bed, 2, None);
    let versions = |state: &ClusterState| {
        let (tables, nodes) = (state.tables.values(), state.nodes.values());
        let mut versions: Vec<Version> = tables.map(|table| table.version).collect();
        versions.extend(nodes.map(|row| row.node.version));
        versions.extend([state.access_version, state.settings_version, state.moves_version, state.controls_version]);
        versions.extend([state.nodes_version, state.participants_version, state.dropped_version]);
        versions.extend([state.removed_version, state.participants_removed_version]);
        versions
    };
    let (before, after) = (versions(&lost), versions(&bed.state));
    assert!(before.iter().zip(&after).all(|(before, after)| before < after), "{before:?} to {after:?}");
    assert_eq!(bed.state.access_list().access, Arc::default(), "the list that nodes are sent has no lost grant");
    let row = bed.state.node(cyrene).expect("a node");
    assert_eq!((row.node.status, row.node.since), (NodeStatus::Failed, lost.node(cyrene).unwrap().node.since));
}

/// Returns a recovery of a state that names the former coordinators.
fn standing_by(mutant: Option<Mutant>) -> TestBed {
    let mut bed = TestBed::new(settings(1, 3, 3));
    for (number, city) in (1..).zip(CITIES) {
        bed.join_with(Register { protocol_max: 2, ..register(city, number, 1_000 + number) });
    }
    bed.settle();
    (bed.state.protocol, bed.state.coordinators.members) = (2, [founder()].into());
    begin(&mut bed, 2, mutant);
    assert!(bed.state.stands_by() || mutant.is_some());
    bed
}

fn recovery_takes_no_node_before_it_takes_over(mutant: Option<Mutant>) -> bool {
    let mut bed = standing_by(mutant);
    let register = Register { protocol_max: 2, ..bed.registration("athens") };
    matches!(bed.one(boxed(register)), Response::Refused(error) if error.kind == ErrorKind::OtherHistory)
}

#[test]
fn recovery_of_leases_alone_settles_after_it_takes_over() {
    let mut bed = standing_by(None);
    let nodes: Vec<_> = bed.state.nodes.values().map(|row| (row.node.id, row.node.version)).collect();
    for (node, if_version) in nodes {
        bed.ok(Command::NodeLost { node, if_version });
    }
    wait(&mut bed);
    assert!(!is_over(&bed), "former coordinators may grant the same leases");
    let refused = bed.one(Command::SettleRecovery);
    assert!(matches!(&refused, Response::Refused(_)), "{refused:?}");
    bed.ok(Command::TakeOver);
    wait(&mut bed);
    assert!(is_over(&bed));
}

#[test]
fn recovery_beside_a_quorum_takes_over_by_order_only() {
    let mut bed = standing_by(None);
    assert_eq!(check_take_over(&bed.state, false, true), Ok(None), "it goes on by itself");
    bed.ok(Command::NoteFormerQuorum);
    assert_eq!(check_take_over(&bed.state, true, true), Err(SettleRefusal::FormerWorks));
    assert_eq!(check_take_over(&bed.state, false, false), Err(SettleRefusal::NotAccepted));
    assert_eq!(check_take_over(&bed.state, false, true), Ok(Some(Command::TakeOver)));
    bed.ok(Command::TakeOver);
    assert_eq!(check_take_over(&bed.state, false, true), Ok(None));
    assert_eq!(takeovers(&bed), [true]);
}

/// Returns the events of taking over, each with whether it was ordered.
fn takeovers(bed: &TestBed) -> Vec<bool> {
    let ordered = |what: &EventKind| match what {
        EventKind::RecoveryTookOver { ordered, .. } => Some(*ordered),
        _ => None,
    };
    bed.state.events.iter().filter_map(|event| ordered(&event.what)).collect()
}

#[test]
fn taking_over_is_one_event() {
    let mut bed = standing_by(None);
    assert!(takeovers(&bed).is_empty(), "it stands by");
    bed.ok(Command::TakeOver);
    bed.ok(Command::TakeOver);
    assert_eq!(takeovers(&bed), [false]);
}

#[test]
fn recovery_of_a_recovery_asks_the_coordinators_of_both() {
    let mut bed = standing_by(None);
    bed.ok(Command::NoteFormerQuorum);
    let next = Coordinator { address: "127.0.0.1:10".into(), ..founder().1 };
    begin_generation(&mut bed.state, (3, GenerationKey::NIL), bed.now, (10, next)).expect("a state to begin with");
    let recovery = bed.state.recovery.as_ref().expect("a recovery");
    assert_eq!(recovery.former, [(9, "127.0.0.1:9".to_owned())], "each once");
    assert!(!recovery.former_worked && !recovery.has_taken_over());
}

#[test]
fn settled_recovery_keeps_the_former_coordinators() {
    let mut bed = standing_by(None);
    let former = vec![founder_address()];
    let nodes: Vec<_> = bed.state.nodes.values().map(|row| (row.node.id, row.node.version)).collect();
    for (node, if_version) in nodes {
        bed.ok(Command::NodeLost { node, if_version });
    }
    bed.ok(Command::TakeOver);
    assert!(bed.state.former() == former && bed.state.former_coordinators.is_empty());
    wait(&mut bed);
    assert!(is_over(&bed));
    assert_eq!(bed.state.former(), former);
    bed.round_trip();
    let next = Coordinator { address: "127.0.0.1:10".into(), ..founder().1 };
    begin_generation(&mut bed.state, (3, GenerationKey::NIL), bed.now, (10, next)).expect("a state to begin with");
    assert!(bed.state.former() == former && bed.state.former_coordinators.is_empty());
}

fn founder_address() -> (u64, String) {
    (9, "127.0.0.1:9".to_owned())
}

fn nothing_continues_before_every_node_has_reported(mutant: Option<Mutant>) -> bool {
    let mut bed = recovered(mutant);
    tells(&mut bed, "athens", |_| {}, (1, 5));
    tells(&mut bed, "byzantium", |_| {}, (1, 5));
    wait(&mut bed);
    !is_over(&bed)
}

#[test]
fn only_an_operator_gives_up_a_node_without_data() {
    let mut bed = recovered(None);
    tells(&mut bed, "athens", |_| {}, (1, 5));
    tells(&mut bed, "byzantium", |_| {}, (1, 5));
    bed.pass(60_000, &[]);
    let refusal = check_settle(&bed.state, true).expect_err("cyrene was not heard");
    assert_eq!(refusal, SettleRefusal::Unheard { nodes: vec!["cyrene".into()] });
    assert!(refusal.to_string().contains("archon node lost"), "{refusal}");
    let cyrene = bed.node("cyrene");
    let if_version = bed.state.node(cyrene).expect("known").node.version;
    let told = bed.ok(Command::NodeLost { node: cyrene, if_version });
    assert!(matches!(told, Response::NodeLost { counting: 1, last_copies: 0, .. }), "{told:?}");
    wait(&mut bed);
    assert!(is_over(&bed));
    bed.settle();
    assert_eq!(bed.row(0).live().count(), 2);
}

fn partition_continues_from_the_longest_replica(mutant: Option<Mutant>) -> bool {
    let mut bed = recovered(mutant);
    // The drop of the other replicas is among the lost changes: only cyrene's replica has the last acknowledged writes.
    tells(&mut bed, "athens", |_| {}, (1, 5));
    tells(&mut bed, "byzantium", |_| {}, (1, 5));
    let cyrene = tells(&mut bed, "cyrene", |register| register.told = Version::new(first_number(2) - 1), (3, 9));
    assert_eq!(check_settle(&bed.state, false), Err(SettleRefusal::NotAccepted));
    let accepted = check_settle(&bed.state, true).expect("it may be accepted").expect("a command");
    bed.pass(2_000, &[]);
    assert!(!is_over(&bed), "nobody has accepted anything");
    bed.ok(accepted);
    wait(&mut bed);
    let counts: Vec<NodeId> = bed.row(0).live().map(|copy| copy.node).collect();
    is_over(&bed) && counts == [cyrene]
}

#[test]
fn node_restarted_during_recovery_is_not_behind() {
    let behind = |first: u64| {
        let mut bed = recovered(None);
        tells(&mut bed, "athens", |_| {}, (1, 5));
        tells(&mut bed, "byzantium", |register| register.told = Version::new(first), (1, 5));
        // It is killed after it learned of the coordinators' changes since the recovery.
        let told = |register: &mut Register| register.told = Version::new(first_number(2) + 1);
        tells(&mut bed, "byzantium", told, (1, 5));
        tells(&mut bed, "cyrene", |_| {}, (1, 5));
        wait(&mut bed);
        !is_over(&bed)
    };
    assert!(!behind(0), "nothing is lost");
    assert!(behind(first_number(2) - 1), "what it was told of before it began is lost, however often it is started");
}

fn node_of_a_later_generation_is_refused(mutant: Option<Mutant>) -> bool {
    let mut bed = recovered(mutant);
    let mut later = bed.registration("athens");
    later.last_incarnation = Some(Incarnation::new(first_number(3) + 5));
    later.expects = bed.state.node_by_storage(later.storage).map(|row| row.node.incarnation);
    matches!(bed.one(Command::Register(Box::new(later))), Response::Refused(error) if error.message.contains("--generation 4"))
}

#[test]
fn nodes_of_another_recovery_are_refused() {
    let mut bed = recovered(None);
    let mut register = bed.registration("athens");
    // It already lived in a second generation: in that of another recovery.
    register.last_incarnation = Some(Incarnation::new(first_number(2) + 40));
    assert_eq!(bed.refused(Command::Register(Box::new(register))), ErrorKind::OtherHistory);
}

#[test]
fn node_with_lost_registration_brings_its_replicas() {
    let mut bed = TestBed::running(settings(1, 2, 2), &CITIES[..2]);
    begin(&mut bed, 2, None);
    // A third one was registered and given a replica, and leads by now; the state knows nothing of that.
    let copy = PlacementId::new(bed.state.partitions.iter().flat_map(|row| &row.placements).count() as u64 + 1);
    let mut stranger = register("cyrene", 3, 5_000);
    stranger.held = vec![copy];
    (stranger.last_incarnation, stranger.told) = (Some(Incarnation::new(50)), Version::new(60));
    let cyrene = bed.join_with(stranger);
    let report = Report {
        partition: part(0),
        placement: copy,
        epoch: Epoch::new(7),
        version: Version::ZERO,
        fact: Fact::Inspected { last: Position::new(Epoch::new(7), Seq::new(30)) },
    };
    bed.report(cyrene, &report).expect("it is listened to");
    tells(&mut bed, "athens", |_| {}, (1, 5));
    tells(&mut bed, "byzantium", |_| {}, (1, 5));
    bed.ok(Command::AcceptRecovery);
    wait(&mut bed);
    let counts: Vec<(PlacementId, NodeId)> = bed.row(0).live().map(|live| (live.id, live.node)).collect();
    assert_eq!(counts, [(copy, cyrene)]);
    bed.settle();
    assert_eq!(bed.online(), 1);
}

#[test]
fn empty_node_with_lost_registration_is_accepted() {
    let mut bed = recovered(None);
    for city in CITIES {
        tells(&mut bed, city, |_| {}, (1, 5));
    }
    wait(&mut bed);
    assert!(is_over(&bed));
    let mut late = register("delos", 40, 41);
    late.last_incarnation = Some(Incarnation::new(30));
    late.held = vec![PlacementId::new(90)];
    assert_eq!(bed.refused(boxed(late.clone())), ErrorKind::Refused, "what it holds might be missed");
    late.held.clear();
    bed.join_with(late);
}

#[test]
fn data_is_not_reassigned_during_recovery() {
    let mut bed = recovered(None);
    let athens = tells(&mut bed, "athens", |_| {}, (1, 5));
    let row = bed.row(0).clone();
    let lead = Edit::Lead {
        placement: row.placements[0].id,
        incarnation: bed.incarnation(athens),
        ending: LeadershipEnd::Lapsed,
    };
    let change = PartitionChange::one(row.id, row.version, lead);
    assert_eq!(bed.refused(Command::Change(vec![change])), ErrorKind::Unavailable);
    let outcome = LossOutcome::Empty;
    let loss = Command::AcceptLoss { partition: row.id, if_version: row.version, outcome };
    assert_eq!(bed.refused(loss), ErrorKind::Unavailable);
    let wiped = register("cyrene", 900, 900);
    assert_eq!(bed.refused(Command::Register(Box::new(wiped))), ErrorKind::Unavailable);
    bed.pass(5_000, &[]);
    assert_eq!(bed.row(0), &row);
}

#[test]
fn generation_requires_a_state_and_a_higher_number() {
    let mut empty = ClusterState::new();
    assert_eq!(
        begin_generation(&mut empty, (2, GenerationKey::NIL), Millis::ZERO, founder()),
        Err(RecoveryError::Empty)
    );
    let mut bed = recovered(None);
    let before = bed.state.clone();
    let again = |state: &mut ClusterState, generation| {
        begin_generation(state, (generation, GenerationKey::NIL), Millis::ZERO, founder())
    };
    assert_eq!(again(&mut bed.state, 2), Err(RecoveryError::NotAbove { present: 2 }));
    let asked = GENERATIONS_MAX + 1;
    assert_eq!(again(&mut bed.state, asked), Err(RecoveryError::TooHigh { asked }));
    assert_eq!(bed.state, before);
    assert_eq!(again(&mut bed.state, 5), Ok(first_number(5)));
}

/// Starts a process on a directory of athens last used in the incarnation `last`; it reports the end of its log.
pub(crate) fn starts(bed: &mut TestBed, boot: u128, last: Incarnation, seq: u64) -> Incarnation {
    let change = |register: &mut Register| {
        register.boot = BootId::new(Uuid::from_u128(boot));
        register.last_incarnation = Some(last);
    };
    let athens = tells(bed, "athens", change, (1, seq));
    bed.incarnation(athens)
}

/// A process on such a directory registers, and misses the answer.
pub(crate) fn registers_only(bed: &mut TestBed, boot: u128, last: Incarnation) {
    let boot = BootId::new(Uuid::from_u128(boot));
    let register = Register { boot, last_incarnation: Some(last), ..bed.registration("athens") };
    bed.ok(Command::Register(Box::new(register)));
}

/// Returns athens' last incarnation before the recovery, and the one in which an older copy of its directory was made.
pub(crate) fn lives_of_athens(bed: &TestBed) -> (Incarnation, Incarnation) {
    let last = bed.registration("athens").last_incarnation.expect("it acted");
    (last, Incarnation::new(last.get() - 1))
}

/// Reports for the other nodes, accepts possible losses, and settles the recovery. Returns the nodes with replicas that
/// count.
pub(crate) fn settled(bed: &mut TestBed) -> Vec<NodeId> {
    tells(bed, "byzantium", |_| {}, (1, 5));
    tells(bed, "cyrene", |_| {}, (1, 5));
    if let Some(accepted) = check_settle(&bed.state, true).expect("all were heard") {
        bed.ok(accepted);
    }
    wait(bed);
    assert!(is_over(bed));
    bed.row(0).live().map(|copy| copy.node).collect()
}

/// Returns the doubts after the others have reported, too.
pub(crate) fn doubts_with_all_heard(bed: &mut TestBed) -> Vec<Doubt> {
    tells(bed, "byzantium", |_| {}, (1, 5));
    tells(bed, "cyrene", |_| {}, (1, 5));
    doubts(&bed.state)
}

fn older_directory_does_not_count_after_another_restart(mutant: Option<Mutant>) -> bool {
    let mut bed = recovered(mutant);
    let (_, older) = lives_of_athens(&bed);
    let first = starts(&mut bed, 1, older, 5);
    starts(&mut bed, 2, first, 5);
    let athens = bed.node("athens");
    let named = doubts_with_all_heard(&mut bed).contains(&Doubt::Older { node: athens });
    named && !settled(&mut bed).contains(&athens)
}

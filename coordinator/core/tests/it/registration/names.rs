//! Ownership of names and directories: takeovers, copied and wiped directories, removed nodes.

use crate::bed::{TestBed, boxed, facts_of, part, register, settings};
use archon_coordinator_core::*;
use archon_types::*;

#[test]
fn copied_directory_does_not_fence_the_original() {
    let mut bed = TestBed::running(settings(2, 2, 1), &["athens", "byzantium"]);
    let athens = bed.node("athens");
    let first = bed.state.node(athens).unwrap().clone();
    let last_incarnation = Some(first.node.incarnation);
    let again =
        Register { storage: first.storage, expects: last_incarnation, last_incarnation, ..register("athens", 1, 99) };
    let elsewhere = Register { address: "elsewhere.example:7000".into(), ..again.clone() };
    assert_eq!(bed.refused(boxed(elsewhere.clone())), ErrorKind::NameTaken);
    assert_eq!(bed.incarnation(athens), first.node.incarnation);
    // At the same address, a restart is accepted once the process there confirms it; elsewhere once the former
    // incarnation is failed.
    let held: Vec<_> =
        bed.state.partitions.on_node(athens).filter_map(|row| row.placement_on(athens)).map(|p| p.id).collect();
    bed.pass(2_000, &[athens]);
    assert_eq!(bed.state.node(athens).unwrap().node.status, NodeStatus::Failed);
    bed.ok(boxed(Register { held, ..elsewhere }));
    assert_eq!(bed.state.node(athens).unwrap().node.status, NodeStatus::Alive);
}

#[test]
fn registration_for_live_node_needs_confirmation() {
    let mut bed = TestBed::running(settings(2, 2, 1), &["athens", "byzantium"]);
    let athens = bed.node("athens");
    let first = bed.state.node(athens).unwrap().clone();
    let again = Register {
        storage: first.storage,
        expects: Some(first.node.incarnation),
        last_incarnation: Some(first.node.incarnation),
        ..register("athens", 1, 99)
    };
    let asked =
        |bed: &TestBed, register: &Register| to_confirm(&bed.state, register).map(|row| row.node.address.clone());
    assert_eq!(asked(&bed, &again), Some(first.node.address.clone()));
    // No confirmation is requested if no incarnation would be fenced, nor at an address that only the registration
    // names.
    let repeated = Register { boot: first.boot, ..again.clone() };
    let elsewhere = Register { address: "elsewhere.example:7000".into(), ..again.clone() };
    let overtaken = Register { expects: None, ..again.clone() };
    for not_asked in [&repeated, &elsewhere, &overtaken, &register("cyrene", 9, 9)] {
        assert_eq!(asked(&bed, not_asked), None, "{not_asked:?}");
    }
    let judged = |said| check_confirmed(&bed.state, &first, said).map_err(|error| error.kind);
    assert_eq!(judged(Confirmation::Own), Ok(()));
    assert_eq!(judged(Confirmation::Foreign), Err(ErrorKind::NameTaken));
    assert_eq!(judged(Confirmation::Silent), Err(ErrorKind::Unavailable));
    // Once its incarnation is failed no confirmation is needed.
    bed.pass(2_000, &[athens]);
    assert_eq!(asked(&bed, &again), None);
}

#[test]
fn only_failed_nodes_name_is_taken_over() {
    let mut bed = TestBed::running(settings(2, 2, 1), &["athens", "byzantium"]);
    let athens = bed.node("athens");
    assert_eq!(bed.refused(boxed(register("athens", 50, 50))), ErrorKind::NameTaken);
    bed.pass(2_000, &[athens]);
    // A directory with data does not take another's name by mistake.
    let byzantium = bed.state.node(bed.node("byzantium")).unwrap().clone();
    let renamed = Register { storage: byzantium.storage, ..register("athens", 50, 51) };
    assert_eq!(bed.refused(boxed(renamed)), ErrorKind::NameTaken);

    // An empty one does not either, as long as the last in-sync copy would be lost by it.
    let Response::Refused(error) = bed.one(boxed(register("athens", 50, 52))) else { panic!("the copy was given up") };
    assert_eq!(error.kind, ErrorKind::DataLoss);
    assert!(error.message.contains("(default/0)"), "{error}");
    assert!(error.message.contains("`archon node lost athens --accept-data-loss`"), "{error}");
    assert_eq!(bed.row(0).live().count(), 1);
    assert_eq!(bed.state.nodes.len(), 2);

    // The remedy named by the refusal: give the old directory up, then start the empty one again.
    bed.ok(check_lose_node(&bed.state, athens).unwrap().command);
    let new = bed.join("athens", 50);
    assert_ne!(new, athens);
    assert_eq!(bed.state.node(athens).unwrap().node.status, NodeStatus::Lost);
    assert_eq!(bed.row(0).live().count(), 0);
    assert_eq!(facts_of(explain(&bed.state, &LeaderView::default(), part(0)).unwrap()), [Facts::DataLost {}]);
    bed.settle();
    assert_eq!(bed.online(), 1);

    // An operator accepts the loss; the partition is assigned again.
    let if_version = bed.row(0).version;
    bed.ok(Command::AcceptLoss { partition: part(0), if_version, outcome: LossOutcome::Empty });
    let whole = bed.row(1).version;
    assert_eq!(
        bed.refused(Command::AcceptLoss { partition: part(1), if_version: whole, outcome: LossOutcome::Empty }),
        ErrorKind::Refused
    );
    bed.settle();
    assert_eq!(bed.online(), 2);
    assert_eq!(bed.row(0).placements.len(), 1);
    bed.round_trip();
}

#[test]
fn empty_directory_takes_over_without_last_copies() {
    let mut bed = TestBed::running(settings(2, 2, 2), &["athens", "byzantium"]);
    let athens = bed.node("athens");
    bed.fail(athens);
    let new = bed.join("athens", 50);
    assert_eq!(bed.state.node(athens).unwrap().node.status, NodeStatus::Lost);
    bed.settle();
    assert!((0..2).all(|index| bed.row(index).placement_on(new).is_some()));

    let mut bed = TestBed::new(settings(1, 1, 1));
    let athens = bed.join("athens", 1);
    for command in bed.turn() {
        bed.ok(command);
    }
    assert_eq!(bed.row(0).status, PartitionStatus::Assigned);
    bed.fail(athens);
    assert_ne!(bed.join("athens", 50), athens, "nothing was served yet, so there is nothing to lose");
}

#[test]
fn late_registration_of_wiped_directory_loses_name() {
    let mut bed = TestBed::running(settings(4, 2, 2), &["athens", "byzantium"]);
    let athens = bed.node("athens");
    let activated = bed.state.node(athens).unwrap().activated;
    bed.fail(athens);
    // Sent before the disk was wiped, delivered now; its process is gone.
    let late = register("athens", 50, 50);
    let Response::Registered { node: usurper, .. } = bed.ok(boxed(late.clone())) else { panic!("not registered") };
    assert_eq!(bed.state.node(athens).unwrap().node.status, NodeStatus::Lost);
    let held: Vec<_> = (0..4).filter_map(|index| bed.row(index).placement_on(athens)).map(|copy| copy.id).collect();
    let back = Register { held, last_incarnation: activated, ..register("athens", 1, 60) };
    // While the newcomer may still act, it keeps the name.
    assert_eq!(bed.refused(boxed(back.clone())), ErrorKind::NameTaken);
    bed.fail(usurper);
    // Only the directory that had the name takes it back.
    let byzantium = bed.state.node(bed.node("byzantium")).unwrap().clone();
    let renamed = Register { storage: byzantium.storage, ..register("athens", 2, 61) };
    bed.fail(byzantium.node.id);
    assert_eq!(bed.refused(boxed(renamed)), ErrorKind::NameTaken);
    bed.rejoin(byzantium.node.id, 62);

    assert_eq!(bed.join_with(back), athens);
    let status = |node| bed.state.node(node).unwrap().node.status;
    assert_eq!((status(athens), status(usurper)), (NodeStatus::Alive, NodeStatus::Lost));
    bed.settle();
    assert_eq!(bed.online(), 4);
    assert!((0..4).all(|index| bed.row(index).live().count() == 2), "the copies count again");
    // The same registration again is refused, and the name stays.
    assert_eq!(bed.refused(boxed(Register { expects: Some(Incarnation::new(1)), ..late })), ErrorKind::StaleVersion);
}

#[test]
fn known_directory_does_not_take_name_from_acting_node() {
    let mut bed = TestBed::running(settings(4, 2, 2), &["athens", "byzantium"]);
    let old = bed.node("athens");
    let activated = bed.state.node(old).unwrap().activated;
    bed.fail(old);
    let new = bed.join("athens", 50);
    bed.settle();
    // It registers again and dies before it confirms that it acts: its copies are in sync nevertheless.
    let row = bed.state.node(new).unwrap().clone();
    let held = bed.state.partitions.on_node(new).filter_map(|row| row.placement_on(new)).map(|copy| copy.id).collect();
    bed.ok(boxed(Register { held, last_incarnation: row.activated, ..register("athens", 50, 51) }));
    bed.fail(new);
    let back = Register { last_incarnation: activated, ..register("athens", 1, 60) };
    assert_eq!(bed.refused(boxed(back)), ErrorKind::NameTaken);
    assert!((0..4).all(|index| bed.row(index).live().count() == 2));
}

#[test]
fn removed_nodes_directory_is_refused_without_row() {
    let mut bed = TestBed::running(settings(2, 2, 2), &["athens", "byzantium"]);
    let athens = bed.node("athens");
    let row = bed.state.node(athens).unwrap().clone();
    bed.fail(athens);
    bed.ok(check_lose_node(&bed.state, athens).unwrap().command);
    bed.ok(check_remove(&bed.state, athens).unwrap().command);
    let back = Register { last_incarnation: row.activated, ..register("athens", 1, 90) };
    let Response::Refused(error) = bed.one(boxed(back.clone())) else { panic!("it joined") };
    assert_eq!(error.kind, ErrorKind::Refused);
    assert!(error.message.contains("was removed") && error.message.contains("empty --data-dir"), "{error}");
    assert_eq!(bed.state.nodes.len(), 1);
    // An empty one joins under the same name.
    bed.join("athens", 51);
    assert_eq!(bed.refused(boxed(Register { name: "corinth".into(), ..back })), ErrorKind::Refused);
}

#[test]
fn subject_of_removed_node_is_its_number() {
    let removed = NodeId::new(5);
    assert_eq!(ClusterState::new().node_subject(removed).to_string(), "node 5");
}

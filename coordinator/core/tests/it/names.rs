//! Whose name and whose directory it is: takeovers, copied and wiped directories, removed nodes.

use crate::bed::{TestBed, boxed, part, register, settings};
use archon_coordinator_core::*;
use archon_types::*;

#[test]
fn a_copied_directory_started_elsewhere_does_not_end_the_life_of_the_first() {
    let mut bed = TestBed::running(settings(2, 2, 1), &["athens", "byzantium"]);
    let athens = bed.node("athens");
    let first = bed.state.node(athens).unwrap().clone();
    let last_incarnation = Some(first.node.incarnation);
    let again =
        Register { storage: first.storage, expects: last_incarnation, last_incarnation, ..register("athens", 1, 99) };
    let elsewhere = Register { address: "elsewhere.example:7000".into(), ..again.clone() };
    assert_eq!(bed.refused(boxed(elsewhere.clone())), ErrorKind::NameTaken);
    assert_eq!(bed.incarnation(athens), first.node.incarnation);
    // Where it was, a restart is believed as soon as the process there confirms it; elsewhere once the former life was failed.
    let held: Vec<_> =
        bed.state.partitions.on_node(athens).filter_map(|row| row.placement_on(athens)).map(|p| p.id).collect();
    bed.pass(2_000, &[athens]);
    assert_eq!(bed.state.node(athens).unwrap().node.status, NodeStatus::Failed);
    bed.ok(boxed(Register { held, ..elsewhere }));
    assert_eq!(bed.state.node(athens).unwrap().node.status, NodeStatus::Alive);
}

#[test]
fn a_registration_in_a_live_nodes_name_is_judged_by_the_process_at_its_address() {
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
    // Nobody is asked where no life would end, nor at an address that only the registration names.
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
    // Once its life was failed nobody need be asked any more.
    bed.pass(2_000, &[athens]);
    assert_eq!(asked(&bed, &again), None);
}

#[test]
fn another_data_directory_takes_over_only_a_failed_nodes_name() {
    let mut bed = TestBed::running(settings(2, 2, 1), &["athens", "byzantium"]);
    let athens = bed.node("athens");
    assert_eq!(bed.refused(boxed(register("athens", 50, 50))), ErrorKind::NameTaken);
    bed.pass(2_000, &[athens]);
    // A directory with data does not take another's name by mistake.
    let byzantium = bed.state.node(bed.node("byzantium")).unwrap().clone();
    let renamed = Register { storage: byzantium.storage, ..register("athens", 50, 51) };
    assert_eq!(bed.refused(boxed(renamed)), ErrorKind::NameTaken);

    // An empty one does not either, as long as the last copy that counts would be lost by it.
    let Response::Refused(error) = bed.one(boxed(register("athens", 50, 52))) else { panic!("the copy was given up") };
    assert_eq!(error.kind, ErrorKind::DataLoss);
    assert!(error.message.contains("(default/0)"), "{error}");
    assert!(error.message.contains("`archon node lost athens --accept-data-loss`"), "{error}");
    assert_eq!(bed.row(0).live().count(), 1);
    assert_eq!(bed.state.nodes.len(), 2);

    // The way that the refusal names: give the old directory up, then start the empty one again.
    bed.ok(check_lose_node(&bed.state, athens).unwrap().command);
    let new = bed.join("athens", 50);
    assert_ne!(new, athens);
    assert_eq!(bed.state.node(athens).unwrap().node.status, NodeStatus::Lost);
    assert_eq!(bed.row(0).live().count(), 0);
    assert_eq!(explain(&bed.state, &Remembered::default(), part(0)).unwrap(), vec![Why::DataLost]);
    bed.settle();
    assert_eq!(bed.online(), 1);

    // An operator accepts the loss; the partition is assigned anew.
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
fn an_empty_directory_takes_over_where_other_copies_count_or_nothing_was_served() {
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
fn a_late_registration_of_a_wiped_directory_does_not_keep_the_name_for_ever() {
    let mut bed = TestBed::running(settings(4, 2, 2), &["athens", "byzantium"]);
    let athens = bed.node("athens");
    let activated = bed.state.node(athens).unwrap().activated;
    bed.fail(athens);
    // Sent before the disk was wiped, delivered now; the process that sent it is gone.
    let late = register("athens", 50, 50);
    let Response::Registered { node: usurper, .. } = bed.ok(boxed(late.clone())) else { panic!("not registered") };
    assert_eq!(bed.state.node(athens).unwrap().node.status, NodeStatus::Lost);
    let held: Vec<_> = (0..4).filter_map(|index| bed.row(index).placement_on(athens)).map(|copy| copy.id).collect();
    let back = Register { held, last_incarnation: activated, ..register("athens", 1, 60) };
    // While the newcomer may still come to life, the name is its own.
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
    // The same word once more is of no use to anybody: it is refused, and the name stays.
    assert_eq!(bed.refused(boxed(Register { expects: Some(Incarnation::new(1)), ..late })), ErrorKind::StaleVersion);
}

#[test]
fn a_known_directory_does_not_take_its_name_from_a_node_that_acted() {
    let mut bed = TestBed::running(settings(4, 2, 2), &["athens", "byzantium"]);
    let old = bed.node("athens");
    let activated = bed.state.node(old).unwrap().activated;
    bed.fail(old);
    let new = bed.join("athens", 50);
    bed.settle();
    // It registers anew and dies before it can say that it acts: its copies count all the same.
    let row = bed.state.node(new).unwrap().clone();
    let held = bed.state.partitions.on_node(new).filter_map(|row| row.placement_on(new)).map(|copy| copy.id).collect();
    bed.ok(boxed(Register { held, last_incarnation: row.activated, ..register("athens", 50, 51) }));
    bed.fail(new);
    let back = Register { last_incarnation: activated, ..register("athens", 1, 60) };
    assert_eq!(bed.refused(boxed(back)), ErrorKind::NameTaken);
    assert!((0..4).all(|index| bed.row(index).live().count() == 2));
}

#[test]
fn a_removed_nodes_directory_is_refused_at_once_and_leaves_no_row() {
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

//! Registration, identity, activation, settings and repeated requests.

use crate::bed::{Bed, part, register, settings};
use archon_coordinator_core::*;
use archon_types::*;
use uuid::Uuid;

fn boxed(register: Register) -> Command {
    Command::Register(Box::new(register))
}

#[test]
fn before_bootstrap_everything_is_retryable() {
    let mut bed = Bed::empty();
    let kind = bed.refused(boxed(register("athens", 1, 1)));
    assert_eq!(kind, ErrorKind::Unavailable);
    assert!(kind.is_retryable());
}

#[test]
fn bootstrap_happens_once() {
    let mut bed = Bed::new(settings(9, 3, 1));
    let again = |id| Command::Bootstrap { cluster: ClusterId::new(Uuid::from_u128(id)), settings: settings(9, 3, 1) };
    let before = bed.state.clone();
    bed.ok(again(7));
    assert_eq!(ClusterState { applied: before.applied, ..bed.state.clone() }, before);
    assert_eq!(bed.refused(again(8)), ErrorKind::AlreadyExists);
    assert_eq!(bed.state.partitions.len(), 9);
}

#[test]
fn settings_that_would_break_leases_are_refused() {
    let mut bed = Bed::empty();
    let mut bad = settings(9, 3, 1);
    bad.timing.failure_timeout_ms = 1_000;
    let bootstrap = Command::Bootstrap { cluster: ClusterId::new(Uuid::from_u128(7)), settings: bad.clone() };
    // Before bootstrap there is nothing that could have changed.
    assert!(bed.one(bootstrap).refusal().is_some_and(|error| error.message.contains("1.01")));
    assert!(!bed.state.is_bootstrapped());
}

#[test]
fn the_same_process_gets_the_same_answer() {
    let mut bed = Bed::new(settings(3, 1, 1));
    let first = bed.ok(boxed(register("athens", 1, 1)));
    let version = bed.state.table_version();
    assert_eq!(bed.ok(boxed(register("athens", 1, 1))), first);
    assert_eq!(bed.state.table_version(), version);
}

#[test]
fn bad_registrations_change_nothing() {
    let mut bed = Bed::running(settings(3, 1, 1), &["athens"]);
    let good = || register("corinth", 9, 9);
    let cases = [
        (Register { name: "a b".into(), ..good() }, ErrorKind::InvalidArgument),
        (Register { address: "nowhere".into(), ..good() }, ErrorKind::InvalidArgument),
        (Register { address: "host:0".into(), ..good() }, ErrorKind::InvalidArgument),
        (Register { address: ":70".into(), ..good() }, ErrorKind::InvalidArgument),
        (Register { address: "h:70000".into(), ..good() }, ErrorKind::InvalidArgument),
        (Register { zone: Some("".into()), ..good() }, ErrorKind::InvalidArgument),
        (Register { weight: 0, ..good() }, ErrorKind::InvalidArgument),
        (Register { partitions_max: Some(0), ..good() }, ErrorKind::InvalidArgument),
        (Register { storage: StorageId::NIL, ..good() }, ErrorKind::InvalidArgument),
        (Register { protocol_min: 2, protocol_max: 3, ..good() }, ErrorKind::ProtocolMismatch),
        (Register { name: "athens".into(), ..good() }, ErrorKind::NameTaken),
        (Register { address: "athens.example:7000".into(), ..good() }, ErrorKind::NameTaken),
    ];
    for (bad, kind) in cases {
        assert_eq!(bed.refused(boxed(bad.clone())), kind, "{bad:?}");
    }
    bed.ok(boxed(good()));
}

#[test]
fn a_restart_ends_every_leadership_and_waits_for_the_old_lease() {
    let mut bed = Bed::running(settings(4, 2, 1), &["athens", "byzantium"]);
    let athens = bed.node("athens");
    let old = bed.incarnation(athens);
    bed.beat_all();
    let epoch = bed.row(0).epoch;
    bed.rejoin(athens, 77);
    assert_eq!((bed.row(0).leader, bed.row(0).epoch), (None, epoch.next().unwrap()));
    assert_eq!(bed.row(0).status, PartitionStatus::Unavailable);
    assert_eq!(bed.leader(1), Some(bed.node("byzantium")));
    let former = bed.state.formers.of_partition(part(0)).next().copied().unwrap();
    assert_eq!((former.node, former.incarnation, former.epoch, former.lapsed), (athens, old, epoch, false));

    // The lease of the old life may run until a failure time-out after its last answer.
    assert_eq!(bed.turn(), vec![]);
    assert_eq!(
        explain(&bed.state, &Remembered::default(), part(0)).unwrap(),
        vec![Why::WaitingForLease { node: athens, incarnation: old }]
    );
    bed.now = bed.now.plus(1_249);
    bed.beat_all();
    assert_eq!(bed.turn(), vec![]);
    bed.now = bed.now.plus(1);
    let elected = bed.turn();
    assert_eq!(elected.len(), 2, "{elected:?}");
    bed.commit(elected);
    assert_eq!(bed.leader(0), Some(athens));
    assert!(bed.state.formers.is_empty());
    bed.settle();
    assert_eq!(bed.online(), 4);
    bed.round_trip();
}

#[test]
fn a_new_coordinator_waits_a_whole_time_out_before_it_elects() {
    let mut bed = Bed::running(settings(1, 1, 1), &["athens"]);
    let athens = bed.node("athens");
    bed.pass(5_000, &[athens].map(|_| NodeId::new(99)));
    bed.rejoin(athens, 77);
    bed.liveness = Liveness::new(bed.now);
    bed.now = bed.now.plus(1_249);
    bed.beat_all();
    assert_eq!(bed.turn(), vec![]);
    bed.now = bed.now.plus(1);
    assert_eq!(bed.turn().len(), 1);
}

#[test]
fn a_node_acts_only_in_an_activated_life() {
    let mut bed = Bed::new(settings(3, 1, 1));
    bed.ok(boxed(register("athens", 1, 1)));
    let athens = bed.node("athens");
    assert_eq!(duties(&bed.state, athens), None);
    assert_eq!(bed.turn(), vec![]);
    let incarnation = bed.incarnation(athens);
    bed.ok(Command::Activate { node: athens, incarnation });
    assert_eq!(duties(&bed.state, athens), Some(vec![]));
    assert_eq!(bed.turn().len(), 1);
}

#[test]
fn a_copied_directory_started_elsewhere_does_not_end_the_life_of_the_first() {
    let mut bed = Bed::running(settings(2, 2, 1), &["athens", "byzantium"]);
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
    assert_eq!(bed.state.node(athens).unwrap().node.status, NodeStatus::Live);
}

#[test]
fn a_registration_in_a_live_nodes_name_is_judged_by_the_process_at_its_address() {
    let mut bed = Bed::running(settings(2, 2, 1), &["athens", "byzantium"]);
    let athens = bed.node("athens");
    let first = bed.state.node(athens).unwrap().clone();
    let again = Register {
        storage: first.storage,
        expects: Some(first.node.incarnation),
        last_incarnation: Some(first.node.incarnation),
        ..register("athens", 1, 99)
    };
    let asked = |bed: &Bed, register: &Register| to_confirm(&bed.state, register).map(|row| row.node.address.clone());
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
fn strangers_that_registered_and_went_away_barred_new_nodes_for_ever() {
    let mut bed = Bed::running(settings(4, 2, 2), &["athens", "byzantium"]);
    let own = [bed.node("athens"), bed.node("byzantium")];
    let most = archon_coordinator_core::state::STRANGERS_MAX;
    let name = |number: usize| format!("stranger-{number:04}");
    let arrives = |bed: &mut Bed, number: usize| {
        let number_of_directory = 1_000 + number as u128;
        bed.ok(boxed(register(&name(number), number_of_directory, number_of_directory)));
        bed.node(&name(number))
    };
    let first: Vec<NodeId> = (0..most + 5).map(|number| arrives(&mut bed, number)).collect();
    // One of them is a node in earnest: it has said that it acts.
    let incarnation = bed.incarnation(first[0]);
    bed.ok(Command::Activate { node: first[0], incarnation });
    bed.fail(own[0]);
    bed.pass(2_000, &[&first[..], &own[..1]].concat());
    let strangers = |bed: &Bed| bed.state.nodes.keys().filter(|node| bed.state.is_stranger(**node)).count();
    assert_eq!(strangers(&bed), most + 4);
    // The next newcomer finds room, and those that went away longest ago are forgotten for it.
    let last = arrives(&mut bed, most + 5);
    assert_eq!(strangers(&bed), most - 1);
    for kept in [first[0], own[0], own[1], last] {
        assert!(bed.state.node(kept).is_some(), "{kept}");
    }
    assert!(bed.state.node(first[1]).is_none() && bed.state.node(first[most + 4]).is_some());
}

#[test]
fn a_stranger_is_forgotten_after_a_while_and_a_node_that_acted_is_not() {
    let mut bed = Bed::running(settings(4, 2, 2), &["athens", "byzantium"]);
    let athens = bed.node("athens");
    bed.ok(boxed(register("stranger", 50, 50)));
    let stranger = bed.node("stranger");
    bed.pass(2_000, &[athens, stranger]);
    let failed = |bed: &Bed, node| bed.state.node(node).map(|row| row.node.status);
    assert_eq!(failed(&bed, stranger), Some(NodeStatus::Failed));
    let age_ms = archon_coordinator_core::state::STRANGER_AGE_MS;
    let late = |bed: &mut Bed, millis: u64| {
        bed.now = bed.now.plus(millis);
        bed.beat_all();
        bed.pass(300, &[athens, stranger]);
    };
    late(&mut bed, age_ms - 10_000);
    assert_eq!(failed(&bed, stranger), Some(NodeStatus::Failed));
    late(&mut bed, 10_000);
    assert_eq!(failed(&bed, stranger), None);
    assert_eq!(failed(&bed, athens), Some(NodeStatus::Failed));
    // It may come back as what it was: a newcomer.
    bed.ok(boxed(register("stranger", 50, 51)));
}

#[test]
fn another_data_directory_takes_over_only_a_failed_nodes_name() {
    let mut bed = Bed::running(settings(2, 2, 1), &["athens", "byzantium"]);
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
    bed.ok(check_lost(&bed.state, athens).unwrap().command);
    let new = bed.join("athens", 50);
    assert_ne!(new, athens);
    assert_eq!(bed.state.node(athens).unwrap().node.status, NodeStatus::Lost);
    assert_eq!(bed.row(0).live().count(), 0);
    assert_eq!(explain(&bed.state, &Remembered::default(), part(0)).unwrap(), vec![Why::DataLost]);
    bed.settle();
    assert_eq!(bed.online(), 1);

    // An operator accepts the loss; the partition is assigned anew.
    let if_version = bed.row(0).version;
    bed.ok(Command::AcceptLoss { partition: part(0), if_version, outcome: Forced::Empty });
    let whole = bed.row(1).version;
    assert_eq!(
        bed.refused(Command::AcceptLoss { partition: part(1), if_version: whole, outcome: Forced::Empty }),
        ErrorKind::Refused
    );
    bed.settle();
    assert_eq!(bed.online(), 2);
    assert_eq!(bed.row(0).placements.len(), 1);
    bed.round_trip();
}

#[test]
fn an_empty_directory_takes_over_where_other_copies_count_or_nothing_was_served() {
    let mut bed = Bed::running(settings(2, 2, 2), &["athens", "byzantium"]);
    let athens = bed.node("athens");
    bed.fail(athens);
    let new = bed.join("athens", 50);
    assert_eq!(bed.state.node(athens).unwrap().node.status, NodeStatus::Lost);
    bed.settle();
    assert!((0..2).all(|index| bed.row(index).placement_on(new).is_some()));

    let mut bed = Bed::new(settings(1, 1, 1));
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
    let mut bed = Bed::running(settings(4, 2, 2), &["athens", "byzantium"]);
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
    assert_eq!((status(athens), status(usurper)), (NodeStatus::Live, NodeStatus::Lost));
    bed.settle();
    assert_eq!(bed.online(), 4);
    assert!((0..4).all(|index| bed.row(index).live().count() == 2), "the copies count again");
    // The same word once more is of no use to anybody: it is refused, and the name stays.
    assert_eq!(bed.refused(boxed(Register { expects: Some(Incarnation::new(1)), ..late })), ErrorKind::StaleVersion);
}

#[test]
fn a_known_directory_does_not_take_its_name_from_a_node_that_acted() {
    let mut bed = Bed::running(settings(4, 2, 2), &["athens", "byzantium"]);
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
    let mut bed = Bed::running(settings(2, 2, 2), &["athens", "byzantium"]);
    let athens = bed.node("athens");
    let row = bed.state.node(athens).unwrap().clone();
    bed.fail(athens);
    bed.ok(check_lost(&bed.state, athens).unwrap().command);
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
fn a_copy_that_is_not_held_whole_or_is_rolled_back_is_lost() {
    type Damage = fn(&mut Register);
    let cases: [(&str, Damage); 3] = [
        ("not held", |r| r.held.clear()),
        ("rolled back", |r| r.last_incarnation = Some(Incarnation::new(1))),
        ("no incarnation", |r| r.last_incarnation = None),
    ];
    for (what, damage) in cases {
        let mut bed = Bed::running(settings(2, 2, 1), &["athens", "byzantium"]);
        let athens = bed.node("athens");
        let mut back = register("athens", 1, 90);
        back.held = bed.row(0).placements.iter().map(|p| p.id).collect();
        back.last_incarnation = bed.state.node(athens).unwrap().activated;
        damage(&mut back);
        bed.ok(boxed(back));
        assert_eq!(bed.row(0).live().count(), 0, "{what}");
        // Nobody else has it: the copy is kept for the operator, not deleted.
        assert_eq!(bed.row(0).placements[0].state, ReplicaState::Load, "{what}");
        assert_eq!(bed.row(1).live().count(), 1);
    }
}

#[test]
fn a_life_that_was_stored_and_not_confirmed_loses_nothing() {
    let mut bed = Bed::running(settings(1, 1, 1), &["athens"]);
    let held: Vec<PlacementId> = bed.row(0).placements.iter().map(|p| p.id).collect();
    let athens = bed.node("athens");
    let last_incarnation = bed.state.node(athens).unwrap().activated;
    let back = Register { held: held.clone(), last_incarnation, ..register("athens", 1, 90) };
    bed.ok(boxed(back.clone()));
    // It stored that incarnation and died before it could say so.
    let stored = Some(bed.incarnation(athens));
    let boot = BootId::new(Uuid::from_u128(91));
    bed.ok(boxed(Register { last_incarnation: stored, boot, ..back.clone() }));
    assert_eq!(bed.row(0).live().count(), 1);
    // Or it died before it even stored it.
    let boot = BootId::new(Uuid::from_u128(92));
    bed.join_with(Register { boot, ..back });
    assert_eq!(bed.row(0).live().count(), 1);
    bed.settle();
    assert_eq!(bed.online(), 1);
}

#[test]
fn stale_lives_are_told_to_register_again() {
    let mut bed = Bed::running(settings(1, 1, 1), &["athens"]);
    let athens = bed.node("athens");
    let old = bed.incarnation(athens);
    bed.rejoin(athens, 90);
    let kind = |bed: &mut Bed, incarnation| {
        let now = bed.now;
        bed.liveness.heard(&bed.state, athens, incarnation, now).unwrap_err().kind
    };
    assert_eq!(kind(&mut bed, old), ErrorKind::StaleIncarnation);
    assert_eq!(kind(&mut bed, Incarnation::new(10_000)), ErrorKind::Unavailable);
    assert_eq!(bed.refused(Command::Activate { node: athens, incarnation: old }), ErrorKind::StaleIncarnation);
    let now = bed.now;
    assert_eq!(bed.liveness.answer(&bed.state, athens, old, now), None);
}

#[test]
fn a_repeated_request_gets_its_first_answer() {
    let mut bed = Bed::new(settings(1, 1, 1));
    let create = Command::CreateTable { name: "orders".into(), partitions: 4, replication: 1 };
    let request = Some(RequestId::new(Uuid::from_u128(5)));
    let batch = CommandBatch { request, ..bed.batch(vec![create.clone()]) };
    let first = bed.commit_batch(&batch);
    let before = bed.state.clone();
    assert_eq!(bed.commit_batch(&batch), first);
    assert_eq!(ClusterState { applied: before.applied, ..bed.state.clone() }, before);
    assert_eq!(bed.refused(create), ErrorKind::AlreadyExists);
    // The memory is bounded by count and by age.
    for number in 0..3_000u128 {
        let request = Some(RequestId::new(Uuid::from_u128(100 + number)));
        let batch = CommandBatch { request, ..bed.batch(vec![]) };
        apply(&mut bed.state, 10 + number as u64, &batch);
    }
    assert_eq!(bed.state.answers.len(), 1_024);
    bed.now = bed.now.plus(700_000);
    let late = CommandBatch { request: Some(RequestId::new(Uuid::from_u128(1))), ..bed.batch(vec![]) };
    apply(&mut bed.state, 9_999, &late);
    assert_eq!(bed.state.answers.len(), 1);
}

#[test]
fn tables_have_bounds() {
    let mut bed = Bed::new(settings(1, 1, 1));
    let create =
        |name: &str, partitions, replication| Command::CreateTable { name: name.into(), partitions, replication };
    assert_eq!(bed.refused(create("t", 0, 1)), ErrorKind::InvalidArgument);
    assert_eq!(bed.refused(create("t", 16_385, 1)), ErrorKind::InvalidArgument);
    assert_eq!(bed.refused(create("t", 1, 0)), ErrorKind::InvalidArgument);
    assert_eq!(bed.refused(create("t", 1, 8)), ErrorKind::InvalidArgument);
    assert_eq!(bed.refused(create("bad name", 1, 1)), ErrorKind::InvalidArgument);
    // Applied directly: checking every invariant of a million rows each time would take long.
    for number in 0..63 {
        let batch = bed.batch(vec![create(&format!("t{number}"), 16_384, 1)]);
        assert!(apply(&mut bed.state, 10 + number, &batch)[0].refusal().is_none());
    }
    let batch = bed.batch(vec![create("t63", 16_384, 1)]);
    assert_eq!(apply(&mut bed.state, 100, &batch)[0].refusal().map(|error| error.kind), Some(ErrorKind::Refused));
}

#[test]
fn commands_survive_being_written_and_read() {
    let mut bed = Bed::running(settings(9, 3, 1), &["athens", "byzantium", "cyrene"]);
    let athens = bed.node("athens");
    let commands = vec![
        boxed(register("x", 1, 2)),
        failed_command(&bed, athens),
        plan(&bed.state, Goal::default()).start(),
        Command::SetNode { node: athens, goal: NodeGoal::Drain, if_nodes: None },
        Command::CancelPlan,
    ];
    let batch = bed.batch(commands);
    let bytes = rmp_serde::to_vec_named(&batch).unwrap();
    assert_eq!(rmp_serde::from_slice::<CommandBatch>(&bytes).unwrap(), batch);
    assert_eq!(serde_json::from_str::<CommandBatch>(&serde_json::to_string(&batch).unwrap()).unwrap(), batch);
    assert!(batch.to_string().contains("Register NodeFailed StartPlan"));
    let responses = bed.commit_batch(&batch);
    let bytes = rmp_serde::to_vec_named(&responses).unwrap();
    assert_eq!(rmp_serde::from_slice::<Vec<Response>>(&bytes).unwrap(), responses);
}

fn failed_command(bed: &Bed, node: NodeId) -> Command {
    on_stopping(&bed.state, &bed.liveness, node, bed.incarnation(node)).expect("its present life").remove(0)
}

#[test]
fn a_void_entry_changes_nothing_but_the_index() {
    let mut bed = Bed::new(settings(1, 1, 1));
    let before = bed.state.clone();
    skip(&mut bed.state, 50);
    assert_eq!(bed.state, ClusterState { applied: 50, ..before });
}

#[test]
fn a_node_killed_between_assignment_and_first_store_gets_its_partitions_again() {
    let mut bed = Bed::new(settings(1, 1, 1));
    let athens = bed.join("athens", 1);
    // Assigned, and nothing reported yet: the push never arrived.
    for command in bed.turn() {
        bed.ok(command);
    }
    assert_eq!((bed.row(0).status, bed.leader(0)), (PartitionStatus::Assigned, Some(athens)));
    let stored = Some(bed.incarnation(athens));
    bed.ok(boxed(Register { held: vec![], last_incarnation: stored, ..register("athens", 1, 90) }));
    assert_eq!(bed.row(0).live().count(), 1, "there is nothing to lose yet: {:?}", bed.row(0));

    // Once it has been Online, the same answer means that data is gone.
    bed.ok(Command::Activate { node: athens, incarnation: bed.incarnation(athens) });
    bed.settle();
    assert_eq!(bed.row(0).status, PartitionStatus::Online);
    let stored = Some(bed.incarnation(athens));
    bed.ok(boxed(Register { held: vec![], last_incarnation: stored, ..register("athens", 1, 91) }));
    assert_eq!(bed.row(0).live().count(), 0, "{:?}", bed.row(0));
}

/// Found by the simulator: a registration waited in a stopped coordinator while the node started twice more. It said
/// truly, but of long ago, that an older incarnation was the last one stored, and every copy of the node was given up.
#[test]
fn a_registration_that_was_overtaken_does_not_give_up_the_copies_of_a_later_life() {
    let mut bed = Bed::running(settings(4, 1, 2), &["athens", "byzantium"]);
    let athens = bed.node("athens");
    let late = Register {
        held: bed.state.partitions.on_node(athens).filter_map(|row| row.placement_on(athens)).map(|p| p.id).collect(),
        last_incarnation: bed.state.node(athens).unwrap().activated,
        expects: Some(bed.incarnation(athens)),
        ..register("athens", 1, 70)
    };
    bed.rejoin(athens, 71);
    bed.rejoin(athens, 72);
    let live = |bed: &Bed| bed.state.partitions.iter().map(|row| row.live().count()).collect::<Vec<_>>();
    let (before, present) = (live(&bed), bed.incarnation(athens));
    let Response::Refused(error) = bed.one(boxed(late.clone())) else { panic!("an old registration took effect") };
    assert_eq!((error.kind, error.have), (ErrorKind::StaleVersion, Some(present.get())));
    assert_eq!((live(&bed), bed.incarnation(athens)), (before.clone(), present));
    // Once told which life is on record, the process that is really there registers; an older directory is seen.
    bed.ok(boxed(Register { last_incarnation: Some(present), expects: Some(present), ..late.clone() }));
    assert_eq!(live(&bed), before);
    let expects = Some(bed.incarnation(athens));
    bed.ok(boxed(Register { boot: BootId::new(Uuid::from_u128(73)), expects, ..late }));
    assert_ne!(live(&bed), before);
}

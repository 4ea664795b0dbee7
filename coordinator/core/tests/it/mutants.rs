//! Every rule of the coordinator disabled, one at a time: each must show, in a decision or in an invariant. Each
//! function here returns true if its rule held, with or without a mutant. The simulator shows the effects in a whole
//! cluster.

use crate::bed::{TABLE, TestBed, part, register, settings};
use crate::leader::news;
use crate::liveness::doors;
use crate::quorum::{recovery, upgrade};
use crate::ranges::{merges, splits};
use crate::{leases, quorum, ranges};
use archon_coordinator_core::*;
use archon_types::*;

archon_types::shown_by! {
    NoVersionCheck => request_for_earlier_version_changes_nothing,
    AnyoneAsks => only_the_leader_may_ask,
    DropBelowMin => no_drop_goes_below_the_minimum,
    RefusalKeepsVersion => refusal_consumes_the_version,
    DutiesSaidOnce => changed_duties_are_pushed,
    ExpandUnchecked => other_incarnation_of_joiner_is_not_added,
    DropUnchecked => other_incarnation_of_follower_is_not_dropped,
    CleanupBelowMin => no_copy_is_removed_while_too_few_are_left,
    LastCopyGoes => last_reachable_copy_is_not_deleted,
    UndoAfterHandOver => migration_is_not_undone_after_hand_over,
    LeadershipSurvives => registration_ends_leaderships,
    ElectAnyone => only_live_copies_are_elected,
    StaleRelease => release_applies_to_its_epoch_only,
    ElectStale => election_applies_to_its_version_only,
    WipedStaysLive => copies_of_replaced_directory_are_lost,
    UnheldStaysLive => unlisted_copy_is_lost,
    OtherCopyStaysLive => copies_of_older_directory_are_lost,
    BootForgotten => same_process_gets_same_answer,
    LostCopyHosted => lost_copy_is_not_hosted,
    LossKeepsOthers => forced_election_retires_all_others,
    GrantBelowKnown => leadership_is_granted_above_known_epochs,
    AnyEpochGranted => unreachable_epoch_is_not_passed,
    CondemnedForgotten => deletion_of_dropped_copies_is_ordered,
    CondemnedEndsWithLife => returning_node_must_delete_dropped_copies,
    DroppedStillLed => no_lease_covers_dropped_leaderships,
}

#[test]
fn every_mutant_has_a_case() {
    for mutant in Mutant::ALL {
        let of_ranges = [splits::SHOWN, merges::SHOWN, ranges::mutants::SHOWN];
        let of_quorum = [leases::mutants::SHOWN, quorum::mutants::SHOWN, recovery::SHOWN, upgrade::SHOWN];
        let mut shown = [SHOWN, doors::SHOWN, news::SHOWN].into_iter().chain(of_ranges).chain(of_quorum);
        assert!(shown.any(|shown| shown.contains(mutant)), "nothing catches {mutant:?}");
        assert!((1..=80).contains(&mutant.rule()));
    }
}

const CITIES: [&str; 3] = ["athens", "byzantium", "cyrene"];

pub(crate) fn running(replication: u8, mutant: Option<Mutant>) -> TestBed {
    let mut bed = TestBed::running(settings(1, 3, replication), &CITIES);
    bed.heartbeat_all();
    bed.state.mutant = mutant;
    bed
}

pub(crate) fn leads(bed: &TestBed) -> (NodeId, PlacementId) {
    (bed.leader(0).expect("a leader"), bed.row(0).leader.expect("a leader"))
}

pub(crate) fn others(bed: &TestBed) -> Vec<ReplicaName> {
    let own = bed.row(0).leader;
    let name = |live: &Placement| ReplicaName { placement: live.id, incarnation: bed.incarnation(live.node) };
    bed.row(0).live().filter(|live| Some(live.id) != own).map(name).collect()
}

pub(crate) fn live(bed: &TestBed) -> usize {
    bed.row(0).live().count()
}

/// Drops a follower and returns its name.
fn dropped(bed: &mut TestBed) -> ReplicaName {
    let (leader, own) = leads(bed);
    let follower = others(bed)[0];
    bed.report(leader, &bed.fact(0, own, Fact::Silent { followers: vec![follower] })).expect("a drop");
    assert_eq!(bed.row(0).placement(follower.placement).map(|copy| copy.state), Some(ReplicaState::Load));
    follower
}

pub(crate) fn elects(commands: &[Command]) -> bool {
    commands.iter().any(|command| {
        matches!(command, Command::Change(changes)
            if changes.iter().flat_map(|change| &change.edits).any(|edit| matches!(edit, Edit::Lead { .. })))
    })
}

fn request_for_earlier_version_changes_nothing(mutant: Option<Mutant>) -> bool {
    let mut bed = running(3, mutant);
    let follower = dropped(&mut bed);
    let (leader, own) = leads(&bed);
    let early = bed.fact(0, own, Fact::CaughtUp { joiner: follower });
    // Refused: too few would be left. That consumes the version.
    bed.report(leader, &bed.fact(0, own, Fact::Silent { followers: others(&bed) })).expect("an answer");
    bed.report(leader, &early).is_err() && live(&bed) == 2
}

fn only_the_leader_may_ask(mutant: Option<Mutant>) -> bool {
    let mut bed = running(3, mutant);
    let joiner = dropped(&mut bed);
    let follower = *bed.row(0).placement(others(&bed)[0].placement).expect("a copy");
    bed.report(follower.node, &bed.fact(0, follower.id, Fact::CaughtUp { joiner })).is_err()
}

fn no_drop_goes_below_the_minimum(mutant: Option<Mutant>) -> bool {
    let mut bed = running(3, mutant);
    let (leader, own) = leads(&bed);
    bed.report(leader, &bed.fact(0, own, Fact::Silent { followers: others(&bed) })).expect("an answer");
    live(&bed) == 3
}

fn refusal_consumes_the_version(mutant: Option<Mutant>) -> bool {
    let mut bed = running(3, mutant);
    let (leader, own) = leads(&bed);
    let before = bed.row(0).version;
    bed.report(leader, &bed.fact(0, own, Fact::Silent { followers: others(&bed) })).expect("an answer");
    bed.row(0).version > before
}

/// Pieces without content.
struct EmptyPieces;

impl term::Pieces for EmptyPieces {
    type Rows = ();
    type Nodes = ();

    fn rows(&self, state: &ClusterState, table: TableId, _: Version, _: u64) -> Option<term::Piece<()>> {
        Some(term::Piece { content: (), bytes: 0, version: state.rows_version_of(table), next: None })
    }

    fn nodes(&self, state: &ClusterState, _: Version) -> Option<term::Piece<()>> {
        Some(term::Piece { content: (), bytes: 0, version: state.nodes_version, next: None })
    }
}

fn changed_duties_are_pushed(mutant: Option<Mutant>) -> bool {
    let mut bed = running(3, mutant);
    let (leader, _) = leads(&bed);
    let mut acknowledged = term::PushProgress::default();
    let (push, promise) = acknowledged.next(&bed.state, leader, &EmptyPieces).expect("it was told nothing yet");
    assert!(acknowledged.take(promise, push.version, false, bed.now));
    dropped(&mut bed);
    let next = acknowledged.next(&bed.state, leader, &EmptyPieces);
    next.is_some_and(|(push, _)| push.duties == duties(&bed.state, leader))
}

fn other_incarnation_of_joiner_is_not_added(mutant: Option<Mutant>) -> bool {
    let mut bed = running(3, mutant);
    let joiner = dropped(&mut bed);
    let (leader, own) = leads(&bed);
    let joiner = ReplicaName { incarnation: Incarnation::new(1), ..joiner };
    bed.report(leader, &bed.fact(0, own, Fact::CaughtUp { joiner })).expect("an answer");
    live(&bed) == 2
}

fn other_incarnation_of_follower_is_not_dropped(mutant: Option<Mutant>) -> bool {
    let mut bed = running(3, mutant);
    let (leader, own) = leads(&bed);
    let followers = vec![ReplicaName { incarnation: Incarnation::new(1), ..others(&bed)[0] }];
    bed.report(leader, &bed.fact(0, own, Fact::Silent { followers })).expect("an answer");
    live(&bed) == 3
}

fn no_copy_is_removed_while_too_few_are_left(mutant: Option<Mutant>) -> bool {
    let mut bed = running(3, mutant);
    let names = others(&bed);
    bed.ok(Command::Change(vec![PartitionChange::one(part(0), bed.row(0).version, Edit::Unload(names[0].placement))]));
    bed.one(Command::Change(vec![PartitionChange::one(part(0), bed.row(0).version, Edit::Unload(names[1].placement))]));
    live(&bed) == 2
}

fn last_reachable_copy_is_not_deleted(mutant: Option<Mutant>) -> bool {
    let (mut bed, id) = back_alone(mutant);
    bed.settle();
    let node = bed.row(0).placement(id).map(|copy| copy.node);
    node.is_some_and(|node| {
        duties(&bed.state, node).is_some_and(|duties| duties.iter().all(|duty| !matches!(duty, Duty::Unload { .. })))
    })
}

fn lost_copy_is_not_hosted(mutant: Option<Mutant>) -> bool {
    let (bed, id) = back_alone(mutant);
    let node = bed.row(0).placement(id).expect("a copy").node;
    duties(&bed.state, node).is_some_and(|duties| duties.is_empty())
}

/// Restarts a follower's node from an older directory after both others failed.
fn back_alone(mutant: Option<Mutant>) -> (TestBed, PlacementId) {
    let mut bed = running(3, mutant);
    let back_on = others(&bed)[0].placement;
    let rest = bed.row(0).live().filter(|live| live.id != back_on).map(|live| live.node).collect::<Vec<_>>();
    rest.into_iter().for_each(|node| bed.fail(node));
    let id = back(&mut bed, |register| register.last_incarnation = Some(Incarnation::new(1)));
    (bed, id)
}

fn migration_is_not_undone_after_hand_over(mutant: Option<Mutant>) -> bool {
    let mut bed = TestBed::running(settings(1, 1, 1), &["athens"]);
    bed.join("byzantium", 2);
    let (from, to) = (bed.node("athens"), bed.node("byzantium"));
    let placement = bed.row(0).leader.expect("a leader");
    let moves = vec![PlannedMove {
        kind: MoveKind::Copy,
        partition: part(0),
        placement,
        from,
        to,
        reason: "a test".into(),
        bytes: 1,
    }];
    let (table_version, moves_version) = (bed.state.table_version(), bed.state.moves_version);
    bed.ok(Command::StartPlan { table_version, moves_version, moves });
    for _ in 0..50 {
        if bed.phases()[0] == Phase::HandOver {
            break;
        }
        bed.heartbeat_all();
        bed.round(&[]);
    }
    assert_eq!(bed.phases()[0], Phase::HandOver);
    bed.ok(Command::CancelPlan);
    bed.state.mutant = mutant;
    bed.settle();
    bed.leader(0) == Some(to) && matches!(bed.phases()[0], Phase::Done)
}

fn registration_ends_leaderships(mutant: Option<Mutant>) -> bool {
    let mut bed = running(2, mutant);
    let (leader, _) = leads(&bed);
    let epoch = bed.row(0).epoch;
    bed.rejoin(leader, 500);
    bed.row(0).leader.is_none() && bed.row(0).epoch > epoch
}

fn only_live_copies_are_elected(mutant: Option<Mutant>) -> bool {
    let mut bed = running(2, mutant);
    dropped(&mut bed);
    let (leader, _) = leads(&bed);
    let commands = on_stopping(&bed.state, &bed.liveness, leader, bed.incarnation(leader)).expect("it may stop");
    bed.commit(commands);
    bed.row(0).leader.is_none()
}

fn release_applies_to_its_epoch_only(mutant: Option<Mutant>) -> bool {
    let mut bed = TestBed::running(settings(1, 1, 1), &["athens"]);
    bed.state.mutant = mutant;
    let (athens, own) = leads(&bed);
    let released = bed.fact(0, own, Fact::Released);
    bed.report(athens, &released).expect("a release");
    bed.settle();
    assert_eq!(bed.leader(0), Some(athens));
    // The same report, late or repeated, must not end the leadership that follows.
    bed.report(athens, &released).is_err() && bed.row(0).leader == Some(own)
}

fn leadership_is_granted_above_known_epochs(mutant: Option<Mutant>) -> bool {
    let mut bed = TestBed::running(settings(1, 1, 3), &CITIES);
    bed.state.mutant = mutant;
    let (leader, own) = leads(&bed);
    let before = bed.row(0).clone();
    let by = Epoch::new(before.epoch.get() + 40);
    let overtaken = bed.fact(0, own, Fact::Overtaken { by });
    bed.report(leader, &overtaken).expect("a report");
    let row = bed.row(0).clone();
    let surpassed = Facts::EpochSurpassed { epoch: by.get() };
    let reported = |bed: &TestBed| {
        let found = explain(&bed.state, &LeaderView::default(), part(0)).expect("a partition");
        found.iter().any(|finding| finding.facts == surpassed)
    };
    let told = reported(&bed);
    // The same report again names an outdated epoch.
    let late = bed.report(leader, &overtaken).is_err();
    // A leader that serves above it resolves the matter.
    let online = bed.fact(0, row.leader.expect("a leader"), Fact::Online);
    let leader = row.leader_placement().expect("a leader").node;
    bed.report(leader, &online).expect("a report");
    let over = !reported(&bed);
    row.epoch == Epoch::new(by.get() + 1) && told && late && over
}

fn unreachable_epoch_is_not_passed(mutant: Option<Mutant>) -> bool {
    let mut bed = TestBed::running(settings(1, 1, 3), &CITIES);
    bed.state.mutant = mutant;
    let (leader, own) = leads(&bed);
    let before = bed.row(0).clone();
    let reached = before.epoch.get() + limits::EPOCHS_AHEAD_MAX;
    let refused = [before.epoch.get() - 1, reached + 1, u64::MAX - 1].into_iter().all(|by| {
        let overtaken = bed.fact(0, own, Fact::Overtaken { by: Epoch::new(by) });
        bed.report(leader, &overtaken).is_err() && *bed.row(0) == before
    });
    let overtaken = bed.fact(0, own, Fact::Overtaken { by: Epoch::new(reached) });
    refused && bed.report(leader, &overtaken).is_ok() && bed.row(0).epoch.get() == reached + 1
}

fn election_applies_to_its_version_only(mutant: Option<Mutant>) -> bool {
    let mut bed = running(2, mutant);
    let heir = others(&bed)[0];
    let if_version = bed.row(0).version;
    bed.ok(Command::Change(vec![PartitionChange::one(part(0), if_version, Edit::Refuse)]));
    let edit = Edit::Lead { placement: heir.placement, incarnation: heir.incarnation, ending: LeadershipEnd::Lapsed };
    let before = bed.row(0).epoch;
    bed.one(Command::Change(vec![PartitionChange::one(part(0), if_version, edit)]));
    bed.row(0).epoch == before
}

fn copies_of_replaced_directory_are_lost(mutant: Option<Mutant>) -> bool {
    let mut bed = running(3, mutant);
    let lost = *bed.row(0).placement(others(&bed)[0].placement).expect("a copy");
    let name = bed.state.node_name(lost.node);
    bed.fail(lost.node);
    bed.join(&name, 900);
    bed.row(0).live().all(|live| live.id != lost.id)
}

/// Restarts a follower's node with its registration changed by `change`.
fn back(bed: &mut TestBed, change: fn(&mut Register)) -> PlacementId {
    let copy = *bed.row(0).placement(others(bed)[0].placement).expect("a copy");
    let row = bed.state.node(copy.node).expect("a node").clone();
    let mut register = Register {
        name: row.node.name,
        address: row.node.address,
        storage: row.storage,
        held: vec![copy.id],
        last_incarnation: row.activated,
        ..register("x", 1, 700)
    };
    change(&mut register);
    bed.join_with(register);
    copy.id
}

fn unlisted_copy_is_lost(mutant: Option<Mutant>) -> bool {
    let mut bed = running(3, mutant);
    let id = back(&mut bed, |register| register.held.clear());
    bed.row(0).live().all(|live| live.id != id)
}

fn copies_of_older_directory_are_lost(mutant: Option<Mutant>) -> bool {
    let mut bed = running(3, mutant);
    let id = back(&mut bed, |register| register.last_incarnation = Some(Incarnation::new(1)));
    bed.row(0).live().all(|live| live.id != id)
}

fn same_process_gets_same_answer(mutant: Option<Mutant>) -> bool {
    let mut bed = running(3, mutant);
    let again = Box::new(register("athens", 1, 1_001));
    let athens = bed.node("athens");
    let before = bed.incarnation(athens);
    bed.ok(Command::Register(again));
    bed.incarnation(athens) == before
}

fn forced_election_retires_all_others(mutant: Option<Mutant>) -> bool {
    let mut bed = running(2, mutant);
    let chosen = dropped(&mut bed);
    let (leader, own) = leads(&bed);
    bed.fail(leader);
    let incarnation = bed.incarnation(bed.row(0).placement(chosen.placement).expect("a copy").node);
    let outcome = LossOutcome::Lead { placement: chosen.placement, incarnation };
    bed.ok(Command::AcceptLoss { partition: part(0), if_version: bed.row(0).version, outcome });
    bed.row(0).live().all(|live| live.id != own)
}

fn deletion_of_dropped_copies_is_ordered(mutant: Option<Mutant>) -> bool {
    let mut bed = running(3, mutant);
    bed.ok(Command::DropTable { table: TABLE });
    let unloads = |node: &NodeId| duties(&bed.state, *node).is_some_and(|duties| duties.len() == 1);
    bed.state.nodes.keys().all(unloads)
}

fn returning_node_must_delete_dropped_copies(mutant: Option<Mutant>) -> bool {
    let mut bed = running(3, mutant);
    let away = leads(&bed).0;
    bed.fail(away);
    bed.ok(Command::DropTable { table: TABLE });
    bed.rejoin(away, 900);
    duties(&bed.state, away).is_some_and(|duties| duties.len() == 1)
}

fn no_lease_covers_dropped_leaderships(mutant: Option<Mutant>) -> bool {
    let mut bed = running(3, mutant);
    let (leader, epoch) = (leads(&bed).0, bed.row(0).epoch);
    bed.ok(Command::DropTable { table: TABLE });
    bed.heartbeat(leader).is_some_and(|answer| answer.withdrawn == [(part(0), epoch)])
}

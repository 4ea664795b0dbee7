//! Plans: even, small, stable, and with unreachable goals reported.

use crate::bed::{TestBed, register, settings};
use archon_coordinator_core::*;
use archon_types::*;
use proptest::prelude::*;

const CITIES: [&str; 3] = ["athens", "byzantium", "cyrene"];

#[test]
fn fourth_node_gets_its_share_of_nine_partitions() {
    let mut bed = TestBed::running(settings(9, 3, 1), &CITIES);
    assert_eq!(plan(&bed.state, Goal::default()).moves, vec![]);
    let ephesus = bed.join("ephesus", 4);
    let first = plan(&bed.state, Goal::default());
    assert_eq!(first.moves.len(), 2);
    assert_eq!(first.unmet, vec![]);
    let (byzantium, cyrene) = (bed.node("byzantium"), bed.node("cyrene"));
    assert_eq!(
        first.moves.iter().map(|m| (m.from, m.to)).collect::<Vec<_>>(),
        [(byzantium, ephesus), (cyrene, ephesus)]
    );
    assert!(first.moves.iter().all(|m| m.reason == MoveReason::Balance { has: 3, share: 2 }));
    bed.ok(first.start());
    bed.settle();
    assert_eq!(bed.spread(), [3, 2, 2, 2]);
    assert_eq!((bed.online(), bed.phases()), (9, vec![Phase::Done, Phase::Done]));
    assert_eq!(plan(&bed.state, Goal::default()).moves, vec![]);
}

/// Every node with room held the partition already, and the plan had no move.
#[test]
fn plan_makes_room_for_missing_copy() {
    let mut bed = TestBed::new(settings(2, 2, 2));
    let limited =
        |name: &str, number: u128| Register { partitions_max: Some(2), ..register(name, number, 100 + number) };
    let (athens, byzantium) = (bed.join_with(limited("athens", 1)), bed.join_with(limited("byzantium", 2)));
    bed.settle();
    let cyrene = bed.join_with(limited("cyrene", 3));
    let (partitioning, holds) = (Partitioning::Hash { partitions: 1 }, TableContent::Data);
    bed.ok(Command::CreateTable { name: "orders".into(), partitioning, replication: 1, holds });
    bed.settle();
    let orders = bed.state.tables.values().find(|table| table.name == "orders").unwrap().clone();
    let lacking = PartitionId::new(orders.id, 0);
    assert!(bed.state.partition(lacking).unwrap().placement_on(cyrene).is_some());
    let traits = TableTraits { replication: 2, limits: RangeLimits::NONE };
    bed.ok(Command::AlterTable { table: orders.id, if_version: orders.version, traits });
    bed.settle();
    assert_eq!(bed.state.partition(lacking).unwrap().placements.len(), 1, "no node can take it");
    let planned = plan(&bed.state, Goal::default());
    let [only] = &planned.moves[..] else { panic!("{planned:?}") };
    assert_eq!((only.reason, only.to), (MoveReason::MakeRoom, cyrene));
    assert_eq!(planned.unmet, vec![], "a node that took the copy is not above its share");
    assert!([athens, byzantium].contains(&only.from) && only.partition.table != orders.id);
    bed.ok(planned.start());
    bed.settle();
    assert_eq!(bed.state.partition(lacking).unwrap().live().count(), 2);
    assert_eq!(plan(&bed.state, Goal::default()).moves, vec![]);
}

#[test]
fn fourth_node_gets_its_share_of_thirty_partitions() {
    let mut bed = TestBed::running(settings(30, 3, 1), &CITIES);
    bed.join("ephesus", 4);
    bed.ok(plan(&bed.state, Goal::default()).start());
    bed.settle();
    assert_eq!((bed.spread(), bed.online()), (vec![8, 8, 7, 7], 30));
    assert_eq!(plan(&bed.state, Goal::default()).moves, vec![]);
}

#[test]
fn plan_is_valid_for_one_version_and_runs_alone() {
    let mut bed = TestBed::running(settings(9, 3, 1), &CITIES);
    bed.join("ephesus", 4);
    let old = plan(&bed.state, Goal::default());
    let athens = bed.node("athens");
    bed.ok(Command::SetNode { node: athens, goal: NodeGoal::Cordon, if_nodes: None });
    let error = bed.one(old.start()).refusal().cloned().unwrap();
    let now = bed.state.table_version();
    assert_eq!(
        (error.kind, error.have, error.need),
        (ErrorKind::StalePlan, Some(now.get()), Some(old.table_version.get()))
    );
    let new = plan(&bed.state, Goal::default());
    assert_eq!(bed.ok(new.start()), Response::PlanStarted { first: MigrationId::new(1), count: 2 });
    assert_eq!(bed.refused(new.start()), ErrorKind::AssignmentInProgress);
}

#[test]
fn plan_made_during_leadership_moves_goes_stale() {
    let mut bed = TestBed::running(settings(12, 4, 2), &["a", "b", "c", "d"]);
    let a = bed.node("a");
    bed.fail(a);
    bed.settle();
    bed.rejoin(a, 5_000);
    bed.settle();
    let first = plan(&bed.state, Goal::default());
    assert!(first.moves.len() > 1 && first.moves.iter().all(|step| step.kind == MoveKind::Leadership), "{first:?}");
    let spread = bed.spread();
    bed.ok(first.start());
    let during = plan(&bed.state, Goal::default());
    assert_eq!(during.moves, [], "every copy stands where it should, and each leadership is on its way");
    bed.ok(Command::CancelPlan);
    assert_eq!(during.table_version, bed.state.table_version());
    assert_eq!(bed.refused(during.start()), ErrorKind::StalePlan);
    assert_eq!(plan(&bed.state, Goal::default()).moves, first.moves);
    bed.settle();
    assert_eq!(bed.spread(), spread);
}

#[test]
fn repeated_cancellation_returns_same_counts() {
    let mut bed = TestBed::running(settings(9, 3, 1), &CITIES);
    bed.join("ephesus", 4);
    bed.ok(plan(&bed.state, Goal::default()).start());
    let request = Some(RequestId::new(uuid::Uuid::from_u128(9)));
    let batch = CommandBatch { request, ..bed.batch(vec![Command::CancelPlan]) };
    let answers = bed.commit_batch(&batch);
    assert_eq!(answers, [Response::PlanCancelled { undone: 2, too_late: 0 }]);
    assert_eq!(bed.commit_batch(&batch), answers);
    bed.round_trip();
}

#[test]
fn plans_with_wrong_references_are_refused() {
    let mut bed = TestBed::running(settings(9, 3, 1), &CITIES);
    bed.join("ephesus", 4);
    let good = plan(&bed.state, Goal::default());
    let spoil = |spoil: fn(&mut Move)| {
        let mut plan = good.clone();
        spoil(&mut plan.moves[0]);
        plan.start()
    };
    assert_eq!(bed.refused(spoil(|m| m.partition.index = 99)), ErrorKind::NotFound);
    assert_eq!(bed.refused(spoil(|m| m.placement = PlacementId::new(99))), ErrorKind::NotFound);
    assert_eq!(bed.refused(spoil(|m| m.from = NodeId::new(1))), ErrorKind::NotFound);
    assert_eq!(bed.refused(spoil(|m| m.to = m.from)), ErrorKind::InvalidArgument);
    assert_eq!(bed.refused(spoil(|m| m.to = NodeId::new(99))), ErrorKind::InvalidArgument);
    let twice = Plan { moves: vec![good.moves[0].clone(); 2], ..good.clone() };
    assert_eq!(bed.refused(twice.start()), ErrorKind::InvalidArgument);
    assert_eq!(
        bed.ok(Plan { moves: vec![], ..good }.start()),
        Response::PlanStarted { first: MigrationId::new(1), count: 0 }
    );
}

#[test]
fn plan_accounts_for_drained_and_cordoned_nodes() {
    let mut bed = TestBed::running(settings(12, 4, 1), &["a", "b", "c", "d"]);
    let (a, b) = (bed.node("a"), bed.node("b"));
    bed.ok(Command::SetNode { node: a, goal: NodeGoal::Drain, if_nodes: None });
    bed.ok(Command::SetNode { node: b, goal: NodeGoal::Cordon, if_nodes: None });
    assert_eq!(plan(&bed.state, Goal::default()).moves, vec![], "its copies will be where there is room for them");
    bed.settle();
    let mut spread = bed.spread();
    spread[2..].sort_unstable();
    assert_eq!((spread, bed.online()), (vec![0, 3, 4, 5], 12));
    assert_eq!(plan(&bed.state, Goal::default()).moves, vec![]);
    // A node that joins during the drain is taken into account.
    bed.ok(Command::SetNode { node: a, goal: NodeGoal::Serve, if_nodes: None });
    let back = plan(&bed.state, Goal::default());
    assert_eq!(back.moves.len(), 3);
    assert_eq!(plan(&bed.state, Goal { moves_max: Some(1), ..Goal::default() }).moves, back.moves[..1]);
}

#[test]
fn unreachable_goals_are_listed() {
    let mut bed = TestBed::running(settings(6, 2, 1), &["a", "b"]);
    let (a, b) = (bed.node("a"), bed.node("b"));
    bed.ok(Command::SetNode { node: a, goal: NodeGoal::Drain, if_nodes: None });
    bed.ok(Command::SetNode { node: b, goal: NodeGoal::Cordon, if_nodes: None });
    let none = plan(&bed.state, Goal::default());
    assert_eq!(none.moves, vec![]);
    assert_eq!(
        none.unmet,
        vec![UnmetGoal { subject: Subject::Node(a), reason: UnmetReason::NotEmptied { placements: 3 } }]
    );
    bed.pass(2_000, &[b]);
    let dead = UnmetGoal { subject: Subject::Node(b), reason: UnmetReason::NotAlive { placements: 3 } };
    assert_eq!(plan(&bed.state, Goal::default()).unmet[1], dead);
    // A node with a limit takes no more than that.
    bed.join_with(Register { partitions_max: Some(2), ..register("c", 3, 3) });
    bed.settle();
    let some = plan(&bed.state, Goal::default());
    assert_eq!(some.moves, vec![]);
    assert_eq!(
        some.unmet[0],
        UnmetGoal { subject: Subject::Node(a), reason: UnmetReason::NotEmptied { placements: 1 } }
    );
}

#[test]
fn shares_follow_weights() {
    let mut bed = TestBed::running(settings(12, 2, 1), &["a", "b"]);
    bed.join_with(Register { weight: 200, ..register("c", 3, 3) });
    bed.ok(plan(&bed.state, Goal::default()).start());
    bed.settle();
    assert_eq!(bed.spread(), [3, 3, 6]);
}

#[test]
fn replicas_of_a_partition_stay_on_distinct_nodes() {
    let mut bed = TestBed::running(settings(12, 3, 2), &CITIES);
    bed.join("ephesus", 4);
    let first = plan(&bed.state, Goal::default());
    assert_eq!(first.moves.len(), 6);
    bed.ok(first.start());
    bed.settle();
    assert_eq!((bed.spread(), bed.online()), (vec![6, 6, 6, 6], 12));
    assert!(bed.state.partitions.iter().all(|row| row.live().count() == 2));
    assert_eq!(plan(&bed.state, Goal::default()).moves, vec![]);
}

/// Creates nine partitions on three nodes; athens failed and came back, and leads nothing.
fn athens_is_back() -> (TestBed, NodeId) {
    let mut bed = TestBed::running(settings(9, 3, 3), &CITIES);
    let athens = bed.node("athens");
    bed.fail(athens);
    bed.settle();
    bed.rejoin(athens, 900);
    bed.settle();
    (bed, athens)
}

#[test]
fn plan_can_consist_of_leaderships_alone() {
    let (mut bed, athens) = athens_is_back();
    assert_eq!(bed.state.partitions.leaders_on(athens), 0, "rebalancing is the operator's act");
    let back = plan(&bed.state, Goal::default());
    assert_eq!(back.moves.len(), 3, "{back:?}");
    assert!(back.moves.iter().all(|step| step.kind == MoveKind::Leadership && step.to == athens));
    bed.ok(back.start());
    bed.settle();
    assert!(bed.state.nodes.keys().all(|node| bed.state.partitions.leaders_on(*node) == 3));
    assert_eq!((bed.online(), bed.phases()), (9, vec![Phase::Done; 3]));
    assert_eq!(plan(&bed.state, Goal::default()).moves, vec![]);
}

/// Starts a plan by which athens is to lead three partitions again.
fn leaderships_under_way() -> (TestBed, NodeId) {
    let (mut bed, athens) = athens_is_back();
    bed.ok(plan(&bed.state, Goal::default()).start());
    let commands = bed.turn();
    bed.commit(commands);
    assert_eq!(bed.phases(), vec![Phase::InSync; 3]);
    (bed, athens)
}

#[test]
fn leadership_moved_by_failover_supersedes_its_move() {
    let (mut bed, _) = leaderships_under_way();
    let migration = bed.state.migrations.active().next().unwrap().clone();
    let row = bed.state.partition(migration.partition).unwrap().clone();
    let other = row.live().find(|copy| ![migration.from, migration.to].contains(&copy.node)).unwrap();
    let (placement, incarnation) = (other.id, bed.incarnation(other.node));
    let edit = Edit::Lead { placement, incarnation, ending: LeadershipEnd::Released };
    bed.ok(Command::Change(vec![PartitionChange::one(row.id, row.version, edit)]));
    bed.settle();
    let why = format!("{} leads the partition now", bed.state.node_name(other.node));
    assert_eq!(bed.phases(), [Phase::Superseded { why }, Phase::Done, Phase::Done]);
    // The next plan finds the remaining moves.
    bed.ok(plan(&bed.state, Goal::default()).start());
    bed.settle();
    assert!(bed.state.nodes.keys().all(|node| bed.state.partitions.leaders_on(*node) == 3));
    bed.round_trip();
}

#[test]
fn leadership_move_waits_for_lagging_copy() {
    let (mut bed, athens) = leaderships_under_way();
    let migration = bed.state.migrations.active().next().unwrap().clone();
    let behind = |bed: &mut TestBed| {
        let row = bed.state.partition(migration.partition).unwrap().clone();
        let copy = row.placement_on(athens).unwrap();
        assert_eq!(copy.state, ReplicaState::Live);
        let edit = Edit::Demote(copy.id, bed.incarnation(athens));
        bed.ok(Command::Change(vec![PartitionChange::one(row.id, row.version, edit)]));
    };
    behind(&mut bed);
    let commands = bed.turn();
    bed.commit(commands);
    let now = bed.state.migrations.get(migration.id).unwrap();
    assert_eq!(phase(&bed.state, now), Phase::Queued, "others need not wait for it");
    let why = waiting_for(&bed.state, now).unwrap();
    assert_eq!(why, "the replica on athens is catching up");
    bed.settle();
    assert_eq!((bed.phases(), bed.state.partitions.leaders_on(athens)), (vec![Phase::Done; 3], 3));
}

#[test]
fn leadership_move_to_node_without_copy_is_superseded() {
    let (mut bed, athens) = leaderships_under_way();
    let migration = bed.state.migrations.active().next().unwrap().clone();
    let row = bed.state.partition(migration.partition).unwrap().clone();
    let copy = row.placement_on(athens).unwrap();
    let edits = vec![Edit::Demote(copy.id, bed.incarnation(athens)), Edit::Unload(copy.id)];
    bed.ok(Command::Change(vec![PartitionChange { partition: row.id, if_version: row.version, edits }]));
    let commands = bed.turn();
    bed.commit(commands);
    let why = "athens holds no replica of the partition now".to_owned();
    assert_eq!(bed.phases()[0], Phase::Superseded { why });
}

#[test]
fn leadership_move_ends_on_target_failure_or_cancel() {
    let (mut bed, athens) = leaderships_under_way();
    bed.fail(athens);
    bed.settle();
    assert!(bed.phases().iter().all(|phase| matches!(phase, Phase::Failed { .. })), "{:?}", bed.phases());
    let (mut bed, athens) = leaderships_under_way();
    bed.ok(Command::CancelPlan);
    bed.settle();
    assert_eq!((bed.phases(), bed.state.partitions.leaders_on(athens)), (vec![Phase::Cancelled; 3], 0));
}

#[test]
fn plan_before_first_assignment_lists_missing_nodes() {
    let mut bed = TestBed::new(settings(9, 3, 3));
    bed.join("athens", 1);
    let early = plan(&bed.state, Goal::default());
    let waits =
        UnmetGoal { subject: Subject::Table(crate::bed::TABLE), reason: UnmetReason::NotAssigned { have: 1, need: 3 } };
    assert_eq!((early.moves, early.unmet), (vec![], vec![waits]));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// From any spread: no move is wasted, all numbers end within floor and ceiling, and a second plan is empty.
    #[test]
    fn plans_are_even_small_and_stable(
        partitions in 1u32..50,
        first in 1usize..6,
        more in 0usize..5,
        replication in 1u8..4,
        drained in proptest::collection::vec(any::<bool>(), 10),
    ) {
        let replication = replication.min(first as u8);
        let names: Vec<String> = (0..first).map(|n| format!("n{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut bed = TestBed::running(settings(partitions, first as u32, replication), &names);
        for n in 0..more {
            bed.join(&format!("m{n}"), 100 + n as u128);
        }
        let nodes: Vec<NodeId> = bed.state.nodes.keys().copied().collect();
        for (node, drain) in nodes.iter().zip(&drained) {
            if *drain {
                bed.ok(Command::SetNode { node: *node, goal: NodeGoal::Drain, if_nodes: None });
            }
        }
        bed.settle();
        let before = bed.spread();
        let first_plan = plan(&bed.state, Goal::default());
        prop_assert_eq!(&first_plan, &plan(&bed.state, Goal::default()));
        bed.ok(first_plan.start());
        bed.settle();
        prop_assert_eq!(partitions, bed.online());
        prop_assert!(bed.phases().iter().all(|phase| *phase == Phase::Done), "{:?}", bed.phases());
        let after = bed.spread();
        prop_assert_eq!(before.iter().sum::<u32>(), after.iter().sum::<u32>());
        let second = plan(&bed.state, Goal::default());
        prop_assert_eq!(&second.moves, &vec![]);
        let led: Vec<u32> = nodes.iter().map(|node| bed.state.partitions.leaders_on(*node)).collect();
        if replication == 1 {
            let kept: Vec<u32> = after.iter().zip(&drained).filter(|(_, drain)| !**drain).map(|(n, _)| *n).collect();
            if let (Some(most), Some(least)) = (kept.iter().max(), kept.iter().min()) {
                prop_assert!(most - least <= 1, "{:?}", after);
                prop_assert_eq!(after.iter().sum::<u32>(), kept.iter().sum::<u32>());
            }
            // No node both gives and takes.
            for node in &nodes {
                let gives = first_plan.moves.iter().any(|m| m.from == *node);
                prop_assert!(!gives || !first_plan.moves.iter().any(|m| m.to == *node));
            }
        } else if !drained[..nodes.len()].contains(&true) {
            let (most, least) = (led.iter().max().copied().unwrap_or(0), led.iter().min().copied().unwrap_or(0));
            prop_assert!(most - least <= 1, "{led:?} of {after:?}");
        }
    }
}

#[test]
fn leadership_move_reason_states_imbalance() {
    // Seven partitions on three nodes, led 3, 3 and 1: no share is exceeded, but they are uneven.
    let mut bed = TestBed::running(settings(7, 3, 3), &["athens", "byzantium", "cyrene"]);
    for (index, name) in (0..7).zip(["athens", "athens", "athens", "byzantium", "byzantium", "byzantium", "cyrene"]) {
        let node = bed.node(name);
        let (row, incarnation) = (bed.row(index).clone(), bed.incarnation(node));
        let placement = row.placement_on(node).expect("three copies on three nodes").id;
        if row.leader != Some(placement) {
            let edit = Edit::Lead { placement, incarnation, ending: LeadershipEnd::Released };
            bed.ok(Command::Change(vec![PartitionChange::one(row.id, row.version, edit)]));
        }
    }
    bed.settle();
    let moves = plan(&bed.state, Goal::default()).moves;
    let [only] = &moves[..] else { panic!("one move evens it out: {moves:?}") };
    assert_eq!(only.reason, MoveReason::Lead { leads: 3, other: 1 });
    assert_eq!(only.reason.to_string(), "the node leads 3, the target 1; no data is copied");
}

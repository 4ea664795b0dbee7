//! Live nodes that clients cannot reach (PROTOCOL rules 74 to 76).

use crate::bed::{TestBed, register, settings};
use archon_coordinator_core::*;
use archon_types::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

archon_types::shown_by! {
    DoorOfOne => cut_off_keeper_alone_ends_no_leadership,
    DoorsEmptyTheCluster => cluster_with_all_doors_shut_keeps_its_leaders,
    UnreachedLosesTheLast => unreached_node_keeps_leaderships_without_alternative,
}

const CITIES: [&str; 4] = ["athens", "byzantium", "cyrene", "delphi"];

/// Creates a cluster that speaks the protocol of doors and has been led for long enough.
fn running(settings: Settings, names: &[&str], mutant: Option<Mutant>) -> TestBed {
    let mut bed = TestBed::new(settings);
    for (number, name) in (1..).zip(names) {
        bed.join_with(speaking(register(name, number, number + 1_000)));
    }
    bed.settle();
    bed.ok(Command::RaiseProtocol { to: DOORS_SINCE });
    bed.state.mutant = mutant;
    bed.pass(2_000, &[]);
    bed
}

/// Returns the registration of a node that answers pings.
fn speaking(register: Register) -> Register {
    Register { protocol_max: DOORS_SINCE, ..register }
}

fn of_row(node: &Node) -> RelayCandidate<'_> {
    RelayCandidate { node: node.id, zone: node.zone.as_deref() }
}

fn alive(bed: &TestBed) -> Vec<RelayCandidate<'_>> {
    let alive = bed.state.nodes.values().filter(|row| row.node.status == NodeStatus::Alive);
    alive.map(|row| of_row(&row.node)).collect()
}

fn keepers_of_node(bed: &TestBed, node: NodeId) -> Vec<NodeId> {
    keepers_of(of_row(&bed.state.node(node).expect("a node").node), &keepers(bed.state.cluster, alive(bed)))
}

/// Returns the doors at which each keeper knocks.
fn doors(bed: &TestBed) -> BTreeMap<NodeId, Vec<NodeId>> {
    let mut doors = BTreeMap::<NodeId, Vec<NodeId>>::new();
    for node in alive(bed) {
        keepers_of_node(bed, node.node).into_iter().for_each(|keeper| doors.entry(keeper).or_default().push(node.node));
    }
    doors
}

/// Reports the findings of every keeper; `since` returns for how long a door is shut to it.
fn tell(bed: &mut TestBed, since: impl Fn(NodeId, NodeId) -> Option<u64>) {
    for (keeper, members) in doors(bed) {
        let shut = members.iter().filter_map(|node| {
            let since_ms = since(keeper, *node)?;
            Some(ShutDoor { node: *node, incarnation: bed.incarnation(*node), how: DoorFailure::Silent, since_ms })
        });
        let shut: Vec<ShutDoor> = shut.collect();
        let members = u32::try_from(members.len()).expect("few");
        let reached = members - u32::try_from(shut.len()).expect("few");
        let (incarnation, now) = (bed.incarnation(keeper), bed.now);
        bed.liveness.note_doors(keeper, incarnation, DoorReport { members, reached, shut }, now);
    }
}

/// Advances the time with the doors of these nodes shut to all keepers, which they have been for `already`
/// milliseconds.
fn pass_shut(bed: &mut TestBed, millis: u64, already: u64, shut: &[NodeId]) {
    for passed in (0..millis).step_by(100) {
        tell(bed, |_, node| shut.contains(&node).then_some(already + passed));
        bed.pass(100, &[]);
    }
}

fn unreached(bed: &TestBed) -> Vec<NodeId> {
    LeaderView::new(&bed.state, &bed.liveness, bed.now).unreached().map(|(node, _)| node).collect()
}

fn state_of(bed: &TestBed, node: NodeId) -> Option<DoorState> {
    let row = &bed.state.node(node).expect("a node").node;
    LeaderView::new(&bed.state, &bed.liveness, bed.now).door(row).map(|view| view.state)
}

fn withdrawn(bed: &mut TestBed, node: NodeId) -> Vec<(PartitionId, Epoch)> {
    bed.heartbeat(node).map(|answer| answer.withdrawn).unwrap_or_default()
}

#[test]
fn unreached_node_loses_its_leaderships() {
    let mut bed = running(settings(9, 3, 3), &CITIES[..3], None);
    let node = bed.leader(0).expect("a leader");
    let held = bed.state.partitions.held_on(node);
    pass_shut(&mut bed, 2_900, 0, &[node]);
    assert_eq!((state_of(&bed, node), withdrawn(&mut bed, node).len()), (Some(DoorState::Doubted), 0));
    pass_shut(&mut bed, 300, 3_000, &[node]);
    assert_eq!((state_of(&bed, node), unreached(&bed)), (Some(DoorState::Unreached), vec![node]));
    let said = bed.liveness.door_news();
    assert!(matches!(&said[..], [DoorNews { node: of, by, .. }] if *of == node && by.len() == 2), "{said:?}");
    assert_eq!(withdrawn(&mut bed, node).len(), 3, "it is told that its lease covers none of them");
    // It releases nothing, like a process that hangs: the lease must end.
    pass_shut(&mut bed, 1_500, 3_300, &[node]);
    assert_eq!(bed.state.partitions.leaders_on(node), 0);
    assert_eq!(bed.state.partitions.held_on(node), held, "it keeps its copies");
    assert!(bed.state.is_active(node), "it is not failed");

    // Its door opens.
    bed.now = bed.now.plus(1);
    tell(&mut bed, |_, _| None);
    bed.pass(100, &[]);
    let said = bed.liveness.door_news();
    assert!(matches!(&said[..], [DoorNews { node: of, by, .. }] if *of == node && by.is_empty()), "{said:?}");
    assert_eq!((state_of(&bed, node), unreached(&bed)), (Some(DoorState::Returning), vec![]));
    // Another node fails: the third one takes all its leaderships.
    let other = bed.leader(0).expect("a leader");
    for _ in 0..98 {
        tell(&mut bed, |_, _| None);
        bed.pass(100, &[]);
    }
    assert_eq!(state_of(&bed, node), Some(DoorState::Returning));
    for _ in 0..3 {
        tell(&mut bed, |_, _| None);
        bed.pass(100, &[]);
    }
    assert_eq!(state_of(&bed, node), Some(DoorState::Open));
    bed.fail(other);
    bed.pass(3_000, &[other]);
    assert!(bed.state.partitions.leaders_on(node) > 0, "it leads again");
}

#[test]
fn returning_node_is_spared_for_a_while() {
    let mut bed = running(settings(9, 3, 3), &CITIES[..3], None);
    let node = bed.leader(0).expect("a leader");
    pass_shut(&mut bed, 5_000, 2_000, &[node]);
    let other = bed.leader(0).expect("a leader");
    assert_ne!(other, node);
    tell(&mut bed, |_, _| None);
    bed.pass(200, &[]);
    bed.fail(other);
    bed.pass(2_000, &[other]);
    assert_eq!(bed.state.partitions.leaders_on(node), 0);
    let third = bed.leader(0).expect("a leader");
    bed.fail(third);
    bed.pass(3_000, &[other, third]);
    assert_eq!(bed.state.partitions.leaders_on(node), 9, "it is the last one");
}

/// A plan's moves of leaderships to an unreached node waited, and the leaderships stayed uneven.
#[test]
fn plan_moves_no_leadership_to_unreached_node() {
    let mut bed = running(settings(12, 3, 3), &CITIES[..3], None);
    let node = bed.node("athens");
    pass_shut(&mut bed, 3_200, 0, &[node]);
    pass_shut(&mut bed, 1_500, 3_200, &[node]);
    assert_eq!((unreached(&bed), bed.state.partitions.leaders_on(node)), (vec![node], 0));
    let to_it = |plan: &Plan| plan.moves.iter().filter(|step| step.to == node).count();
    assert!(to_it(&plan(&bed.state, Goal::default())) > 0, "it would be, by its copies alone");
    let goal = Goal { spared: bed.liveness.spared(), ..Goal::default() };
    assert_eq!(plan(&bed.state, goal).moves, [], "the others lead as much as each other");
    // Its door is open again, and trusted after a while.
    for _ in 0..102 {
        tell(&mut bed, |_, _| None);
        bed.pass(100, &[]);
    }
    assert_eq!((state_of(&bed, node), bed.liveness.spared()), (Some(DoorState::Open), BTreeSet::new()));
}

/// A moved leading copy takes its leadership along.
#[test]
fn plan_moves_no_leading_copy_to_unreached_node() {
    let mut bed = running(settings(12, 3, 1), &CITIES[..3], None);
    let node = bed.join_with(speaking(register("ephesus", 9, 1_009)));
    let moved_to_it = |spared| {
        let moves = plan(&bed.state, Goal { spared, ..Goal::default() }).moves;
        moves.iter().filter(|step| step.to == node).count()
    };
    assert_eq!(moved_to_it(BTreeSet::new()), 3);
    assert_eq!(moved_to_it(BTreeSet::from([node])), 0, "each partition has one copy, and that leads");
}

fn cut_off_keeper_alone_ends_no_leadership(mutant: Option<Mutant>) -> bool {
    let mut bed = running(settings(9, 3, 3), &CITIES, mutant);
    let node = bed.leader(0).expect("a leader");
    let two = keepers_of_node(&bed, node);
    for passed in (0..20_000).step_by(100) {
        tell(&mut bed, |keeper, of| (of == node && keeper == two[0]).then_some(passed));
        bed.pass(100, &[]);
    }
    let one = unreached(&bed).is_empty() && withdrawn(&mut bed, node).is_empty();
    for passed in (0..20_000).step_by(100) {
        tell(&mut bed, |keeper, of| (of == node || keeper == two[0]).then_some(passed));
        bed.pass(100, &[]);
    }
    one && unreached(&bed).is_empty() && bed.leader(0) == Some(node)
}

/// All nodes are unreachable for any reason: of 40 nodes only two lose their leaderships.
fn cluster_with_all_doors_shut_keeps_its_leaders(mutant: Option<Mutant>) -> bool {
    let names: Vec<String> = (0..40).map(|number| format!("node-{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut bed = running(settings(40, 3, 3), &names, mutant);
    // Shuts at most a quarter of the doors of each keeper.
    let mut shut = BTreeSet::new();
    for members in doors(&bed).values() {
        let already = members.iter().filter(|node| shut.contains(*node)).count();
        let more = (members.len() / 5).saturating_sub(already);
        let fits = |node: &NodeId, shut: &BTreeSet<NodeId>| {
            keepers_of_node(&bed, *node).iter().all(|keeper| {
                let theirs = &doors(&bed)[keeper];
                theirs.iter().filter(|other| shut.contains(*other)).count() < theirs.len() / 5
            })
        };
        for node in members.iter().take(more + 2) {
            if fits(node, &shut) {
                shut.insert(*node);
            }
        }
    }
    assert!(shut.len() > 2, "{shut:?}");
    let shut: Vec<NodeId> = shut.into_iter().collect();
    pass_shut(&mut bed, 4_000, 0, &shut);
    unreached(&bed).len() == 2
}

fn unreached_node_keeps_leaderships_without_alternative(mutant: Option<Mutant>) -> bool {
    let mut bed = running(settings(8, 3, 1), &CITIES, mutant);
    let node = bed.leader(0).expect("a leader");
    let before = bed.row(0).clone();
    pass_shut(&mut bed, 5_000, 0, &[node]);
    assert_eq!(unreached(&bed), [node]);
    let kept = *bed.row(0) == before && withdrawn(&mut bed, node).is_empty();
    // Two of three copies are in sync: without this one too few are left for writes.
    let mut bed = running(settings(1, 3, 3), &CITIES, mutant);
    let node = bed.leader(0).expect("a leader");
    let away = bed.row(0).live().map(|live| live.node).find(|other| *other != node).expect("another copy");
    bed.fail(away);
    bed.pass(500, &[away]);
    pass_shut(&mut bed, 5_000, 0, &[node]);
    kept && unreached(&bed) == [node] && bed.leader(0) == Some(node) && withdrawn(&mut bed, node).is_empty()
}

#[test]
fn new_leader_starts_without_verdicts() {
    let mut bed = running(settings(9, 3, 3), &CITIES[..3], None);
    let node = bed.leader(0).expect("a leader");
    pass_shut(&mut bed, 200, 3_000, &[node]);
    assert_eq!(unreached(&bed), [node]);
    bed.liveness = Liveness::new(bed.now);
    pass_shut(&mut bed, 1_200, 3_200, &[node]);
    assert_eq!(unreached(&bed), []);
    pass_shut(&mut bed, 200, 4_400, &[node]);
    assert_eq!(unreached(&bed), [node]);
}

#[test]
fn verdict_ends_with_incarnation_or_setting() {
    let mut bed = running(settings(9, 3, 3), &CITIES[..3], None);
    let node = bed.leader(0).expect("a leader");
    pass_shut(&mut bed, 200, 3_000, &[node]);
    assert_eq!(unreached(&bed), [node]);
    let (row, held) = (bed.state.node(node).expect("a node").clone(), bed.state.partitions.on_node(node));
    let held = held.filter_map(|row| row.placement_on(node)).map(|copy| copy.id).collect();
    let again = register(&row.node.name, 0, 900);
    let again = Register { storage: row.storage, held, last_incarnation: row.activated, ..again };
    bed.join_with(speaking(again));
    tell(&mut bed, |_, _| None);
    bed.pass(100, &[]);
    assert_eq!((unreached(&bed), state_of(&bed, node)), (vec![], Some(DoorState::Open)));
    pass_shut(&mut bed, 200, 3_000, &[node]);
    assert_eq!(unreached(&bed), [node]);
    let changes = vec![SettingChange { setting: Setting::DoorEveryMs, value: 0 }];
    bed.ok(Command::Configure { if_version: bed.state.settings_version, changes });
    bed.pass(100, &[]);
    assert_eq!((unreached(&bed), state_of(&bed, node)), (vec![], None));
}

#[test]
fn two_nodes_yield_no_verdict() {
    let mut bed = running(settings(9, 2, 2), &CITIES[..2], None);
    let node = bed.leader(0).expect("a leader");
    pass_shut(&mut bed, 10_000, 0, &[node]);
    assert_eq!((unreached(&bed), state_of(&bed, node)), (vec![], Some(DoorState::Doubted)));
    assert_eq!(bed.leader(0), Some(node));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// For any reports: an unreached node is reported by both of its keepers, each of which reaches most others; never
    /// too many nodes are unreached, and no partition loses its leader by that.
    #[test]
    fn verdict_needs_both_keepers(
        nodes in 3_usize..30,
        words in proptest::collection::vec(proptest::collection::vec(any::<bool>(), 30 * 2), 1..8),
    ) {
        let names: Vec<String> = (0..nodes).map(|number| format!("node-{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut bed = running(settings(6, 3, 3), &names, None);
        for word in words {
            let keepers: BTreeMap<NodeId, Vec<NodeId>> =
                alive(&bed).into_iter().map(|node| (node.node, keepers_of_node(&bed, node.node))).collect();
            let before: BTreeSet<NodeId> = unreached(&bed).into_iter().collect();
            let says = |keeper: NodeId, node: NodeId| {
                let place = keepers[&node].iter().position(|known| *known == keeper).expect("its keeper");
                let index = usize::try_from(node.get()).expect("small") % 30 * 2 + place;
                word[index].then_some(3_500)
            };
            tell(&mut bed, says);
            bed.pass(100, &[]);
            let now = unreached(&bed);
            prop_assert!(now.len() <= (nodes / 20).max(1));
            let by_keeper = doors(&bed);
            for node in now.iter().filter(|node| !before.contains(node)) {
                for keeper in &keepers[node] {
                    prop_assert!(says(*keeper, *node).is_some());
                    let others: Vec<_> = by_keeper[keeper].iter().filter(|other| *other != node).collect();
                    let reached = others.iter().filter(|other| says(*keeper, ***other).is_none()).count();
                    prop_assert!(reached > 0 && reached * 4 >= others.len() * 3);
                }
            }
        }
        prop_assert_eq!(bed.state.partitions.iter().filter(|row| row.leader.is_none()).count(), 0);
    }
}

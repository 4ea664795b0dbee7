//! Replacement of failed, lost, damaged and leaving copies.

use crate::bed::{TestBed, facts_of, part, register, settings};
use archon_coordinator_core::*;
use archon_types::*;

const FOUR: [&str; 4] = ["athens", "byzantium", "cyrene", "ephesus"];
const REPLACE_MS: u64 = 300_000;

fn events(bed: &TestBed, wanted: impl Fn(&EventKind) -> bool) -> usize {
    bed.state.events.iter().filter(|event| wanted(&event.what)).count()
}

impl TestBed {
    /// Advances the time at once; all nodes but the silent ones send heartbeats.
    fn skip_to(&mut self, millis: u64) {
        self.now = self.now.plus(millis);
        self.heartbeat_all();
    }

    /// Drops a silent node from all Live sets, like its leaders request.
    fn drop_silent(&mut self, node: NodeId) {
        for index in 0..self.state.partitions.len() as u32 {
            let Some(own) = self.row(index).leader else { continue };
            let leader = self.leader(index).expect("a leader");
            let silent = self.row(index).live().find(|live| live.node == node).copied();
            let Some(silent) = silent else { continue };
            let name = ReplicaName { placement: silent.id, incarnation: self.incarnation(node) };
            let fact = self.fact(index, own, Fact::Silent { followers: vec![name] });
            self.report(leader, &fact).expect("a report");
        }
    }

    fn whole(&self, wanted: usize) -> bool {
        self.state.partitions.iter().all(|row| row.live().count() == wanted && row.placements.len() == wanted)
    }
}

#[test]
fn copy_on_failed_node_is_replaced_after_delay() {
    for dropped in [false, true] {
        let mut bed = TestBed::running(settings(8, 4, 3), &FOUR);
        let athens = bed.node("athens");
        bed.fail(athens);
        bed.settle();
        if dropped {
            bed.drop_silent(athens);
        }
        bed.skip_to(REPLACE_MS - 10_000);
        bed.settle();
        assert_eq!(events(&bed, |what| matches!(what, EventKind::RepairStarted { .. })), 0, "not yet");
        bed.skip_to(20_000);
        bed.settle();
        // Its data is not deleted in its absence: a duty to unload waits for it.
        let up = |row: &Partition| row.live().filter(|live| bed.state.is_alive(live.node)).count();
        let short: Vec<&Partition> = bed.state.partitions.iter().filter(|row| up(row) != 3).collect();
        assert!(short.is_empty(), "{dropped}: {short:#?}\n{:#?}", bed.state.nodes);
        assert_eq!(bed.online(), 8);
        let started = events(
            &bed,
            |what| matches!(what, EventKind::RepairStarted { why, .. } if why.contains("athens, which failed")),
        );
        assert_eq!((started, events(&bed, |what| matches!(what, EventKind::RepairDone { .. }))), (6, 6));
        let left = bed.state.partitions.on_node(athens).filter_map(|row| row.placement_on(athens)).collect::<Vec<_>>();
        assert!(left.iter().all(|placement| placement.state == ReplicaState::Unload), "{left:?}");

        bed.rejoin(athens, 900);
        assert!(duties(&bed.state, athens).unwrap().iter().all(|duty| matches!(duty, Duty::Unload { .. })));
        bed.settle();
        assert!(bed.whole(3), "{:#?}", bed.state.partitions);
        bed.round_trip();
    }
}

#[test]
fn returning_node_makes_unfinished_replacement_surplus() {
    let mut bed = TestBed::running(settings(4, 4, 3), &FOUR);
    let athens = bed.node("athens");
    bed.fail(athens);
    bed.settle();
    bed.drop_silent(athens);
    bed.skip_to(REPLACE_MS + 1_000);
    bed.heartbeat_all();
    let begun = bed.turn();
    assert!(!begun.is_empty());
    bed.commit(begun);
    bed.rejoin(athens, 900);
    bed.settle();
    assert!(bed.whole(3), "{:#?}", bed.state.partitions);
    assert!(events(&bed, |what| matches!(what, EventKind::CopyRetired { .. })) > 0);
}

#[test]
fn replacements_per_node_respect_copy_limit() {
    let mut bed = TestBed::running(settings(16, 4, 2), &FOUR);
    bed.fail(bed.node("athens"));
    bed.settle();
    bed.skip_to(REPLACE_MS + 1_000);
    for _ in 0..5 {
        let commands = bed.turn();
        bed.commit(commands);
        bed.now = bed.now.plus(100);
        bed.heartbeat_all();
    }
    for node in bed.state.nodes.keys() {
        let on = |row: &&Partition| row.placement_on(*node).is_some_and(|copy| copy.state == ReplicaState::Load);
        let from = |row: &&Partition| row.leader_placement().is_some_and(|leader| leader.node == *node);
        let loading = |row: &&Partition| row.placements.iter().any(|copy| copy.state == ReplicaState::Load);
        let to = bed.state.partitions.on_node(*node).filter(on).count();
        let given = bed.state.partitions.on_node(*node).filter(from).filter(loading).count();
        assert!(to + given <= 2, "node {node}: {to} to it and {given} from it");
    }
    assert!(bed.state.partitions.unsettled().count() > 0);
}

#[test]
fn nothing_is_replaced_while_over_a_third_of_nodes_failed() {
    let mut bed = TestBed::running(settings(6, 5, 3), &["a", "b", "c", "d", "e"]);
    for name in ["a", "b"] {
        bed.fail(bed.node(name));
        bed.settle();
    }
    bed.skip_to(2 * REPLACE_MS);
    bed.settle();
    assert_eq!(events(&bed, |what| matches!(what, EventKind::RepairStarted { .. })), 0);
    bed.rejoin(bed.node("a"), 900);
    bed.settle();
    assert!(events(&bed, |what| matches!(what, EventKind::RepairStarted { .. })) > 0, "one of five is not too many");
    let up = |row: &Partition| row.live().filter(|live| bed.state.is_alive(live.node)).count();
    assert!(bed.state.partitions.iter().all(|row| up(row) == 3));
}

#[test]
fn drained_stopped_nodes_do_not_withhold_repair() {
    let mut bed = TestBed::running(settings(12, 3, 2), &["a", "b", "c", "d", "e", "f"]);
    for name in ["d", "e"] {
        let node = bed.node(name);
        bed.ok(Command::SetNode { node, goal: NodeGoal::Drain, if_nodes: None });
        bed.settle();
        assert_eq!(bed.state.partitions.count_on(node), 0);
        bed.fail(node);
    }
    let f = bed.node("f");
    bed.fail(f);
    bed.settle();
    assert_eq!(withheld(&bed.state), None, "one of four");
    bed.skip_to(REPLACE_MS + 1_000);
    bed.settle();
    let up = |row: &Partition| row.live().filter(|live| bed.state.is_alive(live.node)).count();
    assert!(bed.state.partitions.iter().all(|row| up(row) == 2), "{:?}", bed.spread());
    assert_eq!(bed.state.partitions.held_on(f), 0);
    // Its copies have been replaced: it does not count for the others any longer.
    let c = bed.node("c");
    bed.fail(c);
    assert_eq!(withheld(&bed.state), None, "one of three");
}

#[test]
fn withheld_repair_is_reported() {
    let mut bed = TestBed::running(settings(8, 4, 3), &FOUR);
    let down = [bed.node("athens"), bed.node("byzantium")];
    down.iter().for_each(|node| bed.fail(*node));
    bed.settle();
    bed.skip_to(REPLACE_MS + 1_000);
    bed.settle();
    let remembered = LeaderView::new(&bed.state, &bed.liveness, bed.now);
    let explainer = Explainer::new(&bed.state, &remembered);
    let too_many = WithheldRepair { failed: 2, of: 4 };
    assert_eq!((withheld(&bed.state), explainer.shortage().withheld), (Some(too_many), Some((8, too_many))));
    let why = facts_of(explainer.explain(part(0)).unwrap());
    assert!(
        why.contains(&Facts::RepairWithheld { partitions_short: None, nodes_failed: 2, nodes_total: 4 }),
        "{why:?}"
    );
    bed.rejoin(down[0], 900);
    bed.settle();
    assert_eq!(withheld(&bed.state), None);
}

#[test]
fn copy_without_target_is_reported() {
    let mut bed = TestBed::new(settings(6, 3, 2));
    for (n, name) in ["a", "b", "c"].into_iter().enumerate() {
        bed.join_with(Register { partitions_max: Some(4), ..register(name, 1 + n as u128, 1_001 + n as u128) });
    }
    bed.settle();
    let c = bed.node("c");
    bed.fail(c);
    bed.ok(Command::NodeLost { node: c, if_version: bed.state.node(c).unwrap().node.version });
    bed.settle();
    let remembered = LeaderView::new(&bed.state, &bed.liveness, bed.now);
    let explainer = Explainer::new(&bed.state, &remembered);
    assert_eq!(explainer.shortage(), Shortage { nodes_at_limit: 4, ..Shortage::default() });
    let short = bed.state.partitions.iter().find(|row| row.live().count() == 1).unwrap();
    let why = facts_of(explainer.explain(short.id).unwrap());
    let at_limit = Facts::NodesAtLimit { partitions_short: None, nodes_full: 1, plan: false, raisable: true };
    assert_eq!(why, [Facts::UnderReplicated { missing: 1, of: 2, supply: None }, at_limit]);
    // The proposed remedy works.
    bed.join("d", 9);
    bed.settle();
    let remembered = LeaderView::new(&bed.state, &bed.liveness, bed.now);
    assert_eq!(Explainer::new(&bed.state, &remembered).shortage(), Shortage::default());
    assert!(bed.whole(2));
}

#[test]
fn replacement_on_failed_node_restarts_elsewhere_at_once() {
    let mut bed = TestBed::running(settings(1, 3, 2), &["a", "b", "c"]);
    let follower = bed.row(0).live().find(|live| Some(live.id) != bed.row(0).leader).unwrap().node;
    bed.join("d", 40);
    bed.join("e", 50);
    bed.fail(follower);
    bed.settle();
    bed.drop_silent(follower);
    bed.skip_to(REPLACE_MS + 1_000);
    let begun = bed.turn();
    bed.commit(begun);
    let target = bed.row(0).placements.iter().find(|copy| copy.state == ReplicaState::Load && copy.node != follower);
    let target = *target.expect("a replacement");
    bed.fail(target.node);
    bed.rejoin(follower, 901);
    bed.fail(follower);
    bed.settle();
    let old = bed.row(0).placement(target.id).map(|copy| copy.state);
    assert_eq!(old, Some(ReplicaState::Unload), "{:?}", bed.row(0));
    bed.skip_to(REPLACE_MS + 1_000);
    bed.rejoin(target.node, 902);
    bed.settle();
    assert_eq!(bed.row(0).live().filter(|live| bed.state.is_alive(live.node)).count(), 2);
}

#[test]
fn copies_of_a_node_declared_lost_are_replaced_at_once() {
    let mut bed = TestBed::running(settings(8, 4, 3), &FOUR);
    let athens = bed.node("athens");
    bed.fail(athens);
    bed.ok(check_lose_node(&bed.state, athens).unwrap().command);
    bed.settle();
    assert!(bed.whole(3), "{:#?}", bed.state.partitions);
    bed.ok(check_remove(&bed.state, athens).unwrap().command);
}

#[test]
fn node_that_took_over_a_name_gets_copies_again() {
    let mut bed = TestBed::running(settings(6, 3, 3), &["athens", "byzantium", "cyrene"]);
    bed.fail(bed.node("athens"));
    let new = bed.join("athens", 77);
    bed.settle();
    assert!(bed.whole(3), "{:#?}", bed.state.partitions);
    assert_eq!(bed.state.partitions.count_on(new), 6);
}

#[test]
fn drained_node_gives_up_leaderships_before_copies() {
    let mut bed = TestBed::running(settings(8, 4, 3), &FOUR);
    let athens = bed.node("athens");
    let drain = check_drain(&bed.state, athens).unwrap();
    assert_eq!((drain.leaderships, drain.placements), (2, 6));
    bed.ok(drain.command);
    let handed = duties(&bed.state, athens).unwrap();
    assert_eq!(handed.iter().filter(|duty| matches!(duty, Duty::HandOver { .. })).count(), 2);
    // All of its releases are handled in one batch, and not given to one node alone.
    let released: Vec<Report> =
        bed.facts_of(athens).into_iter().filter(|report| report.fact == Fact::Released).collect();
    let own = bed.incarnation(athens);
    let commands: Vec<Command> = on_reports(&bed.state, &mut bed.liveness, bed.now, athens, own, &released)
        .into_iter()
        .flat_map(|taken| taken.expect("a release"))
        .collect();
    bed.commit(commands);
    assert_eq!(bed.state.partitions.leaders_on(athens), 0);
    assert!(bed.state.partitions.iter().all(|row| row.leader.is_some()));
    assert!(bed.state.nodes.keys().all(|node| bed.state.partitions.leaders_on(*node) <= 3));
    bed.settle();
    assert_eq!(bed.state.partitions.count_on(athens), 0);
    assert!(bed.whole(3), "{:#?}", bed.state.partitions);
    assert_eq!(events(&bed, |what| matches!(what, EventKind::NodeDrained { node } if *node == athens)), 1);
    bed.fail(athens);
    bed.ok(check_remove(&bed.state, athens).unwrap().command);
}

#[test]
fn drain_moves_only_copies() {
    let mut bed = TestBed::running(settings(6, 2, 1), &["athens", "byzantium"]);
    let athens = bed.node("athens");
    bed.ok(check_drain(&bed.state, athens).unwrap().command);
    bed.settle();
    assert_eq!((bed.spread(), bed.online()), (vec![0, 6], 6));
}

#[test]
fn undrained_node_keeps_remaining_copies() {
    let mut bed = TestBed::running(settings(40, 4, 3), &FOUR);
    let athens = bed.node("athens");
    bed.ok(check_drain(&bed.state, athens).unwrap().command);
    for _ in 0..4 {
        bed.heartbeat_all();
        bed.round(&[]);
    }
    bed.ok(Command::SetNode { node: athens, goal: NodeGoal::Serve, if_nodes: None });
    bed.settle();
    assert!(bed.state.partitions.count_on(athens) > 0);
    assert!(bed.whole(3), "{:#?}", bed.state.partitions);
}

#[test]
fn node_failing_during_drain_is_repaired() {
    let mut bed = TestBed::running(settings(8, 4, 3), &FOUR);
    let athens = bed.node("athens");
    bed.ok(check_drain(&bed.state, athens).unwrap().command);
    bed.heartbeat_all();
    bed.round(&[]);
    bed.fail(athens);
    // It is draining, so its replacement is not delayed.
    bed.settle();
    let up = |row: &Partition| row.live().filter(|live| bed.state.is_alive(live.node)).count();
    assert!(bed.state.partitions.iter().all(|row| up(row) == 3));
}

#[test]
fn cordoned_node_leads_only_without_alternative() {
    let mut bed = TestBed::running(settings(9, 3, 3), &["athens", "byzantium", "cyrene"]);
    let (byzantium, cyrene) = (bed.node("byzantium"), bed.node("cyrene"));
    let before = bed.state.partitions.leaders_on(cyrene);
    bed.ok(Command::SetNode { node: cyrene, goal: NodeGoal::Cordon, if_nodes: None });
    bed.fail(bed.node("athens"));
    bed.settle();
    assert_eq!((bed.state.partitions.leaders_on(cyrene), bed.online()), (before, 9));
    // If it is the only one, it leads.
    bed.fail(byzantium);
    bed.settle();
    assert_eq!(bed.state.partitions.leaders_on(cyrene), 9);
}

#[test]
fn repair_continues_under_another_coordinator() {
    let mut bed = TestBed::running(settings(8, 4, 3), &FOUR);
    let athens = bed.node("athens");
    bed.fail(athens);
    bed.skip_to(REPLACE_MS + 1_000);
    let begun = bed.turn();
    bed.commit(begun);
    bed.liveness = Liveness::new(bed.now);
    bed.skip_to(REPLACE_MS + 10_000);
    bed.settle();
    bed.skip_to(REPLACE_MS + 10_000);
    bed.settle();
    let up = |row: &Partition| row.live().filter(|live| bed.state.is_alive(live.node)).count();
    assert!(bed.state.partitions.iter().all(|row| up(row) == 3));
    assert_eq!(bed.row(0).id, part(0));
}

#[test]
fn lost_partitions_do_not_use_up_copy_limit() {
    let mut bed = TestBed::running(settings(6, 2, 2), &["athens", "byzantium"]);
    let (athens, byzantium) = (bed.node("athens"), bed.node("byzantium"));
    // Byzantium comes back empty and begins two copies, its maximum; then athens is lost too, except for one partition
    // that is in sync elsewhere by then.
    bed.fail(byzantium);
    let corinth = bed.join("corinth", 40);
    bed.ok(check_lose_node(&bed.state, byzantium).unwrap().command);
    let begun = bed.turn();
    bed.commit(begun);
    let loading = |bed: &TestBed| {
        let on = |row: &&Partition| row.placement_on(corinth).is_some_and(|copy| copy.state == ReplicaState::Load);
        bed.state.partitions.on_node(corinth).filter(on).map(|row| row.id.index).collect::<Vec<_>>()
    };
    assert_eq!(loading(&bed).len(), 2);
    // One partition is whole on another node before athens is lost.
    let spared = (0..6).find(|index| bed.row(*index).placements.len() == 1).unwrap();
    let (id, row) = (PlacementId::new(bed.state.placement_last.get() + 50), bed.row(spared).clone());
    let ephesus = bed.join("ephesus", 50);
    let add = Edit::Repair(Placement { id, node: ephesus, state: ReplicaState::Load }, "a test".into());
    bed.ok(Command::Change(vec![PartitionChange::one(row.id, row.version, add)]));
    let promote = Edit::Promote(id, bed.incarnation(ephesus));
    bed.ok(Command::Change(vec![PartitionChange::one(row.id, bed.row(spared).version, promote)]));
    bed.fail(athens);
    bed.ok(check_lose_node(&bed.state, athens).unwrap().command);
    bed.settle();
    assert_eq!(loading(&bed).len(), 2, "they stay for an operator to decide");
    assert_eq!(bed.row(spared).live().count(), 2, "{:?}", bed.row(spared));
}

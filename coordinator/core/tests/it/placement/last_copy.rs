//! Copies are not deleted while they may be the last ones.

use crate::bed::{TestBed, facts_of, part, settings};
use archon_coordinator_core::*;
use archon_types::*;
use uuid::Uuid;

const REPLACE_MS: u64 = 300_000;

impl TestBed {
    /// Restarts the node in another process, with this content of its directory.
    fn return_with(&mut self, node: NodeId, held: Vec<PlacementId>, last_incarnation: Option<Incarnation>) {
        let row = self.state.node(node).expect("known").clone();
        let (name, address) = (row.node.name, row.node.address);
        let boot = BootId::new(Uuid::from_u128(7_000 + u128::from(self.state.applied)));
        self.join_with(Register { held, last_incarnation, ..Register::new(name, address, row.storage, boot) });
    }

    /// Restarts it from a directory that is older than its last incarnation.
    fn return_older(&mut self, node: NodeId) {
        let held = self.state.partitions.on_node(node).filter_map(|row| row.placement_on(node)).map(|p| p.id).collect();
        self.return_with(node, held, Some(Incarnation::new(1)));
    }

    /// Restarts it from a directory that holds nothing whole.
    fn return_empty(&mut self, node: NodeId) {
        let last = self.state.node(node).expect("known").activated;
        self.return_with(node, vec![], last);
    }

    fn copy_on(&self, node: NodeId) -> Placement {
        *self.row(0).placement_on(node).expect("a copy")
    }

    fn unloading(&self) -> usize {
        self.row(0).placements.iter().filter(|copy| copy.state == ReplicaState::Unload).count()
    }

    /// Returns true if a node has an order to delete a copy.
    fn is_ordered_to_delete(&self, node: NodeId) -> bool {
        let duties = duties(&self.state, node).unwrap_or_default();
        duties.iter().any(|duty| matches!(duty, Duty::Unload { .. }))
    }

    fn one_whole(&self, wanted: usize) -> bool {
        self.row(0).live().count() == wanted && self.row(0).placements.len() == wanted
    }

    /// Runs turns and reports, and checks that never more than one copy is deleted at a time.
    fn settle_one_at_a_time(&mut self) {
        for _ in 0..200 {
            self.heartbeat_all();
            self.round(&[]);
            assert!(self.unloading() <= 1, "{:?}", self.row(0));
            self.now = self.now.plus(100);
        }
    }
}

fn two() -> (TestBed, NodeId, NodeId) {
    let bed = TestBed::running(settings(1, 2, 2), &["athens", "byzantium"]);
    let (athens, byzantium) = (bed.node("athens"), bed.node("byzantium"));
    (bed, athens, byzantium)
}

fn three() -> (TestBed, [NodeId; 3]) {
    let bed = TestBed::running(settings(1, 3, 3), &["athens", "byzantium", "corinth"]);
    let nodes = ["athens", "byzantium", "corinth"].map(|name| bed.node(name));
    (bed, nodes)
}

#[test]
fn only_reachable_copy_is_kept_despite_older_directory() {
    let (mut bed, athens, byzantium) = two();
    let own = bed.copy_on(athens);
    bed.fail(byzantium);
    bed.fail(athens);
    bed.return_older(athens);
    bed.settle();
    assert_eq!(bed.copy_on(athens), Placement { state: ReplicaState::Load, ..own });
    assert!(duties(&bed.state, athens).unwrap().is_empty(), "its data is neither deleted nor written over");
    assert_eq!(bed.state.departed[&own.id].condition, Condition::Older);
    let forced = check_force_leader(&bed.state, &bed.liveness, bed.now, part(0), None).unwrap();
    assert_eq!((forced.leader, forced.condition), (Some(athens), Some(Condition::Older)));
    let kept = Facts::LostCopyKept { node: bed.state.node_name(athens), have: 0, need: 1 };
    let explained = |bed: &TestBed| facts_of(explain(&bed.state, &LeaderView::default(), part(0)).unwrap());
    assert!(explained(&bed).contains(&kept), "{:?}", explained(&bed));
    // Byzantium has all data: nothing needs to be given up, and the older copy makes room.
    bed.rejoin(byzantium, 900);
    bed.settle();
    assert!(bed.one_whole(2) && bed.online() == 1, "{:?}", bed.row(0));
    assert!(bed.row(0).placement(own.id).is_none(), "it was replaced, not brought up to date");
    assert_eq!(explained(&bed), []);
    bed.round_trip();
}

#[test]
fn only_reachable_copy_is_kept_despite_damage() {
    let (mut bed, ..) = two();
    let (leader, own) = (bed.leader(0).unwrap(), bed.row(0).leader.unwrap());
    let other = bed.row(0).live().find(|copy| copy.id != own).copied().unwrap();
    bed.fail(other.node);
    let damaged = bed.fact(0, own, Fact::Damaged { why: "bad checksum".into() });
    bed.report(leader, &damaged).unwrap();
    bed.settle();
    assert_eq!(bed.copy_on(leader).state, ReplicaState::Load);
    assert!(duties(&bed.state, leader).unwrap().is_empty());
    let forced = check_force_leader(&bed.state, &bed.liveness, bed.now, part(0), Some(leader)).unwrap();
    assert_eq!(forced.condition, Some(Condition::Gone));
    assert_eq!(forced.would_lose_nothing, [other.node]);
    bed.rejoin(other.node, 900);
    bed.settle();
    assert!(bed.one_whole(2) && bed.online() == 1, "{:?}", bed.row(0));
}

#[test]
fn copies_from_older_directories_are_all_kept() {
    let (mut bed, nodes) = three();
    nodes.into_iter().for_each(|node| bed.fail(node));
    for node in nodes {
        bed.return_older(node);
        bed.heartbeat_all();
        bed.round(&[]);
    }
    bed.settle();
    assert!(bed.row(0).placements.iter().all(|copy| copy.state == ReplicaState::Load), "{:?}", bed.row(0));
    assert!(nodes.iter().all(|node| duties(&bed.state, *node).unwrap().is_empty()));
    assert_eq!(facts_of(explain(&bed.state, &LeaderView::default(), part(0)).unwrap()), [Facts::DataLost {}]);
    // Only an operator's order ends it: one copy leads, and only then the others go.
    let forced = check_force_leader(&bed.state, &bed.liveness, bed.now, part(0), None).unwrap();
    assert_eq!(forced.condition, Some(Condition::Older));
    bed.ok(forced.command);
    bed.settle();
    assert!(bed.one_whole(3) && bed.online() == 1, "{:?}", bed.row(0));
}

#[test]
fn empty_registrations_delete_at_most_one_copy() {
    let (mut bed, nodes) = three();
    let before = bed.row(0).placements.clone();
    for node in nodes {
        bed.return_empty(node);
        let commands = bed.turn();
        bed.commit(commands);
        assert!(bed.unloading() <= 1, "{:?}", bed.row(0));
        // A node with an order to delete obeys at once.
        for report in bed.facts_of(node).into_iter().filter(|report| report.fact == Fact::Unloaded) {
            bed.report(node, &report).unwrap();
        }
    }
    bed.settle_one_at_a_time();
    let kept = before.iter().filter(|copy| bed.row(0).placement(copy.id).is_some()).count();
    assert_eq!(kept, 2, "the data of two copies is where it was: {:?}", bed.row(0));
    assert!(nodes.iter().all(|node| !bed.is_ordered_to_delete(*node)));
}

#[test]
fn lost_copy_is_replaced_at_once_if_enough_are_alive() {
    let (mut bed, nodes) = three();
    let old = bed.copy_on(nodes[1]);
    bed.return_older(nodes[1]);
    assert_eq!(bed.copy_on(nodes[1]).state, ReplicaState::Load);
    bed.settle();
    assert!(bed.one_whole(3) && bed.row(0).placement(old.id).is_none(), "{:?}", bed.row(0));
}

#[test]
fn lost_copy_is_kept_while_too_few_are_alive() {
    let (mut bed, [athens, byzantium, corinth]) = three();
    bed.fail(corinth);
    bed.return_older(byzantium);
    bed.settle();
    assert_eq!(bed.copy_on(byzantium).state, ReplicaState::Load, "athens alone is not enough: {:?}", bed.row(0));
    // Its leader's request is refused: it was not brought up to date, but is from another time.
    let joiner = ReplicaName { placement: bed.copy_on(byzantium).id, incarnation: bed.incarnation(byzantium) };
    if let Some(own) = bed.row(0).leader {
        let asked = bed.fact(0, own, Fact::CaughtUp { joiner });
        bed.report(athens, &asked).unwrap();
    }
    assert_eq!(bed.copy_on(byzantium).state, ReplicaState::Load);
    bed.rejoin(corinth, 901);
    bed.settle();
    assert!(bed.one_whole(3) && bed.online() == 1, "{:?}", bed.row(0));
}

#[test]
fn two_damaged_copies_are_replaced_one_by_one() {
    let (mut bed, _) = three();
    let own = bed.row(0).leader.unwrap();
    let others: Vec<Placement> = bed.row(0).live().filter(|copy| copy.id != own).copied().collect();
    for copy in &others {
        let damaged = bed.fact(0, copy.id, Fact::Damaged { why: "bad checksum".into() });
        bed.report(copy.node, &damaged).unwrap();
    }
    assert_eq!((bed.row(0).live().count(), bed.unloading()), (1, 0));
    bed.settle_one_at_a_time();
    assert!(bed.one_whole(3) && bed.online() == 1, "{:?}", bed.row(0));
    assert!(others.iter().all(|copy| bed.row(0).placement(copy.id).is_none()));
}

#[test]
fn replaced_copy_is_kept_when_others_died() {
    let mut bed = TestBed::running(settings(1, 2, 2), &["athens", "byzantium"]);
    let (athens, byzantium) = (bed.node("athens"), bed.node("byzantium"));
    let corinth = bed.join("corinth", 40);
    bed.fail(athens);
    bed.settle();
    bed.now = bed.now.plus(REPLACE_MS + 1_000);
    bed.heartbeat_all();
    bed.settle();
    let old = bed.copy_on(athens);
    assert_eq!((old.state, bed.row(0).live().count()), (ReplicaState::Unload, 2));
    bed.fail(byzantium);
    bed.fail(corinth);
    bed.rejoin(athens, 900);
    bed.settle();
    assert!(!bed.is_ordered_to_delete(athens), "it is the only one in reach");
    let forced = check_force_leader(&bed.state, &bed.liveness, bed.now, part(0), None).unwrap();
    assert_eq!((forced.leader, forced.condition), (Some(athens), Some(Condition::Whole)));
    assert!(check_remove(&bed.state, byzantium).is_err());
    // A node with all data returns: the decision is carried out.
    bed.rejoin(byzantium, 901);
    bed.settle();
    assert!(bed.row(0).placement(old.id).is_none(), "{:?}", bed.row(0));
    assert_eq!(bed.online(), 1);
    bed.round_trip();
}

#[test]
fn delete_order_is_withheld_without_alive_live_copy() {
    let (mut bed, [athens, byzantium, corinth]) = three();
    bed.return_older(byzantium);
    let commands = bed.turn();
    bed.commit(commands);
    assert!(bed.is_ordered_to_delete(byzantium), "{:?}", bed.row(0));
    let mark = duties_mark(&bed.state, byzantium);
    bed.fail(athens);
    bed.fail(corinth);
    assert!(!bed.is_ordered_to_delete(byzantium));
    assert_ne!(duties_mark(&bed.state, byzantium), mark, "or nobody would look at its duties again");
    bed.rejoin(corinth, 900);
    assert!(bed.is_ordered_to_delete(byzantium));
}

//! Forced elections: the new leader if no in-sync copy is on an alive node, and the reported alternatives.

use crate::bed::{TestBed, part, settings};
use archon_coordinator_core::*;
use archon_types::*;
use uuid::Uuid;

const CITIES: [&str; 4] = ["athens", "byzantium", "cyrene", "delphi"];

/// One partition with four copies: two were dropped one after the other, and a third one is the last in-sync copy,
/// since the first leader failed and its data was declared lost.
struct Scene {
    bed: TestBed,
    first: Placement,
    second: Placement,
    last: Placement,
}

fn scene() -> Scene {
    let mut bed = TestBed::running(settings(1, 4, 4), &CITIES);
    let (leader, own) = (bed.leader(0).expect("set up"), bed.row(0).leader.expect("set up"));
    let others: Vec<Placement> = bed.row(0).live().filter(|live| live.id != own).copied().collect();
    let [first, second, last] = others[..] else { panic!("four copies are expected: {others:?}") };
    for copy in [first, second] {
        let name = ReplicaName { placement: copy.id, incarnation: bed.incarnation(copy.node) };
        let silent = bed.fact(0, own, Fact::Silent { followers: vec![name] });
        bed.report(leader, &silent).expect("a drop");
        assert_eq!(bed.row(0).placement(copy.id).map(|copy| copy.state), Some(ReplicaState::Load));
    }
    bed.fail(leader);
    bed.ok(check_lose_node(&bed.state, leader).expect("set up").command);
    // The row forgets the lost copy.
    let commands = bed.turn();
    bed.commit(commands);
    assert_eq!(bed.row(0).live().map(|live| live.id).collect::<Vec<_>>(), [last.id]);
    assert!(bed.row(0).placement(own).is_none());
    Scene { bed, first, second, last }
}

impl Scene {
    fn check(&self, wanted: Option<NodeId>) -> Result<ForcedElection, Vec<Obstacle>> {
        check_force_leader(&self.bed.state, &self.bed.liveness, self.bed.now, part(0), wanted)
    }

    fn tell(&mut self, copy: Placement, fact: Fact) {
        let report = self.bed.fact(0, copy.id, fact);
        self.bed.report(copy.node, &report).expect("it is taken in");
    }

    /// Restarts a node with these copies and this last incarnation.
    fn restart(&mut self, node: NodeId, held: Vec<PlacementId>, last: Option<Incarnation>) {
        let row = self.bed.state.node(node).expect("known").clone();
        let boot = BootId::new(Uuid::from_u128(700 + u128::from(node.get())));
        self.bed.join_with(Register {
            held,
            last_incarnation: last,
            ..Register::new(row.node.name, row.node.address, row.storage, boot)
        });
        self.bed.pass(3_000, &[]);
    }

    fn activated(&self, node: NodeId) -> Option<Incarnation> {
        self.bed.state.node(node).expect("known").activated
    }
}

#[test]
fn damaged_copy_does_not_lead_past_whole_one() {
    let mut scene = scene();
    scene.tell(scene.last, Fact::Damaged { why: "checksum".into() });
    scene.bed.pass(3_000, &[]);
    assert!(scene.bed.row(0).live().next().is_none());
    let forced = scene.check(None).unwrap();
    assert_eq!((forced.leader, forced.condition), (Some(scene.second.node), Some(Condition::Whole)));
    assert!(forced.would_lose_less.is_empty() && forced.would_lose_nothing.is_empty());
    // It cannot be named past the better one either: that one would be deleted.
    let named = scene.check(Some(scene.last.node)).unwrap_err();
    assert!(matches!(named[..], [Obstacle::BetterCopy { .. }]), "{named:?}");
    let earlier = scene.check(Some(scene.first.node)).unwrap_err();
    assert!(matches!(earlier[..], [Obstacle::BetterCopy { .. }]), "{earlier:?}");
    assert_eq!(scene.check(Some(scene.second.node)).unwrap(), forced);
    scene.bed.ok(forced.command);
    assert_eq!(scene.bed.leader(0), Some(scene.second.node));
}

#[test]
fn emptied_copy_ranks_as_gone() {
    let mut scene = scene();
    let before = scene.bed.fact(0, scene.second.id, Fact::Emptied);
    scene.tell(scene.second, Fact::Emptied);
    assert_eq!(scene.bed.state.departed[&scene.second.id].condition, Condition::Gone);
    // A repetition changes nothing.
    assert_eq!(scene.bed.report(scene.second.node, &before).unwrap(), vec![]);
    scene.bed.fail(scene.last.node);
    scene.bed.pass(3_000, &[]);
    let forced = scene.check(None).unwrap();
    assert_eq!((forced.leader, forced.condition), (Some(scene.first.node), Some(Condition::Whole)));
    assert_eq!(forced.would_lose_nothing, [scene.last.node]);
    scene.bed.round_trip();
}

#[test]
fn late_emptied_report_is_ignored() {
    let mut scene = scene();
    let late = scene.bed.fact(0, scene.second.id, Fact::Emptied);
    let leader = scene.last;
    scene.bed.settle();
    assert_eq!(scene.bed.row(0).placement(scene.second.id).unwrap().state, ReplicaState::Live);
    assert_eq!(scene.bed.report(scene.second.node, &late).unwrap(), vec![], "it counts");
    let name = ReplicaName { placement: scene.second.id, incarnation: scene.bed.incarnation(scene.second.node) };
    let own = scene.bed.row(0).leader.unwrap();
    let (node, silent) = (scene.bed.leader(0).unwrap(), scene.bed.fact(0, own, Fact::Silent { followers: vec![name] }));
    scene.bed.report(node, &silent).unwrap();
    assert_eq!(scene.bed.row(0).placement(scene.second.id).unwrap().state, ReplicaState::Load);
    assert_eq!(scene.bed.report(scene.second.node, &late).unwrap(), vec![], "that was before it counted");
    assert_eq!(scene.bed.state.departed[&scene.second.id].condition, Condition::Whole);
    assert_ne!(leader.id, scene.second.id);
}

#[test]
fn missing_and_older_copies_rank_below_whole_ones() {
    let mut scene = scene();
    // The second one returns without its copy, the last one from a directory of an earlier incarnation.
    let activated = scene.activated(scene.second.node);
    scene.bed.fail(scene.last.node);
    scene.restart(scene.second.node, vec![], activated);
    assert_eq!(scene.bed.state.departed[&scene.second.id].condition, Condition::Gone);
    scene.restart(scene.last.node, vec![scene.last.id], Some(Incarnation::new(1)));
    assert_eq!(scene.bed.state.departed[&scene.last.id].condition, Condition::Older);
    let forced = scene.check(None).unwrap();
    assert_eq!((forced.leader, forced.condition), (Some(scene.first.node), Some(Condition::Whole)));
    // Without the whole copy, the older one is the best; the better one is reported.
    scene.bed.fail(scene.first.node);
    let forced = scene.check(None).unwrap();
    assert_eq!((forced.leader, forced.condition), (Some(scene.last.node), Some(Condition::Older)));
    assert_eq!(forced.would_lose_less, [scene.first.node]);
    assert!(forced.retired.contains(&scene.first.node));
}

#[test]
fn remains_of_copy_lead_only_if_named() {
    let mut scene = scene();
    scene.tell(scene.last, Fact::Damaged { why: "checksum".into() });
    scene.tell(scene.first, Fact::Damaged { why: "checksum".into() });
    scene.tell(scene.second, Fact::Emptied);
    scene.bed.pass(3_000, &[]);
    let forced = scene.check(None).unwrap();
    assert_eq!((forced.leader, forced.condition), (None, None));
    assert_eq!(forced.could_be_named.len(), 3);
    let named = scene.check(Some(scene.second.node)).unwrap();
    assert_eq!((named.leader, named.condition), (Some(scene.second.node), Some(Condition::Gone)));
    scene.bed.ok(forced.command);
    assert_eq!(scene.bed.row(0).status, PartitionStatus::Unassigned);
}

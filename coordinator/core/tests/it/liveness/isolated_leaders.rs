//! Leaders that hear too few followers (PROTOCOL rule 6).

use crate::bed::{TestBed, facts_of, part, settings};
use archon_coordinator_core::{Explainer, LeaderView};
use archon_types::*;

const CITIES: [&str; 3] = ["athens", "byzantium", "cyrene"];

/// Cuts the leader of partition 0 off from all followers; returns its node and the others.
fn cut_off(bed: &mut TestBed, say: bool) -> (NodeId, Vec<ReplicaName>) {
    let leader = bed.leader(0).expect("a leader");
    let own = bed.row(0).leader.expect("a leader");
    let others: Vec<ReplicaName> = bed
        .row(0)
        .live()
        .filter(|live| live.id != own)
        .map(|live| ReplicaName { placement: live.id, incarnation: bed.incarnation(live.node) })
        .collect();
    if say {
        let silent = bed.fact(0, own, Fact::Silent { followers: others.clone() });
        bed.report(leader, &silent).expect("a report");
    }
    (leader, others)
}

#[test]
fn leadership_moves_to_copy_that_reaches_enough() {
    let mut bed = TestBed::running(settings(9, 3, 3), &CITIES);
    let (leader, _) = cut_off(&mut bed, true);
    let epoch = bed.row(0).epoch;
    bed.pass(1_900, &[]);
    assert_eq!(bed.leader(0), Some(leader), "the others may just be noticing the same");
    bed.pass(200, &[]);
    // Through release: it learns that its lease does not cover this any longer.
    assert_eq!(bed.heartbeat(leader).expect("an answer").withdrawn, vec![(part(0), epoch)]);
    assert_eq!(bed.leader(0), Some(leader));
    let own = bed.row(0).leader.expect("a leader");
    let released = bed.fact(0, own, Fact::Released);
    bed.report(leader, &released).expect("a release");
    let successor = bed.leader(0).expect("a leader, in the same commit");
    assert_ne!(successor, leader);

    // The new one has the same problem: it is not moved again soon.
    let (other, _) = cut_off(&mut bed, true);
    assert_eq!(other, successor);
    bed.pass(3_000, &[]);
    assert_eq!(bed.leader(0), Some(successor));
    assert_eq!(bed.heartbeat(successor).expect("an answer").withdrawn, vec![]);
    bed.pass(10_000, &[]);
    assert_ne!(bed.leader(0), Some(successor), "after a pause it may be");
}

#[test]
fn leadership_stays_without_better_copy() {
    // Only its leader serves anything, so nothing is known of the others.
    let mut bed = TestBed::running(settings(1, 3, 3), &CITIES);
    let (leader, _) = cut_off(&mut bed, true);
    bed.pass(20_000, &[]);
    assert_eq!(bed.leader(0), Some(leader));

    // The others do not hear each other either.
    let mut bed = TestBed::running(settings(9, 3, 3), &CITIES);
    let (leader, others) = cut_off(&mut bed, true);
    for index in 1..9 {
        let (Some(node), Some(own)) = (bed.leader(index), bed.row(index).leader) else { continue };
        let names = bed.row(index).live().filter(|live| live.id != own);
        let followers = names.map(|live| ReplicaName { placement: live.id, incarnation: bed.incarnation(live.node) });
        let silent = bed.fact(index, own, Fact::Silent { followers: followers.collect() });
        bed.report(node, &silent).expect("a report");
    }
    bed.pass(20_000, &[]);
    assert_eq!((bed.leader(0), others.len()), (Some(leader), 2));
}

#[test]
fn leadership_moves_to_last_follower_after_a_drop() {
    let mut bed = TestBed::running(settings(9, 3, 3), &CITIES);
    let (leader, others) = cut_off(&mut bed, false);
    let own = bed.row(0).leader.expect("a leader");
    for follower in &others {
        let silent = bed.fact(0, own, Fact::Silent { followers: vec![*follower] });
        bed.report(leader, &silent).expect("a report");
    }
    let live: Vec<PlacementId> = bed.row(0).live().map(|live| live.id).collect();
    assert!(live.contains(&own) && live.contains(&others[1].placement) && live.len() == 2, "{live:?}");
    bed.pass(2_100, &[]);
    let released = bed.fact(0, own, Fact::Released);
    bed.report(leader, &released).expect("a release");
    assert_eq!(bed.row(0).leader, Some(others[1].placement), "it reaches the one that was dropped and adds it");
}

#[test]
fn isolated_leader_is_reported() {
    let mut bed = TestBed::running(settings(1, 3, 3), &CITIES);
    let (leader, others) = cut_off(&mut bed, true);
    assert_eq!((bed.row(0).status, others.len()), (PartitionStatus::Online, 2));
    let why = |bed: &TestBed| {
        let remembered = LeaderView::new(&bed.state, &bed.liveness, bed.now);
        let explainer = Explainer::new(&bed.state, &remembered);
        (explainer.isolated().collect::<Vec<_>>(), facts_of(explainer.explain(part(0)).unwrap()))
    };
    let isolated = Facts::LeaderHearsTooFew { node: bed.state.node_name(leader), have: 1, need: 2 };
    assert_eq!(why(&bed), (vec![part(0)], vec![isolated]));
    // It asks again while that holds.
    bed.pass(10_000, &[]);
    assert_eq!(why(&bed), (vec![], vec![]));
}

#[test]
fn leader_that_hears_enough_keeps_leadership() {
    let mut bed = TestBed::running(settings(9, 3, 3), &CITIES);
    let (leader, others) = cut_off(&mut bed, false);
    let own = bed.row(0).leader.expect("a leader");
    let silent = bed.fact(0, own, Fact::Silent { followers: others[..1].to_vec() });
    bed.report(leader, &silent).expect("a report");
    assert_eq!(bed.row(0).live().count(), 2);
    bed.pass(5_000, &[]);
    assert_eq!(bed.leader(0), Some(leader));
}

#[test]
fn failed_successor_does_not_block_election() {
    let mut bed = TestBed::running(settings(9, 3, 3), &CITIES);
    let (leader, _) = cut_off(&mut bed, true);
    bed.pass(2_100, &[]);
    let own = bed.row(0).leader.expect("a leader");
    // The chosen successor falls silent while the old leader releases.
    let released = bed.fact(0, own, Fact::Released);
    let mut probe =
        TestBed { state: bed.state.clone(), liveness: bed.liveness.clone(), now: bed.now, beats: bed.beats };
    probe.report(leader, &released).expect("a release");
    let chosen = probe.leader(0).expect("a leader, in the same commit");
    bed.fail(chosen);
    bed.report(leader, &released).expect("a release");
    bed.pass(200, &[chosen]);
    let now = bed.leader(0).expect("somebody leads at once");
    assert!(now != chosen && now != leader, "{now}");
}

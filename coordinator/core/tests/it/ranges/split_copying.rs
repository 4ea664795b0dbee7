//! The conditions of a split for giving up keys: copies that have them and receive all writes.

use super::splits::{last_event, ranges};
use crate::bed::ranges::times;
use crate::bed::{FORMED_AT, TestBed};
use archon_coordinator_core::*;
use archon_types::*;

/// Runs one turn and commits its commands.
fn turn(bed: &mut TestBed) {
    let commands = bed.turn();
    bed.commit(commands);
}

fn is_cut(bed: &TestBed) -> bool {
    bed.of_times(0).split.as_ref().is_some_and(|split| split.cut)
}

fn stages(bed: &TestBed) -> Vec<RightStage> {
    bed.of_times(0).split.iter().flat_map(|split| &split.copies).map(|copy| copy.stage).collect()
}

#[test]
fn keys_are_cut_once_every_copy_has_them() {
    let mut bed = ranges(3, None);
    bed.begin_split(0, "m");
    for node in bed.nodes() {
        turn(&mut bed);
        assert!(!is_cut(&bed), "{:?}", stages(&bed));
        bed.mirrors(node, 0).expect("it counts");
        assert_eq!(bed.mirrors(node, 0), Ok(vec![]), "said again");
    }
    turn(&mut bed);
    assert!(is_cut(&bed));
    assert!(last_event(&bed, |what| matches!(what, EventKind::SplitCut { right, .. } if *right == times(1))));
}

#[test]
fn last_copy_is_awaited_for_30_s_before_cut() {
    let mut bed = ranges(3, None);
    bed.begin_split(0, "m");
    for node in &bed.nodes()[..2] {
        bed.mirrors(*node, 0).expect("it counts");
    }
    bed.pass(29_000, &[]);
    assert!(!is_cut(&bed));
    bed.pass(2_000, &[]);
    assert!(is_cut(&bed), "it is loaded then");
}

#[test]
fn split_is_abandoned_after_half_an_hour_of_copying() {
    let mut bed = ranges(3, None);
    bed.begin_split(0, "m");
    bed.mirrors(bed.nodes()[0], 0).expect("it counts");
    bed.pass(29 * 60_000, &[]);
    assert!(bed.is_split(0) && !is_cut(&bed));
    bed.pass(61_000, &[]);
    assert!(!bed.is_split(0) && bed.of_times(0).range.is_all());
    let why =
        |what: &EventKind| matches!(what, EventKind::SplitAbandoned { why, .. } if why.contains("not copied within"));
    assert!(last_event(&bed, why), "{:#?}", bed.state.events.back());
}

#[test]
fn restarted_node_copies_again() {
    let mut bed = ranges(3, None);
    bed.begin_split(0, "m");
    let nodes = bed.nodes();
    for node in &nodes {
        bed.mirrors(*node, 0).expect("it counts");
    }
    let follower =
        bed.of_times(0).live().map(|copy| copy.node).find(|node| Some(*node) != bed.leader_of(0)).expect("one");
    bed.fail(follower);
    bed.pass(3_000, &[follower]);
    // Two are left, which is enough.
    assert!(is_cut(&bed));
    bed.rejoin(follower, 9_001);
    assert_eq!(stages(&bed).iter().filter(|stage| **stage == RightStage::Copying).count(), 1, "{:?}", stages(&bed));
    bed.settle();
    assert!(!bed.is_split(0) && bed.of_times(1).live().count() == 3);
}

/// Seed 265911000859462 of the simulator: a lost copy is not hosted, nothing is repaired while a partition is split,
/// and the split waited half an hour for that node.
#[test]
fn copy_with_lost_source_is_not_awaited() {
    for lost in [1, 2] {
        let mut bed = ranges(3, None);
        bed.begin_split(0, "m");
        let followers = bed.nodes().into_iter().filter(|node| Some(*node) != bed.leader_of(0));
        let losers: Vec<_> = followers.take(lost).collect();
        for (node, boot) in losers.iter().zip(9_001..) {
            bed.fail(*node);
            bed.rejoin_without(*node, boot, times(0));
        }
        assert_eq!(bed.of_times(0).live().count(), 3 - lost);
        for node in bed.nodes().iter().filter(|node| !losers.contains(node)) {
            bed.mirrors(*node, 0).expect("it counts");
        }
        bed.pass(100, &[]);
        let goes_on = lost == 1;
        assert_eq!((bed.is_split(0), is_cut(&bed)), (goes_on, goes_on), "{:?}", stages(&bed));
        bed.settle();
        assert_eq!(bed.of_times(0).live().count(), 3, "what was lost is replaced");
    }
}

#[test]
fn keys_are_not_cut_without_leader() {
    let mut bed = ranges(3, None);
    bed.begin_split(0, "m");
    for node in bed.nodes() {
        bed.mirrors(node, 0).expect("it counts");
    }
    let leader = bed.leader_of(0).expect("led");
    bed.rejoin(leader, 9_001);
    bed.mirrors(leader, 0).expect("it counts");
    let row = bed.of_times(0);
    assert!(row.leader.is_none() || row.status != PartitionStatus::Online);
    let before = bed.of_times(0).clone();
    turn(&mut bed);
    assert!(!is_cut(&bed), "{before:?}");
    bed.settle();
    assert!(!bed.is_split(0));
}

#[test]
fn formed_copy_needs_no_mirroring_report() {
    let mut bed = ranges(3, None);
    let split = bed.begin_cut(0, "m");
    let node = split.copies[0].node;
    bed.forms(node, 0, FORMED_AT).expect("it counts");
    assert_eq!(bed.mirrors(node, 0), Ok(vec![]), "late");
    assert_eq!(stages(&bed)[0], RightStage::Formed);
}

#[test]
fn last_copy_is_awaited_despite_another_restart() {
    let mut bed = ranges(3, None);
    bed.begin_split(0, "m");
    let [first, second, _] = bed.nodes()[..] else { panic!("three nodes") };
    bed.mirrors(first, 0).expect("it counts");
    bed.mirrors(second, 0).expect("it counts");
    turn(&mut bed);
    bed.fail(second);
    bed.rejoin(second, 9_001);
    assert_eq!(stages(&bed).iter().filter(|stage| **stage == RightStage::Mirroring).count(), 1);
    bed.pass(60_000, &[]);
    assert!(bed.is_split(0) && !is_cut(&bed), "only one copy has the keys");
    bed.mirrors(second, 0).expect("it counts");
    bed.pass(1_000, &[]);
    assert!(!is_cut(&bed), "the third one has thirty seconds from when enough have the keys");
}

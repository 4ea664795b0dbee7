//! Displayed progress of splits and merges.

use super::splits::ranges;
use crate::bed::ranges::{TIMES, key, times};
use crate::bed::{FORMED_AT, TestBed};
use archon_coordinator_core::*;
use archon_types::*;

fn only(bed: &TestBed) -> RangeChange {
    let all: Vec<RangeChange> = RangeChange::all(&bed.state).collect();
    assert_eq!(all.len(), 1, "{all:?}");
    let described = |index| RangeChange::of(&bed.state, bed.of_times(index));
    assert_eq!(described(all[0].partition.index), Some(all[0].clone()), "described and listed alike");
    if all[0].kind == RangeChangeKind::Merge {
        assert_eq!(described(all[0].right.index), Some(all[0].clone()), "the same of both partitions");
    }
    all[0].clone()
}

#[test]
fn split_shows_progress_and_pending_copies() {
    let mut bed = ranges(3, None);
    bed.begin_split(0, "m");
    let begun = only(&bed);
    assert_eq!((begun.kind, begun.phase, begun.percent), (RangeChangeKind::Split, RangeChangePhase::Copying, 0));
    assert_eq!((begun.right, begun.at, begun.copies, begun.copies_ready), (times(1), key("m"), 3, 0));
    assert_eq!(begun.why, "waits for athens, byzantium, cyrene, which still copy the keys of times/1");
    let leader = bed.leader_of(0).unwrap();
    let (last, others): (Vec<NodeId>, Vec<NodeId>) = {
        let followers: Vec<NodeId> = bed.nodes().into_iter().filter(|node| *node != leader).collect();
        (followers[1..].to_vec(), vec![leader, followers[0]])
    };
    for node in &others {
        bed.mirrors(*node, 0).unwrap();
    }
    bed.fail(last[0]);
    let waits = only(&bed);
    assert_eq!((waits.percent, waits.copies_ready, &waits.waits_for), (60, 2, &last));
    let away = format!(
        "2 replicas have the keys of times/1: the split continues without {} (which is not alive)",
        bed.state.node_name(last[0])
    );
    assert_eq!(waits.why, away);
    bed.pass(100, &last);
    let cut = only(&bed);
    assert_eq!((cut.phase, cut.copies_ready), (RangeChangePhase::Forming, 0), "{cut:?}");
    bed.forms(leader, 0, FORMED_AT).unwrap();
    let formed = only(&bed);
    assert_eq!((formed.percent, formed.copies_ready), (63, 1));
    assert!(
        formed.why.contains("which still writes the keys of times/1 out; the split continues without "),
        "{}",
        formed.why
    );
    bed.forms(others[1], 0, FORMED_AT).unwrap();
    bed.pass(100, &last);
    assert_eq!(RangeChange::all(&bed.state).count(), 0);
}

#[test]
fn merge_shows_absorber_and_missing_leaders() {
    let mut bed = TestBed::with_ranges(3, 3, &["g"], RangeLimits::NONE);
    let plan = check_merge(&bed.state, times(0), |_| None).unwrap();
    bed.ok(plan.command);
    let merge = only(&bed);
    assert_eq!((merge.kind, merge.phase, merge.percent), (RangeChangeKind::Merge, RangeChangePhase::Absorbing, 0));
    assert_eq!((merge.partition, merge.right, &merge.at), (times(0), times(1), &key("g")));
    let (taker, giver) = (bed.leader_of(0).unwrap(), bed.leader_of(1).unwrap());
    let name = |node| bed.state.node_name(node);
    match taker == giver {
        true => assert_eq!(merge.why, format!("{} takes over the keys", name(taker))),
        false => assert_eq!(merge.why, format!("{} takes over the keys from {}", name(taker), name(giver))),
    }
    for node in bed.nodes() {
        bed.fail(node);
    }
    assert!(bed.state.partitions.of_table(TIMES).all(|row| row.leader.is_none()));
    assert_eq!(only(&bed).why, "no leader of times/0 and times/1");
}

//! Removed nodes: holders of nodes by deltas forget them too.

use crate::bed::{TABLE, TestBed, register, settings};
use archon_coordinator_core::STRANGERS_MAX;
use archon_coordinator_core::*;
use archon_types::*;

const CITIES: [&str; 3] = ["athens", "byzantium", "cyrene"];

/// Holders of nodes by deltas kept removed nodes with their addresses for their whole run.
#[test]
fn removed_node_leaves_every_cache() {
    let mut bed = TestBed::running(settings(9, 3, 2), &CITIES);
    let whole = |bed: &TestBed| {
        PartitionTable::from_whole(table_piece(&bed.state, TABLE, Version::ZERO, 0).unwrap().delta).unwrap()
    };
    let (mut cached, everyone) = (whole(&bed), nodes_delta(&bed.state, Version::ZERO, 1 << 20));
    assert_eq!(everyone.removed, None, "nobody was removed yet");
    let gone = bed.node("athens");
    bed.pass(2_000, &[gone]);
    let if_version = bed.state.node(gone).unwrap().node.version;
    bed.ok(Command::NodeLost { node: gone, if_version });
    let since = bed.state.table_version();
    assert!(cached.merge(table_piece(&bed.state, TABLE, cached.version(), 0).unwrap().delta));
    assert!(cached.node(gone).is_some());
    let if_version = bed.state.node(gone).unwrap().node.version;
    bed.ok(Command::RemoveNode { node: gone, if_version });
    let news = nodes_delta(&bed.state, since, 1);
    let removed = news.removed.clone().expect("the delta says who is gone");
    assert_eq!((news.nodes.len(), news.version, removed.contains(gone)), (0, bed.state.nodes_version, true));
    assert!(bed.state.nodes.keys().all(|id| !removed.contains(*id)));
    assert!(cached.merge(table_piece(&bed.state, TABLE, cached.version(), 0).unwrap().delta));
    assert_eq!((cached.node(gone), &cached), (None, &whole(&bed)));
    // A delta from before the removal does not bring it back.
    let late = TableDelta { nodes: everyone.nodes, ..cached.newer_than(cached.version()) };
    assert!(cached.merge(late));
    assert_eq!(cached, whole(&bed));
    // Readers of such a cache learn of the removal as well.
    assert_eq!(cached.newer_than(since).removed, Some(removed));
    assert_eq!(nodes_delta(&bed.state, news.version, 1).removed, None, "it was told");
}

#[test]
fn forgotten_strangers_are_in_deltas() {
    let mut bed = TestBed::running(settings(9, 3, 2), &CITIES);
    let first = NodeId::new(4);
    for number in 0..=STRANGERS_MAX as u128 + 1 {
        let Response::Registered { node, incarnation } =
            bed.ok(Command::Register(Box::new(register(&format!("s{number}"), 1_000 + number, 9_000_000 + number))))
        else {
            panic!("not registered")
        };
        bed.ok(Command::NodeFailed { node, incarnation, successors: vec![] });
    }
    assert_eq!(bed.state.node(first), None);
    let removed = bed.state.removed_since(Version::ZERO).expect("somebody was forgotten");
    assert!(removed.contains(first) && !removed.contains(bed.state.node_last));
    assert_eq!(removed.ranges.len(), 1, "those who are gone stand side by side: {removed:?}");
}

/// A relay reported it as fenced, once the rows of nodes listed the numbers without a node.
#[test]
fn participant_is_not_listed_as_removed_node() {
    let mut bed = TestBed::running(settings(9, 3, 2), &CITIES);
    let served = Participant { tables: vec!["jobs".into()], timing: None };
    let participant = bed.join_with(Register { participant: Some(served), ..register("w1", 900, 901) });
    let later = bed.join("delos", 902);
    let gone = bed.node("athens");
    bed.fail(gone);
    for remove in [false, true] {
        let if_version = bed.state.node(gone).unwrap().node.version;
        bed.ok(if remove {
            Command::RemoveNode { node: gone, if_version }
        } else {
            Command::NodeLost { node: gone, if_version }
        });
    }
    let removed = bed.state.removed_since(Version::ZERO).expect("one was removed");
    let is_gone = [gone, participant, later].map(|member| removed.contains(member));
    assert_eq!(is_gone, [true, false, false], "{removed:?}");
}

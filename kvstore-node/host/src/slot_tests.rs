use super::*;
use crate::test_shell::{OTHER, OWN, TestShell, held, row};
use archon_kv::{Effect, RowChange};
use archon_replica::{Configuration, Identity, Input, Limits, Timing};
use archon_types::{Incarnation, NodeId, Partition, ReplicaState, TableId};
use bytes::Bytes;
use std::collections::BTreeMap;

/// A copy whose log and engine hold ten entries.
fn slot() -> Slot<TestShell> {
    let partition = PartitionId::new(TableId::new(1), 0);
    let (node, incarnation) = (NodeId::new(1), Incarnation::new(1));
    let identity = Identity { partition, placement: OWN, node, incarnation };
    let found = held(partition);
    let replica = Replica::new(identity, found.recovered.clone(), Limits::default()).unwrap();
    Slot::new(OWN, found, replica, Emptied::default(), Broken::default())
}

fn configure(slot: &mut Slot<TestShell>, own: ReplicaState, version: u64) {
    let mut row: Partition = row(version, &[(OTHER, ReplicaState::Live)]);
    row.leader = Some(OTHER);
    row.placements[0].state = own;
    let configuration = Configuration { row, peers: BTreeMap::new(), timing: Timing::default() };
    slot.replica.step(Millis::new(1), Input::Configure(configuration), &mut Vec::new());
}

#[test]
fn the_first_commit_after_a_pause_gathers_anew() {
    let mut slot = slot();
    let changes = vec![RowChange::set(Bytes::from_static(b"11"), Bytes::new())];
    slot.memtable.push(Seq::new(11), Effect { at: Millis::new(11), changes }).unwrap();
    slot.memtable.commit(Seq::new(11));
    slot.gathering_since = Some(Millis::new(1));
    slot.freeze();
    assert!(!slot.memtable.is_empty());
    assert_eq!(slot.gathering_since, None, "nothing gathers");
}

#[test]
fn a_restarted_copy_does_not_know_what_the_engine_holds_until_it_counts() {
    let mut slot = slot();
    slot.memtable.set_engine_ahead(ENGINE_AHEAD_UNKNOWN);
    slot.learn_engine_ahead();
    configure(&mut slot, ReplicaState::Load, 1);
    slot.learn_engine_ahead();
    assert_eq!(slot.memtable.engine_ahead(), ENGINE_AHEAD_UNKNOWN);
    configure(&mut slot, ReplicaState::Live, 2);
    slot.learn_engine_ahead();
    assert_eq!(slot.memtable.engine_ahead(), Seq::new(10));
}

use super::*;
use crate::test_shell::{OTHER, OWN, TestShell, held, row};
use archon_kv::{Effect, RowChange};
use archon_replica::{Configuration, Identity, Input, Limits, Timing};
use archon_types::{Incarnation, NodeId, Partition, ReplicaState, TableId};
use bytes::Bytes;
use std::collections::BTreeMap;

/// A copy whose log and engine hold ten entries.
fn local() -> LocalCopy<TestShell> {
    let partition = PartitionId::new(TableId::new(1), 0);
    let (node, incarnation) = (NodeId::new(1), Incarnation::new(1));
    let identity = Identity { partition, placement: OWN, node, incarnation };
    let found = held(partition);
    let replica = Replica::new(identity, found.recovered.clone(), Limits::default()).unwrap();
    LocalCopy::new(OWN, found, replica, ResetReport::default(), DisabledRule::default())
}

fn configure(local: &mut LocalCopy<TestShell>, own: ReplicaState, version: u64) {
    let mut row: Partition = row(version, &[(OTHER, ReplicaState::Live)]);
    row.leader = Some(OTHER);
    row.placements[0].state = own;
    let configuration = Configuration { row, peers: BTreeMap::new(), timing: Timing::default() };
    local.replica.step(Millis::new(1), Input::Configure(configuration), &mut Vec::new());
}

#[test]
fn first_commit_after_freeze_gathers_separately() {
    let mut local = local();
    let changes = vec![RowChange::set(Bytes::from_static(b"11"), Bytes::new())];
    local.memtable.push(Seq::new(11), Effect::new(Millis::new(11), changes)).unwrap();
    local.memtable.commit(Seq::new(11));
    local.gathering_since = Some(Millis::new(1));
    local.freeze();
    assert!(!local.memtable.is_empty());
    assert_eq!(local.gathering_since, None, "nothing gathers");
}

#[test]
fn restarted_copy_knows_engine_end_once_in_sync() {
    let mut local = local();
    local.memtable.set_engine_ahead(ENGINE_AHEAD_UNKNOWN);
    local.learn_engine_ahead();
    configure(&mut local, ReplicaState::Load, 1);
    local.learn_engine_ahead();
    assert_eq!(local.memtable.engine_ahead(), ENGINE_AHEAD_UNKNOWN);
    configure(&mut local, ReplicaState::Live, 2);
    local.learn_engine_ahead();
    assert_eq!(local.memtable.engine_ahead(), Seq::new(10));
}

//! Pushes to a node, and the meaning of its answers.

use crate::bed::{TABLE, TestBed, settings};
use archon_coordinator_core::term::{Piece, Pieces, PromisedPush, PushProgress, PushUrgency};
use archon_coordinator_core::*;
use archon_types::*;

/// Whole tables, each as the versions that it is newer than and made of.
pub(crate) struct WholeTables;

impl Pieces for WholeTables {
    type Rows = (TableId, Version);
    type Nodes = Version;

    fn rows(&self, state: &ClusterState, table: TableId, since: Version, _: u64) -> Option<Piece<(TableId, Version)>> {
        Some(Piece { content: (table, since), bytes: 100, version: state.rows_version_of(table), next: None })
    }

    fn nodes(&self, state: &ClusterState, since: Version) -> Option<Piece<Version>> {
        Some(Piece { content: since, bytes: 100, version: state.nodes_version, next: None })
    }
}

fn bed() -> (TestBed, NodeId) {
    let mut bed = TestBed::running(settings(1, 3, 3), &["athens", "byzantium", "cyrene"]);
    bed.heartbeat_all();
    let node = bed.node("athens");
    (bed, node)
}

#[track_caller]
pub(crate) fn next(bed: &TestBed, node: NodeId, acknowledged: &PushProgress) -> PromisedPush<WholeTables> {
    acknowledged.next(&bed.state, node, &WholeTables).expect("it lacks something")
}

/// Creates a node that has applied everything.
pub(crate) fn all_taken() -> (TestBed, NodeId, PushProgress) {
    let (bed, node) = bed();
    let mut acknowledged = PushProgress::default();
    assert_eq!(acknowledged.due(&bed.state, node), Some(PushUrgency::Duties));
    let (push, promise) = next(&bed, node, &acknowledged);
    assert!(push.duties.is_some_and(|duties| duties.len() == 1) && push.complete == Some(bed.state.table_version()));
    assert!(acknowledged.take(promise, push.version, false, bed.now));
    assert_eq!(acknowledged.due(&bed.state, node), None);
    assert!(acknowledged.next(&bed.state, node, &WholeTables).is_none());
    (bed, node, acknowledged)
}

#[test]
fn up_to_date_node_lacks_only_later_changes() {
    let (mut bed, node, acknowledged) = all_taken();
    let before = bed.state.rows_version_of(TABLE);
    bed.ok(Command::CreateTable {
        name: "other".into(),
        partitioning: Partitioning::Hash { partitions: 1 },
        replication: 1,
        holds: TableContent::Data,
    });
    assert_eq!(acknowledged.due(&bed.state, node), Some(PushUrgency::Table), "it has no copy of that");
    let (push, _) = next(&bed, node, &acknowledged);
    assert!(push.duties.is_none() && push.nodes.is_none());
    assert_eq!(push.rows, [(TableId::new(2), Version::ZERO)]);
    bed.join("delphi", 40);
    let (push, _) = next(&bed, node, &acknowledged);
    assert!(push.nodes.is_some() && push.rows.iter().all(|(table, since)| *table != TABLE || *since == before));
}

#[test]
fn node_obeying_older_state_gets_everything_again() {
    let (bed, node) = bed();
    let mut acknowledged = PushProgress::default();
    let (push, promise) = next(&bed, node, &acknowledged);
    assert!(!acknowledged.take(promise, Version::new(push.version.get() - 1), false, bed.now));
    assert_eq!(next(&bed, node, &acknowledged).0, push);
}

#[test]
fn node_obeying_other_duties_gets_them_again() {
    let (mut bed, node, mut acknowledged) = all_taken();
    bed.ok(Command::CreateTable {
        name: "other".into(),
        partitioning: Partitioning::Hash { partitions: 1 },
        replication: 1,
        holds: TableContent::Data,
    });
    let (push, promise) = next(&bed, node, &acknowledged);
    assert!(push.duties.is_none());
    // Newer duties were pushed meanwhile, and their acknowledgement was lost.
    assert!(!acknowledged.take(promise, push.newest, false, bed.now));
    assert_eq!(acknowledged.due(&bed.state, node), Some(PushUrgency::Duties));
    assert!(next(&bed, node, &acknowledged).0.duties.is_some());
}

#[test]
fn node_with_gap_gets_tables_from_start() {
    let (bed, node) = bed();
    let mut acknowledged = PushProgress::default();
    let (push, promise) = next(&bed, node, &acknowledged);
    assert!(!acknowledged.take(promise, push.version, true, bed.now));
    let again = next(&bed, node, &acknowledged).0;
    assert!(again.duties.is_none() && again.rows == [(TABLE, Version::ZERO)] && again.nodes == Some(Version::ZERO));
}

#[test]
fn node_that_lost_tables_gets_them_after_newer_heartbeat() {
    let (bed, node, mut acknowledged) = all_taken();
    let holds = bed.state.table_version();
    assert!(!acknowledged.look_at_heartbeat(bed.now.plus(500), Version::ZERO), "perhaps sent before the answer");
    assert!(!acknowledged.look_at_heartbeat(bed.now.plus(5_000), holds));
    assert_eq!(acknowledged.due(&bed.state, node), None);
    assert!(acknowledged.look_at_heartbeat(bed.now.plus(5_000), Version::ZERO));
    assert!(next(&bed, node, &acknowledged).0.duties.is_some());
}

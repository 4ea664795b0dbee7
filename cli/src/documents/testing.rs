//! Nodes and clusters for tests.

use super::{Node, Status};
use archon_client::{CoordinatorRole, CoordinatorStatus, NodeGoal, NodeStatus, OpenEnum, TransportKind};

/// Returns a node that is alive and holds and leads `partitions` partitions.
pub(crate) fn node(id: u64, name: &str, partitions: u32) -> Node {
    Node {
        id,
        name: name.into(),
        address: "127.0.0.1:1".into(),
        status: NodeStatus::Alive.into(),
        status_changed_at_ms: 0,
        goal: NodeGoal::Serve.into(),
        incarnation: 1,
        copies_held: partitions,
        partitions_led: partitions,
        zone: None,
        weight: 100,
        partitions_max: None,
        bytes_stored: Some(0),
        keys_stored: Some(0),
        operations_per_second: Some(0),
        silent_for_ms: Some(0),
        via: None,
        door: None,
        disk_full: false,
        stopped: false,
        timing: None,
        serves: Vec::new(),
        maintenance_ends_at_ms: None,
        bars: Vec::new(),
    }
}

/// Returns a cluster of two alive nodes and three coordinators, the last of which cannot be reached.
pub(crate) fn status() -> Status {
    let coordinator = |id: u64, role: CoordinatorRole, entries_behind| CoordinatorStatus {
        id,
        address: format!("127.0.0.1:710{id}"),
        role: role.into(),
        learner: false,
        entries_behind,
        lack: None,
    };
    Status {
        cluster_id: "6f1e".into(),
        leader_id: Some(2),
        term: 4,
        coordinators: vec![
            coordinator(1, CoordinatorRole::Follower, Some(3)),
            coordinator(2, CoordinatorRole::Leader, Some(0)),
            coordinator(3, CoordinatorRole::Unreachable, None),
        ],
        transport: OpenEnum::Known(TransportKind::Loopback),
        table_version: 41,
        nodes_alive: 2,
        nodes_failed: 0,
        nodes_unreached: 0,
        nodes_min: 2,
        partitions_total: 9,
        partitions_online: 9,
        partitions_under_replicated: 0,
        copies_condemned: 0,
        moves_running: 0,
        reshapings_running: 0,
        reasons: vec![],
    }
}

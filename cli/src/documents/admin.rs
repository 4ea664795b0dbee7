//! Documents of the commands that show a cluster or change it.

use archon_backup::{BackupSummary, SkippedTable};
use archon_client::{
    DrainCheck, NodeCheck, NodeGoal, NodeLoss, NodeSummary, OpenEnum, Quorum, RebalanceStatus, ReplicaState,
};
use schemars::JsonSchema;
use serde::Serialize;

/// A finished backup.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub(crate) struct BackupTaken {
    /// Contents in numbers.
    #[serde(flatten)]
    pub(crate) summary: BackupSummary,
    /// Number of files reused from the earlier backup named by --since; they belong to this backup as well.
    pub(crate) files_taken_over: u32,
    /// Number of bytes in these files.
    pub(crate) bytes_taken_over: u64,
    /// Tables skipped because a restore into them has not finished; the command then exits with 10.
    pub(crate) left_out: Vec<SkippedTable>,
}

/// A node, its replicas, and the effects of possible commands.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub(crate) struct NodeDescription {
    /// The node and the effects of possible commands.
    #[serde(flatten)]
    pub(crate) check: NodeCheck,
    /// Replicas on the node.
    pub(crate) copies: Vec<HostedCopy>,
}

/// A replica on a described node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub(crate) struct HostedCopy {
    /// The table's number.
    pub(crate) table_id: u64,
    /// The table's name.
    pub(crate) table: String,
    /// The partition's number within its table.
    pub(crate) partition: u32,
    /// Number of the placement (the replica).
    pub(crate) placement_id: u64,
    /// State of the replica.
    pub(crate) state: OpenEnum<ReplicaState>,
    /// True if it leads.
    pub(crate) leads: bool,
}

/// Result of a change of the quorum.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub(crate) struct QuorumChanged {
    /// Requested change, in a sentence.
    pub(crate) change: String,
    /// False if the requested state was already in force, or the change was already running.
    pub(crate) changed: bool,
    /// The quorum: after the change with `--wait`, otherwise after its start.
    #[serde(flatten)]
    pub(crate) quorum: Quorum,
}

/// Remaining state of a quorum, and its recovery.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub(crate) struct QuorumRecovered {
    /// The cluster's UUID.
    pub(crate) cluster_id: String,
    /// Number of the new generation.
    pub(crate) generation: u64,
    /// Index of the last remaining log entry.
    pub(crate) base_index: u64,
    /// Unix time in milliseconds of the last recorded event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_event_at_ms: Option<u64>,
    /// Number of known nodes.
    pub(crate) nodes_total: usize,
    /// Number of known tables.
    pub(crate) tables_total: usize,
    /// Number of known partitions.
    pub(crate) partitions_total: usize,
    /// Directory created; absent if none was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) data_dir: Option<String>,
}

/// Contents of a snapshot file of the coordinators.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub(crate) struct QuorumSnapshotFile {
    /// The cluster's UUID.
    pub(crate) cluster_id: String,
    /// The cluster's generation.
    pub(crate) generation: u64,
    /// Index of the last log entry that it includes.
    pub(crate) last_index: u64,
    /// Unix time in milliseconds of the last recorded event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_event_at_ms: Option<u64>,
    /// Number of known nodes.
    pub(crate) nodes_total: usize,
    /// Number of known tables.
    pub(crate) tables_total: usize,
    /// Number of known partitions.
    pub(crate) partitions_total: usize,
}

/// Result of a transfer of leadership.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub(crate) struct LeadTransferred {
    /// Number of the new leader, if known when the command ended.
    pub(crate) leader_id: Option<u64>,
}

/// Effect of a command on a node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub(crate) struct NodeChanged {
    /// The node's number.
    pub(crate) node_id: u64,
    /// The node's name.
    pub(crate) node: String,
    /// Goal of the node now; absent if nothing was changed, or if it was removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) goal: Option<OpenEnum<NodeGoal>>,
    /// Number of replicas it holds; absent if it was removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) copies_held: Option<u32>,
    /// Effect of draining it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) drain: Option<DrainCheck>,
    /// Number of replicas discarded by its removal, or by a removal in a trial run; none of them was in sync.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) copies_removed: Option<u32>,
    /// Effect of declaring its data lost, or expected effect in a trial run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) loss: Option<NodeLoss>,
}

impl NodeChanged {
    /// Creates a result about this node, without changes.
    pub(crate) fn new(node: &NodeSummary) -> Self {
        let (node_id, node) = (node.id, node.name.clone());
        Self { node_id, node, goal: None, copies_held: None, drain: None, copies_removed: None, loss: None }
    }
}

/// Result of an order for a partition.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub(crate) struct PartitionOrdered {
    /// The table's name.
    pub(crate) table: String,
    /// The partition's number within its table.
    pub(crate) partition: u32,
    /// Node or participant of the order, if it concerns one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<String>,
    /// False if the requested state was already in force.
    pub(crate) changed: bool,
}

/// Result of an order for a node or participant.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub(crate) struct NodeOrdered {
    /// Name of the node or participant.
    pub(crate) node: String,
    /// Table of the order, if it concerns one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) table: Option<String>,
    /// Number of partitions that it still leads in maintenance, because no other node can take them; absent for other
    /// orders.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) partitions_still_led: Option<u32>,
    /// False if the requested state was already in force.
    pub(crate) changed: bool,
}

impl NodeOrdered {
    /// Creates the result of an order about a member, and about a table if it concerns one.
    pub(crate) fn new(node: &str, table: Option<&str>, changed: bool) -> Self {
        Self { node: node.to_owned(), table: table.map(str::to_owned), partitions_still_led: None, changed }
    }
}

/// Outcome of applying a plan.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub(crate) struct PlanOutcome {
    /// Table version that the plan was computed for.
    pub(crate) table_version: u64,
    /// Number of moves started.
    pub(crate) moves_started: u32,
    /// Progress when the command ended; only with `--wait`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) result: Option<RebalanceStatus>,
}

//! Documents of the verbs that show a cluster or change it.

use archon_backup::{BackupSummary, LeftOut};
use archon_client::{
    DrainCheck, NodeCheck, NodeGoal, NodeLoss, NodeSummary, Quorum, RebalanceStatus, ReplicaState, Word,
};
use schemars::JsonSchema;
use serde::Serialize;

/// A backup that was taken.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub(crate) struct BackupTaken {
    /// What it holds.
    #[serde(flatten)]
    pub(crate) summary: BackupSummary,
    /// How many of its files were taken over from the earlier backup that --since names; they are files of this one now.
    pub(crate) files_taken_over: u32,
    /// How many bytes these have.
    pub(crate) bytes_taken_over: u64,
    /// Tables that are not in it, since a restore into them has not ended; then it ends with 10.
    pub(crate) left_out: Vec<LeftOut>,
}

/// What a node is and holds, and what could be done to it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub(crate) struct NodeDescription {
    /// The node, and what could be done to it.
    #[serde(flatten)]
    pub(crate) check: NodeCheck,
    /// The copies on it.
    pub(crate) copies: Vec<HostedCopy>,
}

/// A copy of a partition on a described node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub(crate) struct HostedCopy {
    /// The table's number.
    pub(crate) table_id: u64,
    /// The table's name.
    pub(crate) table: String,
    /// The partition's number within its table.
    pub(crate) partition: u32,
    /// The copy's number.
    pub(crate) placement_id: u64,
    /// What it is to its partition.
    pub(crate) state: Word<ReplicaState>,
    /// Whether it leads.
    pub(crate) leads: bool,
}

/// What was asked of the quorum.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub(crate) struct QuorumChanged {
    /// What, in a sentence.
    pub(crate) change: String,
    /// Whether it was not so already, or on its way.
    pub(crate) changed: bool,
    /// The quorum: when it was done if that was waited for, else when it was begun.
    #[serde(flatten)]
    pub(crate) quorum: Quorum,
}

/// What is left of a quorum, and what was begun with it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub(crate) struct QuorumRecovered {
    /// The cluster's UUID.
    pub(crate) cluster_id: String,
    /// The generation that begins.
    pub(crate) generation: u64,
    /// The last entry of the log that is left.
    pub(crate) base_index: u64,
    /// When the last of the events in it happened. Unix time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_event_at_ms: Option<u64>,
    /// How many nodes are known.
    pub(crate) nodes_total: usize,
    /// How many tables are known.
    pub(crate) tables_total: usize,
    /// How many partitions are known.
    pub(crate) partitions_total: usize,
    /// The directory that was made; absent if none was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) data_dir: Option<String>,
}

/// What a file holds that was saved of the coordinators.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub(crate) struct QuorumSnapshotFile {
    /// The cluster's UUID.
    pub(crate) cluster_id: String,
    /// The cluster's generation.
    pub(crate) generation: u64,
    /// The last entry of the log that is in it.
    pub(crate) last_index: u64,
    /// When the last of the events in it happened. Unix time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_event_at_ms: Option<u64>,
    /// How many nodes are known.
    pub(crate) nodes_total: usize,
    /// How many tables are known.
    pub(crate) tables_total: usize,
    /// How many partitions are known.
    pub(crate) partitions_total: usize,
}

/// Who was made to lead.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub(crate) struct LeadTransferred {
    /// The coordinator that leads, if that was known at once.
    pub(crate) leader_id: Option<u64>,
}

/// What was done to a node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub(crate) struct NodeChanged {
    /// The node's number.
    pub(crate) node_id: u64,
    /// The node's name.
    pub(crate) node: String,
    /// What is wanted of it now; absent if nothing was changed, or it is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) goal: Option<Word<NodeGoal>>,
    /// Copies it holds; absent if it is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) copies_held: Option<u32>,
    /// What draining it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) drain: Option<DrainCheck>,
    /// Copies that went with it when it was removed, or would; none of them counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) copies_removed: Option<u32>,
    /// What declaring its data lost did, or would do.
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

/// The outcome of an order about a partition.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub(crate) struct PartitionOrdered {
    /// The table's name.
    pub(crate) table: String,
    /// The partition's number within its table.
    pub(crate) partition: u32,
    /// The node or participant that the order is about, if it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<String>,
    /// Whether it was not so already.
    pub(crate) changed: bool,
}

/// The outcome of an order about a node or participant.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub(crate) struct NodeOrdered {
    /// Its name.
    pub(crate) node: String,
    /// The table that the order is about, if it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) table: Option<String>,
    /// Partitions that it goes on leading in maintenance, since nobody else takes them; absent of other orders.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) partitions_still_led: Option<u32>,
    /// Whether it was not so already.
    pub(crate) changed: bool,
}

impl NodeOrdered {
    /// Creates the result of an order about a member, and about a table if it concerns one.
    pub(crate) fn new(node: &str, table: Option<&str>, changed: bool) -> Self {
        Self { node: node.to_owned(), table: table.map(str::to_owned), partitions_still_led: None, changed }
    }
}

/// The outcome of carrying out a plan.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub(crate) struct Applied {
    /// The table version that the plan was made for.
    pub(crate) table_version: u64,
    /// Moves that were begun.
    pub(crate) moves_started: u32,
    /// Where things stood at the end, with `--wait`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) result: Option<RebalanceStatus>,
}

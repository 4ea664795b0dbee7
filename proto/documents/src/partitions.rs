//! Partitions: how they are, and what operators do to them.

use crate::findings::Reason;
use crate::method::Document;
use crate::nodes::accepting;
use crate::orders::{BarSummary, default_table};
use crate::rebalance::{MoveStatus, RangeChangeStatus};
use archon_types::limits::{check_key, check_name};
use archon_types::shown_key;
use archon_types::subject::NodeName;
use archon_types::{
    Condition, ErrorDetail, KeyRange, KeyText, NodeId, NodeStatus, OpenEnum, Partition, PartitionStatus,
    PartitionTable, ReplicaState, TableContent,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A partition as operators name it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PartitionName {
    /// The table's name.
    #[serde(default = "default_table")]
    pub table: String,
    /// The partition's number within its table.
    pub partition: u32,
}

impl PartitionName {
    /// A partition of a table.
    pub fn new(table: &str, partition: u32) -> Self {
        Self { table: table.to_owned(), partition }
    }

    pub(crate) fn check(&self) -> Result<(), ErrorDetail> {
        check_name("table", &self.table)
    }

    pub(crate) fn subject(&self) -> String {
        format!("partition {}/{}", self.table, self.partition)
    }
}

/// One partition.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PartitionSummary {
    /// The table's number.
    pub table_id: u64,
    /// The table's name.
    pub table: String,
    /// The partition's number within its table.
    #[serde(rename = "partition")]
    pub id: u32,
    /// Epoch of its leadership; rises with each one.
    pub epoch: u64,
    /// Log index of the last change of its row.
    pub version: u64,
    /// Range of its keys, in a range table.
    pub range: Option<RangeSummary>,
    /// Its status.
    pub status: OpenEnum<PartitionStatus>,
    /// Number of the leading node, if there is one.
    pub leader_id: Option<u64>,
    /// Name of the leader, if there is one.
    pub leader: Option<String>,
    /// Number of the new partition in a running split, if there is one.
    pub splits_into: Option<u32>,
    /// Number of the neighbour in a running merge, if there is one.
    pub merges_with: Option<u32>,
    /// Replicas.
    pub copies: Vec<CopySummary>,
}

impl PartitionSummary {
    /// A partition's row with names beside numbers; a node that the table does not name is shown by its number.
    pub fn of(table: &PartitionTable, row: &Partition) -> Self {
        let name = |id| table.node(id).map_or_else(|| format!("node-{id}"), |node| node.name.clone());
        let leader = row.leader_placement().map(|placement| placement.node);
        let copies = row.placements.iter().map(|placement| CopySummary {
            placement_id: placement.id.get(),
            node_id: placement.node.get(),
            node: name(placement.node),
            // Of one that was forgotten nobody knows any data.
            node_status: table.node(placement.node).map_or(NodeStatus::Lost, |node| node.status).into(),
            state: placement.state.into(),
        });
        Self {
            table_id: row.id.table.get(),
            table: table.table().name.clone(),
            id: row.id.index,
            epoch: row.epoch.get(),
            version: row.version.get(),
            range: table.table().keys.is_range().then(|| (&row.range).into()),
            splits_into: row.split.as_ref().map(|split| split.right),
            merges_with: row.absorbs().or_else(|| row.yields()).map(|(_, neighbour)| neighbour.index),
            status: row.status.into(),
            leader_id: leader.map(NodeId::get),
            leader: leader.map(name),
            copies: copies.collect(),
        }
    }
}

/// A range of keys.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RangeSummary {
    /// First key; empty for no lower bound.
    pub begin: KeyText,
    /// First key after the range; null for no upper bound.
    pub end: Option<KeyText>,
}

impl From<&KeyRange> for RangeSummary {
    fn from(range: &KeyRange) -> Self {
        Self { begin: KeyText(range.begin.clone()), end: range.end.clone().map(KeyText) }
    }
}

/// One replica of a partition.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct CopySummary {
    /// Number of the placement (the replica).
    pub placement_id: u64,
    /// The node's number.
    pub node_id: u64,
    /// The node's name.
    pub node: String,
    /// State of the node, as seen by the coordinators.
    pub node_status: OpenEnum<NodeStatus>,
    /// State of the replica.
    pub state: OpenEnum<ReplicaState>,
}

/// Partition of a key.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct KeyLocation {
    /// The key.
    pub key: KeyText,
    /// Hash slot of the key, `0..16384`; null in a range table.
    pub slot: Option<u16>,
    /// Its partition.
    #[serde(flatten)]
    pub partition: PartitionSummary,
    /// Address of the leader, if there is one.
    pub leader_address: Option<String>,
    /// Address of the leader's Redis listener, if it has one.
    pub leader_redis_address: Option<String>,
}

/// All details of one partition.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PartitionDescription {
    /// The table's number.
    pub table_id: u64,
    /// The table's name.
    pub table: String,
    /// The partition's number within its table.
    #[serde(rename = "partition")]
    pub id: u32,
    /// Epoch of its leadership; rises with each one.
    pub epoch: u64,
    /// Log index of the last change of its row.
    pub version: u64,
    /// Its status.
    pub status: OpenEnum<PartitionStatus>,
    /// Number of the leading node, if there is one.
    pub leader_id: Option<u64>,
    /// Name of the leader, if there is one.
    pub leader: Option<String>,
    /// Data or leases.
    pub holds: OpenEnum<TableContent>,
    /// Number of replicas that the table requires.
    pub replication: u32,
    /// Number of in-sync replicas that writes require.
    pub min_in_sync: u32,
    /// Replicas.
    pub copies: Vec<PartitionCopy>,
    /// Range of its keys, in a range table.
    pub range: Option<RangeSummary>,
    /// The running split or merge, if there is one.
    pub reshaping: Option<RangeChangeStatus>,
    /// Reasons why it is unavailable or degraded.
    pub reasons: Vec<Reason>,
    /// The running move, if there is one.
    #[serde(rename = "move")]
    pub running_move: Option<MoveStatus>,
    /// Effect of forcing a leader.
    pub force_leader: ForceLeaderCheck,
    /// Members excluded from it, or from its table.
    pub bars: Vec<BarSummary>,
}

/// One replica of a described partition.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PartitionCopy {
    /// Number of the placement (the replica).
    pub placement_id: u64,
    /// The node's number.
    pub node_id: u64,
    /// The node's name.
    pub node: String,
    /// State of the node, as seen by the coordinators.
    pub node_status: OpenEnum<NodeStatus>,
    /// State of the replica.
    pub state: OpenEnum<ReplicaState>,
    /// True if it leads.
    pub leads: bool,
    /// Bytes stored; 0 until the size is known.
    pub bytes_stored: u64,
}

/// Effect of forcing a leader.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct ForceLeaderCheck {
    /// Obstacles, or the reason why it is unnecessary; empty if the operation is possible.
    pub obstacles: Vec<String>,
    /// Number of the node that would lead; null if the partition would start empty.
    pub leader_id: Option<u64>,
    /// Name of the node that would lead.
    pub leader: Option<String>,
    /// Completeness of the replica.
    pub condition: Option<OpenEnum<Condition>>,
    /// Nodes that are not alive and hold complete data: starting one of them would lose nothing.
    pub lose_nothing: Vec<NodeName>,
    /// Nodes that are not alive and hold a better replica: starting one of them first would lose less.
    pub lose_less: Vec<NodeName>,
    /// If no leader was found: live nodes that hold a part of the data and can be named by --node.
    pub could_be_named: Vec<NodeName>,
    /// Nodes that would delete their replicas.
    pub retired: Vec<NodeName>,
}

/// Effect of a forced leader.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ForcedLeader {
    /// The table's number.
    pub table_id: u64,
    /// The table's name.
    pub table: String,
    /// The partition's number within its table.
    pub partition: u32,
    /// Number of the node that leads; null if the partition starts empty.
    pub leader_id: Option<u64>,
    /// Name of the node that leads.
    pub leader: Option<String>,
    /// Its epoch.
    pub epoch: u64,
}

/// Describes one partition.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct DescribePartition {
    /// The partition.
    #[serde(flatten)]
    pub partition: PartitionName,
}

/// Makes one replica lead although acknowledged writes may be lost, and deletes all others.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ForceLeader {
    /// The partition.
    #[serde(flatten)]
    pub partition: PartitionName,
    /// Node of the replica that is to lead; absent: the best replica.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Accepts the loss of acknowledged writes.
    #[serde(default)]
    pub accept_data_loss: bool,
}

/// Effect of merging a partition with its right neighbour.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PartitionMerge {
    /// The table's number.
    pub table_id: u64,
    /// The table's name.
    pub table: String,
    /// Number within its table of the partition that receives the keys.
    pub partition: u32,
    /// Number of its right neighbour, which is deleted.
    pub right: u32,
    /// Key range of the partition after the merge; of a cancelled merge, its present range.
    pub range: RangeSummary,
    /// Bytes that the neighbour stores, if known.
    pub right_bytes: Option<u64>,
}

/// Effect of splitting a partition.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PartitionSplit {
    /// The table's number.
    pub table_id: u64,
    /// The table's name.
    pub table: String,
    /// The partition's number within its table.
    pub partition: u32,
    /// Number of the new partition; of a cancelled split, its planned number.
    pub right: u32,
    /// Key range that the partition keeps.
    pub left_keys: RangeSummary,
    /// Key range of the new partition; null for a cancelled split.
    pub right_keys: Option<RangeSummary>,
    /// Nodes that get a replica of the new partition.
    pub nodes: Vec<NodeName>,
}

/// Splits a partition of a range table, reports the effect, or abandons a running split.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SplitPartition {
    /// The partition.
    #[serde(flatten)]
    pub partition: PartitionName,
    /// First key of the new partition; absent: the key that halves its bytes, as found by its leader.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<KeyText>,
    /// Abandons the running split instead.
    #[serde(default)]
    pub cancel: bool,
    /// Only reports the effect.
    #[serde(default)]
    pub dry_run: bool,
}

/// The answer to a split.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SplitAnswer {
    /// The split; absent while the leader scans its rows for the split key: repeat the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<PartitionSplit>,
}

/// Merges a partition with its right neighbour, reports the effect, or abandons a running merge.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct MergePartition {
    /// The partition that gets the keys.
    #[serde(flatten)]
    pub partition: PartitionName,
    /// Abandons the running merge instead.
    #[serde(default)]
    pub cancel: bool,
    /// Only reports the effect.
    #[serde(default)]
    pub dry_run: bool,
}

impl Document for DescribePartition {
    fn check(&self) -> Result<(), ErrorDetail> {
        self.partition.check()
    }
}

impl Document for ForceLeader {
    fn check(&self) -> Result<(), ErrorDetail> {
        self.partition.check()?;
        self.node.as_ref().map_or(Ok(()), |node| check_name("node", node))
    }

    fn subject(&self) -> String {
        self.partition.subject()
    }

    fn wanted(&self) -> Option<String> {
        let copy =
            self.node.as_ref().map_or_else(|| "the best replica".to_owned(), |node| format!("the replica on {node}"));
        Some(format!("{copy}, {}", accepting(self.accept_data_loss)))
    }
}

impl Document for SplitPartition {
    fn check(&self) -> Result<(), ErrorDetail> {
        self.partition.check()?;
        self.at.as_ref().map_or(Ok(()), |key| check_key(&key.0))
    }

    fn subject(&self) -> String {
        self.partition.subject()
    }

    fn wanted(&self) -> Option<String> {
        Some(match (self.cancel, &self.at) {
            (true, _) => "cancel".to_owned(),
            (false, None) => "in the middle".to_owned(),
            (false, Some(key)) => format!("at {}", shown_key(&key.0)),
        })
    }

    fn is_trial(&self) -> bool {
        self.dry_run
    }
}

impl Document for MergePartition {
    fn check(&self) -> Result<(), ErrorDetail> {
        self.partition.check()
    }

    fn subject(&self) -> String {
        self.partition.subject()
    }

    fn wanted(&self) -> Option<String> {
        Some(if self.cancel { "cancel" } else { "with its right neighbour" }.to_owned())
    }

    fn is_trial(&self) -> bool {
        self.dry_run
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_name_the_default_table_and_are_checked() {
        let read = |text: &str| serde_json::from_str::<SplitPartition>(text).unwrap();
        let split = read(r#"{"partition": 7, "at": "m"}"#);
        assert_eq!(split.partition, PartitionName::new("default", 7));
        assert_eq!((split.check(), split.wanted().as_deref()), (Ok(()), Some("at \"m\"")));
        assert!(read(r#"{"partition": 7, "at": ""}"#).check().is_err());
        assert!(read(r#"{"partition": 7, "table": "-"}"#).check().is_err());
        let force = ForceLeader { partition: split.partition, node: Some("a b".into()), accept_data_loss: false };
        assert!(force.check().is_err());
        assert!(ForceLeader { node: None, ..force }.check().is_ok());
    }
}

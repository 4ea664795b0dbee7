//! Partitions: how they are, and what operators do to them.

use crate::key_text::KeyText;
use crate::method::Document;
use crate::nodes::accepting;
use crate::orders::{BarSummary, default_table};
use crate::rebalance::{MoveStatus, Reshaping};
use crate::status::Reason;
use archon_types::limits::{check_key, check_name};
use archon_types::shown_key;
use archon_types::subject::NodeName;
use archon_types::{
    Condition, ErrorDetail, Holds, KeyRange, NodeId, NodeStatus, Partition, PartitionStatus, PartitionTable,
    ReplicaState, Word,
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
    /// Generation of its leadership.
    pub epoch: u64,
    /// Log index of its row's last change.
    pub version: u64,
    /// In a table by ranges, the keys that it has.
    pub range: Option<RangeSummary>,
    /// Its status.
    pub status: Word<PartitionStatus>,
    /// The leading node's number, if one leads.
    pub leader_id: Option<u64>,
    /// The leading node's name, if one leads.
    pub leader: Option<String>,
    /// The number of the partition that is being split off it, if it is being split.
    pub splits_into: Option<u32>,
    /// The number of the neighbour with which it is being merged, if it is.
    pub merges_with: Option<u32>,
    /// Its copies.
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
    /// The least key in it; empty: from the first one on.
    pub begin: String,
    /// The least key beyond it, if it does not go up to the last one.
    pub end: Option<String>,
}

impl From<&KeyRange> for RangeSummary {
    fn from(range: &KeyRange) -> Self {
        let text = |key: &[u8]| String::from_utf8_lossy(key).into_owned();
        Self { begin: text(&range.begin), end: range.end.as_ref().map(|end| text(end)) }
    }
}

/// One copy of a partition.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct CopySummary {
    /// The copy's number.
    pub placement_id: u64,
    /// The node's number.
    pub node_id: u64,
    /// The node's name.
    pub node: String,
    /// The node's state, as the coordinators believe.
    pub node_status: Word<NodeStatus>,
    /// Its state in the partition.
    pub state: Word<ReplicaState>,
}

/// The place of a key.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Located {
    /// The key.
    pub key: String,
    /// Its slot, `0..16384`, where keys are hashed.
    pub slot: Option<u16>,
    /// Its partition.
    #[serde(flatten)]
    pub partition: PartitionSummary,
    /// The leading node's address, if one leads.
    pub leader_address: Option<String>,
}

/// Everything about one partition.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PartitionDescription {
    /// The table's number.
    pub table_id: u64,
    /// The table's name.
    pub table: String,
    /// The partition's number within its table.
    #[serde(rename = "partition")]
    pub id: u32,
    /// Generation of its leadership.
    pub epoch: u64,
    /// Log index of its row's last change.
    pub version: u64,
    /// Its status.
    pub status: Word<PartitionStatus>,
    /// The leading node's number, if one leads.
    pub leader_id: Option<u64>,
    /// The leading node's name, if one leads.
    pub leader: Option<String>,
    /// Data or leases.
    pub holds: Word<Holds>,
    /// Copies wanted.
    pub replication: u32,
    /// Below this number of copies that count, no new write is admitted.
    pub min_in_sync: u32,
    /// Its copies.
    pub copies: Vec<PartitionCopy>,
    /// In a table by ranges, the keys that it has.
    pub range: Option<RangeSummary>,
    /// The split or merge that it takes part in, while one is under way.
    pub reshaping: Option<Reshaping>,
    /// Reasons why it is not served, or not as it should be.
    pub reasons: Vec<Reason>,
    /// The move under way, if there is one.
    #[serde(rename = "move")]
    pub running_move: Option<MoveStatus>,
    /// The effect of forcing a leader.
    pub force_leader: ForceLeaderCheck,
    /// Members barred from it, or from its table.
    pub bars: Vec<BarSummary>,
}

/// One copy of a described partition.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PartitionCopy {
    /// The copy's number.
    pub placement_id: u64,
    /// The node's number.
    pub node_id: u64,
    /// The node's name.
    pub node: String,
    /// The node's state, as the coordinators believe.
    pub node_status: Word<NodeStatus>,
    /// Its state in the partition.
    pub state: Word<ReplicaState>,
    /// True if it leads.
    pub leads: bool,
    /// Bytes it stores, as far as is known; zero while they are not counted.
    pub bytes_stored: u64,
}

/// The effect of forcing a leader.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct ForceLeaderCheck {
    /// Obstacles, or the reason why it need not be done; empty if it can be done.
    pub obstacles: Vec<String>,
    /// The number of the node that would lead; null: the partition would begin empty.
    pub leader_id: Option<u64>,
    /// The name of the node that would lead.
    pub leader: Option<String>,
    /// Completeness of the copy.
    pub condition: Option<Word<Condition>>,
    /// Nodes of which starting one again would lose nothing.
    pub lose_nothing: Vec<NodeName>,
    /// Nodes that are not alive and hold a better copy: starting one of them first would lose less.
    pub lose_less: Vec<NodeName>,
    /// Without a leader: live nodes that hold a part of the data.
    pub could_be_named: Vec<NodeName>,
    /// Nodes that would have their copies deleted.
    pub retired: Vec<NodeName>,
}

/// The effect of a forced leader.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ForcedLeader {
    /// The table's number.
    pub table_id: u64,
    /// The table's name.
    pub table: String,
    /// The partition's number within its table.
    pub partition: u32,
    /// The number of the node that leads; null: the partition begins empty.
    pub leader_id: Option<u64>,
    /// The name of the node that leads.
    pub leader: Option<String>,
    /// Its epoch.
    pub epoch: u64,
}

/// Asks for everything about one partition.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct DescribePartition {
    /// The partition.
    #[serde(flatten)]
    pub partition: PartitionName,
}

/// Makes one copy lead although acknowledged writes may be lost, and retires all others.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ForceLeader {
    /// The partition.
    #[serde(flatten)]
    pub partition: PartitionName,
    /// The node of the copy that is to lead; absent: the best copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Accepts that acknowledged writes are lost.
    #[serde(default)]
    pub accept_data_loss: bool,
}

/// The effect of merging a partition with its right neighbour.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PartitionMerge {
    /// The table's number.
    pub table_id: u64,
    /// The table's name.
    pub table: String,
    /// The number within its table of the partition that gets the keys.
    pub partition: u32,
    /// The number of its right neighbour, which ends.
    pub right: u32,
    /// The keys that the partition has when it is done; of a cancelled merge those that it has.
    pub range: RangeSummary,
    /// Bytes that the neighbour stores, if known.
    pub right_bytes: Option<u64>,
}

/// The effect of splitting a partition.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PartitionSplit {
    /// The table's number.
    pub table_id: u64,
    /// The table's name.
    pub table: String,
    /// The partition's number within its table.
    pub partition: u32,
    /// The number of the new partition; of a cancelled split the one that it would have had.
    pub right: u32,
    /// The keys that the partition keeps.
    pub left_keys: RangeSummary,
    /// The keys that the new one gets; absent of a cancelled split.
    pub right_keys: Option<RangeSummary>,
    /// The nodes on which the new one gets copies.
    pub nodes: Vec<NodeName>,
}

/// Splits a partition of a table by ranges, reports the effect, or gives up a split under way.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SplitPartition {
    /// The partition.
    #[serde(flatten)]
    pub partition: PartitionName,
    /// The first key of the new partition; absent: the middle of its bytes, as its leader finds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<KeyText>,
    /// Gives up the split under way instead.
    #[serde(default)]
    pub cancel: bool,
    /// Only reports the effect.
    #[serde(default)]
    pub dry_run: bool,
}

/// The answer to a split.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SplitAnswer {
    /// The split; absent while the leader walks over the rows to find their middle: ask again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<PartitionSplit>,
}

/// Merges a partition with its right neighbour, reports the effect, or gives up a merge under way.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct MergePartition {
    /// The partition that gets the keys.
    #[serde(flatten)]
    pub partition: PartitionName,
    /// Gives up the merge under way instead.
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
        let copy = self.node.as_ref().map_or_else(|| "the best copy".to_owned(), |node| format!("the copy on {node}"));
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

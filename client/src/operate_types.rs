//! Documents about the administration of nodes and partitions. Their JSON names are a contract, as in `admin_types`.

use crate::admin_types::{NodeSummary, RangeSummary, Reason, TableSummary};
use crate::order_types::BarSummary;
use crate::rebalance_types::{MoveStatus, Reshaping};
use archon_proto::convert::operate::PartitionName;
use archon_proto::convert::words::enum_word;
use archon_proto::v1;
use archon_types::subject::NodeName;
use archon_types::{Condition, Holds, KeyRange, NodeStatus, PartitionStatus, ReplicaState, Word};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What draining a node would do.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct DrainCheck {
    /// Why it cannot be done; empty if it can.
    pub obstacles: Vec<String>,
    /// Leaderships that go to other nodes.
    pub leaderships_moved: u32,
    /// Copies that go to other nodes.
    pub copies_moved: u32,
    /// Who gets how many of them.
    pub gains: Vec<NodeGain>,
    /// Partitions of which two copies will stand in one zone, and do not now.
    pub zones_doubled: u32,
}

/// What dropping a table would delete.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct TableCheck {
    /// The table.
    #[serde(flatten)]
    pub table: TableSummary,
    /// Its copies on all nodes.
    pub copies_deleted: u32,
    /// Bytes of all copies, as far as the nodes said.
    pub bytes_deleted: u64,
    /// Nodes that hold copies.
    pub nodes_holding: u32,
    /// Of these, the ones that are not alive, at most 20: they delete theirs when they return.
    pub nodes_away: Vec<NodeName>,
}

/// How many copies a node would get.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct NodeGain {
    /// The node's number.
    pub node_id: u64,
    /// The node's name.
    pub node: String,
    /// How many copies.
    pub copies_gained: u32,
}

/// What removing a node would do.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct RemoveCheck {
    /// Why it cannot be done; empty if it can.
    pub obstacles: Vec<String>,
    /// Copies that would go with it; none of them counts.
    pub copies_removed: u32,
}

/// What declaring a node's data lost would do.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct LossCheck {
    /// Why it cannot be done; empty if it can.
    pub obstacles: Vec<String>,
    /// Copies that would be given up.
    #[serde(flatten)]
    pub loss: NodeLoss,
}

/// What declaring a node's data lost does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct NodeLoss {
    /// Copies that are given up, those that do not count included.
    pub copies_lost: u32,
    /// Of these, copies that counted.
    pub counting_copies_lost: u32,
    /// Partitions that lose their last copy that counts, and acknowledged writes with it.
    pub last_copies_lost: u32,
}

/// What an operator could do to a node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct NodeCheck {
    /// The node.
    #[serde(flatten)]
    pub node: NodeSummary,
    /// What draining it would do.
    pub drain: DrainCheck,
    /// What removing it would do.
    pub remove: RemoveCheck,
    /// What declaring its data lost would do.
    pub lost: LossCheck,
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
    /// Where it stands.
    pub status: Word<PartitionStatus>,
    /// The leading node's number, if one leads.
    pub leader_id: Option<u64>,
    /// The leading node's name, if one leads.
    pub leader: Option<String>,
    /// What it is a partition of.
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
    /// Why it is not served, or not as it should be.
    pub reasons: Vec<Reason>,
    /// The move under way, if there is one.
    #[serde(rename = "move")]
    pub running_move: Option<MoveStatus>,
    /// What forcing a leader would do.
    pub force_leader: ForceLeaderCheck,
    /// Who is barred from it, or from its table.
    pub bars: Vec<BarSummary>,
}

/// What merging a partition with its right neighbour does, or did.
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
    /// What the neighbour stores, in bytes, as far as is known.
    pub right_bytes: Option<u64>,
}

impl PartitionMerge {
    /// Builds the answer about the requested partition.
    pub(crate) fn new(name: PartitionName, wire: v1::MergePartitionResponse) -> Self {
        let keys = wire.keys.unwrap_or_default();
        Self {
            table_id: wire.partition.map_or(0, |partition| partition.table),
            table: name.table,
            partition: name.index,
            right: wire.right,
            range: RangeSummary::from(&KeyRange { begin: keys.begin, end: keys.end }),
            right_bytes: wire.right_bytes,
        }
    }
}

/// What splitting a partition does, or did.
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

impl PartitionSplit {
    /// Builds the answer about the requested partition.
    pub(crate) fn new(name: PartitionName, wire: v1::SplitPartitionResponse) -> Self {
        let range = |keys: v1::KeyRange| RangeSummary::from(&KeyRange { begin: keys.begin, end: keys.end });
        Self {
            table_id: wire.partition.map_or(0, |partition| partition.table),
            table: name.table,
            partition: name.index,
            right: wire.right,
            left_keys: range(wire.left_keys.unwrap_or_default()),
            right_keys: wire.right_keys.map(range),
            nodes: wire.nodes.into_iter().map(Into::into).collect(),
        }
    }
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
    /// What the coordinators believe of the node.
    pub node_status: Word<NodeStatus>,
    /// What it is to its partition.
    pub state: Word<ReplicaState>,
    /// Whether it leads.
    pub leads: bool,
    /// Bytes it stores, as far as is known; zero while they are not counted.
    pub bytes_stored: u64,
}

/// What forcing a leader would do.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct ForceLeaderCheck {
    /// Why it cannot be done, or need not; empty if it can.
    pub obstacles: Vec<String>,
    /// The number of the node that would lead; null: the partition would begin empty.
    pub leader_id: Option<u64>,
    /// The name of the node that would lead.
    pub leader: Option<String>,
    /// What its copy holds.
    pub condition: Option<Word<Condition>>,
    /// Nodes of which starting one again would lose nothing.
    pub lose_nothing: Vec<NodeName>,
    /// Nodes that are not alive and hold a better copy: starting one of them first would lose less.
    pub lose_less: Vec<NodeName>,
    /// Where none would lead: nodes that are alive and hold a part of the data.
    pub could_be_named: Vec<NodeName>,
    /// Nodes whose copies would be deleted.
    pub retired: Vec<NodeName>,
}

/// What forcing a leader did.
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

impl From<v1::DrainCheck> for DrainCheck {
    fn from(wire: v1::DrainCheck) -> Self {
        let gain = |gain: v1::NodeGain| {
            let NodeName { node_id, node } = gain.node.unwrap_or_default().into();
            NodeGain { node_id, node, copies_gained: gain.copies }
        };
        Self {
            obstacles: wire.obstacles,
            leaderships_moved: wire.leaderships,
            copies_moved: wire.copies,
            gains: wire.gains.into_iter().map(gain).collect(),
            zones_doubled: wire.zones_doubled,
        }
    }
}

impl From<v1::RemoveCheck> for RemoveCheck {
    fn from(wire: v1::RemoveCheck) -> Self {
        Self { obstacles: wire.obstacles, copies_removed: wire.copies }
    }
}

impl From<v1::LossCheck> for LossCheck {
    fn from(wire: v1::LossCheck) -> Self {
        let (copies_lost, counting_copies_lost, last_copies_lost) = (wire.copies, wire.counting, wire.last_copies);
        Self { obstacles: wire.obstacles, loss: NodeLoss { copies_lost, counting_copies_lost, last_copies_lost } }
    }
}

impl From<v1::ForceLeaderCheck> for ForceLeaderCheck {
    fn from(wire: v1::ForceLeaderCheck) -> Self {
        let names = |nodes: Vec<v1::NodeName>| nodes.into_iter().map(Into::into).collect();
        let (leader_id, leader) = number_and_name(wire.leader);
        Self {
            obstacles: wire.obstacles,
            leader_id,
            leader,
            condition: wire.condition.map(|condition| Word::read(&condition)),
            lose_nothing: names(wire.lose_nothing),
            lose_less: names(wire.lose_less),
            could_be_named: names(wire.could_be_named),
            retired: names(wire.retired),
        }
    }
}

impl ForcedLeader {
    /// Builds the answer about the requested partition.
    pub(crate) fn new(name: PartitionName, wire: v1::ForceLeaderResponse) -> Self {
        let (leader_id, leader) = number_and_name(wire.leader);
        let table_id = wire.partition.map_or(0, |partition| partition.table);
        Self { table_id, table: name.table, partition: name.index, leader_id, leader, epoch: wire.epoch }
    }
}

fn number_and_name(node: Option<v1::NodeName>) -> (Option<u64>, Option<String>) {
    node.map(NodeName::from).map(|node| (node.node_id, node.node)).unzip()
}

impl From<v1::Copy> for PartitionCopy {
    fn from(wire: v1::Copy) -> Self {
        let NodeName { node_id, node } = wire.node.unwrap_or_default().into();
        Self {
            placement_id: wire.placement,
            node_id,
            node,
            node_status: enum_word::<v1::NodeStatus, _>(wire.node_status),
            state: enum_word::<v1::ReplicaState, _>(wire.state),
            leads: wire.leads,
            bytes_stored: wire.bytes,
        }
    }
}

//! What the administration of nodes and partitions shows. As in `admin_types`, fields are only ever added.

use crate::admin_types::{NodeSummary, Reason, TableSummary};
use crate::rebalance_types::Migration;
use archon_proto::v1;
use archon_types::ReplicaState;
use serde::{Deserialize, Serialize};

/// What draining a node would come to.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct DrainCheck {
    /// Why it cannot be done; empty if it can.
    pub obstacles: Vec<String>,
    /// Leaderships that go to other nodes.
    pub leaderships: u32,
    /// Copies that go to other nodes.
    pub placements: u32,
    /// Who gets how many of them.
    pub gains: Vec<NodeGain>,
    /// Partitions of which two copies will stand in one zone, and do not now.
    pub zones_doubled: u32,
}

/// What dropping a table would delete.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TableCheck {
    /// The table.
    pub table: TableSummary,
    /// Its copies on all nodes.
    pub copies: u32,
    /// Bytes of all copies, as far as the nodes said.
    pub bytes: u64,
    /// Nodes that hold copies.
    pub nodes: u32,
    /// Of these, the ones that are not alive, at most 20: they delete theirs when they return.
    pub nodes_away: Vec<String>,
}

/// How many copies a node would get.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NodeGain {
    /// The node's name.
    pub node: String,
    /// How many.
    pub placements: u32,
}

/// What declaring a node's data lost would come to.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct LossCheck {
    /// Why it cannot be done; empty if it can.
    pub obstacles: Vec<String>,
    /// Copies that would be given up, those that do not count now included.
    pub placements: u32,
    /// Of these, copies that count now and would count no more.
    pub counting: u32,
    /// Partitions that would lose their last copy that counts, and acknowledged writes with it.
    pub last_copies: u32,
}

/// What an operator could do to a node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NodeCheck {
    /// The node.
    pub node: NodeSummary,
    /// What draining it would come to.
    pub drain: DrainCheck,
    /// Why it cannot be removed; empty if it can.
    pub remove_obstacles: Vec<String>,
    /// Copies that would go with it if it were removed; none of them counts.
    pub remove_placements: u32,
    /// What declaring its data lost would come to.
    pub loss: LossCheck,
}

/// Everything about one partition.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PartitionDescription {
    /// The table's name.
    pub table: String,
    /// Its number.
    pub id: u16,
    /// Generation of its leadership.
    pub epoch: u64,
    /// Log index of its row's last change.
    pub version: u64,
    /// `Unassigned`, `Assigned`, `Online` or `Unavailable`.
    pub status: String,
    /// The leading node's name, if one leads.
    pub leader: Option<String>,
    /// Copies wanted.
    pub replication: u32,
    /// Below this number of copies that count, no new write is admitted.
    pub min_in_sync: u32,
    /// Its copies.
    pub copies: Vec<Copy>,
    /// Why it is not served, or not as it should be.
    pub reasons: Vec<Reason>,
    /// The move under way, if there is one.
    pub migration: Option<Migration>,
    /// What forcing a leader would come to.
    pub forced: ForcedCheck,
}

/// One copy of a described partition.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Copy {
    /// The placement's number.
    pub placement: u64,
    /// The node's name.
    pub node: String,
    /// The node's status: `Live`, `Failed` or `Lost`.
    pub node_status: String,
    /// `Load`, `Live` or `Unload`.
    pub state: String,
    /// Whether it leads.
    pub leads: bool,
    /// Bytes stored, as far as is known.
    pub bytes: u64,
}

/// What declaring a node's data lost came to.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NodeLoss {
    /// Copies that were given up, those that did not count included.
    pub placements: u32,
    /// Of these, copies that counted.
    pub counting: u32,
    /// Partitions that lost their last copy that counted.
    pub last_copies: u32,
}

/// What forcing a leader would come to.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ForcedCheck {
    /// Why it cannot be done, or need not; empty if it can.
    pub obstacles: Vec<String>,
    /// The node that would lead; `None`: the partition would begin empty.
    pub leader: Option<String>,
    /// What its copy holds: `Whole` (everything up to the moment it ceased to count), `Older` (an unknown earlier state),
    /// `Partial` (it never counted) or `Gone` (damaged, or emptied to be copied anew).
    pub condition: Option<String>,
    /// Nodes of which starting one again would lose nothing.
    pub lose_nothing: Vec<String>,
    /// Nodes that are not alive and hold a better copy: starting one of them first would lose less.
    pub lose_less: Vec<String>,
    /// Where none would lead: nodes that are alive and hold a part of the data.
    pub could_be_named: Vec<String>,
    /// Nodes whose copies would be deleted.
    pub retired: Vec<String>,
}

/// What forcing a leader came to.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Forced {
    /// The node that leads; `None`: the partition begins empty.
    pub leader: Option<String>,
    /// Its epoch.
    pub epoch: u64,
}

fn replica_state(state: i32) -> String {
    let known = v1::ReplicaState::try_from(state).ok().and_then(|wire| ReplicaState::try_from(wire).ok());
    known.map_or_else(|| format!("Unknown({state})"), |state| state.to_string())
}

impl From<v1::DrainCheck> for DrainCheck {
    fn from(wire: v1::DrainCheck) -> Self {
        let gains = wire.gains.into_iter().map(|gain| NodeGain { node: gain.node, placements: gain.placements });
        Self {
            obstacles: wire.obstacles,
            leaderships: wire.leaderships,
            placements: wire.placements,
            gains: gains.collect(),
            zones_doubled: wire.zones_doubled,
        }
    }
}

impl From<v1::LossCheck> for LossCheck {
    fn from(wire: v1::LossCheck) -> Self {
        Self {
            obstacles: wire.obstacles,
            placements: wire.placements,
            counting: wire.counting,
            last_copies: wire.last_copies,
        }
    }
}

impl From<v1::ForcedCheck> for ForcedCheck {
    fn from(wire: v1::ForcedCheck) -> Self {
        Self {
            obstacles: wire.obstacles,
            leader: wire.leader,
            condition: wire.condition,
            lose_nothing: wire.lose_nothing,
            lose_less: wire.lose_less,
            could_be_named: wire.could_be_named,
            retired: wire.retired,
        }
    }
}

impl From<v1::Copy> for Copy {
    fn from(wire: v1::Copy) -> Self {
        Self {
            placement: wire.placement,
            node: wire.node,
            node_status: wire.node_status,
            state: replica_state(wire.state),
            leads: wire.leads,
            bytes: wire.bytes,
        }
    }
}

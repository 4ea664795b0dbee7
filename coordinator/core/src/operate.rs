//! What an operator may do to nodes and partitions, judged before anything is committed: either with what effect, or
//! why not. Pure; the commands that follow are in the table at the head of [`crate::command`].

use crate::command::{Command, Forced};
use crate::liveness::Liveness;
use crate::repair;
use crate::state::{ClusterState, NodeRow};
use archon_types::{
    ErrorDetail, ErrorKind, Millis, NodeGoal, NodeId, NodeStatus, Partition, PartitionId, PartitionStatus, PlacementId,
    ReplicaState,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Most partitions that an obstacle names.
const NAMED_MAX: usize = 5;

/// Why an operator's wish cannot be carried out.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
#[allow(missing_docs)] // The messages are the documentation of the fields.
pub enum Obstacle {
    /// No such node.
    #[error("there is no node {node}")]
    NoSuchNode { node: NodeId },
    /// No such partition.
    #[error("there is no partition {partition}")]
    NoSuchPartition { partition: PartitionId },
    /// Fewer nodes would be left than a table has copies of each partition.
    #[error(
        "table {table:?} wants {need} copies of each partition, and without {node} only {have} nodes take copies; add a \
         node, or uncordon one"
    )]
    TooFewNodes { table: String, node: String, have: u64, need: u64 },
    /// The nodes left are full.
    #[error("{placements} copies have nowhere to go: the other nodes are at their limits, or hold a copy already")]
    NoRoom { placements: u32 },
    /// Nobody can copy from a node that is not alive.
    #[error("{node} is not alive and holds the only copy of {partitions} partitions ({named}); start it first")]
    OnlyCopies { node: String, partitions: u32, named: String },
    /// The node must have stopped.
    #[error("{node} is alive; {remedy}")]
    Alive { node: String, remedy: &'static str },
    /// It holds what counts.
    #[error("{node} holds copies of {partitions} partitions that count ({named}); drain it first, or declare it lost")]
    HoldsCopies { node: String, partitions: u32, named: String },
    /// It holds the last traces of partitions that lost everything else.
    #[error("{node} holds the last trace of {partitions} partitions ({named}); force a leader for them first")]
    LastTraces { node: String, partitions: u32, named: String },
    /// Nothing is lost.
    #[error("partition {partition} was never assigned: there is nothing to lose")]
    NeverAssigned { partition: PartitionId },
    /// Somebody can lead without any loss.
    #[error("nothing needs to be lost: {node} is alive and holds a copy of partition {partition} that counts")]
    StillCounts { partition: PartitionId, node: String },
    /// The former leader may still serve.
    #[error("the lease of the former leader of partition {partition}, {node}, may still run; try again in a moment")]
    LeaseRuns { partition: PartitionId, node: String },
    /// The node named for leader holds nothing of it.
    #[error("{node} cannot lead partition {partition}: {why}")]
    CannotLead { partition: PartitionId, node: String, why: &'static str },
}

/// Several obstacles as one error, for an answer. `NotFound` if there is no such node or partition, `Unavailable` (retryable)
/// if only time is missing, `Refused` otherwise.
pub fn refusal(obstacles: &[Obstacle]) -> ErrorDetail {
    let kind = match obstacles.first() {
        Some(Obstacle::NoSuchNode { .. } | Obstacle::NoSuchPartition { .. }) => ErrorKind::NotFound,
        Some(Obstacle::LeaseRuns { .. }) => ErrorKind::Unavailable,
        _ => ErrorKind::Refused,
    };
    let reasons: Vec<String> = obstacles.iter().map(ToString::to_string).collect();
    ErrorDetail::new(kind, reasons.join("; "))
}

/// What draining a node comes to, as far as can be told beforehand.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DrainPlan {
    /// Leaderships that go to other nodes.
    pub leaderships: u32,
    /// Copies that go to other nodes.
    pub placements: u32,
    /// How many of them each of the other nodes gets.
    pub gains: BTreeMap<NodeId, u32>,
    /// Partitions of which two copies will stand in one zone, and do not now. Zones are a preference, so this does not
    /// stand in the way.
    pub zones_doubled: u32,
    /// What begins it.
    pub command: Command,
}

/// Whether a node can be emptied, and where its copies would go.
///
/// # Errors
/// Everything that stands in the way, at once.
pub fn check_drain(state: &ClusterState, node: NodeId) -> Result<DrainPlan, Vec<Obstacle>> {
    let Some(own) = state.node(node) else { return Err(vec![Obstacle::NoSuchNode { node }]) };
    let mut obstacles = Vec::new();
    let takers: Vec<&NodeRow> =
        state.nodes.values().filter(|row| row.node.id != node && row.takes_placements()).collect();
    let held: Vec<&Partition> = rows_with(state, node, |state| state != ReplicaState::Unload);
    for table in state.tables.values().filter(|table| held.iter().any(|row| row.id.table == table.id)) {
        // Cordoned nodes keep their copies, so they count for what they hold.
        let short = held.iter().filter(|row| row.id.table == table.id).any(|row| {
            let stays =
                row.placements.iter().filter(|placement| placement.node != node && stays(state, placement.node));
            let free = takers.iter().filter(|taker| row.placement_on(taker.node.id).is_none()).count();
            stays.count() + free < usize::from(table.replication)
        });
        if short {
            let (have, need) = (takers.len() as u64, u64::from(table.replication));
            let (table, node) = (table.name.clone(), own.node.name.clone());
            obstacles.push(Obstacle::TooFewNodes { table, node, have, need });
        }
    }
    if own.node.status != NodeStatus::Live {
        let only: Vec<&Partition> =
            held.iter().copied().filter(|row| row.live().count() > 0 && row.live().all(|p| p.node == node)).collect();
        if !only.is_empty() {
            let (partitions, named) = names(&only);
            obstacles.push(Obstacle::OnlyCopies { node: own.node.name.clone(), partitions, named });
        }
    }
    if !obstacles.is_empty() {
        return Err(obstacles);
    }
    let mut gains: BTreeMap<NodeId, u32> = BTreeMap::new();
    let (mut nowhere, mut zones_doubled) = (0, 0);
    for row in &held {
        let counts = |id: NodeId| state.partitions.held_on(id) + gains.get(&id).copied().unwrap_or(0);
        let excluded = |id: NodeId| id == node;
        match repair::target(state, row, &takers, counts, excluded) {
            Some(found) => {
                *gains.entry(found.node).or_default() += 1;
                zones_doubled += u32::from(found.zone_doubled);
            }
            None => nowhere += 1,
        }
    }
    if nowhere > 0 {
        return Err(vec![Obstacle::NoRoom { placements: nowhere }]);
    }
    Ok(DrainPlan {
        leaderships: state.partitions.leaders_on(node),
        placements: u32::try_from(held.len()).unwrap_or(u32::MAX),
        gains,
        zones_doubled,
        command: Command::SetNode { node, goal: NodeGoal::Drain, if_nodes: Some(state.nodes_version) },
    })
}

/// What declaring a node's data lost comes to.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LossPlan {
    /// Copies that will count no more.
    pub placements: u32,
    /// Partitions of which no copy that counts will be left: acknowledged writes are lost with them.
    pub last_copies: Vec<PartitionId>,
    /// What does it.
    pub command: Command,
}

/// Whether a node's data can be declared lost, and what is lost with it.
///
/// # Errors
/// Why not.
pub fn check_lost(state: &ClusterState, node: NodeId) -> Result<LossPlan, Vec<Obstacle>> {
    let Some(own) = state.node(node) else { return Err(vec![Obstacle::NoSuchNode { node }]) };
    if own.node.status == NodeStatus::Live {
        let remedy = "stop it, or wait until it counts as failed, before declaring its data lost";
        return Err(vec![Obstacle::Alive { node: own.node.name.clone(), remedy }]);
    }
    let held = rows_with(state, node, |state| state == ReplicaState::Live);
    let last = held.iter().filter(|row| row.live().count() == 1).map(|row| row.id);
    Ok(LossPlan {
        placements: u32::try_from(held.len()).unwrap_or(u32::MAX),
        last_copies: last.collect(),
        command: Command::NodeLost { node, if_version: own.node.version },
    })
}

/// The command that forgets a node, if nothing that counts goes with it.
///
/// # Errors
/// Why not.
pub fn check_remove(state: &ClusterState, node: NodeId) -> Result<Command, Vec<Obstacle>> {
    let Some(own) = state.node(node) else { return Err(vec![Obstacle::NoSuchNode { node }]) };
    let mut obstacles = Vec::new();
    let name = || own.node.name.clone();
    let held = rows_with(state, node, |state| state == ReplicaState::Live);
    if !held.is_empty() {
        let (partitions, named) = names(&held);
        obstacles.push(Obstacle::HoldsCopies { node: name(), partitions, named });
    }
    let mut traces = rows_with(state, node, |state| state == ReplicaState::Load);
    traces.retain(|row| row.live().next().is_none());
    if !traces.is_empty() {
        let (partitions, named) = names(&traces);
        obstacles.push(Obstacle::LastTraces { node: name(), partitions, named });
    }
    if own.node.status == NodeStatus::Live {
        let remedy = if held.is_empty() { "stop it before removing it" } else { "drain it and stop it first" };
        obstacles.push(Obstacle::Alive { node: name(), remedy });
    }
    if obstacles.is_empty() { Ok(Command::RemoveNode { node, if_version: own.node.version }) } else { Err(obstacles) }
}

/// What forcing a leader comes to.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ForcedElection {
    /// Who leads then; `None`: the partition begins empty.
    pub leader: Option<NodeId>,
    /// Whether that copy counted once, so that it holds everything up to the moment it ceased to.
    pub counted_once: bool,
    /// Nodes that are not alive and hold copies that count: starting one of them again would lose nothing.
    pub would_lose_nothing: Vec<NodeId>,
    /// Nodes whose copies are to be deleted.
    pub retired: Vec<NodeId>,
    /// What does it.
    pub command: Command,
}

/// Whether an operator can accept the loss of a partition's latest writes, and who would lead it: the copy on `wanted`, or
/// else the one that ceased to count last; the partition begins empty when no copy is on a node that is alive.
///
/// # Errors
/// Why not.
pub fn check_loss(
    state: &ClusterState,
    liveness: &Liveness,
    now: Millis,
    partition: PartitionId,
    wanted: Option<NodeId>,
) -> Result<ForcedElection, Vec<Obstacle>> {
    let Some(row) = state.partitions.get(partition) else { return Err(vec![Obstacle::NoSuchPartition { partition }]) };
    if row.status == PartitionStatus::Unassigned {
        return Err(vec![Obstacle::NeverAssigned { partition }]);
    }
    if let Some(live) = row.live().find(|live| state.is_live(live.node)) {
        return Err(vec![Obstacle::StillCounts { partition, node: state.node_name(live.node) }]);
    }
    let over = |former: &&crate::formers::Former| liveness.former_over_at(state, former) <= now;
    if let Some(former) = state.formers.of_partition(partition).find(|former| !over(former)) {
        return Err(vec![Obstacle::LeaseRuns { partition, node: state.node_name(former.node) }]);
    }
    let chosen = match wanted {
        Some(node) => {
            let cannot = |why| vec![Obstacle::CannotLead { partition, node: state.node_name(node), why }];
            let placement = row.placement_on(node).filter(|placement| placement.state != ReplicaState::Unload);
            let placement = placement.ok_or_else(|| cannot("it holds no copy of it"))?;
            if !state.is_active(node) {
                return Err(cannot("it is not alive; start it first"));
            }
            Some(*placement)
        }
        // A copy that never counted holds an unknown part of the data: it leads only if it is named.
        None => row
            .placements
            .iter()
            .filter(|placement| placement.state == ReplicaState::Load && state.is_active(placement.node))
            .filter(|placement| state.left.contains_key(&placement.id))
            .max_by_key(|placement| (state.left.get(&placement.id), placement.id))
            .copied(),
    };
    let outcome = match chosen {
        Some(placement) => {
            Forced::Lead { placement: placement.id, incarnation: state.incarnation(placement.node).unwrap_or_default() }
        }
        None => Forced::Empty,
    };
    let kept = chosen.map(|placement: archon_types::Placement| placement.id);
    let others = row.placements.iter().filter(|placement| Some(placement.id) != kept);
    let retired = others.filter(|placement| placement.state != ReplicaState::Unload).map(|placement| placement.node);
    Ok(ForcedElection {
        leader: chosen.map(|placement| placement.node),
        counted_once: kept.is_some_and(|id: PlacementId| state.left.contains_key(&id)),
        would_lose_nothing: row.live().map(|live| live.node).collect(),
        retired: retired.collect(),
        command: Command::AcceptLoss { partition, if_version: row.version, outcome },
    })
}

/// Whether a copy on this node may stay there.
fn stays(state: &ClusterState, node: NodeId) -> bool {
    state.node(node).is_some_and(|row| row.node.status != NodeStatus::Lost && row.node.goal != NodeGoal::Drain)
}

fn rows_with(state: &ClusterState, node: NodeId, wanted: impl Fn(ReplicaState) -> bool) -> Vec<&Partition> {
    state.partitions.on_node(node).filter(|row| row.placement_on(node).is_some_and(|p| wanted(p.state))).collect()
}

fn names(rows: &[&Partition]) -> (u32, String) {
    let mut named: Vec<String> = rows.iter().take(NAMED_MAX).map(|row| row.id.to_string()).collect();
    if rows.len() > NAMED_MAX {
        named.push("…".to_owned());
    }
    (u32::try_from(rows.len()).unwrap_or(u32::MAX), named.join(", "))
}

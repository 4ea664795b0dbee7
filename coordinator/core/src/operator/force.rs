//! Checks of forced elections of an out-of-sync copy, the only remedy after the loss of the last in-sync one.

use crate::command::{Command, LossOutcome};
use crate::liveness::Liveness;
use crate::operator::obstacle::Obstacle;
use crate::placement::out_of_sync::{condition, delete_not_issued, rank};
use crate::state::ClusterState;
use crate::state::former_leaders::FormerLeader;
use crate::state::out_of_sync_copy::Condition;
use archon_types::{Millis, NodeId, Partition, PartitionId, PartitionStatus, Placement, ReplicaState, Version};
use serde::{Deserialize, Serialize};

/// Effect of forcing a leader.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ForcedElection {
    /// The new leader; `None`: the partition begins empty.
    pub leader: Option<NodeId>,
    /// Data that its copy may still hold.
    pub condition: Option<Condition>,
    /// Nodes that are not alive and hold in-sync copies: starting one of them again would lose nothing.
    pub would_lose_nothing: Vec<NodeId>,
    /// Nodes that are not alive and hold copies better than the new leader's: starting one of them first would lose
    /// less.
    pub would_lose_less: Vec<NodeId>,
    /// If none would lead: alive nodes that hold a part or remains of the data. The operator can name one of them.
    pub could_be_named: Vec<NodeId>,
    /// Nodes with copies to be deleted.
    pub retired: Vec<NodeId>,
    /// The command.
    pub command: Command,
}

/// Checks that an operator can accept the loss of a partition's latest writes, and chooses the new leader: the copy on
/// `wanted`, or else the best one on a node that is alive. Whole copies come first, of these the last one that left
/// sync; then those of an older directory. A copy that was never in sync, or of which no whole data is left, leads only
/// if it is named, and no copy can be named past a better one on a node that is alive: that one would be deleted.
/// Without any copy the partition begins empty.
///
/// # Errors
/// The obstacles.
pub fn check_force_leader(
    state: &ClusterState,
    liveness: &Liveness,
    now: Millis,
    partition: PartitionId,
    wanted: Option<NodeId>,
) -> Result<ForcedElection, Vec<Obstacle>> {
    let name = || state.partition_name(partition);
    let Some(row) = state.partitions.get(partition) else {
        return Err(vec![Obstacle::NoSuchPartition { partition: name() }]);
    };
    if state.is_lease(partition.table) {
        return Err(vec![Obstacle::IsLease { partition: name() }]);
    }
    if row.status == PartitionStatus::Unassigned {
        return Err(vec![Obstacle::NeverAssigned { partition: name() }]);
    }
    if let Some(live) = row.live().find(|live| state.is_alive(live.node)) {
        return Err(vec![Obstacle::StillCounts { partition: name(), node: state.node_name(live.node) }]);
    }
    let over = |former: &&FormerLeader| liveness.former_over_at(state, former) <= now;
    if let Some(former) = state.former_leaders.of_partition(partition).find(|former| !over(former)) {
        return Err(vec![Obstacle::LeaseRuns { partition: name(), node: state.node_name(former.node) }]);
    }
    let best = kept(state, row)
        .filter(|copy| state.is_active(copy.node))
        .max_by_key(|copy| (rank(state, copy), copy.id))
        .filter(|copy| condition(state, copy) >= Condition::Older);
    let chosen = match wanted {
        Some(node) => Some(named(state, row, node, best)?),
        None => best,
    };
    let outcome = match chosen {
        Some(copy) => {
            LossOutcome::Lead { placement: copy.id, incarnation: state.incarnation(copy.node).unwrap_or_default() }
        }
        None => LossOutcome::Empty,
    };
    // Any copy that was whole once is better than an empty partition.
    let floor = chosen.map_or((Condition::Partial, Version::new(u64::MAX)), |copy| rank(state, copy));
    let better = kept(state, row).filter(|copy| !state.is_active(copy.node) && rank(state, copy) > floor);
    let parts = kept(state, row).filter(|copy| chosen.is_none() && state.is_active(copy.node));
    let others = row.placements.iter().filter(|copy| Some(copy.id) != chosen.map(|chosen| chosen.id));
    Ok(ForcedElection {
        leader: chosen.map(|copy| copy.node),
        condition: chosen.map(|copy| condition(state, copy)),
        would_lose_nothing: row.live().map(|live| live.node).collect(),
        would_lose_less: better.map(|copy| copy.node).collect(),
        could_be_named: parts.map(|copy| copy.node).collect(),
        retired: others.filter(|copy| copy.state != ReplicaState::Unload).map(|copy| copy.node).collect(),
        command: Command::AcceptLoss { partition, if_version: row.version, outcome },
    })
}

/// Returns the out-of-sync copies without an order to delete them.
fn kept<'a>(state: &'a ClusterState, row: &'a Partition) -> impl Iterator<Item = &'a Placement> {
    row.placements.iter().filter(|copy| copy.state == ReplicaState::Load || delete_not_issued(state, copy))
}

/// Returns the copy on the node that an operator named.
fn named<'a>(
    state: &ClusterState,
    row: &'a Partition,
    node: NodeId,
    best: Option<&Placement>,
) -> Result<&'a Placement, Vec<Obstacle>> {
    let partition = || state.partition_name(row.id);
    let cannot = |why| vec![Obstacle::CannotLead { partition: partition(), node: state.node_name(node), why }];
    let copy =
        row.placement_on(node).filter(|copy| copy.state != ReplicaState::Unload || delete_not_issued(state, copy));
    let copy = copy.ok_or_else(|| cannot("it holds no replica of it"))?;
    if !state.is_active(node) {
        return Err(cannot("it is not alive; start it first"));
    }
    match best.filter(|best| rank(state, best) > rank(state, copy)) {
        Some(best) => {
            let (node, better) = (state.node_name(node), state.node_name(best.node));
            Err(vec![Obstacle::BetterCopy { partition: partition(), node, better }])
        }
        None => Ok(copy),
    }
}

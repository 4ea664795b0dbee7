//! Keeping a lease table even: which partitions should change their owner, and to whom.

use super::count_on;
use crate::node_row::NodeRow;
use crate::score::{Need, Share, quotas};
use crate::state::ClusterState;
use archon_types::{NodeGoal, NodeId, Partition, PartitionId, PartitionStatus, Placement, Table};
use std::collections::{BTreeMap, BTreeSet};

/// Most partitions of one table that change their owner at once.
const MOVES_MAX: usize = 64;

/// The moves to begin now, fewest that bring every participant to floor or ceiling of its share by weight, within its limit; what
/// draining participants own goes first. One that is cordoned keeps what it has. As long as participants come and go (not
/// `settled`) only draining ones give anything away: each newcomer for itself would make partitions move twice.
pub(crate) fn evening_out(
    state: &ClusterState,
    table: &Table,
    settled: bool,
    excluded: impl Fn(NodeId) -> bool,
    avoided: impl Fn(NodeId, PartitionId) -> bool,
) -> Vec<(PartitionId, NodeId)> {
    let under_way = state.partitions.with_copies_above(table.id, 1).count();
    let most = MOVES_MAX.saturating_sub(under_way);
    let serving: Vec<&NodeRow> = state.participants.serving(&table.name).filter(|row| row.is_active()).collect();
    let draining = serving.iter().any(|row| row.node.goal == NodeGoal::Drain && owns_any(state, table, row));
    if most == 0 || !(settled || draining) {
        return Vec::new();
    }
    // What each has, moves that are under way done.
    let mut heading: BTreeMap<NodeId, Vec<&Partition>> = BTreeMap::new();
    for row in serving.iter().flat_map(|member| state.partitions.on_node(member.node.id)) {
        if let Some(last) = row.placements.last().filter(|_| row.id.table == table.id) {
            heading.entry(last.node).or_default().push(row);
        }
    }
    for rows in heading.values_mut() {
        rows.sort_by_key(|row| row.id);
        rows.dedup_by_key(|row| row.id);
    }
    let has = |node: NodeId| heading.get(&node).map_or(0, |rows| u32::try_from(rows.len()).unwrap_or(u32::MAX));
    let takes = |row: &&&NodeRow| row.takes_placements() && !excluded(row.node.id);
    let eligible: Vec<&NodeRow> = serving.iter().filter(takes).copied().collect();
    let kept: u64 =
        serving.iter().filter(|row| row.node.goal == NodeGoal::Cordon).map(|row| u64::from(has(row.node.id))).sum();
    let shares = eligible.iter().map(|row| Share {
        weight: row.node.weight.max(1),
        limit: row.node.partitions_max.unwrap_or(u32::MAX).min(table.partitions),
        has: has(row.node.id),
    });
    let shares: Vec<Share> = shares.collect();
    let quota = quotas(u64::from(table.partitions).saturating_sub(kept), &shares);
    let mut receivers: BTreeSet<(Need, NodeId, u32)> = BTreeSet::new();
    let mut leaving: Vec<&Partition> = Vec::new();
    for row in serving.iter().filter(|row| row.node.goal == NodeGoal::Drain) {
        leaving.extend(heading.get(&row.node.id).into_iter().flatten().filter(|row| can_move(row)));
    }
    for (slot, (row, (share, quota))) in eligible.iter().zip(shares.iter().zip(&quota)).enumerate() {
        let node = row.node.id;
        if share.has < *quota {
            receivers.insert((Need { count: share.has, weight: share.weight, slot }, node, *quota));
        } else if settled {
            let above = usize::try_from(share.has - quota).unwrap_or(usize::MAX);
            leaving.extend(heading.get(&node).into_iter().flatten().filter(|row| can_move(row)).take(above));
        }
    }
    let mut moves = Vec::new();
    for row in leaving {
        if moves.len() >= most {
            break;
        }
        let able = |node: NodeId| !avoided(node, row.id) && row.placement_on(node).is_none();
        let Some(receiver) = receivers.iter().find(|(_, node, _)| able(*node)).copied() else { continue };
        receivers.remove(&receiver);
        let (need, node, quota) = receiver;
        let need = Need { count: need.count + 1, ..need };
        if need.count < quota {
            receivers.insert((need, node, quota));
        }
        moves.push((row.id, node));
    }
    moves
}

fn owns_any(state: &ClusterState, table: &Table, member: &NodeRow) -> bool {
    count_on(state, table, member.node.id) > 0
}

/// Whether the partition is served by its one owner, so that a move of it may begin.
fn can_move(row: &Partition) -> bool {
    let alone = |placements: &[Placement]| matches!(placements, [only] if row.leader == Some(only.id));
    row.status == PartitionStatus::Online && alone(&row.placements)
}

//! Balancing of a lease table: the partitions that should change their owner, and the new owners.

use crate::liveness::Liveness;
use crate::placement::score::{Need, Share, quotas};
use crate::state::ClusterState;
use crate::state::node_row::NodeRow;
use archon_types::{NodeGoal, NodeId, Partition, PartitionId, PartitionStatus, Placement, Table};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of partitions of one table that change their owner at once.
const MOVES_MAX: usize = 64;

/// Returns the moves to begin now: the fewest that bring every participant to floor or ceiling of its share by weight,
/// within its limit. Partitions of draining or barred participants go first; a cordoned one keeps its own. While
/// participants come and go (not `settled`), only partitions that must leave move: balancing for each newcomer would
/// move partitions twice.
pub(crate) fn lease_moves(
    state: &ClusterState,
    table: &Table,
    settled: bool,
    liveness: &Liveness,
) -> Vec<(PartitionId, NodeId)> {
    let under_way = state.partitions.with_copies_above(table.id, 1).count();
    let most = MOVES_MAX.saturating_sub(under_way);
    let serving: Vec<&NodeRow> = state.participants.serving(&table.name).filter(|row| row.is_active()).collect();
    let gives_up = |row: &NodeRow| row.node.goal.gives_up_leaderships();
    let must_leave = |row: &&&NodeRow| gives_up(row) || state.bars_any(row.node.id);
    let must = serving.iter().filter(must_leave).any(|row| state.partitions.count_in(table.id, row.node.id) > 0);
    if most == 0 || !(settled || must) {
        return Vec::new();
    }
    let mut heading = heading(state, table, &serving);
    let mut moves = barred_moves(state, table, liveness, &serving, &mut heading);
    let has = |node: NodeId| heading.get(&node).map_or(0, |rows| u32::try_from(rows.len()).unwrap_or(u32::MAX));
    let eligible: Vec<&NodeRow> = serving.iter().copied().filter(|row| takes(state, table, liveness, row)).collect();
    let kept: u64 =
        serving.iter().filter(|row| row.node.goal == NodeGoal::Cordon).map(|row| u64::from(has(row.node.id))).sum();
    let count = state.partitions.count_of(table.id);
    let shares = eligible.iter().map(|row| Share {
        weight: state.weight_in(table.id, row),
        limit: limit_in(state, table, row).min(count),
        has: has(row.node.id),
    });
    let shares: Vec<Share> = shares.collect();
    let quota = quotas(u64::from(count).saturating_sub(kept), &shares);
    let mut receivers: BTreeSet<(Need, NodeId, u32)> = BTreeSet::new();
    let mut leaving: Vec<&Partition> = Vec::new();
    for row in serving.iter().filter(|row| gives_up(row)) {
        leaving.extend(heading.get(&row.node.id).into_iter().flatten().filter(|row| can_move(row)));
    }
    for (slot, (row, (share, quota))) in eligible.iter().zip(shares.iter().zip(&quota)).enumerate() {
        let node = row.node.id;
        if share.has < *quota {
            receivers.insert((Need { count: share.has, weight: share.weight, slot }, node, *quota));
        }
    }
    // A partition that no receiver may own would take the place of one that can leave.
    let finds = |row: &Partition| receivers.iter().any(|(_, node, _)| may_own(state, liveness, row, *node));
    for (row, (share, quota)) in eligible.iter().zip(shares.iter().zip(&quota)).filter(|_| settled) {
        let above = usize::try_from(share.has.saturating_sub(*quota)).unwrap_or(usize::MAX);
        let owned = heading.get(&row.node.id).into_iter().flatten();
        leaving.extend(owned.filter(|row| can_move(row) && finds(row)).take(above));
    }
    for row in leaving {
        if moves.len() >= most {
            break;
        }
        let Some(receiver) = receivers.iter().find(|(_, node, _)| may_own(state, liveness, row, *node)).copied() else {
            continue;
        };
        receivers.remove(&receiver);
        let (need, node, quota) = receiver;
        let need = Need { count: need.count + 1, ..need };
        if need.count < quota {
            receivers.insert((need, node, quota));
        }
        moves.push((row.id, node));
    }
    moves.truncate(most);
    moves
}

/// Returns the partitions of each participant once the moves in progress are done.
fn heading<'a>(state: &'a ClusterState, table: &Table, serving: &[&NodeRow]) -> BTreeMap<NodeId, Vec<&'a Partition>> {
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
    heading
}

/// Returns moves of partitions whose owners are barred from them, each to the participant with the least for its
/// weight, independent of shares: no participant may be below its share. `heading` is updated to after these moves.
fn barred_moves<'a>(
    state: &'a ClusterState,
    table: &Table,
    liveness: &Liveness,
    serving: &[&NodeRow],
    heading: &mut BTreeMap<NodeId, Vec<&'a Partition>>,
) -> Vec<(PartitionId, NodeId)> {
    let barred = serving.iter().map(|row| row.node.id).filter(|node| state.bars_any(*node));
    let owned = barred.flat_map(|node| heading.get(&node).into_iter().flatten().map(move |row| (node, *row)));
    let leaving = owned.filter(|(node, row)| state.bars(row.id, *node) && can_move(row));
    let leaving: Vec<(NodeId, &Partition)> = leaving.collect();
    let mut moves = Vec::new();
    for (from, row) in leaving {
        let count = |node: NodeId| heading.get(&node).map_or(0, |rows| u32::try_from(rows.len()).unwrap_or(u32::MAX));
        let able = serving.iter().enumerate().filter(|(_, to)| {
            let has_room = count(to.node.id) < limit_in(state, table, to);
            takes(state, table, liveness, to) && may_own(state, liveness, row, to.node.id) && has_room
        });
        let need = |(slot, to): &(usize, &&NodeRow)| Need {
            count: count(to.node.id),
            weight: state.weight_in(table.id, to),
            slot: *slot,
        };
        let Some(to) = able.min_by_key(need).map(|(_, to)| to.node.id) else { continue };
        heading.entry(from).or_default().retain(|other| other.id != row.id);
        heading.entry(to).or_default().push(row);
        moves.push((row.id, to));
    }
    moves
}

/// Returns the maximum number of partitions of the table for the participant: its limit covers all tables.
fn limit_in(state: &ClusterState, table: &Table, row: &NodeRow) -> u32 {
    let elsewhere = state.partitions.count_on(row.node.id) - state.partitions.count_in(table.id, row.node.id);
    row.room_beside(elsewhere)
}

/// Returns true if the participant takes partitions of the table.
fn takes(state: &ClusterState, table: &Table, liveness: &Liveness, row: &NodeRow) -> bool {
    row.takes_placements() && liveness.may_lead(row.node.id) && !state.bars_all(table.id, row.node.id)
}

/// Returns true if the participant may own this partition, and does not yet.
fn may_own(state: &ClusterState, liveness: &Liveness, row: &Partition, node: NodeId) -> bool {
    !liveness.churn.avoids(node, row.id) && !state.bars(row.id, node) && row.placement_on(node).is_none()
}

/// Returns true if the partition is served by its only owner, so that it may start to move.
fn can_move(row: &Partition) -> bool {
    let alone = |placements: &[Placement]| matches!(placements, [only] if row.leader == Some(only.id));
    row.status == PartitionStatus::Online && alone(&row.placements)
}

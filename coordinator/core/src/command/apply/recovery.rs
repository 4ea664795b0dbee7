//! Reports of nodes about their copies during a recovery, and its end (PROTOCOL rules 61 and 62).

use super::register::judge_copy;
use super::stage::StagedRows;
use crate::command::apply::entry::Entry;
use crate::command::refusals::refused;
use crate::mutant::Mutant;
use crate::quorum::recovery::reports::settles;
use crate::quorum::recovery::{Choice, choose};
use crate::state::ClusterState;
use crate::state::events::EventKind;
use crate::state::node_row::NodeRow;
use crate::state::out_of_sync_copy::Condition;
use crate::state::recovery::{FrozenReplica, Recovery};
use crate::state::response::Response;
use archon_types::{
    Epoch, ErrorDetail, ErrorKind, Incarnation, Keys, NodeId, Partition, PartitionId, PartitionStatus, Placement,
    PlacementId, ReplicaState, first_number,
};

/// Records a node's report of where the log of a copy ends.
pub(super) fn inspected(
    state: &mut ClusterState,
    entry: Entry<'_>,
    (node, incarnation): (NodeId, Incarnation),
    placement: PlacementId,
    standing: FrozenReplica,
) -> Result<Response, ErrorDetail> {
    state.check_sender(node, incarnation)?;
    let recovery = state.recovery.as_mut().filter(|recovery| recovery.awaits(node, incarnation, placement));
    let inventory = recovery.and_then(|recovery| recovery.inventories.get_mut(&node));
    if let Some(inventory) = inventory {
        inventory.copies.insert(placement, Some(standing));
    }
    entry.done()
}

/// Records an operator's consent to possible data loss.
pub(super) fn accept(state: &mut ClusterState, entry: Entry<'_>) -> Result<Response, ErrorDetail> {
    let recovery = state.recovery.as_mut().ok_or_else(over)?;
    recovery.accepted = true;
    entry.done()
}

/// Former coordinators work.
pub(super) fn note_former_quorum(state: &mut ClusterState, entry: Entry<'_>) -> Result<Response, ErrorDetail> {
    state.recovery.as_mut().ok_or_else(over)?.former_worked = true;
    entry.done()
}

/// This generation takes the place of those before.
pub(super) fn take_over(state: &mut ClusterState, entry: Entry<'_>) -> Result<Response, ErrorDetail> {
    let generation = state.generation;
    let recovery = state.recovery.as_mut().ok_or_else(over)?;
    if !recovery.taken_over {
        recovery.taken_over = true;
        // Beside former coordinators that worked it takes over by order only.
        let ordered = recovery.former_worked;
        entry.note(state, EventKind::RecoveryTookOver { generation, ordered });
    }
    entry.done()
}

/// Ends the recovery: accepts the reports of the nodes, and partitions continue from them.
pub(super) fn settle(state: &mut ClusterState, entry: Entry<'_>) -> Result<Response, ErrorDetail> {
    let recovery = state.recovery.as_deref().ok_or_else(over)?;
    let behind = recovery.may_lose();
    if !settles(state, recovery) {
        return Err(refused("not all nodes have reported their replicas, or the possible loss was not accepted"));
    }
    let mut standings = recovery.standings();
    let mut staged = StagedRows::new(state, entry);
    for row in state.data_rows() {
        let told = standings.remove(&row.id).unwrap_or_default();
        if row.status == PartitionStatus::Unassigned && told.is_empty() {
            continue;
        }
        let mut row = row.clone();
        let choice = choose(recovery.leaders.get(&row.id).copied(), &told);
        let choice = choice.filter(|_| !state.breaks(Mutant::RowsTrusted)); // rule 62
        if choice.is_none() && state.untouched.contains(&row.id) {
            // No reported copy has any data of it: it is assigned again.
            (row.status, row.placements, row.split) = (PartitionStatus::Unassigned, Vec::new(), None);
            staged.touched(row.id);
            staged.put(row);
            continue;
        }
        if let Some(choice) = &choice {
            // It may have been assigned by a change that is lost.
            row.status = PartitionStatus::Unavailable;
            row.epoch = row.epoch.max(Epoch::new(first_number(state.generation)));
            go_on_from(&mut row, choice);
            staged.touched(row.id);
        }
        judge_others(&mut staged, state, recovery, &mut row)?;
        staged.put(row);
    }
    // Partition numbers that this state did not assign are not reused.
    let strange: Vec<PartitionId> = standings.into_keys().collect();
    staged.into_effect().commit(state, entry);
    for partition in strange {
        if let Some(table) = state.tables.get_mut(&partition.table)
            && let Keys::Range { next, .. } = &mut table.keys
        {
            *next = (*next).max(partition.index.saturating_add(1));
            table.version = entry.version();
        }
    }
    state.former_coordinators = state.recovery.take().map(|recovery| recovery.former).unwrap_or_default();
    entry.note(state, EventKind::RecoverySettled { generation: state.generation, behind });
    entry.done()
}

/// Makes the chosen copies Live. Other reported copies are Load until they have caught up.
fn go_on_from(row: &mut Partition, choice: &Choice) {
    for placement in row.placements.iter_mut().filter(|placement| placement.state == ReplicaState::Live) {
        if choice.lags.contains(&placement.id) {
            placement.state = ReplicaState::Load;
        }
    }
    for (id, node) in &choice.counts {
        let counts = |placement: &Placement| choice.counts.contains(&(placement.id, placement.node));
        let other = |placement: &Placement| placement.node == *node && placement.id != *id && counts(placement);
        if row.placements.iter().any(other) {
            continue; // One of two equal copies on a node is enough.
        }
        // Other copies of the row on that node stay there, and no row names them any longer.
        row.placements.retain(|placement| placement.node != *node || placement.id == *id);
        match row.placements.iter_mut().find(|placement| placement.id == *id) {
            Some(placement) => placement.state = ReplicaState::Live,
            None => row.placements.push(Placement { id: *id, node: *node, state: ReplicaState::Live }),
        }
    }
}

/// Removes or demotes copies without a report: their nodes are lost, or do not hold them any longer.
fn judge_others(
    staged: &mut StagedRows<'_>,
    state: &ClusterState,
    recovery: &Recovery,
    row: &mut Partition,
) -> Result<(), ErrorDetail> {
    for placement in row.placements.clone() {
        if state.node(placement.node).is_none_or(NodeRow::is_lost) {
            row.split.iter_mut().for_each(|split| split.copies.retain(|copy| copy.node != placement.node));
            if placement.state == ReplicaState::Live {
                staged.lose(row, placement.id, Condition::Whole, "an operator declared its node's data lost")?;
            }
            continue;
        }
        let Some(inventory) = recovery.inventories.get(&placement.node) else { continue };
        let holds = |id| inventory.copies.contains_key(&id);
        if holds(placement.id) {
            judge_copy(staged, state, row, placement, (&holds, !inventory.counts()))?;
        } else if placement.state == ReplicaState::Live {
            staged.lose(row, placement.id, Condition::Gone, "its node does not hold it")?;
        } else {
            // It was deleted or never begun; its number is not reused.
            row.placements.retain(|other| other.id != placement.id);
        }
    }
    Ok(())
}

fn over() -> ErrorDetail {
    ErrorDetail::new(ErrorKind::Refused, "nothing is being recovered")
}

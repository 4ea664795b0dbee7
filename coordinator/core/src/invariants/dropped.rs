//! A dropped table leaves only orders to delete its copies, one for each node that may hold one; such orders come only
//! from drops of tables, abandoned splits and merges.

use super::merges::merged_away;
use super::splits::formed_on;
use crate::command::apply::may_hold;
use crate::invariants::violation::{Violation, violated};
use crate::leader::duties::duties;
use crate::state::ClusterState;
use crate::state::events::EventKind;
use archon_types::{Duty, NodeId, NodeStatus, PlacementId};
use std::collections::BTreeSet;

const NAME: &str = "dropped";

pub(super) fn check(state: &ClusterState) -> Result<(), Violation> {
    if let Some(row) = state.partitions.iter().find(|row| !state.tables.contains_key(&row.id.table)) {
        return violated(NAME, format!("{} is of no table", row.id));
    }
    let facts = state.untouched.iter().chain(state.surpassed.keys());
    let moved = state.migrations.active().map(|migration| &migration.partition);
    if let Some(partition) = facts.chain(moved).find(|id| state.partitions.get(**id).is_none()) {
        return violated(NAME, format!("something is known of {partition}, which is not there"));
    }
    let placed = || state.partitions.iter().flat_map(|row| row.placements.iter().map(|placement| placement.id));
    let placed: BTreeSet<PlacementId> = placed().collect();
    if let Some(id) = state.departed.keys().find(|id| !placed.contains(id)) {
        return violated(NAME, format!("something is known of {id}, which is not there"));
    }
    for (node, placement, partition) in state.condemned.iter() {
        let known = state.node(node).is_some_and(|row| row.node.status != NodeStatus::Lost);
        // Copies left over by a split or merge: their partition was abandoned, continues without them, or was removed.
        let left_over = state
            .tables
            .get(&partition.table)
            .is_some_and(|table| table.keys.is_range() && partition.index < table.keys.numbers_end());
        let gone = partition.table <= state.table_last && !state.tables.contains_key(&partition.table);
        if !known || !(gone || left_over) {
            return violated(NAME, format!("{placement} of {partition} is condemned on node {node}"));
        }
        if placed.contains(&placement) {
            return violated(NAME, format!("{placement} of {partition} is condemned and stands in a row"));
        }
    }
    let nodes: BTreeSet<NodeId> = state.condemned.iter().map(|(node, ..)| node).collect();
    for duty in nodes.into_iter().filter_map(|node| duties(state, node)).flatten() {
        let there = duty.partition().is_none_or(|partition| state.partitions.get(partition).is_some());
        if !there && !matches!(duty, Duty::Unload { .. }) {
            return violated(NAME, format!("{duty:?} is about a dropped table"));
        }
    }
    Ok(())
}

pub(super) fn check_step(before: &ClusterState, after: &ClusterState) -> Result<(), Violation> {
    if let Some(table) =
        after.tables.keys().find(|table| **table <= before.table_last && !before.tables.contains_key(table))
    {
        return violated(NAME, format!("table {table} came back"));
    }
    if after.applied != before.applied + 1 {
        return Ok(()); // Nodes may have deleted copies in between.
    }
    let dropped = |table| !after.tables.contains_key(&table);
    for row in before.partitions.iter().filter(|row| dropped(row.id.table)) {
        let news = || after.events.iter().filter(|event| event.index > before.applied).map(|event| &event.what);
        if !news().any(|what| matches!(what, EventKind::TableDropped { table, .. } if *table == row.id.table)) {
            return violated(NAME, format!("{} vanished in silence", row.id));
        }
        for placement in &row.placements {
            if may_hold(after, placement.node) && !after.condemned.contains(placement.node, placement.id) {
                return violated(NAME, format!("no node has the duty to delete {} of {}", placement.id, row.id));
            }
        }
        if row.leader.is_some() && after.former_leaders.get(row.id, row.epoch).is_none() {
            return violated(NAME, format!("the leadership of {} in epoch {} is not withdrawn", row.id, row.epoch));
        }
    }
    for (node, placement, partition) in after.condemned.iter() {
        let stood = before.partitions.get(partition).and_then(|row| row.placement(placement));
        let was_dropped = stood.is_some_and(|stood| stood.node == node)
            && (dropped(partition.table) || merged_away(before, after, partition));
        let was_formed = formed_on(before, partition, placement) == Some(node);
        if !was_dropped && !was_formed && !before.condemned.contains(node, placement) {
            return violated(NAME, format!("{placement} of {partition} is condemned, and it was not dropped"));
        }
    }
    Ok(())
}

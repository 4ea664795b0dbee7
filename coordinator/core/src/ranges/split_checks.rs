//! Checks of splits by operators.

use super::common_checks::{Reshape, check_copies, check_idle, check_nodes, ranged, without_leader};
use crate::command::Command;
use crate::command::edit::{Edit, PartitionChange};
use crate::state::{CONDEMNED_MAX, ClusterState, PARTITIONS_MAX};
use archon_types::{ErrorDetail, ErrorKind, KeyRange, NodeId, Partition, PartitionId, Placement, check_split_at};
use bytes::Bytes;

/// Effect of splitting a partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SplitPlan {
    /// The new partition.
    pub right: PartitionId,
    /// The keys that the old partition keeps.
    pub left_keys: KeyRange,
    /// The keys that the new partition gets.
    pub right_keys: KeyRange,
    /// The nodes of its copies: those of the old partition.
    pub nodes: Vec<NodeId>,
    /// The command that begins the split.
    pub command: Command,
}

/// Checks that a partition can be split at this key, and returns the command that begins it.
///
/// # Errors
/// `NotFound`; `InvalidArgument` for a table with hashed keys and for an invalid key; `AssignmentInProgress` while the
/// partition is being split or moved; `Unavailable` while it has no leader; `Refused` for a key outside the range or at
/// its begin, while a copy is out of sync, one of its nodes is down, or too many nodes are failed, and at a limit.
pub fn check_split(state: &ClusterState, partition: PartitionId, at: &Bytes) -> Result<SplitPlan, ErrorDetail> {
    let name = state.partition_name(partition);
    let (row, table) = ranged(state, partition, &name, Reshape::Split)?;
    let right = table.keys.numbers_end();
    check_split_at(&row.range, at).map_err(|error| {
        let message = format!("partition {name}: {}{}", error.message, whose(state, row, at));
        ErrorDetail { message, ..error }
    })?;
    check_ready(state, row, &name)?;
    state.check_split_keys(at.len())?;
    let edit = Edit::Split { at: at.clone(), right, outgrown: None };
    Ok(SplitPlan {
        right: PartitionId::new(partition.table, right),
        left_keys: row.range.clone().before(at.clone()),
        right_keys: KeyRange { begin: at.clone(), end: row.range.end.clone() },
        nodes: row.live().map(|copy| copy.node).collect(),
        command: Command::Change(vec![PartitionChange::one(partition, row.version, edit)]),
    })
}

/// Checks that a partition can be split at some key, and returns its leader, which chooses the key.
///
/// # Errors
/// Like [`check_split`], without errors about the key.
pub fn check_splittable(state: &ClusterState, partition: PartitionId) -> Result<Placement, ErrorDetail> {
    let name = state.partition_name(partition);
    let (row, _) = ranged(state, partition, &name, Reshape::Split)?;
    check_ready(state, row, &name)?;
    row.leader_placement().copied().ok_or_else(|| without_leader(row, &name))
}

/// Checks the conditions of a split that do not depend on the key.
fn check_ready(state: &ClusterState, row: &Partition, name: &str) -> Result<(), ErrorDetail> {
    check_idle(state, row, name)?;
    check_nodes(state, Reshape::Split)?;
    check_copies(state, row, name, Reshape::Split)?;
    let limits = [
        (state.partitions.len(), PARTITIONS_MAX, "partitions"),
        (state.condemned.len(), CONDEMNED_MAX, "replicas to delete"),
    ];
    if let Some((have, most, what)) = limits.into_iter().find(|(have, most, _)| have >= most) {
        return Err(ErrorDetail::new(ErrorKind::Refused, format!("there are {have} {what}; the limit is {most}")));
    }
    let full = |node: &NodeId| state.node(*node).is_some_and(|row| row.room(state) == 0);
    if let Some(node) = row.live().map(|copy| copy.node).find(full) {
        let own = state.node(node).is_some_and(|row| row.node.partitions_max == Some(row.assigned_max()));
        let raise = if own { "raise it with `archon node set`, or " } else { "" };
        let message = format!(
            "{} would receive a replica of the new partition, but is at its limit of partitions; {raise}move a partition \
             away",
            state.node_name(node)
        );
        return Err(ErrorDetail::new(ErrorKind::Refused, message));
    }
    Ok(())
}

/// Returns the command that abandons the unfinished split of this partition.
///
/// # Errors
/// `NotFound`; `Refused` if it is not being split.
pub fn check_cancel_split(state: &ClusterState, partition: PartitionId) -> Result<Command, ErrorDetail> {
    let name = state.partition_name(partition);
    let (row, _) = ranged(state, partition, &name, Reshape::Split)?;
    if row.split.is_none() {
        let message = format!("partition {name} is not being split: there is nothing to cancel");
        return Err(ErrorDetail::new(ErrorKind::Refused, message));
    }
    let edit = Edit::AbandonSplit("cancelled by an operator".to_owned());
    Ok(Command::Change(vec![PartitionChange::one(partition, row.version, edit)]))
}

/// Returns a hint at the partition that has the key, if it is another one.
fn whose(state: &ClusterState, row: &Partition, at: &Bytes) -> String {
    let mut rows = state.partitions.of_table(row.id.table);
    let owner = rows.find(|other| other.id != row.id && other.range.contains(at) && !at.is_empty());
    let Some(owner) = owner else { return String::new() };
    let name = state.partition_name(owner.id);
    match owner.range.begin == *at {
        true => format!("; the keys from there on are those of {name} already"),
        false => format!("; {name} has that key"),
    }
}

//! Common checks of splits and merges.

use crate::operator::cancel::{CANCEL_MOVES, cancel_merge, cancel_split};
use crate::placement::withheld_repair::withheld;
use crate::state::ClusterState;
use archon_types::{ErrorDetail, ErrorKind, Partition, PartitionId, PartitionStatus, ReplicaState, Table};
use std::fmt::{self, Display, Formatter};

/// Split or merge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reshape {
    Split,
    Merge,
}

impl Reshape {
    /// Returns the participle for messages: "it is split".
    const fn done(self) -> &'static str {
        match self {
            Self::Split => "split",
            Self::Merge => "merged",
        }
    }
}

impl Display for Reshape {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Split => "split",
            Self::Merge => "merge",
        })
    }
}

/// Returns the row of a partition of a table by ranges, and the table.
///
/// # Errors
/// `NotFound`; `InvalidArgument` for a lease table or a table with hashed keys.
pub(super) fn ranged<'a>(
    state: &'a ClusterState,
    partition: PartitionId,
    name: &str,
    reshape: Reshape,
) -> Result<(&'a Partition, &'a Table), ErrorDetail> {
    let found = state.partitions.get(partition).zip(state.tables.get(&partition.table));
    let Some((row, table)) = found else {
        return Err(ErrorDetail::new(ErrorKind::NotFound, format!("partition {name} does not exist")));
    };
    if state.is_lease(partition.table) {
        return Err(of_leases(&table.name));
    }
    if !table.keys.is_range() {
        let message = format!(
            "table {} is a hash table with a fixed number of partitions; only partitions of a range table (--range) \
             are {}",
            table.name,
            reshape.done()
        );
        return Err(ErrorDetail::new(ErrorKind::InvalidArgument, message));
    }
    Ok((row, table))
}

/// Checks that no other operation on the partition is in progress.
///
/// # Errors
/// `AssignmentInProgress`, with the command that cancels the operation.
pub(super) fn check_idle(state: &ClusterState, row: &Partition, name: &str) -> Result<(), ErrorDetail> {
    let (what, cancel) = if let Some(split) = &row.split {
        let into = state.partition_name(split.right_of(row.id));
        (format!("partition {name} is being split already, into {into}"), cancel_split(state, row.id))
    } else if row.merge.is_some() {
        (format!("partition {name} is being merged already"), cancel_merge(state, row))
    } else if let Some(moved) = state.migrations.running(row.id) {
        (format!("move {} of partition {name} is running", moved.id), CANCEL_MOVES.to_owned())
    } else {
        return Ok(());
    };
    let message = format!("{what}; wait for it, or cancel it: {cancel}");
    Err(ErrorDetail::new(ErrorKind::AssignmentInProgress, message))
}

/// Checks that not too many nodes are failed: their copies must be replaced first.
///
/// # Errors
/// `Refused`.
pub(super) fn check_nodes(state: &ClusterState, reshape: Reshape) -> Result<(), ErrorDetail> {
    let Some(withheld) = withheld(state) else { return Ok(()) };
    let (failed, of, done) = (withheld.failed, withheld.of, reshape.done());
    let message = format!("{failed} of {of} nodes are failed: partitions are not {done} until they return");
    Err(ErrorDetail::new(ErrorKind::Refused, message))
}

/// Checks that every copy is in sync on an active node, and that there is a leader.
///
/// # Errors
/// `Refused`; `Unavailable` without a leader.
pub(crate) fn check_copies(
    state: &ClusterState,
    row: &Partition,
    name: &str,
    reshape: Reshape,
) -> Result<(), ErrorDetail> {
    let refused = |message: String| Err(ErrorDetail::new(ErrorKind::Refused, message));
    if state.is_offline(row.id) {
        return refused(format!("partition {name} is offline, as an operator ordered; bring it online first"));
    }
    // A copy that is to be deleted may wait for its node forever.
    let mut kept = row.placements.iter().filter(|copy| copy.state != ReplicaState::Unload);
    if let Some(copy) = kept.clone().find(|copy| !state.is_active(copy.node)) {
        let node = state.node_name(copy.node);
        return refused(format!("{node} has a replica of partition {name} and is down; {reshape} it when it is back"));
    }
    if let Some(copy) = kept.find(|copy| copy.state != ReplicaState::Live) {
        let (node, state) = (state.node_name(copy.node), copy.state);
        return refused(format!(
            "the replica of partition {name} on {node} is {state}; {reshape} it when all of them are live"
        ));
    }
    if row.leader.is_none() || row.status != PartitionStatus::Online {
        return Err(without_leader(row, name));
    }
    Ok(())
}

pub(crate) fn without_leader(row: &Partition, name: &str) -> ErrorDetail {
    let message = format!("partition {name} is {}: it has no leader", row.status);
    ErrorDetail::new(ErrorKind::Unavailable, message).with_retry_after_ms(500)
}

/// Returns the error for a split, merge or limit of a lease table: it has no keys.
pub(crate) fn of_leases(table: &str) -> ErrorDetail {
    let message = format!("table {table} is a lease table with a fixed number of partitions");
    ErrorDetail::new(ErrorKind::InvalidArgument, message)
}

/// Returns the error for limits of splits and merges of a table with hashed keys.
pub(crate) fn hashed(table: &str) -> ErrorDetail {
    let message = format!(
        "table {table} is a hash table, whose partitions are never split or merged; only a range table (--range) has \
         limits"
    );
    ErrorDetail::new(ErrorKind::InvalidArgument, message)
}

//! Changes of existing nodes and tables by operators.

use super::cluster::check_replication;
use crate::command::apply::entry::Entry;
use crate::command::refusals::{not_found, refused, stale};
use crate::operator::hashed;
use crate::state::ClusterState;
use crate::state::events::EventKind;
use crate::state::response::Response;
use archon_types::{
    ErrorDetail, Keys, NodeId, NodeTraits, Partition, PartitionStatus, TableContent, TableId, TableTraits, Version,
    min_in_sync_default,
};

/// Sets a node's zone, weight and limit.
pub(super) fn node(
    state: &mut ClusterState,
    entry: Entry<'_>,
    node: NodeId,
    if_version: Version,
    traits: &NodeTraits,
) -> Result<Response, ErrorDetail> {
    traits.check()?;
    let Some(row) = state.node(node).map(|row| &row.node) else {
        return Err(not_found(format!("node {node} does not exist")));
    };
    if row.version != if_version {
        return Err(stale(&row.name, row.version, if_version));
    }
    let before = row.traits();
    if before != *traits {
        state.update_member(node, entry.version(), |row| {
            row.node.set_traits(traits.clone());
            row.node.version = entry.version();
        });
        entry.note(state, EventKind::NodeAltered { node, before, after: traits.clone() });
    }
    entry.done()
}

/// Sets a table's replication and split limits. `repair` adds or retires the copies.
pub(super) fn table(
    state: &mut ClusterState,
    entry: Entry<'_>,
    table: TableId,
    if_version: Version,
    traits: TableTraits,
) -> Result<Response, ErrorDetail> {
    check_replication(traits.replication)?;
    traits.limits.check()?;
    let Some(row) = state.tables.get_mut(&table) else {
        return Err(not_found(format!("table number {table} no longer exists")));
    };
    if row.version != if_version {
        return Err(stale(&format!("table {}", row.name), row.version, if_version));
    }
    if row.holds == TableContent::Lease {
        return Err(refused(format!("table {} is of leases: there is nothing to copy", row.name)));
    }
    let (name, before) = (row.name.clone(), row.traits());
    if before == traits {
        return entry.done();
    }
    match &mut row.keys {
        Keys::Range { limits, .. } => *limits = traits.limits,
        Keys::Hash { .. } if traits.limits.is_set() => return Err(hashed(&name)),
        Keys::Hash { .. } => {}
    }
    let replication = traits.replication;
    row.replication = replication;
    row.version = entry.version();
    let differs = |row: &&Partition| min_in_sync(row, replication) != row.min_in_sync;
    let rows: Vec<Partition> = state.partitions.of_table(table).filter(differs).cloned().collect();
    for row in rows {
        let min_in_sync = min_in_sync(&row, replication);
        state.partitions.insert(Partition { min_in_sync, version: entry.version(), ..row });
    }
    entry.note(state, EventKind::TableAltered { table, name, before, after: traits });
    entry.done()
}

/// Returns how many in-sync copies a partition needs to take writes for `replication` wanted copies (PROTOCOL rule 7):
/// the default for `replication` once all copies are in sync, or before there is any. While copies are missing, the
/// number does not rise: otherwise the partition would take no writes until they are made.
pub(crate) fn min_in_sync(row: &Partition, replication: u8) -> u8 {
    let wanted = min_in_sync_default(replication);
    let whole = row.status == PartitionStatus::Unassigned || row.live().count() >= usize::from(replication);
    if whole { wanted } else { row.min_in_sync.min(wanted) }
}

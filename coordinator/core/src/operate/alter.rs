//! Changing nodes and tables while they are there.

use super::order::check_there;
use super::reshape::{hashed, of_leases};
use crate::command::Command;
use crate::state::ClusterState;
use archon_types::{ErrorDetail, ErrorKind, NodeId, NodeTraits, Table, TableChange, TraitsChange};

/// What changing a node does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeAlteration {
    /// What it had.
    pub before: NodeTraits,
    /// What it has then.
    pub after: NodeTraits,
    /// What does it; `None` if it has that already.
    pub command: Option<Command>,
}

/// Whether a node can be given another zone, weight or limit: any that is not lost can. Copies beyond a new limit stay
/// until a plan moves them.
///
/// # Errors
/// Why not: `NotFound`, or `InvalidArgument` with the range.
pub fn check_alter_node(
    state: &ClusterState,
    node: NodeId,
    change: &TraitsChange,
) -> Result<NodeAlteration, ErrorDetail> {
    let row = &check_there(state, node).map_err(|obstacles| super::refusal(&obstacles))?.node;
    let before = row.traits();
    let after = before.with(change);
    after.check()?;
    let command = Command::AlterNode { node, if_version: row.version, traits: after.clone() };
    let command = (before != after).then_some(command);
    Ok(NodeAlteration { before, after, command })
}

/// Whether there are nodes enough for so many copies of each partition of a table. One that wants more would wait for more
/// of them, perhaps for ever. Before the first nodes come, the least cluster that was asked for counts.
///
/// # Errors
/// `Refused`, with what to do.
pub fn check_nodes_for(state: &ClusterState, name: &str, replication: u8) -> Result<(), ErrorDetail> {
    let registered = state.nodes.values().filter(|row| row.keeps_placements()).count() as u64;
    let have = registered.max(state.settings.nodes_min.into());
    if u64::from(replication) <= have {
        return Ok(());
    }
    let message = format!(
        "table {name} would want {replication} copies of each partition, each on a node of its own, and there are {have} \
         nodes; start more nodes first, or want fewer copies (--replication {have})"
    );
    Err(ErrorDetail::new(ErrorKind::Refused, message).with_have_need(have, replication.into()))
}

/// Whether a table can be changed so, and by what; `None` if it is so already. Fewer copies of each partition are always possible:
/// repair retires the superfluous ones, and none that is still needed. For more there must be nodes. Limits above which
/// partitions are split are for tables by ranges.
///
/// # Errors
/// As [`check_nodes_for`]; `InvalidArgument` for limits of a table whose keys are hashed, and for some that are too low.
pub fn check_alter_table(
    state: &ClusterState,
    table: &Table,
    change: &TableChange,
) -> Result<Option<Command>, ErrorDetail> {
    let before = table.traits();
    let traits = before.with(change);
    if traits.replication > before.replication {
        check_nodes_for(state, &table.name, traits.replication)?;
    }
    let nothing_of_limits = TableChange { replication: change.replication, ..TableChange::default() };
    if *change != nothing_of_limits && !table.keys.is_range() {
        return Err(if state.is_lease(table.id) { of_leases(&table.name) } else { hashed(&table.name) });
    }
    traits.limits.check()?;
    let command = Command::AlterTable { table: table.id, if_version: table.version, traits };
    Ok((traits != before).then_some(command))
}

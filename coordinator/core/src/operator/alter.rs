//! Checks of changes of existing nodes and tables.

use super::order::check_there;
use crate::command::Command;
use crate::operator::obstacle;
use crate::ranges::common_checks::{hashed, of_leases};
use crate::state::ClusterState;
use archon_types::{ErrorDetail, ErrorKind, NodeId, NodeTraits, Table, TableChange, TraitsChange};

/// Effect of changing a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeAlteration {
    /// Traits before.
    pub before: NodeTraits,
    /// Traits after.
    pub after: NodeTraits,
    /// The command; `None` if the node has these traits already.
    pub command: Option<Command>,
}

/// Checks that a node can get another zone, weight or limit: any node that is not lost can. Copies beyond a new limit
/// stay until a plan moves them.
///
/// # Errors
/// `NotFound`, `InvalidArgument` with the range, or `Refused` if a grant limits the weight.
pub fn check_alter_node(
    state: &ClusterState,
    node: NodeId,
    change: &TraitsChange,
) -> Result<NodeAlteration, ErrorDetail> {
    let member = check_there(state, node).map_err(|obstacles| obstacle::refusal(&obstacles))?;
    let row = &member.node;
    let before = row.traits();
    let after = before.with(change);
    after.check()?;
    if after.weight > before.weight {
        state.check_weight(member, after.weight)?;
    }
    let command = Command::AlterNode { node, if_version: row.version, traits: after.clone() };
    let command = (before != after).then_some(command);
    Ok(NodeAlteration { before, after, command })
}

/// Checks that there are enough nodes for this number of copies of each partition of a table. Otherwise the table would
/// wait for more nodes, perhaps forever. Before the first nodes register, the configured minimum size of the cluster
/// counts.
///
/// # Errors
/// `Refused`, with a remedy.
pub fn check_nodes_for(state: &ClusterState, name: &str, replication: u8) -> Result<(), ErrorDetail> {
    let registered = state.nodes.values().filter(|row| row.keeps_placements()).count() as u64;
    let have = registered.max(state.settings.nodes_min.into());
    if u64::from(replication) <= have {
        return Ok(());
    }
    let message = format!(
        "{replication} replicas of each partition of table {name} need as many nodes, and there are {have}; start more \
         nodes first, or use --replication {have}"
    );
    Err(ErrorDetail::new(ErrorKind::Refused, message).with_have_need(have, replication.into()))
}

/// Returns the command that changes a table; `None` if it needs no change. Fewer copies of each partition are always
/// possible: repair retires only superfluous ones. More copies need enough nodes. Split limits apply to tables by
/// ranges.
///
/// # Errors
/// Like [`check_nodes_for`]; `InvalidArgument` for limits of a table with hashed keys, and for limits that are too low.
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

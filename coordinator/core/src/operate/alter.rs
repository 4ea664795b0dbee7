//! Changing nodes while they are there.

use super::Obstacle;
use crate::command::Command;
use crate::state::ClusterState;
use archon_types::{ErrorDetail, NodeId, NodeStatus, NodeTraits, TraitsChange};

/// What changing a node comes to.
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
    let row = state.node(node).map(|row| &row.node).filter(|row| row.status != NodeStatus::Lost);
    let Some(row) = row else { return Err(super::refusal(&[Obstacle::NoSuchNode { node }])) };
    let before = row.traits();
    let after = before.with(change);
    after.check()?;
    let command = Command::AlterNode { node, if_version: row.version, traits: after.clone() };
    let command = (before != after).then_some(command);
    Ok(NodeAlteration { before, after, command })
}

//! The indexes agree with the rows.

use crate::invariants::violation::{Violation, violated};
use crate::state::ClusterState;
use crate::state::former_leaders::FormerLeaders;
use crate::state::migrations::Migrations;
use crate::state::nodes::Nodes;
use crate::state::partitions::Partitions;
use crate::state::tombstones::Tombstones;

const NAME: &str = "indexes";

pub(super) fn check(state: &ClusterState) -> Result<(), Violation> {
    if Partitions::from(state.partitions.iter().cloned().collect::<Vec<_>>()) != state.partitions {
        return violated(NAME, "of partitions");
    }
    if FormerLeaders::from(state.former_leaders.iter().copied().collect::<Vec<_>>()) != state.former_leaders {
        return violated(NAME, "of former holders");
    }
    if Migrations::from(state.migrations.iter().cloned().collect::<Vec<_>>()) != state.migrations {
        return violated(NAME, "of migrations");
    }
    if Nodes::from(state.participants.values().cloned().collect::<Vec<_>>()) != state.participants {
        return violated(NAME, "of participants");
    }
    if Nodes::from(state.nodes.values().cloned().collect::<Vec<_>>()) != state.nodes {
        return violated(NAME, "of nodes");
    }
    if Tombstones::from_iter(state.condemned.iter()) != state.condemned {
        return violated(NAME, "of condemned copies");
    }
    let newest = state.participants.values().map(|row| row.node.version).max().unwrap_or_default();
    if newest > state.participants_version {
        return violated(NAME, "of the participants' newest version");
    }
    let newest = state.nodes.values().map(|row| row.node.version).max().unwrap_or_default();
    if newest > state.nodes_version {
        return violated(NAME, "of the nodes' newest version");
    }
    Ok(())
}

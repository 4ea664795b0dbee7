//! Planning of few moves to an even spread. Pure and deterministic: it starts from the present positions, and planning
//! again after its moves moves nothing, except copies that a node kept above its share because their only target was
//! one that another copy of their partition was just leaving.

mod board;
mod leaders;
pub(crate) mod moves;
mod room;

use crate::command::{Command, PlannedMove};
use crate::placement::plan::moves::{Move, Subject, UnmetGoal, UnmetReason};
use crate::state::ClusterState;
use archon_types::limits::PLAN_MOVES_MAX;
use archon_types::{NodeId, Version};
use board::{Board, Role};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Maximum number of rounds of balancing copies.
const ROUNDS_MAX: usize = 16;

/// Aim of a plan, besides the nodes' own goals (cordon, drain). A draining node empties itself
/// (`placement::repair`); the plan only accounts for its copies' targets.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Goal {
    /// Maximum number of moves in the plan. `None`: all that are needed, up to the limit of one plan
    /// ([`PLAN_MOVES_MAX`]); the next plan continues from there.
    pub moves_max: Option<u32>,
    /// Nodes that clients cannot reach, or could not until recently ([`Liveness::spared`](crate::Liveness::spared)):
    /// they keep their share of copies, and no leadership is moved there (PROTOCOL rule 76).
    pub spared: BTreeSet<NodeId>,
}

/// Planned moves, to be reviewed before they are made.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// The table version for which it is valid.
    pub table_version: Version,
    /// The version of the moves' records for which it is valid: moves in progress count as done.
    pub moves_version: Version,
    /// The moves.
    pub moves: Vec<Move>,
    /// Goals that it cannot reach.
    pub unmet: Vec<UnmetGoal>,
}

impl Plan {
    /// Returns the command that carries it out.
    pub fn start(&self) -> Command {
        let moves = self.moves.iter().map(|planned| PlannedMove {
            kind: planned.kind,
            partition: planned.partition,
            placement: planned.placement,
            from: planned.from,
            to: planned.to,
            reason: planned.reason.to_string(),
            bytes: planned.bytes,
        });
        Command::StartPlan {
            table_version: self.table_version,
            moves_version: self.moves_version,
            moves: moves.collect(),
        }
    }
}

/// Plans the moves that bring every node that takes placements to floor or ceiling of its share by weight, of copies
/// and then of leaderships, over all tables. A node never gets two copies of a partition, nor more than its limit.
/// Zones take precedence over even shares: copies that share a zone with another one of their partition are separated
/// if possible. No copy goes to a zone with another one unless it shared a zone before, and no zone's share exceeds one
/// copy of each partition.
pub fn plan(state: &ClusterState, goal: Goal) -> Plan {
    let mut board = Board::new(state, goal.spared);
    board.part_zones();
    // It ends with a round without moves; few are needed, and the bound keeps a defect from looping.
    for _ in 0..ROUNDS_MAX {
        if !board.round() {
            break;
        }
    }
    board.make_room(state);
    let mut plan = Plan {
        table_version: state.table_version(),
        moves_version: state.moves_version,
        moves: board.moves(),
        unmet: board.unmet(),
    };
    plan.moves.extend(leaders::Leaders::new(state, &board).moves(&board));
    if state.data_tables().any(|table| state.partitions.awaits_assignment(table.id)) {
        plan.unmet.extend(unassigned(state));
    }
    let max = goal.moves_max.and_then(|max| usize::try_from(max).ok()).unwrap_or(PLAN_MOVES_MAX);
    plan.moves.truncate(max.min(PLAN_MOVES_MAX));
    plan
}

/// Returns the tables that wait for nodes: before the first assignment an empty plan does not mean that all is well.
fn unassigned(state: &ClusterState) -> Vec<UnmetGoal> {
    let waits = |table: &&archon_types::Table| state.partitions.awaits_assignment(table.id);
    let unmet = state.data_tables().filter(waits).map(|table| {
        let (have, need) = crate::placement::assign::nodes_needed(state, table.replication);
        UnmetGoal { subject: Subject::Table(table.id), reason: UnmetReason::NotAssigned { have, need } }
    });
    unmet.collect()
}

//! Planning of few moves to an even spread. Pure and deterministic: it starts from the present positions, and planning
//! again after its moves moves nothing, except copies that a node kept above its share because their only target was
//! one that another copy of their partition was just leaving.

mod board;
mod leaders;
mod room;

use crate::command::{Command, PlannedMove};
use crate::state::migration::MoveKind;
use crate::state::{ClusterState, MOVES_MAX};
use archon_types::{NodeId, PartitionId, PlacementId, TableId, Version};
use board::{Board, Role};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;

/// Maximum number of rounds of balancing copies.
const ROUNDS_MAX: usize = 16;

/// Aim of a plan, besides the nodes' own goals (cordon, drain). A draining node empties itself
/// (`placement::repair`); the plan only accounts for its copies' targets.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Goal {
    /// Maximum number of moves in the plan. `None`: all that are needed, up to the limit of one plan
    /// (`MOVES_MAX`); the next plan continues from there.
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
    pub unmet: Vec<Unmet>,
}

/// One placement's move as decided, with the numbers behind it. Its displayed form is an [`archon_types::plan::Move`],
/// its form in the log a [`PlannedMove`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Move {
    /// Kind of move.
    pub kind: MoveKind,
    /// The partition.
    pub partition: PartitionId,
    /// The copy to remove, or the present leader.
    pub placement: PlacementId,
    /// Its node; for a leadership, its node after the plan's moves of copies.
    pub from: NodeId,
    /// The node that gets the copy or the leadership.
    pub to: NodeId,
    /// Reason.
    pub reason: MoveReason,
    /// Bytes to copy. Unknown to the plan; the caller, which knows the nodes' loads, fills it in.
    pub bytes: u64,
}

/// Reason of a move.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum MoveReason {
    /// Its node has more than its share.
    Balance {
        /// Placements on the node now.
        has: u32,
        /// Its share.
        share: u32,
    },
    /// Its node leads more for its weight than the new leader's.
    Lead {
        /// Partitions that the node leads.
        leads: u32,
        /// Partitions that the other one leads.
        other: u32,
    },
    /// Only nodes without room may take a missing copy: this move makes room on one of them.
    MakeRoom,
    /// The other node leads as many and passes one on, up to a node that leads fewer for its weight.
    PassOn {
        /// Partitions that the node leads.
        leads: u32,
        /// Partitions that the other one leads.
        other: u32,
    },
}

impl fmt::Display for MoveReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Balance { has, share } => write!(f, "the node has {has}, its share is {share}"),
            Self::Lead { leads, other } => {
                write!(f, "the node leads {leads}, the target {other}; no data is copied")
            }
            Self::MakeRoom => write!(f, "makes room for a missing copy that only full nodes could take"),
            Self::PassOn { leads, other } => write!(
                f,
                "the node leads {leads}; the target leads {other} and passes one on to a node that leads fewer; no \
                 data is copied"
            ),
        }
    }
}

/// Subject of an unmet goal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Subject {
    /// A node.
    Node(NodeId),
    /// A table.
    Table(TableId),
}

/// A goal that the plan cannot reach.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Unmet {
    /// Subject.
    pub subject: Subject,
    /// Reason.
    pub reason: UnmetReason,
}

/// Reason why a plan cannot reach a goal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum UnmetReason {
    /// The node is draining, and no node can take these placements.
    NotEmptied {
        /// Number of placements.
        placements: u32,
    },
    /// The node keeps more than its share, since no other node may take these.
    AboveShare {
        /// Placements on the node.
        has: u32,
        /// Its share.
        share: u32,
    },
    /// The table's partitions have no copies yet.
    NotAssigned {
        /// Nodes that take copies.
        have: u64,
        /// Nodes it waits for.
        need: u64,
    },
    /// Partitions of the table keep two copies in one zone.
    ZonesDoubled {
        /// Number of partitions.
        partitions: u32,
    },
    /// The node is not alive, so its placements are not moved.
    NotAlive {
        /// Number of its placements.
        placements: u32,
    },
}

impl fmt::Display for UnmetReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotEmptied { placements } => {
                write!(
                    f,
                    "no other node can take {placements} placements of the drained node; add nodes or raise \
                           limits"
                )
            }
            Self::AboveShare { has, share } => {
                write!(f, "the node keeps {has} of a share of {share}: no other node may take more")
            }
            Self::NotAssigned { have, need } => {
                write!(f, "the table is not assigned yet: {have} of {need} nodes take copies")
            }
            Self::ZonesDoubled { partitions } => {
                write!(
                    f,
                    "{partitions} partitions keep two copies in one zone: nodes of other zones have no capacity, or \
                     there are \
                     fewer zones than copies"
                )
            }
            Self::NotAlive { placements } => {
                write!(
                    f,
                    "the node is not alive: a rebalance moves none of its {placements} placements; it returns with \
                     them, or they are rebuilt on other nodes after replace_after_ms"
                )
            }
        }
    }
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
    let max = goal.moves_max.and_then(|max| usize::try_from(max).ok()).unwrap_or(MOVES_MAX);
    plan.moves.truncate(max.min(MOVES_MAX));
    plan
}

/// Returns the tables that wait for nodes: before the first assignment an empty plan does not mean that all is well.
fn unassigned(state: &ClusterState) -> Vec<Unmet> {
    let waits = |table: &&archon_types::Table| state.partitions.awaits_assignment(table.id);
    let unmet = state.data_tables().filter(waits).map(|table| {
        let (have, need) = crate::placement::assign::nodes_needed(state, table.replication);
        Unmet { subject: Subject::Table(table.id), reason: UnmetReason::NotAssigned { have, need } }
    });
    unmet.collect()
}

//! Few moves to an even spread. Pure and deterministic: it starts from what stands, and planning again after its moves
//! were made moves nothing, but for copies that a node kept above its share because the only place for them was one that
//! another copy of their partition was just leaving.

mod board;
mod leaders;
mod room;

use crate::command::{Command, PlannedMove};
use crate::migration::MoveKind;
use crate::state::{ClusterState, MOVES_MAX};
use archon_types::{NodeId, PartitionId, PlacementId, TableId, Version};
use board::{Board, Role};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;

/// Most rounds of evening out copies.
const ROUNDS_MAX: usize = 16;

/// What a plan should reach, besides what the nodes' own goals say (cordon, drain). A node that is being emptied empties
/// itself ([`crate::repair`]); the plan only reckons with where its copies will be.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Goal {
    /// Most moves in the plan. `None`: as many as it takes, yet no more than one plan may have
    /// ([`crate::state::MOVES_MAX`]); the next plan goes on from there.
    pub moves_max: Option<u32>,
    /// Nodes that clients do not reach, or have not for long enough ([`Liveness::spared`](crate::Liveness::spared)): they keep their share of
    /// copies, and no leadership is moved there (PROTOCOL rule 76).
    pub spared: BTreeSet<NodeId>,
}

/// Moves that were computed and can be looked at before they are made.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// The table version it is valid for.
    pub table_version: Version,
    /// The version of the moves' records that it is valid for: what is under way is reckoned with as if it were done.
    pub moves_version: Version,
    /// What it moves.
    pub moves: Vec<Move>,
    /// What it cannot reach.
    pub unmet: Vec<Unmet>,
}

/// One placement's move, as it was decided: in numbers, with what it rests on. What is shown of it is an
/// [`archon_types::plan::Move`], what the log holds a [`PlannedMove`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Move {
    /// What is moved.
    pub kind: MoveKind,
    /// Which partition.
    pub partition: PartitionId,
    /// The copy that is to go, or that leads now.
    pub placement: PlacementId,
    /// Where it stands; of a leadership, where it will be after the plan's moves of copies.
    pub from: NodeId,
    /// Where a copy is to come, or to lead.
    pub to: NodeId,
    /// Why.
    pub reason: MoveReason,
    /// Bytes to copy. The plan does not know; whoever knows the nodes' loads fills it in.
    pub bytes: u64,
}

/// Why a placement is moved.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum MoveReason {
    /// Its node has more than its share.
    Balance {
        /// Placements on the node now.
        has: u32,
        /// Its share.
        share: u32,
    },
    /// Its node leads more for its weight than the one that is to lead.
    Lead {
        /// Partitions that the node leads.
        leads: u32,
        /// Partitions that the other one leads.
        other: u32,
    },
    /// Only nodes without room may take a copy that is missing: this one moves, so that one of them has room.
    MakeRoom,
    /// The other node leads as many, and passes one on in its turn, up to one that leads fewer for its weight.
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
                write!(f, "the node leads {leads}, the other one {other}; nothing is copied")
            }
            Self::MakeRoom => write!(f, "makes room for a missing copy that only full nodes could take"),
            Self::PassOn { leads, other } => write!(
                f,
                "the node leads {leads}; the other one leads {other} and passes one on to where fewer are led; nothing is copied"
            ),
        }
    }
}

/// What an unmet goal is about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Subject {
    /// A node.
    Node(NodeId),
    /// A table.
    Table(TableId),
}

/// Something the plan cannot reach.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Unmet {
    /// What it is about.
    pub subject: Subject,
    /// What it is.
    pub reason: UnmetReason,
}

/// What can be in a plan's way.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum UnmetReason {
    /// The node is to be emptied, and these placements have nowhere to go.
    NotEmptied {
        /// How many.
        placements: u32,
    },
    /// The node keeps more than its share, since no other may take these.
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
        /// How many.
        partitions: u32,
    },
    /// The node is not alive, so its placements are not moved.
    NotAlive {
        /// How many it holds.
        placements: u32,
    },
}

impl fmt::Display for UnmetReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotEmptied { placements } => {
                write!(f, "{placements} placements of the drained node have nowhere to go; add nodes or raise limits")
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
                    "{partitions} partitions keep two copies in one zone: nodes of other zones have no room, or there are \
                     fewer zones than copies"
                )
            }
            Self::NotAlive { placements } => {
                write!(
                    f,
                    "the node is not alive: a rebalance moves none of its {placements} placements; it returns with them, or copies are made \
                     elsewhere after replace_after_ms"
                )
            }
        }
    }
}

impl Plan {
    /// The command that carries it out.
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

/// Plans the moves that bring every node that takes placements to floor or ceiling of its share by weight, of copies and
/// then of leaderships, all tables together. Never two copies of a partition on a node, never above a node's limit. Zones go
/// before even shares: copies that stand in one zone with another one of their partition are parted where that can be, no
/// copy goes to a zone that holds another one unless it stood beside one before, and no zone's share is more than one copy
/// of each partition.
pub fn plan(state: &ClusterState, goal: Goal) -> Plan {
    let mut board = Board::new(state, goal.spared);
    board.part_zones();
    // A round in which nothing moves is the end; few are needed, and the bound keeps a defect from looping.
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

/// The tables that wait for nodes: before the first assignment there is nothing to plan, and that is not "all is well".
fn unassigned(state: &ClusterState) -> Vec<Unmet> {
    let waits = |table: &&archon_types::Table| state.partitions.awaits_assignment(table.id);
    let unmet = state.data_tables().filter(waits).map(|table| {
        let (have, need) = crate::assign::nodes_needed(state, table.replication);
        Unmet { subject: Subject::Table(table.id), reason: UnmetReason::NotAssigned { have, need } }
    });
    unmet.collect()
}

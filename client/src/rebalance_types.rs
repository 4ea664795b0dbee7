//! Documents about the progress of a rebalance. Plans are [`Plan`](archon_types::plan::Plan).

use crate::admin::incomplete;
use crate::error::Error;
use archon_proto::v1;
use archon_types::subject::NodeName;
use archon_types::text::into_plain;
use archon_types::{MoveKind, MovePhase, ReshapingKind, ReshapingPhase, Word};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a rebalance stands, and the splits and merges beside it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct RebalanceStatus {
    /// Whether anything is still moving; splits and merges are no moves.
    pub running: bool,
    /// All moves together.
    pub summary: RebalanceSummary,
    /// The moves of the present or last plan.
    pub moves: Vec<MoveStatus>,
    /// Splits and merges under way, the first 256 of them.
    pub reshapings: Vec<Reshaping>,
    /// How many there are in all.
    pub reshapings_total: u32,
}

/// The moves of the present or last plan, counted by phase.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct RebalanceSummary {
    /// Tells plans apart; zero if there was none.
    pub plan_id: u64,
    /// All moves of the plan.
    pub moves_total: u32,
    /// Those that wait until their nodes copy less.
    pub queued: u32,
    /// Those whose copy is being made.
    pub copying: u32,
    /// Those whose copy counts, or whose leadership is being handed over.
    pub in_sync: u32,
    /// Those whose new leader takes over.
    pub hand_over: u32,
    /// Those of which the old copy is being deleted.
    pub cleanup: u32,
    /// Those that reached their goal.
    pub done: u32,
    /// Those undone at the operator's wish.
    pub cancelled: u32,
    /// Those that lost their point.
    pub superseded: u32,
    /// Those that could not go on.
    pub failed: u32,
    /// How much is done, `0..=100`, of all moves together.
    pub percent: u32,
    /// Bytes copied.
    pub bytes_done: u64,
    /// Bytes to copy, an estimate.
    pub bytes_total: u64,
}

impl RebalanceSummary {
    /// Returns the number of finished moves, successful or not.
    pub const fn over(&self) -> u32 {
        self.done + self.cancelled + self.superseded + self.failed
    }
}

impl From<v1::RebalanceSummary> for RebalanceSummary {
    fn from(wire: v1::RebalanceSummary) -> Self {
        Self {
            plan_id: wire.plan,
            moves_total: wire.moves,
            queued: wire.queued,
            copying: wire.copying,
            in_sync: wire.in_sync,
            hand_over: wire.hand_over,
            cleanup: wire.cleanup,
            done: wire.done,
            cancelled: wire.cancelled,
            superseded: wire.superseded,
            failed: wire.failed,
            percent: wire.percent.min(100),
            bytes_done: wire.bytes_done,
            bytes_total: wire.bytes_total,
        }
    }
}

/// One move as it goes on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct MoveStatus {
    /// The move's number.
    #[serde(rename = "move_id")]
    pub id: u64,
    /// What is moved.
    pub kind: Word<MoveKind>,
    /// The table's number.
    pub table_id: u64,
    /// The table's name.
    pub table: String,
    /// The partition's number within its table.
    pub partition: u32,
    /// The number of the node it leaves.
    pub from_id: u64,
    /// The name of the node it leaves.
    pub from: String,
    /// The number of the node it goes to.
    pub to_id: u64,
    /// The name of the node it goes to.
    pub to: String,
    /// How far it is.
    pub phase: Word<MovePhase>,
    /// How much is done, `0..=100`.
    pub percent: u32,
    /// Bytes copied.
    pub bytes_done: u64,
    /// Bytes to copy, an estimate.
    pub bytes_total: u64,
    /// Why it is made or waits, or why it was given up or failed, in a sentence.
    pub message: String,
}

impl MoveStatus {
    /// Returns whether it has ended, successfully or not. An unknown phase has not.
    pub fn is_over(&self) -> bool {
        self.phase.known().is_some_and(MovePhase::is_over)
    }

    /// Returns whether it has ended without success.
    pub fn is_aborted(&self) -> bool {
        self.phase.known().is_some_and(MovePhase::is_aborted)
    }

    /// Returns the partition's name for people: `orders/7`.
    pub fn partition_name(&self) -> String {
        format!("{}/{}", self.table, self.partition)
    }
}

/// A split or merge that is under way.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Reshaping {
    /// The table's number.
    pub table_id: u64,
    /// The table's name.
    pub table: String,
    /// The number within its table of the partition that is split, or gets the keys of the other.
    pub partition: u32,
    /// Which of both it is.
    pub kind: Word<ReshapingKind>,
    /// How far it is.
    pub reshaping_phase: Word<ReshapingPhase>,
    /// The number of the partition that is split off, or merged away.
    pub right: u32,
    /// The first key of that one.
    pub at: String,
    /// How much is done, `0..=99`: the mean over the copies of a split, of which one counts nothing until it has every key. Of a merge
    /// nothing is known in between.
    pub percent: u32,
    /// Of a split: how many copies the new partition is to have.
    pub copies_total: u32,
    /// Of these, those that have come to the end of this phase.
    pub copies_ready: u32,
    /// The nodes that are waited for, by name.
    pub waits_for: Vec<String>,
    /// What is waited for, in a sentence.
    pub message: String,
}

impl Reshaping {
    /// Returns the partition's name for people: `orders/7`.
    pub fn partition_name(&self) -> String {
        format!("{}/{}", self.table, self.partition)
    }
}

impl TryFrom<v1::Reshaping> for Reshaping {
    type Error = Error;

    fn try_from(wire: v1::Reshaping) -> Result<Self, Error> {
        let partition = wire.partition.ok_or_else(|| incomplete("Reshaping.partition"))?;
        Ok(Self {
            table_id: partition.table,
            table: into_plain(wire.table_name),
            partition: partition.index,
            kind: Word::read(&wire.kind),
            reshaping_phase: Word::read(&wire.phase),
            right: wire.right,
            at: String::from_utf8_lossy(&wire.at).into_owned(),
            percent: wire.percent.min(100),
            copies_total: wire.copies,
            copies_ready: wire.copies_ready,
            waits_for: wire.waits_for.into_iter().map(|name| NodeName::from(name).node).collect(),
            message: into_plain(wire.message),
        })
    }
}

/// What cancelling a rebalance did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Cancelled {
    /// Moves undone.
    pub moves_cancelled: u32,
    /// Moves past the point of return, which go on.
    pub moves_too_late: u32,
}

impl TryFrom<v1::MoveStatus> for MoveStatus {
    type Error = Error;

    fn try_from(wire: v1::MoveStatus) -> Result<Self, Error> {
        let partition = wire.partition.ok_or_else(|| incomplete("MoveStatus.partition"))?;
        let (from, to): (NodeName, NodeName) =
            (wire.from.unwrap_or_default().into(), wire.to.unwrap_or_default().into());
        Ok(Self {
            id: wire.id,
            kind: Word::read(&wire.kind),
            table_id: partition.table,
            table: into_plain(wire.table_name),
            partition: partition.index,
            from_id: from.node_id,
            from: from.node,
            to_id: to.node_id,
            to: to.node,
            phase: Word::read(&wire.phase),
            percent: wire.percent.min(100),
            bytes_done: wire.bytes_done,
            bytes_total: wire.bytes_total,
            message: into_plain(wire.message),
        })
    }
}

//! What a rebalance looks like to callers: plans, their moves, and how they stand.

use archon_proto::v1;
use archon_types::text::into_plain;
use serde::{Deserialize, Serialize};

/// A list of moves, valid for one table version and one version of the moves' records.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Plan {
    /// The version it was made for.
    pub table_version: u64,
    /// The version of the moves' records it was made for: what was under way is reckoned with as if it were done.
    pub moves_version: u64,
    /// What moves where, and why.
    pub moves: Vec<Move>,
    /// What it cannot meet.
    #[serde(default)]
    pub unmet: Vec<Unmet>,
}

/// One copy's move.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Move {
    /// The partition's number within its table.
    pub partition: u16,
    /// The name of the node that holds the copy.
    pub from: String,
    /// The name of the node that is to hold it.
    pub to: String,
    /// Bytes to copy, an estimate.
    pub bytes: u64,
    /// Why it moves.
    pub reason: String,
    /// The table's number.
    pub table_id: u64,
    /// The number of the node that holds the copy.
    pub from_id: u64,
    /// The number of the node that is to hold it.
    pub to_id: u64,
    /// Only the leadership moves, to a copy that counts already: nothing is copied.
    pub leadership: bool,
}

/// A goal that a plan cannot meet.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unmet {
    /// What kind of goal.
    pub code: String,
    /// Of what.
    pub subject: String,
    /// Why not.
    pub message: String,
}

/// How a rebalance stands.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RebalanceStatus {
    /// Whether anything is still moving.
    pub running: bool,
    /// All moves together.
    pub summary: RebalanceSummary,
    /// The moves of the present or last plan.
    pub migrations: Vec<Migration>,
}

/// The moves of the present or last plan, counted by phase.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RebalanceSummary {
    /// Tells plans apart; zero if there was none.
    pub plan: u64,
    /// All moves of the plan.
    pub moves: u32,
    /// Those that wait for a lane.
    pub queued: u32,
    /// Those whose copy is being made.
    pub copying: u32,
    /// Those whose copy counts, or whose leadership is being handed over.
    pub in_sync: u32,
    /// Those whose new leader takes over.
    pub hand_off: u32,
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
    /// Moves that are over, well or not.
    pub const fn over(&self) -> u32 {
        self.done + self.cancelled + self.superseded + self.failed
    }
}

impl From<v1::RebalanceSummary> for RebalanceSummary {
    fn from(wire: v1::RebalanceSummary) -> Self {
        Self {
            plan: wire.plan,
            moves: wire.moves,
            queued: wire.queued,
            copying: wire.copying,
            in_sync: wire.in_sync,
            hand_off: wire.hand_off,
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

/// One move under way.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Migration {
    /// The partition's number within its table.
    pub partition: u16,
    /// The name of the node it leaves.
    pub from: String,
    /// The name of the node it goes to.
    pub to: String,
    /// `Queued`, `Copying`, `InSync`, `HandOff`, `Cleanup`, `Done`, `Cancelled`, `Superseded` or `Failed`.
    pub phase: String,
    /// How much is done, `0..=100`.
    pub percent: u32,
    /// Why it waits, was given up or failed; empty if neither.
    pub why: String,
    /// Its number.
    pub id: u64,
    /// The table's number.
    pub table_id: u64,
    /// Bytes copied.
    pub bytes_done: u64,
    /// Bytes to copy, an estimate.
    pub bytes_total: u64,
    /// Only the leadership moves.
    pub leadership: bool,
}

/// What cancelling a rebalance did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Cancelled {
    /// Moves undone.
    pub cancelled: u32,
    /// Moves past the point of return, which go on.
    pub too_late: u32,
}

impl From<Plan> for v1::Plan {
    fn from(plan: Plan) -> Self {
        let moves = plan.moves.into_iter().map(|step| v1::Move {
            partition: Some(v1::PartitionId { table: step.table_id, index: u32::from(step.partition) }),
            from: step.from_id,
            to: step.to_id,
            bytes: step.bytes,
            reason: into_plain(step.reason),
            from_name: step.from,
            to_name: step.to,
            leadership: step.leadership,
        });
        let unmet = plan.unmet.into_iter().map(|unmet| v1::Unmet {
            code: unmet.code,
            subject: unmet.subject,
            message: into_plain(unmet.message),
        });
        let (table_version, moves_version) = (plan.table_version, plan.moves_version);
        Self { table_version, moves: moves.collect(), unmet: unmet.collect(), moves_version }
    }
}

impl From<archon_proto::convert::admin::Plan> for Plan {
    fn from(plan: archon_proto::convert::admin::Plan) -> Self {
        let moves = plan.moves.into_iter().map(|step| Move {
            partition: step.partition.index,
            from: step.from_name,
            to: step.to_name,
            bytes: step.bytes,
            reason: into_plain(step.reason),
            table_id: step.partition.table.get(),
            from_id: step.from.get(),
            to_id: step.to.get(),
            leadership: step.leadership,
        });
        let unmet = plan.unmet.into_iter().map(|unmet| Unmet {
            code: unmet.code,
            subject: unmet.subject,
            message: into_plain(unmet.message),
        });
        Self {
            table_version: plan.table_version.get(),
            moves_version: plan.moves_version.get(),
            moves: moves.collect(),
            unmet: unmet.collect(),
        }
    }
}

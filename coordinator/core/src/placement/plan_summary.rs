//! Summary of the newest plan's moves, for people.

use crate::placement::migrate::{Phase, phase};
use crate::state::ClusterState;
use serde::{Deserialize, Serialize};

/// Summary of the newest plan's moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct PlanSummary {
    /// Log index of the entry that began the plan; zero if there was none.
    pub plan: u64,
    /// Moves that wait until their nodes are below the copy limit.
    pub queued: u32,
    /// Moves whose copy is being made.
    pub copying: u32,
    /// Moves with an in-sync copy, or with a leadership that is being handed over.
    pub in_sync: u32,
    /// Moves with a new leader that is taking over.
    pub hand_over: u32,
    /// Moves with an old copy that is being deleted.
    pub cleanup: u32,
    /// Moves that reached their goal.
    pub done: u32,
    /// Moves cancelled by the operator.
    pub cancelled: u32,
    /// Moves made pointless by other changes.
    pub superseded: u32,
    /// Moves that could not continue.
    pub failed: u32,
    /// Bytes of the unfinished moves, estimated at planning.
    pub bytes_open: u64,
    /// Bytes of the finished moves, estimated at planning.
    pub bytes_done: u64,
}

impl PlanSummary {
    /// Summarises the newest plan. Examines the running moves, which are few: each node has a copy limit.
    pub fn of(state: &ClusterState) -> Self {
        let tally = state.migrations.tally();
        let mut summary = Self {
            plan: tally.plan,
            queued: tally.queued,
            done: tally.done,
            cancelled: tally.cancelled,
            superseded: tally.superseded,
            failed: tally.failed,
            bytes_open: tally.bytes_open,
            bytes_done: tally.bytes_done,
            ..Self::default()
        };
        for migration in state.migrations.all_running().filter(|migration| migration.plan == tally.plan) {
            match phase(state, migration) {
                Phase::Queued | Phase::Copying => summary.copying += 1,
                Phase::InSync => summary.in_sync += 1,
                Phase::HandOver => summary.hand_over += 1,
                Phase::Cleanup | Phase::Done | Phase::Cancelled | Phase::Superseded { .. } | Phase::Failed { .. } => {
                    summary.cleanup += 1;
                }
            }
        }
        summary
    }

    /// Returns the number of running moves.
    pub const fn running(&self) -> u32 {
        self.copying + self.in_sync + self.hand_over + self.cleanup
    }

    /// Returns the number of ended moves, successful or not.
    pub const fn over(&self) -> u32 {
        self.done + self.cancelled + self.superseded + self.failed
    }

    /// Returns the number of all moves of the plan.
    pub const fn moves(&self) -> u32 {
        self.queued + self.running() + self.over()
    }
}

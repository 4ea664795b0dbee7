//! Counts of one plan's moves, updated as they change: observers of a large plan examine only the running moves.

use crate::placement::migrate::{Phase, phase};
use crate::state::ClusterState;
use crate::state::migration::{Migration, MigrationId, MoveKind, Stage};
use serde::{Deserialize, Serialize};

/// The moves of the newest plan by stage. Derived from the records, never stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Tally {
    /// Log index of the entry that began the plan; zero if there was none.
    pub(crate) plan: u64,
    /// Its first recorded move.
    pub(crate) first: MigrationId,
    queued: u32,
    running: u32,
    done: u32,
    cancelled: u32,
    superseded: u32,
    failed: u32,
    bytes_open: u64,
    bytes_done: u64,
}

impl Tally {
    /// Restarts with the first move of a newer plan.
    pub(crate) fn of_plan(plan: u64, first: MigrationId) -> Self {
        Self { plan, first, ..Self::default() }
    }

    /// Counts a move of this plan.
    pub(crate) fn enter(&mut self, migration: &Migration) {
        let (count, bytes) = self.place(&migration.stage);
        *count = count.saturating_add(1);
        if let Some(bytes) = bytes {
            *bytes = bytes.saturating_add(copied(migration));
        }
    }

    /// Stops counting a move.
    pub(crate) fn leave(&mut self, migration: &Migration) {
        let (count, bytes) = self.place(&migration.stage);
        *count = count.saturating_sub(1);
        if let Some(bytes) = bytes {
            *bytes = bytes.saturating_sub(copied(migration));
        }
    }

    fn place(&mut self, stage: &Stage) -> (&mut u32, Option<&mut u64>) {
        match stage {
            Stage::Queued => (&mut self.queued, Some(&mut self.bytes_open)),
            Stage::Running { .. } => (&mut self.running, Some(&mut self.bytes_open)),
            Stage::Done { .. } => (&mut self.done, Some(&mut self.bytes_done)),
            Stage::Cancelled => (&mut self.cancelled, None),
            Stage::Superseded { .. } => (&mut self.superseded, None),
            Stage::Failed { .. } => (&mut self.failed, None),
        }
    }
}

fn copied(migration: &Migration) -> u64 {
    match migration.kind {
        MoveKind::Copy => migration.bytes,
        MoveKind::Leadership => 0,
    }
}

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

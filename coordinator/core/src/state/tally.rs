//! Counts of one plan's moves, updated as they change: observers of a large plan examine only the running moves.

use crate::state::migration::{Migration, MigrationId, MoveKind, Stage};

/// The moves of the newest plan by stage. Derived from the records, never stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Tally {
    /// Log index of the entry that began the plan; zero if there was none.
    pub(crate) plan: u64,
    /// Its first recorded move.
    pub(crate) first: MigrationId,
    pub(crate) queued: u32,
    pub(crate) running: u32,
    pub(crate) done: u32,
    pub(crate) cancelled: u32,
    pub(crate) superseded: u32,
    pub(crate) failed: u32,
    pub(crate) bytes_open: u64,
    pub(crate) bytes_done: u64,
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

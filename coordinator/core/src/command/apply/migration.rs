//! Start and cancellation of plans, and the stages of their migrations.

use super::stage::StagedRows;
use crate::command::PlannedMove;
use crate::command::apply::entry::Entry;
use crate::command::edit::{Edit, PartitionChange};
use crate::command::refusals::{invalid, not_found, refused};
use crate::placement::migrate::{Phase, phase};
use crate::state::events::EventKind;
use crate::state::migration::{Migration, MigrationId, MoveKind, Stage};
use crate::state::protocols::WRITTEN_BOUNDS_SINCE;
use crate::state::response::Response;
use crate::state::{ClusterState, MIGRATIONS_KEPT};
use archon_types::limits::PLAN_MOVES_MAX;
use archon_types::{ErrorDetail, ErrorKind, ReplicaState, Version};
use std::collections::BTreeSet;

pub(super) fn start_plan(
    state: &mut ClusterState,
    entry: Entry<'_>,
    made_for: (Version, Version),
    moves: &[PlannedMove],
) -> Result<Response, ErrorDetail> {
    let active = state.migrations.active_count();
    if active > 0 {
        let message = format!("{active} moves of an earlier plan are under way; wait for them or cancel them");
        return Err(ErrorDetail::new(ErrorKind::AssignmentInProgress, message));
    }
    let (table_version, moves_version) = made_for;
    let now = state.table_version();
    if now != table_version {
        let message = format!(
            "the plan is for table version {table_version}, but the table is at {now}; make a new \
                               plan"
        );
        return Err(ErrorDetail::new(ErrorKind::StalePlan, message)
            .with_have_need(now.get(), table_version.get())
            .with_table_version(now));
    }
    let now = state.moves_version;
    if now != moves_version {
        let message = format!(
            "the plan is for table version {table_version} and version {moves_version} of the moves, but these are at \
             {now}; make a new plan"
        );
        return Err(ErrorDetail::new(ErrorKind::StalePlan, message).with_have_need(now.get(), moves_version.get()));
    }
    // Members that speak an earlier protocol apply longer ones.
    let max = if state.protocol >= WRITTEN_BOUNDS_SINCE { PLAN_MOVES_MAX } else { 2 * PLAN_MOVES_MAX };
    if moves.len() > max {
        return Err(invalid(format!("the plan has {} moves; the limit is {max}", moves.len())));
    }
    let (mut seen, mut led) = (BTreeSet::new(), BTreeSet::new());
    for planned in moves {
        check_move(state, planned)?;
        let fresh = match planned.kind {
            MoveKind::Copy => seen.insert(planned.placement),
            MoveKind::Leadership => led.insert(planned.partition),
        };
        if !fresh {
            return Err(invalid(format!("the plan moves placement {} twice", planned.placement)));
        }
    }
    let first = MigrationId::new(state.migration_last + 1);
    for planned in moves {
        state.migration_last += 1;
        state.migrations.insert(Migration {
            id: MigrationId::new(state.migration_last),
            plan: entry.index,
            kind: planned.kind,
            partition: planned.partition,
            source: planned.placement,
            from: planned.from,
            to: planned.to,
            reason: planned.reason.clone(),
            bytes: planned.bytes,
            stage: Stage::Queued,
            cancel: false,
            asked_at: entry.at,
            changed_at: entry.at,
        });
    }
    state.moves_version = entry.version();
    state.migrations.trim(MIGRATIONS_KEPT.max(moves.len()));
    let count = u32::try_from(moves.len()).unwrap_or(u32::MAX);
    entry.note(state, EventKind::PlanStarted { moves: count });
    Ok(Response::PlanStarted { first, count })
}

fn check_move(state: &ClusterState, planned: &PlannedMove) -> Result<(), ErrorDetail> {
    let PlannedMove { partition, placement, from, to, .. } = planned;
    let Some(row) = state.partitions.get(*partition) else {
        return Err(not_found(format!("partition {partition} does not exist")));
    };
    let name = state.partition_name(*partition);
    if state.is_lease(partition.table) {
        return Err(refused(format!("partition {name} is a lease; its table keeps itself even, without a plan")));
    }
    // The place of a leadership depends on the moves before it: it is checked when its turn comes.
    if planned.kind == MoveKind::Copy {
        let source = row.placement(*placement).filter(|source| source.node == *from);
        if source.is_none_or(|source| source.state == ReplicaState::Unload) {
            return Err(not_found(format!(
                "{} holds no placement {placement} of partition {name}",
                state.node_name(*from)
            )));
        }
    }
    if from == to || state.node(*to).is_none() {
        let (from, to) = (state.node_name(*from), state.node_name(*to));
        return Err(invalid(format!("partition {name} cannot be moved from {from} to {to}")));
    }
    Ok(())
}

pub(super) fn set(
    state: &mut ClusterState,
    entry: Entry<'_>,
    id: MigrationId,
    stage: &Stage,
    change: Option<&PartitionChange>,
) -> Result<Response, ErrorDetail> {
    let Some(migration) = state.migrations.get(id) else {
        return Err(not_found(format!("there is no migration {id}")));
    };
    check_step(state, migration, stage, change)?;
    let mut staged = StagedRows::new(state, entry);
    if let Some(change) = change {
        staged.change(change)?;
    }
    let mut migration = migration.clone();
    staged.into_effect().commit(state, entry);
    migration.stage = stage.clone();
    migration.changed_at = entry.at;
    if stage.is_over() {
        let outcome = match stage {
            Stage::Superseded { why } => format!("given up: {why}"),
            Stage::Failed { why } => format!("failed: {why}"),
            Stage::Cancelled => "cancelled".to_owned(),
            Stage::Done { .. } | Stage::Queued | Stage::Running { .. } => "done".to_owned(),
        };
        entry.note(state, EventKind::MigrationOver { migration: id, partition: migration.partition, outcome });
    }
    state.migrations.insert(migration);
    state.moves_version = entry.version();
    entry.done()
}

/// Checks a stage change: Queued → Running, Cancelled, Superseded, Failed; Running → Done, Cancelled, Superseded,
/// Failed. The move of a leadership may also return from Running to Queued, having changed nothing.
fn check_step(
    state: &ClusterState,
    migration: &Migration,
    next: &Stage,
    change: Option<&PartitionChange>,
) -> Result<(), ErrorDetail> {
    let id = migration.id;
    if change.is_some_and(|change| change.partition != migration.partition) {
        return Err(invalid(format!("migration {id} moves partition {}, not another", migration.partition)));
    }
    match (&migration.stage, next) {
        (Stage::Queued, Stage::Running { target }) => {
            if migration.kind == MoveKind::Leadership {
                let row = state.partitions.get(migration.partition);
                let counts = row.and_then(|row| row.live().find(|live| live.id == *target));
                if change.is_some() || counts.is_none_or(|target| target.node != migration.to) {
                    return Err(refused(format!("placement {target} cannot take the leadership of migration {id}")));
                }
            }
            let adds = |edit: &Edit| matches!(edit, Edit::Add(p) if p.id == *target && p.node == migration.to);
            if migration.kind == MoveKind::Copy && !change.is_some_and(|change| change.edits.iter().any(adds)) {
                return Err(invalid(format!("migration {id} begins without adding its target")));
            }
            if let Some(other) = state.migrations.running(migration.partition) {
                return Err(refused(format!("migration {} moves partition {} now", other.id, migration.partition)));
            }
            Ok(())
        }
        (Stage::Queued | Stage::Running { .. }, Stage::Cancelled | Stage::Superseded { .. } | Stage::Failed { .. }) => {
            Ok(())
        }
        (Stage::Running { .. }, Stage::Queued) if migration.kind == MoveKind::Leadership && change.is_none() => Ok(()),
        (Stage::Running { target }, Stage::Done { target: made }) if target == made => Ok(()),
        // Another change moved the leadership there.
        (Stage::Queued, Stage::Done { .. }) if migration.kind == MoveKind::Leadership => Ok(()),
        (now, next) => Err(refused(format!("migration {id} cannot go from {now:?} to {next:?}"))),
    }
}

pub(super) fn cancel_plan(state: &mut ClusterState, entry: Entry<'_>) -> Result<Response, ErrorDetail> {
    let active: Vec<Migration> = state.migrations.active().cloned().collect();
    if active.is_empty() {
        return Err(ErrorDetail::new(ErrorKind::NothingRunning, "no rebalance is running"));
    }
    let moves_left = u32::try_from(active.len()).unwrap_or(u32::MAX);
    let open =
        |migration: &&Migration| matches!(phase(state, migration), Phase::Queued | Phase::Copying | Phase::InSync);
    let undone = u32::try_from(active.iter().filter(open).count()).unwrap_or(u32::MAX);
    let cancelled = Response::PlanCancelled { undone, too_late: moves_left - undone };
    for mut migration in active {
        migration.cancel = true;
        migration.changed_at = entry.at;
        if migration.stage == Stage::Queued {
            migration.stage = Stage::Cancelled;
        }
        state.migrations.insert(migration);
    }
    state.moves_version = entry.version();
    entry.note(state, EventKind::PlanCancelled { moves_left });
    Ok(cancelled)
}

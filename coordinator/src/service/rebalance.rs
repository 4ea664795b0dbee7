//! Plans and moves between the core's words and the wire's.

use crate::load::Loads;
use archon_coordinator_core::{ClusterState, Command, Migration, MoveKind, Phase, Plan, PlannedMove, Subject, phase};
use archon_proto::convert::admin;
use archon_proto::v1;
use archon_types::PlacementId;

/// A plan with the bytes that the nodes' loads tell, for people and for `ApplyPlan`.
pub(crate) fn plan_to_wire(state: &ClusterState, loads: &Loads, plan: &Plan) -> v1::Plan {
    let moves = plan.moves.iter().map(|planned| admin::Move {
        partition: planned.partition,
        from: planned.from,
        to: planned.to,
        bytes: match planned.kind {
            MoveKind::Copy => loads.bytes(planned.from, planned.placement),
            MoveKind::Leadership => 0,
        },
        reason: planned.reason.to_string(),
        from_name: state.node_name(planned.from),
        to_name: state.node_name(planned.to),
        leadership: planned.kind == MoveKind::Leadership,
    });
    let unmet = plan.unmet.iter().map(|unmet| admin::Unmet {
        code: code(&format!("{:?}", unmet.reason)),
        subject: match unmet.subject {
            Subject::Node(node) => format!("node {}", state.node_name(node)),
            Subject::Table(table) => {
                format!("table {}", state.tables.get(&table).map_or_else(|| table.to_string(), |row| row.name.clone()))
            }
        },
        message: unmet.reason.to_string(),
    });
    admin::Plan { table_version: plan.table_version, moves: moves.collect(), unmet: unmet.collect() }.into()
}

/// The variant's name out of its debug form.
fn code(debug: &str) -> String {
    debug.chars().take_while(char::is_ascii_alphanumeric).collect()
}

/// The command that carries out a plan that came from the wire. A move whose source holds nothing keeps placement zero,
/// which applying refuses after it compared the plan's version.
pub(crate) fn plan_to_command(state: &ClusterState, plan: admin::Plan) -> Command {
    let moves = plan.moves.into_iter().map(|planned| {
        let row = state.partition(planned.partition);
        let source = row.and_then(|row| row.placement_on(planned.from));
        PlannedMove {
            kind: if planned.leadership { MoveKind::Leadership } else { MoveKind::Copy },
            partition: planned.partition,
            placement: source.map_or(PlacementId::ZERO, |source| source.id),
            from: planned.from,
            to: planned.to,
            reason: planned.reason,
            bytes: planned.bytes,
        }
    });
    Command::StartPlan { table_version: plan.table_version, moves: moves.collect() }
}

/// The moves of the plan that runs, or of the last one.
pub(crate) fn of_last_plan(state: &ClusterState) -> Vec<&Migration> {
    let last = state.migrations.iter().map(|migration| migration.plan).max();
    state.migrations.iter().filter(|migration| Some(migration.plan) == last).collect()
}

/// A move as people read it.
pub(crate) fn migration_to_wire(state: &ClusterState, loads: &Loads, migration: &Migration) -> v1::Migration {
    let phase = phase(state, migration);
    let copied = migration.stage.target().and_then(|target| loads.copied(migration.to, target)).unwrap_or_default();
    let percent = match &phase {
        Phase::Queued | Phase::Cancelled | Phase::Superseded { .. } | Phase::Failed { .. } => 0,
        // The last tenth is what follows the copy.
        Phase::Copying => copied.percent() * 9 / 10,
        Phase::InSync => 92,
        Phase::HandOff => 95,
        Phase::Cleanup => 98,
        Phase::Done => 100,
    };
    let why = match &phase {
        Phase::Superseded { why } | Phase::Failed { why } => why.clone(),
        Phase::Done | Phase::Cancelled => migration.reason.clone(),
        _ => archon_coordinator_core::waiting_for(state, migration).unwrap_or_else(|| migration.reason.clone()),
    };
    // Of a copy that is whole, its node tells the size; until then there is the plan's estimate.
    let stored = migration.stage.target().map_or(0, |target| loads.bytes(migration.to, target));
    let bytes_total = match (migration.kind, &phase) {
        (MoveKind::Leadership, _) => 0,
        (MoveKind::Copy, Phase::InSync | Phase::HandOff | Phase::Cleanup | Phase::Done) if stored > 0 => stored,
        (MoveKind::Copy, _) => migration.bytes.max(copied.total),
    };
    let bytes_done = match phase {
        Phase::Queued | Phase::Copying | Phase::Cancelled | Phase::Superseded { .. } | Phase::Failed { .. } => {
            copied.done
        }
        Phase::InSync | Phase::HandOff | Phase::Cleanup | Phase::Done => bytes_total,
    };
    v1::Migration {
        id: migration.id.get(),
        partition: Some(migration.partition.into()),
        from_name: state.node_name(migration.from),
        to_name: state.node_name(migration.to),
        leadership: migration.kind == MoveKind::Leadership,
        phase: phase.name().to_owned(),
        percent,
        why,
        bytes_done,
        bytes_total,
    }
}

/// How many of the moves under way a cancellation still undoes, and how many are past that.
pub(crate) fn cancellable(state: &ClusterState) -> (u32, u32) {
    let (mut undone, mut too_late) = (0, 0);
    for migration in state.migrations.active() {
        match phase(state, migration) {
            Phase::Queued | Phase::Copying | Phase::InSync => undone += 1,
            _ => too_late += 1,
        }
    }
    (undone, too_late)
}

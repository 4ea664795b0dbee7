//! Plans and moves between the core's words and the wire's. What a plan or a page of moves holds is taken from the state in
//! one short look; sizes are added in another, and words are made of it when nothing is locked.

use super::{reshapings, subjects};
use crate::load::{Copied, Loads};
use archon_coordinator_core::{
    ClusterState, Command, Migration, MigrationId, MoveReason, Phase, PlanSummary, PlannedMove, Reshaping, Subject,
    UnmetReason, Waits, phase,
};
use archon_documents::{MoveStatus, RebalancePage, RebalanceStatus, RebalanceSummary, Reshaping as Reshaped};
use archon_proto::v1;
use archon_types::plan::{Move, Plan, Unmet};
use archon_types::{MoveCode, MoveKind, NodeId, PlacementId, UnmetCode};
use parking_lot::Mutex;

/// Most moves of which the sizes are looked up at once: heartbeats want the same lock.
const SIZES_AT_ONCE: usize = 256;

/// A plan in the wire's words, but for the bytes, which change without it.
pub(crate) struct Planned {
    plan: Plan,
    /// The copy whose size is to be told, for each move that copies.
    copies: Vec<Option<(NodeId, PlacementId)>>,
}

impl Planned {
    /// A plan with the names of what it moves.
    pub(crate) fn new(state: &ClusterState, plan: &archon_coordinator_core::Plan) -> Self {
        let moves = plan.moves.iter().map(|planned| Move {
            kind: planned.kind.into(),
            table_id: planned.partition.table,
            table: subjects::table_name(state, planned.partition.table),
            partition: planned.partition.index,
            from_id: planned.from,
            from: state.node_name(planned.from),
            to_id: planned.to,
            to: state.node_name(planned.to),
            bytes_total: 0,
            code: move_code(planned.reason).into(),
            message: planned.reason.to_string(),
        });
        let unmet = plan.unmet.iter().map(|unmet| Unmet {
            code: unmet_code(unmet.reason).into(),
            subject: match unmet.subject {
                Subject::Node(node) => subjects::node(state, node),
                Subject::Table(table) => subjects::table(state, table),
            },
            message: unmet.reason.to_string(),
        });
        let copied = |kind: MoveKind| kind == MoveKind::Copy;
        Self {
            copies: plan.moves.iter().map(|step| copied(step.kind).then_some((step.from, step.placement))).collect(),
            plan: Plan {
                table_version: plan.table_version,
                moves_version: plan.moves_version,
                moves: moves.collect(),
                unmet: unmet.collect(),
            },
        }
    }

    /// The plan with the bytes that the nodes' loads tell now, for people and for `ApplyPlan`.
    pub(crate) fn to_wire(&self, loads: &Mutex<Loads>) -> v1::Plan {
        let mut plan = self.plan.clone();
        for (moves, copies) in plan.moves.chunks_mut(SIZES_AT_ONCE).zip(self.copies.chunks(SIZES_AT_ONCE)) {
            let loads = loads.lock();
            for (planned, copy) in moves.iter_mut().zip(copies) {
                planned.bytes_total = copy.map_or(0, |(node, placement)| loads.bytes(node, placement));
            }
        }
        plan.into()
    }
}

const fn move_code(reason: MoveReason) -> MoveCode {
    match reason {
        MoveReason::Balance { .. } => MoveCode::Balance,
        MoveReason::Lead { .. } => MoveCode::Lead,
        MoveReason::PassOn { .. } => MoveCode::PassOn,
        MoveReason::MakeRoom => MoveCode::MakeRoom,
    }
}

const fn unmet_code(reason: UnmetReason) -> UnmetCode {
    match reason {
        UnmetReason::NotEmptied { .. } => UnmetCode::NotEmptied,
        UnmetReason::AboveShare { .. } => UnmetCode::AboveShare,
        UnmetReason::NotAssigned { .. } => UnmetCode::NotAssigned,
        UnmetReason::ZonesDoubled { .. } => UnmetCode::ZonesDoubled,
        UnmetReason::NotAlive { .. } => UnmetCode::NotAlive,
    }
}

/// The command that carries out a plan that came from the wire. A move whose source holds nothing keeps placement zero,
/// which applying refuses after it compared the plan's version.
pub(crate) fn plan_to_command(state: &ClusterState, plan: Plan) -> Command {
    let moves = plan.moves.into_iter().map(|planned| {
        let row = state.partition(planned.partition_id());
        let source = row.and_then(|row| row.placement_on(planned.from_id));
        PlannedMove {
            // A kind that is not known has been refused with the request.
            kind: planned.kind.known().unwrap_or(MoveKind::Copy),
            partition: planned.partition_id(),
            placement: source.map_or(PlacementId::ZERO, |source| source.id),
            from: planned.from_id,
            to: planned.to_id,
            reason: planned.message,
            bytes: planned.bytes_total,
        }
    });
    let (table_version, moves_version) = (plan.table_version, plan.moves_version);
    Command::StartPlan { table_version, moves_version, moves: moves.collect() }
}

/// One move as the state has it.
pub(crate) struct Shown {
    migration: Migration,
    phase: Phase,
    why: String,
    table: String,
    from: String,
    to: String,
}

impl Shown {
    /// A look at a move.
    pub(crate) fn new(state: &ClusterState, waits: &Waits<'_>, migration: &Migration) -> Self {
        let phase = phase(state, migration);
        let why = match &phase {
            Phase::Superseded { why } | Phase::Failed { why } => why.clone(),
            Phase::Done | Phase::Cancelled => migration.reason.clone(),
            _ => waits.waiting_for(migration).unwrap_or_else(|| migration.reason.clone()),
        };
        let (from, to) = (state.node_name(migration.from), state.node_name(migration.to));
        let table = subjects::table_name(state, migration.partition.table);
        Self { migration: migration.clone(), phase, why, table, from, to }
    }

    fn copy(&self) -> Option<(NodeId, PlacementId)> {
        self.migration.stage.target().map(|target| (self.migration.to, target))
    }

    /// The move as people read it, with what its target's node told of the copy.
    fn summary(self, size: Size) -> MoveStatus {
        let Self { migration, phase, why, table, from, to } = self;
        // Of a copy that is whole, its node tells the size; until then there is the plan's estimate.
        let bytes_total = match (migration.kind, &phase) {
            (MoveKind::Leadership, _) => 0,
            (MoveKind::Copy, Phase::InSync | Phase::HandOver | Phase::Cleanup | Phase::Done) if size.stored > 0 => {
                size.stored
            }
            (MoveKind::Copy, _) => migration.bytes.max(size.copied.total),
        };
        let bytes_done = match phase {
            Phase::Queued | Phase::Copying | Phase::Cancelled | Phase::Superseded { .. } | Phase::Failed { .. } => {
                size.copied.done
            }
            Phase::InSync | Phase::HandOver | Phase::Cleanup | Phase::Done => bytes_total,
        };
        MoveStatus {
            id: migration.id.get(),
            kind: migration.kind.into(),
            table_id: migration.partition.table.get(),
            table,
            partition: migration.partition.index,
            from_id: migration.from.get(),
            from,
            to_id: migration.to.get(),
            to,
            phase: phase.word().into(),
            percent: percent(&phase, size.copied),
            message: why,
            bytes_done,
            bytes_total,
        }
    }
}

/// What a node told of a copy.
#[derive(Clone, Copy, Default)]
struct Size {
    copied: Copied,
    stored: u64,
}

impl Size {
    fn of(loads: &Loads, copy: Option<(NodeId, PlacementId)>) -> Self {
        let Some((node, placement)) = copy else { return Self::default() };
        Self { copied: loads.copied(node, placement).unwrap_or_default(), stored: loads.bytes(node, placement) }
    }
}

fn percent(phase: &Phase, copied: Copied) -> u32 {
    match phase {
        Phase::Queued | Phase::Cancelled | Phase::Superseded { .. } | Phase::Failed { .. } => 0,
        // The last tenth is what follows the copy.
        Phase::Copying => copied.percent() * 9 / 10,
        Phase::InSync => 92,
        Phase::HandOver => 95,
        Phase::Cleanup => 98,
        Phase::Done => 100,
    }
}

/// One move as people read it.
pub(crate) fn move_status(state: &ClusterState, loads: &Loads, migration: &Migration) -> MoveStatus {
    let shown = Shown::new(state, &Waits::new(state), migration);
    let size = Size::of(loads, shown.copy());
    shown.summary(size)
}

/// One move that runs.
struct UnderWay {
    phase: Phase,
    /// What is copied, and where.
    copy: Option<(NodeId, PlacementId)>,
    /// How much that is, by the plan.
    bytes: u64,
}

/// The moves of the present or last plan as the state has them: all counted, those that run, and a page of them.
pub(crate) struct Progress {
    running: bool,
    summary: PlanSummary,
    under_way: Vec<UnderWay>,
    page: Vec<Shown>,
    more: bool,
    /// Splits and merges, and how many there are in all.
    reshapings: Vec<reshapings::Shown>,
    reshapings_total: usize,
}

impl Progress {
    /// A look at `most` moves with numbers above `after`, and at those that run.
    pub(crate) fn new(state: &ClusterState, most: usize, after: MigrationId) -> Self {
        let summary = PlanSummary::of(state);
        let running = state.migrations.all_running().filter(|migration| migration.plan == summary.plan);
        let under_way = running.map(|migration| {
            let copy = migration.stage.target().map(|target| (migration.to, target));
            let bytes = if migration.kind == MoveKind::Copy { migration.bytes } else { 0 };
            UnderWay { phase: phase(state, migration), copy, bytes }
        });
        let waits = Waits::new(state);
        let mut moves = state.migrations.of_newest_plan(after);
        let page = moves.by_ref().take(most).map(|migration| Shown::new(state, &waits, migration)).collect();
        Self {
            running: state.migrations.active_count() > 0,
            summary,
            under_way: under_way.collect(),
            page,
            more: moves.next().is_some(),
            reshapings: reshapings::Shown::first(state),
            reshapings_total: Reshaping::count(state),
        }
    }

    /// As people read it, with what the nodes told of the copies.
    pub(crate) fn page(self, loads: &Mutex<Loads>) -> RebalancePage {
        let (copied, sizes, reshapings): (Vec<Copied>, Vec<Size>, Vec<Reshaped>) = {
            let loads = loads.lock();
            let copied = self.under_way.iter().map(|running| Size::of(&loads, running.copy).copied);
            let sizes = self.page.iter().map(|shown| Size::of(&loads, shown.copy()));
            let reshapings = self.reshapings.into_iter().map(|shown| shown.summary(&loads));
            (copied.collect(), sizes.collect(), reshapings.collect())
        };
        let PlanSummary { plan, queued, copying, in_sync, hand_over, cleanup, .. } = self.summary;
        let (moves, mut percents) = (self.summary.moves(), u64::from(self.summary.over()) * 100);
        let mut bytes_done = self.summary.bytes_done;
        for (running, copied) in self.under_way.iter().zip(copied) {
            percents += u64::from(percent(&running.phase, copied));
            bytes_done = bytes_done.saturating_add(match running.phase {
                Phase::Copying => copied.done.min(running.bytes),
                _ => running.bytes,
            });
        }
        let summary = RebalanceSummary {
            plan_id: plan,
            moves_total: moves,
            queued,
            copying,
            in_sync,
            hand_over,
            cleanup,
            done: self.summary.done,
            cancelled: self.summary.cancelled,
            superseded: self.summary.superseded,
            failed: self.summary.failed,
            percent: u32::try_from(percents / u64::from(moves.max(1))).unwrap_or(100),
            bytes_done,
            bytes_total: self.summary.bytes_open.saturating_add(self.summary.bytes_done),
        };
        let status = RebalanceStatus {
            running: self.running,
            summary,
            moves: self.page.into_iter().zip(sizes).map(|(shown, size)| shown.summary(size)).collect(),
            reshapings,
            reshapings_total: u32::try_from(self.reshapings_total).unwrap_or(u32::MAX),
        };
        RebalancePage { status, more: self.more }
    }
}

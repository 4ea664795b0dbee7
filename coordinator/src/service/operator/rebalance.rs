//! Conversion of plans and moves between core and documents. The content of a plan or a page of moves is read from the state
//! in one short access; sizes are added in another, and texts are made without a lock.

use crate::leader::load::{CopyProgress, Loads};
use crate::service::ranges::range_changes;
use archon_coordinator_core::{
    ClusterState, Command, Migration, MigrationId, MoveReason, Phase, PlanSummary, PlannedMove, RangeChange, Subject,
    UnmetReason, Waits, phase,
};
use archon_documents::{MoveStatus, RangeChangeStatus as Reshaped, RebalancePage, RebalanceStatus, RebalanceSummary};
use archon_types::limits::PLAN_UNMET_MAX;
use archon_types::plan::{Move, Plan, UnknownFields, UnmetGoal};
use archon_types::{MoveCode, MoveKind, NodeId, PlacementId, UnmetCode};
use parking_lot::Mutex;

/// Maximum number of moves for which sizes are read at once: heartbeats need the same lock.
const SIZES_AT_ONCE: usize = 256;

/// A plan with names, without the sizes, which change independently.
pub(crate) struct NamedPlan {
    plan: Plan,
    /// The replica with the size to report, for each move that copies.
    copies: Vec<Option<(NodeId, PlacementId)>>,
}

impl NamedPlan {
    /// Creates a plan with names.
    pub(crate) fn new(state: &ClusterState, plan: &archon_coordinator_core::Plan) -> Self {
        let moves = plan.moves.iter().map(|planned| Move {
            kind: planned.kind.into(),
            table_id: planned.partition.table,
            table: state.table_text(planned.partition.table),
            partition: planned.partition.index,
            from_id: planned.from,
            from: state.node_name(planned.from),
            to_id: planned.to,
            to: state.node_name(planned.to),
            bytes_total: 0,
            code: move_code(planned.reason).into(),
            message: planned.reason.to_string(),
            unknown: UnknownFields::new(),
        });
        let unmet = plan.unmet.iter().map(|unmet| UnmetGoal {
            code: unmet_code(unmet.reason).into(),
            subject: match unmet.subject {
                Subject::Node(node) => state.node_subject(node),
                Subject::Table(table) => state.table_subject(table),
            },
            message: unmet.reason.to_string(),
            unknown: UnknownFields::new(),
        });
        let copied = |kind: MoveKind| kind == MoveKind::Copy;
        Self {
            copies: plan.moves.iter().map(|step| copied(step.kind).then_some((step.from, step.placement))).collect(),
            plan: Plan {
                table_version: plan.table_version,
                moves_version: plan.moves_version,
                moves: moves.collect(),
                unmet: bounded(unmet),
                unknown: UnknownFields::new(),
            },
        }
    }

    /// Returns the plan with the sizes in the nodes' present loads, for people and for `ApplyPlan`.
    pub(crate) fn with_sizes(&self, loads: &Mutex<Loads>) -> Plan {
        let mut plan = self.plan.clone();
        for (moves, copies) in plan.moves.chunks_mut(SIZES_AT_ONCE).zip(self.copies.chunks(SIZES_AT_ONCE)) {
            let loads = loads.lock();
            for (planned, copy) in moves.iter_mut().zip(copies) {
                planned.bytes_total = copy.map_or(0, |(node, placement)| loads.bytes(node, placement));
            }
        }
        plan
    }
}

/// Returns these goals, and instead of those above the limit of a plan one that counts them.
fn bounded(mut unmet: impl ExactSizeIterator<Item = UnmetGoal>) -> Vec<UnmetGoal> {
    let all = unmet.len();
    if all <= PLAN_UNMET_MAX {
        return unmet.collect();
    }
    let mut listed: Vec<UnmetGoal> = unmet.by_ref().take(PLAN_UNMET_MAX - 1).collect();
    let more = all - listed.len();
    let message = format!("{more} more goals cannot be met");
    listed.extend(unmet.next().map(|next| UnmetGoal {
        subject: archon_types::subject::Subject::Cluster,
        message,
        ..next
    }));
    listed
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

/// Returns the command that applies a plan of a request. A move without a replica at its source keeps placement zero,
/// which applying refuses after it compared the plan's version.
pub(crate) fn plan_to_command(state: &ClusterState, plan: &Plan) -> Command {
    let moves = plan.moves.iter().map(|planned| {
        let row = state.partition(planned.partition_id());
        let source = row.and_then(|row| row.placement_on(planned.from_id));
        PlannedMove {
            // An unknown kind was refused with the request.
            kind: planned.kind.known().unwrap_or(MoveKind::Copy),
            partition: planned.partition_id(),
            placement: source.map_or(PlacementId::ZERO, |source| source.id),
            from: planned.from_id,
            to: planned.to_id,
            reason: planned.message.clone(),
            bytes: planned.bytes_total,
        }
    });
    let (table_version, moves_version) = (plan.table_version, plan.moves_version);
    Command::StartPlan { table_version, moves_version, moves: moves.collect() }
}

/// One move in the state.
pub(crate) struct MoveSnapshot {
    migration: Migration,
    phase: Phase,
    why: String,
    table: String,
    from: String,
    to: String,
}

impl MoveSnapshot {
    /// Reads a move.
    pub(crate) fn new(state: &ClusterState, waits: &Waits<'_>, migration: &Migration) -> Self {
        let phase = phase(state, migration);
        let why = match &phase {
            Phase::Superseded { why } | Phase::Failed { why } => why.clone(),
            Phase::Done | Phase::Cancelled => migration.reason.clone(),
            _ => waits.waiting_for(migration).unwrap_or_else(|| migration.reason.clone()),
        };
        let (from, to) = (state.node_name(migration.from), state.node_name(migration.to));
        let table = state.table_text(migration.partition.table);
        Self { migration: migration.clone(), phase, why, table, from, to }
    }

    fn copy(&self) -> Option<(NodeId, PlacementId)> {
        self.migration.stage.target().map(|target| (self.migration.to, target))
    }

    /// Returns the move for people, with the size that its target's node reported.
    fn summary(self, size: Size) -> MoveStatus {
        let Self { migration, phase, why, table, from, to } = self;
        // After the copy is complete, its node reports the size; until then the plan's estimate counts.
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

/// Progress of a replica as reported by a node.
#[derive(Clone, Copy, Default)]
struct Size {
    copied: CopyProgress,
    stored: u64,
}

impl Size {
    fn of(loads: &Loads, copy: Option<(NodeId, PlacementId)>) -> Self {
        let Some((node, placement)) = copy else { return Self::default() };
        Self { copied: loads.copied(node, placement).unwrap_or_default(), stored: loads.bytes(node, placement) }
    }
}

fn percent(phase: &Phase, copied: CopyProgress) -> u32 {
    match phase {
        Phase::Queued | Phase::Cancelled | Phase::Superseded { .. } | Phase::Failed { .. } => 0,
        // The last tenth covers the steps after the copy.
        Phase::Copying => copied.percent() * 9 / 10,
        Phase::InSync => 92,
        Phase::HandOver => 95,
        Phase::Cleanup => 98,
        Phase::Done => 100,
    }
}

/// Returns one move for people.
pub(crate) fn move_status(state: &ClusterState, loads: &Loads, migration: &Migration) -> MoveStatus {
    let shown = MoveSnapshot::new(state, &Waits::new(state), migration);
    let size = Size::of(loads, shown.copy());
    shown.summary(size)
}

/// One running move.
struct RunningMove {
    phase: Phase,
    /// The replica that is copied, and its node.
    copy: Option<(NodeId, PlacementId)>,
    /// Size of the replica according to the plan.
    bytes: u64,
}

/// The moves of the present or last plan in the state: counts of all, the running ones, and a page.
pub(crate) struct Progress {
    running: bool,
    summary: PlanSummary,
    under_way: Vec<RunningMove>,
    page: Vec<MoveSnapshot>,
    more: bool,
    /// Splits and merges, and their total number.
    reshapings: Vec<range_changes::RangeChangeSnapshot>,
    reshapings_total: usize,
}

impl Progress {
    /// Reads `most` moves with numbers above `after`, and the running ones.
    pub(crate) fn new(state: &ClusterState, most: usize, after: MigrationId) -> Self {
        let summary = PlanSummary::of(state);
        let running = state.migrations.all_running().filter(|migration| migration.plan == summary.plan);
        let under_way = running.map(|migration| {
            let copy = migration.stage.target().map(|target| (migration.to, target));
            let bytes = if migration.kind == MoveKind::Copy { migration.bytes } else { 0 };
            RunningMove { phase: phase(state, migration), copy, bytes }
        });
        let waits = Waits::new(state);
        let mut moves = state.migrations.of_newest_plan(after);
        let page = moves.by_ref().take(most).map(|migration| MoveSnapshot::new(state, &waits, migration)).collect();
        Self {
            running: state.migrations.active_count() > 0,
            summary,
            under_way: under_way.collect(),
            page,
            more: moves.next().is_some(),
            reshapings: range_changes::RangeChangeSnapshot::first(state),
            reshapings_total: RangeChange::count(state),
        }
    }

    /// Returns the page for people, with the replica sizes that nodes reported.
    pub(crate) fn page(self, loads: &Mutex<Loads>) -> RebalancePage {
        let (copied, sizes, reshapings): (Vec<CopyProgress>, Vec<Size>, Vec<Reshaped>) = {
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

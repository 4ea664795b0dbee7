//! Steps of a migration. Each is one commit that changes the partition's row and the migration's record together;
//! between two of them lies a node's report. Any coordinator can take the next step from state alone.
//!
//! | phase | seen from | next step |
//! |---|---|---|
//! | Queued | record | add the target as Load, when source and target are below the copy limit |
//! | Copying | target is Load | the leader reports `CaughtUp`: Promote |
//! | InSync | target is Live, source leads | the leader is ordered to hand over; its `Released` moves the leadership in one commit |
//! | HandOver | target leads (or source never led) | the leader reports Online: source becomes Unload |
//! | Cleanup | source is Unload | its node reports Unloaded: Forget, Done |
//!
//! The move of a leadership alone uses only the steps InSync and HandOver: its target is Live already, and nothing is
//! removed.
//!
//! A move made pointless by other changes (a failover moved the leadership, the copy is gone) is Superseded: it ends
//! where it is, without a failure. One with a target that is down is Failed.
//!
//! Until the leadership has moved, a cancelled or failed migration is undone by unloading the target. After that it
//! only goes forward (PROTOCOL rule 7).

pub(crate) mod phase;

pub use phase::{Phase, phase};

use crate::command::Command;
use crate::command::edit::{Edit, PartitionChange};
use crate::leases::hand_over;
use crate::mutant::Mutant;
use crate::placement::out_of_sync::{is_lost, may_go};
use crate::state::ClusterState;
use crate::state::migration::{Migration, MoveKind, Stage};
use archon_types::{NodeGoal, NodeId, NodeStatus, Partition, PartitionStatus, Placement, PlacementId, ReplicaState};

/// Returns the copy to which this partition's leader should hand over now: the target of a migration that has reached
/// that step, or another in-sync copy if the leader's node gives up its leaderships.
pub(crate) fn hands_over(state: &ClusterState, row: &Partition) -> Option<PlacementId> {
    let leader = row.leader_placement()?;
    if state.is_lease(row.id.table) {
        return hand_over::hands_over(state, row, leader);
    }
    if let Some(migration) = state.migrations.running(row.id).filter(|migration| !migration.cancel) {
        let leads = match migration.kind {
            MoveKind::Copy => leader.id == migration.source,
            MoveKind::Leadership => leader.node == migration.from,
        };
        let target = migration.stage.target().filter(|_| leads).and_then(|target| row.placement(target));
        if let Some(target) = target
            && target.state == ReplicaState::Live
            && state.is_active(target.node)
        {
            return Some(target.id);
        }
    }
    let goal_of = |placement: &Placement| state.node(placement.node).map(|node| node.node.goal);
    let leaves = goal_of(leader).is_some_and(NodeGoal::gives_up_leaderships) || state.bars(row.id, leader.node);
    if !leaves || state.is_offline(row.id) {
        return None;
    }
    // Stable over calls, and spread over partitions.
    let others = |goal: NodeGoal| {
        let able = |live: &&Placement| {
            goal_of(live) == Some(goal) && state.is_active(live.node) && !state.bars(row.id, live.node)
        };
        row.live().filter(able).map(|live| live.id).collect::<Vec<_>>()
    };
    let mut able = others(NodeGoal::Serve);
    if able.is_empty() {
        able = others(NodeGoal::Cordon);
    }
    let place = (row.id.index as usize).checked_rem(able.len())?;
    able.get(place).copied()
}

const TOO_FEW: &str = "too few replicas on nodes that are alive would remain";

/// Next step of a migration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum MigrationStep {
    /// Commit this.
    Step(Command),
    /// Add the target, when the copy limit allows it and there is a placement number for it.
    Begin,
    /// Commit this, which begins the move of a leadership, unless too many are in progress.
    Lead(Command),
    /// No step, for this reason.
    Wait(String),
}

/// Returns the next step of an unfinished migration, as far as it follows from state alone.
pub(crate) fn next(state: &ClusterState, migration: &Migration) -> MigrationStep {
    let Some(row) = state.partitions.get(migration.partition) else {
        return set(migration, failed("the partition is gone"), None);
    };
    if migration.kind == MoveKind::Leadership && !migration.stage.is_over() {
        return leadership(state, migration, row);
    }
    match &migration.stage {
        Stage::Queued => queued(state, migration, row),
        Stage::Running { target } => running(state, migration, row, *target),
        Stage::Done { .. } | Stage::Cancelled | Stage::Superseded { .. } | Stage::Failed { .. } => {
            MigrationStep::Wait("it is over".into())
        }
    }
}

fn queued(state: &ClusterState, migration: &Migration, row: &Partition) -> MigrationStep {
    if migration.cancel {
        return set(migration, Stage::Cancelled, None);
    }
    if is_gone(state, row, migration.source) {
        return set(migration, superseded("the replica to be moved is gone"), None);
    }
    if row.live().next().is_none() {
        return set(migration, failed("no in-sync replica of the partition is left"), None);
    }
    if let Some(why) = target_is_down(state, migration) {
        return set(migration, failed(why), None);
    }
    if let Some(other) = row.placement_on(migration.to) {
        return match other.state {
            ReplicaState::Unload => {
                MigrationStep::Wait(format!("an old replica on {} is being deleted", name(state, migration.to)))
            }
            ReplicaState::Load | ReplicaState::Live => {
                set(migration, superseded("the target node holds a replica already"), None)
            }
        };
    }
    if state.migrations.running(row.id).is_some() {
        return MigrationStep::Wait("another replica of the partition is being moved".into());
    }
    if row.split.is_some() {
        return MigrationStep::Wait("the partition is being split".into());
    }
    if row.merge.is_some() {
        return MigrationStep::Wait("the partition is being merged".into());
    }
    if let Some(why) = not_served(state, row) {
        return MigrationStep::Wait(why);
    }
    if !state.is_active(migration.to) {
        return MigrationStep::Wait(format!("{} has just registered", name(state, migration.to)));
    }
    MigrationStep::Begin
}

fn running(state: &ClusterState, migration: &Migration, row: &Partition, id: PlacementId) -> MigrationStep {
    let Some(target) = row.placement(id) else {
        return set(migration, failed("the target's replica is gone"), None);
    };
    let target_node = state.node(target.node).map_or(NodeStatus::Lost, |node| node.node.status);
    match target.state {
        // This migration no longer handles the copy.
        ReplicaState::Load if is_lost(state, id) => set(migration, failed("the target's replica was lost"), None),
        ReplicaState::Unload => set(migration, failed("the target's replica was lost"), None),
        ReplicaState::Load if state.departed.contains_key(&id) && may_go(state, row, id).is_err() => {
            MigrationStep::Wait(TOO_FEW.into())
        }
        ReplicaState::Load if migration.cancel => undo(migration, row, target, Stage::Cancelled),
        ReplicaState::Load if target_node != NodeStatus::Alive => {
            undo(migration, row, target, failed("the target node failed"))
        }
        ReplicaState::Load if is_gone(state, row, migration.source) => {
            undo(migration, row, target, superseded("the replica to be moved is gone"))
        }
        ReplicaState::Load if row.live().next().is_none() => {
            undo(migration, row, target, failed("no in-sync replica of the partition is left"))
        }
        ReplicaState::Load => MigrationStep::Wait(
            not_served(state, row).unwrap_or_else(|| format!("copying to {}", name(state, target.node))),
        ),
        ReplicaState::Live => in_sync(state, migration, row, target, target_node),
    }
}

/// Returns the next step of the move of a leadership to a Live copy.
fn leadership(state: &ClusterState, migration: &Migration, row: &Partition) -> MigrationStep {
    let begun = migration.stage.target();
    if begun.is_none() {
        if migration.cancel {
            return set(migration, Stage::Cancelled, None);
        }
        if state.migrations.first_active(row.id) != Some(migration.id) {
            return MigrationStep::Wait("another replica of the partition is being moved".into());
        }
    }
    let Some(leader) = row.leader_placement() else {
        // If every copy was lost, no leader is elected automatically: the plan must not wait for that forever.
        if row.live().next().is_none() {
            return set(migration, failed("no in-sync replica of the partition is left"), None);
        }
        return MigrationStep::Wait("a leader is being elected".into());
    };
    if leader.node == migration.to {
        return match row.status {
            PartitionStatus::Online => set(migration, Stage::Done { target: leader.id }, None),
            _ => MigrationStep::Wait(format!("{} is taking over", name(state, leader.node))),
        };
    }
    if migration.cancel {
        return set(migration, Stage::Cancelled, None);
    }
    if leader.node != migration.from {
        let why = format!("{} leads the partition now", name(state, leader.node));
        return set(migration, superseded(&why), None);
    }
    if let Some(why) = target_is_down(state, migration) {
        return set(migration, failed(why), None);
    }
    let target = row.placement_on(migration.to).filter(|target| target.state != ReplicaState::Unload);
    let Some(target) = target else {
        let why = format!("{} holds no replica of the partition now", name(state, migration.to));
        return set(migration, superseded(&why), None);
    };
    // A copy that fell behind for a moment is in sync again soon. Others need not wait for it meanwhile: a move that
    // has begun returns to the queue.
    let unable = match target.state {
        ReplicaState::Live if state.is_active(target.node) => None,
        ReplicaState::Live => Some(format!("{} has just registered", name(state, target.node))),
        _ => Some(format!("the replica on {} is catching up", name(state, target.node))),
    };
    match (begun, unable) {
        (None, Some(why)) => MigrationStep::Wait(why),
        (Some(begun), None) if begun == target.id => {
            MigrationStep::Wait(format!("{} is handing over", name(state, leader.node)))
        }
        (Some(_), _) => set(migration, Stage::Queued, None),
        (None, None) => MigrationStep::Lead(Command::SetMigration {
            migration: migration.id,
            stage: Stage::Running { target: target.id },
            change: None,
        }),
    }
}

/// Returns the next step of a migration with a Live target.
fn in_sync(
    state: &ClusterState,
    migration: &Migration,
    row: &Partition,
    target: &Placement,
    target_node: NodeStatus,
) -> MigrationStep {
    let Some(source) = row.placement(migration.source) else {
        return set(migration, Stage::Done { target: target.id }, None);
    };
    if source.state == ReplicaState::Unload {
        return match state.node(source.node).map(|node| node.node.status) {
            Some(NodeStatus::Alive) => {
                MigrationStep::Wait(format!("{} is deleting its replica", name(state, source.node)))
            }
            // It deletes its copy when it returns; the move need not wait for that.
            Some(NodeStatus::Failed | NodeStatus::Lost) | None => {
                set(migration, Stage::Done { target: target.id }, None)
            }
        };
    }
    let source_leads = row.leader == Some(source.id);
    if source_leads {
        let alive = state.is_alive(source.node);
        if target_node != NodeStatus::Alive && alive && live_without(state, row, target.id) {
            return undo(migration, row, target, failed("the target node failed"));
        }
        if migration.cancel {
            return match live_without(state, row, target.id) {
                true => undo(migration, row, target, Stage::Cancelled),
                false => MigrationStep::Wait(TOO_FEW.into()),
            };
        }
        return MigrationStep::Wait(format!("{} is handing over", name(state, source.node)));
    }
    if migration.cancel && state.breaks(Mutant::UndoAfterHandOver) {
        return undo(migration, row, target, Stage::Cancelled); // rule 7
    }
    if row.leader.is_none() {
        return MigrationStep::Wait("a leader is being elected".into());
    }
    if row.status != PartitionStatus::Online {
        return MigrationStep::Wait("the new leader is taking over".into());
    }
    if !live_without(state, row, source.id) {
        return MigrationStep::Wait(TOO_FEW.into());
    }
    MigrationStep::Step(Command::Change(vec![PartitionChange::one(row.id, row.version, Edit::Unload(source.id))]))
}

/// Returns the command that begins a migration with this number for its target.
pub(crate) fn begin(migration: &Migration, row: &Partition, target: PlacementId) -> Command {
    let placement = Placement { id: target, node: migration.to, state: ReplicaState::Load };
    Command::SetMigration {
        migration: migration.id,
        stage: Stage::Running { target },
        change: Some(PartitionChange::one(row.id, row.version, Edit::Add(placement))),
    }
}

fn undo(migration: &Migration, row: &Partition, target: &Placement, stage: Stage) -> MigrationStep {
    set(migration, stage, Some(PartitionChange::one(row.id, row.version, Edit::Unload(target.id))))
}

fn set(migration: &Migration, stage: Stage, change: Option<PartitionChange>) -> MigrationStep {
    MigrationStep::Step(Command::SetMigration { migration: migration.id, stage, change })
}

fn failed(why: &str) -> Stage {
    Stage::Failed { why: why.to_owned() }
}

fn superseded(why: &str) -> Stage {
    Stage::Superseded { why: why.to_owned() }
}

/// Returns the reason why no copy can be moved to the target's node, if any.
fn target_is_down(state: &ClusterState, migration: &Migration) -> Option<&'static str> {
    match state.node(migration.to).map(|node| node.node.status) {
        Some(NodeStatus::Alive) => None,
        Some(NodeStatus::Failed) => Some("the target node failed"),
        Some(NodeStatus::Lost) | None => Some("the target node is lost"),
    }
}

/// Returns true if a copy is gone, or will be because it was lost.
fn is_gone(state: &ClusterState, row: &Partition, id: PlacementId) -> bool {
    row.placement(id).is_none_or(|copy| copy.state == ReplicaState::Unload) || is_lost(state, id)
}

fn live_without(state: &ClusterState, row: &Partition, id: PlacementId) -> bool {
    let left = row.live().filter(|live| live.id != id && state.is_alive(live.node)).count();
    left >= usize::from(row.min_in_sync) || state.breaks(Mutant::CleanupBelowMin) // rule 7
}

fn not_served(state: &ClusterState, row: &Partition) -> Option<String> {
    match row.leader_placement() {
        Some(_) if row.status == PartitionStatus::Online => None,
        Some(leader) => Some(format!("{} is taking over", name(state, leader.node))),
        None => Some("the partition has no leader to copy from".into()),
    }
}

fn name(state: &ClusterState, node: NodeId) -> String {
    state.node_name(node)
}

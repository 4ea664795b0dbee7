//! Splits in progress: their completion and abandonment.
//!
//! The row of the split partition holds all that a split needs, so any coordinator can continue it. Only its duration
//! is volatile memory of each coordinator: a new one grants the whole time again.

use crate::command::Command;
use crate::command::edit::{Edit, PartitionChange};
use crate::placement::{next_leader, out_of_sync};
use crate::ranges::step::Step;
use crate::state::ClusterState;
use archon_types::{
    ErrorDetail, ErrorKind, Millis, NodeId, Partition, PartitionId, PartitionStatus, PlacementId, RangeChangePhase,
    RightCopy, RightStage, Split, Version,
};
use std::collections::BTreeMap;

/// Maximum time until copies have every key, in milliseconds. Everything is served meanwhile.
pub(crate) const COPYING_MS_MAX: u64 = 30 * 60 * 1_000;
/// Maximum wait for the last copies once enough have every key, in milliseconds. A copy that is left out must be loaded
/// from another node later.
pub(crate) const COPYING_STRAGGLERS_MS: u64 = 30_000;
/// Maximum duration of a split from the order to give the keys up, in milliseconds: the upper half of the partition is
/// not served for that time.
pub(crate) const CUT_MS_MAX: u64 = 5_000;
/// Maximum wait for the last copies once enough are formed, in milliseconds.
pub(crate) const STRAGGLERS_MS: u64 = 1_000;

/// Start of the present phase of each split, and the time since enough copies have completed it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Splits {
    seen: BTreeMap<PartitionId, SplitProgress>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct SplitProgress {
    attempt: Version,
    cut: bool,
    begun: Millis,
    enough: Option<Millis>,
}

impl Splits {
    /// Forgets ended splits.
    pub(crate) fn retain(&mut self, state: &ClusterState) {
        let goes_on = |id: &PartitionId| state.partitions.get(*id).is_some_and(|row| row.split.is_some());
        self.seen.retain(|id, _| goes_on(id));
    }

    /// Returns the next step of the split of this row. `able` returns true for nodes that may get leaderships.
    pub(crate) fn step(
        &mut self,
        state: &ClusterState,
        row: &Partition,
        split: &Split,
        now: Millis,
        able: impl Fn(NodeId) -> bool,
    ) -> Step {
        let fresh = SplitProgress { attempt: split.attempt, cut: split.cut, begun: now, enough: None };
        let seen = self.seen.entry(row.id).or_insert(fresh);
        if (seen.attempt, seen.cut) != (split.attempt, split.cut) {
            *seen = fresh;
        }
        let phase = Phase::of(split);
        let change = |edit: Edit| Step::Change(Command::Change(vec![PartitionChange::one(row.id, row.version, edit)]));
        let abandon = |why: String| change(Edit::AbandonSplit(why));
        let least = usize::from(row.min_in_sync).max(1);
        let usable = split.copies.iter().filter(|copy| can_form(state, row, copy));
        let (there, pending): (Vec<&RightCopy>, Vec<&RightCopy>) = usable.partition(|copy| copy.stage >= phase.goal);
        let there = there.len();
        if there + pending.len() < least {
            return abandon(format!("only {} of {least} replicas can be formed", there + pending.len()));
        }
        if there < least {
            seen.enough = None;
        } else {
            let since = *seen.enough.get_or_insert(now);
            let stragglers_until = since.plus(phase.stragglers_ms);
            if !pending.is_empty() && now < stragglers_until {
                return Step::Wait(stragglers_until);
            }
            if let Some(edit) = phase_end(state, row, split, able) {
                return change(edit);
            }
        }
        let over_at = seen.begun.plus(phase.ms_max);
        if now >= over_at {
            let waits: Vec<String> = pending.iter().map(|copy| state.node_name(copy.node)).collect();
            let of = match (there < least, split.cut) {
                (true, _) => waits.join(", "),
                (false, false) => "a leader of the partition".to_owned(),
                (false, true) => "a replica that is formed and can lead".to_owned(),
            };
            let what = if split.cut { "formed" } else { "copied" };
            return abandon(format!("it was not {what} within {} ms; waited for: {of}", phase.ms_max));
        }
        Step::Wait(over_at)
    }
}

/// Goal of a split in its phase, and the time limits.
struct Phase {
    /// The stage that the copies must reach.
    goal: RightStage,
    ms_max: u64,
    stragglers_ms: u64,
}

impl Phase {
    const fn of(split: &Split) -> Self {
        let goal = split.goal();
        match split.phase() {
            RangeChangePhase::Forming => Self { goal, ms_max: CUT_MS_MAX, stragglers_ms: STRAGGLERS_MS },
            _ => Self { goal, ms_max: COPYING_MS_MAX, stragglers_ms: COPYING_STRAGGLERS_MS },
        }
    }
}

/// Returns true if a copy on an active node is formed, or can still be: from a copy of left. A lost copy is not hosted,
/// and not replaced before the split ends.
pub(crate) fn can_form(state: &ClusterState, row: &Partition, copy: &RightCopy) -> bool {
    let has_left = || row.placement_on(copy.node).is_some_and(|left| !out_of_sync::is_lost(state, left.id));
    state.is_active(copy.node) && (copy.is_formed() || has_left())
}

/// Returns the edit that ends the phase of a split once enough copies have completed it, if a leader can continue.
fn phase_end(state: &ClusterState, row: &Partition, split: &Split, able: impl Fn(NodeId) -> bool) -> Option<Edit> {
    if !split.cut {
        return (row.leader.is_some() && row.status == PartitionStatus::Online).then_some(Edit::Cut);
    }
    let right = split.right_row(row);
    let (leader, incarnation) =
        next_leader::next_leader(state, &right, &mut BTreeMap::new(), |node| !able(node), |_| false)?;
    Some(Edit::Part { leader, incarnation })
}

/// Returns the commands for a node's report that its copy, named by attempt and number, has reached a stage.
///
/// # Errors
/// `NotFound` if that node is to form no such copy.
pub(crate) fn comes_to(
    row: &Partition,
    node: NodeId,
    (attempt, copy): (Version, PlacementId),
    stage: RightStage,
    edit: Edit,
) -> Result<Vec<Command>, ErrorDetail> {
    let Some(split) = row.split.as_deref().filter(|split| split.attempt == attempt) else {
        return Ok(Vec::new()); // It is done or abandoned: the row shows which.
    };
    match split.copy_on(node).filter(|right| right.id == copy) {
        Some(right) if right.stage >= stage => Ok(Vec::new()),
        Some(_) => Ok(vec![Command::Change(vec![PartitionChange::one(row.id, row.version, edit)])]),
        None => {
            let message = format!("the split of partition {} has no replica {copy} there", row.id);
            Err(ErrorDetail::new(ErrorKind::NotFound, message).with_table_version(row.version))
        }
    }
}

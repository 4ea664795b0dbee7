//! Splits under way: when one is done, and when it is given up.
//!
//! All that a split needs stands in the row of the partition that is split, so any coordinator goes on with it. Only how long
//! it has taken is each coordinator's own memory: a new one gives it the whole time again.

use crate::command::Command;
use crate::departed;
use crate::edit::{Edit, PartitionChange};
use crate::failover;
use crate::reshapings::Step;
use crate::state::ClusterState;
use archon_types::{
    ErrorDetail, ErrorKind, Millis, NodeId, Partition, PartitionId, PartitionStatus, PlacementId, ReshapingPhase,
    RightCopy, RightStage, Split, Version,
};
use std::collections::BTreeMap;

/// How long copies may take until they have every key, in milliseconds. Everything is served meanwhile.
pub(crate) const COPYING_MS_MAX: u64 = 30 * 60 * 1_000;
/// How long the last copies are waited for once enough have every key, in milliseconds. One that is left out then has to be loaded
/// from another node.
pub(crate) const COPYING_STRAGGLERS_MS: u64 = 30_000;
/// How long a split may take from when the keys are to be given up, in milliseconds: for as long the upper half of the partition
/// is not served.
pub(crate) const CUT_MS_MAX: u64 = 5_000;
/// How long the last copies are waited for once enough are formed, in milliseconds.
pub(crate) const STRAGGLERS_MS: u64 = 1_000;

/// Since when each split is in its phase, and since when enough copies are as far as that phase brings them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Splits {
    seen: BTreeMap<PartitionId, Seen>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Seen {
    attempt: Version,
    cut: bool,
    begun: Millis,
    enough: Option<Millis>,
}

impl Splits {
    /// Forgets what is over.
    pub(crate) fn retain(&mut self, state: &ClusterState) {
        let goes_on = |id: &PartitionId| state.partitions.get(*id).is_some_and(|row| row.split.is_some());
        self.seen.retain(|id, _| goes_on(id));
    }

    /// What to do about the split of this row. `able` says which nodes may be given leaderships.
    pub(crate) fn step(
        &mut self,
        state: &ClusterState,
        row: &Partition,
        split: &Split,
        now: Millis,
        able: impl Fn(NodeId) -> bool,
    ) -> Step {
        let fresh = Seen { attempt: split.attempt, cut: split.cut, begun: now, enough: None };
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
            return abandon(format!("only {} of {least} copies can be formed", there + pending.len()));
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
                (false, true) => "a copy that is formed and can lead".to_owned(),
            };
            let what = if split.cut { "formed" } else { "copied" };
            return abandon(format!("it was not {what} within {} ms; waited for: {of}", phase.ms_max));
        }
        Step::Wait(over_at)
    }
}

/// What a split waits for while it is in a phase, and for how long.
struct Phase {
    /// To where the copies are to come.
    goal: RightStage,
    ms_max: u64,
    stragglers_ms: u64,
}

impl Phase {
    const fn of(split: &Split) -> Self {
        let goal = split.goal();
        match split.phase() {
            ReshapingPhase::Forming => Self { goal, ms_max: CUT_MS_MAX, stragglers_ms: STRAGGLERS_MS },
            _ => Self { goal, ms_max: COPYING_MS_MAX, stragglers_ms: COPYING_STRAGGLERS_MS },
        }
    }
}

/// Whether a copy on a node that is there is formed, or can still be: from a copy of left. One that was lost is hosted by nobody,
/// and not replaced before the split is over.
pub(crate) fn can_form(state: &ClusterState, row: &Partition, copy: &RightCopy) -> bool {
    let has_left = || row.placement_on(copy.node).is_some_and(|left| !departed::is_lost(state, left.id));
    state.is_active(copy.node) && (copy.is_formed() || has_left())
}

/// What ends the phase of a split of which enough copies have come to its end, if somebody is there who can go on.
fn phase_end(state: &ClusterState, row: &Partition, split: &Split, able: impl Fn(NodeId) -> bool) -> Option<Edit> {
    if !split.cut {
        return (row.leader.is_some() && row.status == PartitionStatus::Online).then_some(Edit::Cut);
    }
    let right = split.right_row(row);
    let (leader, incarnation) =
        failover::candidate(state, &right, &mut BTreeMap::new(), |node| !able(node), |_| false)?;
    Some(Edit::Part { leader, incarnation })
}

/// What follows when a node says of its copy, as named by the attempt and its number, that it has come to a stage.
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
        return Ok(Vec::new()); // It is done, or given up: the row says which.
    };
    match split.copy_on(node).filter(|right| right.id == copy) {
        Some(right) if right.stage >= stage => Ok(Vec::new()),
        Some(_) => Ok(vec![Command::Change(vec![PartitionChange::one(row.id, row.version, edit)])]),
        None => {
            let message = format!("the split of partition {} has no copy {copy} there", row.id);
            Err(ErrorDetail::new(ErrorKind::NotFound, message).with_table_version(row.version))
        }
    }
}

//! Progress of splits and merges, for people: phase, blocking nodes and reason.

use crate::ranges::splits::{COPYING_STRAGGLERS_MS, STRAGGLERS_MS, can_form};
use crate::state::ClusterState;
use archon_types::{NodeId, Partition, PartitionId, RangeChangeKind, RangeChangePhase, RightCopy, RightStage, Split};
use bytes::Bytes;

/// A split or merge in progress.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RangeChange {
    /// The partition that is split, or absorbs the other one.
    pub partition: PartitionId,
    /// Split or merge.
    pub kind: RangeChangeKind,
    /// Its phase.
    pub phase: RangeChangePhase,
    /// The partition that is split off or merged away.
    pub right: PartitionId,
    /// The first key of that partition.
    pub at: Bytes,
    /// Progress, `0..=99`. Merges have no intermediate value.
    pub percent: u32,
    /// Number of copies of the new partition, for a split.
    pub copies: usize,
    /// Number of these that have completed the phase.
    pub copies_ready: usize,
    /// The blocking nodes.
    pub waits_for: Vec<NodeId>,
    /// The blocker, in words.
    pub why: String,
}

impl RangeChange {
    /// Returns the split or merge in which this row takes part.
    pub fn of(state: &ClusterState, row: &Partition) -> Option<Self> {
        match row.yields() {
            Some((_, left)) => merge(state, state.partitions.get(left)?),
            None => split(state, row).or_else(|| merge(state, row)),
        }
    }

    /// Returns the number in progress.
    pub fn count(state: &ClusterState) -> usize {
        state.partitions.splitting().count() + state.partitions.merging().count()
    }

    /// Returns all in progress, splits first, each by partition.
    pub fn all(state: &ClusterState) -> impl Iterator<Item = Self> {
        let splits = state.partitions.splitting().filter_map(|row| split(state, row));
        splits.chain(state.partitions.merging().filter_map(|row| merge(state, row)))
    }
}

fn split(state: &ClusterState, row: &Partition) -> Option<RangeChange> {
    let split = row.split.as_deref()?;
    let (ready, pending): (Vec<&RightCopy>, Vec<&RightCopy>) =
        split.copies.iter().partition(|copy| copy.stage >= split.goal());
    let done: u32 = split.copies.iter().map(|copy| percent_at(copy.stage)).sum();
    let copies = u32::try_from(split.copies.len()).unwrap_or(u32::MAX).max(1);
    Some(RangeChange {
        partition: row.id,
        kind: RangeChangeKind::Split,
        phase: split.phase(),
        right: split.right_of(row.id),
        at: split.at.clone(),
        percent: (done / copies).min(99),
        copies: split.copies.len(),
        copies_ready: ready.len(),
        waits_for: pending.iter().map(|copy| copy.node).collect(),
        why: split_waits_for(state, row, split, &pending),
    })
}

/// Returns the progress of a copy. Iterating over the rows is most of the work, and its progress is not reported.
const fn percent_at(stage: RightStage) -> u32 {
    match stage {
        RightStage::Copying => 0,
        RightStage::Mirroring => 90,
        RightStage::Formed => 100,
    }
}

fn split_waits_for(state: &ClusterState, row: &Partition, split: &Split, pending: &[&RightCopy]) -> String {
    let right = state.partition_name(split.right_of(row.id));
    if row.leader.is_none() {
        return format!("no leader of {}", state.partition_name(row.id));
    }
    if pending.is_empty() {
        return match split.cut {
            false => "every replica has the keys; the cut follows".to_owned(),
            true => format!("every replica is complete; {right} is about to get a leader"),
        };
    }
    let (able, away): (Vec<&RightCopy>, Vec<&RightCopy>) = pending.iter().partition(|copy| can_form(state, row, copy));
    let hindered = |copy: &RightCopy| match (can_form(state, row, copy), state.is_active(copy.node)) {
        (true, _) => "",
        (false, false) => " (which is not alive)",
        (false, true) => " (whose replica was lost)",
    };
    let named = |copies: &[&RightCopy]| {
        let names = copies.iter().map(|copy| format!("{}{}", state.node_name(copy.node), hindered(copy)));
        names.collect::<Vec<_>>().join(", ")
    };
    let least = usize::from(row.min_in_sync).max(1);
    let ready = split.copies.len() - pending.len();
    if able.is_empty() && ready < least {
        return format!(
            "only {ready} of {least} replicas can be formed, without {}: the split is abandoned",
            named(&away)
        );
    }
    let mut text = match (&able[..], split.cut) {
        ([], _) => {
            return format!("{ready} replicas have the keys of {right}: the split continues without {}", named(&away));
        }
        ([_], false) => format!("waits for {}, which still copies the keys of {right}", named(&able)),
        (_, false) => format!("waits for {}, which still copy the keys of {right}", named(&able)),
        ([_], true) => format!("waits for {}, which still writes the keys of {right} out", named(&able)),
        (_, true) => format!("waits for {}, which still write the keys of {right} out", named(&able)),
    };
    if ready >= least {
        let seconds = if split.cut { STRAGGLERS_MS } else { COPYING_STRAGGLERS_MS } / 1_000;
        text.push_str(&format!(
            " ({ready} replicas have them, which is enough: the split continues without the rest after {seconds} s)"
        ));
    }
    if !away.is_empty() {
        text.push_str(&format!("; the split continues without {}", named(&away)));
    }
    text
}

fn merge(state: &ClusterState, row: &Partition) -> Option<RangeChange> {
    let (_, right) = row.absorbs()?;
    let leader = |id: PartitionId| state.partitions.get(id)?.leader_placement().map(|placement| placement.node);
    let (taker, giver) = (leader(row.id), leader(right));
    let unled = [(row.id, taker), (right, giver)].into_iter().filter(|(_, leader)| leader.is_none());
    let unled: Vec<String> = unled.map(|(id, _)| state.partition_name(id)).collect();
    let why = match (taker, giver) {
        (Some(taker), Some(giver)) if taker == giver => format!("{} takes over the keys", state.node_name(taker)),
        (Some(taker), Some(giver)) => {
            format!("{} takes over the keys from {}", state.node_name(taker), state.node_name(giver))
        }
        _ => format!("no leader of {}", unled.join(" and ")),
    };
    let mut waits_for: Vec<NodeId> = taker.into_iter().chain(giver).collect();
    waits_for.dedup();
    Some(RangeChange {
        partition: row.id,
        kind: RangeChangeKind::Merge,
        phase: RangeChangePhase::Absorbing,
        right,
        at: row.range.end.clone().unwrap_or_default(),
        percent: 0,
        copies: 0,
        copies_ready: 0,
        waits_for,
        why,
    })
}

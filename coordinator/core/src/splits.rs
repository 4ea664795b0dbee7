//! Splits under way: when one is done, and when it is given up.
//!
//! All that a split needs stands in the row of the partition that is split, so any coordinator goes on with it. Only how long
//! it has taken is each coordinator's own memory: a new one gives it the whole time again.

use crate::command::Command;
use crate::edit::{Edit, PartitionChange};
use crate::failover;
use crate::state::ClusterState;
use archon_types::{Millis, NodeId, Partition, PartitionId, RightCopy, Split, Version};
use std::collections::BTreeMap;

/// How long a split may take, in milliseconds: for as long the upper half of the partition is not served.
pub(crate) const SPLIT_MS_MAX: u64 = 5_000;
/// How long the last copies are waited for once enough are formed, in milliseconds.
pub(crate) const STRAGGLERS_MS: u64 = 1_000;

/// Since when splits are under way, and since when enough copies of each are formed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Splits {
    seen: BTreeMap<PartitionId, Seen>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Seen {
    attempt: Version,
    begun: Millis,
    enough: Option<Millis>,
}

/// What to do about one split.
pub(crate) enum Step {
    /// Nothing before that, unless something changes.
    Wait(Millis),
    /// This, now.
    Change(Command),
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
        let fresh = Seen { attempt: split.attempt, begun: now, enough: None };
        let seen = self.seen.entry(row.id).or_insert(fresh);
        if seen.attempt != split.attempt {
            *seen = fresh;
        }
        let change = |edit: Edit| Step::Change(Command::Change(vec![PartitionChange::one(row.id, row.version, edit)]));
        let abandon = |why: String| change(Edit::AbandonSplit(why));
        let least = usize::from(row.min_in_sync).max(1);
        let pending = |copy: &&RightCopy| !copy.formed && state.is_active(copy.node);
        let pending: Vec<NodeId> = split.copies.iter().filter(pending).map(|copy| copy.node).collect();
        let formed = split.formed();
        if formed + pending.len() < least {
            return abandon(format!("only {} of {least} copies can be formed", formed + pending.len()));
        }
        if formed >= least {
            let since = *seen.enough.get_or_insert(now);
            let stragglers_until = since.plus(STRAGGLERS_MS);
            if !pending.is_empty() && now < stragglers_until {
                return Step::Wait(stragglers_until);
            }
            let right = split.right_row(row);
            let mut named = BTreeMap::new();
            if let Some((leader, incarnation)) = failover::candidate(state, &right, &mut named, |node| !able(node)) {
                return change(Edit::Part { leader, incarnation });
            }
        }
        let over_at = seen.begun.plus(SPLIT_MS_MAX);
        if now >= over_at {
            let waits: Vec<String> = pending.iter().map(|node| state.node_name(*node)).collect();
            let of = if waits.is_empty() { "no copy that is formed can lead".to_owned() } else { waits.join(", ") };
            return abandon(format!("it was not formed within {SPLIT_MS_MAX} ms; waited for: {of}"));
        }
        Step::Wait(over_at)
    }
}

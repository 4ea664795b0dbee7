//! Merges in progress, and when they are abandoned.
//!
//! The rows of both partitions hold all that a merge needs, so any coordinator can continue it: the command that its
//! left partition's leader requests completes it. Only its duration is volatile memory of each coordinator: a new one
//! grants the whole time again.

use crate::command::Command;
use crate::command::edit::{Edit, PartitionChange};
use crate::ranges::step::Step;
use crate::state::ClusterState;
use archon_types::{Millis, Partition, PartitionId, Version};
use std::collections::BTreeMap;

/// Maximum duration of a merge, in milliseconds: the right partition is not served for that time.
pub(crate) const MERGE_MS_MAX: u64 = 10_000;

/// Start times of merges in progress.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Merges {
    begun: BTreeMap<PartitionId, (Version, Millis)>,
}

impl Merges {
    /// Forgets ended merges.
    pub(crate) fn retain(&mut self, state: &ClusterState) {
        let goes_on = |id: &PartitionId| state.partitions.get(*id).is_some_and(|row| row.absorbs().is_some());
        self.begun.retain(|id, _| goes_on(id));
    }

    /// Returns the next step of the merge of this row, the left one, with `right`.
    pub(crate) fn step(&mut self, state: &ClusterState, row: &Partition, right: PartitionId, now: Millis) -> Step {
        let attempt = row.merge.as_ref().map_or(Version::ZERO, |merge| merge.attempt);
        let begun = self.begun.entry(row.id).or_insert((attempt, now));
        if begun.0 != attempt {
            *begun = (attempt, now);
        }
        let over_at = begun.1.plus(MERGE_MS_MAX);
        if now < over_at {
            return Step::Wait(over_at);
        }
        let led = |id: PartitionId| state.partitions.get(id).is_some_and(|row| row.leader.is_some());
        let unled: Vec<String> =
            [row.id, right].into_iter().filter(|id| !led(*id)).map(|id| state.partition_name(id)).collect();
        let of = if unled.is_empty() { String::new() } else { format!("; no leader of {}", unled.join(" and ")) };
        let why = format!("the keys were not transferred within {MERGE_MS_MAX} ms{of}");
        let change = PartitionChange::one(row.id, row.version, Edit::AbandonMerge(why));
        Step::Change(Command::Change(vec![change]))
    }
}

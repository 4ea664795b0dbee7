//! Start of the unavailability of each partition that should be served. A failover ends within moments and needs no
//! attention; an unavailability that lasts does.
//!
//! Only the leading coordinator knows, in volatile memory: a new one counts from the beginning of its leadership.

use crate::state::ClusterState;
use crate::state::former_leaders::FormerLeader;
use archon_types::{Millis, Partition, PartitionId, Version};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Time for which a partition may be unavailable before an alert, in milliseconds, in addition to failure time-outs.
const GRACE_MS: u64 = 10_000;
/// Number of failure time-outs in addition: one to notice the silence, one for a lease to end.
const GRACE_TIMEOUTS: u64 = 2;

/// The unavailable partitions, except those that operators have taken offline.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct UnavailablePartitions {
    /// Start, on this coordinator's monotonic clock. Shared with snapshots.
    since: Arc<BTreeMap<PartitionId, Millis>>,
    seen: Option<ObservedVersions>,
}

/// Position up to which the state was observed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct ObservedVersions {
    rows: Version,
    /// Versions of operators' orders and of drops of tables, which affect partitions with unchanged or removed rows.
    others: (Version, Version),
}

impl UnavailablePartitions {
    /// Records changes. It examines no rows, since it runs for every change of state.
    pub(crate) fn sync(&mut self, state: &ClusterState, now: Millis) {
        let others = (state.controls_version, state.dropped_version);
        let seen = ObservedVersions { rows: Version::new(state.applied), others };
        match self.seen.replace(seen) {
            Some(before) if before == seen => {}
            Some(before) if before.others == others => {
                for table in state.tables.keys() {
                    for id in state.partitions.ids_newer_than(*table, before.rows) {
                        self.note(state, id, now);
                    }
                }
            }
            _ => {
                let missing = state.partitions.not_online().filter(|id| !state.is_offline(*id));
                let since = missing.map(|id| (id, self.since(id).unwrap_or(now))).collect();
                self.since = Arc::new(since);
            }
        }
    }

    fn note(&mut self, state: &ClusterState, id: PartitionId, now: Millis) {
        let missing = !state.partitions.is_online(id) && !state.is_offline(id);
        if missing == self.since.contains_key(&id) {
            return;
        }
        let since = Arc::make_mut(&mut self.since);
        if missing {
            since.insert(id, now);
        } else {
            since.remove(&id);
        }
    }

    /// Returns the time since this partition is unavailable.
    pub(crate) fn since(&self, id: PartitionId) -> Option<Millis> {
        self.since.get(&id).copied()
    }

    /// Returns the partitions that have been unavailable for longer than a failover takes, each with the start.
    pub(crate) fn overdue<'a>(
        &'a self,
        state: &'a ClusterState,
        now: Millis,
    ) -> impl Iterator<Item = (&'a Partition, Millis)> {
        let least = GRACE_MS + GRACE_TIMEOUTS * state.settings.timing.failure_timeout_ms;
        let long = self.since.iter().filter(move |(_, since)| now.since(**since) > least);
        let rows = long.filter_map(|(id, since)| Some((state.partitions.get(*id)?, *since)));
        rows.filter(move |(row, since)| now.since(*since) > grace_ms(state, row))
    }
}

/// Returns the time for which a partition may be unavailable. Its new and former leaders may have long time-outs of
/// their own.
fn grace_ms(state: &ClusterState, row: &Partition) -> u64 {
    let own = |former: &FormerLeader| former.failure_timeout_ms;
    let members = row.placements.iter().map(|copy| state.timing_of(copy.node).failure_timeout_ms);
    let members = members.chain(state.former_leaders.of_partition(row.id).map(own));
    let timeout_ms = members.fold(state.settings.timing.failure_timeout_ms, u64::max);
    GRACE_MS.saturating_add(GRACE_TIMEOUTS.saturating_mul(timeout_ms))
}

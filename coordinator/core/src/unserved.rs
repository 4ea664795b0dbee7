//! Since when each partition that ought to be served is not. Every failover passes by itself within moments, and is no news to
//! anybody; what looks the same and does not pass is.
//!
//! Only the leading coordinator knows, in memory: a new one counts from when it began to lead.

use crate::former_leaders::FormerLeader;
use crate::state::ClusterState;
use archon_types::{Millis, Partition, PartitionId, Version};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How long a partition may be without anybody who serves it before people are called, in milliseconds, beside failure time-outs.
const GRACE_MS: u64 = 10_000;
/// Failure time-outs beside it: in one silence is noticed, in another one a lease may end.
const GRACE_TIMEOUTS: u64 = 2;

/// The partitions that nobody serves, but for those that operators have taken offline.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Unserved {
    /// Since when, on this coordinator's own clock. Shared with whoever took a look.
    since: Arc<BTreeMap<PartitionId, Millis>>,
    seen: Option<Seen>,
}

/// Up to where the state was taken note of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Seen {
    rows: Version,
    /// Orders of operators and drops of tables, which concern partitions whose rows stay as they are or are gone.
    others: (Version, Version),
}

impl Unserved {
    /// Takes note of what changed. It looks at no rows: it is done for every change of state.
    pub(crate) fn sync(&mut self, state: &ClusterState, now: Millis) {
        let others = (state.controls_version, state.dropped_version);
        let seen = Seen { rows: Version::new(state.applied), others };
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

    /// Since when nobody serves this partition.
    pub(crate) fn since(&self, id: PartitionId) -> Option<Millis> {
        self.since.get(&id).copied()
    }

    /// Those that nobody has served for longer than a failover takes, each since when.
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

/// How long a partition may be without anybody who serves it. Whoever takes it over or led it may have long time-outs of its own.
fn grace_ms(state: &ClusterState, row: &Partition) -> u64 {
    let own = |former: &FormerLeader| former.failure_timeout_ms;
    let members = row.placements.iter().map(|copy| state.timing_of(copy.node).failure_timeout_ms);
    let members = members.chain(state.former_leaders.of_partition(row.id).map(own));
    let timeout_ms = members.fold(state.settings.timing.failure_timeout_ms, u64::max);
    GRACE_MS.saturating_add(GRACE_TIMEOUTS.saturating_mul(timeout_ms))
}

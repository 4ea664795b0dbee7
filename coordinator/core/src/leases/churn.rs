//! Volatile memory of the leading coordinator about participants that came, went or gave partitions up.

use archon_types::{Millis, NodeId, PartitionId, TableId};
use std::collections::BTreeMap;

/// Time for which a participant does not get a partition again that it declined, in milliseconds. It covers the next
/// incarnations: a service that fails to load a partition, exits and starts again would get it in a loop. What a
/// participant gives up because it stops is not declined.
const AVOIDED_MS: u64 = 10_000;
/// Maximum number of such records.
const AVOIDED_MAX: usize = 65_536;
/// Time without arrivals and departures of participants before leases are reassigned and balanced, in milliseconds:
/// participants that start together are present by then.
const QUIET_MS: u64 = 1_000;
/// Maximum wait for that, in milliseconds.
const QUIET_MS_MAX: u64 = 10_000;
/// Minimum time between two balancings of a table, in milliseconds: examining every participant's share after each
/// change of an owner would dominate the cost of the leading coordinator.
const BALANCED_MS: u64 = 100;

/// Recently arrived and departed participants, partitions that they gave up, and balanced tables.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Churn {
    /// Participants that declined a partition, with the time before which they should not get it again.
    avoided: BTreeMap<(NodeId, PartitionId), Millis>,
    /// Times of the first and last arrival or departure, while unsettled.
    unsettled: Option<(Millis, Millis)>,
    /// Results of recent balancings by table.
    balanced: BTreeMap<TableId, BalanceResult>,
}

/// Result of a recent balancing of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct BalanceResult {
    /// Time at which it may be balanced again.
    again_at: Millis,
    /// Inputs with which it was found even, if nothing had to move.
    even: Option<BalanceInputs>,
}

/// Inputs of the balancing of a table. Its other inputs change with failures and fences, which change the state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BalanceInputs {
    /// Index of the last log entry.
    pub(crate) applied: u64,
    /// True if the participants were settled.
    pub(crate) settled: bool,
}

impl Churn {
    /// Creates an empty record: at `now` the first participants may be arriving.
    pub(crate) fn new(now: Millis) -> Self {
        Self { avoided: BTreeMap::new(), unsettled: Some((now, now)), balanced: BTreeMap::new() }
    }

    /// Advances the time; `news` is true if participants came or went meanwhile.
    pub(crate) fn sync(&mut self, news: bool, now: Millis) {
        self.avoided.retain(|_, until| now < *until);
        self.balanced.retain(|_, balanced| now < balanced.again_at);
        if news {
            self.unsettled = Some((self.unsettled.map_or(now, |(since, _)| since), now));
        }
        if self.settles_at().is_some_and(|at| now >= at) {
            self.unsettled = None;
        }
    }

    /// Returns the time at which the participants will count as settled, if they do not now.
    pub(crate) fn settles_at(&self) -> Option<Millis> {
        self.unsettled.map(|(since, last)| last.plus(QUIET_MS).min(since.plus(QUIET_MS_MAX)))
    }

    /// Checks that the table may be balanced now; else returns the time when it may: `None` if it was found even and
    /// nothing has changed. A caller that gets permission must balance it.
    pub(crate) fn may_balance(
        &mut self,
        table: TableId,
        seen: BalanceInputs,
        now: Millis,
    ) -> Result<(), Option<Millis>> {
        if let Some(balanced) = self.balanced.get(&table).filter(|balanced| now < balanced.again_at) {
            // Otherwise two tables balanced at different times would forever cause one another's next turn.
            return Err(Some(balanced.again_at).filter(|_| balanced.even != Some(seen)));
        }
        self.balanced.insert(table, BalanceResult { again_at: now.plus(BALANCED_MS), even: None });
        Ok(())
    }

    /// Records that the table was balanced just now and nothing had to move.
    pub(crate) fn note_balanced(&mut self, table: TableId, seen: BalanceInputs) {
        if let Some(balanced) = self.balanced.get_mut(&table) {
            balanced.even = Some(seen);
        }
    }

    /// Records that a participant declined a partition that it owned.
    pub(crate) fn avoid(&mut self, participant: NodeId, partition: PartitionId, now: Millis) {
        if self.avoided.len() < AVOIDED_MAX {
            self.avoided.insert((participant, partition), now.plus(AVOIDED_MS));
        }
    }

    /// Returns true if the participant declined this partition a moment ago.
    pub(crate) fn avoids(&self, participant: NodeId, partition: PartitionId) -> bool {
        self.avoided.contains_key(&(participant, partition))
    }
}

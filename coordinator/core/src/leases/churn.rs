//! What the leading coordinator remembers of participants that came, went or gave something up, in memory only.

use archon_types::{Millis, NodeId, PartitionId, TableId};
use std::collections::BTreeMap;

/// How long a participant is not given a partition again that it gave up, in milliseconds.
const AVOIDED_MS: u64 = 10_000;
/// Most of these that are remembered.
const AVOIDED_MAX: usize = 65_536;
/// How long no participant may come or go before leases are handed out anew and evened out, in milliseconds: those that start
/// together are there by then.
const QUIET_MS: u64 = 1_000;
/// How long that is waited for at most, in milliseconds.
const QUIET_MS_MAX: u64 = 10_000;
/// How long a table is left as it is after it was evened out, in milliseconds: to look at every participant's share after each
/// change of an owner would cost more than all else the leading coordinator does.
const BALANCED_MS: u64 = 100;

/// Participants that came or went, partitions that they gave up, and tables that were evened out, each not long ago.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Churn {
    /// Participants that gave up a partition and should not be given it again before then.
    avoided: BTreeMap<(NodeId, PartitionId), Millis>,
    /// Since when participants have come or gone, and when one did last.
    unsettled: Option<(Millis, Millis)>,
    /// What is known of each table that was evened out a moment ago.
    balanced: BTreeMap<TableId, Balanced>,
}

/// A table that was evened out a moment ago.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Balanced {
    /// When it may be again.
    again_at: Millis,
    /// By what it was found even, if nothing had to move.
    even: Option<Seen>,
}

/// What the evening out of a table rested on. What else that goes by changes with a life that fails or ends, which changes the state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Seen {
    /// Index of the last log entry.
    pub(crate) applied: u64,
    /// Whether the participants were settled.
    pub(crate) settled: bool,
}

impl Churn {
    /// Nothing is known: at `now` the first ones may be just coming.
    pub(crate) fn new(now: Millis) -> Self {
        Self { avoided: BTreeMap::new(), unsettled: Some((now, now)), balanced: BTreeMap::new() }
    }

    /// Time has passed, and some came or went meanwhile if that is `news`.
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

    /// When the participants will count as settled, if they do not now.
    pub(crate) fn settles_at(&self) -> Option<Millis> {
        self.unsettled.map(|(since, last)| last.plus(QUIET_MS).min(since.plus(QUIET_MS_MAX)))
    }

    /// Whether the table may be evened out now, or else when: never, if it was found even and nothing has changed. Who is told
    /// that it may does it.
    pub(crate) fn may_balance(&mut self, table: TableId, seen: Seen, now: Millis) -> Result<(), Option<Millis>> {
        if let Some(balanced) = self.balanced.get(&table).filter(|balanced| now < balanced.again_at) {
            // Two tables that were evened out at different times would otherwise be the reason for one another's next turn for ever.
            return Err(Some(balanced.again_at).filter(|_| balanced.even != Some(seen)));
        }
        self.balanced.insert(table, Balanced { again_at: now.plus(BALANCED_MS), even: None });
        Ok(())
    }

    /// The table was evened out just now, and nothing had to move.
    pub(crate) fn note_balanced(&mut self, table: TableId, seen: Seen) {
        if let Some(balanced) = self.balanced.get_mut(&table) {
            balanced.even = Some(seen);
        }
    }

    /// A participant gave up a partition that it owned.
    pub(crate) fn avoid(&mut self, participant: NodeId, partition: PartitionId, now: Millis) {
        if self.avoided.len() < AVOIDED_MAX {
            self.avoided.insert((participant, partition), now.plus(AVOIDED_MS));
        }
    }

    /// Whether the participant gave this partition up a moment ago.
    pub(crate) fn avoids(&self, participant: NodeId, partition: PartitionId) -> bool {
        self.avoided.contains_key(&(participant, partition))
    }
}

//! What the coordinator has granted a registration of the member: the lease, and the leaderships it does not cover
//! (PROTOCOL rules 14, 15, 52, 53 and 72).

use crate::heartbeat::{Heartbeats, LeaseAnswer};
use crate::mutant::{Broken, Mutant};
use archon_types::{Epoch, Incarnation, Lease, Millis, NodeId, Over, PartitionId};
use std::collections::BTreeMap;

/// The outcome of the answer to a heartbeat.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Taken {
    /// It answers no heartbeat that this life remembers having sent: it counts for nothing.
    Foreign,
    /// It was overtaken by the answer to a later heartbeat, came twice, or came after the registration's end: it could only bring
    /// back a leadership that was withdrawn since.
    Overtaken,
    /// The lease is extended.
    Granted {
        /// For how long there was none, in milliseconds; zero if the last one had not run out.
        lapsed_ms: u64,
        /// Leaderships that it does not cover, to be given up.
        withdrawn: Vec<(PartitionId, Epoch)>,
    },
}

/// What one registration was granted. It begins with no lease, and ends for good.
#[derive(Clone, Debug, Default)]
pub struct Grants {
    lease: Lease,
    /// Leaderships that the lease does not cover: those in these epochs and before.
    withdrawn: BTreeMap<PartitionId, Epoch>,
    /// Number of the newest heartbeat whose answer was taken in.
    newest: u64,
    broken: Broken,
}

impl Grants {
    /// Nothing is granted yet.
    pub fn new(broken: Broken) -> Self {
        Self { broken, ..Self::default() }
    }

    /// Takes in the answer to one of the `heartbeats` of this life, which arrived at `now` on the local clock. Lease and withdrawn
    /// leaderships are taken together, or neither is.
    pub fn take(&mut self, heartbeats: &Heartbeats, answer: LeaseAnswer, now: Millis) -> Taken {
        let Some(sent) = heartbeats.sent(&answer, self.broken) else { return Taken::Foreign }; // rule 52
        let older = answer.number <= self.newest && !self.broken.breaks(Mutant::OlderAnswerTaken);
        if older || self.newest == u64::MAX {
            return Taken::Overtaken; // rule 53
        }
        let withdrawn = if self.broken.breaks(Mutant::NodeWideLease) { Vec::new() } else { answer.withdrawn };
        let from = if self.broken.breaks(Mutant::LeaseFromReceipt) { now } else { sent }; // rule 14
        let lapsed_ms = self.lease.until().map_or(0, |until| now.since(until));
        self.newest = answer.number;
        self.lease.extend(from, answer.lease_ms);
        self.withdrawn.clear();
        for (partition, epoch) in &withdrawn {
            let held = self.withdrawn.entry(*partition).or_insert(*epoch);
            *held = (*held).max(*epoch);
        }
        Taken::Granted { lapsed_ms, withdrawn }
    }

    /// Ends the lease for good: the registration is over, and no answer to it counts any more.
    pub fn end(&mut self) {
        *self = Self { newest: u64::MAX, ..Self::default() };
    }

    /// Somebody who holds the row says that a life is over. If it is this one, of `node` and `incarnation`, the lease ends for good; of
    /// another one nothing is changed, for that may be a former life of this very node. Returns whether this ended it.
    pub fn told_over(&mut self, node: NodeId, incarnation: Incarnation, over: Over) -> bool {
        let this_life = over.incarnation == incarnation || self.broken.breaks(Mutant::OverWithoutLife);
        let ends = over.node == node && this_life && self.newest != u64::MAX; // rule 72
        if ends {
            self.end();
        }
        ends
    }

    /// Whether the lease holds at `now`, whatever it covers.
    pub fn is_valid(&self, now: Millis) -> bool {
        self.lease.is_valid(now)
    }

    /// Whether the lease covers the leadership of `partition` in `epoch` at `now`.
    pub fn covers(&self, partition: PartitionId, epoch: Epoch, now: Millis) -> bool {
        self.lease.is_valid(now) && self.withdrawn.get(&partition).is_none_or(|withdrawn| *withdrawn < epoch)
    }

    /// When the lease ends, if there is one.
    pub fn until(&self) -> Option<Millis> {
        self.lease.until()
    }
}

#[cfg(test)]
#[path = "grants_tests.rs"]
mod tests;

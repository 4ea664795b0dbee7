//! Lease of a registration, and the leaderships that it does not cover (PROTOCOL rules 14, 15, 52, 53 and 72).

use crate::heartbeat::{Heartbeats, LeaseAnswer};
use crate::mutant::{DisabledRule, Mutant};
use archon_types::{Epoch, FencingProof, Incarnation, Lease, Millis, NodeId, PartitionId};
use std::collections::BTreeMap;

/// Outcome of an answer to a heartbeat.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GrantOutcome {
    /// Ignored: it answers no heartbeat that this incarnation remembers.
    Foreign,
    /// Ignored: it is older than a processed answer, a duplicate, or later than the end of the registration. It could
    /// only restore a leadership that was withdrawn since.
    Overtaken,
    /// The lease is extended.
    Granted {
        /// Milliseconds without a lease before this one; zero if the last one had not expired.
        lapsed_ms: u64,
        /// Leaderships that the lease does not cover, to be given up.
        withdrawn: Vec<(PartitionId, Epoch)>,
    },
}

/// The grants of one registration. Starts without a lease; its end is final.
#[derive(Clone, Debug, Default)]
pub struct Grants {
    lease: Lease,
    /// Leaderships that the lease does not cover: these epochs and earlier ones.
    withdrawn: BTreeMap<PartitionId, Epoch>,
    /// Number of the newest heartbeat with a processed answer.
    newest: u64,
    broken: DisabledRule,
}

impl Grants {
    /// Starts without a lease.
    pub fn new(broken: DisabledRule) -> Self {
        Self { broken, ..Self::default() }
    }

    /// Processes the answer to one of the `heartbeats` of this incarnation, received at `now` on the local clock.
    /// Takes the lease and the withdrawn leaderships together, or neither.
    pub fn take(&mut self, heartbeats: &Heartbeats, answer: LeaseAnswer, now: Millis) -> GrantOutcome {
        let Some(sent) = heartbeats.sent(&answer, self.broken) else { return GrantOutcome::Foreign }; // rule 52
        let older = answer.number <= self.newest && !self.broken.breaks(Mutant::OlderAnswerTaken);
        if older || self.newest == u64::MAX {
            return GrantOutcome::Overtaken; // rule 53
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
        GrantOutcome::Granted { lapsed_ms, withdrawn }
    }

    /// Ends the lease for good: the registration has ended, and later answers do not count.
    pub fn end(&mut self) {
        *self = Self { newest: u64::MAX, ..Self::default() };
    }

    /// Processes a notice that an incarnation is fenced. Ends the lease for good if it names this `node` and
    /// `incarnation`; a notice for another one, such as an earlier incarnation of this node, has no effect. Returns
    /// whether it ended this registration.
    pub fn told_over(&mut self, node: NodeId, incarnation: Incarnation, over: FencingProof) -> bool {
        let this_life = over.incarnation == incarnation || self.broken.breaks(Mutant::OverWithoutLife);
        let ends = over.node == node && this_life && self.newest != u64::MAX; // rule 72
        if ends {
            self.end();
        }
        ends
    }

    /// Returns whether there is a lease at `now`, regardless of the leaderships it covers.
    pub fn is_valid(&self, now: Millis) -> bool {
        self.lease.is_valid(now)
    }

    /// Returns whether the lease covers the leadership of `partition` in `epoch` at `now`.
    pub fn covers(&self, partition: PartitionId, epoch: Epoch, now: Millis) -> bool {
        self.lease.is_valid(now) && self.withdrawn.get(&partition).is_none_or(|withdrawn| *withdrawn < epoch)
    }

    /// Returns the end of the lease, if any.
    pub fn until(&self) -> Option<Millis> {
        self.lease.until()
    }
}

#[cfg(test)]
#[path = "grants_tests.rs"]
mod tests;

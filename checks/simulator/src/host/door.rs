//! Doors of nodes, and knocks at them.

use archon_member::Doors;
use archon_types::{DoorReport, Incarnation, Millis, NodeId, Version};
use std::collections::BTreeMap;

/// Kind of unreachability of a live machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shut {
    /// Incoming packets are dropped on the way, or wait in a queue that is not read.
    Dropped,
    /// Connections are refused.
    Refused,
    /// Shards take turns, and none of their answers leaves.
    Unanswered,
}

/// Reachability of a machine for clients and probers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Door {
    /// Kind of unreachability for all, and its end.
    pub(crate) shut: Option<(Shut, u64)>,
    /// One machine that does not reach it, and its end.
    pub(crate) shut_to: Option<(usize, u64)>,
}

impl Door {
    /// Returns the kind of unreachability for all at this instant.
    pub(crate) fn shut_at(&self, truth: u64) -> Option<Shut> {
        self.shut.filter(|(_, until)| truth < *until).map(|(shut, _)| shut)
    }

    pub(crate) fn shut_to(&self, keeper: usize, truth: u64) -> Option<Shut> {
        let one = self.shut_to.filter(|(to, until)| *to == keeper && truth < *until).map(|_| Shut::Dropped);
        self.shut_at(truth).or(one)
    }
}

/// An unanswered probe.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnderWay {
    pub(crate) node: NodeId,
    pub(crate) incarnation: Incarnation,
    pub(crate) began: Millis,
    /// In true time, for the checks.
    pub(crate) truth: u64,
}

/// A process's state as a prober.
#[derive(Debug, Default)]
pub(crate) struct Knocking {
    pub(crate) doors: Doors,
    pub(crate) every_ms: u64,
    /// Row version and probe interval of the current targets.
    pub(crate) kept: Option<(Version, u64)>,
    pub(crate) members: Vec<(NodeId, Incarnation)>,
    pub(crate) next: Millis,
    /// Counter of probes.
    pub(crate) knocks: u64,
    pub(crate) under_way: BTreeMap<u64, UnderWay>,
}

impl Knocking {
    /// Returns the state of a new incarnation, which probes from then on.
    pub(super) fn begin(next: Millis) -> Self {
        Self { next, ..Self::default() }
    }

    /// Sets the probe interval from a coordinator.
    pub(super) const fn note_every(&mut self, every_ms: u64) {
        self.every_ms = every_ms;
    }

    pub(super) const fn every_ms(&self) -> u64 {
        self.every_ms
    }

    /// Returns the report to send with a heartbeat.
    pub(super) fn report(&self, now: Millis) -> Option<DoorReport> {
        self.doors.report(now)
    }
}

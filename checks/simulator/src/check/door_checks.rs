//! Checks of verdicts about doors.

use crate::scenario::Scenario;
use archon_coordinator_core::DoorNews;
use archon_types::{Incarnation, NodeId};
use std::collections::BTreeMap;

/// Consecutive unanswered probes of one node: begin of the first and end of the last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Silence {
    first: u64,
    pub(crate) last: u64,
}

/// Results of one prober for one node.
#[derive(Clone, Copy, Debug, Default)]
struct ProbeResults {
    /// The current silence, and the one before it, whose report may still be in flight.
    pub(crate) now: Option<Silence>,
    before: Option<Silence>,
}

/// Probe results for each incarnation, in true time.
#[derive(Debug, Default)]
pub(crate) struct DoorChecks {
    found: BTreeMap<(NodeId, Incarnation), BTreeMap<NodeId, ProbeResults>>,
}

impl DoorChecks {
    /// Records the result of a probe that began at `since`.
    pub(crate) fn knocked(&mut self, by: NodeId, door: (NodeId, Incarnation), answered: bool, since: u64, truth: u64) {
        let found = self.found.entry(door).or_default().entry(by).or_default();
        match (answered, &mut found.now) {
            (true, now) => found.before = now.take().or(found.before),
            (false, Some(silence)) => silence.last = truth,
            (false, now) => *now = Some(Silence { first: since, last: truth }),
        }
    }

    /// Returns the number of probers that found the node unreachable for the required time, up to a moment ago.
    pub(crate) fn witnesses(&self, plan: &Scenario, door: (NodeId, Incarnation), truth: u64) -> usize {
        let settings = &plan.settings;
        // Clock rates differ by less than that, and a report holds until the next probe.
        let least = (settings.door_silent_ms - settings.door_every_ms) * 97 / 100;
        // Reports travel, and stay valid for a while.
        let worth = settings.timing.failure_timeout_ms * 6 + settings.door_every_ms * 2 + plan.slow_ms;
        let tells = |silence: Silence| silence.last - silence.first >= least && truth - silence.last <= worth;
        let counts = |found: &&ProbeResults| found.now.into_iter().chain(found.before).any(tells);
        let found = self.found.get(&door).into_iter().flatten().filter(|(by, _)| **by != door.0);
        found.map(|(_, found)| found).filter(counts).count()
    }
}

/// Verdicts of one control turn of the leading coordinator.
#[derive(Debug)]
pub(crate) struct Verdicts {
    /// Duration of its leadership.
    pub(crate) led_for: u64,
    /// Nodes it considers unreachable, and nodes it considers alive.
    pub(crate) unreached: usize,
    pub(crate) alive: usize,
    /// Verdicts that began or ended.
    pub(crate) news: Vec<DoorNews>,
}

//! Probing of other nodes: when each is probed, when a probe has failed, and the report (PROTOCOL rules 73 and 74). The
//! shell connects, and supplies the time and the rows of nodes.

use crate::probed_nodes::{ProbeResult, ProbedNodes};
use archon_types::{DoorFailure, DoorReport, Incarnation, Millis, NodeId, Version};
use std::collections::{BTreeMap, VecDeque};

/// Maximum number of concurrent probes; each holds a connection.
const PROBES_MAX: usize = 32;

/// A probe of a node, which the shell sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Probe {
    /// Increases with each probe of an incarnation of the prober.
    pub number: u64,
    /// The probed node.
    pub node: NodeId,
    /// Its incarnation according to its row.
    pub incarnation: Incarnation,
    /// Time of the start.
    pub began: Millis,
    /// Time in milliseconds after which a missing answer is a failure.
    pub within_ms: u64,
}

/// The probes of one incarnation of a node, and their results. It probes in rounds: each target once per interval, and
/// no target again before all of a round have ended.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Prober {
    doors: ProbedNodes,
    /// Interval between two rounds in milliseconds, as last set by a coordinator; zero disables probing.
    every_ms: u64,
    begun: Millis,
    /// Part of the interval after which the first round begins.
    offset: f64,
    /// Begin of the next round, once the first has begun.
    next: Option<Millis>,
    /// Version of the rows, and interval, for which the targets were computed.
    computed_for: Option<(Version, u64)>,
    targets: Vec<(NodeId, Incarnation)>,
    /// Targets of this round that wait for their probes.
    waiting: VecDeque<(NodeId, Incarnation)>,
    in_flight: BTreeMap<u64, Probe>,
    probes: u64,
}

impl Prober {
    /// Starts an incarnation of this node at `now`. Probing begins once a coordinator has set the interval, and not
    /// before this part of it, `offset` of 0 to 1, has passed: nodes that start together do not all probe at once.
    pub fn new(now: Millis, offset: f64) -> Self {
        Self { begun: now, offset, ..Self::default() }
    }

    /// Sets the interval in milliseconds; zero ends probing and drops all results. Returns whether it changed.
    pub fn note_every(&mut self, every_ms: u64) -> bool {
        let changes = self.every_ms != every_ms;
        if changes && every_ms == 0 {
            *self = Self { probes: self.probes, next: self.next, ..Self::new(self.begun, self.offset) };
        }
        self.every_ms = every_ms;
        changes
    }

    /// Returns the interval in milliseconds; zero if probing is disabled.
    pub const fn every_ms(&self) -> u64 {
        self.every_ms
    }

    /// Returns the latest time for the next calls of [`expire`](Self::expire) and [`begin`](Self::begin); `None` if
    /// probing is disabled.
    pub fn wake_at(&self) -> Option<Millis> {
        let deadline = self.in_flight.values().map(|probe| probe.began.plus(probe.within_ms)).min();
        (self.every_ms > 0).then(|| deadline.unwrap_or_else(|| self.next_round()))
    }

    /// Ends the probes without an answer in time, as failures, and returns them.
    pub fn expire(&mut self, now: Millis) -> Vec<Probe> {
        let is_late = |probe: &&Probe| probe.began.plus(probe.within_ms) <= now;
        let late: Vec<Probe> = self.in_flight.values().filter(is_late).copied().collect();
        for probe in &late {
            self.finish(probe.number, Err(DoorFailure::Silent), now);
        }
        late
    }

    /// Returns the probes to send now. `version` is that of the rows of nodes; `targets` computes from them, and from
    /// their version, which nodes to probe.
    pub fn begin(
        &mut self,
        now: Millis,
        version: Version,
        targets: impl FnOnce() -> (Version, Vec<(NodeId, Incarnation)>),
    ) -> Vec<Probe> {
        let is_idle = self.in_flight.is_empty() && self.waiting.is_empty();
        if is_idle && self.every_ms > 0 && self.next_round() <= now {
            self.next = Some(now.plus(self.every_ms));
            if self.computed_for != Some((version, self.every_ms)) {
                let (version, targets) = targets();
                self.computed_for = Some((version, self.every_ms));
                self.doors.keep(self.every_ms, targets.iter().copied());
                self.targets = targets;
            }
            self.waiting.extend(&self.targets);
        }
        let room = PROBES_MAX.saturating_sub(self.in_flight.len()).min(self.waiting.len());
        let within_ms = self.doors.within_ms();
        let sent = self.waiting.drain(..room).zip(self.probes + 1..);
        let sent: Vec<Probe> = sent
            .map(|((node, incarnation), number)| Probe { number, node, incarnation, began: now, within_ms })
            .collect();
        self.probes += sent.len() as u64;
        self.in_flight.extend(sent.iter().map(|probe| (probe.number, *probe)));
        sent
    }

    /// Ends a probe at `now`, and returns it; `None` if it had ended before.
    pub fn finish(&mut self, number: u64, outcome: Result<(), DoorFailure>, now: Millis) -> Option<Probe> {
        let probe = self.in_flight.remove(&number)?;
        let Probe { node, incarnation, began, .. } = probe;
        self.doors.note(ProbeResult { node, incarnation, began, ended: now, outcome });
        Some(probe)
    }

    /// Returns the report at `now`; `None` if it probes no node.
    pub fn report(&self, now: Millis) -> Option<DoorReport> {
        self.doors.report(now)
    }

    fn next_round(&self) -> Millis {
        let offset_ms = (self.every_ms as f64 * self.offset).round() as u64;
        self.next.unwrap_or_else(|| self.begun.plus(offset_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY_MS: u64 = 1_000;

    fn rows(version: u64, count: u64) -> (Version, Vec<(NodeId, Incarnation)>) {
        (Version::new(version), (1..=count).map(|node| (NodeId::new(node), Incarnation::new(node))).collect())
    }

    /// Returns the nodes to probe at `now`, of `count` nodes in rows of this version.
    fn begin(prober: &mut Prober, now: u64, version: u64, count: u64) -> Vec<u64> {
        let sent = prober.begin(Millis::new(now), Version::new(version), || rows(version, count));
        sent.iter().map(|probe| probe.node.get()).collect()
    }

    /// Returns the members, and those reached and shut, of the report at `now`.
    fn reported(prober: &Prober, now: u64) -> Option<(u32, u32, usize)> {
        prober.report(Millis::new(now)).map(|report| (report.members, report.reached, report.shut.len()))
    }

    fn probing(every_ms: u64) -> Prober {
        let mut prober = Prober::new(Millis::ZERO, 0.0);
        assert!(prober.note_every(every_ms));
        prober
    }

    #[test]
    fn first_round_waits_for_interval_and_its_offset() {
        let mut prober = Prober::new(Millis::new(100), 0.5);
        assert_eq!((begin(&mut prober, 10_000, 1, 2), prober.wake_at()), (vec![], None), "no interval yet");
        assert!(prober.note_every(EVERY_MS));
        assert!(!prober.note_every(EVERY_MS));
        assert_eq!(prober.wake_at(), Some(Millis::new(600)));
        assert!(begin(&mut prober, 599, 1, 2).is_empty());
        assert_eq!(begin(&mut prober, 600, 1, 2), [1, 2]);
    }

    #[test]
    fn round_begins_once_per_interval_and_after_the_last() {
        let mut prober = probing(5_000);
        assert_eq!(begin(&mut prober, 0, 1, 2), [1, 2]);
        assert_eq!(prober.wake_at(), Some(Millis::new(1_500)), "the deadline of a probe");
        assert!(prober.finish(1, Ok(()), Millis::new(2)).is_some());
        assert!(begin(&mut prober, 6_000, 1, 2).is_empty(), "a probe is still in flight");
        assert!(prober.finish(2, Ok(()), Millis::new(6_000)).is_some());
        assert_eq!(begin(&mut prober, 6_000, 1, 2), [1, 2]);
        assert!(prober.finish(3, Ok(()), Millis::new(6_001)).is_some());
        assert!(prober.finish(4, Ok(()), Millis::new(6_001)).is_some());
        assert_eq!(prober.wake_at(), Some(Millis::new(11_000)));
        assert!(begin(&mut prober, 10_999, 1, 2).is_empty());
    }

    #[test]
    fn missing_answer_is_failure_at_its_deadline() {
        let mut prober = probing(EVERY_MS);
        begin(&mut prober, 0, 1, 2);
        assert!(prober.finish(1, Ok(()), Millis::new(1)).is_some());
        assert_eq!(prober.expire(Millis::new(999)), []);
        let late: Vec<u64> = prober.expire(Millis::new(1_000)).iter().map(|probe| probe.number).collect();
        assert_eq!(late, [2]);
        assert_eq!(prober.finish(2, Ok(()), Millis::new(1_001)), None, "it has ended");
        assert_eq!(reported(&prober, 1_001), Some((2, 1, 1)));
    }

    #[test]
    fn targets_are_computed_again_for_new_rows_only() {
        let mut prober = probing(EVERY_MS);
        assert_eq!(begin(&mut prober, 0, 1, 1), [1]);
        prober.expire(Millis::new(1_000));
        assert_eq!(begin(&mut prober, 1_000, 1, 3), [1], "the same rows");
        prober.expire(Millis::new(2_000));
        assert_eq!(begin(&mut prober, 2_000, 2, 3), [1, 2, 3]);
    }

    #[test]
    fn concurrent_probes_are_limited() {
        let mut prober = probing(EVERY_MS);
        let most = PROBES_MAX as u64;
        assert_eq!(begin(&mut prober, 0, 1, most + 2).len(), PROBES_MAX);
        assert!(prober.finish(1, Ok(()), Millis::new(1)).is_some());
        assert_eq!(begin(&mut prober, 1, 1, most + 2), [most + 1]);
        prober.expire(Millis::new(1_000));
        assert_eq!(begin(&mut prober, 1_000, 1, most + 2), [most + 2], "the round goes on");
        assert_eq!(prober.wake_at(), Some(Millis::new(1_001)), "the deadline of the one that began late");
    }

    #[test]
    fn disabled_prober_drops_results_and_probes() {
        let mut prober = probing(EVERY_MS);
        begin(&mut prober, 0, 1, 2);
        assert!(prober.note_every(0));
        assert_eq!((prober.wake_at(), reported(&prober, 1)), (None, None));
        assert_eq!(prober.finish(1, Ok(()), Millis::new(1)), None);
        assert!(prober.note_every(EVERY_MS));
        assert!(begin(&mut prober, 999, 1, 2).is_empty(), "the interval lasts");
        assert_eq!(begin(&mut prober, 1_000, 1, 2), [1, 2]);
    }
}

//! Probes of other nodes' client listeners: the keeper's observations and its report (PROTOCOL rules 73 and 74).

use archon_types::{DoorFailure, DoorReport, Incarnation, Millis, NodeId, SHUT_DOORS_MAX, ShutDoor};
use std::collections::BTreeMap;

/// Deadline of a probe's answer in milliseconds, limited by the interval between probes: TCP, TLS and the answer take
/// three round trips.
const ANSWER_MS: u64 = 1_500;

/// A finished probe of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ProbeResult {
    /// The probed node.
    pub(crate) node: NodeId,
    /// Its incarnation according to its row.
    pub(crate) incarnation: Incarnation,
    /// Time of the start.
    pub(crate) began: Millis,
    /// Time of the end.
    pub(crate) ended: Millis,
    /// Success, or the kind of failure.
    pub(crate) outcome: Result<(), DoorFailure>,
}

/// State of one probed node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Door {
    incarnation: Incarnation,
    found: DoorState,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum DoorState {
    /// No probe has finished yet.
    Unknown,
    Open,
    /// Start of the first and of the last failed probe in a row, and the failure of the last one.
    Shut {
        first: Millis,
        last: Millis,
        how: DoorFailure,
    },
}

/// The nodes that this keeper probes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct ProbedNodes {
    doors: BTreeMap<NodeId, Door>,
    /// Interval between probes of a node, in milliseconds.
    every_ms: u64,
}

impl ProbedNodes {
    /// Sets the probed nodes and the interval. Drops observations of other nodes and incarnations.
    pub(crate) fn keep(&mut self, every_ms: u64, members: impl IntoIterator<Item = (NodeId, Incarnation)>) {
        self.every_ms = every_ms;
        let known = std::mem::take(&mut self.doors);
        let kept = members.into_iter().map(|(node, incarnation)| {
            let same = known.get(&node).copied().filter(|door| door.incarnation == incarnation);
            (node, same.unwrap_or(Door { incarnation, found: DoorState::Unknown }))
        });
        self.doors = kept.collect();
    }

    /// Returns the deadline of a probe's answer, in milliseconds.
    pub(crate) fn within_ms(&self) -> u64 {
        ANSWER_MS.min(self.every_ms)
    }

    /// Records a finished probe. If it took much longer than its deadline, the keeper itself was paused: the probe
    /// and the silence before it say nothing about the node.
    pub(crate) fn note(&mut self, result: ProbeResult) {
        let within_ms = self.within_ms();
        let ProbeResult { node, incarnation, began, ended, outcome } = result;
        let every_ms = self.every_ms;
        let Some(door) = self.doors.get_mut(&node).filter(|door| door.incarnation == incarnation) else { return };
        let late = ended.since(began) > within_ms.saturating_mul(2);
        door.found = match (outcome, door.found) {
            (Ok(()), _) => DoorState::Open,
            (Err(_), _) if late => DoorState::Unknown,
            // No probe in between: the keeper itself was silent.
            (Err(how), DoorState::Shut { first, last, .. }) if began.since(last) <= every_ms.saturating_mul(2) => {
                DoorState::Shut { first, last: began, how }
            }
            (Err(how), _) => DoorState::Shut { first: began, last: began, how },
        };
    }

    /// Returns the report at `now`; `None` if it probes no node.
    pub(crate) fn report(&self, now: Millis) -> Option<DoorReport> {
        if self.doors.is_empty() {
            return None;
        }
        let shut = self.doors.iter().filter_map(|(node, door)| {
            let DoorState::Shut { first, last, how } = door.found else { return None };
            // A paused keeper knows nothing about the time since its last probe.
            let known_until = last.plus(self.every_ms).min(now);
            Some(ShutDoor { node: *node, incarnation: door.incarnation, how, since_ms: known_until.since(first) })
        });
        let mut shut: Vec<ShutDoor> = shut.collect();
        shut.sort_by_key(|door| (std::cmp::Reverse(door.since_ms), door.node));
        shut.truncate(SHUT_DOORS_MAX);
        let reached = self.doors.values().filter(|door| door.found == DoorState::Open).count();
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        Some(DoorReport { members: number(self.doors.len()), reached: number(reached), shut })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY_MS: u64 = 1_000;

    fn keeper(members: u64) -> ProbedNodes {
        let mut doors = ProbedNodes::default();
        doors.keep(EVERY_MS, (1..=members).map(|node| (NodeId::new(node), Incarnation::new(node))));
        doors
    }

    fn result(node: u64, began: u64, took: u64, outcome: Result<(), DoorFailure>) -> ProbeResult {
        let (began, ended) = (Millis::new(began), Millis::new(began + took));
        ProbeResult { node: NodeId::new(node), incarnation: Incarnation::new(node), began, ended, outcome }
    }

    fn said(doors: &ProbedNodes, now: u64) -> (u32, u32, Vec<(u64, u64)>) {
        let report = doors.report(Millis::new(now)).unwrap();
        let shut = report.shut.iter().map(|door| (door.node.get(), door.since_ms)).collect();
        (report.members, report.reached, shut)
    }

    #[test]
    fn node_is_shut_from_first_failed_probe_to_next_success() {
        let mut doors = keeper(3);
        assert_eq!(said(&doors, 0), (3, 0, vec![]), "nobody was asked yet");
        doors.note(result(1, 0, 2, Ok(())));
        doors.note(result(2, 0, 500, Err(DoorFailure::Silent)));
        assert_eq!(said(&doors, 600), (3, 1, vec![(2, 600)]));
        doors.note(result(2, 1_000, 0, Err(DoorFailure::Refused)));
        doors.note(result(2, 2_000, 500, Err(DoorFailure::Silent)));
        doors.note(result(3, 2_000, 500, Err(DoorFailure::Silent)));
        assert_eq!(said(&doors, 2_900), (3, 1, vec![(2, 2_900), (3, 900)]));
        doors.note(result(2, 3_000, 1, Ok(())));
        assert_eq!(said(&doors, 3_100), (3, 2, vec![(3, 1_000)]));
        assert_eq!(ProbedNodes::default().report(Millis::new(5)), None);
    }

    #[test]
    fn paused_keeper_does_not_count_its_own_silence() {
        let mut doors = keeper(1);
        // The keeper was paused during a probe.
        doors.note(result(1, 0, 20_000, Err(DoorFailure::Silent)));
        assert_eq!(said(&doors, 20_000), (1, 0, vec![]));
        // The keeper was paused between two probes.
        doors.note(result(1, 21_000, 500, Err(DoorFailure::Silent)));
        assert_eq!(said(&doors, 60_000), (1, 0, vec![(1, 1_000)]));
        doors.note(result(1, 60_000, 500, Err(DoorFailure::Silent)));
        assert_eq!(said(&doors, 60_500), (1, 0, vec![(1, 500)]));
    }

    #[test]
    fn new_incarnations_and_members_are_unknown() {
        let mut doors = keeper(2);
        doors.note(result(1, 0, 500, Err(DoorFailure::Silent)));
        doors.note(result(2, 0, 1, Ok(())));
        doors.keep(EVERY_MS, [(NodeId::new(1), Incarnation::new(9)), (NodeId::new(2), Incarnation::new(2))]);
        assert_eq!(said(&doors, 600), (2, 1, vec![]));
        // A probe that was in flight refers to an old incarnation.
        doors.note(result(1, 0, 500, Err(DoorFailure::Silent)));
        doors.note(result(7, 0, 500, Err(DoorFailure::Silent)));
        assert_eq!(said(&doors, 600), (2, 1, vec![]));
        doors.keep(0, []);
        assert_eq!(doors.report(Millis::new(700)), None);
    }

    #[test]
    fn report_is_limited_to_the_longest_shut_nodes() {
        let mut doors = keeper(100);
        for node in 1..=100 {
            doors.note(result(node, 1_000 - node, 500, Err(DoorFailure::Silent)));
        }
        let (members, reached, shut) = said(&doors, 1_600);
        assert_eq!((members, reached, shut.len(), shut[0]), (100, 0, SHUT_DOORS_MAX, (100, 700)));
        assert!(!doors.report(Millis::new(1_600)).unwrap().is_whole());
    }
}

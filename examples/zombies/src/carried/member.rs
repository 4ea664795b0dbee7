//! One member: its heartbeats on any path that answers, the lease that the answers grant, and its work as a relay.

use crate::random::Random;
use archon_member::{
    AttemptFailure, AttemptTarget, GrantOutcome, Grants, Heartbeat, HeartbeatDriver, HeartbeatPace, Heartbeats,
    LeaseAnswer, Relay, RelayedHeartbeat, Step,
};
use archon_types::{Incarnation, LeaseTiming, Millis, NodeId};

/// A heartbeat in flight.
#[derive(Clone, Debug)]
pub(super) struct Beat(pub(super) Heartbeat);

impl RelayedHeartbeat for Beat {
    fn node(&self) -> NodeId {
        self.0.node()
    }

    fn incarnation(&self) -> Incarnation {
        self.0.incarnation()
    }

    fn number(&self) -> u64 {
        self.0.number()
    }
}

/// A heartbeat to send: to a relay, or to the coordinator.
pub(super) type Sent = (Beat, Option<NodeId>);

pub(super) struct Member {
    heartbeats: Heartbeats,
    pub(super) grants: Grants,
    driver: HeartbeatDriver<()>,
    /// Next call of [`beat`](Self::beat).
    beats_at: Millis,
    /// The relays of its heartbeats.
    relays: Vec<NodeId>,
    /// Its work as a relay of heartbeats: those of others, and its own.
    pub(super) relay: Relay<Beat>,
    /// Next check of the relay, if any.
    pub(super) wakes_at: Option<u64>,
}

/// The leading coordinator alone: the others would refuse at once.
const COORDINATORS: &[()] = &[()];

impl Member {
    pub(super) fn new(
        node: NodeId,
        life: Incarnation,
        relays: Vec<NodeId>,
        timing: LeaseTiming,
        began: Millis,
    ) -> Self {
        Self {
            heartbeats: Heartbeats::new(node, life),
            grants: Grants::default(),
            driver: HeartbeatDriver::new(HeartbeatPace::of_node(timing), Millis::ZERO),
            beats_at: Millis::ZERO,
            relays,
            relay: Relay::new(timing, began),
            wakes_at: None,
        }
    }

    /// Begins a round, or ends an attempt that timed out.
    pub(super) fn beat(&mut self, now: Millis, random: &mut Random) -> Option<Sent> {
        let relays = || Some(self.relays.clone());
        let step = self.driver.due(now, relays, COORDINATORS, |below| random.below(below));
        self.send(&step, now)
    }

    /// Returns the time of the next call of [`beat`](Self::beat), unless it was returned already.
    pub(super) fn next_beat(&mut self) -> Option<Millis> {
        let at = self.driver.wake_at();
        (std::mem::replace(&mut self.beats_at, at) != at).then_some(at)
    }

    fn send(&mut self, step: &Step<()>, now: Millis) -> Option<Sent> {
        let Step::Ask(ways) = step else { return None };
        let way = *ways.first()?;
        let beat = self.heartbeats.send(now);
        self.driver.note_sent(beat.number(), way, now);
        Some((Beat(beat), if let AttemptTarget::Relay(relay) = way { Some(relay) } else { None }))
    }

    /// Handles an answer, from a relay that names its next batch time, or directly from the coordinator. It counts even
    /// after its time-out.
    pub(super) fn answered(
        &mut self,
        answer: LeaseAnswer,
        departure_ms: Option<u64>,
        now: Millis,
        random: &mut Random,
    ) -> GrantOutcome {
        let number = answer.number;
        let taken = self.grants.take(&self.heartbeats, answer, now);
        self.driver.answered(number, &taken, departure_ms, now, |below| random.below(below));
        taken
    }

    /// Handles the message of a relay that no coordinator answers.
    pub(super) fn no_coordinator(&mut self, number: u64, now: Millis, random: &mut Random) -> Option<Sent> {
        let draw = |below| random.below(below);
        let step = self.driver.unanswered(number, AttemptFailure::NoCoordinator, now, COORDINATORS, draw);
        self.send(&step, now)
    }
}

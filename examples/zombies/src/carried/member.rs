//! One member: its heartbeats on any path that answers, the lease that the answers grant, and its work as a relay.

use crate::random::Random;
use archon_member::{
    AttemptFailure, AttemptTarget, Attempts, COORDINATOR_ANSWER_MS, GrantOutcome, Grants, Heartbeat, Heartbeats,
    LeaseAnswer, RELAY_ANSWER_MS, Relay, RelayPreference, RelayedHeartbeat, Step, next_by_relay,
};
use archon_types::{Backoff, Incarnation, LeaseTiming, Millis, NodeId};
use std::time::Duration;

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

/// A member's next action.
#[derive(Debug)]
pub(super) enum MemberStep {
    /// Send a heartbeat to a relay, or to the coordinator; it times out at this instant.
    Send { beat: Beat, to: Option<NodeId>, given_up_at: Millis },
    /// Begin the next round at this instant.
    Beat(Millis),
}

pub(super) struct Member {
    heartbeats: Heartbeats,
    pub(super) grants: Grants,
    ways: RelayPreference,
    /// The relays of its heartbeats.
    relays: Vec<NodeId>,
    backoff: Backoff,
    round: Option<Round>,
    /// Its work as a relay of heartbeats: those of others, and its own.
    pub(super) relay: Relay<Beat>,
    /// Next check of the relay, if any.
    pub(super) wakes_at: Option<u64>,
    timing: LeaseTiming,
}

/// A heartbeat that is tried on one path after the other.
struct Round {
    began: Millis,
    attempts: Attempts<()>,
    /// Relay of the last attempt; `None` if it went to the coordinator.
    relay: Option<NodeId>,
    /// Number of the last heartbeat.
    number: u64,
}

/// Returns the leading coordinator alone: the others would refuse at once.
fn coordinators() -> Vec<()> {
    vec![()]
}

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
            ways: RelayPreference::default(),
            relays,
            backoff: Backoff::new(Duration::from_millis(20), Duration::from_millis(40)),
            round: None,
            relay: Relay::new(timing, began),
            wakes_at: None,
            timing,
        }
    }

    /// Begins a round.
    pub(super) fn beat(&mut self, now: Millis) -> MemberStep {
        let mut attempts = Attempts::by(self.ways.order(&self.relays));
        let step = attempts.begin(coordinators);
        self.round = Some(Round { began: now, attempts, relay: None, number: 0 });
        self.take(step, now, 0.0)
    }

    /// Returns the next action; `drawn` determines the pause after a failed round.
    fn take(&mut self, step: Step<()>, now: Millis, drawn: f64) -> MemberStep {
        let pause = match step {
            Step::Ask(ways) => {
                let relay = if let [AttemptTarget::Relay(relay)] = ways[..] { Some(relay) } else { None };
                return self.send(relay, now);
            }
            Step::Kept => Duration::from_millis(self.timing.heartbeat_ms / 2),
            Step::Wait | Step::Failed => self.backoff.next(drawn),
        };
        self.round = None;
        MemberStep::Beat(now.plus(pause.as_millis() as u64))
    }

    fn send(&mut self, to: Option<NodeId>, now: Millis) -> MemberStep {
        let beat = self.heartbeats.send(now);
        if let Some(round) = &mut self.round {
            round.relay = to;
            round.number = beat.number();
        }
        let waits_ms = if to.is_some() { RELAY_ANSWER_MS } else { COORDINATOR_ANSWER_MS };
        MemberStep::Send { beat: Beat(beat), to, given_up_at: now.plus(waits_ms) }
    }

    /// Handles an answer, from a relay that names its next batch time, or directly from the coordinator. It counts even
    /// after its time-out.
    pub(super) fn answered(
        &mut self,
        answer: LeaseAnswer,
        departure_ms: Option<u64>,
        now: Millis,
    ) -> (GrantOutcome, Option<MemberStep>) {
        let number = answer.number;
        let taken = self.grants.take(&self.heartbeats, answer, now);
        let Some(round) = self.round.take_if(|round| round.number == number && taken != GrantOutcome::Foreign) else {
            return (taken, None);
        };
        self.ways.answered_by(round.relay);
        self.backoff.reset();
        let heartbeat_ms = self.timing.heartbeat_ms;
        let sent = round.began;
        let next = departure_ms
            .map_or(sent.plus(heartbeat_ms), |departs| next_by_relay(sent, now, departs, heartbeat_ms, heartbeat_ms));
        (taken, Some(MemberStep::Beat(next.max(now))))
    }

    /// Handles the message of a relay that no coordinator answers.
    pub(super) fn no_coordinator(&mut self, number: u64, now: Millis, random: &mut Random) -> Option<MemberStep> {
        self.unanswered(number, AttemptFailure::NoCoordinator, now, random)
    }

    /// Handles a failed or timed-out attempt.
    pub(super) fn given_up(&mut self, number: u64, now: Millis, random: &mut Random) -> Option<MemberStep> {
        self.unanswered(number, AttemptFailure::Failed(None), now, random)
    }

    fn unanswered(
        &mut self,
        number: u64,
        why: AttemptFailure<()>,
        now: Millis,
        random: &mut Random,
    ) -> Option<MemberStep> {
        let round = self.round.as_mut().filter(|round| round.number == number)?;
        let step = round.attempts.unanswered(why, coordinators, |below| random.below(below));
        let drawn = if step == Step::Failed { random.unit() } else { 0.0 };
        Some(self.take(step, now, drawn))
    }
}

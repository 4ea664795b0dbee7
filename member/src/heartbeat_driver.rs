//! Heartbeat rounds of one incarnation: the time of each heartbeat, its recipients, and the consequences of their
//! answers (PROTOCOL rules 67 and 68).

use crate::attempts::{AttemptFailure, AttemptTarget, Attempts, Step};
use crate::grants::GrantOutcome;
use crate::mutant::DisabledRule;
use crate::relay_preference::{RELAY_ANSWER_MS, RelayPreference, next_by_relay};
use archon_types::{Backoff, LeaseTiming, Millis, NodeId};
use std::time::Duration;

#[cfg(test)]
#[path = "heartbeat_driver_tests.rs"]
mod tests;

/// Time-out of a coordinator's answer at a node, in milliseconds.
const NODE_ANSWER_MS: u64 = 150;
/// Bounds of that time-out at a participant, which is an eighth of its lease, in milliseconds.
const PARTICIPANT_ANSWER_MS: (u64, u64) = (NODE_ANSWER_MS, 2_000);
/// Bound of the first pause after a failed round, in milliseconds.
const PAUSE_MS: u64 = 20;
/// Bounds of later pauses, in milliseconds: of a node, and of a participant.
const PAUSE_MAX_MS: (u64, u64) = (40, 1_000);
/// Interval in milliseconds above which a member goes directly to the coordinators: relays close streams that are silent
/// for long, and so few heartbeats do not justify a connection for each.
const RARELY_MS: u64 = 5_000;
/// Range of random numbers for pauses.
const UNIT: u32 = 1 << 20;

/// Intervals and time-outs of a member's heartbeats, in milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HeartbeatPace {
    /// Interval between two heartbeats.
    pub heartbeat_ms: u64,
    /// Interval between two batches of a relay.
    pub relay_ms: u64,
    /// Time-out of a coordinator's answer.
    pub answer_ms: u64,
    /// Bound of the pause after failed rounds.
    pub pause_max_ms: u64,
    /// Maximum random time by which a heartbeat to a coordinator precedes the end of the interval.
    pub spread_ms: u64,
    /// A round that fails this soon after a late grant has a distant coordinator, which answers after the time-out: the next
    /// round waits for the regular interval. Zero if the lease would not last that long.
    pub distant_ms: u64,
}

impl HeartbeatPace {
    /// Returns the pace of a node. Its relays are nodes of the same timing.
    pub fn of_node(timing: LeaseTiming) -> Self {
        let heartbeat_ms = timing.heartbeat_ms;
        let pause_max_ms = heartbeat_ms.min(PAUSE_MAX_MS.0);
        Self {
            heartbeat_ms,
            relay_ms: heartbeat_ms,
            answer_ms: NODE_ANSWER_MS,
            pause_max_ms,
            spread_ms: 0,
            distant_ms: heartbeat_ms,
        }
    }

    /// Returns the pace of a participant. Its relays send a batch every `relay_ms`. It sends each heartbeat at a random time
    /// in the last quarter of its interval: participants that start together spread.
    pub fn of_participant(timing: LeaseTiming, relay_ms: u64) -> Self {
        let heartbeat_ms = timing.heartbeat_ms;
        let answer_ms = (timing.lease_ms / 8).clamp(PARTICIPANT_ANSWER_MS.0, PARTICIPANT_ANSWER_MS.1);
        let pause_max_ms = heartbeat_ms.min(PAUSE_MAX_MS.1);
        let distant_ms = match heartbeat_ms.saturating_mul(3) < timing.lease_ms {
            true => heartbeat_ms.min(2 * answer_ms),
            false => 0,
        };
        Self { heartbeat_ms, relay_ms, answer_ms, pause_max_ms, spread_ms: heartbeat_ms / 4, distant_ms }
    }
}

/// A round that an answer ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AnsweredRound<C> {
    /// The number of the answered heartbeat.
    pub number: u64,
    /// The sender of the answer.
    pub by: AttemptTarget<C>,
    /// The relays that the round was to try, in order.
    pub relays: Vec<NodeId>,
    /// Time until the next batch of the relay that brought the answer, in milliseconds.
    pub departure_ms: Option<u64>,
}

/// The heartbeats of one incarnation. A round sends one heartbeat along one way after the other until an answer grants a
/// lease. `C` identifies a coordinator to the shell, which sends, receives, and supplies times on the local clock and
/// random numbers: `draw` returns a uniformly random number below its argument.
#[derive(Clone, Debug)]
pub struct HeartbeatDriver<C> {
    pace: HeartbeatPace,
    ways: RelayPreference,
    round: Option<Round<C>>,
    /// Begin of the next round.
    next: Millis,
    /// True if an answer ended the last round, and no round was withheld since.
    is_answered: bool,
    /// Time of the last grant, if its answer came too late to end a round.
    late_grant: Option<Millis>,
    backoff: Backoff,
    broken: DisabledRule,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Round<C> {
    began: Millis,
    /// The relays to try, in order.
    relays: Vec<NodeId>,
    attempts: Attempts<C>,
    /// Numbers and recipients of the heartbeats of the last attempt that may still be answered.
    pending: Vec<(u64, AttemptTarget<C>)>,
    /// Time of the last attempt.
    sent: Millis,
    given_up_at: Millis,
}

impl<C: Clone + PartialEq> Default for HeartbeatDriver<C> {
    fn default() -> Self {
        Self::new(HeartbeatPace::default(), Millis::ZERO)
    }
}

impl<C: Clone + PartialEq> HeartbeatDriver<C> {
    /// Starts without a heartbeat; the first round begins at `first`.
    pub fn new(pace: HeartbeatPace, first: Millis) -> Self {
        let backoff = Backoff::new(Duration::from_millis(PAUSE_MS), Duration::from_millis(pace.pause_max_ms));
        let (ways, broken) = (RelayPreference::default(), DisabledRule::default());
        Self { pace, ways, round: None, next: first, is_answered: false, late_grant: None, backoff, broken }
    }

    /// Disables a rule.
    #[must_use]
    pub fn broken_by(self, broken: DisabledRule) -> Self {
        Self { ways: self.ways.broken_by(broken), broken, ..self }
    }

    /// Returns the time of the next call of [`due`](Self::due).
    pub fn wake_at(&self) -> Millis {
        self.round.as_ref().map_or(self.next, |round| round.given_up_at)
    }

    /// Returns the heartbeats of the last attempt that may still be answered, each with its number.
    pub fn pending(&self) -> &[(u64, AttemptTarget<C>)] {
        self.round.as_ref().map_or(&[], |round| &round.pending)
    }

    /// Returns whether [`hurry`](Self::hurry) has an effect: the last round was answered, and no other one has begun.
    pub const fn may_hurry(&self) -> bool {
        self.round.is_none() && self.is_answered
    }

    /// Has the next round begin at `now`: the member has something to report at once.
    pub fn hurry(&mut self, now: Millis) {
        if self.may_hurry() {
            self.next = self.next.min(now);
        }
    }

    /// Begins a due round, or ends an attempt that timed out. `relays` returns the member's relays at the beginning of
    /// a round, or `None` if the member must send no heartbeat now: it is asked again after an interval. `coordinators`
    /// are all known ones, the probable leader first.
    ///
    /// Once the heartbeats of the step are sent, [`wake_at`](Self::wake_at) is later than `now`. A shell that plans a
    /// call for each new time therefore misses none.
    pub fn due(
        &mut self,
        now: Millis,
        relays: impl FnOnce() -> Option<Vec<NodeId>>,
        coordinators: &[C],
        mut draw: impl FnMut(u32) -> u32,
    ) -> Step<C> {
        if now < self.wake_at() {
            return Step::Wait;
        }
        if let Some(round) = &mut self.round {
            let step = round.attempts.given_up(coordinators, &mut draw);
            let step = self.proceed(step, now, &mut draw);
            // The round of a distant coordinator may end when the next one is due, or later.
            if step != Step::Wait || now < self.wake_at() {
                return step;
            }
        }
        let Some(mut relays) = relays() else {
            (self.next, self.is_answered) = (now.plus(self.pace.heartbeat_ms), false);
            return Step::Wait;
        };
        if self.pace.heartbeat_ms > RARELY_MS {
            relays.clear();
        }
        let relays = self.ways.order(&relays);
        let mut attempts = Attempts::by(relays.iter().copied()).broken_by(self.broken);
        let step = attempts.begin(coordinators);
        let pending = Vec::new();
        self.round = Some(Round { began: now, relays, attempts, pending, sent: now, given_up_at: now });
        self.proceed(step, now, draw)
    }

    /// Records that a heartbeat with this number is sent at `now`, along a way of the last [`Step::Ask`].
    pub fn note_sent(&mut self, number: u64, way: AttemptTarget<C>, now: Millis) {
        let Some(round) = &mut self.round else { return };
        let waits_ms = match way {
            AttemptTarget::Relay(_) => RELAY_ANSWER_MS,
            AttemptTarget::Coordinator(_) => self.pace.answer_ms,
        };
        (round.sent, round.given_up_at) = (now, now.plus(waits_ms));
        round.pending.push((number, way));
    }

    /// Handles a refusal of a heartbeat, or the end of the stream that carried it.
    pub fn unanswered(
        &mut self,
        number: u64,
        why: AttemptFailure<C>,
        now: Millis,
        coordinators: &[C],
        mut draw: impl FnMut(u32) -> u32,
    ) -> Step<C> {
        let Some(round) = &mut self.round else { return Step::Wait };
        let Some(place) = round.pending.iter().position(|(sent, _)| *sent == number) else { return Step::Wait };
        round.pending.remove(place);
        let step = round.attempts.unanswered(why, coordinators, &mut draw);
        self.proceed(step, now, draw)
    }

    /// Handles an answer, which had the outcome `taken`. `departure_ms`: the time until the next batch of the relay that
    /// brought it. Returns the round that it ends; the answer to an attempt that was given up ends none.
    pub fn answered(
        &mut self,
        number: u64,
        taken: &GrantOutcome,
        departure_ms: Option<u64>,
        now: Millis,
        draw: impl FnOnce(u32) -> u32,
    ) -> Option<AnsweredRound<C>> {
        if let GrantOutcome::Granted { .. } = taken {
            self.late_grant = Some(now);
        }
        let answers = |round: &mut Round<C>| round.pending.iter().any(|(sent, _)| *sent == number);
        let round = self.round.take_if(|round| *taken != GrantOutcome::Foreign && answers(round))?;
        let by = round.pending.into_iter().find(|(sent, _)| *sent == number).map(|(_, way)| way)?;
        self.ways.answered_by(if let AttemptTarget::Relay(relay) = by { Some(relay) } else { None });
        let HeartbeatPace { heartbeat_ms, relay_ms, spread_ms, .. } = self.pace;
        self.next = match departure_ms {
            Some(departure_ms) => next_by_relay(round.sent, now, departure_ms, heartbeat_ms, relay_ms),
            None if spread_ms == 0 => round.sent.plus(heartbeat_ms),
            None => {
                let spread_ms = u32::try_from(spread_ms).unwrap_or(u32::MAX - 1);
                round.sent.plus(heartbeat_ms.saturating_sub(draw(spread_ms + 1).into()))
            }
        };
        (self.is_answered, self.late_grant) = (true, None);
        self.backoff.reset();
        Some(AnsweredRound { number, by, relays: round.relays, departure_ms })
    }

    /// Takes the next step of the round.
    fn proceed(&mut self, step: Step<C>, now: Millis, draw: impl FnOnce(u32) -> u32) -> Step<C> {
        let pause_ms = match step {
            Step::Wait => return step,
            Step::Ask(_) => {
                if let Some(round) = &mut self.round {
                    round.pending.clear();
                }
                return step;
            }
            // The relay finds the next leader for all members that it carries for.
            Step::Kept => self.pace.heartbeat_ms.min(self.pace.relay_ms) / 2,
            Step::Failed => {
                let began = self.round.as_ref().map_or(now, |round| round.began);
                let regular = began.plus(self.pace.heartbeat_ms);
                let distant_ms = self.pace.distant_ms;
                if distant_ms > 0 && self.late_grant.is_some_and(|granted| granted.plus(distant_ms) >= began) {
                    self.backoff.reset();
                    // Without a hurry: coordinators that refuse at once would be asked without a pause.
                    (self.round, self.next, self.is_answered) = (None, regular, false);
                    return Step::Wait;
                }
                // The lease is running out: the next round begins sooner than the next heartbeat would.
                let unit = f64::from(draw(UNIT)) / f64::from(UNIT);
                u64::try_from(self.backoff.next(unit).as_millis()).unwrap_or(u64::MAX)
            }
        };
        (self.round, self.next, self.is_answered) = (None, now.plus(pause_ms), false);
        step
    }
}

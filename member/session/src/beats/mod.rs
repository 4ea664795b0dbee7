//! Heartbeats of one incarnation, sent to coordinators or relays, and their answers. `archon-member` decides when each is
//! sent, and to which recipients.
//!
//! | Module | Contents |
//! |---|---|
//! | `mod` | sender of heartbeats |
//! | `beating_member` | the member that it serves |
//! | `stream` | one stream, to one address |
//! | `streams` | all open streams |

mod beating_member;
mod stream;
mod streams;

pub use self::beating_member::BeatingMember;
pub(crate) use self::stream::StreamMessage;
pub(crate) use self::streams::{Backlog, Streams};
use crate::clock::Clock;
use crate::coordinators::Coordinators;
use archon_frames::FrameError;
use archon_member::{AttemptFailure, AttemptTarget, GrantOutcome, HeartbeatDriver, HeartbeatPace, LeaseAnswer, Step};
use archon_proto::convert::members::beat_proofs::{answer_statement, beat_statement, news_statement};
use archon_proto::convert::members::beats::{
    BeatAnswer, BeatAnswers, Beats, ClusterNow, HeartbeatAnswers, LeaseGrant, NewsFor,
};
use archon_proto::convert::members::session::Member;
use archon_proto::convert::tables::table_updates::TableUpdates;
use archon_security::{BeatKey, ExpectedPeer};
use archon_types::{ErrorDetail, ErrorKind, NodeId, RelayAddress};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Sends the heartbeats of an incarnation until it is fenced. If there is a `key` (where members authenticate
/// themselves), heartbeats to relays are proven with it, and answers from relays must be.
pub async fn send_heartbeats(
    coordinators: &Coordinators,
    clock: &dyn Clock,
    member: Member,
    key: Option<&BeatKey>,
    pace: HeartbeatPace,
    beating: &mut impl BeatingMember,
) {
    let (streams, mut heard) =
        Streams::new(coordinators.transport().clone(), Backlog::Newest, Duration::from_millis(pace.answer_ms));
    let driver = HeartbeatDriver::new(pace, clock.now());
    let (relays, last_relay) = (Vec::new(), None);
    let mut sender = HeartbeatSender { coordinators, clock, member, key, streams, driver, relays, last_relay, beating };
    loop {
        sender.proceed();
        let wake = Duration::from_millis(sender.driver.wake_at().since(clock.now()).max(1));
        tokio::select! {
            // The streams hold a sender, so the channel stays open.
            Some(said) = heard.recv() => if sender.hear(said) == Standing::Fenced {
                return;
            },
            () = sender.beating.hurried(), if sender.driver.may_hurry() => sender.driver.hurry(clock.now()),
            () = sleep(wake) => {}
        }
    }
}

/// State of an incarnation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Standing {
    Alive,
    Fenced,
}

/// Sends heartbeats, and receives their answers.
struct HeartbeatSender<'a, M> {
    coordinators: &'a Coordinators,
    clock: &'a dyn Clock,
    member: Member,
    key: Option<&'a BeatKey>,
    streams: Streams,
    driver: HeartbeatDriver<String>,
    /// The relays of the last round.
    relays: Vec<RelayAddress>,
    /// The relay that answered last; none if a coordinator did.
    last_relay: Option<NodeId>,
    beating: &'a mut M,
}

/// Returns a random number below a limit.
fn draw(below: u32) -> u32 {
    rand::random_range(0..below)
}

impl<M: BeatingMember> HeartbeatSender<'_, M> {
    /// Begins a due round, or ends an attempt that timed out.
    fn proceed(&mut self) {
        let now = self.clock.now();
        if now < self.driver.wake_at() {
            return;
        }
        for (_, way) in self.driver.pending() {
            self.doubt(way);
        }
        let Self { driver, relays, beating, .. } = self;
        let begin = || {
            *relays = beating.begin_round()?;
            Some(relays.iter().map(|relay| relay.node).collect())
        };
        let step = driver.due(now, begin, &self.coordinators.order(), draw);
        self.perform(step);
    }

    fn perform(&mut self, step: Step<String>) {
        match step {
            Step::Ask(ways) => {
                let unsent: Vec<u64> = ways.into_iter().filter_map(|way| self.send(way).err()).collect();
                for number in unsent {
                    self.unanswered(number, AttemptFailure::Failed(None));
                }
            }
            Step::Kept | Step::Failed => self.beating.round_failed(),
            Step::Wait => {}
        }
    }

    /// Sends a heartbeat.
    ///
    /// # Errors
    /// Its number, if it cannot be sent there.
    fn send(&mut self, way: AttemptTarget<String>) -> Result<(), u64> {
        let mut beat = self.beating.next_beat();
        let (number, now) = (beat.number, self.clock.now());
        if let Some(key) = self.key.filter(|_| matches!(way, AttemptTarget::Relay(_))) {
            beat.proof = key.prove(&beat_statement(&beat));
        }
        self.driver.note_sent(number, way.clone(), now);
        let until = Instant::now() + Duration::from_millis(self.driver.wake_at().since(now));
        let frame = Beats { cluster: self.member.cluster, batch: number, beats: vec![beat], relay: None };
        let (address, expected) = self.recipient(&way).ok_or(number)?;
        self.streams.send(address, expected, Arc::new(frame.into()), until).map_err(|detail| {
            tracing::debug!(%detail, address, "no heartbeat is sent there");
            number
        })
    }

    /// Returns the address of a recipient and the expected peer there; `None` for a relay that is unknown by now.
    fn recipient<'s>(&'s self, way: &'s AttemptTarget<String>) -> Option<(&'s str, ExpectedPeer)> {
        match way {
            AttemptTarget::Coordinator(address) => Some((address, ExpectedPeer::Coordinators)),
            AttemptTarget::Relay(node) => {
                let relay = self.relays.iter().find(|relay| relay.node == *node)?;
                Some((&relay.address, ExpectedPeer::Node(relay.name.clone())))
            }
        }
    }

    /// Processes a message of a stream, which may answer an old heartbeat. Returns whether this incarnation is fenced.
    fn hear(&mut self, StreamMessage { address, by_relay, stream, what }: StreamMessage) -> Standing {
        match what {
            Ok(BeatAnswers { over: Some(over), .. }) if self.beating.told_over(over, &address) => Standing::Fenced,
            Ok(BeatAnswers { outcome: Ok(HeartbeatAnswers { answers, now, next_departure_ms, news }), .. }) => {
                for mut answer in answers {
                    if by_relay && !self.is_proven(&answer, now) {
                        let number = answer.number;
                        tracing::warn!(
                            number,
                            address,
                            "discarded an answer to a heartbeat: no coordinator gave it to the relay"
                        );
                        continue;
                    }
                    let for_it = answer.news.take().filter(|_| by_relay && self.is_own(&answer));
                    if self.take_answer(answer, now, next_departure_ms, &address) == Standing::Fenced {
                        return Standing::Fenced;
                    }
                    if let Some(for_it) = for_it {
                        self.beating.take_news(self.read_news(&for_it, &news));
                    }
                }
                Standing::Alive
            }
            Ok(BeatAnswers { batch, outcome: Err(detail), .. }) => self.refused(batch, by_relay, detail),
            Err(error) => self.ended(&address, by_relay, stream, &error),
        }
    }

    fn is_own(&self, answer: &BeatAnswer) -> bool {
        (answer.node, answer.incarnation) == (self.member.node, self.member.incarnation)
    }

    /// Returns whether a coordinator made the answer for this incarnation, and not the relay that brought it.
    fn is_proven(&self, answer: &BeatAnswer, now: ClusterNow) -> bool {
        self.key.is_none_or(|key| key.proves(&answer_statement(answer, &now), &answer.proof))
    }

    /// Reads table updates, and rejects those that no coordinator made (rule 79).
    fn read_news(&self, for_it: &NewsFor, brought: &[impl AsRef<[u8]>]) -> Result<TableUpdates, ErrorDetail> {
        let Member { node, incarnation, .. } = self.member;
        let bytes = brought.get(for_it.place).map_or(&[][..], AsRef::as_ref);
        let statement = || news_statement(node, incarnation, &BeatKey::digest(bytes));
        if !self.key.is_none_or(|key| key.proves(&statement(), &for_it.proof)) {
            let why = "the table update in the answer to a heartbeat is not signed by a coordinator: a relay invented \
                       or changed it";
            return Err(ErrorDetail::new(ErrorKind::Refused, why));
        }
        TableUpdates::read(bytes, incarnation).map_err(ErrorDetail::from)
    }

    /// Processes the answer to a heartbeat.
    fn take_answer(
        &mut self,
        answer: BeatAnswer,
        now: ClusterNow,
        next_departure_ms: Option<u64>,
        address: &str,
    ) -> Standing {
        let is_own = self.is_own(&answer);
        let BeatAnswer { node, incarnation, number, outcome, .. } = answer;
        let LeaseGrant { lease_ms, withdrawn } = match outcome {
            Ok(granted) => granted,
            Err(detail) if is_own => return self.refused(number, false, detail),
            Err(_) => return Standing::Alive,
        };
        let taken = self.beating.take_lease(LeaseAnswer { node, incarnation, number, lease_ms, withdrawn }, now);
        if taken == GrantOutcome::Foreign {
            tracing::warn!(number, %node, %incarnation, "discarded an answer to a heartbeat that was not sent, or long \
                                                         ago");
        }
        let round = self.driver.answered(number, &taken, next_departure_ms, self.clock.now(), draw);
        let Some(round) = round else { return Standing::Alive };
        self.streams.keep_only(address);
        let relay = match &round.by {
            AttemptTarget::Relay(relay) => Some(*relay),
            AttemptTarget::Coordinator(leader) => {
                self.coordinators.leads(leader);
                None
            }
        };
        if std::mem::replace(&mut self.last_relay, relay) != relay {
            match self.relays.iter().find(|known| Some(known.node) == relay) {
                Some(relay) => tracing::info!(relay = relay.name, "heartbeats are carried by a relay"),
                None => tracing::info!("heartbeats go straight to the coordinators"),
            }
        }
        self.beating.round_answered(&round);
        Standing::Alive
    }

    /// Handles a refusal of a heartbeat by a coordinator, or of a whole frame by a relay.
    fn refused(&mut self, number: u64, by_relay: bool, detail: ErrorDetail) -> Standing {
        let why = match detail.kind {
            // The relay keeps the heartbeat and sends it to the next leader.
            ErrorKind::NoQuorum if by_relay => AttemptFailure::NoCoordinator,
            // A relay's refusal names no incarnation: only a coordinator's answer to the heartbeat itself, or a
            // fencing notice, ends one.
            _ if by_relay => AttemptFailure::Failed(None),
            ErrorKind::StaleIncarnation => return Standing::Fenced,
            _ => AttemptFailure::Failed(detail.leader),
        };
        self.unanswered(number, why);
        Standing::Alive
    }

    fn unanswered(&mut self, number: u64, why: AttemptFailure<String>) {
        if let Some((_, way)) = self.driver.pending().iter().find(|(sent, _)| *sent == number) {
            self.doubt(way);
        }
        let step = self.driver.unanswered(number, why, self.clock.now(), &self.coordinators.order(), draw);
        self.perform(step);
    }

    fn doubt(&self, way: &AttemptTarget<String>) {
        if let AttemptTarget::Coordinator(address) = way {
            self.coordinators.doubt(address);
        }
    }

    /// Handles the end of a stream: its pending heartbeats get no answer.
    fn ended(&mut self, address: &str, by_relay: bool, stream: u64, error: &FrameError) -> Standing {
        match error {
            FrameError::Unreadable(_) => tracing::warn!(%error, address, "the answers to heartbeats cannot be read"),
            _ => tracing::debug!(%error, address, "a stream of heartbeats ended"),
        }
        if !self.streams.ended(address, stream) {
            return Standing::Alive;
        }
        let here = |way| self.recipient(way).is_some_and(|(dialled, _)| dialled == address);
        let pending = self.driver.pending().iter();
        let unanswered: Vec<u64> = pending.filter(|(_, way)| here(way)).map(|(number, _)| *number).collect();
        for number in unanswered {
            match error {
                FrameError::Refused(detail) => {
                    if self.refused(number, by_relay, detail.clone()) == Standing::Fenced {
                        return Standing::Fenced;
                    }
                }
                _ => self.unanswered(number, AttemptFailure::Failed(None)),
            }
        }
        Standing::Alive
    }
}

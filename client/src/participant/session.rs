//! A participant's session with the leading coordinator: registration, heartbeats, duties, reports and leaving.
//!
//! It has its own thread and runtime, so the service cannot delay heartbeats.

use super::load::ServiceLoad;
use super::relays::Relays;
use super::state::{ParticipantState, Phase};
use archon_member::{GrantOutcome, LeaseAnswer, RegistrationAttempts};
use archon_proto::convert::members::beats::{Beat, ClusterNow};
use archon_proto::convert::members::duties::{Duties, DutiesQuery};
use archon_proto::convert::members::load::Load;
use archon_proto::convert::members::session::{Member, Registration, RegistrationResult};
use archon_proto::v1;
use archon_security::BeatKey;
use archon_session::{BeatFailure, BeatStreams, Clock, Coordinators, NoRelays, Recipient, leave, register, reports};
use archon_types::{
    Backoff, BootId, ErrorDetail, GenerationKey, Incarnation, LeaseTiming, ProtocolRange, PushKey, Register, StorageId,
    Version,
};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};
use uuid::Uuid;

/// Maximum time for which a poll waits for new duties.
const POLL_WAIT: Duration = Duration::from_secs(10);
/// Additional time-out of a poll.
const POLL_SLACK: Duration = Duration::from_secs(2);
/// Bounds of the time-out of a heartbeat's answer, which is an eighth of the lease.
const DEADLINE_MIN: Duration = Duration::from_millis(150);
const DEADLINE_MAX: Duration = Duration::from_secs(2);

/// State of one participant's session.
pub(super) struct Session {
    shared: Arc<ParticipantState>,
    coordinators: Coordinators,
    /// Storage id of this process, which stores nothing on disk.
    storage: StorageId,
    push_key: PushKey,
}

enum LifeEnd {
    /// The participant stops.
    Ended,
    /// The coordinator no longer knows this incarnation.
    Stale,
}

impl Session {
    pub(super) fn new(shared: Arc<ParticipantState>) -> Self {
        let (config, learned) = (&shared.config, shared.learned.clone());
        let learned = move || learned.addresses();
        let coordinators = Coordinators::new(config.endpoints.clone(), config.transport.clone(), learned);
        let (storage, push_key) = (StorageId::new(Uuid::new_v4()), PushKey::new(Uuid::new_v4()));
        Self { shared, coordinators, storage, push_key }
    }

    /// Runs until it is stopped or permanently refused. Nothing is owned afterwards.
    pub(super) async fn run(self) {
        let why = self.lives().await.err();
        if let Some(detail) = &why {
            tracing::error!(participant = self.shared.config.name, %detail, "refused for good");
        }
        self.shared.decide(|decides, now| decides.end_life(now));
        self.shared.phase.send_replace(Phase::Ended(why));
    }

    async fn lives(&self) -> Result<(), ErrorDetail> {
        let (shared, coordinators) = (&*self.shared, &self.coordinators);
        let mut last = (Incarnation::ZERO, GenerationKey::NIL);
        while let Some(registered) = self.register(last).await? {
            let (RegistrationResult { cluster, node, generation_key, incarnation, settings, .. }, key) = registered;
            let member = Member { cluster, node, incarnation };
            last = (incarnation, generation_key);
            shared.counters.registrations.count();
            shared.measures.registered();
            tracing::info!(participant = shared.config.name, number = %node, %incarnation, %cluster, "registered");
            shared.decide(|decides, now| decides.begin_life(node, incarnation, now));
            shared.phase.send_replace(Phase::Registered);
            let timing = shared.config.served.timing.unwrap_or(settings.timing);
            shared.set_failure_timeout(timing.failure_timeout_ms);
            let relays = Relays::new(timing.heartbeat_ms, settings.timing.heartbeat_ms);
            let end = tokio::select! {
                end = self.heartbeats(member, key, timing, &relays) => end,
                () = reports(coordinators, member, shared, &NoRelays) => LifeEnd::Ended,
                () = self.duties(member, &relays) => LifeEnd::Ended,
                () = self.leases() => LifeEnd::Ended,
                () = shared.end.cancelled() => LifeEnd::Ended,
            };
            // A service that may act for a lost partition has not released it: others wait for the lease.
            let released = shared.is_released();
            shared.decide(|decides, now| decides.end_life(now));
            if matches!(end, LifeEnd::Ended) {
                if released {
                    leave(coordinators, member).await;
                }
                return Ok(());
            }
            tracing::warn!(%incarnation, "the coordinator has ended this incarnation; registering again");
            tokio::select! {
                () = shared.losses_settled() => {}
                () = shared.end.cancelled() => return Ok(()),
            }
        }
        Ok(())
    }

    /// Starts an incarnation after `last`, which tells whether this process has had its name before: then it does not
    /// take the name from its current holder. Returns the registration and the key that the coordinators know.
    async fn register(
        &self,
        last: (Incarnation, GenerationKey),
    ) -> Result<Option<(RegistrationResult, BeatKey)>, ErrorDetail> {
        let config = &self.shared.config;
        let boot = BootId::new(Uuid::new_v4());
        // The holder of the name may have died just now.
        let take_over_ms = config.served.timing.map_or(0, |timing| timing.failure_timeout_ms.saturating_mul(2));
        let registering = RegistrationAttempts::default().with_timeout(take_over_ms);
        let registration = |expects| {
            let register = Register {
                protocol_min: ProtocolRange::SPOKEN.oldest,
                protocol_max: ProtocolRange::SPOKEN.newest,
                last_incarnation: Some(last.0).filter(|last| *last != Incarnation::ZERO),
                generation_key: last.1,
                expects,
                participant: Some(config.served.clone()),
                ..Register::new(config.name.clone(), config.address.clone(), self.storage, boot)
            };
            Registration { cluster: None, register: register.with_traits(config.traits.clone()) }
        };
        let refused = |detail: &ErrorDetail| {
            self.shared.phase.send_if_modified(|phase| match phase {
                Phase::Registering(last) => {
                    *last = Some(detail.clone());
                    true
                }
                Phase::Registered | Phase::Ended(_) => false,
            });
        };
        let end = &self.shared.end;
        let clock = &self.shared.clock;
        let registered =
            register(&self.coordinators, clock, registering, registration, async || {}, refused, end).await?;
        Ok(registered.map(|registered| (registered, BeatKey::new(self.storage, boot))))
    }

    async fn heartbeats(&self, member: Member, key: BeatKey, timing: LeaseTiming, relays: &Relays) -> LifeEnd {
        let deadline = (Duration::from_millis(timing.lease_ms) / 8).clamp(DEADLINE_MIN, DEADLINE_MAX);
        // Without TLS members are not authenticated, and relays are trusted.
        let key = Some(key).filter(|_| self.shared.config.transport.tls().is_some());
        let (streams, mut heard) = self.coordinators.beat_streams(member, key, deadline);
        let take = |answer, now: ClusterNow| {
            relays.note_count(now.relays);
            self.granted(answer)
        };
        tokio::select! {
            end = self.beats(&streams, timing, relays) => end,
            // Nodes have no row that could fence it, and it has no rows to update.
            never = streams.listen(&mut heard, take, |_, _| false, |_| ()) => match never {},
        }
    }

    /// Sends heartbeats, each at a random time in the last quarter of its interval, to spread participants that start
    /// together; or shortly before the relay's next batch leaves, to share it.
    async fn beats(&self, streams: &BeatStreams, timing: LeaseTiming, relays: &Relays) -> LifeEnd {
        let shared = &*self.shared;
        let every = Duration::from_millis(timing.heartbeat_ms);
        let mut backoff = Backoff::new(Duration::from_millis(20), every.min(Duration::from_secs(1)));
        loop {
            let begun = Instant::now();
            let (ways, attempt) = (relays.order(), async |to: Recipient<'_>| self.beat(streams, to, relays).await);
            match shared.measures.heartbeat(self.coordinators.heartbeat(&ways, attempt)).await {
                Ok(next) => {
                    backoff.reset();
                    shared.counters.heartbeats.count();
                    let drawn = || every.mul_f64(0.75 + 0.25 * rand::random::<f64>());
                    tokio::select! {
                        () = sleep_until(begun + next.unwrap_or_else(drawn)) => {}
                        // A stopping participant reports that at once.
                        () = shared.stopping.cancelled(), if !shared.stopping_heard.is_cancelled() => {}
                    }
                }
                Err(BeatFailure::Stale) => return LifeEnd::Stale,
                Err(why) => {
                    shared.counters.heartbeats_failed.count();
                    let pause = match why {
                        // The relay finds the next leader for all carried members.
                        BeatFailure::NoCoordinator => relays.kept_for(),
                        BeatFailure::Failed(_) | BeatFailure::Stale => backoff.next(rand::random()),
                    };
                    sleep(pause).await;
                }
            }
        }
    }

    /// Sends one heartbeat. Returns the delay until the next one, if a relay announced it.
    async fn beat(
        &self,
        streams: &BeatStreams,
        to: Recipient<'_>,
        relays: &Relays,
    ) -> Result<Option<Duration>, BeatFailure> {
        let shared = &*self.shared;
        let stopping = shared.stopping.is_cancelled();
        let sent = shared.clock.now();
        let heartbeat = shared.send();
        let ServiceLoad { bytes_stored, operations_per_second } = **shared.load.load();
        let beat = Beat {
            node: heartbeat.node(),
            incarnation: heartbeat.incarnation(),
            number: heartbeat.number(),
            table_version: Version::ZERO,
            stopping,
            push_key: self.push_key,
            load: Some(Load { bytes_stored, operations_per_second, ..Load::default() }),
            doors: None,
            proof: bytes::Bytes::new(),
        };
        let answered = self.coordinators.beat(streams, to, beat).await?;
        if let Recipient::Relay(_) = to {
            shared.counters.heartbeats_relayed.count();
        }
        relays.answered_by(to);
        if stopping {
            shared.end_wait_for_stop();
        }
        Ok(relays.next_after(sent, shared.clock.now(), &answered))
    }

    /// Processes an answer, even if no caller waits for it.
    fn granted(&self, answer: LeaseAnswer) -> GrantOutcome {
        let taken = self.shared.decide(|decides, now| decides.granted(answer, now));
        if let GrantOutcome::Granted { lapsed_ms, .. } = taken
            && lapsed_ms > 0
        {
            self.shared.counters.leases_lapsed.count();
            self.shared.measures.lapsed();
            tracing::warn!(lapsed_ms, "lease lapsed before the next grant came");
        }
        taken
    }

    /// Polls for duties while it is polled.
    async fn duties(&self, member: Member, relays: &Relays) {
        let shared = &*self.shared;
        let mut backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(1));
        let (mut not_leased, mut not_granted) = (Vec::new(), Vec::new());
        loop {
            let (term, version) = shared.look(|decides| decides.obeyed());
            let wait_ms = u32::try_from(POLL_WAIT.as_millis()).unwrap_or(u32::MAX);
            let request = v1::DutiesRequest::from(DutiesQuery { member, term, version, wait_ms });
            let begun = Instant::now();
            let timeout = POLL_WAIT + POLL_SLACK;
            let answer =
                self.coordinators.call(timeout, request, async |mut client, request| client.duties(request).await);
            let answer = answer.await.and_then(|wire| Duties::try_from(wire).map_err(ErrorDetail::from));
            let answer = match answer {
                Ok(answer) => answer,
                Err(detail) => {
                    tracing::debug!(%detail, "asked for duties in vain");
                    sleep(backoff.next(rand::random())).await;
                    continue;
                }
            };
            self.shared.learned.learn(answer.coordinators);
            relays.learn(answer.relays);
            // Before the duties take effect: callbacks use the names.
            shared.learn_tables(answer.tables);
            if answer.tables_not_leased != not_leased {
                not_leased = answer.tables_not_leased;
                if !not_leased.is_empty() {
                    let name = &shared.config.name;
                    tracing::warn!(participant = name, tables = ?not_leased, "serves tables that do not exist, or hold \
                                                                              rows; it owns nothing there (`archon \
                                                                              table create NAME --lease`)");
                }
            }
            if answer.tables_not_granted != not_granted {
                not_granted = answer.tables_not_granted;
                if !not_granted.is_empty() {
                    let name = &shared.config.name;
                    tracing::warn!(participant = name, tables = ?not_granted, "serves lease tables that it was not \
                                                                               granted; it owns nothing of these \
                                                                               (`archon access grant own`)");
                }
            }
            let news = answer.duties.is_some_and(|duties| {
                let (life, term, version) = (member.incarnation, answer.term, answer.version);
                shared.decide(|decides, now| decides.duties(life, term, version, &duties, now))
            });
            if news || begun.elapsed() >= POLL_WAIT / 2 {
                backoff.reset();
            } else {
                // A coordinator without long polls, or with older duties, answers at once.
                sleep(backoff.next(rand::random())).await;
            }
        }
    }

    /// Notifies the service at once when the lease ends.
    async fn leases(&self) {
        let shared = &*self.shared;
        let mut decisions = shared.decisions();
        loop {
            decisions.borrow_and_update();
            let Some(until) = shared.lease_until() else {
                let _ = decisions.changed().await;
                continue;
            };
            let left = Duration::from_millis(until.since(shared.clock.now()));
            tokio::select! {
                // The end itself is outside of the lease. A machine that was suspended wakes up late; owned
                // partitions are checked against the clock at each use.
                () = sleep(left), if !left.is_zero() => {}
                _ = decisions.changed() => continue,
            }
            if shared.clock.now() >= until {
                shared.decide(|decides, now| decides.tick(now));
            }
        }
    }
}

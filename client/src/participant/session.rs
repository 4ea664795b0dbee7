//! A participant's session with the leading coordinator: registration, heartbeats, duties, reports and leaving.
//!
//! It has its own thread and runtime, so the service cannot delay heartbeats.

use super::heartbeats::ParticipantHeartbeats;
use super::relays::Relays;
use super::state::{ParticipantState, Phase};
use archon_member::{HeartbeatPace, RegistrationAttempts};
use archon_proto::convert::members::duties::{Duties, DutiesQuery};
use archon_proto::convert::members::session::{Member, Registration, RegistrationResult};
use archon_proto::v1;
use archon_security::BeatKey;
use archon_session::{Clock, Coordinators, NoRelays, leave, register, reports, send_heartbeats};
use archon_types::{
    Backoff, BootId, ErrorDetail, GenerationKey, Incarnation, ProtocolRange, PushKey, Register, StorageId,
};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

/// Maximum time for which a poll waits for new duties.
const POLL_WAIT: Duration = Duration::from_secs(10);
/// Additional time-out of a poll.
const POLL_SLACK: Duration = Duration::from_secs(2);

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
            let relays = Relays::default();
            let pace = HeartbeatPace::of_participant(timing, settings.timing.heartbeat_ms);
            let mut heartbeats = ParticipantHeartbeats::new(shared, &relays, self.push_key);
            // Without TLS members are not authenticated, and relays are trusted.
            let key = Some(&key).filter(|_| shared.config.transport.tls().is_some());
            let end = tokio::select! {
                () = send_heartbeats(coordinators, &shared.clock, member, key, pace, &mut heartbeats) => LifeEnd::Stale,
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

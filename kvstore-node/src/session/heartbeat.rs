//! Heartbeats: the node's sign of life and the source of its lease.

use super::relays::Relays;
use super::{LifeEnd, Session};
use crate::node::membership::CurrentRegistration;
use crate::node::state::NodeState;
use crate::tables;
use archon_member::{COORDINATOR_ANSWER_MS, GrantOutcome, Heartbeats, LeaseAnswer, next_by_relay};
use archon_proto::convert::members::beats::{Beat, ClusterNow};
use archon_proto::convert::members::load::Load;
use archon_proto::convert::tables::table_updates::TableUpdates;
use archon_security::BeatKey;
use archon_session::{BeatFailure, BeatOutcome, BeatStreams, Coordinators, Recipient};
use archon_types::{Backoff, ErrorDetail, FencingProof, Millis};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// Time-out of an answer.
const DEADLINE: Duration = Duration::from_millis(COORDINATOR_ANSWER_MS);

/// Sends heartbeats until the incarnation ends. Relayed ones are authenticated with the key, if there is one.
pub(super) async fn heartbeats(
    session: &Session,
    coordinators: &Coordinators,
    life: &CurrentRegistration,
    key: Option<BeatKey>,
    relays: &Relays,
) -> LifeEnd {
    let (streams, mut heard) = coordinators.beat_streams(life.member, key, DEADLINE);
    let sender = Sender {
        session,
        shared: &session.shared,
        coordinators,
        streams: &streams,
        life,
        heartbeats: Mutex::new(Heartbeats::new(life.member.node, life.member.incarnation)),
        relays,
        term: AtomicU64::new(0),
        granted: Mutex::new(None),
    };
    tokio::select! {
        end = sender.beat() => end,
        never = streams.listen(
            &mut heard,
            |answer, now| sender.take(answer, now),
            |over, address| sender.told_over(over, address),
            |news| sender.take_news(news),
        ) => match never {},
    }
}

impl Sender<'_> {
    async fn beat(&self) -> LifeEnd {
        let Self { session, shared, life, .. } = self;
        let every = Duration::from_millis(life.timing.heartbeat_ms);
        let mut backoff = Backoff::new(Duration::from_millis(20), every.min(Duration::from_millis(40)));
        let mut withheld = false;
        let mut taken = Instant::now();
        let mut silence = Silence::default();
        loop {
            let started = Instant::now();
            if let Err(stall) = session.health.check(life.timing.lease_ms) {
                shared.metrics.heartbeats_withheld.add(1);
                if !withheld {
                    tracing::warn!(%stall, "no heartbeat is sent until this ends");
                }
                withheld = true;
                tokio::time::sleep(every).await;
                continue;
            }
            withheld = false;
            let elapsed_ms = u64::try_from(taken.elapsed().as_millis()).unwrap_or(u64::MAX);
            taken = started;
            let mut load = shared.load.take(shared.metrics.operations.get(), elapsed_ms);
            load.disk_full = session.health.disk_full();
            load.log_pin = session.health.log_pin(load.disk_full.is_some());
            load.certificate = shared.config.transport.certificate();
            match self.round(load).await {
                Ok(next) => {
                    backoff.reset();
                    silence.broken();
                    tokio::select! {
                        () = tokio::time::sleep_until(started + next.unwrap_or(every)) => {}
                        // A leaving node sends a heartbeat at once.
                        () = shared.lifecycle.leaving().cancelled(), if !shared.lifecycle.leaving_heard().is_cancelled() => {}
                    }
                }
                Err(BeatFailure::Stale) => {
                    silence.broken();
                    return LifeEnd::Stale;
                }
                // A distant coordinator may answer earlier heartbeats meanwhile.
                Err(BeatFailure::Failed(_)) if self.is_answered_since(started - every) => {
                    backoff.reset();
                    silence.broken();
                    tokio::time::sleep_until(started + every).await;
                }
                Err(why) => {
                    silence.goes_on(Duration::from_millis(life.timing.lease_ms));
                    shared.metrics.heartbeats_failed.add(1);
                    shared.load.report_all();
                    // The lease is running out: look for the leading coordinator more often than the usual heartbeat. A
                    // relay does that for all members that it serves.
                    let pause = match why {
                        BeatFailure::NoCoordinator => every / 2,
                        BeatFailure::Failed(_) | BeatFailure::Stale => backoff.next(rand::random()),
                    };
                    tokio::time::sleep(pause).await;
                }
            }
        }
    }

    /// Returns whether a lease was granted since `begin`.
    fn is_answered_since(&self, begin: Instant) -> bool {
        self.granted.lock().is_some_and(|granted| granted >= begin)
    }

    /// Sends one heartbeat over all paths, using the first answer. Returns when the next one is due, if a relay set
    /// that.
    async fn round(&self, load: Load) -> Result<Option<Duration>, BeatFailure> {
        let relays = self.relays.order(&self.shared.tables, self.life.member);
        let attempt = async |to: Recipient<'_>| self.attempt(to, load.clone()).await;
        self.coordinators.heartbeat(&relays, attempt).await
    }

    async fn attempt(&self, to: Recipient<'_>, load: Load) -> Result<Option<Duration>, BeatFailure> {
        let stopping = self.shared.lifecycle.leaving().is_cancelled();
        self.shared.metrics.heartbeats.add(1);
        let sent = self.shared.clock.now();
        let heartbeat = self.heartbeats.lock().send(sent);
        let beat = Beat {
            node: heartbeat.node(),
            incarnation: heartbeat.incarnation(),
            number: heartbeat.number(),
            table_version: self.shared.tables.complete(),
            stopping,
            push_key: self.shared.push_key,
            load: Some(load),
            doors: self.shared.probing.report(sent),
            proof: bytes::Bytes::new(),
        };
        let answered = self.coordinators.beat(self.streams, to, beat).await?;
        let relay = match to {
            Recipient::Relay(relay) => Some(relay),
            Recipient::Coordinator(_) => None,
        };
        self.relays.answered_by(relay);
        if relay.is_some() {
            self.shared.metrics.heartbeats_relayed.add(1);
        }
        if stopping {
            self.shared.lifecycle.leaving_heard().cancel();
        }
        Ok(self.next_after(sent, &answered))
    }

    /// Returns the delay after `sent` until the next heartbeat, if a relay named the departure of its next batch.
    fn next_after(&self, sent: Millis, answered: &BeatOutcome) -> Option<Duration> {
        let (departure_ms, now) = (answered.next_departure_ms?, self.shared.clock.now());
        let every = self.life.timing.heartbeat_ms;
        let next = next_by_relay(sent, now, departure_ms, every, every);
        Some(Duration::from_millis(next.since(sent)))
    }

    /// Processes a relay's report, requested by this node, that an incarnation is fenced.
    fn told_over(&self, over: FencingProof, address: &str) -> bool {
        let relay = self.relays.name_at(address);
        self.shared.membership.told_over(relay.as_deref().unwrap_or(address), over)
    }

    /// Applies the table updates of an answer.
    fn take_news(&self, news: Result<TableUpdates, ErrorDetail>) {
        let news = match news {
            Ok(news) => news,
            Err(error) => {
                self.shared.metrics.news_refused.add(1);
                tracing::warn!(%error, "the table update in the answer to a heartbeat cannot be applied");
                return;
            }
        };
        let TableUpdates { deltas, nodes, tables, complete, newest, coordinators } = news;
        self.shared.tables.note_told(newest);
        let news = tables::PushedUpdates { pieces: deltas, nodes, tables, complete: Some(complete), coordinators };
        // A gap needs no error: the next heartbeat names the version held, and a push brings the rest.
        if self.shared.tables.merge(news) {
            self.shared.metrics.news.add(1);
        } else {
            self.shared.metrics.news_refused.add(1);
        }
        (self.session.tables_changed)();
    }

    /// Processes an answer, even a late one.
    fn take(&self, answer: LeaseAnswer, now: ClusterNow) -> GrantOutcome {
        let taken = self.life.grants.take(&self.heartbeats.lock(), answer, self.shared.clock.now());
        let ClusterNow { replication_timeout_ms, protocol, term, relays, door_every_ms } = now;
        if taken != GrantOutcome::Foreign {
            self.shared.membership.note_protocol(protocol);
            self.relays.note_count(relays);
            self.shared.probing.note_every(door_every_ms);
            if term != 0 && self.term.swap(term, Ordering::Relaxed) != term {
                // A leader of another term has no earlier reports.
                self.shared.load.report_all();
            }
        }
        if taken != GrantOutcome::Foreign && self.life.note_replication_timeout(replication_timeout_ms) {
            tracing::info!(replication_timeout_ms, "the settings of the cluster were changed");
            (self.session.retime)();
        }
        if let GrantOutcome::Granted { lapsed_ms, withdrawn } = &taken {
            *self.granted.lock() = Some(Instant::now());
            if *lapsed_ms > 0 {
                self.shared.metrics.leases_lapsed.add(1);
                tracing::warn!(lapsed_ms, "lease lapsed before the next grant came");
            }
            if !withdrawn.is_empty() {
                (self.session.withdraw)(withdrawn.clone());
            }
        }
        taken
    }
}

/// Time without a lease from any coordinator, and whether it was reported.
#[derive(Default)]
struct Silence {
    since: Option<Instant>,
    reported: bool,
}

impl Silence {
    /// Records another failed round. Logged once, after a whole lease duration.
    fn goes_on(&mut self, lease: Duration) {
        let since = *self.since.get_or_insert_with(Instant::now);
        if !self.reported && since.elapsed() >= lease {
            self.reported = true;
            tracing::warn!(
                "no coordinator grants a lease: partitions with one replica are unavailable until one does; with more, \
                 this node keeps serving while the replicas reach each other, but failed nodes are not replaced"
            );
        }
    }

    /// Records that a coordinator answered.
    fn broken(&mut self) {
        if let (Some(since), true) = (self.since.take(), std::mem::take(&mut self.reported)) {
            let silent_ms = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
            tracing::info!(silent_ms, "a coordinator answers again");
        }
    }
}

struct Sender<'a> {
    session: &'a Session,
    shared: &'a NodeState,
    coordinators: &'a Coordinators,
    streams: &'a BeatStreams,
    life: &'a CurrentRegistration,
    heartbeats: Mutex<Heartbeats>,
    relays: &'a Relays,
    /// The term of the last answer; zero without one.
    term: AtomicU64,
    /// Time of the last granted lease.
    granted: Mutex<Option<Instant>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_reported_after_a_lease() {
        let mut silence = Silence::default();
        silence.goes_on(Duration::from_secs(60));
        assert!(!silence.reported, "a round that came to nothing is no silence yet");
        silence.goes_on(Duration::ZERO);
        assert!(silence.reported);
        silence.broken();
        assert!(!silence.reported && silence.since.is_none());
    }
}

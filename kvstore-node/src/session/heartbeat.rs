//! Heartbeats: the node's sign of life and the source of its lease.

use super::relays::Relays;
use super::{LifeEnd, Session};
use crate::node::membership::CurrentRegistration;
use crate::node::state::NodeState;
use crate::tables;
use archon_member::{AnsweredRound, AttemptTarget, GrantOutcome, HeartbeatPace, Heartbeats, LeaseAnswer};
use archon_proto::convert::members::beats::{Beat, ClusterNow};
use archon_proto::convert::members::load::Load;
use archon_proto::convert::tables::table_updates::TableUpdates;
use archon_security::BeatKey;
use archon_session::{BeatingMember, Coordinators, send_heartbeats};
use archon_types::{ErrorDetail, FencingProof, RelayAddress};
use std::time::Duration;
use tokio::time::Instant;

/// Sends heartbeats until the incarnation ends. Relayed ones are authenticated with the key, if there is one.
pub(super) async fn heartbeats(
    session: &Session,
    coordinators: &Coordinators,
    life: &CurrentRegistration,
    key: Option<&BeatKey>,
    relays: &Relays,
) -> LifeEnd {
    let mut sender = Sender {
        session,
        shared: &session.shared,
        life,
        heartbeats: Heartbeats::new(life.member.node, life.member.incarnation),
        relays,
        load: Load::default(),
        load_taken: Instant::now(),
        term: 0,
        stopping_since: None,
        is_withheld: false,
        silence: Silence::default(),
    };
    let pace = HeartbeatPace::of_node(life.timing);
    send_heartbeats(coordinators, &*session.shared.clock, life.member, key, pace, &mut sender).await;
    LifeEnd::Stale
}

struct Sender<'a> {
    session: &'a Session,
    shared: &'a NodeState,
    life: &'a CurrentRegistration,
    heartbeats: Heartbeats,
    relays: &'a Relays,
    /// Load in the heartbeats of this round, and when it was measured.
    load: Load,
    load_taken: Instant,
    /// The term of the last answer; zero without one.
    term: u64,
    /// Number of the first heartbeat that reported that this node stops.
    stopping_since: Option<u64>,
    /// Heartbeats are withheld, and that was logged.
    is_withheld: bool,
    silence: Silence,
}

impl BeatingMember for Sender<'_> {
    fn begin_round(&mut self) -> Option<Vec<RelayAddress>> {
        let Self { session, shared, life, .. } = self;
        let stall = session.health.check(life.timing.lease_ms).err();
        if let Some(stall) = &stall {
            shared.metrics.heartbeats_withheld.add(1);
            if !self.is_withheld {
                tracing::warn!(%stall, "no heartbeat is sent until this ends");
            }
        }
        self.is_withheld = stall.is_some();
        if self.is_withheld {
            return None;
        }
        let elapsed = std::mem::replace(&mut self.load_taken, Instant::now()).elapsed();
        let elapsed_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
        self.load = shared.load.take(shared.metrics.operations.get(), elapsed_ms);
        self.load.disk_full = session.health.disk_full();
        self.load.log_pin = session.health.log_pin(self.load.disk_full.is_some());
        self.load.certificate = shared.config.transport.certificate();
        Some(self.relays.current(&shared.tables, life.member))
    }

    fn next_beat(&mut self) -> Beat {
        let stopping = self.shared.lifecycle.leaving().is_cancelled();
        self.shared.metrics.heartbeats.add(1);
        let sent = self.shared.clock.now();
        let heartbeat = self.heartbeats.send(sent);
        if stopping {
            self.stopping_since.get_or_insert(heartbeat.number());
        }
        Beat {
            node: heartbeat.node(),
            incarnation: heartbeat.incarnation(),
            number: heartbeat.number(),
            table_version: self.shared.tables.complete(),
            stopping,
            push_key: self.shared.push_key,
            load: Some(self.load.clone()),
            doors: self.shared.probing.report(sent),
            proof: bytes::Bytes::new(),
        }
    }

    fn take_lease(&mut self, answer: LeaseAnswer, now: ClusterNow) -> GrantOutcome {
        let taken = self.life.grants.take(&self.heartbeats, answer, self.shared.clock.now());
        if taken == GrantOutcome::Foreign {
            return taken;
        }
        let ClusterNow { replication_timeout_ms, protocol, term, relays, door_every_ms } = now;
        self.shared.membership.note_protocol(protocol);
        self.relays.note_count(relays);
        self.shared.probing.note_every(door_every_ms);
        if term != 0 && std::mem::replace(&mut self.term, term) != term {
            // A leader of another term has no earlier reports.
            self.shared.load.report_all();
        }
        if self.life.note_replication_timeout(replication_timeout_ms) {
            tracing::info!(replication_timeout_ms, "the settings of the cluster were changed");
            (self.session.retime)();
        }
        if let GrantOutcome::Granted { lapsed_ms, withdrawn } = &taken {
            self.silence.broken();
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

    fn round_answered(&mut self, round: &AnsweredRound<String>) {
        if let AttemptTarget::Relay(_) = round.by {
            self.shared.metrics.heartbeats_relayed.add(1);
        }
        if self.stopping_since.is_some_and(|first| round.number >= first) {
            self.shared.lifecycle.leaving_heard().cancel();
        }
    }

    fn round_failed(&mut self) {
        self.silence.goes_on(Duration::from_millis(self.life.timing.lease_ms));
        self.shared.metrics.heartbeats_failed.add(1);
        self.shared.load.report_all();
    }

    fn told_over(&mut self, over: FencingProof, sender: &str) -> bool {
        let relay = self.relays.name_at(sender);
        self.shared.membership.told_over(relay.as_deref().unwrap_or(sender), over)
    }

    fn take_news(&mut self, news: Result<TableUpdates, ErrorDetail>) {
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

    /// A leaving node reports that at once.
    async fn hurried(&self) {
        if self.shared.lifecycle.leaving_heard().is_cancelled() {
            std::future::pending::<()>().await;
        }
        self.shared.lifecycle.leaving().cancelled().await;
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

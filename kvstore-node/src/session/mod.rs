//! Session with the leading coordinator: registration, heartbeats, reports, the leave request.
//!
//! It lives on its own thread with its own runtime, so that no amount of data traffic can starve a heartbeat.

mod heartbeat;
pub(crate) mod holdings;
pub(crate) mod peer_cache;
pub(crate) mod prober;
mod protocol;
mod relays;
pub(crate) mod reports;
pub(crate) mod space_wait;

use self::prober::ProbeSender;
use self::relays::{PassedOn, Relays};
use crate::node::grants::Grants;
use crate::node::identity::IdentityError;
use crate::node::membership::CurrentRegistration;
use crate::node::state::NodeState;
use crate::server::health::Health;
use crate::session::reports::ReportQueue;
use crate::statistics::metrics::Metrics;
use archon_member::RegistrationAttempts;
use archon_proto::convert::members::session::{Member, Registration, RegistrationResult};
use archon_proto::v1;
use archon_security::BeatKey;
use archon_session::{Coordinators, Facts, register, reports};
use archon_types::{
    Backoff, BootId, ClusterId, Epoch, ErrorDetail, ErrorKind, GenerationKey, Incarnation, PartitionId, PlacementId,
    REDIS_SINCE, Register, Report, StorageId,
};
use futures::future::BoxFuture;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// Interval between attempts to store a registration on a full disk.
const STORE_AGAIN_AFTER: Duration = Duration::from_secs(2);
/// Interval of checks whether the coordinators refuse this node for good, and of its own health before it registers.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Longest wait for an answer when the address of the Redis listener is published.
const PUBLISH_DEADLINE: Duration = Duration::from_secs(4);
/// Intervals between attempts to publish it: at first, and at most.
const PUBLISH_AGAIN_MIN: Duration = Duration::from_secs(1);
const PUBLISH_AGAIN_MAX: Duration = Duration::from_secs(60);

/// The node's durable identity, for registration.
pub(crate) trait Home: Send + Sync {
    /// Returns the data directory's id.
    fn storage(&self) -> StorageId;
    /// Returns the cluster that it belongs to, if any.
    fn cluster(&self) -> Option<ClusterId>;
    /// Returns the last incarnation stored, and the key of its generation.
    fn last_life(&self) -> (Incarnation, GenerationKey);
    /// Returns the placements held whole.
    fn held(&self) -> Vec<PlacementId>;
    /// Stores a registration durably.
    ///
    /// # Errors
    /// The error of the directory; the node must then stop.
    fn store(&mut self, registered: &RegistrationResult) -> Result<(), IdentityError>;
    /// Stores durably the protocol that the directory is written by from now on.
    fn record_protocol(&self, protocol: u32) -> BoxFuture<'static, Result<(), IdentityError>>;
}

/// Passes a new registration to every shard, and returns once each has ended its former leaderships.
pub(crate) type RegistrationCallback =
    Box<dyn Fn(archon_host::NodeRegistration) -> futures::future::BoxFuture<'static, ()> + Send>;

/// Has the shards give up leaderships that a heartbeat's answer lists as withdrawn.
pub(crate) type WithdrawalCallback = Box<dyn Fn(Vec<(PartitionId, Epoch)>) + Send + Sync>;

/// Has every shard apply the present replication time-out.
pub(crate) type TimeoutCallback = Box<dyn Fn() + Send + Sync>;

/// Has every shard apply the present tables and nodes.
pub(crate) type TablesCallback = Box<dyn Fn() + Send + Sync>;

/// Reason why a session ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The coordinator will never accept this node as it is.
    #[error("the coordinator refuses node {name}: {detail}")]
    Refused {
        /// The node's name.
        name: String,
        /// The refusal.
        detail: ErrorDetail,
    },
    /// The registration could not be stored.
    #[error("cannot store the registration of node {name}: {why}")]
    NotStored {
        /// The node's name.
        name: String,
        /// The cause.
        #[source]
        why: IdentityError,
    },
}

/// Dependencies of the session.
pub(crate) struct Session {
    pub(crate) shared: Arc<NodeState>,
    pub(crate) health: Arc<Health>,
    pub(crate) home: Box<dyn Home>,
    pub(crate) renew: RegistrationCallback,
    pub(crate) withdraw: WithdrawalCallback,
    pub(crate) retime: TimeoutCallback,
    pub(crate) tables_changed: TablesCallback,
    /// The advertised address.
    pub(crate) address: String,
    /// The advertised address of the Redis listener, if there is one.
    pub(crate) redis: Option<String>,
    /// Ends the session.
    pub(crate) end: CancellationToken,
    /// True once all leaderships of this node were given up, so that it may send a leave request at the end.
    pub(crate) released: Arc<AtomicBool>,
}

enum LifeEnd {
    /// The session has to end.
    Ended,
    /// The coordinator no longer knows this incarnation, or another node has reported that it is fenced.
    Stale,
}

impl Session {
    /// Runs until cancelled, or until the coordinator refuses this node for good.
    pub(crate) async fn run(mut self) -> Result<(), SessionError> {
        let (config, shared) = (&self.shared.config, Arc::clone(&self.shared));
        let told = move || shared.tables.coordinators();
        let coordinators = Coordinators::new(config.coordinators.clone(), config.transport.clone(), told);
        while let Some((registered, key)) = self.register(&coordinators).await? {
            let member =
                Member { cluster: registered.cluster, node: registered.node, incarnation: registered.incarnation };
            (self.renew)(archon_host::NodeRegistration { node: member.node, incarnation: member.incarnation }).await;
            let grants = Arc::new(Grants::new());
            self.shared.membership.begin_life(CurrentRegistration::new(
                member,
                registered.generation_key,
                &registered.settings,
                grants,
            ));
            self.shared.load.report_all();
            self.shared.membership.note_protocol(registered.protocol);
            self.shared.metrics.registrations.add(1);
            tracing::info!(node = %member.node, incarnation = %member.incarnation, cluster = %member.cluster, "registered");
            let Some(life) = self.shared.membership.life() else { break };
            // In plaintext no member is authenticated, and a relay is trusted.
            let key = Some(key).filter(|_| self.shared.config.transport.tls().is_some());
            let relays = Relays::default();
            let passed_on = PassedOn { tables: &self.shared.tables, member, relays: &relays, key: key.as_ref() };
            let queued = QueuedReports { queue: &self.shared.reports, metrics: &self.shared.metrics };
            let prober = ProbeSender {
                member,
                probing: &self.shared.probing,
                tables: &self.shared.tables,
                transport: &self.shared.config.transport,
                clock: &*self.shared.clock,
                metrics: &self.shared.metrics,
            };
            let end = tokio::select! {
                end = heartbeat::heartbeats(&self, &coordinators, &life, key.as_ref(), &relays) => end,
                () = reports(&coordinators, life.member, &queued, &passed_on) => LifeEnd::Ended,
                () = peer_cache::keep(&self.shared.config, &self.shared.tables) => LifeEnd::Ended,
                () = protocol::keep(self.shared.membership.protocol(), &*self.home) => LifeEnd::Ended,
                never = self.shared.relay_streams.carry(
                    &coordinators,
                    &*self.shared.clock,
                    life.member,
                    life.timing,
                    &*self.shared.membership,
                    self.shared.tables.node_changes(),
                ) => match never {},
                never = prober.run() => match never {},
                () = life.over.cancelled() => LifeEnd::Stale,
                end = self.publish_redis(&coordinators, member), if self.redis.is_some() => end,
                why = self.shut_out(&coordinators) => {
                    self.shared.membership.end_life();
                    return Err(self.refused(why));
                }
                () = self.end.cancelled() => LifeEnd::Ended,
            };
            if matches!(end, LifeEnd::Ended) {
                self.leave(&coordinators, &life).await;
                self.shared.membership.end_life();
                break;
            }
            if !life.over.is_cancelled() {
                // Otherwise the fence was logged already.
                tracing::warn!(incarnation = %member.incarnation, "the coordinator has ended this incarnation; registering again");
            }
            self.shared.membership.end_life();
        }
        Ok(())
    }

    /// Registers, with unlimited retries, each once nothing in this node has been without progress for longer than a
    /// lease: it would send no heartbeat, and its new incarnation would be fenced at once. Returns the registration and
    /// the key for relayed heartbeats; `None` if the session ends before.
    async fn register(
        &mut self,
        coordinators: &Coordinators,
    ) -> Result<Option<(RegistrationResult, BeatKey)>, SessionError> {
        // One id per session: a repeated attempt is answered as the first one was.
        let boot = BootId::new(Uuid::new_v4());
        self.shared.membership.register_as(boot);
        let storage = self.home.storage();
        let registering = RegistrationAttempts::new(self.last_incarnation());
        let registration = |expects| self.registration(boot, expects);
        let clock = &*self.shared.clock;
        let ready = async || {
            let mut is_logged = false;
            while let Err(stall) = self.health.check(self.shared.membership.lease_ms()) {
                if !std::mem::replace(&mut is_logged, true) {
                    tracing::warn!(%stall, "the node does not register until this is over");
                }
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        };
        let registered = tokio::select! {
            registered = register(coordinators, clock, registering, registration, ready, |_| {}, &self.end) => registered,
            why = self.shut_out(coordinators) => Err(why),
        };
        let Some(registered) = registered.map_err(|detail| self.refused(detail))? else { return Ok(None) };
        let speaks = self.shared.config.speaks;
        if !speaks.contains(registered.protocol) {
            let message = format!("the cluster uses protocol {}, and this node supports {speaks}", registered.protocol);
            let detail = ErrorDetail::new(ErrorKind::ProtocolMismatch, message);
            return Err(self.refused(detail));
        }
        let name = self.shared.config.name.clone();
        while let Err(why) = self.home.store(&registered) {
            if !why.is_disk_full() {
                return Err(SessionError::NotStored { name, why });
            }
            tracing::error!(%why, "the disk is full: the registration waits for space");
            tokio::select! {
                () = self.end.cancelled() => return Ok(None),
                () = tokio::time::sleep(STORE_AGAIN_AFTER) => {}
            }
        }
        Ok(Some((registered, BeatKey::new(storage, boot))))
    }

    fn last_incarnation(&self) -> Option<Incarnation> {
        Some(self.home.last_life().0).filter(|last| *last != Incarnation::ZERO)
    }

    /// Returns the registration of this process, which assumes that this incarnation is on record.
    fn registration(&self, boot: BootId, expects: Option<Incarnation>) -> Registration {
        let (config, home) = (&self.shared.config, &self.home);
        let register = Register {
            protocol_min: config.speaks.oldest,
            protocol_max: config.speaks.newest,
            held: home.held(),
            last_incarnation: self.last_incarnation(),
            generation_key: home.last_life().1,
            expects,
            told: self.shared.tables.told(),
            redis: self.redis.clone(),
            ..Register::new(config.name.clone(), self.address.clone(), home.storage(), boot)
        };
        Registration { cluster: home.cluster(), register: register.with_traits(config.traits.clone()) }
    }

    /// Publishes the address of the Redis listener once the cluster takes such addresses, if this incarnation was
    /// registered before (ADR 0093): the same process registers once more, and keeps its incarnation and its leases
    /// (PROTOCOL rule 19). The request names no recorded incarnation. It therefore never begins another one: its list of
    /// copies would be older than the copies that this incarnation was given meanwhile, and those would count as lost.
    /// Returns only if the coordinators answer with another incarnation all the same.
    async fn publish_redis(&self, coordinators: &Coordinators, member: Member) -> LifeEnd {
        let mut backoff = Backoff::new(PUBLISH_AGAIN_MIN, PUBLISH_AGAIN_MAX);
        let mut is_requested = false;
        loop {
            self.redis_unknown(member, is_requested).await;
            is_requested = true;
            let Some(boot) = self.shared.membership.boot() else { return std::future::pending().await };
            let request = v1::RegisterRequest::from(self.registration(boot, None));
            let answer = coordinators
                .call(PUBLISH_DEADLINE, request, async |mut client, request| client.register(request).await)
                .await;
            match answer.and_then(|answer| RegistrationResult::try_from(answer).map_err(ErrorDetail::from)) {
                Ok(registered) if registered.incarnation == member.incarnation => {}
                Ok(_) => return LifeEnd::Stale,
                Err(detail) => {
                    tracing::debug!(kind = %detail.kind, "the address of the Redis listener is not published: {}", detail.message);
                }
            }
            // Until the row arrives here. A leading coordinator of an earlier version does not take the address.
            tokio::time::sleep(backoff.next(rand::random())).await;
        }
    }

    /// Returns once the cluster takes addresses of Redis listeners, and the row of this incarnation has none: it was
    /// registered before (ADR 0093). Logs that the row has the address by now, if that `is_requested`.
    async fn redis_unknown(&self, member: Member, mut is_requested: bool) {
        let (mut protocol, mut nodes) = (self.shared.membership.protocol(), self.shared.tables.node_changes());
        loop {
            let takes = *protocol.borrow_and_update() >= REDIS_SINCE;
            nodes.borrow_and_update();
            let row = self.shared.tables.node(member.node).filter(|row| row.incarnation == member.incarnation);
            if takes && row.as_ref().is_some_and(|row| row.redis != self.redis) {
                return;
            }
            if row.is_some() && std::mem::take(&mut is_requested) {
                tracing::info!("the address of the Redis listener is published");
            }
            tokio::select! {
                _ = protocol.changed() => {}
                _ = nodes.changed() => {}
            }
        }
    }

    /// Returns the error of a permanent refusal.
    fn refused(&self, detail: ErrorDetail) -> SessionError {
        SessionError::Refused { name: self.shared.config.name.clone(), detail }
    }

    /// Returns once the coordinators have refused this node's certificate for a while after its revocation: no
    /// coordinator will answer it again. It serves no clients either, as nodes refuse that certificate as well.
    async fn shut_out(&self, coordinators: &Coordinators) -> ErrorDetail {
        let Some(tls) = self.shared.config.transport.tls() else { return std::future::pending().await };
        loop {
            if let Some(why) = tls.shut_out(coordinators.order().len()) {
                return ErrorDetail::new(ErrorKind::Refused, why);
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Sends a leave request, if no partition is led: the coordinator then need not wait for the lease to expire.
    async fn leave(&self, coordinators: &Coordinators, life: &CurrentRegistration) {
        if !self.released.load(Ordering::Acquire) {
            return;
        }
        // This node answers no client from here on: the coordinator takes the leave request as the end of the lease.
        life.grants.end();
        archon_session::leave(coordinators, life.member).await;
    }
}

/// The queue of reports, with the count of those answered.
struct QueuedReports<'a> {
    queue: &'a ReportQueue,
    metrics: &'a Metrics,
}

impl Facts for QueuedReports<'_> {
    fn peek(&self, count: usize) -> Vec<Report> {
        self.queue.peek(count)
    }

    fn answered(&self, report: &Report, refused: Option<ErrorKind>) -> bool {
        let done = self.queue.answered(report, refused);
        self.metrics.reports.add(u64::from(done));
        done
    }

    async fn filled(&self) {
        self.queue.filled().await;
    }
}

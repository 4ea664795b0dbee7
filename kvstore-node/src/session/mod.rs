//! The node's session with the leading coordinator: registration, heartbeats, reports, farewell.
//!
//! It lives on its own thread with its own runtime, so that no amount of data traffic can starve a heartbeat.

mod heartbeat;
mod report;

use crate::grants::Grants;
use crate::health::Health;
use crate::shared::{Life, Shared};
use archon_member::{Again, Registering};
use archon_proto::convert::session::{Member, Registered, Registration};
use archon_proto::v1;
use archon_session::Coordinators;
use archon_types::{
    Backoff, BootId, ClusterId, Epoch, ErrorDetail, ErrorKind, Incarnation, PartitionId, PlacementId, StorageId,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// Protocol versions that this node speaks.
const PROTOCOL: std::ops::RangeInclusive<u32> = 1..=1;
const REGISTER_DEADLINE: Duration = Duration::from_secs(2);
const LEAVE_DEADLINE: Duration = Duration::from_secs(1);
/// How often the log says why the node is not registered while that stays the same.
const SAY_AGAIN: Duration = Duration::from_secs(5);
/// The node's durable self, as registration needs it.
pub(crate) trait Home: Send {
    /// The data directory's id.
    fn storage(&self) -> StorageId;
    /// The cluster that it belongs to, if it ever belonged to one.
    fn cluster(&self) -> Option<ClusterId>;
    /// The last incarnation stored.
    fn last_incarnation(&self) -> Incarnation;
    /// Placements held whole.
    fn held(&self) -> Vec<PlacementId>;
    /// Stores a registration durably.
    ///
    /// # Errors
    /// In words for the operator; the node must then stop.
    fn store(&mut self, registered: &Registered) -> Result<(), String>;
}

/// Tells every shard of a new registration, and returns once each has forgotten the former one's leaderships.
pub(crate) type Renew = Box<dyn Fn(Incarnation) -> futures::future::BoxFuture<'static, ()> + Send>;

/// Has the shards give up leaderships that a heartbeat's answer lists as withdrawn.
pub(crate) type Withdraw = Box<dyn Fn(Vec<(PartitionId, Epoch)>) + Send + Sync>;

/// Has every shard look again at how long its replicas wait for each other.
pub(crate) type Retime = Box<dyn Fn() + Send + Sync>;

/// Why a session ended by itself.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
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
        /// What failed.
        why: String,
    },
}

/// Everything the session needs.
pub(crate) struct Session {
    pub(crate) shared: Arc<Shared>,
    pub(crate) health: Health,
    pub(crate) home: Box<dyn Home>,
    pub(crate) renew: Renew,
    pub(crate) withdraw: Withdraw,
    pub(crate) retime: Retime,
    /// The address that others are told.
    pub(crate) address: String,
    /// Ends the session.
    pub(crate) end: CancellationToken,
    /// Everything this node led was given up, so that it may say farewell at the end.
    pub(crate) released: Arc<AtomicBool>,
}

enum LifeEnd {
    /// The session is to end.
    Ended,
    /// The coordinator no longer knows this incarnation.
    Stale,
}

impl Session {
    /// Runs until told to end, or until the coordinator refuses this node for good.
    pub(crate) async fn run(mut self) -> Result<(), SessionError> {
        let (config, shared) = (&self.shared.config, Arc::clone(&self.shared));
        let told = move || shared.tables.coordinators();
        let coordinators = Coordinators::new(config.coordinators.clone(), config.insecure, told);
        while let Some(registered) = self.register(&coordinators).await? {
            let member =
                Member { cluster: registered.cluster, node: registered.node, incarnation: registered.incarnation };
            (self.renew)(member.incarnation).await;
            let grants = Arc::new(Grants::new());
            self.shared.begin_life(Life::new(member, &registered.settings, grants));
            self.shared.load.report_all();
            self.shared.metrics.registrations.add(1);
            tracing::info!(node = %member.node, incarnation = %member.incarnation, cluster = %member.cluster, "registered");
            let Some(life) = self.shared.life() else { break };
            let end = tokio::select! {
                end = heartbeat::heartbeats(&self, &coordinators, &life) => end,
                () = report::reports(&self.shared, &coordinators, &life) => LifeEnd::Ended,
                () = self.end.cancelled() => LifeEnd::Ended,
            };
            if matches!(end, LifeEnd::Ended) {
                self.leave(&coordinators, &life).await;
                self.shared.end_life();
                break;
            }
            tracing::warn!(incarnation = %member.incarnation, "the coordinator has ended this incarnation; registering anew");
            self.shared.end_life();
        }
        Ok(())
    }

    /// Registers, however long it takes; `None` if the session ends before.
    async fn register(&mut self, coordinators: &Coordinators) -> Result<Option<Registered>, SessionError> {
        // One life of the session: a repeated attempt is answered as the first one was.
        let boot = BootId::new(Uuid::new_v4());
        self.shared.register_as(boot);
        let config = &self.shared.config;
        let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(1));
        let last = self.home.last_incarnation();
        let mut registering = Registering::new(Some(last).filter(|last| *last != Incarnation::ZERO));
        let mut reported: Option<(ErrorKind, Instant)> = None;
        loop {
            let request = v1::RegisterRequest::from(Registration {
                cluster: self.home.cluster(),
                name: config.name.clone(),
                address: self.address.clone(),
                storage: self.home.storage(),
                boot,
                zone: config.zone.clone(),
                weight: config.weight,
                partitions_max: config.partitions_max,
                protocol_min: *PROTOCOL.start(),
                protocol_max: *PROTOCOL.end(),
                held: self.home.held(),
                last_incarnation: self.home.last_incarnation(),
                expects: registering.expects().unwrap_or(Incarnation::ZERO),
                participant: None,
            });
            let attempt = coordinators.call(REGISTER_DEADLINE, async |mut client, patience| {
                let mut request = tonic::Request::new(request.clone());
                request.set_timeout(patience);
                client.register(request).await
            });
            let answer = tokio::select! {
                answer = attempt => answer,
                () = self.end.cancelled() => return Ok(None),
            };
            let detail = match answer.and_then(|response| Registered::try_from(response).map_err(ErrorDetail::from)) {
                Ok(registered) => {
                    let why = self.home.store(&registered).err();
                    return match why {
                        None => Ok(Some(registered)),
                        Some(why) => Err(SessionError::NotStored { name: config.name.clone(), why }),
                    };
                }
                Err(detail) => detail,
            };
            match registering.refused(&detail, self.shared.clock.now()) {
                Again::Never => return Err(SessionError::Refused { name: config.name.clone(), detail }),
                Again::AtOnce => continue,
                Again::Later => {}
            }
            let known = reported.is_some_and(|(kind, at)| kind == detail.kind && at.elapsed() < SAY_AGAIN);
            if !known {
                // Somebody has to do something about the one, and a coordinator alone about the other.
                if detail.kind == ErrorKind::NameTaken {
                    tracing::warn!(kind = %detail.kind, "not registered yet: {}", detail.message);
                } else {
                    tracing::info!(kind = %detail.kind, "not registered yet: {}", detail.message);
                }
                reported = Some((detail.kind, Instant::now()));
            }
            let pause = detail
                .retry_after_ms
                .map_or_else(|| backoff.next(rand::random()), |ms| Duration::from_millis(ms.min(1_000)));
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.end.cancelled() => return Ok(None),
            }
        }
    }

    /// Says farewell, if nothing is led any more: the coordinator then need not wait for the lease to run out.
    async fn leave(&self, coordinators: &Coordinators, life: &Life) {
        if !self.released.load(Ordering::Acquire) {
            return;
        }
        // From here on nothing is answered: the coordinator takes the farewell as the end of the lease.
        life.grants.end();
        let request = v1::LeaveRequest::from(life.member);
        let answer = coordinators
            .call(LEAVE_DEADLINE, async |mut client, patience| {
                let mut request = tonic::Request::new(request.clone());
                request.set_timeout(patience);
                client.leave(request).await
            })
            .await;
        match answer {
            Ok(_) => tracing::info!("left the cluster cleanly"),
            Err(detail) => tracing::info!(kind = %detail.kind, "left without the coordinator's answer"),
        }
    }
}

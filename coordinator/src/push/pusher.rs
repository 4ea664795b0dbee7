//! One node's pusher: it pushes missing data until the node has acknowledged it. `core` decides the content, and the
//! meaning of the answers.

use super::Target;
use super::deltas::Deltas;
use crate::clock::boot_now;
use crate::leader::session::Session;
use crate::raft::connect;
use crate::statistics::metrics::Metrics;
use archon_coordinator_core::ClusterState;
use archon_coordinator_core::term::{HeartbeatSummary, Piece, Pieces, Promise, PushProgress, PushStep, PushUrgency};
use archon_proto::convert::error::detail_of;
use archon_proto::convert::members::control::{Push, PushAnswer};
use archon_proto::v1::control_client::ControlClient;
use archon_security::{ExpectedPeer, Transport};
use archon_types::limits::MESSAGE_BYTES_MAX;
use archon_types::{Backoff, ErrorDetail, ErrorKind, NEWS_SINCE, NodeId, PushKey, TableId, Version};
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore, SemaphorePermit};
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;

/// Time after which a push without an answer is repeated.
const PUSH_DEADLINE: Duration = Duration::from_secs(2);
const BACKOFF_MIN: Duration = Duration::from_millis(50);
const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// A change wakes a pusher early, but never sooner than this after a failure.
const BACKOFF_FLOOR: Duration = Duration::from_millis(20);
/// Maximum number of concurrent pushes with changed duties: other members wait for them.
const URGENT_MAX: usize = 8;
/// Maximum number of concurrent pushes that only update the table. Each is derived after it got its turn, so while
/// nodes wait, changes gather into one push instead of one each. Without a bound a thousand nodes that register, or a
/// new leader that starts empty, keep every thread busy with pushes until heartbeats and Raft are late, which elects
/// another leader that starts empty.
const TABLE_ONLY_MAX: usize = 2;
/// A longer push waits for its node and no longer for this process, so others may go.
const TURN_MAX: Duration = Duration::from_millis(50);
/// Minimum pace of rounds at which the deltas made in one are shared.
const SHARED_FROM: Duration = Duration::from_millis(20);

/// A push in its sent form.
struct Message {
    push: Push,
    nodes: Bytes,
    rows: Vec<Bytes>,
}

/// Deltas that are or were recently encoded.
struct RecentDeltas<'a> {
    deltas: &'a Deltas,
    stale_max: Duration,
}

impl Pieces for RecentDeltas<'_> {
    type Rows = Bytes;
    type Nodes = Bytes;

    fn rows(&self, state: &ClusterState, table: TableId, since: Version, from: u64) -> Option<Piece<Bytes>> {
        self.deltas.table(state, table, since, from, self.stale_max)
    }

    fn nodes(&self, state: &ClusterState, since: Version) -> Option<Piece<Bytes>> {
        self.deltas.nodes(state, since, self.stale_max)
    }
}

/// Shared by all pushers: the limits of concurrent pushes, and the encoded deltas.
pub(super) struct PushLimits {
    deltas: Deltas,
    /// Maximum age of a reused delta of a table, in milliseconds.
    stale_ms_max: AtomicU64,
    urgent: Semaphore,
    table_only: Semaphore,
}

impl PushLimits {
    pub(super) fn new() -> Self {
        Self {
            deltas: Deltas::default(),
            stale_ms_max: AtomicU64::new(0),
            urgent: Semaphore::new(URGENT_MAX),
            table_only: Semaphore::new(TABLE_ONLY_MAX),
        }
    }

    /// Sets the pace at which all pushers are woken: within one round all may get the same. With few nodes each gets
    /// the newest.
    pub(super) fn set_pace(&self, pace: Duration) {
        let stale = if pace > SHARED_FROM { pace } else { Duration::ZERO };
        self.stale_ms_max.store(u64::try_from(stale.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Returns the limit of pushes with this urgency.
    const fn of(&self, due: PushUrgency) -> &Semaphore {
        match due {
            PushUrgency::Duties => &self.urgent,
            PushUrgency::Table => &self.table_only,
        }
    }

    fn stale_max(&self) -> Duration {
        Duration::from_millis(self.stale_ms_max.load(Ordering::Relaxed))
    }
}

pub(super) struct Pusher {
    session: Arc<Session>,
    metrics: Arc<Metrics>,
    limits: Arc<PushLimits>,
    node: NodeId,
    target: Target,
    /// Notified whenever there may be something to push.
    wake: Arc<Notify>,
    acknowledged: PushProgress,
}

impl Pusher {
    pub(super) fn new(
        session: &Arc<Session>,
        metrics: &Arc<Metrics>,
        limits: &Arc<PushLimits>,
        node: NodeId,
        target: &Target,
        wake: Arc<Notify>,
    ) -> Self {
        Self {
            session: Arc::clone(session),
            metrics: Arc::clone(metrics),
            limits: Arc::clone(limits),
            node,
            target: target.clone(),
            wake,
            acknowledged: PushProgress::default(),
        }
    }

    pub(super) async fn run(mut self, transport: Transport, stop: CancellationToken) {
        let Some(channel) = connect(&transport, &self.target.address, ExpectedPeer::Node(self.target.name.clone()))
        else {
            tracing::error!(node = %self.node, address = self.target.address, "the node's address is not host:port");
            return;
        };
        let mut client = ControlClient::new(channel)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(usize::MAX);
        let wake = Arc::clone(&self.wake);
        let mut backoff = Backoff::new(BACKOFF_MIN, BACKOFF_MAX);
        loop {
            let step = self.next_step();
            if let PushStep::Await(until) = step {
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = wake.notified() => {}
                    () = tokio::time::sleep(Duration::from_millis(until.since(boot_now()))) => {}
                }
                continue;
            }
            let key = self.session.push_key(self.node, self.target.incarnation, &self.wake);
            if let (Some(key), PushStep::Push(due)) = (key, step) {
                let permit = tokio::select! {
                    () = stop.cancelled() => return,
                    permit = self.limits.of(due).acquire() => permit,
                };
                // Derived only now, so that it contains all changes that gathered while it waited.
                let Some((message, promise)) = self.next(key) else { continue };
                let pushed = tokio::select! {
                    () = stop.cancelled() => return,
                    pushed = Self::send_in_turn(&mut client, message, permit.ok()) => pushed,
                };
                match pushed {
                    Ok(answer) => {
                        let partial = promise.is_partial();
                        if self.take_answer(promise, answer) {
                            self.metrics.pushes.add(1);
                            backoff.reset();
                            let stale_max = self.limits.stale_max();
                            if !partial && !stale_max.is_zero() && self.is_due() {
                                // It got the shared delta of this round, and lacks newer changes.
                                tokio::select! {
                                    () = stop.cancelled() => return,
                                    () = wake.notified() => {}
                                    () = tokio::time::sleep(stale_max) => {}
                                }
                            }
                            continue;
                        }
                    }
                    Err(error) => {
                        self.metrics.pushes_failed.add(1);
                        tracing::debug!(node = %self.node, %error, "a push failed");
                    }
                }
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = tokio::time::sleep(BACKOFF_FLOOR) => {}
                }
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = wake.notified() => {}
                    () = tokio::time::sleep(backoff.next(rand::random())) => {}
                }
                continue;
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = wake.notified() => {}
            }
        }
    }

    /// Takes in the node's last heartbeat, and returns the next step.
    fn next_step(&mut self) -> PushStep {
        let (now, quorum) = (boot_now(), self.session.quorum());
        let beat = self.session.last_heartbeat(self.node).filter(|beat| beat.incarnation == self.target.incarnation);
        let heard = beat.map(|beat| HeartbeatSummary { at: beat.at, holds: beat.table_version, carried: beat.carried });
        let (lost, step) = quorum.replicated().read(|state| {
            let speaks_news = state.protocol >= NEWS_SINCE;
            let has_news = |holds| speaks_news && self.session.news.of(state, holds, &quorum.coordinators()).is_some();
            let lost = heard.is_some_and(|heard| self.acknowledged.hear(state, heard, speaks_news));
            (lost, self.acknowledged.next_step(state, self.node, heard, now, has_news))
        });
        if lost {
            let holds = heard.map_or(Version::ZERO, |heard| heard.holds);
            tracing::info!(node = %self.node, %holds, "the node lost its table; pushing it whole");
        }
        step
    }

    /// Returns true if the node lacks something that is pushed.
    fn is_due(&self) -> bool {
        self.session.quorum().replicated().read(|state| self.acknowledged.due(state, self.node)).is_some()
    }

    /// Returns a push of the node's missing data, or `None`. `key`: from its heartbeats.
    fn next(&self, key: PushKey) -> Option<(Message, Promise)> {
        let pieces = RecentDeltas { deltas: &self.limits.deltas, stale_max: self.limits.stale_max() };
        self.session.quorum().replicated().read(|state| {
            let (push, promise) = self.acknowledged.next(state, self.node, &pieces)?;
            let (nodes, rows) = (push.nodes.unwrap_or_default(), push.rows);
            let push = Push {
                cluster: state.cluster,
                coordinator: self.session.quorum().id(),
                term: self.session.number(),
                node: self.node,
                incarnation: self.target.incarnation,
                version: push.version,
                duties: push.duties,
                deltas: Vec::new(),
                nodes: None,
                tables: push.tables,
                access: push.access,
                complete: push.complete,
                coordinators: self.session.quorum().coordinators(),
                key,
                newest: push.newest,
            };
            Some((Message { push, nodes, rows }, promise))
        })
    }

    /// Sends a push, and releases the turn when the answer comes or after [`TURN_MAX`].
    async fn send_in_turn(
        client: &mut ControlClient<Channel>,
        message: Message,
        mut turn: Option<SemaphorePermit<'_>>,
    ) -> Result<PushAnswer, ErrorDetail> {
        let sending = Self::send(client, message);
        tokio::pin!(sending);
        loop {
            tokio::select! {
                pushed = &mut sending => return pushed,
                () = tokio::time::sleep(TURN_MAX), if turn.is_some() => turn = None,
            }
        }
    }

    async fn send(client: &mut ControlClient<Channel>, message: Message) -> Result<PushAnswer, ErrorDetail> {
        let mut request = tonic::Request::new(message.push.with_encoded(message.rows, message.nodes));
        request.set_timeout(PUSH_DEADLINE);
        let answer = tokio::time::timeout(PUSH_DEADLINE, client.push(request)).await;
        let answer = answer.map_err(|_| ErrorDetail::new(ErrorKind::DeadlineExceeded, "the node did not answer"))?;
        let answer = answer.map_err(|status| detail_of(&status))?.into_inner();
        PushAnswer::try_from(answer).map_err(ErrorDetail::from)
    }

    /// Records the data that the node now holds. Returns true if it obeys the push.
    fn take_answer(&mut self, promise: Promise, answer: PushAnswer) -> bool {
        for (placement, error) in &answer.refused {
            tracing::warn!(node = %self.node, %placement, %error, "a duty could not be taken up");
        }
        let obeys = self.acknowledged.take(promise, answer.version, answer.gap, boot_now());
        if let Some(version) = self.acknowledged.access() {
            self.session.access_known.note(self.node, self.target.incarnation, version);
        }
        obeys
    }
}

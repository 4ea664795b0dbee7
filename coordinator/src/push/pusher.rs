//! One node's pusher: it derives the node's duties and what its table lacks from the state, and pushes them until the node
//! acknowledged that version. Nothing is remembered that a new leader would need.

use super::Target;
use crate::clock::boot_now;
use crate::metrics::{Metrics, count};
use crate::raft::connect;
use crate::session::Session;
use archon_coordinator_core::{delta, duties};
use archon_proto::convert::control::{Push, Pushed};
use archon_proto::convert::error::detail_of;
use archon_proto::v1::PushRequest;
use archon_proto::v1::control_client::ControlClient;
use archon_types::limits::MESSAGE_BYTES_MAX;
use archon_types::{Backoff, Duty, ErrorDetail, ErrorKind, Millis, NodeId, TableId, Version};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, Semaphore, SemaphorePermit};
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;

/// A node that does not answer within this is asked again.
const PUSH_DEADLINE: Duration = Duration::from_secs(2);
const BACKOFF_MIN: Duration = Duration::from_millis(50);
const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// A change wakes a pusher early, yet never sooner than this after a failure.
const BACKOFF_FLOOR: Duration = Duration::from_millis(20);
/// Pushes under way at once whose duties changed: somebody waits for them.
const URGENT_MAX: usize = 8;
/// Pushes under way at once that only bring the table up to date. Each is derived after it got its turn, so while nodes
/// wait, changes gather into one push instead of one each. Without a bound a thousand nodes that register, or a new
/// leader that starts from nothing, keep every thread busy with pushes until heartbeats and Raft are late, which elects
/// another leader that starts from nothing.
const TABLE_ONLY_MAX: usize = 2;
/// A push that takes longer waits for its node and no longer for us, so others may go.
const TURN_MAX: Duration = Duration::from_millis(50);
/// A heartbeat older than this after an acknowledgement may have been sent before it.
const HEARD_SETTLES_MS: u64 = 1_000;

/// What the node is known to hold.
#[derive(Default)]
struct Acked {
    duties: Option<Vec<Duty>>,
    tables: BTreeMap<TableId, Version>,
    at: Option<Millis>,
}

/// How many pushes may be under way, all pushers together.
pub(super) struct Lanes {
    urgent: Semaphore,
    table_only: Semaphore,
}

impl Lanes {
    pub(super) fn new() -> Self {
        Self { urgent: Semaphore::new(URGENT_MAX), table_only: Semaphore::new(TABLE_ONLY_MAX) }
    }
}

pub(super) struct Pusher {
    session: Arc<Session>,
    metrics: Arc<Metrics>,
    lanes: Arc<Lanes>,
    node: NodeId,
    target: Target,
    /// Given a sign whenever there may be something to push.
    wake: Arc<Notify>,
    acked: Acked,
}

impl Pusher {
    pub(super) fn new(
        session: &Arc<Session>,
        metrics: &Arc<Metrics>,
        lanes: &Arc<Lanes>,
        node: NodeId,
        target: &Target,
        wake: Arc<Notify>,
    ) -> Self {
        Self {
            session: Arc::clone(session),
            metrics: Arc::clone(metrics),
            lanes: Arc::clone(lanes),
            node,
            target: target.clone(),
            wake,
            acked: Acked::default(),
        }
    }

    pub(super) async fn run(mut self, stop: CancellationToken) {
        let Some(channel) = connect(&self.target.address) else {
            tracing::error!(node = %self.node, address = self.target.address, "the node's address is not host:port");
            return;
        };
        let mut client = ControlClient::new(channel)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(usize::MAX);
        let wake = Arc::clone(&self.wake);
        let mut backoff = Backoff::new(BACKOFF_MIN, BACKOFF_MAX);
        loop {
            self.look_at_heartbeat();
            if let Some(lane) = self.lane() {
                let permit = tokio::select! {
                    () = stop.cancelled() => return,
                    permit = lane.acquire() => permit,
                };
                // Derived only now, so that it holds everything that gathered while it waited.
                let Some(push) = self.next() else { continue };
                let pushed = tokio::select! {
                    () = stop.cancelled() => return,
                    pushed = Self::send_in_turn(&mut client, push.clone(), permit.ok()) => pushed,
                };
                match pushed {
                    Ok(answer) => {
                        if self.take_answer(push, answer) {
                            count(&self.metrics.pushes);
                            backoff.reset();
                            continue;
                        }
                    }
                    Err(error) => {
                        count(&self.metrics.pushes_failed);
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

    /// The lane for what the node lacks, or `None` if it lacks nothing.
    fn lane(&self) -> Option<&Semaphore> {
        self.session.quorum().replicated().read(|state| {
            let duties = duties(state, self.node)?;
            if self.acked.duties.as_ref() != Some(&duties) {
                return Some(&self.lanes.urgent);
            }
            let behind = |table: &TableId| state.version_of(*table) > self.held(*table);
            state.tables.keys().any(behind).then_some(&self.lanes.table_only)
        })
    }

    /// The version of a table that the node acknowledged.
    fn held(&self, table: TableId) -> Version {
        self.acked.tables.get(&table).copied().unwrap_or(Version::ZERO)
    }

    /// What the node lacks, or nothing.
    fn next(&self) -> Option<Push> {
        self.session.quorum().replicated().read(|state| {
            let duties = duties(state, self.node)?;
            let deltas: Vec<_> = state
                .tables
                .keys()
                .filter_map(|table| {
                    let held = self.held(*table);
                    (state.version_of(*table) > held).then(|| delta(state, *table, held)).flatten()
                })
                .collect();
            if deltas.is_empty() && self.acked.duties.as_ref() == Some(&duties) {
                return None;
            }
            let coordinators = self.session.quorum().peers().values().cloned().collect();
            Some(Push {
                cluster: state.cluster,
                coordinator: self.session.quorum().id(),
                term: self.session.term(),
                node: self.node,
                incarnation: self.target.incarnation,
                version: Version::new(state.applied),
                duties,
                deltas,
                coordinators,
            })
        })
    }

    /// Sends, and gives the turn back when the answer comes or after [`TURN_MAX`].
    async fn send_in_turn(
        client: &mut ControlClient<Channel>,
        push: Push,
        mut turn: Option<SemaphorePermit<'_>>,
    ) -> Result<Pushed, ErrorDetail> {
        let sending = Self::send(client, push);
        tokio::pin!(sending);
        loop {
            tokio::select! {
                pushed = &mut sending => return pushed,
                () = tokio::time::sleep(TURN_MAX), if turn.is_some() => turn = None,
            }
        }
    }

    async fn send(client: &mut ControlClient<Channel>, push: Push) -> Result<Pushed, ErrorDetail> {
        let mut request = tonic::Request::new(PushRequest::from(push));
        request.set_timeout(PUSH_DEADLINE);
        let answer = tokio::time::timeout(PUSH_DEADLINE, client.push(request)).await;
        let answer = answer.map_err(|_| ErrorDetail::new(ErrorKind::DeadlineExceeded, "the node did not answer"))?;
        let answer = answer.map_err(|status| detail_of(&status))?.into_inner();
        Pushed::try_from(answer).map_err(ErrorDetail::from)
    }

    /// Takes note of what the node now holds. Returns whether it obeys what was pushed.
    fn take_answer(&mut self, push: Push, answer: Pushed) -> bool {
        for (placement, error) in &answer.refused {
            tracing::warn!(node = %self.node, %placement, %error, "a duty could not be taken up");
        }
        if answer.version < push.version {
            // It obeys an older state than this one: it did not take the push. Say it again.
            self.acked = Acked::default();
            return false;
        }
        if answer.table_version == Version::ZERO && !push.deltas.is_empty() && self.acked.at.is_some() {
            self.acked = Acked { duties: Some(push.duties), tables: BTreeMap::new(), at: None };
            return true;
        }
        for delta in push.deltas {
            self.acked.tables.insert(delta.table.id, delta.version);
        }
        self.acked.duties = Some(push.duties);
        self.acked.at = Some(boot_now());
        true
    }

    /// A node that says it holds less than it acknowledged gets everything again.
    fn look_at_heartbeat(&mut self) {
        let (Some(heard), Some(acked_at)) = (self.session.heard(self.node), self.acked.at) else { return };
        let oldest = self.acked.tables.values().min().copied().unwrap_or(Version::ZERO);
        let settled = heard.incarnation == self.target.incarnation && heard.at.since(acked_at) > HEARD_SETTLES_MS;
        if settled && heard.table_version < oldest {
            tracing::info!(node = %self.node, holds = %heard.table_version, "the node lost its table; pushing it whole");
            self.acked = Acked::default();
        }
    }
}

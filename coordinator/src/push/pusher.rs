//! One node's pusher: it derives the node's duties and what its table lacks from the state, and pushes them until the node
//! acknowledged that version. Nothing is remembered that a new leader would need.

use super::Target;
use super::deltas::Deltas;
use crate::clock::boot_now;
use crate::metrics::{Metrics, count};
use crate::raft::connect;
use crate::session::Session;
use archon_coordinator_core::{DutiesMark, duties, duties_mark};
use archon_proto::convert::control::{Push, Pushed};
use archon_proto::convert::error::detail_of;
use archon_proto::v1::control_client::ControlClient;
use archon_types::limits::{MESSAGE_BYTES_MAX, PIECE_BYTES_MAX};
use archon_types::{Backoff, ErrorDetail, ErrorKind, Millis, NodeId, PushKey, TableId, Version};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
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
/// What a duty takes in a message at most, roughly: a row with its copies.
const DUTY_BYTES: usize = 128;
/// Rounds that are further apart than this are long enough for the deltas made in one to be shared.
const SHARED_FROM: Duration = Duration::from_millis(20);
/// A heartbeat older than this after an acknowledgement may have been sent before it.
const HEARD_SETTLES_MS: u64 = 1_000;

/// What the node is known to hold.
#[derive(Default)]
struct Acked {
    /// What its duties followed from, and the version with which they were pushed.
    duties: Option<(DutiesMark, Version)>,
    tables: BTreeMap<TableId, Version>,
    /// A table of which it has the first pieces.
    arriving: Option<Arriving>,
    nodes: Version,
    /// The last drop of a table that it was told of.
    dropped: Version,
    /// It was told that it holds everything up to here.
    complete: Version,
    at: Option<Millis>,
}

/// How much of a table a node has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Arriving {
    table: TableId,
    since: Version,
    /// Where to go on.
    from: u64,
    /// That of the oldest piece.
    version: Version,
}

/// A push with what the node will hold once it took it.
#[derive(Clone)]
struct Prepared {
    push: Push,
    mark: DutiesMark,
    nodes: Option<(Bytes, Version)>,
    deltas: Vec<(TableId, Bytes, Version)>,
    /// The table of which the node will have the first pieces only.
    arriving: Option<Arriving>,
    /// More is to follow: it did not fit.
    partial: bool,
}

/// What all pushers share: how many pushes may be under way, and what is encoded already.
pub(super) struct Lanes {
    deltas: Deltas,
    /// How far behind a delta of a table may be that is taken from what is encoded already, in milliseconds.
    stale_ms_max: AtomicU64,
    urgent: Semaphore,
    table_only: Semaphore,
}

impl Lanes {
    pub(super) fn new() -> Self {
        Self {
            deltas: Deltas::default(),
            stale_ms_max: AtomicU64::new(0),
            urgent: Semaphore::new(URGENT_MAX),
            table_only: Semaphore::new(TABLE_ONLY_MAX),
        }
    }

    /// Everybody is woken at this pace: within one round all may get the same. With few nodes each gets the newest.
    pub(super) fn set_pace(&self, pace: Duration) {
        let stale = if pace > SHARED_FROM { pace } else { Duration::ZERO };
        self.stale_ms_max.store(u64::try_from(stale.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn stale_max(&self) -> Duration {
        Duration::from_millis(self.stale_ms_max.load(Ordering::Relaxed))
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
            let key = self.session.push_key(self.node, self.target.incarnation, &self.wake);
            if let (Some(key), Some(lane)) = (key, self.lane()) {
                let permit = tokio::select! {
                    () = stop.cancelled() => return,
                    permit = lane.acquire() => permit,
                };
                // Derived only now, so that it holds everything that gathered while it waited.
                let Some(prepared) = self.next(key) else { continue };
                let pushed = tokio::select! {
                    () = stop.cancelled() => return,
                    pushed = Self::send_in_turn(&mut client, prepared.clone(), permit.ok()) => pushed,
                };
                match pushed {
                    Ok(answer) => {
                        let partial = prepared.partial;
                        if self.take_answer(prepared, answer) {
                            count(&self.metrics.pushes);
                            backoff.reset();
                            let stale_max = self.lanes.stale_max();
                            if !partial && !stale_max.is_zero() && self.lane().is_some() {
                                // It was given what others get in this round, and lacks what is newer.
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
            let mark = duties_mark(state, self.node)?;
            if self.acked.duties.is_none_or(|(acked, _)| acked != mark) {
                return Some(&self.lanes.urgent);
            }
            let behind = |table: &TableId| state.rows_version_of(*table) > self.held(*table);
            let lacks = state.nodes_version > self.acked.nodes
                || state.dropped_version > self.acked.dropped
                || state.tables.keys().any(behind);
            lacks.then_some(&self.lanes.table_only)
        })
    }

    /// The version of a table that the node acknowledged.
    fn held(&self, table: TableId) -> Version {
        self.acked.tables.get(&table).copied().unwrap_or(Version::ZERO)
    }

    /// What the node lacks, or nothing. `key`: what it said in its heartbeats.
    fn next(&self, key: PushKey) -> Option<Prepared> {
        let stale_max = self.lanes.stale_max();
        self.session.quorum().replicated().read(|state| {
            let mark = duties_mark(state, self.node)?;
            let nodes = if state.nodes_version > self.acked.nodes {
                self.lanes.deltas.nodes(state, self.acked.nodes, stale_max)
            } else {
                None
            };
            let unchanged = self.acked.duties.filter(|(acked, _)| *acked == mark);
            let duties = if unchanged.is_some() { None } else { Some(duties(state, self.node)?) };
            let mut bytes = nodes.as_ref().map_or(0, |nodes| nodes.bytes.len());
            bytes += duties.as_ref().map_or(0, |duties| duties.len() * DUTY_BYTES);
            let tables = (state.dropped_version > self.acked.dropped).then(|| state.table_list());
            bytes += tables.as_ref().map_or(0, |list| list.tables.len() * size_of::<TableId>());
            // Rows name nodes, so the nodes come first.
            let mut partial = nodes.as_ref().is_some_and(|nodes| nodes.next.is_some());
            let stale = nodes.as_ref().filter(|nodes| nodes.version < state.nodes_version);
            let mut complete = stale.map_or(state.table_version(), |nodes| nodes.version);
            let arriving = self.acked.arriving.filter(|begun| state.tables.contains_key(&begun.table));
            let (mut deltas, mut arriving) = (Vec::new(), arriving);
            for table in state.tables.keys().filter(|table| state.rows_version_of(**table) > self.held(**table)) {
                if partial || bytes >= PIECE_BYTES_MAX {
                    partial = true;
                    break;
                }
                let begun = arriving.filter(|begun| begun.table == *table);
                let since = begun.map_or(self.held(*table), |begun| begun.since);
                let from = begun.map_or(0, |begun| begun.from);
                let Some(piece) = self.lanes.deltas.table(state, *table, since, from, stale_max) else { continue };
                let version = begun.map_or(piece.version, |begun| begun.version.min(piece.version));
                bytes += piece.bytes.len();
                deltas.push((*table, piece.bytes, version));
                if begun.is_some() {
                    arriving = None;
                }
                if let Some(from) = piece.next {
                    arriving = Some(Arriving { table: *table, since, from, version });
                    partial = true;
                }
                if version < state.rows_version_of(*table) {
                    complete = complete.min(version);
                }
            }
            if unchanged.is_some() && deltas.is_empty() && nodes.is_none() && tables.is_none() {
                return None;
            }
            let push = Push {
                cluster: state.cluster,
                coordinator: self.session.quorum().id(),
                term: self.session.number(),
                node: self.node,
                incarnation: self.target.incarnation,
                version: unchanged.map_or(Version::new(state.applied), |(_, version)| version),
                duties,
                deltas: Vec::new(),
                nodes: None,
                tables,
                complete: (!partial).then_some(complete),
                coordinators: self.session.quorum().peers().values().cloned().collect(),
                key,
                newest: Version::new(state.applied),
            };
            let nodes = nodes.map(|nodes| (nodes.bytes, nodes.version));
            Some(Prepared { push, mark, nodes, deltas, arriving, partial })
        })
    }

    /// Sends, and gives the turn back when the answer comes or after [`TURN_MAX`].
    async fn send_in_turn(
        client: &mut ControlClient<Channel>,
        prepared: Prepared,
        mut turn: Option<SemaphorePermit<'_>>,
    ) -> Result<Pushed, ErrorDetail> {
        let sending = Self::send(client, prepared);
        tokio::pin!(sending);
        loop {
            tokio::select! {
                pushed = &mut sending => return pushed,
                () = tokio::time::sleep(TURN_MAX), if turn.is_some() => turn = None,
            }
        }
    }

    async fn send(client: &mut ControlClient<Channel>, prepared: Prepared) -> Result<Pushed, ErrorDetail> {
        let deltas = prepared.deltas.into_iter().map(|(_, bytes, _)| bytes).collect();
        let nodes = prepared.nodes.map(|(bytes, _)| bytes).unwrap_or_default();
        let mut request = tonic::Request::new(prepared.push.with_encoded(deltas, nodes));
        request.set_timeout(PUSH_DEADLINE);
        let answer = tokio::time::timeout(PUSH_DEADLINE, client.push(request)).await;
        let answer = answer.map_err(|_| ErrorDetail::new(ErrorKind::DeadlineExceeded, "the node did not answer"))?;
        let answer = answer.map_err(|status| detail_of(&status))?.into_inner();
        Pushed::try_from(answer).map_err(ErrorDetail::from)
    }

    /// Takes note of what the node now holds. Returns whether it obeys what was pushed.
    fn take_answer(&mut self, prepared: Prepared, answer: Pushed) -> bool {
        let Prepared { push, mark, nodes, deltas, arriving, .. } = prepared;
        for (placement, error) in &answer.refused {
            tracing::warn!(node = %self.node, %placement, %error, "a duty could not be taken up");
        }
        if answer.version < push.version {
            // It obeys an older state than this one: it did not take the push. Say it again.
            self.acked = Acked::default();
            return false;
        }
        if answer.version > push.version {
            // It obeys other duties than those: ones whose acknowledgement was lost. Marks come back when a drain or a move
            // is undone, so only the version tells. Say the duties.
            self.acked.duties = None;
            return false;
        }
        let duties = Some((mark, push.version));
        if answer.gap {
            // It obeys, and needs everything from the start; not at once, in case it says so again.
            self.acked = Acked { duties, ..Acked::default() };
            return false;
        }
        for (table, _, version) in deltas {
            if arriving.is_none_or(|arriving| arriving.table != table) {
                self.acked.tables.insert(table, version);
            }
        }
        self.acked.arriving = arriving;
        if let Some(list) = push.tables {
            self.acked.tables.retain(|table, _| !list.lacks(*table));
            self.acked.dropped = list.version;
        }
        if let Some(complete) = push.complete {
            self.acked.complete = self.acked.complete.max(complete);
        }
        if let Some((_, version)) = nodes {
            self.acked.nodes = version;
        }
        self.acked.duties = duties;
        self.acked.at = Some(boot_now());
        true
    }

    /// A node that says it holds less than it acknowledged gets everything again.
    fn look_at_heartbeat(&mut self) {
        let (Some(heard), Some(acked_at)) = (self.session.heard(self.node), self.acked.at) else { return };
        let settled = heard.incarnation == self.target.incarnation && heard.at.since(acked_at) > HEARD_SETTLES_MS;
        if settled && heard.table_version < self.acked.complete {
            tracing::info!(node = %self.node, holds = %heard.table_version, "the node lost its table; pushing it whole");
            self.acked = Acked::default();
        }
    }
}

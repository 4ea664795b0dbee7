//! One pusher per live node: it derives the node's duties and what its table lacks from the state, and pushes them until
//! the node acknowledged that version. Nothing is remembered that a new leader would need.

use crate::clock::boot_now;
use crate::metrics::{Metrics, count};
use crate::raft::connect;
use crate::session::Session;
use archon_coordinator_core::{ClusterState, delta, duties};
use archon_proto::convert::control::{Push, Pushed};
use archon_proto::convert::error::detail_of;
use archon_proto::v1::PushRequest;
use archon_proto::v1::control_client::ControlClient;
use archon_types::limits::MESSAGE_BYTES_MAX;
use archon_types::{Duty, ErrorDetail, ErrorKind, Incarnation, Millis, NodeId, TableId, Version};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;

/// A node that does not answer within this is asked again.
const PUSH_DEADLINE: Duration = Duration::from_secs(2);
const BACKOFF_MIN: Duration = Duration::from_millis(50);
const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// A change wakes a pusher early, yet never sooner than this after a failure.
const BACKOFF_FLOOR: Duration = Duration::from_millis(20);
/// A heartbeat older than this after an acknowledgement may have been sent before it.
const HEARD_SETTLES_MS: u64 = 1_000;

/// One life of a node, to be pushed to.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Target {
    incarnation: Incarnation,
    address: String,
}

/// Keeps one pusher per live node until the session ends.
pub(crate) async fn run(session: Arc<Session>, metrics: Arc<Metrics>) {
    let state = session.quorum().replicated();
    let mut applied = state.applied();
    let mut running: BTreeMap<NodeId, (Target, CancellationToken)> = BTreeMap::new();
    let mut tasks = JoinSet::new();
    let mut seen = None;
    loop {
        applied.borrow_and_update();
        let newest = state.read(lives);
        if seen != Some(newest) {
            seen = Some(newest);
            let wanted = state.read(targets);
            running.retain(|node, (target, stop)| {
                let keep = wanted.get(node) == Some(target);
                if !keep {
                    stop.cancel();
                }
                keep
            });
            for (node, target) in wanted {
                running.entry(node).or_insert_with(|| {
                    let stop = session.stop().child_token();
                    let pusher = Pusher {
                        session: Arc::clone(&session),
                        metrics: Arc::clone(&metrics),
                        node,
                        target: target.clone(),
                        acked: Acked::default(),
                    };
                    tasks.spawn(pusher.run(stop.clone()));
                    (target, stop)
                });
            }
        }
        tokio::select! {
            () = session.stop().cancelled() => break,
            changed = applied.changed() => if changed.is_err() { break },
            Some(ended) = tasks.join_next() => {
                if let Err(error) = ended && error.is_panic() {
                    // One defect must not leave a node without duties: all start anew and derive everything from state.
                    tracing::error!(%error, "a pusher failed");
                    seen = None;
                    running.clear();
                    tasks.abort_all();
                }
            }
        }
    }
    while tasks.join_next().await.is_some() {}
}

/// Changes whenever a node becomes active, ends to be, or changes address; cheap to look at after every log entry.
fn lives(state: &ClusterState) -> (Version, u64) {
    let active = state.nodes.values().filter(|row| row.is_active());
    let lives = active.fold(0u64, |sum, row| {
        sum.wrapping_mul(31).wrapping_add(row.node.id.get() ^ row.node.incarnation.get().rotate_left(32))
    });
    (state.nodes_version, lives)
}

fn targets(state: &ClusterState) -> BTreeMap<NodeId, Target> {
    let active = state.nodes.values().filter(|row| row.is_active());
    let target = |node: &archon_types::Node| Target { incarnation: node.incarnation, address: node.address.clone() };
    active.map(|row| (row.node.id, target(&row.node))).collect()
}

/// What the node is known to hold.
#[derive(Default)]
struct Acked {
    duties: Option<Vec<Duty>>,
    tables: BTreeMap<TableId, Version>,
    at: Option<Millis>,
}

struct Pusher {
    session: Arc<Session>,
    metrics: Arc<Metrics>,
    node: NodeId,
    target: Target,
    acked: Acked,
}

impl Pusher {
    async fn run(mut self, stop: CancellationToken) {
        let Some(channel) = connect(&self.target.address) else {
            tracing::error!(node = %self.node, address = self.target.address, "the node's address is not host:port");
            return;
        };
        let mut client = ControlClient::new(channel)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(usize::MAX);
        let session = Arc::clone(&self.session);
        let mut applied = session.quorum().replicated().applied();
        let mut failures = 0;
        loop {
            let nudged = session.pushes.notified();
            applied.borrow_and_update();
            self.look_at_heartbeat();
            if let Some(push) = self.next() {
                let pushed = tokio::select! {
                    () = stop.cancelled() => return,
                    pushed = Self::send(&mut client, push.clone()) => pushed,
                };
                match pushed {
                    Ok(answer) => {
                        if self.take_answer(push, answer) {
                            count(&self.metrics.pushes);
                            failures = 0;
                            continue;
                        }
                        failures += 1;
                    }
                    Err(error) => {
                        count(&self.metrics.pushes_failed);
                        failures += 1;
                        tracing::debug!(node = %self.node, %error, failures, "a push failed");
                    }
                }
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = tokio::time::sleep(BACKOFF_FLOOR) => {}
                }
                tokio::select! {
                    () = stop.cancelled() => return,
                    changed = applied.changed() => if changed.is_err() { return },
                    () = tokio::time::sleep(backoff(failures)) => {}
                }
                continue;
            }
            tokio::select! {
                () = stop.cancelled() => return,
                changed = applied.changed() => if changed.is_err() { return },
                () = nudged => {}
            }
        }
    }

    /// What the node lacks, or nothing.
    fn next(&self) -> Option<Push> {
        self.session.quorum().replicated().read(|state| {
            let duties = duties(state, self.node)?;
            let deltas: Vec<_> = state
                .tables
                .keys()
                .filter_map(|table| {
                    let held = self.acked.tables.get(table).copied().unwrap_or(Version::ZERO);
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

/// Exponential, with full jitter, so that many nodes that came back do not come at once.
fn backoff(failures: u32) -> Duration {
    let ceiling = BACKOFF_MIN.saturating_mul(1 << failures.min(7)).min(BACKOFF_MAX);
    let millis = u64::try_from(ceiling.as_millis()).unwrap_or(u64::MAX);
    Duration::from_millis(rand::random_range(0..=millis))
}

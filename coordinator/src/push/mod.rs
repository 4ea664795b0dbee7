//! Telling nodes what to do: one pusher per node that is alive, woken when the state changed for it.
//!
//! A change to a partition's row wakes the pushers of the nodes in that row at once, since somebody may be waiting for
//! it. Everybody else only lacks a newer table and is woken at a pace that allows for how many there are: waking every
//! pusher at every log entry costs the square of the number of nodes, and with a thousand of them that alone kept
//! heartbeats and Raft waiting until another leader was elected, which began anew. Nodes whose heartbeats are carried are not pushed
//! what the answers to these bring them.

mod access_known;
mod deltas;
mod news;
mod pusher;

pub(crate) use access_known::AccessKnown;
pub(crate) use news::{EncodedNews, NewsKept};

use crate::metrics::Metrics;
use crate::session::Session;
use archon_coordinator_core::ClusterState;
use archon_security::Transport;
use archon_types::{Incarnation, NodeId, Version};
use pusher::{PushLimits, Pusher};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Shortest time between two rounds in which everybody is woken.
const ROUND_MIN: Duration = Duration::from_millis(20);
/// What a round costs at least per node; a round is not begun more often than this allows.
const ROUND_PER_NODE: Duration = Duration::from_micros(200);

/// One life of a node, to be pushed to.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Target {
    name: String,
    incarnation: Incarnation,
    address: String,
}

/// A pusher that runs.
struct Running {
    target: Target,
    wake: Arc<Notify>,
    stop: CancellationToken,
}

/// Keeps one pusher per node that is alive until the session ends.
pub(crate) async fn run(session: Arc<Session>, metrics: Arc<Metrics>, transport: Transport) {
    let state = session.quorum().replicated();
    let mut applied = state.applied();
    let limits = Arc::new(PushLimits::new());
    let mut running: BTreeMap<NodeId, Running> = BTreeMap::new();
    let mut tasks = JoinSet::new();
    let mut seen = None;
    let mut looked = state.read(|state| Version::new(state.applied));
    // When everybody is to be woken next, if somebody may lack something.
    let mut round_at = None;
    let mut round_last = Instant::now();
    loop {
        applied.borrow_and_update();
        let newest = state.read(ClusterState::lives_version);
        if seen != Some(newest) {
            seen = Some(newest);
            let wanted = state.read(targets);
            running.retain(|node, pusher| {
                let keep = wanted.get(node) == Some(&pusher.target);
                if !keep {
                    pusher.stop.cancel();
                }
                keep
            });
            for (node, target) in wanted {
                running.entry(node).or_insert_with(|| {
                    let stop = session.stop().child_token();
                    let wake = Arc::new(Notify::new());
                    let pusher = Pusher::new(&session, &metrics, &limits, node, &target, Arc::clone(&wake));
                    tasks.spawn(pusher.run(transport.clone(), stop.clone()));
                    Running { target, wake, stop }
                });
            }
        }
        let (version, touched) = state.read(|state| (Version::new(state.applied), touched(state, looked)));
        looked = version;
        session.polls().wake(touched.iter().copied());
        for node in touched {
            if let Some(pusher) = running.get(&node) {
                pusher.wake.notify_one();
            }
        }
        tokio::select! {
            () = session.stop().cancelled() => break,
            changed = applied.changed() => {
                if changed.is_err() {
                    break;
                }
                let pace = pace(running.len());
                limits.set_pace(pace);
                round_at.get_or_insert(round_last + pace);
            }
            () = session.pushes.notified() => {
                // Every node that took a push says so with its next heartbeat: not a round for each.
                round_at.get_or_insert((round_last + pace(running.len())).max(Instant::now() + ROUND_MIN));
            }
            () = tokio::time::sleep_until(round_at.unwrap_or_else(Instant::now)), if round_at.is_some() => {
                round_at = None;
                round_last = Instant::now();
                running.values().for_each(|pusher| pusher.wake.notify_one());
            }
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

/// The nodes in rows newer than `since`, and those that are to delete copies of tables that were dropped since.
fn touched(state: &ClusterState, since: Version) -> BTreeSet<NodeId> {
    let rows = state.tables.keys().flat_map(|table| state.partitions.newer_than(*table, since));
    let placed = rows.flat_map(|row| row.placements.iter().map(|placement| placement.node));
    let dropped = state.dropped_version > since;
    placed.chain(state.condemned.nodes().filter(|_| dropped).map(|(node, _)| node)).collect()
}

/// The time between two rounds, with so many nodes.
fn pace(nodes: usize) -> Duration {
    (ROUND_PER_NODE * u32::try_from(nodes).unwrap_or(u32::MAX)).max(ROUND_MIN)
}

fn targets(state: &ClusterState) -> BTreeMap<NodeId, Target> {
    let active = state.nodes.values().filter(|row| row.is_active());
    let target = |node: &archon_types::Node| Target {
        name: node.name.clone(),
        incarnation: node.incarnation,
        address: node.address.clone(),
    };
    active.map(|row| (row.node.id, target(&row.node))).collect()
}

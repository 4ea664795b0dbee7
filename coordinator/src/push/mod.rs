//! Pushes to nodes: one pusher per alive node, woken when the state changed for it.
//!
//! A change to a partition's row wakes the pushers of the nodes in that row at once, since a caller may be waiting for
//! it. The polls of participants are woken in the same way, and by orders that concern them, as no round follows for
//! these. All other nodes only lack a newer table and are woken at a pace that depends on their number: waking every
//! pusher at every log entry costs the square of the number of nodes, and with a thousand of them that alone kept
//! heartbeats and Raft waiting until another leader was elected, with the same effect. Nodes with relayed heartbeats
//! are not pushed the content of the answers to these.

mod access_versions;
mod deltas;
mod news;
mod pusher;

pub(crate) use access_versions::AccessVersions;
pub(crate) use news::{EncodedNews, UpdateCache};

use crate::leader::session::Session;
use crate::statistics::metrics::Metrics;
use archon_coordinator_core::{ClusterState, NodeRow, under_orders};
use archon_security::Transport;
use archon_types::{Incarnation, NodeId, NodeStatus, Version};
use pusher::{PushLimits, Pusher};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Shortest time between two rounds in which all pushers are woken.
const ROUND_MIN: Duration = Duration::from_millis(20);
/// Minimum cost of a round per node, which bounds the frequency of rounds.
const ROUND_PER_NODE: Duration = Duration::from_micros(200);

/// One incarnation of a node to push to.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Target {
    name: String,
    incarnation: Incarnation,
    address: String,
}

/// A running pusher.
struct RunningPusher {
    target: Target,
    wake: Arc<Notify>,
    stop: CancellationToken,
}

/// Keeps one pusher per alive node until the session ends.
pub(crate) async fn run(session: Arc<Session>, metrics: Arc<Metrics>, transport: Transport) {
    let state = session.quorum().replicated();
    let mut applied = state.applied();
    let limits = Arc::new(PushLimits::new());
    let mut running: BTreeMap<NodeId, RunningPusher> = BTreeMap::new();
    let mut tasks = JoinSet::new();
    let mut seen = None;
    let mut registered = BTreeSet::new();
    let mut duties = state.read(DutiesWatch::new);
    // Time of the next wake-up of all pushers, if some node may lack something.
    let mut round_at = None;
    let mut round_last = Instant::now();
    loop {
        applied.borrow_and_update();
        let newest = state.read(ClusterState::lives_version);
        if seen.is_none_or(|seen| seen < newest) {
            let looks = state.read(|state| changed_nodes(state, seen, &mut registered, running.keys().copied()));
            seen = Some(newest);
            for (node, target) in looks {
                if running.get(&node).map(|pusher| &pusher.target) == target.as_ref() {
                    continue;
                }
                if let Some(pusher) = running.remove(&node) {
                    pusher.stop.cancel();
                }
                let Some(target) = target else { continue };
                let stop = session.stop().child_token();
                let wake = Arc::new(Notify::new());
                let pusher = Pusher::new(&session, &metrics, &limits, node, &target, Arc::clone(&wake));
                tasks.spawn(pusher.run(transport.clone(), stop.clone()));
                running.insert(node, RunningPusher { target, wake, stop });
            }
        }
        let (rows, orders) = state.read(|state| duties.touched(state));
        session.polls().wake(rows.union(&orders).copied());
        for node in rows {
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
                // Every node that applied a push reports it with its next heartbeat: not a round for each.
                round_at.get_or_insert((round_last + pace(running.len())).max(Instant::now() + ROUND_MIN));
            }
            () = tokio::time::sleep_until(round_at.unwrap_or_else(Instant::now)), if round_at.is_some() => {
                round_at = None;
                round_last = Instant::now();
                running.values().for_each(|pusher| pusher.wake.notify_one());
            }
            Some(ended) = tasks.join_next() => {
                if let Err(error) = ended && error.is_panic() {
                    // One defect must not leave a node without duties: all pushers restart and derive everything from
                    // state.
                    tracing::error!(%error, "a pusher failed");
                    seen = None;
                    registered.clear();
                    running.clear();
                    tasks.abort_all();
                }
            }
        }
    }
    while tasks.join_next().await.is_some() {}
}

/// Finds the members with duties that may have changed.
struct DutiesWatch {
    /// Log index of the last look.
    looked: Version,
    /// Version of the orders at the last look.
    orders: Option<Version>,
    /// Members under orders at the last look.
    under_orders: BTreeSet<NodeId>,
}

impl DutiesWatch {
    /// Begins with the rows as they are. No order was looked at yet.
    const fn new(state: &ClusterState) -> Self {
        Self { looked: Version::new(state.applied), orders: None, under_orders: BTreeSet::new() }
    }

    /// Returns the members with duties that may have changed since the last look: by rows, and by orders. At the first look,
    /// all members under orders.
    fn touched(&mut self, state: &ClusterState) -> (BTreeSet<NodeId>, BTreeSet<NodeId>) {
        let rows = touched(state, std::mem::replace(&mut self.looked, Version::new(state.applied)));
        let version = state.controls_version;
        if self.orders.replace(version) == Some(version) {
            return (rows, BTreeSet::new());
        }
        // Also members that were under an order until now.
        let mut orders = std::mem::replace(&mut self.under_orders, under_orders(state));
        orders.extend(&self.under_orders);
        (rows, orders)
    }
}

/// Returns the nodes in rows newer than `since`, and those that are to delete copies of tables dropped since.
fn touched(state: &ClusterState, since: Version) -> BTreeSet<NodeId> {
    let rows = state.tables.keys().flat_map(|table| state.partitions.newer_than(*table, since));
    let placed = rows.flat_map(|row| row.placements.iter().map(|placement| placement.node));
    let dropped = state.dropped_version > since;
    placed.chain(state.condemned.nodes().filter(|_| dropped).map(|(node, _)| node)).collect()
}

/// Returns the time between two rounds for this number of nodes.
fn pace(nodes: usize) -> Duration {
    (ROUND_PER_NODE * u32::try_from(nodes).unwrap_or(u32::MAX)).max(ROUND_MIN)
}

/// Returns the nodes that changed after `since`, each with its incarnation to push to if it is active; all nodes
/// without `since`. `registered` are those without an activated incarnation: an activation does not change the version
/// of a node's row. `running` are the present targets.
fn changed_nodes(
    state: &ClusterState,
    since: Option<Version>,
    registered: &mut BTreeSet<NodeId>,
    running: impl Iterator<Item = NodeId>,
) -> Vec<(NodeId, Option<Target>)> {
    let mut changed = std::mem::take(registered);
    match since {
        Some(since) => changed.extend(state.nodes.newer_than(since).map(|row| row.node.id)),
        None => changed.extend(state.nodes.values().map(|row| row.node.id)),
    }
    if since.is_none_or(|since| state.removed_version > since) {
        changed.extend(running.filter(|node| state.nodes.get(node).is_none()));
    }
    let target = |row: &NodeRow| Target {
        name: row.node.name.clone(),
        incarnation: row.node.incarnation,
        address: row.node.address.clone(),
    };
    let look = |node| {
        let row = state.nodes.get(&node);
        if row.is_some_and(|row| row.node.status == NodeStatus::Alive && !row.is_active()) {
            registered.insert(node);
        }
        (node, row.filter(|row| row.is_active()).map(target))
    };
    changed.into_iter().map(look).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_coordinator_core::{Actor, Command, CommandBatch, Register, Response, apply};
    use archon_types::{BootId, ClusterId, Millis, Settings, StorageId};
    use uuid::Uuid;

    fn commit(state: &mut ClusterState, command: Command) -> Response {
        let who = Actor::Coordinator(1);
        let batch =
            CommandBatch { term: 1, proposer: 1, at: Millis::new(1), request: None, who, commands: vec![command] };
        apply(state, state.applied + 1, &batch).remove(0)
    }

    fn registers(state: &mut ClusterState, number: u128) -> (NodeId, Incarnation) {
        let (storage, boot) = (StorageId::new(Uuid::from_u128(number)), BootId::new(Uuid::from_u128(number)));
        let register = Register::new(format!("n{number}"), format!("127.0.0.1:{}", 7_000 + number), storage, boot);
        match commit(state, Command::Register(Box::new(register))) {
            Response::Registered { node, incarnation } => (node, incarnation),
            response => panic!("{response:?}"),
        }
    }

    #[test]
    fn only_changed_nodes_are_examined() {
        let mut state = ClusterState::new();
        commit(
            &mut state,
            Command::Bootstrap { cluster: ClusterId::new(Uuid::from_u128(1)), settings: Settings::default() },
        );
        let mut registered = BTreeSet::new();
        let mut known = BTreeSet::new();
        let mut seen = None;
        let mut look = |state: &ClusterState| {
            let changed = changed_nodes(state, seen, &mut registered, known.iter().copied());
            seen = Some(state.lives_version());
            for (node, target) in &changed {
                if target.is_some() {
                    known.insert(*node)
                } else {
                    known.remove(node)
                };
            }
            let lives = changed.into_iter().map(|(node, target)| (node, target.map(|target| target.incarnation)));
            lives.collect::<Vec<_>>()
        };
        let lives: Vec<(NodeId, Incarnation)> = (1..=5).map(|number| registers(&mut state, number)).collect();
        let (first, incarnation) = lives[0];
        assert_eq!(look(&state).len(), 5);
        for (node, incarnation) in &lives {
            commit(&mut state, Command::Activate { node: *node, incarnation: *incarnation });
        }
        let active: Vec<_> = lives.iter().map(|(node, incarnation)| (*node, Some(*incarnation))).collect();
        assert_eq!(look(&state), active, "an activation does not change the version of a row");
        assert_eq!(look(&state), []);
        commit(&mut state, Command::NodeFailed { node: first, incarnation, successors: vec![] });
        assert_eq!(look(&state), [(first, None)], "the others are not looked at");
        let if_version = state.node(first).unwrap().node.version;
        commit(&mut state, Command::RemoveNode { node: first, if_version });
        let (sixth, _) = registers(&mut state, 6);
        assert_eq!(look(&state), [(sixth, None)]);
    }
}

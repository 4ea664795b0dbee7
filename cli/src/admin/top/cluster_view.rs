//! One poll of the cluster: all data of a screen, requested at about the same time.

use crate::documents::{Node, Rebalance, Status};
use crate::exit::Failure;
use archon_client::{Admin, Event};
use std::time::{SystemTime, UNIX_EPOCH};

/// Maximum number of moves requested.
const MOVES_MAX: u32 = 256;
/// Maximum number of events requested: as many as fit on a tall terminal.
const EVENTS_MAX: u32 = 60;

/// Answers of the cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ClusterView {
    /// Unix time of the poll.
    pub(super) at_ms: u64,
    /// The cluster at a glance.
    pub(super) status: Status,
    /// Nodes and participants.
    pub(super) nodes: Vec<Node>,
    /// The present or last rebalance, with some of its moves.
    pub(super) rebalance: Rebalance,
    /// The latest events, newest last.
    pub(super) events: Vec<Event>,
}

/// Polls: one request of each kind, for any number of nodes. Requests the moves with numbers above `moves_after`.
///
/// # Errors
/// One of them is not answered: the data of a screen belongs together.
pub(super) async fn take(admin: &Admin, moves_after: u64) -> Result<ClusterView, Failure> {
    let (status, nodes, rebalance, events) = tokio::try_join!(
        admin.status(),
        admin.list_nodes(),
        admin.rebalance_progress_after(MOVES_MAX, moves_after),
        admin.events(EVENTS_MAX),
    )?;
    let at_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
    Ok(ClusterView { at_ms, status, nodes, rebalance, events })
}

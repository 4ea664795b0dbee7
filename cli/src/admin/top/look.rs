//! One look at the cluster: everything that a picture is drawn from, asked at about the same moment.

use crate::documents::{Node, Rebalance, Status};
use crate::exit::Failure;
use archon_client::{Admin, Event};
use std::time::{SystemTime, UNIX_EPOCH};

/// Most moves asked for.
const MOVES_MAX: u32 = 256;
/// Most events asked for: what a tall terminal has room for.
const EVENTS_MAX: u32 = 60;

/// What the cluster answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Look {
    /// When. Unix time.
    pub(super) at_ms: u64,
    /// The cluster at a glance.
    pub(super) status: Status,
    /// Nodes and participants.
    pub(super) nodes: Vec<Node>,
    /// The present or last rebalance, with some of its moves.
    pub(super) rebalance: Rebalance,
    /// What happened last, newest last.
    pub(super) events: Vec<Event>,
}

/// Looks: one request of each kind, however many nodes there are. Of the moves those with numbers above `moves_after`
/// are asked for.
///
/// # Errors
/// If one of them is not answered: what is shown belongs together.
pub(super) async fn take(admin: &Admin, moves_after: u64) -> Result<Look, Failure> {
    let (status, nodes, rebalance, events) = tokio::try_join!(
        admin.status(),
        admin.list_nodes(),
        admin.rebalance_progress_after(MOVES_MAX, moves_after),
        admin.events(EVENTS_MAX),
    )?;
    let at_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
    Ok(Look { at_ms, status, nodes, rebalance, events })
}

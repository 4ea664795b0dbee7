//! Waiting for a state of a cluster, without loading the measured machine.

use crate::failure::Failure;
use crate::wait::{CheckOutcome, wait_for};
use archon_client::{
    Admin, Error, MoveKind, MovePhase, MoveStatus, NodeStatus, NodeSummary, PartitionStatus, PartitionSummary,
    ReplicaState,
};
use std::collections::BTreeMap;
use std::time::Duration;

/// Poll interval.
const POLL: Duration = Duration::from_millis(100);

/// Polls `look` until it returns a value; returns that and the time taken.
///
/// # Errors
/// After `limit`, with the awaited state and the last result of `look`.
pub async fn until<T>(
    what: &str,
    limit: Duration,
    mut look: impl AsyncFnMut() -> Result<T, String>,
) -> Result<(T, Duration), Failure> {
    let look = async || Ok(look().await.map_or_else(CheckOutcome::NotYet, CheckOutcome::Yes));
    wait_for(what, limit, POLL, look).await
}

/// Waits until a table has this many partitions and each of them is served.
///
/// # Errors
/// After `limit`, with the number that are.
pub async fn until_served(admin: &Admin, table: &str, partitions: usize, limit: Duration) -> Result<(), Failure> {
    let look = async || {
        let rows = admin.table(table).await.map_err(said)?;
        let served = rows.iter().filter(|row| row.status == PartitionStatus::Online).count();
        let whole = (served, rows.len()) == (partitions, partitions);
        if whole { Ok(()) } else { Err(format!("{served} of {} partitions are served", rows.len())) }
    };
    until("the table to be served", limit, look).await?;
    Ok(())
}

/// Waits until every partition of the default table is `Online` and has `replication` copies, all `Live`.
///
/// # Errors
/// After `limit`, with a partition that is not.
pub async fn until_whole(admin: &Admin, replication: usize, limit: Duration) -> Result<Duration, Failure> {
    let look = async || {
        let rows = partitions(admin).await?;
        let whole = |row: &PartitionSummary| {
            row.status == PartitionStatus::Online
                && row.copies.len() == replication
                && row.copies.iter().all(|copy| copy.state == ReplicaState::Live)
        };
        match rows.iter().find(|row| !whole(row)) {
            Some(row) => Err(format!("partition {}: {}, {:?}", row.id, row.status, row.copies)),
            None => Ok(()),
        }
    };
    Ok(until("every partition to be whole", limit, look).await?.1)
}

/// Waits until the named node has this status.
///
/// # Errors
/// After `limit`, with the current nodes.
pub async fn until_node(admin: &Admin, name: &str, status: NodeStatus, limit: Duration) -> Result<(), Failure> {
    let look = async || {
        let nodes = admin.list_nodes().await.map_err(said)?;
        let found = nodes.iter().any(|node| node.name == name && node.status == status);
        if found { Ok(()) } else { Err(names(&nodes)) }
    };
    until(&format!("{name} to be {status}"), limit, look).await?;
    Ok(())
}

/// Moves that were carried out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MoveCounts {
    /// Number of moves.
    pub moves: usize,
    /// Moves that made a copy, rather than only transferring leadership.
    pub copies: usize,
}

/// Plans and applies until nothing is left to move; returns the moves that were carried out. Moves made obsolete by
/// other changes are left to the next plan.
///
/// # Errors
/// After `limit`, or if a move failed or was cancelled.
pub async fn rebalance(admin: &Admin, limit: Duration) -> Result<MoveCounts, Failure> {
    let mut moved = MoveCounts::default();
    loop {
        let begin = async || {
            let plan = admin.plan().await.map_err(said)?;
            match plan.moves.len() {
                0 => Ok(0),
                // A plan is refused if the table has changed meanwhile.
                _ => admin.apply(&plan).await.map(|_| plan.moves.len()).map_err(said),
            }
        };
        let (moves, _) = until("a plan to be applied", limit, begin).await?;
        if moves == 0 {
            return Ok(moved);
        }
        let ended = async || {
            let summary = admin.rebalance_progress(0).await.map_err(said)?;
            if summary.running {
                let open = summary.summary.moves_total - summary.summary.over();
                return Err(format!("{open} moves are not over"));
            }
            admin.rebalance_status().await.map_err(said)
        };
        let (status, _) = until("the rebalance to end", limit, ended).await?;
        if let Some(undone) = status.moves.iter().find(|moving| !ended_well(moving)) {
            return Err(Failure::new("undone", format!("a move was not carried out: {undone:?}")));
        }
        let done = status.moves.iter().filter(|moving| moving.phase == MovePhase::Done);
        moved.copies += done.clone().filter(|moving| moving.kind == MoveKind::Copy).count();
        moved.moves += done.count();
    }
}

fn ended_well(moving: &MoveStatus) -> bool {
    matches!(moving.phase.known(), Some(MovePhase::Done | MovePhase::Superseded))
}

/// Returns the partitions of the default table.
///
/// # Errors
/// The coordinators' error.
pub async fn partitions(admin: &Admin) -> Result<Vec<PartitionSummary>, String> {
    admin.table("default").await.map_err(said)
}

/// Returns the partitions that each node leads.
pub fn led(rows: &[PartitionSummary]) -> BTreeMap<String, Vec<u32>> {
    let mut led: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for row in rows {
        if let Some(leader) = &row.leader {
            led.entry(leader.clone()).or_default().push(row.id);
        }
    }
    led
}

fn names(nodes: &[NodeSummary]) -> String {
    nodes.iter().map(|node| format!("{} {}", node.name, node.status)).collect::<Vec<_>>().join(", ")
}

/// Returns the text of an error.
pub fn said(error: Error) -> String {
    error.to_string()
}

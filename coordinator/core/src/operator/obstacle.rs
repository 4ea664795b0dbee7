//! Obstacles to operators' requests.

use archon_types::limits::NODE_ASSIGNED_MAX;
use archon_types::{ErrorDetail, ErrorKind, NodeId};
use serde::{Deserialize, Serialize};

/// Obstacle to an operator's request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
#[allow(missing_docs)] // The messages are the documentation of the fields.
pub enum Obstacle {
    /// No such node.
    #[error("node {node} does not exist")]
    NoSuchNode { node: NodeId },
    /// No such partition.
    #[error("partition {partition} does not exist")]
    NoSuchPartition { partition: String },
    /// Fewer nodes would be left than a table has copies of each partition.
    #[error(
        "table {table:?} requires {need} replicas of each partition, and without {node} only {have} nodes take replicas; \
         add a node, or uncordon one"
    )]
    TooFewNodes { table: String, node: String, have: u64, need: u64 },
    /// The remaining nodes are full.
    #[error(
        "no other node can take {placements} replicas: all are at their limits{}, or hold a replica already; {}",
        limits_text(limits),
        limits_remedy(limits)
    )]
    NodesAtLimit { placements: u32, limits: Vec<(String, u32)> },
    /// Some of the remaining nodes may not hold the copies.
    #[error(
        "no other node can take {placements} replicas: nodes are excluded from {barred} of them, at their limits, or \
         hold a replica already; lift an exclusion: see `archon node describe` and `archon partition describe`"
    )]
    NodesBarred { placements: u32, barred: u32 },
    /// A node that is not alive cannot be copied from.
    #[error("{node} is not alive and holds the only replica of {} ({named}); start it first", counted(*partitions))]
    OnlyCopies { node: String, partitions: u32, named: String },
    /// The node must have stopped.
    #[error("{node} is alive; {remedy}")]
    Alive { node: String, remedy: &'static str },
    /// It holds in-sync copies.
    #[error("{node} holds in-sync replicas of {} ({named}); {remedy}", counted(*partitions))]
    HoldsCopies { node: String, partitions: u32, named: String, remedy: String },
    /// It holds the last copies of partitions that lost everything else.
    #[error("{node} holds the last data of {} ({named}); force a leader there first", counted(*partitions))]
    LastTraces { node: String, partitions: u32, named: String },
    /// There is no data to lose.
    #[error("partition {partition} was never assigned: there is nothing to lose")]
    NeverAssigned { partition: String },
    /// A lease holds no data.
    #[error("partition {partition} is a lease without data; it gets an owner once a participant takes it")]
    IsLease { partition: String },
    /// A participant holds no data.
    #[error("{node} is a participant and holds no data; remove it with `archon node remove {node}`")]
    IsParticipant { node: String },
    /// Another copy can lead without any loss.
    #[error("no data needs to be lost: {node} is alive and holds an in-sync replica of partition {partition}")]
    StillCounts { partition: String, node: String },
    /// The former leader may still serve.
    #[error("the lease of the former leader of partition {partition}, {node}, may still run; try again in a moment")]
    LeaseRuns { partition: String, node: String },
    /// The node named for leader holds no suitable copy.
    #[error("{node} cannot lead partition {partition}: {why}")]
    CannotLead { partition: String, node: String, why: &'static str },
    /// The data would have no node.
    #[error(
        "{subject} requires {need} replicas of each partition, and without {node} only {have} nodes may hold them; add a \
         node, uncordon one, or lift another exclusion"
    )]
    TooFewUnbarred { subject: String, node: String, have: u64, need: u64 },
    /// A missing leadership cannot be renewed.
    #[error("partition {partition} has no leader: there is nothing to renew")]
    NoLeader { partition: String },
    /// It is draining.
    #[error("{node} is being drained; `archon node undrain {node}` first")]
    Draining { node: String },
    /// It is not in maintenance.
    #[error("{node} is not in maintenance")]
    NotInMaintenance { node: String },
    /// Forcing that copy would delete a better one.
    #[error(
        "the replica of partition {partition} on {better} is better than the one on {node}, and would be deleted; omit \
         --node, or stop {better} first if its replica must not lead"
    )]
    BetterCopy { partition: String, node: String, better: String },
}

/// Returns several obstacles as one error, for an answer. `NotFound` if there is no such node or partition,
/// `Unavailable` (retryable) if only time is missing, `Refused` otherwise.
pub fn refusal(obstacles: &[Obstacle]) -> ErrorDetail {
    let kind = match obstacles.first() {
        Some(Obstacle::NoSuchNode { .. } | Obstacle::NoSuchPartition { .. }) => ErrorKind::NotFound,
        Some(Obstacle::LeaseRuns { .. }) => ErrorKind::Unavailable,
        _ => ErrorKind::Refused,
    };
    let reasons: Vec<String> = obstacles.iter().map(ToString::to_string).collect();
    ErrorDetail::new(kind, reasons.join("; "))
}

/// Names nodes with their limits, in brackets.
fn limits_text(limits: &[(String, u32)]) -> String {
    let texts: Vec<String> = limits.iter().map(|(node, most)| format!("{node} takes {most} at most")).collect();
    if texts.is_empty() { String::new() } else { format!(" ({})", texts.join(", ")) }
}

/// Returns the remedy for nodes at these limits: the built-in limit cannot be raised.
fn limits_remedy(limits: &[(String, u32)]) -> String {
    match limits.iter().all(|(_, most)| *most >= NODE_ASSIGNED_MAX) && !limits.is_empty() {
        true => format!("add a node: no node takes more than {NODE_ASSIGNED_MAX}"),
        false => "raise a limit with `archon node set NAME --partitions-max`, or add a node".to_owned(),
    }
}

/// Formats a number of partitions for people.
fn counted(partitions: u32) -> String {
    match partitions {
        1 => "1 partition".to_owned(),
        more => format!("{more} partitions"),
    }
}

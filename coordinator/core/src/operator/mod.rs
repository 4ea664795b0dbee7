//! Advance checks of operators' verbs on nodes and partitions: each returns the effect or the obstacles. Pure; the
//! resulting commands are in the table at the head of `command`.

mod access;
mod alter;
pub(crate) mod cancel;
mod configure;
pub(crate) mod countdowns;
mod force;
mod maintain;
mod nodes;
mod order;
mod quorum;
mod recovery;

pub(crate) use crate::ranges::common_checks::hashed;
pub(crate) use crate::ranges::merge_checks::too_large;
pub use crate::ranges::merge_checks::{MergePlan, check_cancel_merge, check_merge};
pub use crate::ranges::split_checks::{SplitPlan, check_cancel_split, check_split, check_splittable};
pub use access::{AccessChange, RefusedCertificates, check_access, check_withdrawal};
pub use alter::{NodeAlteration, check_alter_node, check_alter_table, check_nodes_for};
pub use configure::{Configuration, ConfigureError, check_configure};
pub use force::{ForcedElection, check_force_leader};
pub use maintain::still_led;
pub use nodes::{DrainPlan, LossPlan, RemovalPlan, check_drain, check_lose_node, check_remove};
pub use order::check_order;
pub use quorum::{QuorumRefusal, check_cancel_quorum_change, check_join, check_quorum_change};
pub use recovery::{SettleRefusal, check_settle, check_take_over};

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
        "table {table:?} requires {need} copies of each partition, and without {node} only {have} nodes take copies; \
         add a node, or uncordon one"
    )]
    TooFewNodes { table: String, node: String, have: u64, need: u64 },
    /// The remaining nodes are full.
    #[error(
        "no other node can take {placements} copies: all are at their limits{}, or hold a copy already; raise a limit \
         with \
         `archon node set NAME --partitions-max`, or add a node",
        limits_text(limits)
    )]
    NodesAtLimit { placements: u32, limits: Vec<(String, u32)> },
    /// Some of the remaining nodes may not hold the copies.
    #[error(
        "no other node can take {placements} copies: nodes are excluded from {barred} of them, at their limits, or \
         hold a copy already; lift an exclusion: see `archon node describe` and `archon partition describe`"
    )]
    NodesBarred { placements: u32, barred: u32 },
    /// A node that is not alive cannot be copied from.
    #[error("{node} is not alive and holds the only copy of {} ({named}); start it first", counted(*partitions))]
    OnlyCopies { node: String, partitions: u32, named: String },
    /// The node must have stopped.
    #[error("{node} is alive; {remedy}")]
    Alive { node: String, remedy: &'static str },
    /// It holds in-sync copies.
    #[error("{node} holds in-sync copies of {} ({named}); {remedy}", counted(*partitions))]
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
    #[error("no data needs to be lost: {node} is alive and holds an in-sync copy of partition {partition}")]
    StillCounts { partition: String, node: String },
    /// The former leader may still serve.
    #[error("the lease of the former leader of partition {partition}, {node}, may still run; try again in a moment")]
    LeaseRuns { partition: String, node: String },
    /// The node named for leader holds no suitable copy.
    #[error("{node} cannot lead partition {partition}: {why}")]
    CannotLead { partition: String, node: String, why: &'static str },
    /// The data would have no node.
    #[error(
        "{subject} requires {need} copies of each partition, and without {node} only {have} nodes may hold them; add a \
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
        "the copy of partition {partition} on {better} is better than the one on {node}, and would be deleted; omit \
         --node, or stop {better} first if its copy must not lead"
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

/// Formats a number of partitions for people.
fn counted(partitions: u32) -> String {
    match partitions {
        1 => "1 partition".to_owned(),
        more => format!("{more} partitions"),
    }
}

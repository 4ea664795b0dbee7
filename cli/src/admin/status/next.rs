//! The most urgent next step, in one line.

use super::{NODES_MAX, skew};
use crate::documents::{Node, Status};
use archon_client::{CoordinatorRole, NodeGoal, NodeStatus, Reason, ReasonCode, Severity};

pub(super) fn next_step(status: &Status, nodes: &[&Node], participants: &[&Node]) -> String {
    if status.leader_id.is_none() {
        return "start a majority of the coordinators".to_owned();
    }
    // Data loss first. Its remedy already names a failed node if one is the cause.
    if let Some(remedy) = remedy_of(status, ReasonCode::DataLost) {
        return remedy;
    }
    let drained_and_failed = drained(nodes.iter().copied(), NodeStatus::Failed).count();
    if status.nodes_failed as usize > drained_and_failed {
        return failed_step(status, nodes);
    }
    if status.nodes_alive < status.nodes_min {
        return "start more nodes: `archon node --help`".to_owned();
    }
    if let Some(away) = status.coordinators.iter().find(|coordinator| coordinator.role == CoordinatorRole::Unreachable)
    {
        return format!("start coordinator {} again with its data directory", away.id);
    }
    if let Some(remedy) = remedy_of(status, ReasonCode::NodeUnreached) {
        return remedy;
    }
    if let Some(remedy) = remedy_of(status, ReasonCode::DiskFull) {
        return remedy;
    }
    if let Some(remedy) =
        remedy_of(status, ReasonCode::NodesAtLimit).or_else(|| remedy_of(status, ReasonCode::LeaderHearsTooFew))
    {
        return remedy;
    }
    if status.moves_running > 0 {
        return "watch the moves: `archon rebalance status`".to_owned();
    }
    if status.partitions_online < status.partitions_total {
        let remedy = status.reasons.iter().find_map(|reason| reason.remedy.as_deref());
        return remedy.unwrap_or("see the waiting partitions: `archon partition list`").to_owned();
    }
    if status.partitions_under_replicated > 0 {
        let maintained = || {
            let node = nodes.iter().find(|node| node.goal == NodeGoal::Maintain)?;
            let why = "is in maintenance: its replicas are not rebuilt elsewhere until that ends";
            Some(format!("{} {why}, or until `archon node resume {0}`", node.name))
        };
        let remedy = remedy_of(status, ReasonCode::UnderReplicated).or_else(maintained);
        return remedy
            .unwrap_or_else(|| "nothing to do: replicas are being loaded; see `archon partition list`".to_owned());
    }
    if let Some(remedy) = remedy_of(status, ReasonCode::CopiesCondemned) {
        return remedy;
    }
    if let Some(remedy) = remedy_of(status, ReasonCode::OwnerStays) {
        return remedy;
    }
    if status.reshapings_running > 0 {
        return "watch the splits and merges: `archon rebalance status`".to_owned();
    }
    let members = || nodes.iter().chain(participants).copied();
    if let Some(node) = drained(members(), NodeStatus::Failed).next() {
        return format!("{} was drained and has stopped; remove it: `archon node remove {0}`", node.name);
    }
    if let Some(node) = members().find(|node| node.goal == NodeGoal::Drain && node.copies_held > 0) {
        return format!("{} is being drained; watch it: `archon node describe {0}`", node.name);
    }
    if let Some(node) = drained(members(), NodeStatus::Alive).next() {
        return format!("{} is drained: stop it, then `archon node remove {0}`", node.name);
    }
    let of_certificates = [
        ReasonCode::CertificateExpired,
        ReasonCode::CertificateNotTaken,
        ReasonCode::CertificateExpires,
        ReasonCode::AuthoritiesDiffer,
    ];
    if let Some(remedy) = of_certificates.into_iter().find_map(|code| remedy_of(status, code)) {
        return remedy;
    }
    // Other warnings of `archon check`.
    let warns = |reason: &&Reason| reason.severity != Severity::Notice;
    if let Some(remedy) = status.reasons.iter().filter(warns).find_map(|reason| reason.remedy.clone()) {
        return remedy;
    }
    match skew(nodes) {
        Some((least, most)) if most > least + 1 => "spread the partitions: `archon rebalance plan`".to_owned(),
        _ => "nothing to do".to_owned(),
    }
}

/// Returns drained members in a state that are still registered.
fn drained<'a>(members: impl Iterator<Item = &'a Node>, status: NodeStatus) -> impl Iterator<Item = &'a Node> {
    members.filter(move |node| is_drained(node) && node.status == status)
}

fn is_drained(node: &Node) -> bool {
    node.goal == NodeGoal::Drain && node.copies_held == 0
}

/// Returns the remedy of a reason of this kind, if there is one.
fn remedy_of(status: &Status, code: ReasonCode) -> Option<String> {
    status.reasons.iter().filter(|reason| reason.code == code).find_map(|reason| reason.remedy.clone())
}

/// Prefer restarting a failed node over adding a new one: it still has its data.
fn failed_step(status: &Status, nodes: &[&Node]) -> String {
    let failed = |node: &&&Node| node.status == NodeStatus::Failed && !is_drained(node);
    let names: Vec<&str> = nodes.iter().filter(failed).map(|node| node.name.as_str()).collect();
    let others = if status.nodes_alive < status.nodes_min { ", or start others: `archon node --help`" } else { "" };
    match names.as_slice() {
        // The list of nodes was not available.
        [] => format!("see which node failed: `archon node list`; start it again with its data directory{others}"),
        [name] => format!("start {name} again with its data directory{others}"),
        names if names.len() <= NODES_MAX => {
            format!("start {} again, each with its data directory{others}", names.join(", "))
        }
        names => format!("start the {} failed nodes again (`archon node list`){others}", names.len()),
    }
}

//! What is to be done next, in one line: the worst first.

use super::{NODES_MAX, skew};
use crate::view::{Node, Status};

pub(super) fn next_step(status: &Status, nodes: &[Node]) -> String {
    if status.leader.is_none() {
        return "start a majority of the coordinators".to_owned();
    }
    // The worst first: a failed node may have nothing to do with it, and where it has, this says so.
    if let Some(remedy) = remedy_of(status, "DataLost") {
        return remedy;
    }
    let stopped = drained(nodes, "Failed").count();
    if status.nodes_failed as usize > stopped {
        return failed_step(status, nodes);
    }
    if status.nodes_live < status.nodes_min {
        return "start more nodes: `archon node --help`".to_owned();
    }
    if let Some(away) = status.coordinators.iter().find(|coordinator| coordinator.role == "unreachable") {
        return format!("start coordinator {} again with its data directory", away.id);
    }
    if let Some(full) = status.reasons.iter().find(|reason| reason.code == "DiskFull") {
        return full.remedy.clone();
    }
    if let Some(remedy) = remedy_of(status, "NoRoom").or_else(|| remedy_of(status, "LeaderHearsTooFew")) {
        return remedy;
    }
    if status.migrations_running > 0 {
        return "watch the moves: `archon rebalance status`".to_owned();
    }
    if status.partitions_online < status.partitions {
        let remedy = status.reasons.iter().map(|reason| reason.remedy.as_str()).find(|remedy| !remedy.is_empty());
        return remedy.unwrap_or("see which partitions wait: `archon partition list`").to_owned();
    }
    if status.partitions_under_replicated > 0 {
        let remedy = status.reasons.iter().find(|reason| reason.code == "UnderReplicated");
        let remedy = remedy.map(|reason| reason.remedy.as_str()).filter(|remedy| !remedy.is_empty());
        return remedy.unwrap_or("nothing to do: copies are being made; see `archon partition list`").to_owned();
    }
    if let Some(remedy) = remedy_of(status, "CopiesCondemned") {
        return remedy;
    }
    if let Some(node) = drained(nodes, "Failed").next() {
        return format!("{} was drained and has stopped; forget it: `archon node remove {0}`", node.name);
    }
    if let Some(node) = nodes.iter().find(|node| node.goal == "Drain" && node.partitions > 0) {
        return format!("{} is being drained; watch it: `archon node describe {0}`", node.name);
    }
    if let Some(node) = drained(nodes, "Live").next() {
        return format!("{} is drained: stop it, then `archon node remove {0}`", node.name);
    }
    match skew(nodes) {
        Some((least, most)) if most > least + 1 => "spread the partitions: `archon rebalance plan`".to_owned(),
        _ => "nothing to do".to_owned(),
    }
}

/// Nodes that were emptied and are still known, in a state.
fn drained<'a>(nodes: &'a [Node], status: &'a str) -> impl Iterator<Item = &'a Node> {
    nodes.iter().filter(move |node| node.goal == "Drain" && node.partitions == 0 && node.status == status)
}

/// What a reason of this kind says is to be done, if there is one and it says so.
fn remedy_of(status: &Status, code: &str) -> Option<String> {
    let reasons = status.reasons.iter().filter(|reason| reason.code == code && !reason.remedy.is_empty());
    reasons.map(|reason| reason.remedy.clone()).next()
}

/// Failed nodes come back with all they have, so that is better than others in their place.
fn failed_step(status: &Status, nodes: &[Node]) -> String {
    let failed = |node: &&Node| node.status == "Failed" && !(node.goal == "Drain" && node.partitions == 0);
    let names: Vec<&str> = nodes.iter().filter(failed).map(|node| node.name.as_str()).collect();
    let others = if status.nodes_live < status.nodes_min { ", or start others: `archon node --help`" } else { "" };
    match names.as_slice() {
        // The list of nodes could not be had.
        [] => format!("see which node failed: `archon node list`; start it again with its data directory{others}"),
        [name] => format!("start {name} again with its data directory{others}"),
        names if names.len() <= NODES_MAX => {
            format!("start {} again, each with its data directory{others}", names.join(", "))
        }
        names => format!("start the {} failed nodes again (`archon node list`){others}", names.len()),
    }
}

//! `archon status`: the state of the cluster and the reasons of its waits on one screen.

use super::{reasons, watch};
use crate::args::WatchArgs;
use crate::documents::{Node, Status};
use crate::exit::{Exit, Failure};
use crate::output::{Output, count_text};
use archon_client::{Admin, CoordinatorRole, NodeGoal, NodeStatus, TransportKind};
use next::next_step;
use std::collections::BTreeSet;
use without_majority::asked;

/// Maximum number of printed reasons; the rest is counted.
const REASONS_MAX: usize = 8;
/// Maximum number of nodes, and of participants, printed by name; the rest is counted.
const NODES_MAX: usize = 12;

/// Asks and prints.
pub(crate) async fn run(args: &WatchArgs, admin: &Admin, output: &Output) -> Result<Exit, Failure> {
    watch::show(args.watch, output, async |output: &Output| {
        let status = asked(admin, output).await?;
        if output.is_json() {
            return output.json_text(&status);
        }
        // A status without the list of nodes is better than none: the list may fail while the leader changes.
        let nodes = admin.list_nodes().await.unwrap_or_default();
        Ok(screen(&status, &nodes, output))
    })
    .await
}

fn screen(status: &Status, members: &[Node], output: &Output) -> String {
    let (participants, nodes): (Vec<&Node>, Vec<&Node>) = members.iter().partition(|member| member.is_participant());
    let mut lines =
        vec![format!("cluster     {}", status.cluster_id), format!("quorum      {}", quorum(status, output))];
    for coordinator in &status.coordinators {
        let behind = match coordinator.entries_behind {
            Some(0) | None => String::new(),
            Some(entries) => format!(", {} behind", count_text(entries as usize, "entry", "entries")),
        };
        let role = coordinator.role.as_str();
        let role = match coordinator.role.known() {
            Some(CoordinatorRole::Leader) => output.bold(role),
            Some(CoordinatorRole::Unreachable) => output.bad(role),
            _ => role.to_owned(),
        };
        let lack = coordinator.lack.as_ref();
        let lack = lack.map(|lack| output.bad(&format!(", appends nothing to its log, {lack}"))).unwrap_or_default();
        lines.push(format!("            {}  {}  {role}{behind}{lack}", coordinator.id, coordinator.address));
    }
    lines.push(format!("nodes       {}", nodes_line(status, output)));
    if let Some(names) = names_line(&nodes) {
        lines.push(format!("            {names}"));
    }
    lines.extend(relays_text(&nodes).map(|text| format!("            {text}")));
    if let Some(names) = names_line(&participants) {
        lines.push(format!("            participants: {names}"));
    }
    lines.push(format!("partitions  {}", partitions_line(status, &nodes, output)));
    lines.push(format!("table       version {}", status.table_version));
    lines.push(format!("moves       {}", moves_line(status)));
    for reason in status.reasons.iter().take(REASONS_MAX) {
        let text = reasons::sentence_about(reason, reasons::age(reason));
        lines.extend(reasons::lines("waiting     ", reason, &text, output));
    }
    if status.reasons.len() > REASONS_MAX {
        let rest = status.reasons.len() - REASONS_MAX;
        lines.push(format!("            … and {}; `archon status -o json` has all", count_text(rest, "more", "more")));
    }
    lines.push(format!("next        {}", next_step(status, &nodes, &participants)));
    lines.join("\n")
}

/// Describes the leader and the number of coordinators.
pub(super) fn quorum(status: &Status, output: &Output) -> String {
    let reachable =
        status.coordinators.iter().filter(|coordinator| coordinator.role != CoordinatorRole::Unreachable).count();
    let all = status.coordinators.len();
    let leader = match status.leader_id {
        Some(id) => format!("coordinator {id} leads in term {}", status.term),
        None => output.bad("no leader"),
    };
    let by = match status.transport.known() {
        Some(TransportKind::Tls) => ", by TLS".to_owned(),
        Some(TransportKind::Insecure) => output.bad(", in plaintext beyond this machine"),
        Some(TransportKind::Loopback) | None => String::new(),
    };
    format!("{leader}, {reachable} of {all} reachable{by}")
}

/// Describes the number of nodes that are alive, and of those that are not, or are missing.
pub(super) fn nodes_line(status: &Status, output: &Output) -> String {
    let failed = match status.nodes_failed {
        0 => String::new(),
        failed => output.bad(&format!(", {failed} failed")),
    };
    let unreached = match status.nodes_unreached {
        0 => String::new(),
        unreached => output.bad(&format!(", {unreached} of them unreached")),
    };
    let wanted = if status.nodes_alive < status.nodes_min {
        output.bad(&format!(", at least {} needed", status.nodes_min))
    } else {
        String::new()
    };
    format!("{} alive{unreached}{failed}{wanted}", status.nodes_alive)
}

/// Describes the number of nodes that relay heartbeats, if any, and the nodes that send theirs directly although others
/// do not.
fn relays_text(nodes: &[&Node]) -> Option<String> {
    let relays: BTreeSet<&str> = nodes.iter().filter_map(|node| node.via.as_deref()).collect();
    if relays.is_empty() {
        return None;
    }
    let heard = nodes.iter().filter(|node| node.status == NodeStatus::Alive && node.silent_for_ms.is_some());
    let straight = heard.filter(|node| node.via.is_none() && !relays.contains(node.name.as_str())).count();
    let by = format!("heartbeats through {}", count_text(relays.len(), "relay", "relays"));
    Some(if straight == 0 { by } else { format!("{by}, directly from {}", count_text(straight, "node", "nodes")) })
}

fn names_line(nodes: &[&Node]) -> Option<String> {
    if nodes.is_empty() {
        return None;
    }
    let mut parts: Vec<String> = nodes
        .iter()
        .take(NODES_MAX)
        .map(|node| format!("{} {}{}", node.name, node.copies_held, in_brackets(node)))
        .collect();
    if nodes.len() > NODES_MAX {
        parts.push(format!("… and {} more", nodes.len() - NODES_MAX));
    }
    Some(parts.join(" · "))
}

fn in_brackets(node: &Node) -> String {
    not_serving(node).map_or_else(String::new, |why| format!(" ({why})"))
}

/// Returns the reason for which a member takes no part in the spread of replicas or leases, or serves none.
pub(super) fn not_serving(node: &Node) -> Option<&'static str> {
    match (node.status.known(), node.goal.known(), node.copies_held) {
        (Some(NodeStatus::Lost), _, _) => Some("lost"),
        (Some(NodeStatus::Failed), Some(NodeGoal::Drain), 0) => Some("drained, stopped"),
        (Some(NodeStatus::Failed), Some(NodeGoal::Maintain), _) => Some("in maintenance, not alive"),
        (Some(NodeStatus::Failed), _, _) if node.stopped => Some("stopped"),
        (Some(NodeStatus::Failed), _, _) => Some("failed"),
        (_, Some(NodeGoal::Drain), 0) => Some("drained"),
        (_, Some(NodeGoal::Drain), _) => Some("being drained"),
        (_, Some(NodeGoal::Cordon), _) => Some("cordoned"),
        (_, Some(NodeGoal::Maintain), _) => Some("in maintenance"),
        _ => None,
    }
}

/// Describes how many partitions are served, how many are under-replicated, and how evenly they are spread over the
/// nodes.
pub(super) fn partitions_line(status: &Status, nodes: &[&Node], output: &Output) -> String {
    let online = format!("{} of {} online", status.partitions_online, status.partitions_total);
    let online =
        if status.partitions_online == status.partitions_total { output.good(&online) } else { output.bad(&online) };
    let online = match status.partitions_under_replicated {
        0 => online,
        short => {
            let short = output.bad(&format!("{short} under-replicated"));
            format!("{online}, {short}")
        }
    };
    let online = match status.copies_condemned {
        0 => online,
        left => {
            format!("{online}, {} of deleted partitions to delete", count_text(left as usize, "replica", "replicas"))
        }
    };
    match skew(nodes) {
        Some((least, most)) => format!("{online}, between {least} and {most} replicas per serving node"),
        None => online,
    }
}

/// Returns the lowest and the highest number of replicas on a node that is alive and takes its share: a plan moves
/// nothing to or from others. Participants are not counted: lease tables balance themselves.
fn skew(nodes: &[&Node]) -> Option<(u32, u32)> {
    let serves = |node: &&&Node| node.status == NodeStatus::Alive && node.goal == NodeGoal::Serve;
    let held = || nodes.iter().filter(serves).map(|node| node.copies_held);
    Some((held().min()?, held().max()?))
}

fn moves_line(status: &Status) -> String {
    let moves = match status.moves_running {
        0 => "none running".to_owned(),
        running => format!("{running} running"),
    };
    match status.reshapings_running {
        0 => moves,
        running => {
            format!("{moves}; {} under way", count_text(running as usize, "split or merge", "splits and merges"))
        }
    }
}

mod next;
#[cfg(test)]
mod tests;
mod without_majority;

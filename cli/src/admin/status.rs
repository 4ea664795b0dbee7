//! `archon status`: on one screen, how the cluster is and what it waits for.

use super::{short_time, since, watch};
use crate::args::WatchArgs;
use crate::exit::{Exit, Failure};
use crate::output::{Output, count_text};
use crate::view::{Node, Status};
use archon_client::Admin;

/// Most reasons that are printed; the rest is counted.
const REASONS_MAX: usize = 8;
/// Most nodes that are printed by name; the rest is counted.
const NODES_MAX: usize = 12;

/// Asks and prints.
pub(crate) async fn run(args: &WatchArgs, admin: &Admin, output: &Output) -> Result<Exit, Failure> {
    watch::show(args.watch, output, async |output: &Output| {
        let status = admin.status().await?;
        if output.is_json() {
            return output.json_text(&status);
        }
        // A status without the list of nodes is better than none: the list may fail while the leader changes.
        let nodes = admin.list_nodes().await.unwrap_or_default();
        Ok(screen(&status, &nodes, output))
    })
    .await
}

fn screen(status: &Status, nodes: &[Node], output: &Output) -> String {
    let mut lines =
        vec![format!("cluster     {}", status.cluster_id), format!("quorum      {}", quorum(status, output))];
    for coordinator in &status.coordinators {
        let behind = match coordinator.entries_behind {
            Some(0) | None => String::new(),
            Some(entries) => format!(", {} behind", count_text(entries as usize, "entry", "entries")),
        };
        let role = match coordinator.role.as_str() {
            "leader" => output.bold("leader"),
            "unreachable" => output.bad("unreachable"),
            other => other.to_owned(),
        };
        let lack = match coordinator.lack {
            Some(_) => output.bad(", takes nothing new"),
            None => String::new(),
        };
        lines.push(format!("            {}  {}  {role}{behind}{lack}", coordinator.id, coordinator.address));
    }
    lines.push(format!("nodes       {}", nodes_line(status, output)));
    if let Some(names) = names_line(nodes) {
        lines.push(format!("            {names}"));
    }
    lines.push(format!("partitions  {}", partitions_line(status, nodes, output)));
    lines.push(format!("table       version {}", status.table_version));
    lines.push(format!("moves       {}", moves_line(status)));
    for reason in status.reasons.iter().take(REASONS_MAX) {
        let time = since(reason.since_ms).map_or_else(String::new, |time| format!(", for {}", short_time(time)));
        lines.push(format!("waiting     {}: {} ({}{time})", output.bad(&reason.code), reason.message, reason.subject));
        if !reason.remedy.is_empty() {
            lines.push(format!("            {}", reason.remedy));
        }
    }
    if status.reasons.len() > REASONS_MAX {
        let rest = status.reasons.len() - REASONS_MAX;
        lines.push(format!("            … and {}; `archon status -o json` has all", count_text(rest, "more", "more")));
    }
    lines.push(format!("next        {}", next_step(status, nodes)));
    lines.join("\n")
}

fn quorum(status: &Status, output: &Output) -> String {
    let reachable = status.coordinators.iter().filter(|coordinator| coordinator.role != "unreachable").count();
    let all = status.coordinators.len();
    let leader = match status.leader {
        Some(id) => format!("coordinator {id} leads in term {}", status.term),
        None => output.bad("no leader"),
    };
    format!("{leader}, {reachable} of {all} reachable")
}

fn nodes_line(status: &Status, output: &Output) -> String {
    let failed = match status.nodes_failed {
        0 => String::new(),
        failed => output.bad(&format!(", {failed} failed")),
    };
    let wanted = if status.nodes_live < status.nodes_min {
        output.bad(&format!(", at least {} needed", status.nodes_min))
    } else {
        String::new()
    };
    format!("{} live{failed}{wanted}", status.nodes_live)
}

fn names_line(nodes: &[Node]) -> Option<String> {
    if nodes.is_empty() {
        return None;
    }
    let mut parts: Vec<String> =
        nodes.iter().take(NODES_MAX).map(|node| format!("{} {}{}", node.name, node.partitions, aside(node))).collect();
    if nodes.len() > NODES_MAX {
        parts.push(format!("… and {} more", nodes.len() - NODES_MAX));
    }
    Some(parts.join(" · "))
}

/// Why a node takes no part in the spread of copies, or serves none, if so.
fn aside(node: &Node) -> &'static str {
    match (node.status.as_str(), node.goal.as_str(), node.partitions) {
        ("Lost", _, _) => " (lost)",
        ("Failed", "Drain", 0) => " (drained, stopped)",
        ("Failed", _, _) => " (failed)",
        (_, "Drain", 0) => " (drained)",
        (_, "Drain", _) => " (being drained)",
        (_, "Cordon", _) => " (cordoned)",
        _ => "",
    }
}

/// Nodes that were emptied and are still known, in a state.
fn drained<'a>(nodes: &'a [Node], status: &'a str) -> impl Iterator<Item = &'a Node> {
    nodes.iter().filter(move |node| node.goal == "Drain" && node.partitions == 0 && node.status == status)
}

fn partitions_line(status: &Status, nodes: &[Node], output: &Output) -> String {
    let online = format!("{} of {} online", status.partitions_online, status.partitions);
    let online = if status.partitions_online == status.partitions { output.good(&online) } else { output.bad(&online) };
    let online = match status.partitions_under_replicated {
        0 => online,
        short => {
            let short = output.bad(&format!("{short} with fewer copies than wanted"));
            format!("{online}, {short}")
        }
    };
    let online = match status.copies_condemned {
        0 => online,
        left => format!("{online}, {} of dropped tables to be deleted", count_text(left as usize, "copy", "copies")),
    };
    match skew(nodes) {
        Some((least, most)) => format!("{online}, between {least} and {most} per live node"),
        None => online,
    }
}

/// The fewest and the most partitions on a live node that takes its share: a plan moves nothing to or from others.
fn skew(nodes: &[Node]) -> Option<(u32, u32)> {
    let serves = |node: &&Node| node.status == "Live" && node.goal == "Serve";
    let live = || nodes.iter().filter(serves).map(|node| node.partitions);
    Some((live().min()?, live().max()?))
}

fn moves_line(status: &Status) -> String {
    match status.migrations_running {
        0 => "none running".to_owned(),
        running => format!("{running} running"),
    }
}

fn next_step(status: &Status, nodes: &[Node]) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Format;
    use archon_client::{CoordinatorStatus as Coordinator, Reason};

    fn output() -> Output {
        Output::plain(Format::Table)
    }

    fn status() -> Status {
        let coordinator = |id: u64, role: &str, entries_behind| Coordinator {
            id,
            address: format!("127.0.0.1:710{id}"),
            role: role.into(),
            entries_behind,
            lack: None,
        };
        Status {
            cluster_id: "6f1e".into(),
            leader: Some(2),
            term: 4,
            coordinators: vec![
                coordinator(1, "follower", Some(3)),
                coordinator(2, "leader", Some(0)),
                coordinator(3, "unreachable", None),
            ],
            table_version: 41,
            nodes_live: 2,
            nodes_failed: 0,
            nodes_min: 2,
            partitions: 9,
            partitions_online: 9,
            partitions_under_replicated: 0,
            copies_condemned: 0,
            migrations_running: 0,
            reasons: vec![],
        }
    }

    fn node(name: &str, partitions: u32) -> Node {
        Node {
            id: 1,
            name: name.into(),
            address: "127.0.0.1:1".into(),
            status: "Live".into(),
            goal: "Serve".into(),
            incarnation: 1,
            partitions,
            leaders: partitions,
            zone: None,
            weight: 100,
            bytes_stored: Some(0),
            keys: Some(0),
            operations_per_second: Some(0),
            silent_ms: Some(0),
            disk_full: false,
            partitions_max: None,
            since_ms: 0,
        }
    }

    #[test]
    fn a_healthy_cluster_fits_on_one_screen() {
        let text = screen(&status(), &[node("athens", 9), node("ephesus", 0)], &output());
        assert_eq!(
            text,
            "\
cluster     6f1e
quorum      coordinator 2 leads in term 4, 2 of 3 reachable
            1  127.0.0.1:7101  follower, 3 entries behind
            2  127.0.0.1:7102  leader
            3  127.0.0.1:7103  unreachable
nodes       2 live
            athens 9 · ephesus 0
partitions  9 of 9 online, between 0 and 9 per live node
table       version 41
moves       none running
next        start coordinator 3 again with its data directory"
        );
        let mut whole = status();
        whole.coordinators.pop();
        let text = screen(&whole, &[node("athens", 9), node("ephesus", 0)], &output());
        assert!(text.ends_with("next        spread the partitions: `archon rebalance plan`"), "{text}");
    }

    #[test]
    fn a_drained_node_is_called_so_and_no_empty_plan_is_advised() {
        let mut whole = status();
        whole.coordinators.pop();
        let mut empty = Node { goal: "Drain".into(), ..node("ephesus", 0) };
        let text = screen(&whole, &[node("athens", 9), empty.clone()], &output());
        assert!(text.contains("athens 9 · ephesus 0 (drained)"), "{text}");
        assert!(text.contains("between 9 and 9 per live node"), "{text}");
        assert!(text.ends_with("ephesus is drained: stop it, then `archon node remove ephesus`"), "{text}");
        empty.status = "Failed".into();
        whole.nodes_failed = 1;
        let text = screen(&whole, &[node("athens", 9), empty.clone()], &output());
        assert!(text.ends_with("was drained and has stopped; forget it: `archon node remove ephesus`"), "{text}");
        let busy = Node { partitions: 3, status: "Live".into(), ..empty };
        whole.nodes_failed = 0;
        let text = screen(&whole, &[node("athens", 9), busy], &output());
        assert!(text.contains("ephesus 3 (being drained)"), "{text}");
        assert!(text.ends_with("watch it: `archon node describe ephesus`"), "{text}");
    }

    #[test]
    fn failed_nodes_are_marked_and_to_be_started_before_others_in_their_place() {
        let mut fewer = Status { nodes_live: 1, nodes_min: 3, nodes_failed: 2, ..status() };
        let away = |name: &str, status: &str| Node { status: status.into(), ..node(name, 3) };
        let nodes = [away("athens", "Failed"), away("byzantium", "Failed"), node("cyrene", 3), away("delphi", "Lost")];
        let text = screen(&fewer, &nodes, &output());
        assert!(text.contains("athens 3 (failed) · byzantium 3 (failed) · cyrene 3 · delphi 3 (lost)"), "{text}");
        let step = "next        start athens, byzantium again, each with its data directory, or start others: ";
        assert!(text.contains(step), "{text}");
        fewer = Status { nodes_live: 3, nodes_failed: 1, ..fewer };
        let text = screen(&fewer, &nodes[1..], &output());
        assert!(text.ends_with("next        start byzantium again with its data directory"), "{text}");
        let unknown = screen(&fewer, &[], &output());
        assert!(unknown.contains("see which node failed: `archon node list`"), "{unknown}");
    }

    #[test]
    fn lost_data_comes_before_a_failed_node_that_has_nothing_to_do_with_it() {
        let reason = |code: &str, remedy: &str| Reason {
            code: code.into(),
            subject: "s".into(),
            message: "m".into(),
            since_ms: 0,
            remedy: remedy.into(),
        };
        let reasons = vec![
            reason("NodeFailed", "start ephesus again with its data directory"),
            reason("DataLost", "see what is left: `archon partition describe 3`"),
        ];
        let empty = Node { status: "Failed".into(), ..node("ephesus", 0) };
        let lost = Status { nodes_failed: 1, partitions_online: 8, reasons, ..status() };
        let text = screen(&lost, &[node("athens", 8), empty], &output());
        assert!(text.ends_with("next        see what is left: `archon partition describe 3`"), "{text}");
    }

    #[test]
    fn what_it_waits_for_is_said_and_bounded() {
        let reason = Reason {
            code: "NotEnoughNodes".into(),
            subject: "table default".into(),
            message: "have 1, need 3".into(),
            since_ms: 0,
            remedy: "start 2 more nodes".into(),
        };
        let status =
            Status { nodes_live: 1, nodes_min: 3, partitions_online: 0, reasons: vec![reason; 20], ..status() };
        let text = screen(&status, &[], &output());
        assert!(text.contains("waiting     NotEnoughNodes: have 1, need 3 (table default)"), "{text}");
        assert!(text.contains("… and 12 more"), "{text}");
        assert!(text.contains("1 live, at least 3 needed"), "{text}");
        assert!(text.ends_with("start more nodes: `archon node --help`"), "{text}");
        assert!(text.lines().count() <= 40);
    }

    #[test]
    fn a_full_disk_left_nothing_to_do() {
        let mut whole = status();
        whole.coordinators.pop();
        let reason = Reason {
            code: "DiskFull".into(),
            subject: "node athens".into(),
            message: "athens takes no writes".into(),
            since_ms: 0,
            remedy: "free disk space on athens".into(),
        };
        let text = screen(&Status { reasons: vec![reason], ..whole }, &[node("athens", 9)], &output());
        assert!(text.contains("waiting     DiskFull: athens takes no writes (node athens)"), "{text}");
        assert!(text.ends_with("next        free disk space on athens"), "{text}");
    }

    #[test]
    fn full_nodes_and_leaders_that_hear_too_few_left_nothing_to_do() {
        let mut whole = status();
        whole.coordinators.pop();
        for code in ["NoRoom", "LeaderHearsTooFew"] {
            let reason = Reason {
                code: code.into(),
                subject: "copies".into(),
                message: "why".into(),
                since_ms: 0,
                remedy: "what to do".into(),
            };
            let waits = Status { reasons: vec![reason], ..whole.clone() };
            let text = screen(&waits, &[node("athens", 9)], &output());
            assert!(text.ends_with("next        what to do"), "{text}");
        }
    }

    #[test]
    fn missing_copies_are_counted_and_the_next_step_is_theirs() {
        let mut whole = status();
        whole.coordinators.pop();
        let short = Status { partitions_under_replicated: 4, ..whole };
        let text = screen(&short, &[node("athens", 9), node("ephesus", 9)], &output());
        assert!(text.contains("9 of 9 online, 4 with fewer copies than wanted, between 9 and 9"), "{text}");
        assert!(text.ends_with("copies are being made; see `archon partition list`"), "{text}");
        let reason = Reason {
            code: "UnderReplicated".into(),
            subject: "copies".into(),
            message: "4 of 9".into(),
            since_ms: 0,
            remedy: "add a node, or uncordon one".into(),
        };
        let text = screen(&Status { reasons: vec![reason], ..short }, &[], &output());
        assert!(text.ends_with("next        add a node, or uncordon one"), "{text}");
    }

    #[test]
    fn partitions_that_wait_for_something_make_it_the_next_step() {
        let reason = Reason {
            code: "NotEnoughNodes".into(),
            subject: "table orders".into(),
            message: "3 of 7 nodes have registered".into(),
            since_ms: 1,
            remedy: "start 4 more nodes".into(),
        };
        let mut whole = status();
        whole.coordinators.pop();
        let waiting = Status { partitions_online: 8, reasons: vec![reason], ..whole.clone() };
        let text = screen(&waiting, &[], &output());
        assert!(text.ends_with("next        start 4 more nodes"), "{text}");
        assert!(text.contains("(table orders, for "), "{text}");
        let unexplained = Status { partitions_online: 8, ..whole };
        assert!(screen(&unexplained, &[], &output()).ends_with("`archon partition list`"));
    }
}

//! State as people read it: reasons and events, named by code and subject.

use archon_coordinator_core::{Actor, ClusterState, Event, EventKind, Explainer, Remembered, Why, Withheld, counts};
use archon_proto::v1;
use archon_types::{DEFAULT_TABLE, Millis, NoRoom, NodeGoal, NodeId, NodeStatus, PartitionId, PartitionStatus};
use std::collections::BTreeSet;

/// Most nodes that the reason about condemned copies names.
const CONDEMNED_NAMED_MAX: usize = 5;

/// Why things are as they are: failed nodes first, then nodes that refuse writes, then partitions that are not served,
/// then moves that wait.
pub(crate) fn reasons(
    state: &ClusterState,
    remembered: &Remembered,
    full: &[(NodeId, NoRoom)],
    most: usize,
) -> Vec<v1::Reason> {
    let explainer = Explainer::new(state, remembered);
    let mut reasons = Vec::new();
    for node in state.nodes.values().map(|row| &row.node).filter(|node| node.status == NodeStatus::Failed) {
        if reasons.len() >= most {
            return reasons;
        }
        let drained = node.goal == NodeGoal::Drain && state.partitions.count_on(node.id) == 0;
        let (message, remedy) = match drained {
            true => (
                format!("{} was drained and has stopped", node.name),
                format!("forget it: `archon node remove {}`", node.name),
            ),
            false => (
                format!("{} at {} was silent for the failure time-out, or stopped", node.name, node.address),
                format!("start {} again with its data directory", node.name),
            ),
        };
        let (code, subject) = ("NodeFailed".to_owned(), format!("node {}", node.name));
        reasons.push(v1::Reason { code, subject, message, since_ms: node.since.get(), remedy });
    }
    let full = full.iter().filter_map(|(node, lack)| disk_full(state, *node, *lack));
    reasons.extend(full.take(most - reasons.len()));
    if reasons.len() >= most {
        return reasons;
    }
    if let Some(waiting) = waits_for_nodes(state, &explainer) {
        reasons.push(waiting);
    }
    let stuck: BTreeSet<PartitionId> = explainer.stuck().collect();
    let restless = state.partitions.iter().filter(|row| {
        row.status != PartitionStatus::Unassigned
            && (row.status != PartitionStatus::Online
                || state.running_migration(row.id).is_some()
                || stuck.contains(&row.id))
    });
    for row in restless {
        // That copies are missing, and why, is said once, of all partitions.
        let of_copies =
            |why: &Why| matches!(why, Why::UnderReplicated { .. } | Why::NoRoom { .. } | Why::RepairWithheld { .. });
        let whys = explainer.explain(row.id).unwrap_or_default();
        for why in whys.into_iter().filter(|why| !of_copies(why)) {
            if reasons.len() >= most {
                return reasons;
            }
            reasons.push(reason(state, row.id, &why));
        }
    }
    let left = most.saturating_sub(reasons.len());
    if left > 0 {
        reasons.extend(misses_copies(state, &explainer).into_iter().take(left));
    }
    if reasons.len() < most {
        reasons.extend(condemned(state));
    }
    reasons
}

/// One reason stands for all copies of dropped tables that are not deleted yet.
fn condemned(state: &ClusterState) -> Option<v1::Reason> {
    let copies = state.condemned.len();
    let on_node = |(node, copies): (NodeId, usize)| {
        let away = if state.is_live(node) { "" } else { ", which is not alive" };
        format!("{copies} on {}{away}", state.node_name(node))
    };
    let named = state.condemned.nodes().take(CONDEMNED_NAMED_MAX).map(on_node).collect::<Vec<_>>();
    let nodes = state.condemned.nodes().count();
    let others = match nodes - named.len() {
        0 => String::new(),
        others => format!("; the others on {others} more nodes"),
    };
    let away = state.condemned.nodes().any(|(node, _)| !state.is_live(node));
    let remedy = match away {
        true => "start the nodes that are not alive; of one that will never return: `archon node remove NAME`",
        false => "",
    };
    (copies > 0).then(|| v1::Reason {
        code: "CopiesCondemned".to_owned(),
        subject: "copies".to_owned(),
        message: format!("{copies} copies of dropped tables are not deleted yet: {}{others}", named.join("; ")),
        since_ms: 0,
        remedy: remedy.to_owned(),
    })
}

/// A live node that takes no writes for want of room: what it leads is read-only.
fn disk_full(state: &ClusterState, node: NodeId, lack: NoRoom) -> Option<v1::Reason> {
    let row = state.node(node).filter(|row| row.node.status == NodeStatus::Live)?;
    let name = &row.node.name;
    Some(v1::Reason {
        code: "DiskFull".to_owned(),
        subject: format!("node {name}"),
        message: format!("{name} takes no writes (`ReadOnly`), its disk is full: {lack}"),
        since_ms: 0,
        remedy: format!("free disk space on {name}; writes resume by themselves, reads go on meanwhile"),
    })
}

/// One reason stands for all partitions that have fewer copies than are wanted, one for those for which there is no room,
/// one for those of which the copies of failed nodes are not replaced.
fn misses_copies(state: &ClusterState, explainer: &Explainer<'_>) -> Vec<v1::Reason> {
    let (counts, shortage) = (counts(state), explainer.shortage());
    let of_copies = |code: &str, message: String, remedy: String| v1::Reason {
        code: code.to_owned(),
        subject: "copies".to_owned(),
        message,
        since_ms: 0,
        remedy,
    };
    let mut reasons = Vec::new();
    if shortage.no_room > 0 {
        let message =
            format!("{} partitions want a copy more, and the nodes that could take it are full", shortage.no_room);
        reasons.push(of_copies("NoRoom", message, room_remedy(false)));
    }
    if let Some((partitions, Withheld { failed, of })) = shortage.withheld {
        let message = format!(
            "{partitions} partitions want a copy in place of one on a failed node, and none is made: {failed} of {of} nodes \
             are failed, more than a third"
        );
        reasons.push(of_copies("RepairWithheld", message, withheld_remedy()));
    }
    if counts.partitions_under_replicated == 0 {
        return reasons;
    }
    let takers = state.nodes.values().filter(|row| row.takes_placements()).count();
    let wanted = state.tables.values().map(|table| usize::from(table.replication)).max().unwrap_or(1);
    let remedy = match (counts.nodes_failed, wanted.saturating_sub(takers)) {
        (_, 0) if shortage.withheld.is_some() => "start the failed nodes again".to_owned(),
        (0, 0) if shortage.no_node > 0 => "add a node, or uncordon one".to_owned(),
        (0, 0) => String::new(),
        (0, 1) => "add a node, or uncordon one".to_owned(),
        (0, missing) => format!("add {missing} nodes"),
        (_, 0) if shortage.no_room > 0 => "start the failed nodes again, or make room elsewhere".to_owned(),
        (_, 0) => {
            let minutes = state.settings.replace_after_ms as f64 / 60_000.0;
            format!("start the failed nodes again; copies are made elsewhere after {minutes:.1} minutes without them")
        }
        (_, _) => "start the failed nodes again, or add others".to_owned(),
    };
    let (short, all) = (counts.partitions_under_replicated, counts.partitions);
    let message = format!("{short} of {all} partitions have fewer copies that count than are wanted");
    reasons.push(of_copies("UnderReplicated", message, remedy));
    reasons
}

/// What makes room for copies.
fn room_remedy(plan: bool) -> String {
    let more = "add a node, or start nodes with a larger --partitions-max";
    if plan { format!("see what makes room: `archon rebalance plan`; or {more}") } else { more.to_owned() }
}

fn withheld_remedy() -> String {
    "start the failed nodes again; of one that will never return, say so: `archon node lost NAME`".to_owned()
}

/// One reason stands for all partitions of a table that were never assigned.
fn waits_for_nodes(state: &ClusterState, explainer: &Explainer<'_>) -> Option<v1::Reason> {
    let row = state.partitions.unassigned().next()?;
    let why = explainer.explain(row.id)?.into_iter().next()?;
    let table = state.tables.get(&row.id.table)?;
    let made = state.events.iter().rev().find(|event| match &event.what {
        EventKind::TableCreated { table: id, .. } => *id == table.id,
        EventKind::DataLossAccepted { partition, .. } => *partition == row.id,
        _ => false,
    });
    let since_ms = made.map_or(0, |event| event.at.get());
    // After an accepted loss it is a single partition that waits.
    let waits = |row: &&archon_types::Partition| row.status == PartitionStatus::Unassigned;
    let whole = state.partitions.of_table(table.id).filter(waits).count() == usize::from(table.partitions);
    let single = reason(state, row.id, &why);
    let subject = if whole { format!("table {}", table.name) } else { single.subject.clone() };
    Some(v1::Reason { subject, since_ms, ..single })
}

/// The partition as the command line takes it: `7`, or `7 --table orders`.
fn operand(state: &ClusterState, partition: PartitionId) -> String {
    match state.tables.get(&partition.table) {
        Some(table) if table.name != DEFAULT_TABLE => format!("{} --table {}", partition.index, table.name),
        _ => partition.index.to_string(),
    }
}

/// `partition orders/7`.
pub(super) fn label(state: &ClusterState, partition: PartitionId) -> String {
    format!("partition {}", state.partition_name(partition))
}

pub(super) fn reason(state: &ClusterState, partition: PartitionId, why: &Why) -> v1::Reason {
    let name = |node| state.node_name(node);
    let (code, message, since, remedy) = match why {
        Why::NotEnoughNodes { have, need } => (
            "NotEnoughNodes",
            format!("{have} of {need} nodes have registered"),
            Millis::ZERO,
            format!("start {} more nodes", need.saturating_sub(*have)),
        ),
        Why::AboutToBeAssigned => {
            ("AboutToBeAssigned", "its nodes are just being chosen".into(), Millis::ZERO, String::new())
        }
        Why::NoRoom { full, plan } => (
            "NoRoom",
            format!("{full} nodes that could take its copies are at their limits (--partitions-max)"),
            Millis::ZERO,
            room_remedy(*plan),
        ),
        Why::LeaderHearsTooFew { node, hears, need } => (
            "LeaderHearsTooFew",
            format!(
                "{} leads it and takes no writes: it hears {hears} of the {need} copies that must have each write, its own \
                 included",
                name(*node)
            ),
            Millis::ZERO,
            format!("see whether {} and the nodes of the other copies reach each other", name(*node)),
        ),
        Why::RepairWithheld { failed, of } => (
            "RepairWithheld",
            format!("{failed} of {of} nodes are failed, more than a third: no copy is made in place of theirs"),
            Millis::ZERO,
            withheld_remedy(),
        ),
        Why::TakingOver { node } => ("TakingOver", format!("{} takes over", name(*node)), Millis::ZERO, String::new()),
        Why::EpochSurpassed { known } => (
            "EpochSurpassed",
            format!("a copy knew epoch {known}, which nobody had granted; its leader begins above it"),
            Millis::ZERO,
            "look for a node that runs from an old or copied data directory, or coordinators that were set back".into(),
        ),
        Why::WaitingForLease { node, .. } => {
            ("WaitingForLease", format!("the lease of {} may still run", name(*node)), Millis::ZERO, String::new())
        }
        Why::NoLiveReplica { node, since, .. } => (
            "NoLiveReplica",
            format!("a copy that counts is on {}, which is not alive", name(*node)),
            *since,
            format!("start {} again with its data directory", name(*node)),
        ),
        Why::HolderRegistering { node } => {
            ("HolderRegistering", format!("{} is just coming back", name(*node)), Millis::ZERO, String::new())
        }
        Why::AboutToBeElected => {
            ("AboutToBeElected", "its leader is just being chosen".into(), Millis::ZERO, String::new())
        }
        Why::DataLost => (
            "DataLost",
            "no copy that counts is left".into(),
            Millis::ZERO,
            format!("see what is left: `archon partition describe {}`", operand(state, partition)),
        ),
        Why::LostCopyKept { node, alive, need } => (
            "LostCopyKept",
            format!(
                "the copy on {} was lost or damaged, and is kept as it is: {alive} of {need} others count on live nodes",
                name(*node)
            ),
            Millis::ZERO,
            "start the nodes that hold the others; then it is replaced".into(),
        ),
        Why::UnderReplicated { have, want } => (
            "UnderReplicated",
            format!("{have} of {want} copies count"),
            Millis::ZERO,
            "add nodes or start failed ones".into(),
        ),
        Why::MoveWaits { migration, why } => {
            ("MoveWaits", format!("move {migration} waits: {why}"), Millis::ZERO, String::new())
        }
    };
    v1::Reason { code: code.to_owned(), subject: label(state, partition), message, since_ms: since.get(), remedy }
}

/// An event as people read it.
pub(crate) fn event(state: &ClusterState, event: &Event) -> v1::Event {
    let who = match &event.who {
        Actor::Coordinator(id) => format!("coordinator {id}"),
        Actor::Node(id) => state.node_name(*id),
        Actor::Newcomer(name) | Actor::Admin(name) => name.clone(),
    };
    let node = |node, name: &str| format!("node {node} {name}");
    let (what, subject) = match &event.what {
        EventKind::Bootstrapped => ("bootstrapped".to_owned(), "cluster".to_owned()),
        EventKind::NodeRegistered { node: id, name, incarnation } => {
            (format!("registered in incarnation {incarnation}"), node(id, name))
        }
        EventKind::NodeReturned { node: id, name, incarnation } => {
            (format!("returned in incarnation {incarnation}"), node(id, name))
        }
        EventKind::NodeFailed { node: id, incarnation, leaderships, handed_on } => (
            format!("failed in incarnation {incarnation}; {leaderships} leaderships ended, {handed_on} handed on"),
            node(id, &state.node_name(*id)),
        ),
        EventKind::NodeLost { node: id, by: _ } => {
            ("lost its data: another data directory took over its name".to_owned(), node(id, &state.node_name(*id)))
        }
        EventKind::NodeDeclaredLost { node: id, placements, last_copies } => (
            format!(
                "declared lost; {placements} copies count no more, {last_copies} of them the last of their partition"
            ),
            node(id, &state.node_name(*id)),
        ),
        EventKind::NodeRemoved { node: id, name, placements: 0 } => ("removed".to_owned(), node(id, name)),
        EventKind::NodeRemoved { node: id, name, placements } => {
            (format!("removed, with {placements} copies that did not count"), node(id, name))
        }
        EventKind::NodeDraining { node: id, placements } => {
            (format!("is being drained of {placements} copies"), node(id, &state.node_name(*id)))
        }
        EventKind::NodeDrained { node: id } => {
            ("drained: it holds nothing any more".to_owned(), node(id, &state.node_name(*id)))
        }
        EventKind::CopyDamaged { partition, placement, node, why } => (
            format!("placement {placement} on {} is damaged and counts no more: {why}", state.node_name(*node)),
            label(state, *partition),
        ),
        EventKind::DataDisputed { partition, placement, node, epoch, leader, leader_node, commit, agreed } => {
            let on = leader_node.map_or_else(String::new, |id| format!(" on {}", state.node_name(id)));
            let text = format!(
                "placement {placement} on {} knows entry {commit} as committed, which placement {leader}{on}, leader of \
                 epoch {epoch}, does not have (they agree up to {agreed} at most): one of them lost data; keep both \
                 data directories and compare them",
                state.node_name(*node)
            );
            (text, label(state, *partition))
        }
        EventKind::EpochSurpassed { partition, granted, known } => (
            format!(
                "a copy knew epoch {known}, though only {granted} had been granted; the next leader begins above it"
            ),
            label(state, *partition),
        ),
        EventKind::ReplicaLost { partition, placement, node, why } => (
            format!("placement {placement} on {} is lost and counts no more: {why}", state.node_name(*node)),
            label(state, *partition),
        ),
        EventKind::RepairStarted { partition, placement, node, why } => (
            format!("placement {placement} is being loaded on {}: {why}", state.node_name(*node)),
            label(state, *partition),
        ),
        EventKind::RepairDone { partition, placement, node } => {
            (format!("placement {placement} on {} counts now", state.node_name(*node)), label(state, *partition))
        }
        EventKind::CopyRetired { partition, placement, node, why } => (
            format!("placement {placement} on {} is to be deleted: {why}", state.node_name(*node)),
            label(state, *partition),
        ),
        EventKind::GoalChanged { node: id, goal } => {
            let goal = match goal {
                NodeGoal::Serve => "is to serve again",
                NodeGoal::Cordon => "cordoned: it gets nothing new",
                NodeGoal::Drain => "is to be emptied",
            };
            (goal.to_owned(), node(id, &state.node_name(*id)))
        }
        EventKind::TableCreated { name, .. } => ("created".to_owned(), format!("table {name}")),
        EventKind::TableDropped { table, name, partitions, copies, moves } => {
            let moves = if *moves > 0 { format!("; {moves} moves of them are given up") } else { String::new() };
            let what = format!("dropped with its {partitions} partitions; {copies} copies are to be deleted{moves}");
            (what, format!("table {name} (number {table})"))
        }
        EventKind::PlanStarted { moves } => (format!("started, {moves} moves"), "rebalance".to_owned()),
        EventKind::PlanCancelled { moves_left } => {
            (format!("cancelled, {moves_left} moves left"), "rebalance".to_owned())
        }
        EventKind::MigrationOver { migration, partition, outcome } => {
            (format!("move {migration} is over: {outcome}"), label(state, *partition))
        }
        EventKind::DataLossAccepted { partition, leader, retired } => {
            let then =
                leader.map_or_else(|| "it begins empty".to_owned(), |id| format!("{} leads", state.node_name(id)));
            (format!("data loss accepted; {then}, {retired} other copies retired"), label(state, *partition))
        }
    };
    v1::Event { index: event.index, at_ms: event.at.get(), who, what, subject }
}

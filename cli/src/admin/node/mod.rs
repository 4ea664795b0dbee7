//! `archon node …`: list and describe; the other verbs are in files of their own.

mod drain;
pub(super) mod operate;

use super::phrases::words;
use super::{alter, orders, short_time, until, watch};
use crate::admin::node::operate::check;
use crate::admin::partition::texts::{bar_text, timing_text};
use crate::args::{DescribeArgs, NodeVerb, WatchArgs};
use crate::connect::leading;
#[cfg(test)]
use crate::documents::contract;
use crate::documents::{HostedCopy, Node, NodeDescription};
use crate::exit::{Exit, Failure};
use crate::output::{Column, Output, bytes_text, count_text};
use archon_client::{Admin, Door, DoorState, NodeCheck, NodeGoal, NodeStatus, ReplicaState};
use std::collections::BTreeMap;
use std::time::Duration;

/// Documents of the verbs.
#[cfg(test)]
pub(crate) const DOCUMENTS: contract::Documents = &[
    ("node list", contract::list::<Node>),
    ("node describe", contract::one::<NodeDescription>),
    ("node set", contract::one::<Node>),
    ("node cordon", contract::one::<crate::documents::NodeChanged>),
    ("node uncordon", contract::one::<crate::documents::NodeChanged>),
    ("node drain", contract::one::<crate::documents::NodeChanged>),
    ("node undrain", contract::one::<crate::documents::NodeChanged>),
    ("node maintain", contract::one::<crate::documents::NodeOrdered>),
    ("node resume", contract::one::<crate::documents::NodeOrdered>),
    ("node bar", contract::one::<crate::documents::NodeOrdered>),
    ("node unbar", contract::one::<crate::documents::NodeOrdered>),
    ("node remove", contract::one::<crate::documents::NodeChanged>),
    ("node lost", contract::one::<crate::documents::NodeChanged>),
];

/// Runs a verb.
pub(crate) async fn run(verb: &NodeVerb, admin: &Admin, timeout: Duration, output: &Output) -> Result<Exit, Failure> {
    match verb {
        NodeVerb::Describe(args) => describe(args, admin, timeout, output).await,
        NodeVerb::List(args) => list(args, admin, output).await,
        NodeVerb::Cordon(args) => operate::cordon(args, admin, output).await,
        NodeVerb::Uncordon(args) => operate::uncordon(args, admin, output).await,
        NodeVerb::Set(args) => alter::node(args, admin, output).await,
        NodeVerb::Drain(args) => drain::drain(args, admin, output).await,
        NodeVerb::Undrain(args) => operate::undrain(args, admin, output).await,
        NodeVerb::Maintain(args) => orders::maintain(args, admin, output).await,
        NodeVerb::Resume(args) => orders::resume(args, admin, output).await,
        NodeVerb::Bar(args) => orders::bar_node(args, admin, output).await,
        NodeVerb::Unbar(args) => orders::unbar_node(args, admin, output).await,
        NodeVerb::Remove(args) => operate::remove(args, admin, output).await,
        NodeVerb::Lost(args) => operate::lost(args, admin, output).await,
    }
}

/// Lists the nodes.
pub(crate) async fn list(args: &WatchArgs, admin: &Admin, output: &Output) -> Result<Exit, Failure> {
    watch::show(args.watch, output, async |output: &Output| {
        let nodes = admin.list_nodes().await?;
        if output.is_json() { output.json_text(&nodes) } else { Ok(list_rows(&nodes, output)) }
    })
    .await
}

fn list_rows(nodes: &[Node], output: &Output) -> String {
    // Nodes relay heartbeats only in large clusters.
    let relayed = nodes.iter().any(|node| node.via.is_some());
    let mut columns = vec![
        Column::number("ID"),
        Column::text("NAME"),
        Column::text("ADDRESS"),
        Column::text("STATUS"),
        Column::text("GOAL"),
        Column::text("ZONE"),
        Column::text("LEASES OF"),
        Column::number("PARTITIONS"),
        Column::number("LEADERS"),
        Column::number("DATA"),
        Column::number("KEYS"),
        Column::number("OPS/S"),
        Column::number("HEARD"),
    ];
    let knocked = nodes.iter().any(|node| node.door.is_some());
    columns.extend(knocked.then(|| Column::text("DOOR")));
    columns.extend(relayed.then(|| Column::text("VIA")));
    let rows = nodes.iter().map(|node| {
        let mut row = vec![
            node.id.to_string(),
            node.name.clone(),
            node.address.clone(),
            status_text(node, output),
            node.goal.to_string(),
            node.zone.clone().unwrap_or_else(|| "-".to_owned()),
            if node.serves.is_empty() { "-".to_owned() } else { node.serves.join(",") },
            node.copies_held.to_string(),
            node.partitions_led.to_string(),
            data_text(node),
            number_text(node.keys_stored),
            number_text(node.operations_per_second),
            heard_text(node).unwrap_or_else(|| "-".to_owned()),
        ];
        row.extend(knocked.then(|| node.door.as_ref().map_or_else(|| "-".to_owned(), |door| door_text(door, output))));
        row.extend(relayed.then(|| node.via.clone().unwrap_or_else(|| "-".to_owned())));
        row
    });
    output.rows_text(&columns, rows.collect(), "no node has registered yet; start one: `archon node --help`")
}

/// Prints a complete description of one node.
pub(crate) async fn describe(
    args: &DescribeArgs,
    admin: &Admin,
    timeout: Duration,
    output: &Output,
) -> Result<Exit, Failure> {
    watch::show(args.watch.watch, output, async |output: &Output| {
        let description = look(&args.name, &leading(admin, timeout).await?).await?;
        if output.is_json() { output.json_text(&description) } else { Ok(text(&description, output)) }
    })
    .await
}

async fn look(name: &str, admin: &Admin) -> Result<NodeDescription, Failure> {
    let check = check(name, admin).await?;
    let mut copies = Vec::new();
    for table in admin.list_tables().await? {
        for partition in admin.table(&table.name).await? {
            let leads = partition.leader_id == Some(check.node.id);
            for copy in partition.copies.into_iter().filter(|copy| copy.node_id == check.node.id) {
                copies.push(HostedCopy {
                    table_id: table.id,
                    table: table.name.clone(),
                    partition: partition.id,
                    placement_id: copy.placement_id,
                    leads: leads && copy.state == ReplicaState::Live,
                    state: copy.state,
                });
            }
        }
    }
    Ok(NodeDescription { check, copies })
}

fn text(description: &NodeDescription, output: &Output) -> String {
    let NodeCheck { node, drain, remove, .. } = &description.check;
    let mut lines = Vec::new();
    lines.push(format!("name         {}", output.bold(&node.name)));
    lines.push(format!("id           {}", node.id));
    lines.push(format!("address      {}", node.address));
    let heard = heard_text(node).map_or_else(
        || ", no heartbeat at the present leader yet".to_owned(),
        |time| {
            let by = node.via.as_ref().map_or_else(String::new, |relay| format!(" by relay {relay}"));
            format!(", last heartbeat {time} ago{by}")
        },
    );
    lines.push(format!("status       {}{heard}", status_text(node, output)));
    if let Some(door) = &node.door {
        let by = if door.shut_to.is_empty() { String::new() } else { format!(", to {}", door.shut_to.join(" and ")) };
        lines.push(format!("door         {}{by}", door_text(door, output)));
    }
    lines.push(format!("goal         {}", goal_text(node)));
    for bar in &node.bars {
        lines.push(format!("barred from  {}", bar_text(&bar.subject.to_string(), bar)));
    }
    lines.push(format!("incarnation  {}", node.incarnation));
    lines.push(format!("zone         {}", node.zone.as_deref().unwrap_or("-")));
    lines.push(format!("weight       {}", node.weight));
    if node.is_participant() {
        lines.push(format!("leases of    {}", node.serves.join(", ")));
        lines.extend(timing_text(node).map(|timing| format!("timing       {timing}")));
    }
    lines.push(format!("data         {}, {} keys", data_text(node), number_text(node.keys_stored)));
    lines.push(format!("operations   {} per second", number_text(node.operations_per_second)));
    lines.push(format!("partitions   {}, leads {}", states_text(&description.copies), node.partitions_led));
    if node.goal != NodeGoal::Drain {
        lines.push(format!("drainable    {}", possible(&drain.obstacles)));
    }
    let goes = match remove.copies_removed {
        0 => String::new(),
        gone => format!(", {} not in sync would be discarded", count_text(gone as usize, "replica", "replicas")),
    };
    lines.push(format!("removable    {}{goes}", possible(&remove.obstacles)));
    if description.copies.is_empty() {
        return lines.join("\n");
    }
    lines.push(String::new());
    let columns = [
        Column::text("TABLE"),
        Column::number("PARTITION"),
        Column::number("PLACEMENT"),
        Column::text("STATE"),
        Column::text("LEADS"),
    ];
    let rows = description.copies.iter().map(|hosted| {
        vec![
            hosted.table.clone(),
            hosted.partition.to_string(),
            hosted.placement_id.to_string(),
            hosted.state.to_string(),
            if hosted.leads { "yes" } else { "-" }.to_owned(),
        ]
    });
    lines.push(output.rows_text(&columns, rows.collect(), ""));
    lines.join("\n")
}

/// Returns the goal of the node, with its meaning.
fn goal_text(node: &Node) -> String {
    let meaning = match (node.goal.known(), node.copies_held) {
        (Some(NodeGoal::Cordon), _) => ": it keeps its replicas and receives no new ones".to_owned(),
        (Some(NodeGoal::Drain), 0) => ": it is empty; stop it, then remove it".to_owned(),
        (Some(NodeGoal::Drain), left) => format!(": {} left", words(node).count(left)),
        (Some(NodeGoal::Maintain), _) => maintained(node),
        (Some(NodeGoal::Serve) | None, _) => String::new(),
    };
    format!("{}{meaning}", node.goal)
}

/// Returns the end of its maintenance.
fn maintained(node: &Node) -> String {
    let left = node.maintenance_ends_at_ms.map_or(Duration::ZERO, until);
    format!(": {}, for {} at most", words(node).in_maintenance, short_time(left))
}

/// Formats the number of replicas in each state: `9 Live, 1 Load`.
fn states_text(copies: &[HostedCopy]) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    copies.iter().for_each(|copy| *counts.entry(copy.state.to_string()).or_default() += 1);
    let parts: Vec<String> = counts.iter().rev().map(|(state, count)| format!("{count} {state}")).collect();
    if parts.is_empty() { "none".to_owned() } else { parts.join(", ") }
}

/// Returns `yes`, or the obstacles.
fn possible(obstacles: &[String]) -> String {
    if obstacles.is_empty() { "yes".to_owned() } else { format!("no: {}", obstacles.join("; ")) }
}

fn status_text(node: &Node, output: &Output) -> String {
    let status = if node.stopped { "Stopped".to_owned() } else { node.status.to_string() };
    match (node.status == NodeStatus::Alive, node.disk_full) {
        (true, false) => output.good(&status),
        (true, true) => output.bad(&format!("{status}, disk full")),
        (false, _) => output.bad(&status),
    }
}

/// Formats the reachability of the node for clients: `unreached 14 s`.
fn door_text(door: &Door, output: &Output) -> String {
    let time =
        door.state_for_ms.map_or_else(String::new, |millis| format!(" {}", short_time(Duration::from_millis(millis))));
    let text = format!("{}{time}", door.state.as_str());
    match door.state.known() {
        Some(DoorState::Unreached) => output.bad(&text),
        _ => text,
    }
}

fn heard_text(node: &Node) -> Option<String> {
    node.silent_for_ms.map(|silent| short_time(Duration::from_millis(silent)))
}

/// Formats a number that the node may have reported.
fn number_text(number: Option<u64>) -> String {
    number.map_or_else(|| "-".to_owned(), |number| number.to_string())
}

fn data_text(node: &Node) -> String {
    node.bytes_stored.map_or_else(|| "-".to_owned(), bytes_text)
}

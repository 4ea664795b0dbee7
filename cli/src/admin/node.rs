//! `archon node list` and `archon node describe`.

use super::{list_text, short_time, watch};
use crate::args::{DescribeArgs, WatchArgs};
use crate::exit::{Exit, Failure};
use crate::output::{Column, Output, bytes_text};
use crate::view::{Hosted, Node, NodeDescription};
use archon_client::{Admin, ErrorKind};
use std::time::Duration;

/// Lists the nodes.
pub(crate) async fn list(args: &WatchArgs, admin: &Admin, output: &Output) -> Result<Exit, Failure> {
    watch::show(args.watch, output, async |output: &Output| {
        let nodes = admin.list_nodes().await?;
        if output.is_json() { output.json_text(&nodes) } else { Ok(list_rows(&nodes, output)) }
    })
    .await
}

fn list_rows(nodes: &[Node], output: &Output) -> String {
    let columns = [
        Column::number("ID"),
        Column::text("NAME"),
        Column::text("ADDRESS"),
        Column::text("STATUS"),
        Column::text("GOAL"),
        Column::text("ZONE"),
        Column::number("PARTITIONS"),
        Column::number("LEADERS"),
        Column::number("DATA"),
        Column::number("HEARD"),
    ];
    let rows = nodes.iter().map(|node| {
        vec![
            node.id.to_string(),
            node.name.clone(),
            node.address.clone(),
            status_text(node, output),
            node.goal.clone(),
            node.zone.clone().unwrap_or_else(|| "-".to_owned()),
            node.partitions.to_string(),
            node.leaders.to_string(),
            bytes_text(node.bytes_stored),
            heard_text(node),
        ]
    });
    output.rows_text(&columns, rows.collect(), "no node has registered yet; start one: `archon node --help`")
}

/// Says everything about one node.
pub(crate) async fn describe(args: &DescribeArgs, admin: &Admin, output: &Output) -> Result<Exit, Failure> {
    let nodes = admin.list_nodes().await?;
    let names = list_text(nodes.iter().map(|node| &node.name));
    // A name may have been taken over after its data was lost: the one that is not lost is meant.
    let node = nodes
        .into_iter()
        .filter(|node| node.name == args.name)
        .max_by_key(|node| (node.status != "Lost", node.id))
        .ok_or_else(|| {
            Failure::new(Exit::NotFound, format!("there is no node named {:?}", args.name))
                .with_remedy(format!("the nodes are: {names}"))
        })?;
    let mut hosts = Vec::new();
    for table in admin.list_tables().await? {
        let partitions = match admin.table(&table.name).await {
            Ok(partitions) => partitions,
            // A table that waits for its first assignment is on no node yet.
            Err(error) if error.kind() == ErrorKind::NotEnoughNodes => continue,
            Err(error) => return Err(error.into()),
        };
        for partition in partitions {
            for replica in partition.replicas.iter().filter(|replica| replica.node == node.name) {
                hosts.push(Hosted {
                    table: table.name.clone(),
                    partition: partition.id,
                    placement: replica.placement,
                    state: replica.state.clone(),
                    leads: partition.leader.as_deref() == Some(&node.name) && replica.state == "Live",
                });
            }
        }
    }
    let description = NodeDescription { node, hosts };
    if output.is_json() {
        output.json(&description)?;
        return Ok(Exit::Done);
    }
    print(&description, output)?;
    Ok(Exit::Done)
}

fn print(description: &NodeDescription, output: &Output) -> Result<(), Failure> {
    let node = &description.node;
    output.line(format!("name         {}", output.bold(&node.name)))?;
    output.line(format!("id           {}", node.id))?;
    output.line(format!("address      {}", node.address))?;
    output.line(format!("status       {}, last heard {} ago", status_text(node, output), heard_text(node)))?;
    output.line(format!("goal         {}", node.goal))?;
    output.line(format!("incarnation  {}", node.incarnation))?;
    output.line(format!("zone         {}", node.zone.as_deref().unwrap_or("-")))?;
    output.line(format!("weight       {}", node.weight))?;
    output.line(format!("data         {}", bytes_text(node.bytes_stored)))?;
    output.line(format!("partitions   {}, leads {}", node.partitions, node.leaders))?;
    if description.hosts.is_empty() {
        return Ok(());
    }
    output.line("")?;
    let columns = [
        Column::text("TABLE"),
        Column::number("PARTITION"),
        Column::number("PLACEMENT"),
        Column::text("STATE"),
        Column::text("LEADS"),
    ];
    let rows = description.hosts.iter().map(|hosted| {
        vec![
            hosted.table.clone(),
            hosted.partition.to_string(),
            hosted.placement.to_string(),
            hosted.state.clone(),
            if hosted.leads { "yes" } else { "-" }.to_owned(),
        ]
    });
    output.rows(&columns, rows.collect(), "")
}

fn status_text(node: &Node, output: &Output) -> String {
    if node.status == "Live" { output.good(&node.status) } else { output.bad(&node.status) }
}

fn heard_text(node: &Node) -> String {
    short_time(Duration::from_millis(node.silent_ms))
}

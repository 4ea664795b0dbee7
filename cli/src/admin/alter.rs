//! `archon node set`, `archon table alter`.

use crate::admin::limits::limits_text;
use crate::args::{AlterTableArgs, NodeSetArgs, OrNone};
use crate::documents::Node;
use crate::exit::{Exit, Failure};
use crate::output::{Output, count_text};
use archon_client::{Admin, ErrorKind, TableChange, TraitsChange};

/// Sets the zone, weight or limit of a node.
pub(crate) async fn node(args: &NodeSetArgs, admin: &Admin, output: &Output) -> Result<Exit, Failure> {
    let change = TraitsChange {
        zone: args.zone.clone().map(|OrNone(zone)| zone),
        weight: args.weight,
        partitions_max: args.partitions_max.clone().map(|OrNone(most)| most),
    };
    if change == TraitsChange::default() {
        return Err(Failure::usage("no change is given", "give --weight, --partitions-max or --zone"));
    }
    let (node, changed) = match admin.alter_node(&args.name, &change).await {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(Failure::from(error).with_remedy("see `archon node list`"));
        }
        altered => altered?,
    };
    if output.is_json() {
        output.json(&node)?;
        return Ok(Exit::Done);
    }
    output.line(text(&node, changed))?;
    if let Some(text) = too_many(&node) {
        output.talk(text);
    }
    Ok(Exit::Done)
}

/// Sets the number of replicas of each partition of a table, or its limits for splits.
pub(crate) async fn table(args: &AlterTableArgs, admin: &Admin, output: &Output) -> Result<Exit, Failure> {
    let change = TableChange {
        replication: args.replication,
        split_above_bytes: args.split_above.clone().map(|OrNone(bytes)| bytes),
        split_above_rate: args.split_above_rate.clone().map(|OrNone(rate)| rate),
        merge_below_bytes: args.merge_below.clone().map(|OrNone(bytes)| bytes),
    };
    if change == TableChange::default() {
        let remedy = "give --replication, --split-above, --split-above-rate or --merge-below";
        return Err(Failure::usage("no change is given", remedy));
    }
    let (table, changed) = match admin.alter_table(&args.name, &change).await {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(Failure::from(error).with_remedy("see `archon table list`"));
        }
        altered => altered?,
    };
    if output.is_json() {
        output.json(&table)?;
        return Ok(Exit::Done);
    }
    let copies = count_text(table.replication as usize, "replica", "replicas");
    let verb = if changed { "wants" } else { "wants already" };
    let limits = limits_text(&table).map_or_else(String::new, |limits| format!(", {limits}"));
    output.line(format!("table {} {verb} {copies} of each partition{limits}", table.name))?;
    if changed && change.replication.is_some() {
        output.talk("replicas are added or deleted one after the other; progress: archon status");
    }
    Ok(Exit::Done)
}

fn text(node: &Node, changed: bool) -> String {
    let limit = node.partitions_max.map_or_else(
        || "any number of replicas".to_owned(),
        |most| format!("at most {}", count_text(most as usize, "replica", "replicas")),
    );
    let zone = node.zone.as_ref().map_or_else(|| "no zone".to_owned(), |zone| format!("zone {zone}"));
    let verb = if changed { "has" } else { "has already" };
    format!("{} {verb} weight {}, {limit}, {zone}", node.name, node.weight)
}

/// Warns that a node already holds more replicas than its new limit.
fn too_many(node: &Node) -> Option<String> {
    let most = node.partitions_max.filter(|most| node.copies_held > *most)?;
    Some(format!(
        "{} holds {}, more than {most}: they stay until a plan moves them; see archon rebalance plan",
        node.name,
        count_text(node.copies_held as usize, "replica", "replicas")
    ))
}

//! `archon partition list | locate | describe | force-leader`.

use super::{list_text, short_time, since, watch};
use crate::args::{DescribePartitionArgs, ForceLeaderArgs, LocateArgs, PartitionListArgs};
use crate::connect::leading;
use crate::exit::{Exit, Failure};
use crate::output::{Column, Output, bytes_text};
use crate::view::{Node, Partition};
use archon_client::{Admin, ForcedCheck, PartitionDescription};
use std::time::Duration;

/// Lists the partitions of a table.
pub(crate) async fn list(
    args: &PartitionListArgs,
    admin: &Admin,
    timeout: Duration,
    output: &Output,
) -> Result<Exit, Failure> {
    watch::show(args.watch.watch, output, async |output: &Output| {
        let partitions = leading(admin, timeout).await?.table(&args.table).await?;
        if output.is_json() { output.json_text(&partitions) } else { Ok(list_rows(&partitions, output)) }
    })
    .await
}

fn list_rows(partitions: &[Partition], output: &Output) -> String {
    let columns = [
        Column::text("TABLE"),
        Column::number("ID"),
        Column::text("STATUS"),
        Column::text("LEADER"),
        Column::number("EPOCH"),
        Column::number("VERSION"),
        Column::text("REPLICAS"),
    ];
    let rows = partitions.iter().map(|partition| {
        let status = &partition.status;
        vec![
            partition.table.clone(),
            partition.id.to_string(),
            if status == "Online" { output.good(status) } else { output.bad(status) },
            partition.leader.clone().unwrap_or_else(|| "-".to_owned()),
            partition.epoch.to_string(),
            partition.version.to_string(),
            list_text(partition.replicas.iter().map(|replica| format!("{}:{}", replica.node, replica.state))),
        ]
    });
    output.rows_text(&columns, rows.collect(), "the table has no partitions yet")
}

/// Says where a key belongs.
pub(crate) async fn locate(args: &LocateArgs, admin: &Admin, output: &Output) -> Result<Exit, Failure> {
    crate::kv::check_key(&args.key)?;
    let location = admin.locate(&args.table, &args.key).await?;
    if output.is_json() {
        output.json(&location)?;
        return Ok(Exit::Done);
    }
    let partition = &location.partition;
    let leader = match (&partition.leader, &location.leader_address) {
        (Some(name), Some(address)) => format!("{name} ({address})"),
        (Some(name), None) => name.clone(),
        (None, _) => output.bad("nobody now"),
    };
    output.line(format!("key        {}", location.key))?;
    output.line(format!("slot       {}", location.slot))?;
    output.line(format!("partition  {} of table {}", partition.id, partition.table))?;
    output.line(format!("leader     {leader}"))?;
    output.line(format!("status     {}, epoch {}", partition.status, partition.epoch))?;
    Ok(Exit::Done)
}

/// Says everything about one partition.
pub(crate) async fn describe(args: &DescribePartitionArgs, admin: &Admin, output: &Output) -> Result<Exit, Failure> {
    watch::show(args.watch.watch, output, async |output: &Output| {
        let partition = admin.describe_partition(&args.table, args.id).await?;
        if output.is_json() {
            return output.json_text(&partition);
        }
        // Only to say by which way a node comes back: a description without it is better than none.
        let nodes = admin.list_nodes().await.unwrap_or_default();
        Ok(description(&partition, &nodes, output))
    })
    .await
}

fn description(partition: &PartitionDescription, nodes: &[Node], output: &Output) -> String {
    let mut lines = Vec::new();
    let status = &partition.status;
    let status = if status == "Online" { output.good(status) } else { output.bad(status) };
    let live = partition.copies.iter().filter(|copy| copy.state == "Live").count();
    lines.push(format!("partition  {} of table {}", partition.id, output.bold(&partition.table)));
    lines.push(format!("status     {status}, epoch {}, version {}", partition.epoch, partition.version));
    lines.push(format!("leader     {}", partition.leader.as_deref().unwrap_or("nobody now")));
    lines.push(format!("copies     {live} of {} count; writes need {}", partition.replication, partition.min_in_sync));
    for reason in &partition.reasons {
        let time = since(reason.since_ms).map_or_else(String::new, |time| format!(", for {}", short_time(time)));
        lines.push(format!("waiting    {}: {}{time}", output.bad(&reason.code), reason.message));
        // Of lost data the remedy is to ask this, and what it answers follows.
        if !reason.remedy.is_empty() && reason.code != "DataLost" {
            lines.push(format!("           {}", reason.remedy));
        }
    }
    if let Some(migration) = &partition.migration {
        let (from, to) = (&migration.from, &migration.to);
        lines.push(format!("move       {from} -> {to}  {}  {}%", migration.phase, migration.percent));
    }
    // While a copy that counts can serve, nobody needs to know what giving up would cost.
    if partition.forced.obstacles.is_empty() {
        lines.push(format!("last hope  {}", forced_text(partition, &partition.forced, nodes)));
    }
    if partition.copies.is_empty() {
        return lines.join("\n");
    }
    lines.push(String::new());
    let columns = [
        Column::number("PLACEMENT"),
        Column::text("NODE"),
        Column::text("NODE IS"),
        Column::text("STATE"),
        Column::text("LEADS"),
        Column::number("DATA"),
    ];
    let rows = partition.copies.iter().map(|copy| {
        let is = &copy.node_status;
        vec![
            copy.placement.to_string(),
            copy.node.clone(),
            if is == "Live" { output.good(is) } else { output.bad(is) },
            copy.state.clone(),
            if copy.leads { "yes" } else { "-" }.to_owned(),
            bytes_text(copy.bytes),
        ]
    });
    lines.push(output.rows_text(&columns, rows.collect(), ""));
    lines.join("\n")
}

/// What may be done for a partition that nobody can lead without loss.
fn forced_text(partition: &PartitionDescription, forced: &ForcedCheck, nodes: &[Node]) -> String {
    let mut first = String::new();
    for (names, what) in [(&forced.lose_nothing, "nothing"), (&forced.lose_less, "less")] {
        if !names.is_empty() {
            let way = ways_back(partition, names, nodes);
            first.push_str(&format!("{way}start {} again: {what} is lost then; or, ", list_text(names)));
        }
    }
    let table = if partition.table == "default" { String::new() } else { format!(" --table {}", partition.table) };
    let then = match (&forced.leader, forced.condition.as_deref()) {
        (Some(leader), Some("Whole")) => {
            format!("the copy on {leader}, without what was written since it ceased to count")
        }
        (Some(leader), Some("Older")) => format!("the copy on {leader}, which is of an earlier time"),
        (Some(leader), _) => format!("the copy on {leader}, of which little may be left"),
        (None, _) if forced.could_be_named.is_empty() => "an empty partition".to_owned(),
        (None, _) => {
            let named = list_text(&forced.could_be_named);
            format!("an empty partition, or, with --node, what is left on one of {named}")
        }
    };
    format!("{first}at the price of acknowledged writes, {then}: archon partition force-leader {}{table}", partition.id)
}

/// What has to be done before nodes can be started again whose names other directories have taken over.
fn ways_back(partition: &PartitionDescription, names: &[String], nodes: &[Node]) -> String {
    let lost = |name: &str| partition.copies.iter().any(|copy| copy.node == name && copy.node_status == "Lost");
    let held = |name: &str| nodes.iter().any(|node| node.name == name && node.status != "Lost");
    let taken = names.iter().filter(|name| lost(name) && held(name));
    taken
        .map(|name| {
            format!(
                "another data directory has taken the name {name} over: stop that node, `archon node remove {name}`, then "
            )
        })
        .collect()
}

/// Makes one copy lead, at the price of acknowledged writes.
pub(crate) async fn force(args: &ForceLeaderArgs, admin: &Admin, output: &Output) -> Result<Exit, Failure> {
    let forced = admin.force_leader(&args.table, args.id, args.node.as_deref(), args.accept_data_loss).await?;
    if output.is_json() {
        output.json(&forced)?;
    } else {
        let (table, id, epoch) = (&args.table, args.id, forced.epoch);
        match &forced.leader {
            Some(leader) => {
                output.line(format!("partition {table}/{id}: {leader} leads with what it holds, in epoch {epoch}"))?
            }
            None => output.line(format!("partition {table}/{id} begins empty"))?,
        }
    }
    output.talk("a side that is cut off may go on acknowledging writes until it hears of this; those are lost");
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, status: &str) -> Node {
        Node {
            id: 9,
            name: name.into(),
            address: "127.0.0.1:1".into(),
            status: status.into(),
            goal: "Serve".into(),
            incarnation: 1,
            partitions: 0,
            leaders: 0,
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
    fn the_last_hope_names_the_price_and_the_better_way_even_of_a_node_whose_name_was_taken_over() {
        let mut forced = ForcedCheck { lose_nothing: vec!["athens".into()], ..ForcedCheck::default() };
        let partition = PartitionDescription {
            table: "orders".into(),
            id: 3,
            epoch: 1,
            version: 1,
            status: "Unavailable".into(),
            leader: None,
            replication: 2,
            min_in_sync: 1,
            copies: vec![],
            reasons: vec![],
            migration: None,
            forced: ForcedCheck::default(),
        };
        assert_eq!(
            forced_text(&partition, &forced, &[]),
            "start athens again: nothing is lost then; or, at the price of acknowledged writes, an empty partition: archon \
             partition force-leader 3 --table orders"
        );
        let copy = archon_client::Copy {
            placement: 1,
            node: "athens".into(),
            node_status: "Lost".into(),
            state: "Unload".into(),
            leads: false,
            bytes: 0,
        };
        let overtaken = PartitionDescription { copies: vec![copy], ..partition.clone() };
        let text = forced_text(&overtaken, &forced, &[node("athens", "Live")]);
        let way =
            "another data directory has taken the name athens over: stop that node, `archon node remove athens`, then";
        assert!(text.starts_with(&format!("{way} start athens again: nothing is lost then; or, at")), "{text}");
        assert!(forced_text(&overtaken, &forced, &[node("athens", "Lost")]).starts_with("start athens again"));
        forced.could_be_named = vec!["delphi".into()];
        assert!(forced_text(&partition, &forced, &[]).contains("with --node, what is left on one of delphi"));
        forced.leader = Some("cyrene".into());
        forced.condition = Some("Gone".into());
        assert!(forced_text(&partition, &forced, &[]).contains("the copy on cyrene, of which little may be left"));
        forced.condition = Some("Whole".into());
        forced.lose_less = vec!["byzantium".into()];
        let text = forced_text(&partition, &forced, &[]);
        assert!(text.contains("without what was written since"), "{text}");
        assert!(
            text.contains("start athens again: nothing is lost then; or, start byzantium again: less is"),
            "{text}"
        );
    }
}

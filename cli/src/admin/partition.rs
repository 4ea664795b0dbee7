//! `archon partition list | locate | describe | force-leader`.

use super::{list_text, short_time, since, watch};
use crate::args::{DescribePartitionArgs, ForceLeaderArgs, LocateArgs, PartitionListArgs};
use crate::connect::leading;
use crate::exit::{Exit, Failure};
use crate::output::{Column, Output, bytes_text};
use crate::view::Partition;
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
    let partition = admin.describe_partition(&args.table, args.id).await?;
    if output.is_json() {
        output.json(&partition)?;
        return Ok(Exit::Done);
    }
    let status = &partition.status;
    let status = if status == "Online" { output.good(status) } else { output.bad(status) };
    let live = partition.copies.iter().filter(|copy| copy.state == "Live").count();
    output.line(format!("partition  {} of table {}", partition.id, output.bold(&partition.table)))?;
    output.line(format!("status     {status}, epoch {}, version {}", partition.epoch, partition.version))?;
    output.line(format!("leader     {}", partition.leader.as_deref().unwrap_or("nobody now")))?;
    output
        .line(format!("copies     {live} of {} count; writes need {}", partition.replication, partition.min_in_sync))?;
    for reason in &partition.reasons {
        let time = since(reason.since_ms).map_or_else(String::new, |time| format!(", for {}", short_time(time)));
        output.line(format!("waiting    {}: {}{time}", output.bad(&reason.code), reason.message))?;
        if !reason.remedy.is_empty() {
            output.line(format!("           {}", reason.remedy))?;
        }
    }
    if let Some(migration) = &partition.migration {
        let (from, to) = (&migration.from, &migration.to);
        output.line(format!("move       {from} -> {to}  {}  {}%", migration.phase, migration.percent))?;
    }
    // While a copy that counts can serve, nobody needs to know what giving up would cost.
    if partition.forced.obstacles.is_empty() {
        output.line(format!("last hope  {}", forced_text(&partition, &partition.forced)))?;
    }
    if partition.copies.is_empty() {
        return Ok(Exit::Done);
    }
    output.line("")?;
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
    output.rows(&columns, rows.collect(), "")?;
    Ok(Exit::Done)
}

/// What may be done for a partition that nobody can lead without loss.
fn forced_text(partition: &PartitionDescription, forced: &ForcedCheck) -> String {
    let mut first = String::new();
    for (nodes, what) in [(&forced.lose_nothing, "nothing"), (&forced.lose_less, "less")] {
        if !nodes.is_empty() {
            first.push_str(&format!("start {} again: {what} is lost then; or, ", list_text(nodes)));
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

    #[test]
    fn the_last_hope_names_the_price_and_the_better_way() {
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
            forced_text(&partition, &forced),
            "start athens again: nothing is lost then; or, at the price of acknowledged writes, an empty partition: archon \
             partition force-leader 3 --table orders"
        );
        forced.could_be_named = vec!["delphi".into()];
        assert!(forced_text(&partition, &forced).contains("with --node, what is left on one of delphi"));
        forced.leader = Some("cyrene".into());
        forced.condition = Some("Gone".into());
        assert!(forced_text(&partition, &forced).contains("the copy on cyrene, of which little may be left"));
        forced.condition = Some("Whole".into());
        forced.lose_less = vec!["byzantium".into()];
        let text = forced_text(&partition, &forced);
        assert!(text.contains("without what was written since"), "{text}");
        assert!(
            text.contains("start athens again: nothing is lost then; or, start byzantium again: less is"),
            "{text}"
        );
    }
}

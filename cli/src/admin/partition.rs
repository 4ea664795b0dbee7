//! `archon partition list` and `archon partition locate`.

use super::{list_text, watch};
use crate::args::{LocateArgs, PartitionListArgs};
use crate::connect::leading;
use crate::exit::{Exit, Failure};
use crate::output::{Column, Output};
use crate::view::Partition;
use archon_client::Admin;
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

//! `archon table list` and `archon table create`.

use super::watch;
use crate::args::{CreateTableArgs, WatchArgs};
use crate::exit::{Exit, Failure};
use crate::output::{Column, Output, count_text};
use archon_client::{Admin, TableSummary};

/// Lists the tables.
pub(crate) async fn list(args: &WatchArgs, admin: &Admin, output: &Output) -> Result<Exit, Failure> {
    watch::show(args.watch, output, async |output: &Output| {
        let tables = admin.list_tables().await?;
        if output.is_json() { output.json_text(&tables) } else { Ok(list_rows(&tables, output)) }
    })
    .await
}

fn list_rows(tables: &[TableSummary], output: &Output) -> String {
    let columns = [
        Column::number("ID"),
        Column::text("NAME"),
        Column::number("PARTITIONS"),
        Column::number("REPLICATION"),
        Column::number("VERSION"),
    ];
    let rows = tables.iter().map(|table| {
        vec![
            table.id.to_string(),
            table.name.clone(),
            table.partitions.to_string(),
            table.replication.to_string(),
            table.version.to_string(),
        ]
    });
    output.rows_text(&columns, rows.collect(), "there is no table yet: the cluster is not bootstrapped")
}

/// Creates a table.
pub(crate) async fn create(args: &CreateTableArgs, admin: &Admin, output: &Output) -> Result<Exit, Failure> {
    let table = admin.create_table(&args.name, args.partitions, args.replication).await?;
    if output.is_json() {
        output.json(&table)?;
        return Ok(Exit::Done);
    }
    output.line(format!(
        "created table {} with {}, {}",
        table.name,
        count_text(table.partitions as usize, "partition", "partitions"),
        count_text(table.replication as usize, "copy each", "copies each"),
    ))?;
    output.talk(format!("next: archon partition list --table {}", table.name));
    Ok(Exit::Done)
}

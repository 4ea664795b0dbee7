//! `archon events`.

use super::ago_text;
use crate::args::EventsArgs;
use crate::exit::{Exit, Failure};
use crate::output::{Column, Output};
use archon_client::Admin;

/// Lists what happened, newest last.
pub(crate) async fn run(args: &EventsArgs, admin: &Admin, output: &Output) -> Result<Exit, Failure> {
    let events = admin.events(args.most).await?;
    if output.is_json() {
        output.json(&events)?;
        return Ok(Exit::Done);
    }
    let columns = [
        Column::number("INDEX"),
        Column::number("WHEN"),
        Column::text("WHO"),
        Column::text("SUBJECT"),
        Column::text("WHAT"),
    ];
    let rows = events.iter().map(|event| {
        vec![
            event.index.to_string(),
            ago_text(event.at_ms),
            event.by.to_string(),
            event.subject.to_string(),
            event.message.clone(),
        ]
    });
    output.rows(&columns, rows.collect(), "nothing has happened yet")?;
    Ok(Exit::Done)
}

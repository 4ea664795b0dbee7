//! `archon events`.

use super::ago_text;
use crate::args::EventsArgs;
use crate::exit::{Exit, Failure};
use crate::output::{Column, Output};
use archon_client::{Admin, Event};
use std::time::Duration;

/// Polling interval.
const EVERY: Duration = Duration::from_secs(1);
/// Maximum number of events requested while following: above the number between two polls.
const FOLLOWED_MAX: u32 = 10_000;

/// Lists events, newest last; or follows them.
pub(crate) async fn run(args: &EventsArgs, admin: &Admin, output: &Output) -> Result<Exit, Failure> {
    let events = admin.events(args.limit).await?;
    let mut last = events.last().map_or(0, |event| event.index);
    print(&events, output)?;
    if !args.follow {
        return Ok(Exit::Done);
    }
    let output = Output { watching: true, ..*output };
    let mut trouble = false;
    let interrupted = tokio::signal::ctrl_c();
    tokio::pin!(interrupted);
    loop {
        tokio::select! {
            _ = &mut interrupted => return Ok(Exit::Done),
            () = tokio::time::sleep(EVERY) => {}
        }
        match admin.events(FOLLOWED_MAX).await.map_err(Failure::from) {
            Ok(events) => {
                trouble = false;
                let new = newer(&events, last);
                last = new.last().map_or(last, |event| event.index);
                if output.is_json() && !new.is_empty() {
                    output.json(new)?;
                } else if !output.is_json() {
                    new.iter().try_for_each(|event| output.line(line(event)))?;
                }
            }
            Err(failure) if matches!(failure.exit, Exit::Unreachable | Exit::TimedOut) => {
                if !std::mem::replace(&mut trouble, true) {
                    output.talk(format!("still following: {}", failure.message));
                }
            }
            Err(failure) => return Err(failure),
        }
    }
}

/// Returns the events after the log entry `last`: one entry may have made several.
fn newer(events: &[Event], last: u64) -> &[Event] {
    &events[events.partition_point(|event| event.index <= last)..]
}

/// Formats an event in fixed columns, because the headings may have scrolled away.
fn line(event: &Event) -> String {
    let Event { index, at_ms, by, subject, message, .. } = event;
    format!("{index:>5}  {:>7}  {by}  {subject}  {message}", ago_text(*at_ms))
}

fn print(events: &[Event], output: &Output) -> Result<(), Failure> {
    if output.is_json() {
        return output.json(events);
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
    output.rows(&columns, rows.collect(), "nothing has happened yet")
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_client::{Cause, EventCode, Severity, Subject};
    use std::collections::BTreeMap;

    #[test]
    fn events_are_shown_once() {
        let event = |index| Event {
            index,
            at_ms: 0,
            code: EventCode::NodeFailed.into(),
            severity: Severity::Warning.into(),
            facts: BTreeMap::new(),
            by: Cause::Unknown,
            subject: Subject::Cluster,
            message: String::new(),
        };
        let events = [event(3), event(7), event(7), event(9)];
        let indexes = |last| newer(&events, last).iter().map(|event| event.index).collect::<Vec<_>>();
        assert_eq!(
            [indexes(0), indexes(3), indexes(7), indexes(9)],
            [vec![3, 7, 7, 9], vec![7, 7, 9], vec![9], vec![]]
        );
    }
}

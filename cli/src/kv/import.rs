//! `archon kv import`: rows of text into a table.

use super::progress::Progress;
use super::rows::{InvalidLine, Row, Rows, open};
use crate::args::{ImportArgs, RowFormat};
use crate::documents::ImportSummary;
use crate::exit::{Exit, Failure};
use crate::output::Output;
use archon_client::{Client, Error, Expiry, Op};
use archon_types::Millis;
use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use std::collections::HashSet;
use std::io::Read;
use std::path::Path;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Most rows in one call.
const PART_ROWS: usize = 500;
/// Most bytes of keys and values in one call, unless a single row has more.
const PART_BYTES: usize = 1024 * 1024;
/// Calls in progress at once.
const IN_FLIGHT: usize = 4;
/// Parts that are read ahead.
const AHEAD: usize = 2;

/// Part of a file.
#[derive(Debug)]
enum Part {
    /// Rows with distinct keys.
    Rows(Vec<(u64, Row)>),
    /// An invalid line, which ends the reading.
    Bad(InvalidLine),
    /// End of the file. If it is missing, the reader has failed.
    End,
}

/// Rejects a file in the place of the table: otherwise the rows would be read from standard input.
///
/// # Errors
/// The only name is that of a file, and no file is given.
pub(crate) fn check(args: &ImportArgs) -> Result<(), Failure> {
    let is_file = args.file.is_none() && Path::new(&args.into).is_file();
    match is_file {
        true => Err(Failure::usage(
            format!("{} is a file, but the first argument is the table", args.into),
            format!(
                "archon kv import TABLE {0}; if it is the table's name, and rows come by standard input: archon kv \
                 import {0} -",
                args.into
            ),
        )),
        false => Ok(()),
    }
}

/// Checks every line.
pub(crate) async fn dry_run(args: &ImportArgs, output: &Output) -> Result<Exit, Failure> {
    let (mut parts, mut progress) = (parts(args)?, Progress::new("checked", output));
    loop {
        match parts.recv().await {
            Some(Part::Rows(rows)) => progress.add(rows.len() as u64, rows.iter().map(|(_, row)| row.bytes()).sum()),
            Some(Part::Bad(bad)) => return Err(bad_line(args, &bad, "nothing was written (--dry-run)")),
            Some(Part::End) => break,
            None => return Err(unread(args, &progress)),
        }
    }
    let text = match progress.rows {
        0 => progress.text(),
        _ => format!("{}; all can be imported", progress.text()),
    };
    told(args, progress.rows, 0, &text, output)
}

/// Writes every row, with several calls at once, and the rows of one key in sequence.
pub(crate) async fn run(args: &ImportArgs, client: &Client, output: &Output) -> Result<Exit, Failure> {
    let mut parts = parts(args)?;
    let mut progress = Progress::new("imported", output);
    let mut running = FuturesUnordered::new();
    let mut under_way = CallsInProgress::default();
    let (signal, mut interrupted) = (tokio::signal::ctrl_c(), false);
    tokio::pin!(signal);
    // Rows that wait for a call to end, and the reason for the end of the file.
    let (mut waiting, mut over, mut failed) = (None, None, None);
    loop {
        if let Some(rows) = waiting.take_if(|rows: &mut Vec<_>| under_way.takes(rows)) {
            under_way.begin(&rows);
            running.push(write(client, rows));
        }
        let wants_more = waiting.is_none() && over.is_none();
        if !wants_more && running.is_empty() {
            break;
        }
        tokio::select! {
            Some(done) = running.next(), if !running.is_empty() => {
                account(done, &mut under_way, &mut progress, &mut failed);
                // Calls in progress are awaited so that their results can be reported; no more are started.
                if failed.is_some() {
                    (waiting, over) = (None, over.or(Some(None)));
                }
            }
            part = parts.recv(), if wants_more => match part {
                Some(Part::Rows(rows)) => waiting = Some(rows),
                other => over = Some(other),
            },
            _ = &mut signal, if over.is_none() => {
                interrupted = true;
                (waiting, over) = (None, Some(None));
            }
        }
    }
    if let Some(failed) = failed {
        return Err(not_written(args, failed, &progress));
    }
    match over.flatten() {
        Some(Part::Bad(bad)) => {
            Err(bad_line(args, &bad, &format!("{} before it, and nothing after it", progress.text())))
        }
        None if interrupted => Err(Failure::failed(format!("interrupted; {}", progress.text())).with_remedy(
            "to continue, import the whole file again: existing rows are overwritten with the same \
                          values",
        )),
        Some(_) => told(args, progress.rows, progress.rows, &progress.text(), output),
        None => Err(unread(args, &progress)),
    }
}

/// Reports a failure of the reader thread.
fn unread(args: &ImportArgs, progress: &Progress) -> Failure {
    Failure::failed(format!("{} was not read to its end; {}", shown(args), progress.text()))
        .with_remedy("this is a defect of archon: please report it, with the line before on standard error")
}

/// Prints the result.
fn told(args: &ImportArgs, rows_read: u64, rows_written: u64, text: &str, output: &Output) -> Result<Exit, Failure> {
    if output.is_json() {
        output.json(&ImportSummary { table: args.into.clone(), rows_read, rows_written })?;
    } else {
        output.talk(text);
    }
    if rows_read == 0 {
        output.talk(format!("warning: no rows in {}", shown(args)));
    }
    Ok(Exit::Done)
}

/// Returns the named file, if any.
fn named(args: &ImportArgs) -> Option<&Path> {
    args.file.as_deref().filter(|path| path.as_os_str() != "-")
}

fn shown(args: &ImportArgs) -> String {
    named(args).map_or_else(|| "standard input".to_owned(), |path| path.display().to_string())
}

fn bad_line(args: &ImportArgs, bad: &InvalidLine, what: &str) -> Failure {
    let remedy = "correct the line and import the whole file again: existing rows are overwritten with the same values";
    Failure::usage(format!("{}, line {}: {}; {what}", shown(args), bad.line, bad.why), remedy)
}

/// Reads on a separate thread, so that a slow pipe does not delay writes.
fn parts(args: &ImportArgs) -> Result<Receiver<Part>, Failure> {
    if named(args).is_some_and(Path::is_dir) {
        return Err(Failure::usage(format!("{} is a directory", shown(args)), "name a file of rows"));
    }
    let file = open(named(args))
        .map_err(|error| Failure::usage(format!("reading {}: {error}", shown(args)), "name a file of rows"))?;
    let format = args.format.of(named(args));
    let (sender, receiver) = channel(AHEAD);
    // It ends with its file, or once the receiver is closed.
    let reader = std::thread::Builder::new().name("archon-rows".to_owned());
    reader
        .spawn(move || read(format, file, &sender))
        .map_err(|error| Failure::failed(format!("starting a thread to read {}: {error}", shown(args))))?;
    Ok(receiver)
}

fn read(format: RowFormat, file: impl Read, sender: &Sender<Part>) {
    let (mut part, mut bytes, mut keys) = (Vec::new(), 0, HashSet::new());
    for row in Rows::new(format, file) {
        let (line, row) = match row {
            Ok(found) => found,
            Err(bad) => {
                // The rows before it are written.
                let _ = sender.blocking_send(Part::Rows(part)).and_then(|()| sender.blocking_send(Part::Bad(bad)));
                return;
            }
        };
        let full = part.len() >= PART_ROWS || bytes + row.bytes() > PART_BYTES || keys.contains(&row.key);
        if full && !part.is_empty() {
            if sender.blocking_send(Part::Rows(std::mem::take(&mut part))).is_err() {
                return;
            }
            bytes = 0;
            keys.clear();
        }
        bytes += row.bytes();
        keys.insert(row.key.clone());
        part.push((line, row));
    }
    let _ = sender.blocking_send(Part::Rows(part)).and_then(|()| sender.blocking_send(Part::End));
}

/// Result of a part.
struct PartResult {
    keys: Vec<Bytes>,
    rows: u64,
    bytes: usize,
    failed: Option<UnwrittenRow>,
}

/// First row of a part that was not written, or may not have been.
struct UnwrittenRow {
    line: u64,
    error: Error,
}

async fn write(client: &Client, rows: Vec<(u64, Row)>) -> PartResult {
    let keys = rows.iter().map(|(_, row)| row.key.clone()).collect();
    let mut written = PartResult { keys, rows: 0, bytes: 0, failed: None };
    let Some(first) = rows.first().map(|(line, _)| *line) else { return written };
    let op = |row: &Row| {
        let expiry = row.expires_at_ms.map(|at| Expiry::At(Millis::new(at)));
        Op::write(row.key.clone(), row.value.clone(), None, expiry)
    };
    let ops = rows.iter().map(|(_, row)| op(row)).collect();
    let results = match client.batch(ops).await {
        Ok(results) => results,
        Err(error) => return PartResult { failed: Some(UnwrittenRow { line: first, error }), ..written },
    };
    for ((line, row), result) in rows.iter().zip(results) {
        match result {
            Ok(_) => {
                written.rows += 1;
                written.bytes += row.bytes();
            }
            Err(error) if written.failed.is_none() => written.failed = Some(UnwrittenRow { line: *line, error }),
            Err(_) => {}
        }
    }
    written
}

/// Calls in progress. A key is in at most one of them: calls have no order, and the later line must win.
#[derive(Default)]
struct CallsInProgress {
    calls: usize,
    keys: HashSet<Bytes>,
}

impl CallsInProgress {
    fn takes(&self, rows: &[(u64, Row)]) -> bool {
        self.calls < IN_FLIGHT && !rows.iter().any(|(_, row)| self.keys.contains(&row.key))
    }

    fn begin(&mut self, rows: &[(u64, Row)]) {
        self.calls += 1;
        self.keys.extend(rows.iter().map(|(_, row)| row.key.clone()));
    }

    fn end(&mut self, keys: &[Bytes]) {
        self.calls -= 1;
        for key in keys {
            self.keys.remove(key);
        }
    }
}

fn account(
    done: PartResult,
    under_way: &mut CallsInProgress,
    progress: &mut Progress,
    failed: &mut Option<UnwrittenRow>,
) {
    under_way.end(&done.keys);
    progress.add(done.rows, done.bytes);
    let earlier = |found: &UnwrittenRow| failed.as_ref().is_none_or(|held| found.line < held.line);
    if let Some(found) = done.failed.filter(earlier) {
        *failed = Some(found);
    }
}

fn not_written(args: &ImportArgs, failed: UnwrittenRow, progress: &Progress) -> Failure {
    let failure = Failure::from(failed.error);
    let message = format!(
        "{}, line {}: it was not written: {}; {}, not all of them before that line",
        shown(args),
        failed.line,
        failure.message,
        progress.text()
    );
    Failure { message, ..failure }.with_remedy(
        "see `archon status`, then import the whole file again: existing rows are overwritten with the \
                      same values",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(into: &str, file: Option<&str>) -> ImportArgs {
        ImportArgs { into: into.to_owned(), file: file.map(Into::into), format: Default::default(), dry_run: true }
    }

    #[test]
    fn file_in_the_place_of_the_table_is_rejected() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let file = file.path().to_str().unwrap();
        let refused = check(&args(file, None)).unwrap_err();
        assert!(refused.remedy.as_deref().unwrap().contains(&format!("archon kv import TABLE {file}")), "{refused}");
        assert!(check(&args(file, Some("-"))).is_ok() && check(&args("orders", None)).is_ok());
    }

    #[test]
    fn directory_is_rejected() {
        let refused = parts(&args("orders", Some("."))).unwrap_err();
        assert_eq!((refused.exit, refused.message.as_str()), (Exit::Usage, ". is a directory"));
    }

    fn parts_of(text: &str) -> Vec<Part> {
        let (sender, mut receiver) = channel(100);
        read(RowFormat::Jsonl, text.as_bytes(), &sender);
        drop(sender);
        std::iter::from_fn(|| receiver.blocking_recv()).collect()
    }

    fn line(key: &str, value: &str) -> String {
        format!("{{\"key\":\"{key}\",\"value\":\"{value}\"}}\n")
    }

    /// Returns the lines of each part; of an invalid line its own.
    fn lines_of(parts: &[Part]) -> Vec<Vec<u64>> {
        let lines = |part: &Part| match part {
            Part::Rows(rows) => rows.iter().map(|(line, _)| *line).collect(),
            Part::Bad(bad) => vec![bad.line],
            Part::End => Vec::new(),
        };
        parts.iter().map(lines).collect()
    }

    #[test]
    fn later_of_two_lines_with_one_key_is_written_last() {
        let text = [line("a", "1"), line("b", "2"), line("a", "3")].concat();
        let parts = parts_of(&text);
        assert_eq!(lines_of(&parts), [vec![1, 2], vec![3], vec![]], "no call has a key twice, for it has no order");
        assert!(matches!(parts.last(), Some(Part::End)));
    }

    #[test]
    fn calls_in_progress_have_distinct_keys() {
        let rows = |keys: &[&'static str]| -> Vec<(u64, Row)> {
            keys.iter().map(|key| (1, Row { key: (*key).into(), value: Bytes::new(), expires_at_ms: None })).collect()
        };
        let mut under_way = CallsInProgress::default();
        under_way.begin(&rows(&["a", "b"]));
        assert!(under_way.takes(&rows(&["c"])) && !under_way.takes(&rows(&["c", "b"])));
        (1..IN_FLIGHT).for_each(|_| under_way.begin(&[]));
        assert!(!under_way.takes(&rows(&["c"])), "memory is bounded by the calls under way");
        under_way.end(&["a".into(), "b".into()]);
        assert!(under_way.takes(&rows(&["a", "b"])));
    }

    #[test]
    fn parts_are_bounded_and_include_rows_before_an_invalid_line() {
        let text: String = (0..1_200).map(|number| line(&number.to_string(), "v")).collect();
        let parts = parts_of(&format!("{text}bad\n"));
        assert_eq!(lines_of(&parts).iter().map(Vec::len).collect::<Vec<_>>(), [500, 500, 200, 1]);
        assert!(matches!(parts.last(), Some(Part::Bad(bad)) if bad.line == 1_201));
        let large = "x".repeat(700 * 1024);
        let text = [line("a", &large), line("b", &large)].concat();
        assert_eq!(lines_of(&parts_of(&text)), [vec![1], vec![2], vec![]]);
    }
}

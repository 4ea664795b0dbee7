//! Output for the reader: data on standard output (a table or one JSON document), messages on standard error.

use crate::exit::{Exit, Failure};
use crate::terminal;
pub(crate) use archon_types::bytes_text;
use comfy_table::{CellAlignment, ContentArrangement, Table};
use serde::Serialize;
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

/// True once anything went to standard output: a printed document is not followed by another.
static PRINTED: AtomicBool = AtomicBool::new(false);

/// How data is printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
pub(crate) enum Format {
    /// Columns for people.
    #[default]
    Table,
    /// One JSON document for programs; fields are only ever added.
    Json,
}

/// Destination and style of a command's output.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    /// Format of data.
    pub(crate) format: Format,
    /// True if standard output is a terminal.
    pub(crate) terminal: bool,
    /// True if standard error is a terminal; progress is drawn only there.
    pub(crate) stderr_is_terminal: bool,
    /// True if colour is used: on a terminal, and with `NO_COLOR` unset.
    pub(crate) color: bool,
    /// True if the terminal can be cleared and redrawn.
    pub(crate) redraw: bool,
    /// True for repeated output: each JSON document then stays on one line, and an empty list is an answer like any
    /// other.
    pub(crate) watching: bool,
}

impl Output {
    /// Creates the output for this process's streams.
    pub(crate) fn new(format: Format) -> Self {
        let terminal = std::io::stdout().is_terminal();
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let refused = dumb || std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self {
            format,
            terminal,
            stderr_is_terminal: std::io::stderr().is_terminal(),
            color: terminal && !refused,
            redraw: terminal && !dumb,
            watching: false,
        }
    }

    /// Creates an output without a terminal.
    #[cfg(test)]
    pub(crate) const fn plain(format: Format) -> Self {
        Self { format, terminal: false, stderr_is_terminal: false, color: false, redraw: false, watching: false }
    }

    /// Returns true if data is printed as JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.format == Format::Json
    }

    /// Prints one JSON document.
    ///
    /// # Errors
    /// Standard output is not writable.
    pub(crate) fn json<T: Serialize + ?Sized>(&self, document: &T) -> Result<(), Failure> {
        self.line(self.json_text(document)?)
    }

    /// Returns one JSON document as text: on one line for programs, indented on a terminal.
    ///
    /// # Errors
    /// It cannot be serialized.
    pub(crate) fn json_text<T: Serialize + ?Sized>(&self, document: &T) -> Result<String, Failure> {
        let spread = self.terminal && !self.watching;
        let text = if spread { serde_json::to_string_pretty(document) } else { serde_json::to_string(document) };
        let text = text.map_err(|error| Failure::failed(format!("building the JSON document: {error}")))?;
        Ok(if self.terminal { terminal::escaped_json(text) } else { text })
    }

    /// Prints the result of a command that is done: the document as JSON, or the text.
    ///
    /// # Errors
    /// Standard output is not writable.
    pub(crate) fn done<T: Serialize + ?Sized>(&self, document: &T, text: impl AsRef<str>) -> Result<Exit, Failure> {
        if self.is_json() {
            self.json(document)?
        } else {
            self.line(text)?
        }
        Ok(Exit::Done)
    }

    /// Prints one line of data.
    ///
    /// # Errors
    /// Standard output is not writable.
    pub(crate) fn line(&self, text: impl AsRef<str>) -> Result<(), Failure> {
        PRINTED.store(true, Ordering::Relaxed);
        let mut out = std::io::stdout().lock();
        out.write_all(text.as_ref().as_bytes())?;
        out.write_all(b"\n")?;
        out.flush()?;
        Ok(())
    }

    /// Prints the failure of a command: always for people, and as a document for a program that asked for one and has
    /// none yet.
    pub(crate) fn failure(&self, failure: &Failure) {
        if failure.message.is_empty() {
            return;
        }
        if self.is_json() && !PRINTED.load(Ordering::Relaxed) {
            // If it cannot be written, the text remains.
            let _ = self.json(&failure.document());
        }
        self.talk(failure.to_string());
    }

    /// Prints a value byte for byte. On a terminal, escapes control sequences unless `raw` is set, and appends a newline.
    ///
    /// # Errors
    /// Standard output is not writable.
    pub(crate) fn value(&self, bytes: &[u8], raw: bool) -> Result<(), Failure> {
        PRINTED.store(true, Ordering::Relaxed);
        let mut out = std::io::stdout().lock();
        match self.terminal && !raw {
            true => out.write_all(terminal::escaped(bytes).as_bytes())?,
            false => out.write_all(bytes)?,
        }
        if self.terminal {
            out.write_all(b"\n")?;
        }
        out.flush()?;
        Ok(())
    }

    /// Prints rows under headings, or `when_empty` on standard error if there are none.
    ///
    /// # Errors
    /// Standard output is not writable.
    pub(crate) fn rows(&self, columns: &[Column], rows: Vec<Vec<String>>, when_empty: &str) -> Result<(), Failure> {
        let text = self.rows_text(columns, rows, when_empty);
        if text.is_empty() { Ok(()) } else { self.line(text) }
    }

    /// Returns rows under headings as text; empty without rows, and then `when_empty`, if not empty, goes to standard
    /// error.
    pub(crate) fn rows_text(&self, columns: &[Column], rows: Vec<Vec<String>>, when_empty: &str) -> String {
        if !rows.is_empty() {
            return self.grid(columns, rows);
        }
        if self.watching {
            return when_empty.to_owned();
        }
        if !when_empty.is_empty() {
            self.talk(when_empty);
        }
        String::new()
    }

    /// Returns rows under headings, as text.
    pub(crate) fn grid(&self, columns: &[Column], rows: Vec<Vec<String>>) -> String {
        let mut table = Table::new();
        table.load_style(comfy_table::presets::NOTHING);
        table.set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(columns.iter().map(|column| self.bold(column.heading)));
        for row in rows {
            table.add_row(row);
        }
        for (index, column) in columns.iter().enumerate() {
            if let Some(cells) = table.column_mut(index) {
                cells.set_padding((0, 2));
                if column.number {
                    cells.set_cell_alignment(CellAlignment::Right);
                }
            }
        }
        table.trim_fmt()
    }

    /// Prints a message to the reader, on standard error.
    pub(crate) fn talk(&self, text: impl AsRef<str>) {
        talk(text.as_ref());
    }

    /// Returns `text` in bold, if colour is enabled.
    pub(crate) fn bold(&self, text: &str) -> String {
        self.paint("1", text)
    }

    /// Returns `text` in green, if colour is enabled.
    pub(crate) fn good(&self, text: &str) -> String {
        self.paint("32", text)
    }

    /// Returns `text` in red, if colour is enabled.
    pub(crate) fn bad(&self, text: &str) -> String {
        self.paint("31", text)
    }

    /// Returns `text` dimmed, if colour is enabled.
    pub(crate) fn dim(&self, text: &str) -> String {
        self.paint("2", text)
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.color { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

/// Prints a message on standard error. A closed standard error is ignored: it cannot be reported.
pub(crate) fn talk(text: &str) {
    let mut err = std::io::stderr().lock();
    let _ = err.write_all(text.as_bytes());
    let _ = err.write_all(b"\n");
}

/// A column of a printed table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    heading: &'static str,
    number: bool,
}

impl Column {
    /// Creates a column of text, aligned left.
    pub(crate) const fn text(heading: &'static str) -> Self {
        Self { heading, number: false }
    }

    /// Creates a column of numbers, aligned right.
    pub(crate) const fn number(heading: &'static str) -> Self {
        Self { heading, number: true }
    }
}

/// Formats a count: `1 move`, `2 moves`.
pub(crate) fn count_text(count: usize, one: &str, many: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {many}") }
}

/// Formats the bytes of a move: `-` for a leadership, and for a copy of unreported size.
pub(crate) fn moved_bytes_text(bytes: u64) -> String {
    if bytes == 0 { "-".to_owned() } else { bytes_text(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moves_without_known_bytes_show_none() {
        assert_eq!((&*moved_bytes_text(0), &*moved_bytes_text(2048)), ("-", "2.0 KiB"));
    }

    fn plain() -> Output {
        Output::plain(Format::Table)
    }

    #[test]
    fn json_is_indented_only_on_a_terminal() {
        let terminal = Output { terminal: true, ..Output::plain(Format::Json) };
        let text = |output: Output| output.json_text(&[1]).unwrap();
        assert_eq!(text(terminal), "[\n  1\n]");
        assert_eq!(text(Output { watching: true, ..terminal }), "[1]");
        assert_eq!(text(Output::plain(Format::Json)), "[1]");
    }

    #[test]
    fn numbers_are_right_aligned_and_text_left() {
        let columns = [Column::text("NAME"), Column::number("PARTITIONS")];
        let rows = vec![vec!["athens".to_owned(), "3".to_owned()], vec!["byzantium".to_owned(), "12".to_owned()]];
        let text = plain().grid(&columns, rows);
        assert_eq!(text, "NAME       PARTITIONS\nathens              3\nbyzantium          12");
    }

    #[test]
    fn colour_is_used_only_if_enabled() {
        assert_eq!(plain().bold("x"), "x");
        assert_eq!(Output { color: true, ..plain() }.bad("x"), "\u{1b}[31mx\u{1b}[0m");
    }
}

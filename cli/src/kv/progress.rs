//! Progress of an export or import on standard error: one changing line on a terminal, occasional lines elsewhere.

use crate::output::{Output, bytes_text};
use indicatif::{ProgressBar, ProgressStyle};
use std::time::{Duration, Instant};

/// Interval of lines without a terminal.
const SAID_EVERY: Duration = Duration::from_secs(10);
/// Interval of updates on a terminal.
const DRAWN_EVERY: Duration = Duration::from_millis(200);

/// Counts rows and prints the progress.
pub(super) struct Progress {
    verb: &'static str,
    bar: Option<ProgressBar>,
    /// Not printed for programs.
    quiet: bool,
    said: Instant,
    pub(super) rows: u64,
    pub(super) bytes: u64,
}

impl Progress {
    /// `verb` is the past participle of the action, such as `exported`.
    pub(super) fn new(verb: &'static str, output: &Output) -> Self {
        let bar = (output.stderr_is_terminal && !output.is_json()).then(|| {
            let style = ProgressStyle::with_template("{spinner} {wide_msg}");
            ProgressBar::new_spinner().with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()))
        });
        Self { verb, bar, quiet: output.is_json(), said: Instant::now(), rows: 0, bytes: 0 }
    }

    /// Adds rows, with their bytes of keys and values.
    pub(super) fn add(&mut self, rows: u64, bytes: usize) {
        self.rows += rows;
        self.bytes += bytes as u64;
        let every = if self.bar.is_some() { DRAWN_EVERY } else { SAID_EVERY };
        if self.quiet || self.said.elapsed() < every {
            return;
        }
        self.said = Instant::now();
        match &self.bar {
            Some(bar) => {
                bar.set_message(self.text());
                bar.tick();
            }
            None => crate::output::talk(&self.text()),
        }
    }

    /// Formats the progress: `exported 12 rows, 3.4 KiB`.
    pub(super) fn text(&self) -> String {
        let rows = if self.rows == 1 { "row" } else { "rows" };
        format!("{} {} {rows}, {}", self.verb, self.rows, bytes_text(self.bytes))
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

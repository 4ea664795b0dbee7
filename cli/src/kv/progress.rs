//! How far an export or import is, on standard error: one line that changes on a terminal, a line now and then elsewhere.

use crate::output::{Output, bytes_text};
use indicatif::{ProgressBar, ProgressStyle};
use std::time::{Duration, Instant};

/// How often it is said off a terminal.
const SAID_EVERY: Duration = Duration::from_secs(10);
/// How often it is drawn on one.
const DRAWN_EVERY: Duration = Duration::from_millis(200);

/// Counts rows, and says so.
pub(super) struct Progress {
    verb: &'static str,
    bar: Option<ProgressBar>,
    /// Nobody reads it: a program asked.
    quiet: bool,
    said: Instant,
    pub(super) rows: u64,
    pub(super) bytes: u64,
}

impl Progress {
    /// `verb` is what is done, as `exported`.
    pub(super) fn new(verb: &'static str, output: &Output) -> Self {
        let bar = (output.stderr_is_terminal && !output.is_json()).then(|| {
            let style = ProgressStyle::with_template("{spinner} {wide_msg}");
            ProgressBar::new_spinner().with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()))
        });
        Self { verb, bar, quiet: output.is_json(), said: Instant::now(), rows: 0, bytes: 0 }
    }

    /// Some more rows, of so many bytes of keys and values.
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

    /// `exported 12 rows, 3.4 KiB`.
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

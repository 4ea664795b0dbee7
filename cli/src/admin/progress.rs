//! How far a rebalance is: a bar on a terminal, a line per change elsewhere.

use super::Labels;
use crate::output::{Output, bytes_text, count_text};
use crate::view::{Rebalance, is_over};
use indicatif::{ProgressBar, ProgressStyle};
use std::collections::BTreeMap;
use std::time::Instant;

/// Shows how moves go on.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    started: Instant,
    /// What was said of each migration last, so that a line is printed only when something changed.
    said: BTreeMap<u64, String>,
    quiet: bool,
    /// Only endings are said: a bar, or the reader's patience, stands for the rest.
    endings_only: bool,
    labels: Labels,
}

impl Progress {
    /// For `moves` moves. With JSON on standard output nothing is said until the end.
    pub(crate) fn new(output: &Output, moves: usize, labels: Labels) -> Self {
        let bar = (output.talk_terminal && !output.is_json()).then(|| {
            let bar = ProgressBar::new(moves as u64 * 100);
            let style = ProgressStyle::with_template("{spinner} [{bar:30}] {percent:>3}%  {elapsed}  {wide_msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
            bar
        });
        let endings_only = bar.is_some();
        Self { bar, started: Instant::now(), said: BTreeMap::new(), quiet: output.is_json(), endings_only, labels }
    }

    /// For somebody who prints the endings, as [`Self::changes`] gives them, in a way of their own; times are counted from
    /// `started`.
    pub(crate) fn endings(started: Instant, labels: Labels) -> Self {
        Self { bar: None, started, said: BTreeMap::new(), quiet: true, endings_only: true, labels }
    }

    /// Says something beside the progress: above the bar, if there is one.
    pub(crate) fn say(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(text),
            None => crate::output::talk(text),
        }
    }

    /// Shows where things stand.
    pub(crate) fn show(&mut self, rebalance: &Rebalance) {
        for line in self.changes(rebalance) {
            match &self.bar {
                Some(bar) => bar.println(line),
                None if self.quiet => {}
                None => crate::output::talk(&line),
            }
        }
        if let Some(bar) = &self.bar {
            bar.set_length((rebalance.migrations.len() as u64).max(1) * 100);
            bar.set_position(rebalance.migrations.iter().map(|migration| u64::from(migration.percent.min(100))).sum());
            bar.set_message(summary(rebalance, &self.labels));
        }
    }

    /// Takes the bar away.
    pub(crate) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    /// A line for every migration of which there is something new to say.
    pub(crate) fn changes(&mut self, rebalance: &Rebalance) -> Vec<String> {
        let mut lines = Vec::new();
        for migration in &rebalance.migrations {
            if self.endings_only && !is_over(migration) {
                continue;
            }
            // Tens of percent: a long copy says something about ten times, not hundreds of times.
            let state = format!("{} {}", migration.phase, migration.percent / 10);
            if self.said.get(&migration.id) == Some(&state) {
                continue;
            }
            self.said.insert(migration.id, state);
            let size = match migration.bytes_total {
                0 => String::new(),
                total if migration.phase == "Done" => format!("  {}", bytes_text(total)),
                total if migration.phase == "Copying" => {
                    format!("  {} of {}", bytes_text(migration.bytes_done), bytes_text(total))
                }
                _ => String::new(),
            };
            // That a copy is copying has been said, and what a move that is done was for stood in the plan.
            let why = &migration.why;
            let told = why.is_empty() || migration.phase == "Done" || why.starts_with("copying to ");
            let why = if told { String::new() } else { format!("  ({})", migration.why) };
            lines.push(format!(
                "{:>6.1}s  {}  {} -> {}  {}  {}%{size}{why}",
                self.started.elapsed().as_secs_f64(),
                self.labels.of(migration.table_id, migration.partition),
                migration.from,
                migration.to,
                migration.phase,
                migration.percent,
            ));
        }
        lines
    }
}

fn summary(rebalance: &Rebalance, labels: &Labels) -> String {
    let over = rebalance.migrations.iter().filter(|migration| is_over(migration)).count();
    let all = count_text(rebalance.migrations.len(), "move", "moves");
    match rebalance.migrations.iter().find(|migration| !is_over(migration)) {
        Some(now) => {
            let partition = labels.of(now.table_id, now.partition);
            format!("{over} of {all} over; {partition} {} -> {}: {}", now.from, now.to, now.phase)
        }
        None => format!("{over} of {all} over"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Format;
    use crate::view::Migration;

    fn migration(phase: &str, percent: u32) -> Rebalance {
        Rebalance {
            running: true,
            migrations: vec![Migration {
                id: 1,
                table_id: 1,
                partition: 7,
                from: "athens".into(),
                to: "ephesus".into(),
                phase: phase.into(),
                percent,
                why: String::new(),
                bytes_done: 512,
                bytes_total: 1024,
                leadership: false,
            }],
        }
    }

    #[test]
    fn off_a_terminal_each_change_is_one_line() {
        let mut progress = Progress::new(&Output::plain(Format::Table), 1, Labels::default());
        assert_eq!(progress.changes(&migration("Copying", 1)).len(), 1);
        assert_eq!(progress.changes(&migration("Copying", 9)).len(), 0);
        let lines = progress.changes(&migration("Copying", 50));
        assert!(lines[0].ends_with("  1/7  athens -> ephesus  Copying  50%  512 B of 1.0 KiB"), "{lines:?}");
        let mut done = migration("Done", 100);
        done.migrations[0].why = "the node has 3, its share is 2".into();
        let lines = progress.changes(&done);
        assert!(lines[0].ends_with("Done  100%  1.0 KiB"), "{lines:?}");
    }
}

//! Progress of a rebalance: a bar on a terminal, a line per change elsewhere.

use crate::documents::Rebalance;
use crate::output::{Output, bytes_text, count_text};
use archon_client::{MovePhase, RebalanceSummary};
use indicatif::{ProgressBar, ProgressStyle};
use std::collections::BTreeMap;
use std::time::Instant;

/// Maximum number of moves that are reported individually; more are reported in one line.
const EACH_MAX: usize = 64;

/// Display of the progress of moves.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    started: Instant,
    /// Last report on each migration, so that a line is printed only for a change.
    last_reported: BTreeMap<u64, String>,
    quiet: bool,
    /// True if only completed moves are reported: a bar shows the rest, or the caller does not need it.
    completions_only: bool,
}

impl Progress {
    /// Returns true if `moves` moves are few enough to report each.
    pub(crate) const fn reports_each(moves: usize) -> bool {
        moves <= EACH_MAX
    }

    /// Creates the display. With JSON on standard output nothing is printed until the end.
    pub(crate) fn new(output: &Output) -> Self {
        let bar = (output.stderr_is_terminal && !output.is_json()).then(|| {
            let bar = ProgressBar::new(100);
            let style = ProgressStyle::with_template("{spinner} [{bar:30}] {percent:>3}%  {elapsed}  {wide_msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
            bar
        });
        let completions_only = bar.is_some();
        Self { bar, started: Instant::now(), last_reported: BTreeMap::new(), quiet: output.is_json(), completions_only }
    }

    /// Creates a display for a caller that prints the completed moves itself, from [`Self::changes`]; times are counted
    /// from `started`.
    pub(crate) fn completions_only(started: Instant) -> Self {
        Self { bar: None, started, last_reported: BTreeMap::new(), quiet: true, completions_only: true }
    }

    /// Prints a message beside the progress: above the bar, if there is one.
    pub(crate) fn say(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(text),
            None => crate::output::talk(text),
        }
    }

    /// Shows the present progress.
    pub(crate) fn show(&mut self, rebalance: &Rebalance) {
        for line in self.changes(rebalance) {
            match &self.bar {
                Some(bar) => bar.println(line),
                None if self.quiet => {}
                None => crate::output::talk(&line),
            }
        }
        if let Some(bar) = &self.bar {
            bar.set_length(100);
            bar.set_position(u64::from(rebalance.summary.percent));
            bar.set_message(message(rebalance));
        }
    }

    /// Removes the bar.
    pub(crate) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    /// Returns a line for every migration with a change; for many, one line for all of them.
    pub(crate) fn changes(&mut self, rebalance: &Rebalance) -> Vec<String> {
        let mut lines = Vec::new();
        let summary = &rebalance.summary;
        if rebalance.moves.is_empty() && summary.moves_total > 0 {
            // The bar already shows the percentage.
            let state = if self.completions_only { String::new() } else { format!("{}", summary.percent) };
            if !self.completions_only && self.last_reported.get(&0) != Some(&state) {
                let bytes = format!("{} of {}", bytes_text(summary.bytes_done), bytes_text(summary.bytes_total));
                let elapsed = self.started.elapsed().as_secs_f64();
                lines.push(format!("{elapsed:>6.1}s  {}  {}%  {bytes}", counts_text(summary), summary.percent));
            }
            self.last_reported.insert(0, state);
            return lines;
        }
        for moving in &rebalance.moves {
            if self.completions_only && !moving.is_over() {
                continue;
            }
            // Tens of percent: a long copy is reported about ten times, not hundreds of times.
            let state = format!("{} {}", moving.phase, moving.percent / 10);
            if self.last_reported.get(&moving.id) == Some(&state) {
                continue;
            }
            self.last_reported.insert(moving.id, state);
            let size = match (moving.bytes_total, moving.phase.known()) {
                (1.., Some(MovePhase::Done)) => format!("  {}", bytes_text(moving.bytes_total)),
                (1.., Some(MovePhase::Copying)) => {
                    format!("  {} of {}", bytes_text(moving.bytes_done), bytes_text(moving.bytes_total))
                }
                _ => String::new(),
            };
            // The copying state was already reported, and the reason of a completed move stood in the plan.
            let why = &moving.message;
            let told = why.is_empty() || moving.phase == MovePhase::Done || why.starts_with("copying to ");
            let why = if told { String::new() } else { format!("  ({why})") };
            lines.push(format!(
                "{:>6.1}s  {}  {} -> {}  {}  {}%{size}{why}",
                self.started.elapsed().as_secs_f64(),
                moving.partition_name(),
                moving.from,
                moving.to,
                moving.phase,
                moving.percent,
            ));
        }
        lines
    }
}

fn message(rebalance: &Rebalance) -> String {
    let counts = counts_text(&rebalance.summary);
    match rebalance.moves.iter().find(|moving| !moving.is_over()) {
        Some(now) => format!("{counts}; {} {} -> {}: {}", now.partition_name(), now.from, now.to, now.phase),
        None => counts,
    }
}

/// Describes the numbers of finished and running moves, and of those that did not reach their goal.
pub(in crate::admin) fn counts_text(summary: &RebalanceSummary) -> String {
    let running = summary.copying + summary.in_sync + summary.hand_over + summary.cleanup;
    let all = count_text(summary.moves_total as usize, "move", "moves");
    let without = match summary.failed + summary.cancelled {
        0 => String::new(),
        count => format!(", {count} failed or cancelled"),
    };
    format!("{} of {all} over{without}, {running} running", summary.over())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Format;
    use archon_client::{MoveKind, MoveStatus};

    fn moving(phase: MovePhase, percent: u32) -> Rebalance {
        Rebalance {
            running: true,
            summary: RebalanceSummary { moves_total: 1, copying: 1, percent, ..Default::default() },
            moves: vec![MoveStatus {
                id: 1,
                kind: MoveKind::Copy.into(),
                table_id: 1,
                table: "orders".into(),
                partition: 7,
                from_id: 1,
                from: "athens".into(),
                to_id: 4,
                to: "ephesus".into(),
                phase: phase.into(),
                percent,
                bytes_done: 512,
                bytes_total: 1024,
                message: String::new(),
            }],
            ..Rebalance::default()
        }
    }

    #[test]
    fn each_change_is_one_line_without_a_terminal() {
        let mut progress = Progress::new(&Output::plain(Format::Table));
        assert_eq!(progress.changes(&moving(MovePhase::Copying, 1)).len(), 1);
        assert_eq!(progress.changes(&moving(MovePhase::Copying, 9)).len(), 0);
        let lines = progress.changes(&moving(MovePhase::Copying, 50));
        assert!(lines[0].ends_with("  orders/7  athens -> ephesus  Copying  50%  512 B of 1.0 KiB"), "{lines:?}");
        let mut done = moving(MovePhase::Done, 100);
        done.moves[0].message = "the node has 3, its share is 2".into();
        let lines = progress.changes(&done);
        assert!(lines[0].ends_with("Done  100%  1.0 KiB"), "{lines:?}");
    }

    #[test]
    fn many_moves_are_reported_in_one_line() {
        let mut progress = Progress::new(&Output::plain(Format::Table));
        assert!(Progress::reports_each(64) && !Progress::reports_each(16_000));
        let stands = |done, percent| Rebalance {
            running: true,
            summary: RebalanceSummary {
                moves_total: 16_000,
                queued: 15_990 - done,
                copying: 10,
                done,
                percent,
                bytes_done: 512,
                bytes_total: 1024,
                ..Default::default()
            },
            ..Rebalance::default()
        };
        let lines = progress.changes(&stands(100, 1));
        let [line] = &lines[..] else { panic!("{lines:?}") };
        assert!(line.ends_with("s  100 of 16000 moves over, 10 running  1%  512 B of 1.0 KiB"), "{line}");
        assert_eq!(progress.changes(&stands(101, 1)), Vec::<String>::new());
        assert_eq!(progress.changes(&stands(400, 2)).len(), 1);
    }
}

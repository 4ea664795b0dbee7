//! Progress of a backup, its verification or its restore: a bar on a terminal, occasional lines elsewhere.

use crate::args::ProgressArgs;
use crate::output::{Output, bytes_text, talk};
use archon_backup::Progress;
use indicatif::{ProgressBar, ProgressStyle};
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval};

/// Interval of updates of the bar.
const DRAW_EVERY: Duration = Duration::from_millis(250);
/// Interval of lines.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// Runs some work and shows its progress.
pub(super) async fn shown<T>(
    work: impl Future<Output = T>,
    progress: &Progress,
    args: ProgressArgs,
    output: &Output,
) -> T {
    let draws = output.stderr_is_terminal && !output.is_json();
    if !draws && !args.progress {
        return work.await;
    }
    let bar = draws.then(|| {
        let style = ProgressStyle::with_template("{spinner} [{bar:30}] {wide_msg}");
        let bar = ProgressBar::new(0);
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
        bar
    });
    let mut ticks = interval(if draws { DRAW_EVERY } else { LINE_EVERY });
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut work = std::pin::pin!(work);
    let ended = loop {
        tokio::select! {
            ended = &mut work => break ended,
            _ = ticks.tick() => match &bar {
                Some(bar) => {
                    bar.set_length(progress.bytes_total().max(progress.bytes()).max(1));
                    bar.set_position(progress.bytes());
                    bar.set_message(text(progress));
                }
                None => talk(&text(progress)),
            },
        }
    };
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    ended
}

fn text(progress: &Progress) -> String {
    if let Some(waits_for) = progress.waiting_for() {
        return waits_for;
    }
    let (bytes, total) = (progress.bytes(), progress.bytes_total());
    let of = if total > 0 { format!(" of about {}", bytes_text(total.max(bytes))) } else { String::new() };
    let pace = bytes as f64 / progress.elapsed().as_secs_f64().max(0.001);
    let left = progress.left().map_or_else(String::new, |left| format!(", about {} s left", left.as_secs()));
    let again = match progress.begun_again() {
        0 => String::new(),
        again => format!(", {again} restarted"),
    };
    format!(
        "{}{of}, {} entries, {} files{again}, {}/s{left}",
        bytes_text(bytes),
        progress.entries(),
        progress.pieces(),
        bytes_text(pace as u64)
    )
}

//! `archon rebalance status`: moves, splits and merges.

use super::watch;
use crate::args::WatchArgs;
use crate::documents::Rebalance;
use crate::exit::{Exit, Failure};
use crate::output::{Column, Output, bytes_text, count_text};
use archon_client::{Admin, MovePhase, Reshaping, ReshapingKind};
use archon_types::text::shown_key;

/// Shows what is being moved.
pub(crate) async fn status(args: &WatchArgs, admin: &Admin, output: &Output) -> Result<Exit, Failure> {
    watch::show(args.watch, output, async |output: &Output| {
        let rebalance = admin.rebalance_status().await?;
        if output.is_json() { output.json_text(&rebalance) } else { Ok(status_rows(&rebalance, output)) }
    })
    .await
}

fn status_rows(rebalance: &Rebalance, output: &Output) -> String {
    match (rebalance.moves.is_empty(), rebalance.reshapings.is_empty()) {
        (_, true) => move_rows(rebalance, output),
        (true, false) => reshaping_rows(rebalance, output),
        (false, false) => format!("{}\n\n{}", move_rows(rebalance, output), reshaping_rows(rebalance, output)),
    }
}

/// Splits and merges under way.
fn reshaping_rows(rebalance: &Rebalance, output: &Output) -> String {
    let columns = [
        Column::text("PARTITION"),
        Column::text("BECOMES"),
        Column::text("PHASE"),
        Column::number("%"),
        Column::number("READY"),
        Column::text("WHY"),
    ];
    let rows = rebalance.reshapings.iter().map(|reshaping| {
        let Reshaping { copies_ready, copies_total, right, .. } = reshaping;
        let merge = reshaping.kind == ReshapingKind::Merge;
        vec![
            reshaping.partition_name(),
            if merge {
                format!("one with {right}")
            } else {
                format!("split, {right} from {}", shown_key(reshaping.at.as_bytes()))
            },
            reshaping.reshaping_phase.to_string(),
            if merge { "-".to_owned() } else { reshaping.percent.to_string() },
            if merge { "-".to_owned() } else { format!("{copies_ready} of {copies_total}") },
            reshaping.message.clone(),
        ]
    });
    let mut text = output.rows_text(&columns, rows.collect(), "");
    let more = rebalance.reshapings_total.saturating_sub(u32::try_from(rebalance.reshapings.len()).unwrap_or(u32::MAX));
    if more > 0 {
        text.push_str(&format!("\nand {more} more"));
    }
    text
}

fn move_rows(rebalance: &Rebalance, output: &Output) -> String {
    let columns = [
        Column::text("PARTITION"),
        Column::text("FROM"),
        Column::text("TO"),
        Column::text("PHASE"),
        Column::number("%"),
        Column::number("DONE"),
        Column::number("OF"),
        Column::text("WHY"),
    ];
    let rows = rebalance.moves.iter().map(|moving| {
        let phase = moving.phase.to_string();
        vec![
            moving.partition_name(),
            moving.from.clone(),
            moving.to.clone(),
            // One that lost its point is no failure.
            match moving.is_aborted() && moving.phase != MovePhase::Superseded {
                true => output.bad(&phase),
                false => phase,
            },
            moving.percent.to_string(),
            // What was copied for a move that was undone has been thrown away.
            if moving.is_aborted() { "-".to_owned() } else { bytes_text(moving.bytes_done) },
            bytes_text(moving.bytes_total),
            moving.message.clone(),
        ]
    });
    let none = rebalance.moves.is_empty();
    let mut text = output.rows_text(&columns, rows.collect(), "nothing is being moved, and nothing was");
    if !none {
        text.push('\n');
        text.push_str(&match under_way(rebalance) {
            0 => "not running".to_owned(),
            moves => format!("{} under way; {}", count_text(moves, "move", "moves"), way_out(rebalance)),
        });
    }
    text
}

/// What can be done about moves under way: those that have handed over are past stopping.
pub(super) fn way_out(rebalance: &Rebalance) -> &'static str {
    let summary = &rebalance.summary;
    let stop = summary.queued + summary.copying + summary.in_sync;
    match stop > 0 || summary.hand_over + summary.cleanup == 0 {
        true => "stop with: archon rebalance cancel",
        false => "handed over already, and about to end",
    }
}

/// How many moves have not ended.
pub(super) fn under_way(rebalance: &Rebalance) -> usize {
    let open = (rebalance.summary.moves_total - rebalance.summary.over()) as usize;
    if rebalance.running { open.max(1) } else { 0 }
}

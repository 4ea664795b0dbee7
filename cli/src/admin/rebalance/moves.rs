//! `archon rebalance status`: moves, splits and merges.

use crate::admin::watch;
use crate::args::WatchArgs;
use crate::documents::Rebalance;
use crate::exit::{Exit, Failure};
use crate::output::{Column, Output, bytes_text, count_text, moved_bytes_text};
use archon_client::{Admin, MovePhase, RangeChangeKind, RangeChangeStatus};

/// Shows the moves in progress.
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
        // Finished ones stand below those in progress.
        (false, false) if under_way(rebalance) == 0 => {
            format!("{}\n\n{}", reshaping_rows(rebalance, output), move_rows(rebalance, output))
        }
        (false, false) => format!("{}\n\n{}", move_rows(rebalance, output), reshaping_rows(rebalance, output)),
    }
}

/// Formats splits and merges in progress.
fn reshaping_rows(rebalance: &Rebalance, output: &Output) -> String {
    let columns = [
        Column::text("PARTITION"),
        Column::text("BECOMES"),
        Column::text("PHASE"),
        Column::number("READY"),
        Column::text("WHY"),
    ];
    let rows = rebalance.reshapings.iter().map(|reshaping| {
        let RangeChangeStatus { copies_ready, copies_total, right, at, .. } = reshaping;
        let (becomes, ready) = match reshaping.kind == RangeChangeKind::Merge {
            true => (format!("one with {right}"), "-".to_owned()),
            false => {
                let becomes = format!("split, {right} from {at}");
                (becomes, format!("{copies_ready} of {copies_total}"))
            }
        };
        let phase = reshaping.reshaping_phase.to_string();
        vec![reshaping.partition_name(), becomes, phase, ready, reshaping.message.clone()]
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
            // A superseded move is no failure.
            match moving.is_aborted() && moving.phase != MovePhase::Superseded {
                true => output.bad(&phase),
                false => phase,
            },
            moving.percent.to_string(),
            // Data copied for a move that was undone has been deleted.
            if moving.is_aborted() { "-".to_owned() } else { bytes_text(moving.bytes_done) },
            moved_bytes_text(moving.bytes_total),
            moving.message.clone(),
        ]
    });
    let none = rebalance.moves.is_empty();
    let mut text = output.rows_text(&columns, rows.collect(), "nothing is being moved, and nothing was");
    if !none {
        text.push('\n');
        text.push_str(&match under_way(rebalance) {
            0 => "no moves are under way".to_owned(),
            moves => format!("{} under way; {}", count_text(moves, "move", "moves"), way_out(rebalance)),
        });
    }
    text
}

/// Describes the ways to stop moves in progress: those that have handed over can no longer be stopped.
pub(super) fn way_out(rebalance: &Rebalance) -> &'static str {
    let summary = &rebalance.summary;
    let stop = summary.queued + summary.copying + summary.in_sync;
    match stop > 0 || summary.hand_over + summary.cleanup == 0 {
        true => "stop with: archon rebalance cancel",
        false => "handed over already, and about to end",
    }
}

/// Returns the number of moves that have not ended.
pub(in crate::admin) fn under_way(rebalance: &Rebalance) -> usize {
    let open = (rebalance.summary.moves_total - rebalance.summary.over()) as usize;
    if rebalance.running { open.max(1) } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Format;
    use archon_client::{MoveKind, MoveStatus, RangeChangePhase};

    #[test]
    fn splits_stand_above_a_finished_rebalance() {
        let split = RangeChangeStatus {
            table_id: 2,
            table: "times".into(),
            partition: 0,
            kind: RangeChangeKind::Split.into(),
            reshaping_phase: RangeChangePhase::Copying.into(),
            right: 1,
            at: archon_client::KeyText::new("x".repeat(4_096)),
            percent: 60,
            copies_total: 3,
            copies_ready: 2,
            waits_for: vec!["cyrene".into()],
            message: "waits for cyrene, which still copies the keys of times/1".into(),
        };
        let moved = MoveStatus {
            id: 1,
            kind: MoveKind::Copy.into(),
            table_id: 3,
            table: "orders".into(),
            partition: 4,
            from_id: 1,
            from: "athens".into(),
            to_id: 2,
            to: "byzantium".into(),
            phase: MovePhase::Done.into(),
            percent: 100,
            bytes_done: 9,
            bytes_total: 9,
            message: String::new(),
        };
        let rebalance = Rebalance { reshapings: vec![split], moves: vec![moved], ..Rebalance::default() };
        let text = status_rows(&rebalance, &Output::plain(Format::Table));
        let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part}: {text}"));
        assert!(at("times/0") < at("orders/"), "{text}");
        assert!(text.ends_with("no moves are under way") && text.contains("… (4096 bytes)"), "{text}");
        let splits = text.split("\n\n").next();
        assert!(splits.is_some_and(|splits| !splits.contains('%')), "nobody knows how far a replica is: {text}");
    }
}

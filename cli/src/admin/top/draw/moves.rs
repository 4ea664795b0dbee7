//! Running moves, a line each below one for all of them.

use super::super::model::Model;
use super::cells::{Column, line_of, put, put_row, span, width_of};
use super::theme::Theme;
use crate::admin::rebalance::progress::counts_text;
use crate::output::bytes_text;
use archon_client::MoveStatus;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;

/// Field of a move, the content of a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum MoveField {
    Partition,
    Way,
    Percent,
    Phase,
    Bytes,
    Why,
}

/// The columns with their minimum widths and possible growth, in order of urgency, which is also their order on the
/// screen.
const COLUMNS: [(Column<MoveField>, u16); 6] = [
    (Column::text(MoveField::Partition, 14), 12),
    (Column::text(MoveField::Way, 27), 24),
    (Column::number(MoveField::Percent, 4), 0),
    (Column::text(MoveField::Phase, 9), 2),
    (Column::text(MoveField::Bytes, 22), 4),
    (Column::text(MoveField::Why, 20), 80),
];

/// Draws the moves.
pub(super) fn draw(model: &Model, theme: Theme, area: Rect, buffer: &mut Buffer) {
    if area.is_empty() {
        return;
    }
    let line = vec![span(&format!("{:<12}", "moves"), theme.heading()), span(&summary(model), theme.plain())];
    put(Line::from(line), line_of(area, 0), buffer);
    let columns = columns(area.width);
    for (index, moving) in model.running().take(usize::from(area.height - 1)).enumerate() {
        let cell = |column: &Column<MoveField>| Line::from(span(&text(moving, column.shows), theme.plain()));
        put_row(&columns, cell, line_of(area, index + 1), buffer);
    }
}

/// Describes all of them together.
fn summary(model: &Model) -> String {
    let rebalance = &model.look().rebalance;
    let summary = &rebalance.summary;
    match (rebalance.running, summary.moves_total) {
        (false, 0) => "none, and none before".to_owned(),
        (false, _) => format!("none running: {}", counts_text(summary)),
        (true, _) => {
            let rate = model.copy_rate().filter(|rate| *rate > 0);
            let rate = rate.map_or_else(String::new, |rate| format!(", {} per second", bytes_text(rate)));
            let bytes = format!("{} of {}", bytes_text(summary.bytes_done), bytes_text(summary.bytes_total));
            format!("{}, {}%, {bytes}{rate}", counts_text(summary), summary.percent)
        }
    }
}

/// Returns the columns that fit.
fn columns(width: u16) -> Vec<Column<MoveField>> {
    let mut columns: Vec<Column<MoveField>> = Vec::new();
    for (column, _) in COLUMNS {
        columns.push(column);
        if width_of(&columns) > width && columns.len() > 1 {
            columns.pop();
            break;
        }
    }
    let mut left = width.saturating_sub(width_of(&columns));
    for (column, (_, growth)) in columns.iter_mut().zip(COLUMNS) {
        let more = growth.min(left);
        column.width += more;
        left -= more;
    }
    columns
}

fn text(moving: &MoveStatus, shows: MoveField) -> String {
    match shows {
        MoveField::Partition => moving.partition_name(),
        MoveField::Way => format!("{} → {}", moving.from, moving.to),
        MoveField::Percent => format!("{}%", moving.percent),
        MoveField::Phase => moving.phase.to_string(),
        MoveField::Bytes if moving.bytes_total == 0 => "-".to_owned(),
        MoveField::Bytes => format!("{} of {}", bytes_text(moving.bytes_done), bytes_text(moving.bytes_total)),
        MoveField::Why => moving.message.clone(),
    }
}

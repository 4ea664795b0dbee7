//! Operations per second that the nodes answer, now and over the last minutes.

use super::super::model::Model;
use super::cells::{line_of, number_text, put, span};
use super::theme::Theme;
use crate::admin::short_time;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::{Sparkline, SparklineBar, Widget};
use std::time::Duration;

/// Draws it: a line of text, and the chart below.
pub(super) fn draw(model: &Model, now: Duration, theme: Theme, area: Rect, buffer: &mut Buffer) {
    let Some(below) = area.height.checked_sub(1) else { return };
    let columns = model.rates(now, area.width);
    let text = match (model.rate(), columns.most) {
        (Some(rate), Some(most)) => {
            let (rate, most) = (number_text(rate), number_text(most));
            format!("{rate} per second, up to {most} in the last {}", short_time(columns.length))
        }
        (Some(rate), None) => format!("{} per second", number_text(rate)),
        (None, _) => "no report yet".to_owned(),
    };
    let line = vec![span(&format!("{:<12}", "operations"), theme.heading()), span(&text, theme.plain())];
    put(Line::from(line), line_of(area, 0), buffer);
    // At least one, so that an idle cluster is flat.
    let highest = columns.rates.iter().flatten().copied().max().unwrap_or(0).max(1);
    let bars: Vec<SparklineBar> = columns.rates.into_iter().map(SparklineBar::from).collect();
    let picture = Sparkline::default().data(bars).max(highest).absent_value_symbol(" ");
    let area = Rect { y: area.y + 1, height: below, ..area };
    picture.style(theme.good()).render(area.intersection(buffer.area), buffer);
}

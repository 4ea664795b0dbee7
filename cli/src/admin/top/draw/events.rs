//! Latest events, newest last.

use super::super::model::Model;
use super::cells::{line_of, put, span};
use super::theme::Theme;
use crate::admin::short_time;
use archon_client::Event;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;
use std::time::Duration;

/// Draws as many as fit.
pub(super) fn draw(model: &Model, now: Duration, theme: Theme, area: Rect, buffer: &mut Buffer) {
    let Some(room) = area.height.checked_sub(1) else { return };
    let events = &model.look().events;
    let what = if events.is_empty() { "none yet" } else { "newest last" };
    let line = vec![span(&format!("{:<12}", "events"), theme.heading()), span(what, theme.dim())];
    put(Line::from(line), line_of(area, 0), buffer);
    let seen = &events[events.len().saturating_sub(room.into())..];
    for (index, event) in seen.iter().enumerate() {
        put(text(model, event, now, theme), line_of(area, index + 1), buffer);
    }
}

fn text(model: &Model, event: &Event, now: Duration, theme: Theme) -> Line<'static> {
    let Event { at_ms, by, subject, message, .. } = event;
    let age = model.age(*at_ms, now).map_or_else(String::new, |age| format!("{} ago", short_time(age)));
    Line::from(vec![
        span(&format!("{age:>10}  "), theme.dim()),
        span(&format!("{subject}: {message}"), theme.plain()),
        span(&format!("  ({by})"), theme.dim()),
    ])
}

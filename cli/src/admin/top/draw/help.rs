//! Help: keys and columns.

use super::cells::{line_of, put, span};
use super::theme::Theme;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;

const KEYS: [(&str, &str); 6] = [
    ("s", "sort the nodes by the next thing; ▾ marks it"),
    ("up, down", "one node up or down, as k and j do"),
    ("PgUp, PgDn", "a page up or down"),
    ("Home, End", "to the first or last node"),
    ("?", "this help, or away with it"),
    ("q, Esc, Ctrl-C", "close this help, or quit"),
];
const MEANINGS: [(&str, &str); 7] = [
    ("LED", "partitions, or leases, that a node leads"),
    ("COPIES", "replicas that it holds, leases of a participant"),
    ("DATA", "bytes stored, by its last report"),
    ("OPS/S", "operations that it answered in its last second"),
    ("LOAD", "replicas in percent of its fair share by weight"),
    ("", "at │ in the middle of the bar; >9x: ten times that"),
    ("-", "unknown, or not taking part"),
];

/// Draws it.
pub(super) fn draw(theme: Theme, area: Rect, buffer: &mut Buffer) {
    let explained = |(what, meaning): &(&str, &str)| {
        Line::from(vec![span(&format!("  {what:<16}"), theme.heading()), span(meaning, theme.plain())])
    };
    let heading = |text: &str| Line::from(span(text, theme.heading()));
    let mut lines = vec![heading("Keys")];
    lines.extend(KEYS.iter().map(explained));
    lines.extend([Line::default(), heading("Legend")]);
    lines.extend(MEANINGS.iter().map(explained));
    lines.extend([
        Line::default(),
        Line::from("For details: `archon status`, `archon node describe NAME`,"),
        Line::from("`archon rebalance status`, `archon events`; for faults: `archon check`."),
    ]);
    for (index, line) in lines.into_iter().enumerate().take(area.height.into()) {
        put(line, line_of(area, index), buffer);
    }
}

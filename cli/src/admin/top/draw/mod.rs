//! The screen, from top to bottom: the state of the cluster, its throughput, its nodes, its moves, and the latest
//! events.
//!
//! Drawing is a function of the model and the time into a buffer. No information is shown by colour alone.

mod cells;
mod events;
mod header;
mod heights;
mod help;
mod moves;
mod nodes;
#[cfg(test)]
mod tests;
mod theme;
mod throughput;

use super::model::Model;
use heights::{Heights, RowCounts};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use std::time::Duration;
use theme::Theme;

/// Draws the model as of `now`.
pub(super) fn draw(model: &Model, now: Duration, area: Rect, buffer: &mut Buffer) {
    let area = area.intersection(buffer.area);
    if area.is_empty() {
        return;
    }
    let theme = Theme::new(model.output());
    if model.helps() {
        return help::draw(theme, area, buffer);
    }
    let heights = heights(model, area.height);
    let mut rest = area;
    let mut part = |height: u16| {
        let (part, below) = (Rect { height, ..rest }, rest.height - height);
        rest = Rect { y: rest.y + height, height: below, ..rest };
        part
    };
    let page = usize::from(nodes::rows(heights.nodes));
    header::draw(model, now, theme, page, part(heights.header), buffer);
    throughput::draw(model, now, theme, part(heights.throughput), buffer);
    nodes::draw(model, theme, part(heights.nodes), buffer);
    moves::draw(model, theme, part(heights.moves), buffer);
    events::draw(model, now, theme, part(heights.events), buffer);
}

/// Returns the number of nodes visible at once on a terminal of this height.
pub(super) fn page(model: &Model, height: u16) -> usize {
    usize::from(nodes::rows(heights(model, height).nodes))
}

fn heights(model: &Model, height: u16) -> Heights {
    let look = model.look();
    let wants = RowCounts {
        reasons: look.status.reasons.len(),
        nodes: look.nodes.len(),
        moves: model.running().count(),
        events: look.events.len(),
    };
    Heights::new(height, wants)
}

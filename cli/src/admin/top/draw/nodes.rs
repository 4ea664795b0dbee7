//! The nodes, a line each: only visible ones are drawn.

use super::super::model::Model;
use super::super::order::Order;
use super::cells::{Column, line_of, number_text, put, put_row, span, width_of};
use super::theme::Theme;
use crate::admin::status::not_serving;
use crate::documents::Node;
use crate::output::bytes_text;
use archon_client::NodeStatus;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

/// Field of a node, the content of a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum NodeField {
    Name,
    Status,
    Zone,
    Led,
    Copies,
    Data,
    Rate,
    Load,
}

/// The columns with their minimum widths, in order of urgency: a narrow terminal omits the last ones.
const URGENT: [Column<NodeField>; 8] = [
    Column::text(NodeField::Name, 12),
    Column::text(NodeField::Status, 13),
    Column::number(NodeField::Copies, 7),
    Column::number(NodeField::Led, 5),
    Column::number(NodeField::Rate, 7),
    Column::text(NodeField::Load, 13),
    Column::number(NodeField::Data, 10),
    Column::text(NodeField::Zone, 6),
];
/// Order of the columns on the screen, and possible growth of each.
const PLACES: [(NodeField, u16); 8] = [
    (NodeField::Name, 20),
    (NodeField::Status, 14),
    (NodeField::Zone, 14),
    (NodeField::Led, 2),
    (NodeField::Copies, 2),
    (NodeField::Data, 2),
    (NodeField::Rate, 2),
    (NodeField::Load, 47),
];
/// Width of `999%` and the space before the bar.
const PERCENT_WIDTH: u16 = 6;

/// Returns the number of nodes visible in `height` lines.
pub(super) const fn rows(height: u16) -> u16 {
    height.saturating_sub(1)
}

/// Draws headings and nodes.
pub(super) fn draw(model: &Model, theme: Theme, area: Rect, buffer: &mut Buffer) {
    if area.is_empty() {
        return;
    }
    let columns = columns(area.width);
    put_row(
        &columns,
        |column| Line::from(span(&heading(column.shows, model.order()), theme.heading())),
        line_of(area, 0),
        buffer,
    );
    let (_, nodes) = model.nodes(usize::from(rows(area.height)));
    for (index, node) in nodes.iter().enumerate() {
        let cell = |column: &Column<NodeField>| Line::from(cell(model, node, column, theme));
        put_row(&columns, cell, line_of(area, index + 1), buffer);
    }
    if model.look().nodes.is_empty() {
        let none = "no node has registered yet; start one: `archon node --help`";
        put(Line::from(span(none, theme.bad())), line_of(area, 1), buffer);
    }
}

/// Returns the columns that fit.
fn columns(width: u16) -> Vec<Column<NodeField>> {
    let mut urgent: Vec<Column<NodeField>> = Vec::new();
    for column in URGENT {
        urgent.push(column);
        // The name is always there, and cut if needed.
        if width_of(&urgent) > width && urgent.len() > 1 {
            urgent.pop();
            break;
        }
    }
    let mut left = width.saturating_sub(width_of(&urgent));
    let placed = PLACES.iter().filter_map(|(shows, growth)| {
        let column = urgent.iter().find(|column| column.shows == *shows)?;
        let more = (*growth).min(left);
        left -= more;
        Some(Column { width: column.width + more, ..*column })
    });
    placed.collect()
}

/// Returns the heading of a column, with a mark if the nodes are sorted by it.
fn heading(shows: NodeField, order: Order) -> String {
    let (word, by) = match shows {
        NodeField::Name => ("NODE", Some(Order::Name)),
        NodeField::Status => ("STATUS", Some(Order::Status)),
        NodeField::Zone => ("ZONE", None),
        NodeField::Led => ("LED", Some(Order::Led)),
        NodeField::Copies => ("COPIES", Some(Order::Copies)),
        NodeField::Data => ("DATA", Some(Order::Data)),
        NodeField::Rate => ("OPS/S", Some(Order::Operations)),
        NodeField::Load => ("LOAD", Some(Order::Load)),
    };
    let mark = if by == Some(order) { "▾" } else { "" };
    format!("{word}{mark}")
}

fn cell(model: &Model, node: &Node, column: &Column<NodeField>, theme: Theme) -> Span<'static> {
    let unknown = || "-".to_owned();
    let text = match column.shows {
        NodeField::Name => return span(&node.name, status_style(node, theme)),
        NodeField::Status => return span(&status_text(node), status_style(node, theme)),
        NodeField::Zone => node.zone.clone().unwrap_or_else(unknown),
        NodeField::Led => number_text(node.partitions_led.into()),
        NodeField::Copies => number_text(node.copies_held.into()),
        NodeField::Data => node.bytes_stored.map_or_else(unknown, bytes_text),
        NodeField::Rate => node.operations_per_second.map_or_else(unknown, number_text),
        NodeField::Load => match model.shares().percent(node) {
            Some(percent) => load_text(percent, column.width),
            None => format!("{:>4}", "-"),
        },
    };
    span(&text, theme.plain())
}

fn status_text(node: &Node) -> String {
    let status = not_serving(node).unwrap_or_else(|| node.status.as_str());
    if node.disk_full { format!("disk full, {status}") } else { status.to_owned() }
}

fn status_style(node: &Node, theme: Theme) -> Style {
    match (node.status.known(), node.disk_full) {
        (Some(NodeStatus::Alive), false) if not_serving(node).is_some() => theme.notable(),
        (Some(NodeStatus::Alive), false) => theme.plain(),
        _ => theme.bad(),
    }
}

/// Formats the percentage of the fair share, and a bar with the fair share in its middle: ` 75% ███▌│   `.
fn load_text(percent: u64, width: u16) -> String {
    const EIGHTHS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let number = if percent > 999 { ">9x".to_owned() } else { format!("{percent}%") };
    let bar = u64::from(width.saturating_sub(PERCENT_WIDTH));
    // The full bar is twice the fair share.
    let filled = (percent.min(200) * bar * 8).div_ceil(200);
    let cell = |at: u64| match filled.saturating_sub(at * 8) {
        _ if at == bar / 2 => '│',
        left @ 0..8 => EIGHTHS[left as usize],
        _ => '█',
    };
    format!("{number:>4} {}", (0..bar).map(cell).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::testing::node;
    use archon_client::NodeGoal;

    #[test]
    fn urgent_columns_remain_on_narrow_terminals() {
        let widths = |width| width_of(&columns(width));
        assert_eq!((columns(80).len(), widths(80)), (8, 80));
        assert_eq!((columns(200).len(), widths(200)), (8, 183));
        let names: Vec<NodeField> = columns(40).iter().map(|column| column.shows).collect();
        assert_eq!(names, [NodeField::Name, NodeField::Status, NodeField::Led, NodeField::Copies]);
        assert_eq!(columns(3).len(), 1);
    }

    #[test]
    fn bar_has_the_fair_share_in_its_middle() {
        assert_eq!(load_text(0, 13), "  0%    │   ");
        assert_eq!(load_text(50, 13), " 50% █▊ │   ");
        assert_eq!(load_text(100, 13), "100% ███│   ");
        assert_eq!(load_text(150, 13), "150% ███│█▎ ");
        assert_eq!(load_text(200, 13), "200% ███│███");
        assert_eq!(load_text(5_000, 13), " >9x ███│███");
        assert_eq!(load_text(100, 2), "100% ");
    }

    #[test]
    fn faults_are_shown_in_words() {
        let failed = Node { status: NodeStatus::Failed.into(), ..node(1, "athens", 3) };
        let drained = Node { goal: NodeGoal::Drain.into(), ..node(1, "athens", 3) };
        let full = Node { disk_full: true, ..node(1, "athens", 3) };
        let found = [&failed, &drained, &full, &node(1, "athens", 3)].map(status_text);
        assert_eq!(found, ["failed", "being drained", "disk full, alive", "alive"]);
    }
}

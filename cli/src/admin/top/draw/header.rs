//! State of the cluster in the words of `archon status`: quorum, partitions, nodes, and the reasons of waits.

use super::super::model::Model;
use super::cells::{line_of, put, put_both, span};
use super::heights::HEADER;
use super::theme::Theme;
use crate::admin::reasons::sentence_about;
use crate::admin::status::{nodes_line, partitions_line, quorum};
use crate::documents::{Node, Status};
use crate::output::{Output, count_text};
use archon_client::{CoordinatorRole, Reason, Severity};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Line;
use std::time::Duration;

/// Draws it; `page` nodes are visible below.
pub(super) fn draw(model: &Model, now: Duration, theme: Theme, page: usize, area: Rect, buffer: &mut Buffer) {
    let status = &model.look().status;
    let words = Output { color: false, ..*model.output() };
    let labelled = |label: &str, text: &str, style: Style| {
        Line::from(vec![span(&format!("{label:<12}"), theme.heading()), span(text, style)])
    };
    let keys = Line::from(span("? help, q quits", theme.dim()));
    put_both(title(model, now, theme), keys, line_of(area, 0), buffer);
    put(labelled("quorum", &quorum_text(status, &words), quorum_style(status, theme)), line_of(area, 1), buffer);
    let nodes: Vec<&Node> = model.look().nodes.iter().filter(|node| !node.is_participant()).collect();
    let whole = status.partitions_online == status.partitions_total && status.partitions_under_replicated == 0;
    let style = if whole { theme.good() } else { theme.bad() };
    put(labelled("partitions", &partitions_line(status, &nodes, &words), style), line_of(area, 2), buffer);
    let all_there = status.nodes_failed == 0 && status.nodes_alive >= status.nodes_min;
    let style = if all_there { theme.plain() } else { theme.bad() };
    let place = Line::from(span(&place(model, page), theme.dim()));
    put_both(labelled("nodes", &nodes_line(status, &words), style), place, line_of(area, 3), buffer);
    draw_reasons(model, now, theme, area, buffer);
}

fn title(model: &Model, now: Duration, theme: Theme) -> Line<'static> {
    let (text, style) = match model.silence(now) {
        Some((silent, reason)) => (format!("no answer for {} s: {reason}", silent.as_secs()), theme.bad()),
        None => {
            let Status { cluster_id, table_version, .. } = &model.look().status;
            (format!("{cluster_id}, table version {table_version}"), theme.plain())
        }
    };
    Line::from(vec![span(&format!("{:<12}", "cluster"), theme.heading()), span(&text, style)])
}

/// Describes the leader, and the coordinators that are away or accept nothing new, by number and address.
fn quorum_text(status: &Status, words: &Output) -> String {
    let mut text = quorum(status, words);
    for coordinator in &status.coordinators {
        let says = match (coordinator.role == CoordinatorRole::Unreachable, &coordinator.lack) {
            (true, _) => "is away",
            (false, Some(_)) => "appends nothing",
            (false, None) => continue,
        };
        text.push_str(&format!("; {} at {} {says}", coordinator.id, coordinator.address));
    }
    text
}

fn quorum_style(status: &Status, theme: Theme) -> Style {
    let lacks = status
        .coordinators
        .iter()
        .any(|coordinator| coordinator.role == CoordinatorRole::Unreachable || coordinator.lack.is_some());
    if status.leader_id.is_none() || lacks { theme.bad() } else { theme.plain() }
}

/// Describes the visible nodes, and their order.
fn place(model: &Model, page: usize) -> String {
    let (first, seen) = model.nodes(page);
    let (all, order) = (model.look().nodes.len(), model.order().word());
    match seen.len() {
        0 => format!("{all} by {order}"),
        count => format!("{} to {} of {all}, by {order}", first + 1, first + count),
    }
}

/// Draws as many reasons as fit; the rest is counted.
fn draw_reasons(model: &Model, now: Duration, theme: Theme, area: Rect, buffer: &mut Buffer) {
    let reasons = &model.look().status.reasons;
    let room = usize::from(area.height.saturating_sub(HEADER));
    let shown = if reasons.len() > room { room.saturating_sub(1) } else { reasons.len() };
    let line = |reason: &Reason| {
        let age = reason.began_at_ms.and_then(|at_ms| model.age(at_ms, now));
        let style = if reason.severity == Severity::Notice { theme.plain() } else { theme.bad() };
        Line::from(vec![
            span(&format!("{:<12}", "waiting"), theme.heading()),
            span(&reason.code.to_string(), style),
            span(&format!(": {}", sentence_about(reason, age)), theme.plain()),
        ])
    };
    let below = |index: usize| line_of(area, usize::from(HEADER) + index);
    for (index, reason) in reasons.iter().take(shown).enumerate() {
        put(line(reason), below(index), buffer);
    }
    if shown < reasons.len() {
        let more = count_text(reasons.len() - shown, "reason", "reasons");
        let line = span(&format!("{:<12}{more} more: `archon status`", ""), theme.bad());
        put(Line::from(line), below(shown), buffer);
    }
}

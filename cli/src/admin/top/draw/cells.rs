//! Placement of text: lines, and cells of columns. Text that does not fit ends with `…`, and foreign text cannot
//! control the terminal.

use archon_types::plain;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::Widget;

/// Space between two columns.
const GAP: u16 = 1;

/// Creates a part of a line. Foreign text is escaped.
pub(super) fn span(text: &str, style: Style) -> Span<'static> {
    Span::styled(plain(text).into_owned(), style)
}

/// Draws a line at the top of the area.
pub(super) fn put(line: Line<'static>, area: Rect, buffer: &mut Buffer) {
    let area = Rect { height: 1, ..area }.intersection(buffer.area);
    let Some(inner) = area.width.checked_sub(1) else { return };
    if area.is_empty() || line.width() <= usize::from(area.width) {
        return line.render(area, buffer);
    }
    // Always left-aligned: the first digits of a number matter, and the sign shows that there are more.
    line.left_aligned().render(Rect { width: inner, ..area }, buffer);
    if let Some(cell) = buffer.cell_mut((area.x + inner, area.y)) {
        cell.set_symbol("…");
    }
}

/// Draws a line at the top of the area, with another one at its right end if both fit.
pub(super) fn put_both(left: Line<'static>, right: Line<'static>, area: Rect, buffer: &mut Buffer) {
    let fits = left.width() + usize::from(GAP) + right.width() <= usize::from(area.width);
    put(left, area, buffer);
    if fits {
        let width = u16::try_from(right.width()).unwrap_or(area.width);
        put(right, Rect { x: area.right() - width, width, ..area }, buffer);
    }
}

/// Returns a line of the area, counted from its top; empty beyond its end.
pub(super) fn line_of(area: Rect, index: usize) -> Rect {
    let below = u16::try_from(index).unwrap_or(u16::MAX).min(area.height);
    Rect { y: area.y.saturating_add(below), height: (area.height - below).min(1), ..area }
}

/// A column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Column<T> {
    /// Its content.
    pub(super) shows: T,
    /// Its width.
    pub(super) width: u16,
    /// True if it is aligned right.
    pub(super) number: bool,
}

impl<T> Column<T> {
    /// Creates a column of text.
    pub(super) const fn text(shows: T, width: u16) -> Self {
        Self { shows, width, number: false }
    }

    /// Creates a column of numbers.
    pub(super) const fn number(shows: T, width: u16) -> Self {
        Self { shows, width, number: true }
    }
}

/// Draws a row of cells, one per column, at the top of the area.
pub(super) fn put_row<T>(
    columns: &[Column<T>],
    mut cell: impl FnMut(&Column<T>) -> Line<'static>,
    area: Rect,
    buffer: &mut Buffer,
) {
    let mut x = area.x;
    for column in columns.iter().filter(|_| !area.is_empty()) {
        let width = column.width.min(area.right().saturating_sub(x));
        if width == 0 {
            return;
        }
        let line = cell(column);
        let line = if column.number { line.right_aligned() } else { line.left_aligned() };
        put(line, Rect { x, width, ..area }, buffer);
        x = x.saturating_add(width).saturating_add(GAP);
    }
}

/// Returns the width of columns side by side.
pub(super) fn width_of<T>(columns: &[Column<T>]) -> u16 {
    let widths = columns.iter().map(|column| column.width.saturating_add(GAP));
    widths.fold(0, u16::saturating_add).saturating_sub(GAP)
}

/// Formats a number in at most seven places, up to a billion billions: `0`, `999999`, `1.2M`, `18446744T`.
pub(super) fn number_text(number: u64) -> String {
    const UNITS: [&str; 3] = ["M", "G", "T"];
    if number < 1_000_000 {
        return number.to_string();
    }
    let mut value = number as f64 / 1e6;
    let mut unit = 0;
    while value >= 1_000.0 && unit + 1 < UNITS.len() {
        value /= 1_000.0;
        unit += 1;
    }
    let places = usize::from(value < 1_000.0);
    format!("{value:.places$}{}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(line: &str, width: u16, number: bool) -> String {
        let mut buffer = Buffer::empty(Rect::new(0, 0, width + 2, 1));
        let columns = [if number { Column::number((), width) } else { Column::text((), width) }];
        put_row(&columns, |_| Line::from(span(line, Style::new())), buffer.area, &mut buffer);
        (0..width).map(|x| buffer[(x, 0)].symbol().to_owned()).collect()
    }

    #[test]
    fn cut_text_is_marked_and_numbers_keep_first_digits() {
        assert_eq!(drawn("athens", 8, false), "athens  ");
        assert_eq!(drawn("athens", 8, true), "  athens");
        assert_eq!(drawn("athens", 6, true), "athens");
        assert_eq!(drawn("athens", 5, false), "athe…");
        assert_eq!(drawn("123456", 4, true), "123…");
        assert_eq!(drawn("athens", 1, false), "…");
    }

    #[test]
    fn wide_characters_are_not_cut_in_half_and_controls_are_escaped() {
        assert_eq!(drawn("雅典", 4, false), "雅 典 ");
        assert_eq!(drawn("雅典娜", 5, false), "雅 典 …");
        // The second character would half overlap the sign.
        assert_eq!(drawn("雅典娜", 4, false), "雅  …");
        assert_eq!(drawn("a\u{1b}[2Jb\n", 20, false).trim_end(), "a\\u{1b}[2Jb\\n");
    }

    #[test]
    fn numbers_are_short() {
        let found: Vec<String> = [0, 999_999, 1_000_000, 12_345_678, 9_876_000_000, u64::MAX].map(number_text).into();
        assert_eq!(found, ["0", "999999", "1.0M", "12.3M", "9.9G", "18446744T"]);
    }

    #[test]
    fn lines_end_with_their_area() {
        let area = Rect::new(3, 4, 10, 2);
        assert_eq!(line_of(area, 1), Rect::new(3, 5, 10, 1));
        assert!(line_of(area, 2).is_empty() && line_of(area, usize::MAX).is_empty());
    }
}

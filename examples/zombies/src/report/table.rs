//! A table of text.

use std::fmt::{self, Write as _};

/// Rows of cells; the first row is the header.
pub(super) struct Table(Vec<Vec<String>>);

impl Table {
    pub(super) fn new<const N: usize>(head: [&str; N]) -> Self {
        Self(vec![head.map(str::to_owned).into()])
    }

    pub(super) fn add(&mut self, row: impl IntoIterator<Item = String>) {
        self.0.push(row.into_iter().collect());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.0.iter().map(Vec::len).max().unwrap_or(0);
        let width =
            |column: usize| self.0.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
        let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
        for row in &self.0 {
            let mut line = String::from(" ");
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                // Words to the left, numbers to the right.
                match column {
                    0 => write!(line, " {cell:<width$}")?,
                    _ => write!(line, "   {cell:>width$}")?,
                }
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// Formats a number with its significant digits.
pub(super) fn number(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        1_000.0.. => thousands(value.round() as u64),
        100.0.. => format!("{value:.0}"),
        1.0.. => format!("{value:.1}"),
        0.001.. => format!("{value:.4}").trim_end_matches('0').to_owned(),
        _ => format!("{value:.1e}"),
    }
}

/// Formats a count, in groups of three digits.
pub(super) fn thousands(count: u64) -> String {
    let digits = count.to_string();
    let group = |(at, digit): (usize, char)| {
        let comma = at > 0 && (digits.len() - at).is_multiple_of(3);
        comma.then_some(',').into_iter().chain([digit])
    };
    digits.chars().enumerate().flat_map(group).collect()
}

pub(super) fn percent(share: f64) -> String {
    match share * 100.0 {
        0.0 => "0 %".to_owned(),
        percent if percent < 0.01 => "< 0.01 %".to_owned(),
        percent if percent < 1.0 => format!("{percent:.2} %"),
        percent if percent < 99.0 => format!("{percent:.0} %"),
        percent => format!("{percent:.1} %"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_significant_digits_only() {
        let found = [0.0, 25_000.4, 249.7, 62.31, 0.16, 0.0153, 2.3e-5].map(number);
        assert_eq!(found, ["0", "25,000", "250", "62.3", "0.16", "0.0153", "2.3e-5"]);
        assert_eq!([1, 999, 1_000, 1_234_567].map(thousands), ["1", "999", "1,000", "1,234,567"]);
        let found = [0.0, 2e-5, 0.003, 0.38, 0.9968, 1.0].map(percent);
        assert_eq!(found, ["0 %", "< 0.01 %", "0.30 %", "38 %", "99.7 %", "100.0 %"]);
    }

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new(["", "1"]);
        table.add(["z²/n".to_owned(), "250".to_owned()]);
        assert_eq!(table.to_string(), "           1\n  z²/n   250\n");
    }
}

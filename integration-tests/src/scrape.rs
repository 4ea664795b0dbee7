//! Parser of a member's `/metrics`, as a scraper reads it.

use std::collections::BTreeMap;

/// Series by name with labels (`name{label="value"}`), in the older text format.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Scrape {
    /// Values by series.
    pub series: BTreeMap<String, f64>,
    /// Kinds by metric name.
    pub kinds: BTreeMap<String, String>,
}

impl Scrape {
    /// Parses the older text format.
    ///
    /// # Errors
    /// A malformed line, or a series or kind that occurs twice.
    pub fn read(text: &str) -> Result<Self, String> {
        let mut found = Self::default();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').ok_or_else(|| format!("no kind: {line:?}"))?;
                if found.kinds.insert(name.to_owned(), kind.to_owned()).is_some() {
                    return Err(format!("{name} is described twice"));
                }
            } else if !line.starts_with('#') {
                let (series, value) = line.rsplit_once(' ').ok_or_else(|| format!("no series: {line:?}"))?;
                let value = value.parse().map_err(|_| format!("no number: {line:?}"))?;
                if found.series.insert(series.to_owned(), value).is_some() {
                    return Err(format!("{series} is told twice"));
                }
            }
        }
        Ok(found)
    }

    /// Returns the value of a series; zero if absent.
    pub fn get(&self, series: &str) -> f64 {
        self.series.get(series).copied().unwrap_or(0.0)
    }
}

/// Splits a series into name and labels.
pub fn parted(series: &str) -> (&str, Vec<(&str, &str)>) {
    let Some((name, labels)) = series.split_once('{') else { return (series, Vec::new()) };
    let labels = labels.trim_end_matches('}').split(',').filter_map(|label| label.split_once('='));
    (name, labels.map(|(label, value)| (label, value.trim_matches('"'))).collect())
}

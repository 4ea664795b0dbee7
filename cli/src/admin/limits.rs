//! Limits of a table in words.

use crate::output::bytes_text;
use archon_client::TableSummary;

/// Describes the limits of automatic splits and merges, if any.
pub(crate) fn limits_text(table: &TableSummary) -> Option<String> {
    let split = split_text(table).map(|above| format!("split above {above}"));
    let merged = table.merge_below_bytes.map(|bytes| format!("merged below {}", bytes_text(bytes)));
    let limits: Vec<String> = split.into_iter().chain(merged).collect();
    (!limits.is_empty()).then(|| limits.join(" and "))
}

/// Describes the limits above which partitions are split automatically, if any.
pub(crate) fn split_text(table: &TableSummary) -> Option<String> {
    let bytes = table.split_above_bytes.map(bytes_text);
    let rate = table.split_above_rate.map(|rate| format!("{rate} operations/s"));
    let limits: Vec<String> = bytes.into_iter().chain(rate).collect();
    (!limits.is_empty()).then(|| limits.join(", "))
}

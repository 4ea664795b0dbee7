//! Phrases that several findings use.

use std::collections::BTreeSet;

/// Returns an operator's reason as the end of a sentence.
pub(crate) fn because(why: &str) -> String {
    if why.is_empty() { String::new() } else { format!(": {why}") }
}

/// Formats the numbers of coordinators.
pub(crate) fn numbers(ids: &BTreeSet<u64>) -> String {
    let numbers: Vec<String> = ids.iter().map(u64::to_string).collect();
    format!("coordinator{} {}", if ids.len() == 1 { "" } else { "s" }, numbers.join(", "))
}

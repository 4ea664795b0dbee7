//! Findings of a cluster as lines of text, the same in every command.

use super::{short_time, since};
use crate::output::Output;
use archon_client::{Reason, Severity};
use std::time::Duration;

/// Returns the lines of a reason after a label: its code with a text, and its remedy below the text.
pub(super) fn lines(label: &str, reason: &Reason, text: &str, output: &Output) -> Vec<String> {
    let code = reason.code.to_string();
    // A notice resolves by itself, or is intended.
    let code = if reason.severity == Severity::Notice { code } else { output.bad(&code) };
    let remedy = reason.remedy.iter().map(|remedy| format!("{:width$}{remedy}", "", width = label.len()));
    [format!("{label}{code}: {text}")].into_iter().chain(remedy).collect()
}

/// Returns the sentence of a reason with its age.
pub(super) fn sentence(reason: &Reason) -> String {
    format!("{}{}", reason.message, age_text(age(reason)))
}

/// Returns the sentence of a reason with its subject and this age.
pub(super) fn sentence_about(reason: &Reason, age: Option<Duration>) -> String {
    format!("{} ({}{})", reason.message, reason.subject, age_text(age))
}

/// Returns the time since the begin of a reason, if known.
pub(super) fn age(reason: &Reason) -> Option<Duration> {
    reason.began_at_ms.and_then(since)
}

fn age_text(age: Option<Duration>) -> String {
    age.map_or_else(String::new, |age| format!(", for {}", short_time(age)))
}

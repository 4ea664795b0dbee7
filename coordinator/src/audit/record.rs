//! One record, and its line.

use archon_security::Refusal;
use archon_types::plain;
use archon_types::{ErrorKind, Millis};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Maximum number of characters of a text in a line.
const TEXT_CHARS_MAX: usize = 500;

/// Kind of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LineKind {
    /// A request for a change of the cluster.
    Change,
    /// An unauthorized request.
    Refusal,
}

/// Outcome of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// Committed.
    Done,
    /// Refused.
    Refused {
        /// Kind of the error.
        kind: ErrorKind,
        /// Reason, in a sentence.
        message: String,
    },
    /// It may become committed, or not: the events show it.
    Unknown {
        /// Reason of the uncertainty.
        message: String,
    },
}

/// Record of one change or refusal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Record {
    /// Time, on the wall clock.
    pub(crate) at: Millis,
    pub(crate) what: LineKind,
    /// Identity in the certificate.
    pub(crate) who: Option<String>,
    /// Address of the caller.
    pub(crate) from: Option<IpAddr>,
    /// The coordinator that made the call for it, if it came from a console.
    pub(crate) via: Option<String>,
    /// Path of the call, or the other thing that was opened or sent.
    pub(crate) call: Option<String>,
    /// Subject.
    pub(crate) subject: Option<String>,
    /// Requested change.
    pub(crate) asked: Option<String>,
    pub(crate) outcome: Outcome,
    /// Id of the request; repetitions use the same.
    pub(crate) request_id: Option<String>,
    /// Number of refusals that this one stands for, including itself.
    pub(crate) left_out: u64,
    /// Number of earlier records that did not fit.
    pub(crate) dropped: u64,
}

impl Record {
    /// Returns the record of a refusal at `at`.
    pub(crate) fn of_refusal(refusal: Refusal, at: Millis) -> Self {
        let Refusal { identity, via, from, call, subject, why, left_out } = refusal;
        Self {
            at,
            what: LineKind::Refusal,
            who: identity.map(|identity| identity.to_string()),
            from,
            via: via.map(|speaker| speaker.to_string()),
            call,
            subject,
            asked: None,
            outcome: Outcome::Refused { kind: ErrorKind::Refused, message: why },
            request_id: None,
            left_out,
            dropped: 0,
        }
    }

    /// Returns its line, the `seq`th, after `lost` more that were not written. Text from others is truncated, and
    /// unprintable characters are removed.
    pub(crate) fn line(&self, seq: u64, lost: u64) -> Vec<u8> {
        let (outcome, kind, message) = match &self.outcome {
            Outcome::Done => ("done", None, None),
            Outcome::Refused { kind, message } => ("refused", Some(kind.as_str()), Some(cut(message))),
            Outcome::Unknown { message } => ("unknown", None, Some(cut(message))),
        };
        let line = Line {
            seq,
            dropped: self.dropped.saturating_add(lost),
            at: date_time(self.at),
            what: self.what,
            who: self.who.as_deref().map(cut),
            from: self.from,
            via: self.via.as_deref(),
            call: self.call.as_deref().map(cut),
            subject: self.subject.as_deref().map(cut),
            asked: self.asked.as_deref().map(cut),
            outcome,
            kind,
            message,
            request_id: self.request_id.as_deref(),
            left_out: self.left_out,
        };
        // Serialisation cannot fail here; if it did, the number would still be written.
        let mut text = serde_json::to_vec(&line).unwrap_or_else(|_| format!("{{\"seq\":{seq}}}").into_bytes());
        text.push(b'\n');
        text
    }
}

#[derive(Serialize)]
struct Line<'a> {
    seq: u64,
    at: String,
    what: LineKind,
    who: Option<String>,
    from: Option<IpAddr>,
    via: Option<&'a str>,
    call: Option<String>,
    subject: Option<String>,
    asked: Option<String>,
    outcome: &'static str,
    kind: Option<&'static str>,
    message: Option<String>,
    request_id: Option<&'a str>,
    left_out: u64,
    dropped: u64,
}

/// Returns the number of the last line in `tail`, the end of a file; unreadable lines behind it are counted as lines.
/// `None` if no line is readable.
pub(crate) fn last_seq(tail: &[u8]) -> Option<u64> {
    #[derive(Deserialize)]
    struct NumberedLine {
        seq: u64,
    }
    let lines = tail.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    (0..).zip(lines.rev()).find_map(|(unreadable, line)| {
        let NumberedLine { seq } = serde_json::from_slice(line).ok()?;
        Some(seq.saturating_add(unreadable))
    })
}

/// Truncates a text from others to the limit of a line.
fn cut(text: &str) -> String {
    match text.char_indices().nth(TEXT_CHARS_MAX) {
        Some((end, _)) => format!("{}…", plain(&text[..end])),
        None => plain(text).into_owned(),
    }
}

/// Formats a time by RFC 3339, in UTC.
fn date_time(at: Millis) -> String {
    let time = OffsetDateTime::from_unix_timestamp_nanos(i128::from(at.get()) * 1_000_000).ok();
    let written = time.and_then(|time| time.format(&Rfc3339).ok());
    // A clock beyond the year 9999 is wrong in any case.
    written.unwrap_or_else(|| "9999-12-31T23:59:59Z".to_owned())
}

#[cfg(test)]
impl Record {
    /// A completed change without further fields.
    pub(crate) const fn bare(at: Millis) -> Self {
        Self {
            at,
            what: LineKind::Change,
            who: None,
            from: None,
            via: None,
            call: None,
            subject: None,
            asked: None,
            outcome: Outcome::Done,
            request_id: None,
            left_out: 0,
            dropped: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn record() -> Record {
        Record {
            at: Millis::new(1_700_000_000_123),
            what: LineKind::Change,
            who: Some("admin/alice".into()),
            from: Some([10, 0, 0, 7].into()),
            via: Some("coordinator/2".into()),
            call: Some("/archon.v1.Admin/SetNode".into()),
            subject: Some("node athens".into()),
            asked: Some("drain".into()),
            outcome: Outcome::Done,
            request_id: None,
            left_out: 0,
            dropped: 0,
        }
    }

    #[test]
    fn line_contains_actor_request_and_outcome() {
        let line = record().line(17, 2);
        let found: Value = serde_json::from_slice(&line).unwrap();
        let expected = json!({
            "seq": 17, "at": "2023-11-14T22:13:20.123Z", "what": "change", "who": "admin/alice", "from": "10.0.0.7",
            "via": "coordinator/2", "call": "/archon.v1.Admin/SetNode", "subject": "node athens", "asked": "drain", "outcome": "done", "kind": null,
            "message": null, "request_id": null, "left_out": 0, "dropped": 2,
        });
        assert_eq!(found, expected);
        assert_eq!(line.last(), Some(&b'\n'));
    }

    #[test]
    fn foreign_text_is_escaped_and_truncated() {
        let message = format!("a\n{{\"seq\":1}}\u{1b}[31m{}", "x".repeat(100_000));
        let refused = Record { outcome: Outcome::Refused { kind: ErrorKind::NotFound, message }, ..record() };
        let line = refused.line(1, 0);
        assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
        assert!(line.len() < 1_200, "{}", line.len());
        let found: Value = serde_json::from_slice(&line).unwrap();
        assert_eq!(found["kind"], "not_found");
        assert!(found["message"].as_str().unwrap().starts_with("a\\n{\"seq\":1}\\u{1b}[31mxxx"), "{found}");
    }

    #[test]
    fn numbers_continue_behind_unreadable_lines() {
        let line = |seq| record().line(seq, 0);
        assert_eq!(last_seq(b""), None);
        assert_eq!(last_seq(b"nonsense\n"), None);
        assert_eq!(last_seq(&[line(3), line(4)].concat()), Some(4));
        assert_eq!(last_seq(&[line(3), b"\0\0\0\n".to_vec(), b"{\n".to_vec()].concat()), Some(5));
        assert_eq!(last_seq(&[&b"half of a line}\n"[..], &line(9)].concat()), Some(9));
    }

    #[test]
    fn extreme_clock_is_no_error() {
        assert_eq!(date_time(Millis::ZERO), "1970-01-01T00:00:00Z");
        assert_eq!(date_time(Millis::new(u64::MAX)), "9999-12-31T23:59:59Z");
    }
}

//! Errors of operations, as Redis clients understand them.

use archon_resp::Reply;
use archon_types::{ErrorDetail, ErrorKind};
use std::borrow::Cow;

/// Reason why a command has no result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Refusal {
    /// An error; nothing was changed.
    Error(Cow<'static, str>),
    /// The outcome of a write is unknown. The connection is closed without a reply: clients take an error for "not done".
    Unknown(String),
}

impl Refusal {
    pub(super) fn new(text: impl Into<Cow<'static, str>>) -> Self {
        Self::Error(text.into())
    }
}

impl From<String> for Refusal {
    fn from(text: String) -> Self {
        Self::Error(text.into())
    }
}

impl From<&'static str> for Refusal {
    fn from(text: &'static str) -> Self {
        Self::Error(text.into())
    }
}

/// Result of a command.
pub(super) type CommandResult = Result<Reply, Refusal>;

/// Error that clients retry after a pause and a look at the slots.
pub(super) fn cluster_down(why: &str) -> Refusal {
    Refusal::new(format!("CLUSTERDOWN Hash slot not served: {why}"))
}

/// Converts the error of a read, or of a write.
pub(super) fn refusal(detail: &ErrorDetail, is_write: bool) -> Refusal {
    let text = &detail.message;
    let coded = |code: &str| Refusal::new(format!("{code} {text}"));
    match detail.kind {
        // Of a write, the answer may have been lost.
        ErrorKind::DeadlineExceeded | ErrorKind::MaybeApplied | ErrorKind::Internal | ErrorKind::ShuttingDown
            if is_write =>
        {
            Refusal::Unknown(text.clone())
        }
        ErrorKind::NotEnoughReplicas => coded("NOREPLICAS"),
        ErrorKind::ReadOnly => coded("MISCONF"),
        ErrorKind::Overloaded => coded("TRYAGAIN"),
        ErrorKind::Refused => coded("NOPERM"),
        ErrorKind::Unavailable
        | ErrorKind::NoLease
        | ErrorKind::NotPartitionLeader
        | ErrorKind::Moved
        | ErrorKind::WrongNode
        | ErrorKind::StaleEpoch
        | ErrorKind::Unreachable
        | ErrorKind::DeadlineExceeded
        | ErrorKind::MaybeApplied
        | ErrorKind::ShuttingDown => cluster_down(text),
        _ => coded("ERR"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(kind: ErrorKind, is_write: bool) -> String {
        match refusal(&ErrorDetail::new(kind, "why"), is_write) {
            Refusal::Error(text) => text.into_owned(),
            Refusal::Unknown(_) => "unknown".to_owned(),
        }
    }

    #[test]
    fn only_writes_have_unknown_outcomes() {
        for kind in ErrorKind::ALL {
            assert_ne!(of(*kind, false), "unknown", "{kind}");
            if kind.is_retryable() && *kind != ErrorKind::ShuttingDown {
                assert_ne!(of(*kind, true), "unknown", "{kind} means that nothing was done");
            }
        }
        for kind in [ErrorKind::DeadlineExceeded, ErrorKind::MaybeApplied, ErrorKind::Internal] {
            assert_eq!(of(kind, true), "unknown", "{kind}");
        }
    }

    #[test]
    fn clients_retry_what_passes() {
        assert_eq!(of(ErrorKind::Overloaded, true), "TRYAGAIN why");
        assert_eq!(of(ErrorKind::NoLease, true), "CLUSTERDOWN Hash slot not served: why");
        assert_eq!(of(ErrorKind::NotEnoughReplicas, true), "NOREPLICAS why");
        assert_eq!(of(ErrorKind::Refused, false), "NOPERM why");
        assert_eq!(of(ErrorKind::InvalidArgument, false), "ERR why");
    }
}

//! What can go wrong, from the caller's point of view.

use archon_types::{ErrorDetail, ErrorKind, Revision};

/// What a call whose deadline passed may have left behind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Nothing: it was to read.
    Read,
    /// Nothing: the write is sure not to have taken effect, and will not.
    NoEffect,
    /// The write may have taken effect, or may still.
    Unknown,
}

impl Outcome {
    /// The outcome of a write that failed.
    pub(crate) fn of_write(unknown: bool) -> Self {
        if unknown { Self::Unknown } else { Self::NoEffect }
    }
}

/// Why a call did not succeed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The input is wrong; nothing was sent.
    #[error("{message}")]
    InvalidArgument {
        /// Which input, what was wrong with it, and what is allowed.
        message: String,
    },
    /// The condition of a compare-and-set did not hold; nothing changed.
    #[error("the key has revision {found}, not the expected one; read it and decide again")]
    ConditionFailed {
        /// The revision found; [`Revision::ZERO`] if the key is absent.
        found: Revision,
    },
    /// An increment of something that is not a decimal integer, or whose sum does not fit; nothing changed.
    #[error("the value is not a decimal integer that the sum fits into; nothing was changed")]
    NotANumber,
    /// The deadline passed first.
    #[error("{}", deadline_message(*.timeout_ms, *.outcome, .last.as_deref()))]
    DeadlineExceeded {
        /// The time the call was given, in milliseconds.
        timeout_ms: u64,
        /// Whether the operation may have taken effect nevertheless.
        outcome: Outcome,
        /// The last thing that stood in the way, if anything was heard at all.
        last: Option<Box<ErrorDetail>>,
    },
    /// The operation may have taken effect, and nobody can tell any more. Read before writing again.
    #[error("outcome unknown: {detail}")]
    MaybeApplied {
        /// What the server said.
        detail: Box<ErrorDetail>,
    },
    /// A server refused; the operation had no effect.
    #[error("{detail}")]
    Server {
        /// What it said.
        detail: Box<ErrorDetail>,
    },
    /// This client has been closed.
    #[error("the client is closed; build another one")]
    Closed,
}

impl Error {
    /// The kind of the error, in the vocabulary of the servers. Of a passed deadline whose operation had no effect it
    /// is the kind of what stood in the way ([`ErrorKind::Unreachable`], [`ErrorKind::NoQuorum`] …).
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::InvalidArgument { .. } => ErrorKind::InvalidArgument,
            Self::ConditionFailed { .. } => ErrorKind::ConditionFailed,
            Self::NotANumber => ErrorKind::WrongValueType,
            Self::DeadlineExceeded { outcome: Outcome::Read | Outcome::NoEffect, last: Some(last), .. } => last.kind,
            Self::DeadlineExceeded { .. } => ErrorKind::DeadlineExceeded,
            Self::MaybeApplied { .. } => ErrorKind::MaybeApplied,
            Self::Server { detail } => detail.kind,
            Self::Closed => ErrorKind::ShuttingDown,
        }
    }

    /// Whether the same call may succeed later without anybody changing it, and is sure not to have taken effect.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::DeadlineExceeded { outcome, .. } => *outcome != Outcome::Unknown,
            Self::Server { detail } => detail.kind.is_retryable(),
            Self::InvalidArgument { .. }
            | Self::ConditionFailed { .. }
            | Self::NotANumber
            | Self::MaybeApplied { .. }
            | Self::Closed => false,
        }
    }

    /// Whether the operation may have taken effect although the call failed.
    pub fn outcome_unknown(&self) -> bool {
        match self {
            Self::DeadlineExceeded { outcome, .. } => *outcome == Outcome::Unknown,
            Self::MaybeApplied { .. } => true,
            Self::InvalidArgument { .. }
            | Self::ConditionFailed { .. }
            | Self::NotANumber
            | Self::Server { .. }
            | Self::Closed => false,
        }
    }

    /// The error as the servers would say it, with the hints that are known.
    pub fn detail(&self) -> ErrorDetail {
        match self {
            Self::MaybeApplied { detail } | Self::Server { detail } => (**detail).clone(),
            Self::DeadlineExceeded { last: Some(last), .. } => {
                ErrorDetail { kind: self.kind(), message: self.to_string(), have: None, need: None, ..(**last).clone() }
            }
            Self::ConditionFailed { found } => {
                let mut detail = ErrorDetail::new(ErrorKind::ConditionFailed, self.to_string());
                detail.have = Some(found.get());
                detail
            }
            Self::InvalidArgument { .. } | Self::NotANumber | Self::DeadlineExceeded { .. } | Self::Closed => {
                ErrorDetail::new(self.kind(), self.to_string())
            }
        }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::InvalidArgument { message: message.into() }
    }
}

impl From<ErrorDetail> for Error {
    fn from(detail: ErrorDetail) -> Self {
        match detail.kind {
            ErrorKind::InvalidArgument => Self::InvalidArgument { message: detail.message },
            ErrorKind::ConditionFailed => Self::ConditionFailed { found: Revision::new(detail.have.unwrap_or(0)) },
            ErrorKind::WrongValueType => Self::NotANumber,
            ErrorKind::MaybeApplied => Self::MaybeApplied { detail: Box::new(detail) },
            _ => Self::Server { detail: Box::new(detail) },
        }
    }
}

fn deadline_message(timeout_ms: u64, outcome: Outcome, last: Option<&ErrorDetail>) -> String {
    let outcome = match outcome {
        Outcome::Read => "",
        Outcome::NoEffect => ", it had no effect",
        Outcome::Unknown => ", outcome unknown (it may have taken effect)",
    };
    let cause = match last {
        Some(detail) => format!("; last: {detail}"),
        None => "; nobody answered".to_owned(),
    };
    format!("not done within {timeout_ms} ms{outcome}{cause}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_becomes_an_error_of_the_same_kind() {
        for kind in ErrorKind::ALL {
            let error = Error::from(ErrorDetail::new(*kind, "why"));
            assert_eq!(error.kind(), *kind);
            assert_eq!(error.detail().kind, *kind);
            assert_eq!(error.is_retryable(), kind.is_retryable(), "{kind}");
        }
    }

    #[test]
    fn a_passed_deadline_says_whether_the_outcome_is_known() {
        let last = Some(Box::new(ErrorDetail::new(ErrorKind::Unreachable, "connection refused")));
        let unknown = Error::DeadlineExceeded { timeout_ms: 100, outcome: Outcome::Unknown, last: last.clone() };
        assert!(unknown.to_string().contains("outcome unknown") && unknown.outcome_unknown());
        assert_eq!((unknown.kind(), unknown.is_retryable()), (ErrorKind::DeadlineExceeded, false));
        let known = Error::DeadlineExceeded { timeout_ms: 100, outcome: Outcome::NoEffect, last: last.clone() };
        assert!(known.to_string().contains("it had no effect"), "{known}");
        let read = Error::DeadlineExceeded { timeout_ms: 100, outcome: Outcome::Read, last };
        assert_eq!(read.to_string(), "not done within 100 ms; last: Unreachable: connection refused");
        assert_eq!((read.kind(), read.is_retryable(), read.outcome_unknown()), (ErrorKind::Unreachable, true, false));
        assert!(known.to_string().contains("connection refused") && !known.outcome_unknown());
        assert_eq!((known.kind(), known.is_retryable()), (ErrorKind::Unreachable, true));
    }
}

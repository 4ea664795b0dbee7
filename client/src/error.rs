//! Errors of the client.

use archon_types::{ErrorDetail, ErrorKind, Revision};

/// Possible effect of a call after its deadline.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// None: the call only reads.
    Read,
    /// None: the write did not take effect and will not.
    NoEffect,
    /// Unknown: the write may have taken effect, or may still do so.
    Unknown,
}

impl Outcome {
    /// Returns the outcome of a failed write.
    pub(crate) fn of_write(unknown: bool) -> Self {
        if unknown { Self::Unknown } else { Self::NoEffect }
    }
}

/// Reason why a call failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The input is invalid; nothing was sent.
    #[error("{message}")]
    InvalidArgument {
        /// The input, what is wrong with it, and what is allowed.
        message: String,
    },
    /// The condition of a compare-and-set failed; nothing changed.
    #[error("the key has revision {found}, not the expected one; read it and decide again")]
    ConditionFailed {
        /// The revision found; [`Revision::ZERO`] if the key is absent.
        found: Revision,
    },
    /// The value to increment is not a decimal integer, or the sum does not fit; nothing changed.
    #[error("the value is not a decimal integer that the sum fits into; nothing was changed")]
    NotANumber,
    /// The deadline passed first.
    #[error("{}", deadline_message(*.timeout_ms, *.outcome, .last.as_deref()))]
    DeadlineExceeded {
        /// The time-out of the call, in milliseconds.
        timeout_ms: u64,
        /// Possible effect of the operation.
        outcome: Outcome,
        /// The last obstacle, if there was any response.
        last: Option<Box<ErrorDetail>>,
    },
    /// The operation may have taken effect, and this cannot be determined any longer. Read before writing again.
    #[error("outcome unknown: {detail}")]
    MaybeApplied {
        /// The server's answer.
        detail: Box<ErrorDetail>,
    },
    /// A server refused; the operation had no effect.
    #[error("{detail}")]
    Server {
        /// The server's answer.
        detail: Box<ErrorDetail>,
    },
    /// This client has been closed.
    #[error("the client is closed; build another one")]
    Closed,
}

impl Error {
    /// Returns the kind of the error, in the servers' vocabulary. For a passed deadline without effect, this is the
    /// kind of the last obstacle ([`ErrorKind::Unreachable`], [`ErrorKind::NoQuorum`] …).
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

    /// Returns whether the same call may succeed later and is certain not to have taken effect.
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

    /// Returns whether the operation may have taken effect although the call failed.
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

    /// Returns the error in the servers' format, with known hints.
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
        Outcome::NoEffect => "; the operation had no effect",
        Outcome::Unknown => "; outcome unknown: the operation may have taken effect",
    };
    let cause = match last {
        Some(detail) => format!("; last error: {detail}"),
        None => "; no server answered".to_owned(),
    };
    format!("timed out after {timeout_ms} ms{outcome}{cause}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_keeps_the_kind_of_its_detail() {
        for kind in ErrorKind::ALL {
            let error = Error::from(ErrorDetail::new(*kind, "why"));
            assert_eq!(error.kind(), *kind);
            assert_eq!(error.detail().kind, *kind);
            assert_eq!(error.is_retryable(), kind.is_retryable(), "{kind}");
        }
    }

    #[test]
    fn deadline_error_states_whether_outcome_is_known() {
        let last = Some(Box::new(ErrorDetail::new(ErrorKind::Unreachable, "connection refused")));
        let unknown = Error::DeadlineExceeded { timeout_ms: 100, outcome: Outcome::Unknown, last: last.clone() };
        assert!(unknown.to_string().contains("outcome unknown") && unknown.outcome_unknown());
        assert_eq!((unknown.kind(), unknown.is_retryable()), (ErrorKind::DeadlineExceeded, false));
        let known = Error::DeadlineExceeded { timeout_ms: 100, outcome: Outcome::NoEffect, last: last.clone() };
        assert!(known.to_string().contains("the operation had no effect"), "{known}");
        let read = Error::DeadlineExceeded { timeout_ms: 100, outcome: Outcome::Read, last };
        assert_eq!(read.to_string(), "timed out after 100 ms; last error: Unreachable: connection refused");
        assert_eq!((read.kind(), read.is_retryable(), read.outcome_unknown()), (ErrorKind::Unreachable, true, false));
        assert!(known.to_string().contains("connection refused") && !known.outcome_unknown());
        assert_eq!((known.kind(), known.is_retryable()), (ErrorKind::Unreachable, true));
    }
}

//! Metrics of the library. Without the feature `metrics`, types of zero size with the same names replace them; they
//! read no clock and are optimized away.

#[cfg(feature = "metrics")]
mod client;
#[cfg(feature = "metrics")]
mod participant;
#[cfg(feature = "metrics")]
mod series;
#[cfg(not(feature = "metrics"))]
mod silent;

#[cfg(feature = "metrics")]
pub(crate) use client::{AdminMeasures, ClientMeasures};
#[cfg(feature = "metrics")]
pub(crate) use participant::{Callback, ParticipantMeasures};
#[cfg(not(feature = "metrics"))]
pub(crate) use silent::{AdminMeasures, Callback, ClientMeasures, ParticipantMeasures};

use crate::error::Error;
use archon_types::{Answer, Op, OpKind};

/// Kind of a caller's request: an operation, or a read at any copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(not(feature = "metrics"), allow(dead_code))]
pub(crate) enum OperationKind {
    Op(OpKind),
    GetStale,
}

impl OperationKind {
    /// Returns the index in the label's values.
    #[cfg(feature = "metrics")]
    pub(crate) const fn place(self) -> usize {
        match self {
            Self::Op(kind) => kind as usize,
            Self::GetStale => OpKind::ALL.len(),
        }
    }
}

impl From<&Op> for OperationKind {
    fn from(op: &Op) -> Self {
        Self::Op(OpKind::of(op))
    }
}

/// Outcome of an operation or call, in the order of the label's values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(not(feature = "metrics"), allow(dead_code))]
pub(crate) enum OutcomeKind {
    Ok,
    Refused,
    Failed,
    DeadlineExceeded,
    Unknown,
}

impl OutcomeKind {
    /// Returns the outcome of an operation.
    #[cfg_attr(not(feature = "metrics"), allow(dead_code))]
    pub(crate) fn of_answer(result: &Result<Answer, Error>) -> Self {
        match result {
            Ok(Answer::ConditionFailed { .. } | Answer::CheckFailed { .. } | Answer::NotANumber) => Self::Refused,
            result => Self::of(result),
        }
    }

    /// Returns the outcome of other calls.
    pub(crate) fn of<T>(result: &Result<T, Error>) -> Self {
        match result {
            Ok(_) => Self::Ok,
            Err(error) if error.outcome_unknown() => Self::Unknown,
            Err(Error::DeadlineExceeded { .. }) => Self::DeadlineExceeded,
            Err(error) if error.is_retryable() => Self::Failed,
            Err(Error::Closed) => Self::Failed,
            Err(_) => Self::Refused,
        }
    }
}

/// Kind of redirect caused by an outdated partition table, in the order of the label's values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(not(feature = "metrics"), allow(dead_code))]
pub(crate) enum Redirect {
    Leader,
    Partition,
}

/// A callback of a service, in the order of the label's values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(not(feature = "metrics"), allow(dead_code))]
pub(crate) enum CallbackKind {
    Acquire,
    Release,
}

/// End of a callback, in the order of the label's values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(not(feature = "metrics"), allow(dead_code))]
pub(crate) enum CallbackEnd {
    Ok,
    Failed,
    Aborted,
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_types::{ErrorDetail, ErrorKind};

    #[test]
    fn outcome_of_call_follows_from_its_error_kind() {
        let of = |kind| OutcomeKind::of::<()>(&Err(Error::from(ErrorDetail::new(kind, "why"))));
        assert_eq!(of(ErrorKind::NoQuorum), OutcomeKind::Failed);
        assert_eq!(of(ErrorKind::NotFound), OutcomeKind::Refused);
        assert_eq!(of(ErrorKind::MaybeApplied), OutcomeKind::Unknown);
        assert_eq!(OutcomeKind::of::<()>(&Err(Error::Closed)), OutcomeKind::Failed);
        assert_eq!(OutcomeKind::of_answer(&Ok(Answer::NotANumber)), OutcomeKind::Refused);
        assert_eq!(OutcomeKind::of_answer(&Ok(Answer::Value(None))), OutcomeKind::Ok);
        let passed =
            |outcome| OutcomeKind::of::<()>(&Err(Error::DeadlineExceeded { timeout_ms: 1, outcome, last: None }));
        assert_eq!(passed(crate::Outcome::NoEffect), OutcomeKind::DeadlineExceeded);
        assert_eq!(passed(crate::Outcome::Unknown), OutcomeKind::Unknown);
    }
}

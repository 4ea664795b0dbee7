//! What is counted, and where nothing is. Without the feature `metrics` the same words stand for nothing: they have no size, look
//! at no clock, and are gone once they are compiled.

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

/// What a caller asks for: an operation, or a read at any copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(not(feature = "metrics"), allow(dead_code))]
pub(crate) enum OperationKind {
    Op(OpKind),
    GetStale,
}

impl OperationKind {
    /// Its place among the label's values.
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

/// What became of an operation or a call, in the order of the label's values.
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
    /// Of an operation.
    #[cfg_attr(not(feature = "metrics"), allow(dead_code))]
    pub(crate) fn of_answer(result: &Result<Answer, Error>) -> Self {
        match result {
            Ok(Answer::ConditionFailed { .. } | Answer::NotANumber) => Self::Refused,
            result => Self::of(result),
        }
    }

    /// Of anything else.
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

/// Where an old partition table led astray, in the order of the label's values.
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

/// How a callback ended, in the order of the label's values.
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
    fn what_became_of_a_call_is_told_by_what_its_caller_can_do() {
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

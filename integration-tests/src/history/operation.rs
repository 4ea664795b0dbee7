//! One operation as its client observed it.

use std::fmt::{self, Display};
use std::sync::Arc;

/// A client's request on a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// Reads the value.
    Get,
    /// Sets this value.
    Put(Arc<str>),
    /// Deletes the key.
    Delete,
    /// Sets this value if the revision is `expected` (0: if the key is absent).
    CompareAndSet {
        /// Required revision.
        expected: u64,
        /// New value.
        value: Arc<str>,
    },
    /// Sets this value if the present one is `expected` (`None`: if the key is absent).
    Replace {
        /// Required value.
        expected: Option<Arc<str>>,
        /// New value.
        value: Arc<str>,
    },
    /// Adds this to a counter.
    Increment(i64),
}

impl Request {
    /// Returns true if it changes nothing, whatever the answer.
    pub const fn is_read(&self) -> bool {
        matches!(self, Self::Get)
    }
}

/// Answer to a request. Revisions are `None` if the interface reports none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The value and its revision, or `None` if absent.
    Value(Option<(Arc<str>, Option<u64>)>),
    /// Written, with this revision.
    Written(Option<u64>),
    /// Absent now.
    Deleted {
        /// True if it was there before.
        existed: bool,
    },
    /// The condition did not hold; 0 if the key is absent.
    ConditionFailed {
        /// Revision found.
        found: u64,
    },
    /// The required value was not the present one.
    ValueDiffers,
    /// Sum and revision.
    Counter {
        /// Sum.
        value: i64,
        /// Its revision.
        revision: Option<u64>,
    },
    /// The stored value is not a number.
    NotANumber,
    /// The two keys of a pair differed, as at no moment.
    Divided(Arc<str>),
    /// Unknown: the operation took effect at some moment after its call, or never will.
    Unknown,
}

/// One operation on one key. Times are nanoseconds on the monotonic clock of the process that recorded them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// Number of the client.
    pub client: u32,
    /// Moment of the call.
    pub called_ns: u64,
    /// Moment of the answer, or of giving up.
    pub returned_ns: u64,
    /// The request.
    pub request: Request,
    /// The answer.
    pub outcome: Outcome,
}

impl Record {
    /// Returns true if it may take effect at any later moment, or never.
    pub fn is_open(&self) -> bool {
        self.outcome == Outcome::Unknown
    }

    /// Returns the moment by which it must have taken effect.
    pub fn effective_by_ns(&self) -> u64 {
        if self.is_open() { u64::MAX } else { self.returned_ns }
    }

    /// Returns true if it changed nothing.
    pub fn is_read(&self) -> bool {
        self.request.is_read()
            || matches!(self.outcome, Outcome::ConditionFailed { .. } | Outcome::ValueDiffers | Outcome::NotANumber)
    }
}

impl Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Get => write!(f, "get"),
            Self::Put(value) => write!(f, "put {value}"),
            Self::Delete => write!(f, "delete"),
            Self::CompareAndSet { expected: 0, value } => write!(f, "put {value} if absent"),
            Self::CompareAndSet { expected, value } => write!(f, "put {value} if revision {expected}"),
            Self::Replace { expected: None, value } => write!(f, "put {value} if absent"),
            Self::Replace { expected: Some(expected), value } => write!(f, "put {value} if it is {expected}"),
            Self::Increment(by) => write!(f, "add {by}"),
        }
    }
}

impl Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(None) => write!(f, "absent"),
            Self::Value(Some((value, revision))) => write!(f, "{value}{}", shown(*revision)),
            Self::Written(revision) => write!(f, "written{}", shown(*revision)),
            Self::Deleted { existed: true } => write!(f, "deleted"),
            Self::Deleted { existed: false } => write!(f, "was absent"),
            Self::ConditionFailed { found: 0 } => write!(f, "refused: absent"),
            Self::ConditionFailed { found } => write!(f, "refused: revision {found}"),
            Self::ValueDiffers => write!(f, "refused: another value"),
            Self::Counter { value, revision } => write!(f, "{value}{}", shown(*revision)),
            Self::NotANumber => write!(f, "not a number"),
            Self::Divided(replies) => write!(f, "two keys that differ: {replies}"),
            Self::Unknown => write!(f, "unknown"),
        }
    }
}

fn shown(revision: Option<u64>) -> String {
    revision.map(|revision| format!(" (revision {revision})")).unwrap_or_default()
}

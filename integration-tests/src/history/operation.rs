//! One operation as its client saw it.

use std::fmt::{self, Display};
use std::sync::Arc;

/// What a client asked of a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// Its value.
    Get,
    /// To hold this value.
    Put(Arc<str>),
    /// To be absent.
    Delete,
    /// To hold this value if its revision is `expected` (0: if it is absent).
    CompareAndSet {
        /// The revision it must have.
        expected: u64,
        /// Its new value.
        value: Arc<str>,
    },
    /// To hold a number that is greater by this.
    Increment(i64),
}

impl Request {
    /// Whether it changes nothing, whatever it is answered.
    pub const fn is_read(&self) -> bool {
        matches!(self, Self::Get)
    }
}

/// What it was told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The value and its revision, or that there is none.
    Value(Option<(Arc<str>, u64)>),
    /// Written, with this revision.
    Written(u64),
    /// Absent now; whether it was there before.
    Deleted {
        /// Whether it was there.
        existed: bool,
    },
    /// The condition did not hold: the revision found, 0 if it is absent.
    ConditionFailed {
        /// The revision found.
        found: u64,
    },
    /// The sum and its revision.
    Counter {
        /// The sum.
        value: i64,
        /// Its revision.
        revision: u64,
    },
    /// What is there is no number.
    NotANumber,
    /// Nobody can tell: the operation took effect at some moment after its call, or never will.
    Unknown,
}

/// One operation on one key. Times are nanoseconds on the monotonic clock of the process that recorded them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// Which client.
    pub client: u32,
    /// When it called.
    pub called_ns: u64,
    /// When it was told the outcome, or gave up.
    pub returned_ns: u64,
    /// What it asked.
    pub request: Request,
    /// What it was told.
    pub outcome: Outcome,
}

impl Record {
    /// Whether it may take effect at any later moment, or never.
    pub fn is_open(&self) -> bool {
        self.outcome == Outcome::Unknown
    }

    /// The moment by which it must have taken effect.
    pub fn effective_by_ns(&self) -> u64 {
        if self.is_open() { u64::MAX } else { self.returned_ns }
    }

    /// Whether it changed nothing.
    pub fn is_read(&self) -> bool {
        self.request.is_read() || matches!(self.outcome, Outcome::ConditionFailed { .. } | Outcome::NotANumber)
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
            Self::Increment(by) => write!(f, "add {by}"),
        }
    }
}

impl Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(None) => write!(f, "absent"),
            Self::Value(Some((value, revision))) => write!(f, "{value} (revision {revision})"),
            Self::Written(revision) => write!(f, "written (revision {revision})"),
            Self::Deleted { existed: true } => write!(f, "deleted"),
            Self::Deleted { existed: false } => write!(f, "was absent"),
            Self::ConditionFailed { found: 0 } => write!(f, "refused: absent"),
            Self::ConditionFailed { found } => write!(f, "refused: revision {found}"),
            Self::Counter { value, revision } => write!(f, "{value} (revision {revision})"),
            Self::NotANumber => write!(f, "not a number"),
            Self::Unknown => write!(f, "unknown"),
        }
    }
}

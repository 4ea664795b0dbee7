//! Reason of a failed operation, as far as a measurement cares.

use crate::wait::TimeoutError;
use std::borrow::Cow;
use std::fmt;

/// A failed operation: counted by its kind, with one message kept as an example.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// Kind under which it is counted; one word.
    pub kind: Cow<'static, str>,
    /// The store's message.
    pub message: String,
}

impl Failure {
    /// Returns a failure of this kind.
    pub fn new(kind: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self { kind: kind.into(), message: message.into() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.message)
    }
}

impl std::error::Error for Failure {}

impl From<archon_client::Error> for Failure {
    fn from(error: archon_client::Error) -> Self {
        Self::new(error.kind().as_str(), error.to_string())
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::new("io", error.to_string())
    }
}

impl From<TimeoutError> for Failure {
    fn from(late: TimeoutError) -> Self {
        Self::new("timed_out", late.to_string())
    }
}

//! Violated properties.

use std::fmt;

/// A violated property, and its place.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub struct Violation {
    /// The property, by the name of its file.
    pub invariant: &'static str,
    /// Place of the violation.
    pub detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is violated: {}", self.invariant, self.detail)
    }
}

pub(crate) fn violated(invariant: &'static str, detail: impl Into<String>) -> Result<(), Violation> {
    Err(Violation { invariant, detail: detail.into() })
}

//! The document of a command that failed before it printed another one.

use schemars::JsonSchema;
use serde::Serialize;

/// Failure of a command.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub(crate) struct ErrorDocument {
    /// The error.
    pub(crate) error: ErrorBody,
}

/// An error.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub(crate) struct ErrorBody {
    /// Kind of error: a code of `ErrorKind`, or `failed` if none applies.
    pub(crate) kind: &'static str,
    /// Description of the error, naming the input that caused it.
    pub(crate) message: String,
    /// Suggested remedy, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) remedy: Option<String>,
    /// Exit code of the command.
    pub(crate) exit_code: u8,
}

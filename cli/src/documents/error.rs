//! The document of a verb that failed before it printed another one.

use schemars::JsonSchema;
use serde::Serialize;

/// Why a verb failed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub(crate) struct ErrorDocument {
    /// Why.
    pub(crate) error: ErrorBody,
}

/// An error.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub(crate) struct ErrorBody {
    /// What kind of error: a word of `ErrorKind`, or `failed` where none of them says it.
    pub(crate) kind: &'static str,
    /// What was wrong with which input.
    pub(crate) message: String,
    /// What to do next, if there is anything to say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) remedy: Option<String>,
    /// The exit code that goes with it.
    pub(crate) exit_code: u8,
}

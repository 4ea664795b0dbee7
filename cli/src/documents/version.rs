//! The document of `archon version`.

use schemars::JsonSchema;
use serde::Serialize;

/// Which version of archon this is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub(crate) struct Version {
    /// The version, as `0.1.0`.
    pub(crate) archon_version: String,
}

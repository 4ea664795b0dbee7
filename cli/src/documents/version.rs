//! The document of `archon version`.

use schemars::JsonSchema;
use serde::Serialize;

/// Version of archon.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub(crate) struct Version {
    /// Version, such as `0.1.0`.
    pub(crate) archon_version: String,
}

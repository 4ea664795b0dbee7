//! The document of `archon version`.

use schemars::JsonSchema;
use serde::Serialize;

/// Version of archon.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub(crate) struct Version {
    /// Version, such as `0.1.0`.
    pub(crate) archon_version: String,
    /// Commit that it was built from; null if that is unknown.
    pub(crate) commit: Option<String>,
    /// Oldest protocol that it supports.
    pub(crate) protocol_min: u32,
    /// Newest protocol that it supports.
    pub(crate) protocol_max: u32,
}

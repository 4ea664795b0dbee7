//! Path parameters shared by several operations.

use super::key_path::UrlKey;
use schemars::JsonSchema;
use serde::Deserialize;

/// Table of the operation.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct OfTable {
    /// The table's name.
    pub(crate) table: String,
}

/// Key of the operation.
#[derive(JsonSchema)]
pub(crate) struct Keyed {
    /// The table's name.
    pub(crate) table: String,
    /// The key: 1 to 4096 bytes, percent-encoded.
    #[schemars(length(min = 1, max = 4096))]
    pub(crate) key: UrlKey,
}

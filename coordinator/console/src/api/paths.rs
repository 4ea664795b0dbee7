//! Path parameters shared by several operations.

use schemars::JsonSchema;
use serde::Deserialize;

/// Table of the operation.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct OfTable {
    /// The table's name.
    pub(crate) table: String,
}

/// Key of the operation.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct Keyed {
    /// The table's name.
    pub(crate) table: String,
    /// The key: 1 to 4096 bytes of UTF-8.
    #[schemars(length(min = 1, max = 4096))]
    pub(crate) key: String,
}

//! What paths name, where more than one kind of operation has it.

use schemars::JsonSchema;
use serde::Deserialize;

/// Which table.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct OfTable {
    /// The table's name.
    pub(crate) table: String,
}

/// Which key.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct Keyed {
    /// The table's name.
    pub(crate) table: String,
    /// The key.
    pub(crate) key: String,
}

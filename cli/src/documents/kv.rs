//! Documents of the verbs that read and write keys.

use super::ErrorBody;
use archon_console::ValueText;
use schemars::JsonSchema;
use serde::Serialize;

/// A key that was written.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub(crate) struct Written {
    /// The key.
    pub(crate) key: String,
    /// Its revision now.
    pub(crate) revision: u64,
}

/// A number that was added to.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub(crate) struct Counted {
    /// The key.
    pub(crate) key: String,
    /// The sum, in decimal: text as every value, since not every reader of JSON has integers of 64 bits.
    pub(crate) value: String,
    /// Its revision now.
    pub(crate) revision: u64,
}

/// A key that was asked for or removed, whether or not it was there.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub(crate) struct Key {
    /// The key.
    pub(crate) key: String,
    /// Whether it was there.
    pub(crate) existed: bool,
    /// The value that was read.
    #[serde(flatten)]
    pub(crate) value: ValueText,
    /// The revision of the value that was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) revision: Option<u64>,
    /// The revision of the key's partition as of which it was so; only of a stale read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) as_of_revision: Option<u64>,
    /// The address of the node whose copy was read; only of a stale read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) address: Option<String>,
}

/// A row as `kv export` writes it on a line, and `kv import` reads it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub(crate) struct Row {
    /// The key.
    pub(crate) key: String,
    /// Its value.
    #[serde(flatten)]
    pub(crate) value: ValueText,
}

/// A table that was written to a file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub(crate) struct Exported {
    /// The table's name.
    pub(crate) table: String,
    /// The file.
    pub(crate) file: String,
    /// Rows in it.
    pub(crate) rows_written: u64,
    /// Its length.
    pub(crate) bytes_written: u64,
}

/// Rows that were written into a table.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub(crate) struct Imported {
    /// The table's name.
    pub(crate) table: String,
    /// Rows that were read, all of which can be written.
    pub(crate) rows_read: u64,
    /// Rows that were written; none with `--dry-run`.
    pub(crate) rows_written: u64,
}

/// What became of one operation of a batch.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub(crate) struct Outcome {
    /// The line that asked for it.
    pub(crate) line: usize,
    /// `put`, `get`, `del`, `cas` or `incr`.
    pub(crate) operation: &'static str,
    /// The key.
    pub(crate) key: String,
    /// Whether it was carried out. A `get` of a key that is absent was, and `existed` says so.
    pub(crate) ok: bool,
    /// Whether the key was there; only of `get` and `del`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) existed: Option<bool>,
    /// The value that was read, or the sum.
    #[serde(flatten)]
    pub(crate) value: ValueText,
    /// The revision that was read or written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) revision: Option<u64>,
    /// Why it was not carried out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<ErrorBody>,
}

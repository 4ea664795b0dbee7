//! Documents of the commands that read and write keys.

use super::ErrorBody;
use archon_client::KeyText;
use archon_console::ValueText;
use schemars::JsonSchema;
use serde::Serialize;

/// A written key.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub(crate) struct WrittenKey {
    /// The key.
    pub(crate) key: KeyText,
    /// Revision after the write.
    pub(crate) revision: u64,
}

/// Result of adding to a number.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub(crate) struct CounterValue {
    /// The key.
    pub(crate) key: KeyText,
    /// The sum as decimal text, since some JSON parsers do not support 64-bit integers.
    pub(crate) value: String,
    /// Revision after the write.
    pub(crate) revision: u64,
}

/// A key that was read or deleted, existing or not.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub(crate) struct Key {
    /// The key.
    pub(crate) key: KeyText,
    /// True if the key existed.
    pub(crate) existed: bool,
    /// Value read.
    #[serde(flatten)]
    pub(crate) value: ValueText,
    /// Revision of the value read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) revision: Option<u64>,
    /// Unix time in milliseconds at which it expires, if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) expires_at_ms: Option<u64>,
    /// Revision of the partition as of which the key was read; only for a stale read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) as_of_revision: Option<u64>,
    /// Address of the node that answered; only for a stale read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) address: Option<String>,
}

/// A row in the format of `kv export` and `kv import`, one per line.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub(crate) struct Row {
    /// The key.
    pub(crate) key: KeyText,
    /// Its value.
    #[serde(flatten)]
    pub(crate) value: ValueText,
    /// Unix time in milliseconds at which it expires, if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) expires_at_ms: Option<u64>,
}

/// A table exported to a file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub(crate) struct ExportSummary {
    /// The table's name.
    pub(crate) table: String,
    /// The file.
    pub(crate) file: String,
    /// Number of rows in the file.
    pub(crate) rows_written: u64,
    /// Length of the file in bytes.
    pub(crate) bytes_written: u64,
}

/// Result of an import.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub(crate) struct ImportSummary {
    /// The table's name.
    pub(crate) table: String,
    /// Number of valid rows read.
    pub(crate) rows_read: u64,
    /// Number of rows written; 0 with `--dry-run`.
    pub(crate) rows_written: u64,
}

/// Result of one operation of a batch.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub(crate) struct Outcome {
    /// Number of its line, from 1.
    pub(crate) line: usize,
    /// `put`, `get`, `del`, `cas` or `incr`.
    pub(crate) operation: &'static str,
    /// The key.
    pub(crate) key: KeyText,
    /// True if it succeeded. A `get` of a missing key succeeds with `existed` false.
    pub(crate) ok: bool,
    /// True if the key existed; only for `get` and `del`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) existed: Option<bool>,
    /// Value read, or the sum.
    #[serde(flatten)]
    pub(crate) value: ValueText,
    /// Revision read or written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) revision: Option<u64>,
    /// Unix time in milliseconds at which it expires, if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) expires_at_ms: Option<u64>,
    /// Error, if it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<ErrorBody>,
}

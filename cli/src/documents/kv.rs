//! Documents of the verbs that read and write keys.

use super::ErrorBody;
use schemars::JsonSchema;
use serde::Serialize;

/// A value as JSON can bear it; neither field where there is none.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, JsonSchema)]
pub(crate) struct ValueText {
    /// The value, if it is UTF-8.
    #[serde(rename = "value", skip_serializing_if = "Option::is_none")]
    pub(crate) text: Option<String>,
    /// The value, if it is not UTF-8: two hexadecimal digits for each byte.
    #[serde(rename = "value_hex", skip_serializing_if = "Option::is_none")]
    pub(crate) hex: Option<String>,
}

impl ValueText {
    /// As text if it is UTF-8, otherwise in hexadecimal digits.
    pub(crate) fn of(value: &[u8]) -> Self {
        match std::str::from_utf8(value) {
            Ok(text) => Self { text: Some(text.to_owned()), hex: None },
            Err(_) => Self { text: None, hex: Some(hex(value)) },
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

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
    /// Of a stale read: as of which revision of the key's partition it was so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) as_of_revision: Option<u64>,
    /// Of a stale read: the address of the node whose copy it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) address: Option<String>,
}

/// A key and its value.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub(crate) struct Entry {
    /// The key.
    pub(crate) key: String,
    /// The value.
    #[serde(flatten)]
    pub(crate) value: ValueText,
    /// Its revision.
    pub(crate) revision: u64,
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
    /// Of `get` and `del`: whether the key was there.
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

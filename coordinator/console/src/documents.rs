//! Documents about rows, shared with the command line.

use archon_client::KeyText;
use archon_types::hex;
use schemars::JsonSchema;
use serde::Serialize;

/// A value as JSON can bear it; neither field where there is none.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, JsonSchema)]
pub struct ValueText {
    /// The value, if it is UTF-8.
    #[serde(rename = "value", skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The value, if it is not UTF-8: two hexadecimal digits per byte.
    #[serde(rename = "value_hex", skip_serializing_if = "Option::is_none")]
    pub hex: Option<String>,
}

impl ValueText {
    /// Returns text for UTF-8, otherwise hexadecimal digits.
    pub fn of(value: &[u8]) -> Self {
        match std::str::from_utf8(value) {
            Ok(text) => Self { text: Some(text.to_owned()), hex: None },
            Err(_) => Self { text: None, hex: Some(hex::encode(value)) },
        }
    }
}

/// A key and its value.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Entry {
    /// The key.
    pub key: KeyText,
    /// The value.
    #[serde(flatten)]
    pub value: ValueText,
    /// Revision of the value.
    pub revision: u64,
    /// Unix time in milliseconds at which it expires, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at_ms: Option<u64>,
}

//! Keys of rows in documents: any bytes, readable if they are text.

use crate::common::hex;
use crate::common::text::shown_key;
use bytes::Bytes;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::borrow::Cow;
use std::fmt;

/// Key of a row. Its JSON form is a string for UTF-8, otherwise an object with hexadecimal digits: `{"hex": "ff00"}`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct KeyText(pub Bytes);

impl KeyText {
    /// Copies the bytes of a key.
    pub fn new(key: impl AsRef<[u8]>) -> Self {
        Self(Bytes::copy_from_slice(key.as_ref()))
    }
}

impl AsRef<[u8]> for KeyText {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Writes the key as [`shown_key`] does: in quotes, safe for a terminal, and shortened.
impl fmt::Display for KeyText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown_key(&self.0))
    }
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Form<'a> {
    Text(Cow<'a, str>),
    Bytes { hex: String },
}

impl Serialize for KeyText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let form = match std::str::from_utf8(&self.0) {
            Ok(text) => Form::Text(text.into()),
            Err(_) => Form::Bytes { hex: hex::encode(&self.0) },
        };
        form.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for KeyText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Form::deserialize(deserializer)? {
            Form::Text(text) => Ok(Self(text.into_owned().into())),
            Form::Bytes { hex } => hex::decode(&hex)
                .map(Self)
                .ok_or_else(|| de::Error::custom("hex is not two hexadecimal digits for each byte")),
        }
    }
}

impl JsonSchema for KeyText {
    fn schema_name() -> Cow<'static, str> {
        "RowKey".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Key of a row: a string if it is UTF-8, otherwise two hexadecimal digits per byte: `{\"hex\": \"ff00\"}`.",
            "anyOf": [
                { "type": "string" },
                { "type": "object", "properties": { "hex": { "type": "string" } }, "required": ["hex"] },
            ],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_round_trip_as_text_or_hexadecimal_digits() {
        for (bytes, json) in [(&b"city/1"[..], r#""city/1""#), (b"", r#""""#), (b"\xff\x00", r#"{"hex":"ff00"}"#)] {
            let key = KeyText(Bytes::copy_from_slice(bytes));
            assert_eq!(serde_json::to_string(&key).unwrap(), json);
            assert_eq!(serde_json::from_str::<KeyText>(json).unwrap(), key);
        }
        for wrong in [r#"{"hex":"f"}"#, r#"{"hex":"+f"}"#, r#"{"hex":"zz"}"#, "7"] {
            assert!(serde_json::from_str::<KeyText>(wrong).is_err(), "{wrong}");
        }
    }
}

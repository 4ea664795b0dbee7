//! Keys in requests: any bytes, readable where they are text.

use bytes::Bytes;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::borrow::Cow;

/// A key. In JSON it is a string; of bytes that are no UTF-8 an object with their hexadecimal digits: `{"hex": "ff00"}`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyText(pub Bytes);

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
            Err(_) => Form::Bytes { hex: self.0.iter().map(|byte| format!("{byte:02x}")).collect() },
        };
        form.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for KeyText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Form::deserialize(deserializer)? {
            Form::Text(text) => Ok(Self(text.into_owned().into())),
            Form::Bytes { hex } => bytes_of(&hex).map(Self).ok_or_else(|| de::Error::custom("no hexadecimal digits")),
        }
    }
}

fn bytes_of(hex: &str) -> Option<Bytes> {
    let digits = hex.as_bytes().chunks(2).map(|pair| {
        let pair = std::str::from_utf8(pair).ok().filter(|pair| pair.len() == 2 && !pair.starts_with('+'))?;
        u8::from_str_radix(pair, 16).ok()
    });
    digits.collect::<Option<Vec<u8>>>().map(Bytes::from)
}

impl JsonSchema for KeyText {
    fn schema_name() -> Cow<'static, str> {
        "Key".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A key: text, or the hexadecimal digits of bytes that are not UTF-8.",
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

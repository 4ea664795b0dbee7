//! JSON Lines: one object per line.

use super::Row;
use crate::documents::{Row as Document, ValueText};
use crate::wanted::in_words;
use archon_client::KeyText;
use serde::de::{Error as _, IgnoredAny};
use serde::{Deserialize, Deserializer};
use std::io::{self, Write};

/// Fields of a line.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    key: Key,
    value: Option<String>,
    value_hex: Option<String>,
    /// Also printed by `kv scan`.
    #[serde(rename = "revision")]
    _revision: Option<IgnoredAny>,
    expires_at_ms: Option<u64>,
}

/// Fault of a file with the output of `kv scan -o json`, or a part of it.
pub(super) const A_LIST: &str = "a list begins there, as printed by `archon kv scan -o json`; put each object on its \
                                 own line: `jq -c '.[]'`";
/// Note about the types of the fields.
const OF_TEXT: &str =
    "; a line is one object, {\"key\":\"…\",\"value\":\"…\"}, and value and value_hex are text in quotes";
/// Note about the type of the key.
const OF_KEY: &str = "key is text in quotes, or hexadecimal digits as in {\"hex\":\"ff00\"}";

/// Key of a line. Its error names the accepted forms.
struct Key(KeyText);

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        KeyText::deserialize(deserializer).map(Self).map_err(|_| D::Error::custom(OF_KEY))
    }
}

pub(super) fn write(
    out: &mut impl Write,
    key: KeyText,
    value: ValueText,
    expires_at_ms: Option<u64>,
) -> io::Result<()> {
    serde_json::to_writer(&mut *out, &Document { key, value, expires_at_ms })?;
    out.write_all(b"\n")
}

/// Parses one line that is not empty.
pub(super) fn read(line: &[u8]) -> Result<Row, String> {
    let text = std::str::from_utf8(line)
        .map_err(|error| format!("it is not UTF-8 (first bad byte at {})", error.valid_up_to()))?;
    if line.starts_with(b"[") {
        return Err(A_LIST.to_owned());
    }
    let line: Line = serde_json::from_str(text).map_err(|error| {
        // The reader knows the line number: here it is always the first line.
        let problem = in_words(&error.to_string());
        let types = if error.is_data() && problem.starts_with("expected ") { OF_TEXT } else { "" };
        problem.replace(" at line 1 column ", ", at character ") + types
    })?;
    let row = Row::of(line.key.0, line.value.as_deref(), line.value_hex.as_deref())?;
    Ok(Row { expires_at_ms: line.expires_at_ms, ..row })
}

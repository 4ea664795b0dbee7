//! An object of JSON on each line.

use super::Row;
use crate::documents::{Row as Document, ValueText};
use crate::wanted::in_words;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::io::{self, Write};

/// What may stand on a line.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    key: String,
    value: Option<String>,
    value_hex: Option<String>,
    /// What `kv scan` lists as well.
    #[serde(rename = "revision")]
    _revision: Option<IgnoredAny>,
}

/// What `kv scan -o json` prints, or a part of it.
pub(super) const A_LIST: &str = "a list begins there, as `archon kv scan -o json` prints one; each object is to stand on a line of its own: `jq -c '.[]'` does that";
/// What is true of each field.
const OF_TEXT: &str =
    "; a line is one object, {\"key\":\"…\",\"value\":\"…\"}, and key, value and value_hex are text in quotes";

pub(super) fn write(out: &mut impl Write, key: String, value: ValueText) -> io::Result<()> {
    serde_json::to_writer(&mut *out, &Document { key, value })?;
    out.write_all(b"\n")
}

/// One line, which is not empty.
pub(super) fn read(line: &[u8]) -> Result<Row, String> {
    let text = std::str::from_utf8(line)
        .map_err(|error| format!("it is not UTF-8 (first bad byte at {})", error.valid_up_to()))?;
    if line.starts_with(b"[") {
        return Err(A_LIST.to_owned());
    }
    let line: Line = serde_json::from_str(text).map_err(|error| {
        // The line is numbered by who reads it: here it is the first always.
        let problem = in_words(&error.to_string());
        let types = if error.is_data() && problem.contains(" stands where ") { OF_TEXT } else { "" };
        problem.replace(" at line 1 column ", ", at character ") + types
    })?;
    Row::of(&line.key, line.value.as_deref(), line.value_hex.as_deref())
}

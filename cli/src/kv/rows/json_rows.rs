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

pub(super) fn write(out: &mut impl Write, key: String, value: ValueText) -> io::Result<()> {
    serde_json::to_writer(&mut *out, &Document { key, value })?;
    out.write_all(b"\n")
}

/// One line, which is not empty.
pub(super) fn read(line: &[u8]) -> Result<Row, String> {
    let text = std::str::from_utf8(line)
        .map_err(|error| format!("it is not UTF-8 (first bad byte at {})", error.valid_up_to()))?;
    let line: Line = serde_json::from_str(text).map_err(|error| {
        // The line is numbered by who reads it: here it is the first always.
        let problem = in_words(&error.to_string());
        problem.replace(" at line 1 column ", ", at character ")
    })?;
    Row::of(&line.key, line.value.as_deref(), line.value_hex.as_deref())
}

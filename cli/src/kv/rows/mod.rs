//! Rows as text: JSON Lines and CSV. Keys and values that are not UTF-8 are in hexadecimal digits; in JSON in the form of
//! `-o json`, in CSV in separate columns.

mod csv_rows;
mod json_rows;
mod quotes;
mod read;

pub(crate) use read::{InvalidLine, Rows, open};

use crate::args::RowFormat;
use crate::documents::ValueText;
use archon_client::KeyText;
use archon_types::hex;
use archon_types::limits::{check_key, check_value};
use bytes::Bytes;
use std::io::{self, Write};

/// Longest accepted line, in bytes: a JSON string may use six characters for one byte.
const ROW_BYTES_MAX: usize = 8 * 1024 * 1024;

/// A key and its value, both valid for a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Row {
    pub(crate) key: Bytes,
    pub(crate) value: Bytes,
    /// Unix time in milliseconds at which it expires, if it does.
    pub(crate) expires_at_ms: Option<u64>,
}

impl Row {
    /// Creates a row from the fields of a line. An empty `value_hex` beside a `value` is ignored, because CSV always
    /// has that field.
    fn of(key: KeyText, value: Option<&str>, value_hex: Option<&str>) -> Result<Self, String> {
        check_key(&key.0).map_err(|error| error.message)?;
        let value = match (value, value_hex.filter(|hex| !hex.is_empty() || value.is_none())) {
            (Some(text), None) => Bytes::copy_from_slice(text.as_bytes()),
            (None | Some(""), Some(hex)) => from_hex("value_hex", hex)?,
            (Some(_), Some(_)) => return Err("there is both a value and a value_hex; leave one of them out".to_owned()),
            (None, None) => return Err("there is neither a value nor a value_hex".to_owned()),
        };
        check_value(&value).map_err(|error| error.message)?;
        Ok(Self { key: key.0, value, expires_at_ms: None })
    }

    /// Returns the bytes of key and value.
    pub(crate) fn bytes(&self) -> usize {
        self.key.len() + self.value.len()
    }
}

/// Reads the hexadecimal digits of a field.
fn from_hex(field: &str, text: &str) -> Result<Bytes, String> {
    hex::decode(text).ok_or_else(|| format!("{field} is not two hexadecimal digits for each byte"))
}

/// Writes rows.
pub(crate) enum RowWriter<W: Write> {
    Jsonl(W),
    Csv(Box<csv::Writer<W>>),
}

impl<W: Write> RowWriter<W> {
    /// Creates the writer; writes the header of CSV.
    pub(crate) fn new(format: RowFormat, out: W) -> io::Result<Self> {
        Ok(match format {
            RowFormat::Jsonl => Self::Jsonl(out),
            RowFormat::Csv => Self::Csv(Box::new(csv_rows::begin(out)?)),
        })
    }

    /// Returns whether the format has a field for the expiry of a row.
    pub(crate) const fn keeps_expiry(&self) -> bool {
        matches!(self, Self::Jsonl(_))
    }

    /// Writes one row. CSV has no column for its expiry.
    pub(crate) fn write(&mut self, key: &[u8], value: &[u8], expires_at_ms: Option<u64>) -> io::Result<()> {
        let value = ValueText::of(value);
        match self {
            Self::Jsonl(out) => json_rows::write(out, KeyText::new(key), value, expires_at_ms),
            Self::Csv(out) => csv_rows::write(out, key, &value),
        }
    }

    /// Flushes the buffer, and returns the output.
    pub(crate) fn finish(self) -> io::Result<W> {
        match self {
            Self::Jsonl(mut out) => out.flush().map(|()| out),
            Self::Csv(out) => out.into_inner().map_err(|error| io::Error::new(error.error().kind(), error.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(format: RowFormat, rows: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
        let mut out = RowWriter::new(format, Vec::new()).unwrap();
        for (key, value) in rows {
            out.write(key, value, None).unwrap();
        }
        out.finish().unwrap()
    }

    /// Returns all rows, or the first invalid line.
    fn read_back(format: RowFormat, text: Vec<u8>) -> Result<Vec<Row>, InvalidLine> {
        Rows::new(format, io::Cursor::new(text)).map(|row| row.map(|(_, row)| row)).collect()
    }

    fn rows() -> impl Strategy<Value = Vec<(Vec<u8>, Vec<u8>)>> {
        let value = prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..40),
            any::<String>().prop_map(String::into_bytes),
            "[\",\r\n\t a]{0,12}".prop_map(String::into_bytes),
            Just(b"-42".to_vec()),
        ];
        let text = prop_oneof!["[\",\r\n a]{1,6}", "\\PC{1,12}", any::<String>().prop_map(|text| format!("k{text}"))];
        let key = prop_oneof![text.prop_map(String::into_bytes), proptest::collection::vec(any::<u8>(), 1..12)];
        proptest::collection::vec((key, value), 0..12)
    }

    proptest! {
        /// Any exported table is imported unchanged.
        #[test]
        fn rows_survive_a_round_trip(rows in rows(), csv: bool) {
            let format = if csv { RowFormat::Csv } else { RowFormat::Jsonl };
            let found = read_back(format, written(format, &rows)).unwrap();
            let plain: Vec<_> = found.iter().map(|row| (row.key.to_vec(), row.value.to_vec())).collect();
            prop_assert_eq!(plain, rows);
        }

        /// A file truncated anywhere yields the rows before the cut, and no different value in place of a truncated
        /// one.
        #[test]
        fn truncated_file_yields_an_error_or_unchanged_rows(rows in rows(), csv: bool, cut in 0.0..1.0f64) {
            let format = if csv { RowFormat::Csv } else { RowFormat::Jsonl };
            let mut text = written(format, &rows);
            text.truncate((text.len() as f64 * cut) as usize);
            let found = Rows::new(format, io::Cursor::new(text)).map_while(Result::ok);
            for ((_, row), (key, value)) in found.zip(rows) {
                prop_assert_eq!((&row.key[..], &row.value[..]), (&key[..], &value[..]));
            }
        }

        /// Arbitrary input is handled, and no rows follow an invalid line.
        #[test]
        fn arbitrary_bytes_are_rows_or_an_invalid_line(text in proptest::collection::vec(any::<u8>(), 0..200), csv: bool) {
            let format = if csv { RowFormat::Csv } else { RowFormat::Jsonl };
            let mut bad = 0;
            for row in Rows::new(format, io::Cursor::new(text)) {
                prop_assert_eq!(bad, 0);
                bad += usize::from(row.is_err());
            }
        }
    }

    #[test]
    fn format_of_lines_is_stable() {
        let rows = [
            (b"a".to_vec(), b"x,\"y\"\nz".to_vec()),
            (b"b".to_vec(), b"\xff\x00".to_vec()),
            (b"c\xfe".to_vec(), Vec::new()),
        ];
        let text = |format| String::from_utf8(written(format, &rows)).unwrap();
        assert_eq!(
            text(RowFormat::Jsonl),
            "{\"key\":\"a\",\"value\":\"x,\\\"y\\\"\\nz\"}\n{\"key\":\"b\",\"value_hex\":\"ff00\"}\n{\"key\":{\"hex\":\"63fe\"},\"value\":\"\"}\n"
        );
        assert_eq!(text(RowFormat::Csv), "key,key_hex,value,value_hex\na,,\"x,\"\"y\"\"\nz\",\nb,,,ff00\n,63fe,,\n");
    }

    #[test]
    fn invalid_line_is_explained_with_its_number() {
        for (format, text, line, part) in [
            (RowFormat::Jsonl, "{\"key\":\"a\",\"value\":\"1\"}\n\n{\"key\":\"b\"}\n", 3, "neither a value"),
            (RowFormat::Jsonl, "{\"key\":\"a\",\"valeu\":\"1\"}\n", 1, "valeu"),
            (RowFormat::Jsonl, "{\"key\":\"a\",\"value\":1}\n", 1, "value and value_hex are text in quotes"),
            (RowFormat::Jsonl, "[{\"key\":\"a\",\"value\":\"1\"}]\n", 1, "jq -c"),
            (RowFormat::Jsonl, "{\"key\":\"a\",\"value\":\"1\"", 1, "ends in the middle"),
            (RowFormat::Jsonl, "{\"key\":\"\",\"value\":\"1\"}\n", 1, "key is empty"),
            (RowFormat::Jsonl, "{\"key\":\"a\",\"value\":\"1\",\"value_hex\":\"31\"}\n", 1, "both"),
            (RowFormat::Jsonl, "{\"key\":\"a\",\"value_hex\":\"3\"}\n", 1, "hexadecimal"),
            (RowFormat::Jsonl, "{\"key\":\"a\",\"value_hex\":\"+1\"}\n", 1, "hexadecimal"),
            (RowFormat::Csv, "key,value\na,1\nb\n", 3, "1 field"),
            (RowFormat::Csv, "key,value\na,1\nb,2", 3, "truncated"),
            (RowFormat::Csv, "key,value\na,\"1\n2\nb,2\n", 2, "not closed"),
            (RowFormat::Csv, "key,value\na,\"1\nb,2\nc,\"3\n", 2, "the quote on line 4 that closes"),
            (RowFormat::Csv, "key,value\na,1\nb,\"two b\" is the text\n", 3, "text follows the quote"),
            (RowFormat::Csv, "key,value\n\"a\"b,1\n", 2, "text follows the quote"),
            (RowFormat::Csv, "key,value\na,5\" pipe\nb,6\" pipe\n", 2, "not in quotes"),
            (RowFormat::Csv, "\u{feff}\"key\",\"value\"x\na,1\n", 1, "text follows the quote"),
            (RowFormat::Csv, "k\0e\0y\0,\0", 1, "UTF-16"),
            (RowFormat::Jsonl, "{\0\"\0", 1, "UTF-16"),
            (RowFormat::Csv, "key,value_hex\na,zz\n", 2, "hexadecimal"),
            (RowFormat::Csv, "value\n1\n", 1, "neither a column `key` nor `key_hex`"),
            (RowFormat::Csv, "key_hex,value\nf,1\n", 2, "key_hex is not two hexadecimal"),
            (RowFormat::Csv, "key,key_hex,value\na,ff,1\n", 2, "both a key and a key_hex"),
            (RowFormat::Csv, "key,key_hex,value\n,,1\n", 2, "key is empty"),
            (RowFormat::Jsonl, "{\"key\":{\"hex\":\"f\"},\"value\":\"1\"}\n", 1, "hexadecimal digits"),
            (RowFormat::Jsonl, "{\"key\":{\"hxe\":\"ff\"},\"value\":\"1\"}\n", 1, "key is text in quotes"),
            (RowFormat::Jsonl, "{\"key\":7,\"value\":\"1\"}\n", 1, "key is text in quotes"),
            (RowFormat::Csv, "key,valeu\na,1\n", 1, "valeu"),
            (RowFormat::Csv, "key\na\n", 1, "value"),
            (RowFormat::Csv, "key,key,value\na,b,c\n", 1, "twice"),
            (RowFormat::Csv, "", 1, "header"),
        ] {
            let bad = read_back(format, text.into()).unwrap_err();
            assert!(bad.line == line && bad.why.contains(part), "{text:?}: {bad:?}");
        }
        let bad = read_back(RowFormat::Csv, b"key,value\na,\xff\n".to_vec()).unwrap_err();
        assert!(bad.line == 2 && bad.why.contains("UTF-8"), "{bad:?}");
    }

    #[test]
    fn files_of_people_and_other_programs_are_accepted() {
        let one = |format, text: &str| read_back(format, text.into()).unwrap();
        let row =
            |key: &'static str, value: &'static str| Row { key: key.into(), value: value.into(), expires_at_ms: None };
        assert_eq!(one(RowFormat::Jsonl, "\u{feff}{\"revision\":7,\"value\":\"1\",\"key\":\"a\"}"), [row("a", "1")]);
        assert_eq!(one(RowFormat::Jsonl, "{\"key\":\"a\",\"value\":\"1\"}\r\n\r\n"), [row("a", "1")]);
        assert_eq!(one(RowFormat::Csv, "\u{feff}value,key\r\n1,a\r\n"), [row("a", "1")]);
        assert_eq!(one(RowFormat::Csv, "key,value_hex,revision\na,3132,9\n"), [row("a", "12")]);
        let binary = Row { key: b"\xff"[..].into(), value: "1".into(), expires_at_ms: None };
        assert_eq!(one(RowFormat::Csv, "key_hex,value\nff,1\n"), std::slice::from_ref(&binary));
        assert_eq!(one(RowFormat::Jsonl, "{\"key\":{\"hex\":\"FF\"},\"value\":\"1\"}"), [binary]);
        assert_eq!(one(RowFormat::Csv, "key,value\n"), []);
        assert_eq!(one(RowFormat::Jsonl, ""), []);
    }

    #[test]
    fn endless_line_is_rejected_with_bounded_memory() {
        for (format, begin) in [(RowFormat::Jsonl, "{\"key\":\""), (RowFormat::Csv, "key,value\na,\"")] {
            let endless = io::Read::chain(io::Cursor::new(begin), io::repeat(b'x'));
            let bad = Rows::new(format, endless).find_map(Result::err).unwrap();
            assert!(bad.why.contains("longer than 8388608 bytes"), "{bad:?}");
        }
    }
}

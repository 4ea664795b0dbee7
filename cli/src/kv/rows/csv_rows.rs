//! CSV with a header (RFC 4180).

use super::quotes::Quotes;
use super::{ROW_BYTES_MAX, Row};
use crate::documents::ValueText;
use archon_client::KeyText;
use csv::{ByteRecord, ErrorKind, ReaderBuilder, Writer, WriterBuilder};
use std::io::{self, Read, Write};

/// Columns of an export.
const COLUMNS: [&str; 4] = ["key", "key_hex", "value", "value_hex"];

pub(super) fn begin<W: Write>(out: W) -> io::Result<Writer<W>> {
    let mut writer = WriterBuilder::new().from_writer(out);
    writer.write_record(COLUMNS).map_err(io_error)?;
    Ok(writer)
}

pub(super) fn write<W: Write>(out: &mut Writer<W>, key: &[u8], value: &ValueText) -> io::Result<()> {
    let key = ValueText::of(key);
    let fields = [&key.text, &key.hex, &value.text, &value.hex];
    out.write_record(fields.map(|field| field.as_deref().unwrap_or_default())).map_err(io_error)
}

/// Converts the error and keeps its kind, because a closed pipe is no error.
fn io_error(error: csv::Error) -> io::Error {
    let text = error.to_string();
    match error.into_kind() {
        ErrorKind::Io(error) => error,
        _ => io::Error::other(text),
    }
}

/// Reader that counts the bytes since the last row, and checks the end of the file.
struct CountingReader<R> {
    file: R,
    since_row: usize,
    quotes: Quotes,
    last: u8,
    ended: bool,
}

impl<R: Read> Read for CountingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.since_row > ROW_BYTES_MAX {
            return Err(io::Error::other(super::read::too_long()));
        }
        let count = self.file.read(buffer)?;
        let read = &buffer[..count];
        self.since_row += count;
        self.quotes.follow(read);
        match read.last() {
            Some(last) => self.last = *last,
            None => self.ended = true,
        }
        Ok(count)
    }
}

impl<R> CountingReader<R> {
    /// Returns the fault at the end, if it was reached: a truncated file has a shortened value, and neither a line
    /// break nor a closing quote at its end.
    fn cut_off(&self) -> Option<String> {
        const NO_LINE_BREAK: &str =
            "the last line has no line break: the file may be truncated; add one if it is complete";
        if !self.ended {
            return None;
        }
        let no_line_break = || (!matches!(self.last, b'\n' | b'\r')).then(|| NO_LINE_BREAK.to_owned());
        self.quotes.open_at_end().or_else(no_line_break)
    }
}

/// Reads rows.
pub(super) struct CsvRows<R> {
    reader: csv::Reader<CountingReader<R>>,
    columns: Columns,
    record: ByteRecord,
}

/// Positions of the columns.
#[derive(Clone, Copy)]
struct Columns {
    key: Option<usize>,
    key_hex: Option<usize>,
    value: Option<usize>,
    value_hex: Option<usize>,
}

impl<R: Read> CsvRows<R> {
    /// Reads the header.
    pub(super) fn new(file: R) -> Result<Self, (u64, String)> {
        let counted = CountingReader { file, since_row: 0, quotes: Quotes::new(), last: b'\n', ended: false };
        let mut reader = ReaderBuilder::new().has_headers(false).from_reader(counted);
        let mut record = ByteRecord::new();
        let header = reader.read_byte_record(&mut record).map_err(|error| (1, error.to_string()))?;
        if !header {
            return Err((1, "a header is missing: key,key_hex,value,value_hex".to_owned()));
        }
        if let Some(why) = broken(&reader) {
            return Err((1, why));
        }
        let columns = columns(&record).map_err(|why| (1, why))?;
        Ok(Self { reader, columns, record })
    }

    /// Returns the next row, with the line on which it begins.
    pub(super) fn next(&mut self) -> Option<(u64, Result<Row, String>)> {
        self.reader.get_mut().since_row = 0;
        let begin = self.reader.position().line();
        match self.reader.read_byte_record(&mut self.record) {
            Ok(false) => self.reader.get_ref().cut_off().map(|why| (begin, Err(why))),
            Ok(true) => {
                let line = self.record.position().map_or(begin, csv::Position::line);
                let row = match broken(&self.reader) {
                    Some(why) => Err(why),
                    None => self.row(),
                };
                Some((line, row))
            }
            Err(error) => {
                let line = error.position().map_or(begin, csv::Position::line);
                Some((line, Err(broken(&self.reader).unwrap_or_else(|| problem(error)))))
            }
        }
    }

    fn row(&self) -> Result<Row, String> {
        let field = |place: usize| {
            let bytes = self.record.get(place).unwrap_or_default();
            std::str::from_utf8(bytes)
                .map_err(|_| "it is not UTF-8; write such a key as key_hex, and such a value as value_hex".to_owned())
        };
        let (key, key_hex) = (self.columns.key.map(field).transpose()?, self.columns.key_hex.map(field).transpose()?);
        let (key, key_hex) = (key.unwrap_or_default(), key_hex.unwrap_or_default());
        let key = match (key.is_empty(), key_hex.is_empty()) {
            (_, true) => KeyText::new(key),
            (true, false) => KeyText(super::from_hex("key_hex", key_hex)?),
            (false, false) => return Err("there is both a key and a key_hex; leave one of them out".to_owned()),
        };
        let (value, hex) = (self.columns.value.map(field).transpose()?, self.columns.value_hex.map(field).transpose()?);
        Row::of(key, value, hex)
    }
}

/// Returns what breaks the rules of CSV up to the end of the record that was just read.
fn broken<R: Read>(reader: &csv::Reader<CountingReader<R>>) -> Option<String> {
    let counted = reader.get_ref();
    let violation = counted.quotes.violation_before(reader.position().byte());
    violation.map(str::to_owned).or_else(|| counted.cut_off())
}

fn columns(header: &ByteRecord) -> Result<Columns, String> {
    let names: Vec<String> = header.iter().map(|name| String::from_utf8_lossy(name).trim().to_owned()).collect();
    let known = |name: &&String| COLUMNS.contains(&name.as_str()) || *name == "revision";
    if let Some(other) = names.iter().find(|name| !known(name)) {
        return Err(format!("the header names a column {other:?}; there are {}", COLUMNS.join(", ")));
    }
    let place = |column: &str| -> Result<Option<usize>, String> {
        match names.iter().filter(|name| *name == column).count() {
            0 | 1 => Ok(names.iter().position(|name| name == column)),
            _ => Err(format!("the header names the column `{column}` twice")),
        }
    };
    let (key, key_hex) = (place("key")?, place("key_hex")?);
    if key.or(key_hex).is_none() {
        return Err("the header names neither a column `key` nor `key_hex`".to_owned());
    }
    match (place("value")?, place("value_hex")?) {
        (None, None) => Err("the header names neither a column `value` nor `value_hex`".to_owned()),
        (value, value_hex) => Ok(Columns { key, key_hex, value, value_hex }),
    }
}

fn problem(error: csv::Error) -> String {
    match error.kind() {
        ErrorKind::UnequalLengths { expected_len, len, .. } => {
            let fields = if *len == 1 { "field" } else { "fields" };
            format!("there are {len} {fields}, and {expected_len} in the header")
        }
        ErrorKind::Io(error) => error.to_string(),
        _ => error.to_string(),
    }
}

//! Reading of rows up to the first invalid one.

use super::csv_rows::CsvRows;
use super::{ROW_BYTES_MAX, Row, json_rows};
use crate::args::RowFormat;
use crate::text_input::{BEGIN_BYTES, utf16_problem};
use std::io::{self, BufRead, BufReader, Read};

/// Invalid line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct InvalidLine {
    /// Number, from 1.
    pub(crate) line: u64,
    /// Fault of the line.
    pub(crate) why: String,
}

/// Rows of a file, each with the line on which it begins. The first invalid row ends the iteration.
pub(crate) struct Rows<R> {
    from: RowSource<PeekedFile<R>>,
    over: bool,
}

/// A file whose first bytes were read already.
type PeekedFile<R> = io::Chain<io::Cursor<Vec<u8>>, R>;

enum RowSource<R> {
    Json {
        file: BufReader<R>,
        line: u64,
    },
    Csv(Box<CsvRows<R>>),
    /// The header is missing or invalid.
    Bad(Option<InvalidLine>),
}

impl<R: Read> Rows<R> {
    pub(crate) fn new(format: RowFormat, mut file: R) -> Self {
        let mut begin = Vec::new();
        let read = file.by_ref().take(BEGIN_BYTES as u64).read_to_end(&mut begin);
        let problem = read.err().map(|error| format!("it cannot be read: {error}"));
        if let Some(why) = problem.or_else(|| utf16_problem(&begin).map(str::to_owned)) {
            return Self { from: RowSource::Bad(Some(InvalidLine { line: 1, why })), over: false };
        }
        let file = io::Cursor::new(begin).chain(file);
        let from = match format {
            RowFormat::Jsonl => RowSource::Json { file: BufReader::new(file), line: 0 },
            RowFormat::Csv => match CsvRows::new(file) {
                Ok(rows) => RowSource::Csv(Box::new(rows)),
                Err((line, why)) => RowSource::Bad(Some(InvalidLine { line, why })),
            },
        };
        Self { from, over: false }
    }
}

impl<R: Read> Iterator for Rows<R> {
    type Item = Result<(u64, Row), InvalidLine>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        let found = match &mut self.from {
            RowSource::Json { file, line } => next_line(file, line).map(|row| (*line, row)),
            RowSource::Csv(rows) => rows.next(),
            RowSource::Bad(bad) => bad.take().map(|bad| (bad.line, Err(bad.why))),
        };
        self.over = !matches!(found, Some((_, Ok(_))));
        found.map(|(line, row)| row.map(|row| (line, row)).map_err(|why| InvalidLine { line, why }))
    }
}

/// Returns the next line that is not empty, and counts the lines.
fn next_line(file: &mut impl BufRead, number: &mut u64) -> Option<Result<Row, String>> {
    let mut line = Vec::new();
    loop {
        line.clear();
        *number += 1;
        match file.by_ref().take(ROW_BYTES_MAX as u64 + 1).read_until(b'\n', &mut line) {
            Ok(0) => return None,
            Ok(_) => {}
            Err(error) => return Some(Err(format!("it cannot be read: {error}"))),
        }
        if line.len() > ROW_BYTES_MAX {
            // A listing is a single line, which may exceed the limit of a row.
            let is_list = line.trim_ascii_start().starts_with(b"[");
            return Some(Err(if is_list { json_rows::A_LIST.to_owned() } else { too_long() }));
        }
        let text = match *number {
            1 => line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&line),
            _ => &line,
        };
        if !text.trim_ascii().is_empty() {
            return Some(json_rows::read(text.trim_ascii()));
        }
    }
}

pub(super) fn too_long() -> String {
    format!("it is longer than {ROW_BYTES_MAX} bytes, which no row is")
}

/// Opens the input: a file, or standard input.
pub(crate) fn open(file: Option<&std::path::Path>) -> io::Result<Box<dyn Read + Send>> {
    Ok(match file {
        Some(path) => Box::new(std::fs::File::open(path)?),
        None => Box::new(io::stdin()),
    })
}

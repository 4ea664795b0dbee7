//! Entry points for the fuzzer: files from an operator.

use crate::admin::rebalance::plan_file::PlanFile;
use crate::args::{CoordinatorArgs, NodeArgs, RowFormat};
use crate::kv::rows::{InvalidLine, Row, RowWriter, Rows};
use crate::serve::file::ConfigFile;
use crate::serve::settings::{MemberKind, MemberLine};
use std::path::Path;

/// Reads a plan.
///
/// # Errors
/// Description of the fault.
pub fn plan(path: &Path) -> Result<(), String> {
    PlanFile::read(path).map(|_| ()).map_err(|failure| failure.message)
}

/// Reads a node's settings.
///
/// # Errors
/// Description of the fault.
pub fn node_file(path: &Path) -> Result<(), String> {
    let file = ConfigFile::read(path).map_err(|error| error.to_string())?;
    MemberLine::<NodeArgs>::read_file(MemberKind::Node, &file).map(|_| ()).map_err(|failure| failure.message)
}

/// Reads a coordinator's settings.
///
/// # Errors
/// Description of the fault.
pub fn coordinator_file(path: &Path) -> Result<(), String> {
    let file = ConfigFile::read(path).map_err(|error| error.to_string())?;
    MemberLine::<CoordinatorArgs>::read_file(MemberKind::Coordinator, &file)
        .map(|_| ())
        .map_err(|failure| failure.message)
}

/// Reads rows of a table, as CSV or as lines of JSON. Accepted rows are written and read again.
///
/// # Errors
/// Description of the first fault.
///
/// # Panics
/// Rows differ after they were written and read.
pub fn rows(input: &[u8], csv: bool) -> Result<usize, String> {
    let format = if csv { RowFormat::Csv } else { RowFormat::Jsonl };
    let read = |text: &[u8]| {
        Rows::new(format, text).map(|row| row.map(|(_, row)| row)).collect::<Result<Vec<Row>, InvalidLine>>()
    };
    let found = read(input).map_err(|bad| format!("line {}: {}", bad.line, bad.why))?;
    let write = |out: &mut RowWriter<Vec<u8>>| {
        found.iter().try_for_each(|row| out.write(&row.key, &row.value, row.expires_at_ms))
    };
    let mut out = RowWriter::new(format, Vec::new()).map_err(|error| error.to_string())?;
    write(&mut out).map_err(|error| error.to_string())?;
    let text = out.finish().map_err(|error| error.to_string())?;
    assert_eq!(read(&text).as_ref(), Ok(&found), "rows are others after they were written and read");
    Ok(found.len())
}

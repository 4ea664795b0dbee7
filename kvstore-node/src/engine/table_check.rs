//! Complete check of an LSM tree's tables.

use super::damage::{read_panic, remove_panic};
use super::lsm_error::{convert, io};
use archon_kv::engine::EngineError;
use lsm_tree::checksum::ChecksummedWriter;
use lsm_tree::{AbstractTree, AnyTree, Error, Table};
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// Checks every table if the library panicked during the last use: a damaged one may be the cause. Without damage it is a
/// fault of the library, which is no reason to set data aside.
///
/// # Errors
/// [`EngineError::Damaged`] for a damaged table, [`EngineError::Io`] if the disk refuses.
pub(super) fn check_after_panic(directory: &Path, tree: &AnyTree) -> Result<(), EngineError> {
    let Some(what) = read_panic(directory)? else { return Ok(()) };
    let version = tree.current_version();
    let tables = version.iter_tables().count();
    tracing::warn!(tables, "the engine's library panicked while it had to {what}; its tables are checked");
    version.iter_tables().try_for_each(|table| check(directory, table))?;
    remove_panic(directory).map_err(io(directory, "remove the note of a panic"))?;
    let remedy = "this is a fault of the program: please report it with the panic's message";
    tracing::error!(tables, "all tables of the engine are whole, although its library panicked; {remedy}");
    Ok(())
}

fn check(directory: &Path, table: &Table) -> Result<(), EngineError> {
    match catch_unwind(AssertUnwindSafe(|| read(table))) {
        Ok(read) => read.map_err(|error| convert(directory, "check its tables", error)),
        Err(_) => {
            let what = format!("reading {} panicked", table.path.display());
            Err(EngineError::Damaged { directory: directory.to_owned(), what })
        }
    }
}

/// Reads a table twice: its bytes, which its checksum covers, and its rows.
fn read(table: &Table) -> lsm_tree::Result<()> {
    let mut bytes = ChecksummedWriter::new(std::io::sink());
    std::io::copy(&mut File::open(&*table.path)?, &mut bytes)?;
    let (got, expected) = (bytes.checksum(), table.checksum());
    if got != expected {
        return Err(Error::ChecksumMismatch { got, expected });
    }
    table.scan()?.try_for_each(|row| row.map(drop))
}

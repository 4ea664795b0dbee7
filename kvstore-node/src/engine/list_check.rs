//! Check of an LSM tree's files before the library opens them, where its own checks come too late or are missing.
//!
//! The library writes down the checksum of its list of tables, and does not compare it. A damaged list may lack a table, of
//! which the library then removes the file. And from a damaged table it takes a number of entries, for which it allocates
//! memory before it compares the checksum of the entries. A failed allocation ends the process.

use lsm_tree::checksum::ChecksummedWriter;
use lsm_tree::file::{CURRENT_VERSION_FILE, TABLES_FOLDER};
use lsm_tree::{Checksum, Error};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Type of the checksum of a list: XXH3 with 128 bits, the only one.
const CHECKSUM_TYPE: u8 = 0;
/// End of a table: [`TRAILER_MAGIC`], version, type of the checksum, checksum, position and length of the contents.
const TRAILER_BYTES: usize = 38;
const TRAILER_MAGIC: &[u8] = b"SFA!";
/// Offset of the position of the contents in the trailer.
const POSITION_OFFSET: usize = 22;
/// Beginning of the contents: a magic number, and the number of entries.
const CONTENTS_MAGIC: &[u8] = b"TOC!";
/// Size of an entry without its name.
const ENTRY_BYTES_MIN: u64 = 18;

/// Number and checksum of a tree's list of tables, as its file `current` has them.
pub(super) struct ListPointer {
    pub(super) id: u64,
    checksum: Checksum,
}

impl ListPointer {
    /// Reads the file; `None` if it has another format.
    ///
    /// # Errors
    /// The errors of the file system.
    pub(super) fn read(tree: &Path) -> io::Result<Option<Self>> {
        Ok(Self::parse(&fs::read(tree.join(CURRENT_VERSION_FILE))?))
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let (id, rest) = bytes.split_first_chunk()?;
        let (checksum, kind) = rest.split_first_chunk()?;
        let checksum = Checksum::from_raw(u128::from_le_bytes(*checksum));
        (kind == [CHECKSUM_TYPE]).then(|| Self { id: u64::from_le_bytes(*id), checksum })
    }
}

/// Checks the list of tables, and what the library reads first of each table.
///
/// # Errors
/// The library's error for a damaged file, and the errors of the file system.
pub(super) fn check_list(tree: &Path) -> lsm_tree::Result<()> {
    let pointer = ListPointer::read(tree)?.ok_or(Error::Unrecoverable)?;
    let mut list = ChecksummedWriter::new(io::sink());
    list.write_all(&fs::read(tree.join(format!("v{}", pointer.id)))?)?;
    if list.checksum() != pointer.checksum {
        return Err(Error::ChecksumMismatch { got: list.checksum(), expected: pointer.checksum });
    }
    for entry in fs::read_dir(tree.join(TABLES_FOLDER))? {
        let entry = entry?;
        if entry.file_type()?.is_file() && has_too_many_entries(&File::open(entry.path())?)? {
            return Err(Error::InvalidHeader("contents"));
        }
    }
    Ok(())
}

/// Returns whether a table claims more entries than it has space for. Unfinished tables have no trailer, and no claim.
fn has_too_many_entries(table: &File) -> io::Result<bool> {
    let length = table.metadata()?.len();
    let Some(end) = length.checked_sub(TRAILER_BYTES as u64) else { return Ok(false) };
    let mut trailer = [0; TRAILER_BYTES];
    table.read_exact_at(&mut trailer, end)?;
    let Some(position) = trailer[POSITION_OFFSET..].first_chunk().map(|bytes| u64::from_le_bytes(*bytes)) else {
        return Ok(false);
    };
    if !trailer.starts_with(TRAILER_MAGIC) || position > end {
        return Ok(false);
    }
    let mut start = [0; 8];
    match table.read_exact_at(&mut start, position) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(false),
        read => read?,
    }
    let [magic @ .., _, _, _, _] = &start;
    let entries = u32::from_le_bytes([start[4], start[5], start[6], start[7]]);
    Ok(magic == CONTENTS_MAGIC && u64::from(entries) > (length - position) / ENTRY_BYTES_MIN)
}

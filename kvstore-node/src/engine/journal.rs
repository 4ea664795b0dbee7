//! Truncation of the torn end of a journal of fjall 3 before fjall reads it.
//!
//! A power failure may leave the end of a batch that was never synced and not the middle. fjall takes a batch with a
//! start, an end and another checksum for damage and does not open, although everything synced is there. Everything
//! after the last whole batch is therefore cut here. If it was damage after all, synced batches are gone with it, and
//! with them the position that the flusher writes in the same batches: recovery sees that the engine is behind, and
//! does not serve such a replica.
//!
//! ```text
//! batch = 1 · items u32 · number u64 · item* · 3 · xxh3 of the items u64 · "FJL" 3
//! item  = 2 · type u8 · 0 · keyspace u64 · key bytes u16 · value bytes u32 · stored bytes u32 · key · value
//!       | 4 · keyspace u64
//! ```
//!
//! All integers are little endian. After the last batch there are zeros.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::xxh3_64;

const START: u8 = 1;
const ITEM: u8 = 2;
const END: u8 = 3;
const CLEAR: u8 = 4;
const TRAILER: &[u8] = b"FJL\x03";

/// Cuts everything after the last whole batch of the newest journal in `database`, durably; returns how many bytes of
/// it were not zero. A whole journal is not touched.
///
/// # Errors
/// Those of the file system.
pub(super) fn cut_torn_end(database: &Path) -> io::Result<usize> {
    let Some(newest) = newest(database)? else { return Ok(0) };
    let bytes = fs::read(&newest)?;
    let whole = whole_batches(&bytes);
    let torn = bytes[whole..].iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    if torn > 0 {
        let file = OpenOptions::new().write(true).open(&newest)?;
        file.set_len(whole as u64)?;
        file.sync_all()?;
        archon_durable::sync_directory(database)?;
    }
    Ok(torn)
}

/// Returns the journal that was being written: the others were synced before the next one began.
fn newest(database: &Path) -> io::Result<Option<PathBuf>> {
    let mut newest = None;
    for entry in fs::read_dir(database)? {
        let path = entry?.path();
        let is_journal = path.extension().is_some_and(|end| end == "jnl");
        let number = path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse::<u64>().ok());
        if let (true, Some(number)) = (is_journal, number) {
            newest = newest.max(Some((number, path)));
        }
    }
    Ok(newest.map(|(_, path)| path))
}

/// Returns the end of the last whole batch.
fn whole_batches(bytes: &[u8]) -> usize {
    let mut end = 0;
    while let Some(next) = batch(&bytes[end..]) {
        end += next;
    }
    end
}

/// Returns the length of the batch that begins here, if it is whole.
fn batch(bytes: &[u8]) -> Option<usize> {
    let mut rest = Rest(bytes);
    if rest.byte()? != START {
        return None;
    }
    let count = u32::from_le_bytes(rest.array()?);
    rest.skip(8)?;
    let items = rest.0;
    for _ in 0..count {
        match rest.byte()? {
            ITEM => {
                // Type, compression (none), keyspace.
                let [_, 0] = rest.array()? else { return None };
                rest.skip(8)?;
                let key_bytes = u16::from_le_bytes(rest.array()?);
                let [value_bytes, stored_bytes] =
                    [u32::from_le_bytes(rest.array()?), u32::from_le_bytes(rest.array()?)];
                if value_bytes != stored_bytes {
                    return None;
                }
                rest.skip(usize::from(key_bytes))?;
                rest.skip(usize::try_from(stored_bytes).ok()?)?;
            }
            CLEAR => rest.skip(8)?,
            _ => return None,
        }
    }
    let items = &items[..items.len() - rest.0.len()];
    let whole = rest.byte()? == END && u64::from_le_bytes(rest.array()?) == xxh3_64(items);
    (whole && rest.array::<4>()? == TRAILER).then(|| bytes.len() - rest.0.len())
}

/// Unread bytes.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn byte(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*array)
    }

    fn skip(&mut self, bytes: usize) -> Option<()> {
        self.0 = self.0.get(bytes..)?;
        Some(())
    }
}

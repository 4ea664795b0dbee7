//! Note of the last durable batch, which distinguishes a torn end from a damaged one.
//!
//! An interrupted write and a decayed last write look alike: a frame with a wrong checksum and nothing behind it. The
//! first was never acknowledged and is cut; the second may have been. So the number of the last durable batch is
//! written to a small file after each durable write, without a sync: it survives the end of the process in the page
//! cache, and the system writes it to disk within its write-back time. It names only synced batches, so an old note
//! proves less, but nothing wrong.

use std::io;
use std::sync::Arc;

use crc32c::crc32c;

use crate::disk::{Disk, DiskFile, powered_off};
use crate::error::WalError;
use crate::format::{u32_at, u64_at};
use crate::shortage::is_full;

pub(crate) const MARK_NAME: &str = "durable.mark";
const MAGIC: [u8; 8] = *b"ARCHMRK\n";
/// Magic, batch, checksum, zeros: within one sector, so a write is atomic.
const BYTES: usize = 24;

fn encode(batch: u64) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..16].copy_from_slice(&batch.to_le_bytes());
    let crc = crc32c(&bytes[..16]);
    bytes[16..20].copy_from_slice(&crc.to_le_bytes());
    bytes
}

fn decode(bytes: &[u8]) -> Option<u64> {
    let (magic, batch) = (bytes.get(..8)?, u64_at(bytes, 8)?);
    (magic == MAGIC && u32_at(bytes, 16)? == crc32c(&bytes[..16])).then_some(batch)
}

/// Returns the last batch noted as durable, if the note exists and is intact.
pub(crate) fn read(disk: &dyn Disk) -> Result<Option<u64>, WalError> {
    let failed = |source| WalError::Io { action: "read", path: MARK_NAME.to_owned(), source };
    let found = disk.list().map_err(failed)?.into_iter().find(|(name, _)| name == MARK_NAME);
    if found.is_none_or(|(_, bytes)| bytes < BYTES as u64) {
        return Ok(None);
    }
    let mut bytes = [0; BYTES];
    disk.open(MARK_NAME).and_then(|file| file.read_at(0, &mut bytes)).map_err(failed)?;
    Ok(decode(&bytes))
}

/// The note, open for writing. Without one the log works, but distinguishes less at its end.
#[derive(Debug)]
pub(crate) struct Mark {
    file: Option<Arc<dyn DiskFile>>,
}

impl Mark {
    /// Writes `batch` durably and keeps the file open.
    pub(crate) fn open(disk: &dyn Disk, batch: u64) -> Mark {
        let open = || -> io::Result<Arc<dyn DiskFile>> {
            let exists = disk.list()?.iter().any(|(name, _)| name == MARK_NAME);
            let file = if exists { disk.open(MARK_NAME)? } else { disk.create(MARK_NAME)? };
            file.write_at(0, &encode(batch))?;
            file.sync()?;
            if !exists {
                disk.sync_directory()?;
            }
            Ok(file)
        };
        let mut mark = Mark { file: None };
        match open() {
            Ok(file) => mark.file = Some(file),
            Err(error) => mark.give_up(disk, &error),
        }
        mark
    }

    /// Notes that all batches up to `batch` are durable.
    ///
    /// # Errors
    /// Errors of the file system, except for lack of space: copy-on-write file systems may need some even here; the
    /// log then continues without its note.
    pub(crate) fn note(&mut self, disk: &dyn Disk, batch: u64) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        match file.write_at(0, &encode(batch)) {
            Err(error) if is_full(error.kind()) => {
                self.give_up(disk, &error);
                Ok(())
            }
            result => result,
        }
    }

    /// Syncs the note when the log is closed properly.
    pub(crate) fn close(&mut self, disk: &dyn Disk) {
        if let Some(file) = self.file.take()
            && let Err(error) = file.sync()
        {
            self.give_up(disk, &error);
        }
    }

    fn give_up(&mut self, disk: &dyn Disk, error: &io::Error) {
        self.file = None;
        if !powered_off(disk) {
            tracing::warn!(%error, "the log cannot note what is durable: damage of its very end would look like a torn write");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::MemoryDisk;

    #[test]
    fn note_is_read_back_and_flipped_bits_void_it() {
        let disk = MemoryDisk::new();
        assert_eq!(read(&disk).unwrap(), None);
        Mark::open(&disk, 7).note(&disk, 9).unwrap();
        assert_eq!(read(&disk).unwrap(), Some(9));
        for bit in 0..20 * 8 {
            let other = disk.copy();
            other.decay(MARK_NAME, bit / 8, |byte| byte ^ (1 << (bit % 8)));
            assert_eq!(read(&other).unwrap(), None, "bit {bit}");
        }
    }
}

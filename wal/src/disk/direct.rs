//! Writing past the page cache, where the file system lets us.
//!
//! A write through the page cache and its `fdatasync` are two calls, a copy, and the search for what is dirty; a direct
//! synchronous write is one call that ends when the drive has the bytes. Both leave the same file, and large writes are
//! made the first way.
//!
//! Others read the file through the page cache meanwhile. Before and after a direct write Linux drops the pages it covers
//! (and writes dirty ones first), so whoever reads after the write returned sees it. Of records that lie in the same block
//! and were there before, a page read in between holds the same bytes.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{AtFlags, OFlags, StatxFlags};
use rustix::io::{Errno, ReadWriteFlags};

use super::{BLOCK_ALIGNMENT, DurableFile};

/// Smaller writes are possible on some devices, but make those with larger sectors read before they write.
const BLOCK_BYTES_MIN: usize = 4096;
/// The page cache keeps what is written in memory that lies together. Ours is scattered over pages, each of which a direct
/// write has to name to the device; from about this size on that costs more than a copy.
const DIRECT_BYTES_MAX: usize = 16 * 1024;

/// What is known of a directory: whether its files can be written to directly.
#[derive(Debug, Default)]
pub(super) struct DirectSupport {
    /// They cannot, or are not to be.
    refused: AtomicBool,
    /// A direct write succeeded, so that a later one that is refused is a fault of the disk.
    proven: AtomicBool,
}

impl DirectSupport {
    /// Has everything written through the page cache from now on.
    pub(super) fn disable(&self) {
        self.refused.store(true, Ordering::Relaxed);
    }

    fn is_refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed)
    }

    fn is_proven(&self) -> bool {
        self.proven.load(Ordering::Relaxed)
    }

    fn refuse(&self, why: &str) {
        if !self.refused.swap(true, Ordering::Relaxed) {
            tracing::info!(why, "the log's file system takes no direct writes: each write is followed by a sync");
        }
    }
}

/// A file open twice, for direct writes and for those that cannot be.
#[derive(Debug)]
pub(super) struct DirectFile {
    direct: File,
    buffered: File,
    block_bytes: usize,
    /// Shared by all files of the directory.
    direct_support: Arc<DirectSupport>,
}

impl DirectFile {
    /// `None` where the file system cannot be written to directly, as `direct_support` then says to all others.
    ///
    /// # Errors
    /// Those of the file system, but for that one.
    pub(super) fn open(path: &Path, direct_support: &Arc<DirectSupport>) -> io::Result<Option<DirectFile>> {
        if direct_support.is_refused() {
            return Ok(None);
        }
        // The C library's type of flags is signed.
        let flags = OFlags::DIRECT.bits().cast_signed();
        let direct = OpenOptions::new().write(true).custom_flags(flags).open(path);
        let direct = match direct {
            Err(error) if refuses(&error) => {
                direct_support.refuse("it cannot be opened so");
                return Ok(None);
            }
            result => result?,
        };
        if !syncs_direct_writes(&direct) {
            direct_support.refuse("it is none of those known to make such a write durable");
            return Ok(None);
        }
        let Some(block_bytes) = block_bytes(&direct) else {
            direct_support.refuse("its blocks do not suit");
            return Ok(None);
        };
        let buffered = OpenOptions::new().read(true).write(true).open(path)?;
        // The zeros that filled it stay in the page cache: large writes find their pages there, and a direct one drops its own.
        Ok(Some(DirectFile { direct, buffered, block_bytes, direct_support: direct_support.clone() }))
    }

    /// Fails with `Ok(false)` where nothing was written because the system does not do this here.
    fn try_direct(&self, mut offset: u64, mut data: &[u8]) -> io::Result<bool> {
        while !data.is_empty() {
            // The flag asks for what `fdatasync` does, where `O_SYNC` would also have the time of each write made durable.
            // Nothing else in the process uses this call: traces and injected faults can name it.
            match rustix::io::pwritev2(&self.direct, &[IoSlice::new(data)], offset, ReadWriteFlags::DSYNC) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => {
                    self.direct_support.proven.store(true, Ordering::Relaxed);
                    data = data.get(bytes..).unwrap_or_default();
                    offset += bytes as u64;
                }
                Err(Errno::INTR) => {}
                Err(error) => {
                    let error = io::Error::from(error);
                    return if !self.direct_support.is_proven() && refuses(&error) { Ok(false) } else { Err(error) };
                }
            }
        }
        Ok(true)
    }

    fn suits(&self, offset: u64, data: &[u8]) -> bool {
        offset.is_multiple_of(self.block_bytes as u64)
            && data.len().is_multiple_of(self.block_bytes)
            && data.len() <= DIRECT_BYTES_MAX
            && data.as_ptr().addr().is_multiple_of(BLOCK_ALIGNMENT)
    }
}

impl DurableFile for DirectFile {
    fn block_bytes(&self) -> usize {
        self.block_bytes
    }

    fn write_durable(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if !self.direct_support.is_refused() && self.suits(offset, data) {
            if self.try_direct(offset, data)? {
                return Ok(());
            }
            self.direct_support.refuse("a write was refused");
        }
        self.buffered.write_all_at(data, offset)?;
        self.buffered.sync_data()
    }
}

/// What the file system asks of direct writes, made no smaller than is good for the device.
fn block_bytes(file: &File) -> Option<usize> {
    let told = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
    // Kernels before 6.1, and some file systems, do not say.
    let Some(told) =
        told.ok().filter(|told| StatxFlags::from_bits_retain(told.stx_mask).contains(StatxFlags::DIOALIGN))
    else {
        return Some(BLOCK_BYTES_MIN);
    };
    // Both are zero where the file cannot be written to directly.
    let (memory, offset) = (told.stx_dio_mem_align as usize, told.stx_dio_offset_align as usize);
    let block = offset.max(BLOCK_BYTES_MIN);
    let suits = offset > 0 && memory <= BLOCK_ALIGNMENT && block <= DIRECT_BYTES_MAX && block.is_power_of_two();
    suits.then_some(block)
}

/// Whether an error means that this cannot be done here, rather than that it failed. A sandbox that does not know the call
/// answers that it is not permitted.
fn refuses(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM))
}

/// Whether the file lies on a file system of which it is known that a direct write with `RWF_DSYNC` is durable when it returns.
/// Some that live in user space, or elsewhere in a network, take the flag and do nothing about it.
fn syncs_direct_writes(file: &File) -> bool {
    /// ext2 to ext4, XFS, Btrfs, F2FS, as `statfs(2)` numbers them.
    const KNOWN: [u32; 4] = [0xEF53, 0x5846_5342, 0x9123_683E, 0xF2F5_2010];
    // Of the magic numbers, whose type differs between machines, 32 bits count.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    rustix::fs::fstatfs(file).is_ok_and(|told| KNOWN.contains(&(told.f_type as u32)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_skip::skipped;

    fn aligned(bytes: &mut Vec<u8>, fill: u8) -> &[u8] {
        aligned_bytes(bytes, 4096, fill)
    }

    fn aligned_bytes(bytes: &mut Vec<u8>, count: usize, fill: u8) -> &[u8] {
        bytes.resize(count + BLOCK_ALIGNMENT, fill);
        let start = bytes.as_ptr().addr().next_multiple_of(BLOCK_ALIGNMENT) - bytes.as_ptr().addr();
        &bytes[start..start + count]
    }

    /// A file of 8 KiB beside the build's output, if it takes direct writes.
    fn file(directory: &Path) -> Option<(DirectFile, Arc<DirectSupport>)> {
        let (path, direct_support) = (directory.join("a"), Arc::default());
        std::fs::write(&path, [9; 8192]).unwrap();
        let file = DirectFile::open(&path, &direct_support).unwrap();
        if file.is_none() {
            skipped(format_args!("the file system of {} takes no direct writes", directory.display()));
        }
        Some((file?, direct_support))
    }

    #[test]
    fn a_block_is_written_directly_and_anything_else_through_the_page_cache() {
        let directory = tempfile::tempdir().unwrap();
        let Some((file, direct_support)) = file(directory.path()) else { return };
        let (path, mut memory) = (directory.path().join("a"), Vec::new());
        let read = || std::fs::read(&path).unwrap();
        assert_eq!(read(), [9; 8192]);
        file.write_durable(4096, aligned(&mut memory, 1)).unwrap();
        assert!(direct_support.is_proven() && !direct_support.is_refused());
        // Read through the page cache, which held the old bytes.
        assert_eq!((read()[4095], read()[4096], read()[8191]), (9, 1, 1));
        file.write_durable(4090, &[2; 10]).unwrap();
        file.write_durable(4096, aligned(&mut Vec::new(), 3)).unwrap();
        assert_eq!((read()[4089], read()[4090], read()[4095], read()[4096]), (9, 2, 2, 3));
    }

    #[test]
    fn a_large_write_goes_through_the_page_cache_and_a_small_one_over_it_does_not() {
        let directory = tempfile::tempdir().unwrap();
        let Some((file, direct_support)) = file(directory.path()) else { return };
        file.write_durable(0, aligned_bytes(&mut Vec::new(), DIRECT_BYTES_MAX + 4096, 5)).unwrap();
        assert!(!direct_support.is_proven() && !direct_support.is_refused());
        file.write_durable(0, aligned_bytes(&mut Vec::new(), DIRECT_BYTES_MAX, 6)).unwrap();
        assert!(direct_support.is_proven());
        let read = std::fs::read(directory.path().join("a")).unwrap();
        assert_eq!((read[0], read[DIRECT_BYTES_MAX - 1], read[DIRECT_BYTES_MAX]), (6, 6, 5));
    }

    #[test]
    fn a_first_write_that_is_refused_goes_through_the_page_cache_from_then_on() {
        let directory = tempfile::tempdir().unwrap();
        let Some((mut file, direct_support)) = file(directory.path()) else { return };
        // No device writes blocks of eight bytes.
        file.block_bytes = 8;
        let mut memory = Vec::new();
        file.write_durable(8, &aligned(&mut memory, 4)[..16]).unwrap();
        assert!(direct_support.is_refused() && !direct_support.is_proven());
        let read = std::fs::read(directory.path().join("a")).unwrap();
        assert_eq!((read[7], read[8], read[23], read[24]), (9, 4, 4, 9));
        assert!(DirectFile::open(&directory.path().join("a"), &direct_support).unwrap().is_none(), "never tried again");
    }

    #[test]
    fn a_later_write_that_is_refused_fails() {
        let directory = tempfile::tempdir().unwrap();
        let Some((mut file, _)) = file(directory.path()) else { return };
        let mut memory = Vec::new();
        file.write_durable(0, aligned(&mut memory, 1)).unwrap();
        file.block_bytes = 8;
        let error = file.write_durable(8, &aligned(&mut memory, 4)[..16]).unwrap_err();
        assert!(refuses(&error), "{error}");
    }
}

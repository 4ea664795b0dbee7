//! Direct writes, which bypass the page cache, on file systems that support them.
//!
//! A write through the page cache with `fdatasync` takes two calls, a copy, and a search for dirty pages; a direct
//! synchronous write is one call that returns once the drive has the bytes. Both produce the same file. Large writes
//! use the page cache.
//!
//! Others may read the file through the page cache meanwhile. Before and after a direct write Linux drops the pages
//! it covers (and writes dirty ones first), so reads after the write see it. A page that is read in between holds the
//! same bytes of older records in the block.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{AtFlags, OFlags, StatxFlags};
use rustix::io::{Errno, ReadWriteFlags};

use super::{BLOCK_ALIGNMENT, DurableFile};

/// Some devices accept smaller writes, but those with larger sectors then read before they write.
const BLOCK_BYTES_MIN: usize = 4096;
/// Maximum size of a direct write. Its memory is scattered over pages, each of which is passed to the device; from
/// about this size on that costs more than a copy into the contiguous page cache.
const DIRECT_BYTES_MAX: usize = 16 * 1024;

/// Support for direct writes in a directory.
#[derive(Debug, Default)]
pub(super) struct DirectSupport {
    /// Direct writes are not possible, or disabled.
    refused: AtomicBool,
    /// A direct write succeeded, so a later refusal is a fault of the disk.
    proven: AtomicBool,
}

impl DirectSupport {
    /// Disables direct writes from now on.
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

/// A file opened twice, for direct and for buffered writes.
#[derive(Debug)]
pub(super) struct DirectFile {
    direct: File,
    buffered: File,
    block_bytes: usize,
    /// Shared by all files of the directory.
    direct_support: Arc<DirectSupport>,
}

impl DirectFile {
    /// Opens a file; returns `None` without support for direct writes, which is recorded in `direct_support` for
    /// other files.
    ///
    /// # Errors
    /// Errors of the file system, except for missing support.
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
        // The zeros that filled the file stay in the page cache: large writes find their pages there, and a direct
        // write drops its own.
        Ok(Some(DirectFile { direct, buffered, block_bytes, direct_support: direct_support.clone() }))
    }

    /// Returns `Ok(false)` if nothing was written because the system does not support it here.
    fn try_direct(&self, mut offset: u64, mut data: &[u8]) -> io::Result<bool> {
        while !data.is_empty() {
            // The flag has the effect of `fdatasync`, whereas `O_SYNC` would also make the time of each write
            // durable. The process uses this call nowhere else: traces and injected faults can name it.
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

/// Returns the block size that the file system requires for direct writes, at least the size that suits the device.
fn block_bytes(file: &File) -> Option<usize> {
    let told = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
    // Kernels before 6.1, and some file systems, do not report it.
    let Some(told) =
        told.ok().filter(|told| StatxFlags::from_bits_retain(told.stx_mask).contains(StatxFlags::DIOALIGN))
    else {
        return Some(BLOCK_BYTES_MIN);
    };
    // Both are zero if the file does not support direct writes.
    let (memory, offset) = (told.stx_dio_mem_align as usize, told.stx_dio_offset_align as usize);
    let block = offset.max(BLOCK_BYTES_MIN);
    let suits = offset > 0 && memory <= BLOCK_ALIGNMENT && block <= DIRECT_BYTES_MAX && block.is_power_of_two();
    suits.then_some(block)
}

/// Returns whether an error means that the operation is not supported, rather than that it failed. A sandbox that
/// does not know the call answers that it is not permitted.
fn refuses(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM))
}

/// Returns whether the file system is known to make a direct write with `RWF_DSYNC` durable. Some in user space or on
/// a network accept the flag and ignore it.
fn syncs_direct_writes(file: &File) -> bool {
    /// ext2 to ext4, XFS, Btrfs, F2FS, as `statfs(2)` numbers them.
    const KNOWN: [u32; 4] = [0xEF53, 0x5846_5342, 0x9123_683E, 0xF2F5_2010];
    // The type of the magic numbers differs between machines; 32 bits are significant.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    rustix::fs::fstatfs(file).is_ok_and(|told| KNOWN.contains(&(told.f_type as u32)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_testkit::skipped;

    fn aligned(bytes: &mut Vec<u8>, fill: u8) -> &[u8] {
        aligned_bytes(bytes, 4096, fill)
    }

    fn aligned_bytes(bytes: &mut Vec<u8>, count: usize, fill: u8) -> &[u8] {
        bytes.resize(count + BLOCK_ALIGNMENT, fill);
        let start = bytes.as_ptr().addr().next_multiple_of(BLOCK_ALIGNMENT) - bytes.as_ptr().addr();
        &bytes[start..start + count]
    }

    /// Returns a file of 8 KiB in the temporary directory, if it supports direct writes.
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
    fn only_whole_blocks_are_written_directly() {
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
    fn only_small_writes_are_direct() {
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
    fn refused_first_write_switches_to_page_cache() {
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
    fn refused_later_write_fails() {
        let directory = tempfile::tempdir().unwrap();
        let Some((mut file, _)) = file(directory.path()) else { return };
        let mut memory = Vec::new();
        file.write_durable(0, aligned(&mut memory, 1)).unwrap();
        file.block_bytes = 8;
        let error = file.write_durable(8, &aligned(&mut memory, 4)[..16]).unwrap_err();
        assert!(refuses(&error), "{error}");
    }
}

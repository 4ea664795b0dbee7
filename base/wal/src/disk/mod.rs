//! File operations of the log, behind a trait so that tests can fail, tear and lose writes.

mod direct;
#[cfg(feature = "testing")]
mod fault;
#[cfg(feature = "testing")]
mod memory;
mod real;

use std::fmt::Debug;
use std::io;
use std::sync::Arc;

#[cfg(feature = "testing")]
pub use fault::{Fault, FaultDisk, FaultPoint, Operation};
#[cfg(feature = "testing")]
pub use memory::MemoryDisk;
pub use real::RealDisk;

/// A directory of files.
///
/// Names are durable only after [`sync_directory`](Disk::sync_directory), contents only after [`DiskFile::sync`] or
/// if written by [`DurableFile::write_durable`].
pub trait Disk: Send + Sync + Debug {
    /// Returns names and sizes in bytes of the regular files in the directory.
    ///
    /// # Errors
    /// Errors of the file system.
    fn list(&self) -> io::Result<Vec<(String, u64)>>;

    /// Opens an existing file for reading and writing.
    ///
    /// # Errors
    /// Errors of the file system.
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;

    /// Creates a file that must not exist yet.
    ///
    /// # Errors
    /// Errors of the file system.
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;

    /// Opens an existing file for writes that are durable when they return. Other handles of the file see these
    /// writes, and their earlier writes stay.
    ///
    /// # Errors
    /// Errors of the file system.
    fn open_durable(&self, name: &str) -> io::Result<Arc<dyn DurableFile>> {
        Ok(Arc::new(WriteThenSync(self.open(name)?)))
    }

    /// Renames a file; an open handle stays valid.
    ///
    /// # Errors
    /// Errors of the file system.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file; an open handle stays valid.
    ///
    /// # Errors
    /// Errors of the file system.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes the names in the directory durable.
    ///
    /// # Errors
    /// Errors of the file system.
    fn sync_directory(&self) -> io::Result<()>;

    /// Returns the bytes that this process may still write to the disk; `None` if unknown.
    fn free_bytes(&self) -> Option<u64> {
        None
    }

    /// Returns true once a simulated machine has lost its power. The log then stops silently instead of ending the
    /// process. Always false for a real disk.
    #[cfg(feature = "testing")]
    fn powered_off(&self) -> bool {
        false
    }
}

/// Returns whether a simulated machine has lost its power.
#[cfg(feature = "testing")]
pub(crate) fn powered_off(disk: &dyn Disk) -> bool {
    disk.powered_off()
}

/// Product builds simulate no disk.
#[cfg(not(feature = "testing"))]
pub(crate) fn powered_off(_: &dyn Disk) -> bool {
    false
}

/// An open file.
pub trait DiskFile: Send + Sync + Debug {
    /// Fills `into` from `offset`; a shorter file is an error.
    ///
    /// # Errors
    /// Errors of the file system.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;

    /// Writes all of `data` at `offset`.
    ///
    /// # Errors
    /// Errors of the file system; part of the data may have been written.
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()>;

    /// Makes the contents and the size durable.
    ///
    /// # Errors
    /// Errors of the file system; it is unknown what became durable.
    fn sync(&self) -> io::Result<()>;

    /// Drops unmodified cached pages, so that later reads return what is on the disk: after a failed direct write the
    /// two may differ.
    fn forget_copies(&self) {}
}

/// An open file for writes that are durable when they return.
pub trait DurableFile: Send + Sync + Debug {
    /// Returns the block size, a power of two. Writes should begin and end at multiples of it and come from memory
    /// aligned to [`BLOCK_ALIGNMENT`]; only the end of the file is exempt. 1 if it makes no difference.
    fn block_bytes(&self) -> usize;

    /// Writes all of `data` at `offset` and makes it durable.
    ///
    /// # Errors
    /// Errors of the file system; any sectors of the data may have been written, and it is unknown which are durable.
    /// The write must not be retried.
    fn write_durable(&self, offset: u64, data: &[u8]) -> io::Result<()>;
}

/// Alignment of memory for direct writes, sufficient for every device.
pub const BLOCK_ALIGNMENT: usize = 4096;

/// Writes through the page cache, followed by a sync.
#[derive(Debug)]
pub(crate) struct WriteThenSync(pub(crate) Arc<dyn DiskFile>);

impl DurableFile for WriteThenSync {
    fn block_bytes(&self) -> usize {
        1
    }

    fn write_durable(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_at(offset, data)?;
        self.0.sync()
    }
}

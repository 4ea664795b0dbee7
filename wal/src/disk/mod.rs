//! The few things the log asks of a directory, behind a trait so that tests can fail, tear and
//! lose writes.

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

/// One directory of files.
///
/// What a name points to is durable only after [`sync_directory`](Disk::sync_directory), what a
/// file holds only after [`DiskFile::sync`], or where it was written by
/// [`DurableFile::write_durable`].
pub trait Disk: Send + Sync + Debug {
    /// Names and sizes in bytes of the regular files in the directory.
    ///
    /// # Errors
    /// Those of the file system.
    fn list(&self) -> io::Result<Vec<(String, u64)>>;

    /// Opens an existing file for reading and writing.
    ///
    /// # Errors
    /// Those of the file system.
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;

    /// Creates a file that must not exist yet.
    ///
    /// # Errors
    /// Those of the file system.
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;

    /// Opens an existing file for writes that are durable when they return. Those who hold the
    /// file open otherwise see what was so written, and what they wrote before is not undone.
    ///
    /// # Errors
    /// Those of the file system.
    fn open_durable(&self, name: &str) -> io::Result<Arc<dyn DurableFile>> {
        Ok(Arc::new(WriteThenSync(self.open(name)?)))
    }

    /// Renames a file; an open handle stays valid.
    ///
    /// # Errors
    /// Those of the file system.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file; an open handle stays valid.
    ///
    /// # Errors
    /// Those of the file system.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes the names in the directory durable.
    ///
    /// # Errors
    /// Those of the file system.
    fn sync_directory(&self) -> io::Result<()>;

    /// Bytes that this process may still write to the disk; `None` where that is not known.
    fn free_bytes(&self) -> Option<u64> {
        None
    }

    /// True once a simulated machine has lost its power. The log then stops in silence instead of
    /// ending the process. A real disk never says so.
    #[cfg(feature = "testing")]
    fn powered_off(&self) -> bool {
        false
    }
}

/// Whether a simulated machine has lost its power.
#[cfg(feature = "testing")]
pub(crate) fn powered_off(disk: &dyn Disk) -> bool {
    disk.powered_off()
}

/// A product simulates none.
#[cfg(not(feature = "testing"))]
pub(crate) fn powered_off(_: &dyn Disk) -> bool {
    false
}

/// One open file.
pub trait DiskFile: Send + Sync + Debug {
    /// Fills `into` from `offset`; a shorter file is an error.
    ///
    /// # Errors
    /// Those of the file system.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;

    /// Writes all of `data` at `offset`.
    ///
    /// # Errors
    /// Those of the file system; part of the data may have been written.
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()>;

    /// Makes the contents and the size durable.
    ///
    /// # Errors
    /// Those of the file system; it is unknown what became durable.
    fn sync(&self) -> io::Result<()>;

    /// Lets go of copies in memory of what was not changed there, so that what is read next is what
    /// the disk holds: after a direct write that failed, the two may differ.
    fn forget_copies(&self) {}
}

/// One file open for writes that are durable when they return.
pub trait DurableFile: Send + Sync + Debug {
    /// Writes should begin and end at multiples of this and come from memory aligned to
    /// [`BLOCK_ALIGNMENT`]; only the end of the file may break the rule. A power of two; 1 where
    /// it makes no difference.
    fn block_bytes(&self) -> usize;

    /// Writes all of `data` at `offset` and makes it durable.
    ///
    /// # Errors
    /// Those of the file system; any sectors of the data may have been written, and it is unknown
    /// which are durable. Not to be tried again.
    fn write_durable(&self, offset: u64, data: &[u8]) -> io::Result<()>;
}

/// What memory that is written from is aligned to: enough for every device that is written to directly.
pub const BLOCK_ALIGNMENT: usize = 4096;

/// A write through the system's page cache, and a sync.
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

//! The few things the log asks of a directory, behind a trait so that tests can fail, tear and
//! lose writes.

mod fault;
mod memory;
mod real;

use std::fmt::Debug;
use std::io;
use std::sync::Arc;

pub use fault::{Fault, FaultDisk, FaultPoint, Operation};
pub use memory::MemoryDisk;
pub use real::RealDisk;

/// One directory of files.
///
/// What a name points to is durable only after [`sync_directory`](Disk::sync_directory), what a
/// file holds only after [`DiskFile::sync`].
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

    /// True once a simulated machine has lost its power. The log then stops in silence instead of
    /// ending the process. A real disk never says so.
    fn powered_off(&self) -> bool {
        false
    }
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
}

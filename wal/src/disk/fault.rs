//! A disk that fails, or ends the process, at a chosen operation. For crash tests.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::{Disk, DiskFile};

/// A changing operation on a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// A file is created.
    Create,
    /// Bytes are written.
    Write,
    /// A file is synced.
    Sync,
    /// A file is renamed.
    Rename,
    /// A file is removed.
    Remove,
    /// The directory is synced.
    SyncDirectory,
}

/// What happens there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The process aborts before the operation.
    AbortBefore,
    /// The process aborts after half of a write, otherwise before the operation.
    AbortHalfway,
    /// The process aborts right after the operation.
    AbortAfter,
    /// The operation does nothing and fails.
    Error(io::ErrorKind),
}

/// Where a fault strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FaultPoint {
    /// The kind of operation that is counted; `None` counts all.
    pub operation: Option<Operation>,
    /// Which of them, from 0.
    pub nth: u64,
    /// What happens.
    pub fault: Fault,
}

/// Passes everything on to another disk, except for the fault.
#[derive(Debug)]
pub struct FaultDisk {
    inner: Arc<dyn Disk>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    point: Mutex<Option<FaultPoint>>,
    count: AtomicU64,
    full: AtomicBool,
}

impl FaultDisk {
    /// Wraps `inner`.
    pub fn new(inner: Arc<dyn Disk>) -> FaultDisk {
        FaultDisk { inner, shared: Arc::default() }
    }

    /// Arms a fault, counting from now; `None` disarms.
    pub fn arm(&self, point: Option<FaultPoint>) {
        *self.shared.point.lock() = point;
        self.shared.count.store(0, Ordering::SeqCst);
    }

    /// Makes the disk full, or not: then files can neither be created nor grow.
    pub fn set_full(&self, full: bool) {
        self.shared.full.store(full, Ordering::SeqCst);
    }

    fn wrap(&self, file: Arc<dyn DiskFile>, bytes: u64) -> Arc<dyn DiskFile> {
        Arc::new(FaultFile { inner: file, shared: self.shared.clone(), bytes: AtomicU64::new(bytes) })
    }
}

impl Shared {
    fn run<T>(&self, operation: Operation, half: impl FnOnce(), act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let struck = self.point.lock().filter(|point| {
            point.operation.is_none_or(|wanted| wanted == operation)
                && self.count.fetch_add(1, Ordering::SeqCst) == point.nth
        });
        match struck.map(|point| point.fault) {
            None => act(),
            Some(Fault::Error(kind)) => Err(kind.into()),
            Some(Fault::AbortBefore) => std::process::abort(),
            Some(Fault::AbortHalfway) => {
                half();
                std::process::abort()
            }
            Some(Fault::AbortAfter) => {
                let _ = act();
                std::process::abort()
            }
        }
    }

    fn check_space(&self) -> io::Result<()> {
        if self.full.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }
}

impl Disk for FaultDisk {
    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        self.inner.list()
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let bytes = self.inner.list()?.into_iter().find(|(found, _)| found == name);
        let bytes = bytes.map_or(0, |(_, bytes)| bytes);
        self.inner.open(name).map(|file| self.wrap(file, bytes))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.shared.check_space()?;
        let file = self.shared.run(Operation::Create, || {}, || self.inner.create(name))?;
        Ok(self.wrap(file, 0))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.shared.run(Operation::Rename, || {}, || self.inner.rename(from, to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.shared.run(Operation::Remove, || {}, || self.inner.remove(name))
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.shared.run(Operation::SyncDirectory, || {}, || self.inner.sync_directory())
    }

    fn powered_off(&self) -> bool {
        self.inner.powered_off()
    }
}

#[derive(Debug)]
struct FaultFile {
    inner: Arc<dyn DiskFile>,
    shared: Arc<Shared>,
    bytes: AtomicU64,
}

impl DiskFile for FaultFile {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(offset, into)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let end = offset + data.len() as u64;
        if end > self.bytes.load(Ordering::SeqCst) {
            self.shared.check_space()?;
        }
        let half = || {
            let _ = self.inner.write_at(offset, &data[..data.len() / 2]);
        };
        self.shared.run(Operation::Write, half, || self.inner.write_at(offset, data))?;
        self.bytes.fetch_max(end, Ordering::SeqCst);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.shared.run(Operation::Sync, || {}, || self.inner.sync())
    }
}

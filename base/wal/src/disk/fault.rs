//! A disk that fails or ends the process at a chosen operation, for crash tests.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::{Disk, DiskFile, DurableFile, WriteThenSync};

const SECTOR_BYTES: usize = 512;

/// A changing operation on a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// A file is created.
    Create,
    /// Bytes are written.
    Write,
    /// A file is synced.
    Sync,
    /// Bytes are written durably in one call. A write with a separate sync counts as those two.
    WriteDurable,
    /// A file is renamed.
    Rename,
    /// A file is removed.
    Remove,
    /// The directory is synced.
    SyncDirectory,
}

/// Effect of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The process aborts before the operation.
    AbortBefore,
    /// The process aborts after half of a write, otherwise before the operation.
    AbortHalfway,
    /// The process aborts in a write of which only some sectors of 512 bytes reached the disk, selected by the
    /// repeated bits. Otherwise before the operation.
    AbortTorn(u64),
    /// The process aborts right after the operation.
    AbortAfter,
    /// The operation does nothing and fails.
    Error(io::ErrorKind),
    /// The operation does nothing and fails with this system error number.
    System(i32),
    /// As [`AbortTorn`](Fault::AbortTorn), but the operation fails and the process continues.
    ErrorTorn(u64, io::ErrorKind),
}

/// Position of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FaultPoint {
    /// The kind of operation that is counted; `None` counts all.
    pub operation: Option<Operation>,
    /// Number of the operation, from 0.
    pub nth: u64,
    /// Effect.
    pub fault: Fault,
}

/// Passes all operations to another disk, except for the fault.
#[derive(Debug)]
pub struct FaultDisk {
    inner: Arc<dyn Disk>,
    shared: Arc<FaultState>,
}

#[derive(Debug, Default)]
struct FaultState {
    point: Mutex<Option<FaultPoint>>,
    count: AtomicU64,
    full: AtomicBool,
    /// Fails the opening of further files for durable writes.
    unopenable: AtomicBool,
}

impl FaultDisk {
    /// Wraps `inner`.
    pub fn new(inner: Arc<dyn Disk>) -> FaultDisk {
        FaultDisk { inner, shared: Arc::default() }
    }

    /// Sets a fault and restarts the count; `None` removes it.
    pub fn arm(&self, point: Option<FaultPoint>) {
        *self.shared.point.lock() = point;
        self.shared.count.store(0, Ordering::SeqCst);
    }

    /// Sets whether opening files for durable writes fails, as without free descriptors.
    pub fn set_unopenable(&self, unopenable: bool) {
        self.shared.unopenable.store(unopenable, Ordering::SeqCst);
    }

    /// Sets whether the disk is full, so that files can neither be created nor grow.
    pub fn set_full(&self, full: bool) {
        self.shared.full.store(full, Ordering::SeqCst);
    }

    fn wrap(&self, file: Arc<dyn DiskFile>, bytes: u64) -> Arc<dyn DiskFile> {
        Arc::new(FaultFile { inner: file, shared: self.shared.clone(), bytes: AtomicU64::new(bytes) })
    }
}

/// Part of an interrupted write that reaches the disk.
#[derive(Debug, Clone, Copy)]
enum Part {
    Half,
    Sectors(u64),
}

impl Part {
    fn write(self, file: &dyn DiskFile, offset: u64, data: &[u8]) {
        let sectors = match self {
            Part::Half => return drop(file.write_at(offset, &data[..data.len() / 2])),
            Part::Sectors(sectors) => sectors,
        };
        let mut at = 0;
        while at < data.len() {
            let sector = (offset + at as u64) / SECTOR_BYTES as u64;
            let sector_end = (sector + 1) * SECTOR_BYTES as u64 - offset;
            let end = data.len().min(usize::try_from(sector_end).unwrap_or(usize::MAX));
            if sectors >> (sector % 64) & 1 == 1 {
                let _ = file.write_at(offset + at as u64, &data[at..end]);
            }
            at = end;
        }
    }
}

impl FaultState {
    fn run<T>(
        &self,
        operation: Operation,
        part: impl FnOnce(Part),
        act: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        let struck = self.point.lock().filter(|point| {
            point.operation.is_none_or(|wanted| wanted == operation)
                && self.count.fetch_add(1, Ordering::SeqCst) == point.nth
        });
        match struck.map(|point| point.fault) {
            None => act(),
            Some(Fault::Error(kind)) => Err(kind.into()),
            Some(Fault::System(number)) => Err(io::Error::from_raw_os_error(number)),
            Some(Fault::AbortBefore) => std::process::abort(),
            Some(Fault::AbortHalfway) => {
                part(Part::Half);
                std::process::abort()
            }
            Some(Fault::AbortTorn(sectors)) => {
                part(Part::Sectors(sectors));
                std::process::abort()
            }
            Some(Fault::ErrorTorn(sectors, kind)) => {
                part(Part::Sectors(sectors));
                Err(kind.into())
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
        let file = self.shared.run(Operation::Create, |_| {}, || self.inner.create(name))?;
        Ok(self.wrap(file, 0))
    }

    fn open_durable(&self, name: &str) -> io::Result<Arc<dyn DurableFile>> {
        if self.shared.unopenable.load(Ordering::SeqCst) {
            return Err(io::Error::other("no descriptor is left"));
        }
        let inner = self.inner.open_durable(name)?;
        if inner.block_bytes() == 1 {
            return Ok(Arc::new(WriteThenSync(self.open(name)?)));
        }
        Ok(Arc::new(FaultDurable { inner, torn: self.inner.open(name)?, shared: self.shared.clone() }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.shared.run(Operation::Rename, |_| {}, || self.inner.rename(from, to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.shared.run(Operation::Remove, |_| {}, || self.inner.remove(name))
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.shared.run(Operation::SyncDirectory, |_| {}, || self.inner.sync_directory())
    }

    fn free_bytes(&self) -> Option<u64> {
        if self.shared.full.load(Ordering::SeqCst) { Some(0) } else { self.inner.free_bytes() }
    }

    fn powered_off(&self) -> bool {
        self.inner.powered_off()
    }
}

#[derive(Debug)]
struct FaultFile {
    inner: Arc<dyn DiskFile>,
    shared: Arc<FaultState>,
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
        let part = |part: Part| part.write(&*self.inner, offset, data);
        self.shared.run(Operation::Write, part, || self.inner.write_at(offset, data))?;
        self.bytes.fetch_max(end, Ordering::SeqCst);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.shared.run(Operation::Sync, |_| {}, || self.inner.sync())
    }
}

/// Never grows its file, so it needs no space.
#[derive(Debug)]
struct FaultDurable {
    inner: Arc<dyn DurableFile>,
    /// The same file, to write the remains of a torn write.
    torn: Arc<dyn DiskFile>,
    shared: Arc<FaultState>,
}

impl DurableFile for FaultDurable {
    fn block_bytes(&self) -> usize {
        self.inner.block_bytes()
    }

    fn write_durable(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let part = |part: Part| part.write(&*self.torn, offset, data);
        self.shared.run(Operation::WriteDurable, part, || self.inner.write_durable(offset, data))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::MemoryDisk;

    #[test]
    fn torn_write_keeps_the_selected_sectors() {
        let memory = MemoryDisk::with_block_bytes(512);
        let disk = FaultDisk::new(Arc::new(memory.clone()));
        disk.create("a").unwrap().write_at(0, &[1; 3072]).unwrap();
        let file = disk.open_durable("a").unwrap();
        let fault = Fault::ErrorTorn(0b10_0101, io::ErrorKind::Other);
        disk.arm(Some(FaultPoint { operation: Some(Operation::WriteDurable), nth: 0, fault }));
        assert!(file.write_durable(512, &[2; 2048]).is_err());
        let sectors: Vec<u8> = memory.contents("a").unwrap().chunks(512).map(|sector| sector[0]).collect();
        assert_eq!(sectors, [1, 1, 2, 1, 1, 1]);
    }
}

//! A disk in memory with simulated power loss: unsynced data may vanish, completely or partly.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{BLOCK_ALIGNMENT, Disk, DiskFile, DurableFile, WriteThenSync};

const SECTOR_BYTES: usize = 512;

/// A simulated disk. Clones share it.
///
/// It distinguishes durable from written data. [`power_loss`](MemoryDisk::power_loss) returns the disk as found after
/// a power failure: of the writes since a file's last sync any sectors, and of the directory changes since the last
/// directory sync any change may have reached the disk, in any combination.
///
/// Like most real disks it takes durable writes in blocks of 4 KiB, unless created with
/// [`with_block_bytes`](MemoryDisk::with_block_bytes).
#[derive(Debug, Clone)]
pub struct MemoryDisk {
    state: Arc<Mutex<State>>,
    block_bytes: usize,
}

impl Default for MemoryDisk {
    fn default() -> MemoryDisk {
        MemoryDisk::with_block_bytes(4096)
    }
}

#[derive(Debug, Default)]
struct State {
    files: Vec<FileState>,
    names: BTreeMap<String, usize>,
    names_durable: BTreeMap<String, usize>,
    names_pending: Vec<NameChange>,
    operations: u64,
    operations_max: Option<u64>,
    off: bool,
}

#[derive(Debug, Default, Clone)]
struct FileState {
    current: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<(usize, Vec<u8>)>,
}

#[derive(Debug)]
enum NameChange {
    Set(String, usize),
    Rename(String, String, usize),
    Remove(String),
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<String, usize>) {
        match self {
            NameChange::Set(name, file) => {
                names.insert(name.clone(), *file);
            }
            NameChange::Rename(from, to, file) => {
                names.remove(from);
                names.insert(to.clone(), *file);
            }
            NameChange::Remove(name) => {
                names.remove(name);
            }
        }
    }
}

impl State {
    /// Counts one changing operation; the one at which the power fails still has partial effects.
    fn step(&mut self) -> io::Result<Power> {
        if self.off {
            return Err(powered_off());
        }
        self.operations += 1;
        self.off = self.operations_max.is_some_and(|max| self.operations > max);
        Ok(if self.off { Power::FailsNow } else { Power::On })
    }

    fn change_names(&mut self, change: NameChange) -> io::Result<()> {
        let power = self.step()?;
        change.apply(&mut self.names);
        self.names_pending.push(change);
        power.into_result()
    }

    fn find(&self, name: &str) -> io::Result<usize> {
        if self.off {
            return Err(powered_off());
        }
        self.names.get(name).copied().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Power {
    On,
    FailsNow,
}

impl Power {
    fn into_result(self) -> io::Result<()> {
        if self == Power::On { Ok(()) } else { Err(powered_off()) }
    }
}

fn overwrite(bytes: &mut Vec<u8>, at: usize, data: &[u8]) {
    let end = at + data.len();
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[at..end].copy_from_slice(data);
}

fn powered_off() -> io::Error {
    io::Error::other("the simulated disk has no power")
}

impl MemoryDisk {
    /// Creates an empty disk.
    pub fn new() -> MemoryDisk {
        MemoryDisk::default()
    }

    /// Creates an empty disk with blocks of this size, a power of two. With 1, a durable write is a write and a sync,
    /// as on a file system without direct writes.
    pub fn with_block_bytes(block_bytes: usize) -> MemoryDisk {
        MemoryDisk { state: Arc::default(), block_bytes }
    }

    fn with_state(&self, state: State) -> MemoryDisk {
        MemoryDisk { state: Arc::new(Mutex::new(state)), block_bytes: self.block_bytes }
    }

    /// Fails the power after `count` more changing operations (writes, syncs, creations, renames, removals). The
    /// failing one happens partly and returns an error.
    pub fn fail_power_after(&self, count: u64) {
        let mut state = self.state.lock();
        state.operations_max = Some(state.operations + count);
    }

    /// Returns the number of changing operations so far.
    pub fn operations(&self) -> u64 {
        self.state.lock().operations
    }

    /// Cuts the power and returns the disk as found afterwards. `random` returns a number for each choice; the same
    /// numbers give the same disk.
    pub fn power_loss(&self, mut random: impl FnMut() -> u64) -> MemoryDisk {
        let mut state = self.state.lock();
        state.off = true;
        let mut files = Vec::with_capacity(state.files.len());
        for file in &state.files {
            let mut bytes = file.durable.clone();
            for (offset, data) in &file.pending {
                // Usually all or nothing, as on real disks; otherwise sector by sector.
                let mode = random() % 4;
                if mode == 0 {
                    continue;
                }
                let mut at = *offset;
                let end = offset + data.len();
                while at < end {
                    let sector_end = ((at / SECTOR_BYTES + 1) * SECTOR_BYTES).min(end);
                    if mode == 1 || random().is_multiple_of(2) {
                        overwrite(&mut bytes, at, &data[at - offset..sector_end - offset]);
                    }
                    at = sector_end;
                }
            }
            files.push(FileState { current: bytes.clone(), durable: bytes, pending: Vec::new() });
        }
        let mut names = state.names_durable.clone();
        for change in &state.names_pending {
            if random().is_multiple_of(2) {
                change.apply(&mut names);
            }
        }
        let state = State { files, names: names.clone(), names_durable: names, ..State::default() };
        self.with_state(state)
    }

    /// Ends all users of the disk, like a kill, and returns the disk for the next process on the same machine: all
    /// written data is readable, nothing more is durable.
    ///
    /// With `writes_dropped`, the disk is as after a failed sync: the system shows the writes since the last sync,
    /// assumes that they are on the disk, and never writes them.
    pub fn process_end(&self, writes_dropped: bool) -> MemoryDisk {
        let dead = State { off: true, ..State::default() };
        let mut state = std::mem::replace(&mut *self.state.lock(), dead);
        (state.off, state.operations, state.operations_max) = (false, 0, None);
        if writes_dropped {
            state.files.iter_mut().for_each(|file| file.pending.clear());
        }
        self.with_state(state)
    }

    /// Returns a copy of the disk with all files durable.
    pub fn copy(&self) -> MemoryDisk {
        let state = self.state.lock();
        let durable = |file: &FileState| FileState {
            current: file.current.clone(),
            durable: file.current.clone(),
            pending: Vec::new(),
        };
        let (files, names) = (state.files.iter().map(durable).collect(), state.names.clone());
        let state = State { files, names: names.clone(), names_durable: names, ..State::default() };
        self.with_state(state)
    }

    /// Returns the contents of a file as a reader sees them, if it exists.
    pub fn contents(&self, name: &str) -> Option<Vec<u8>> {
        let state = self.state.lock();
        let file = *state.names.get(name)?;
        state.files.get(file).map(|file| file.current.clone())
    }

    /// Overwrites a byte durably, like decay: `change` maps the old value. Returns whether the byte exists.
    pub fn decay(&self, name: &str, offset: usize, change: impl FnOnce(u8) -> u8) -> bool {
        let mut state = self.state.lock();
        let Some(&file) = state.names.get(name) else { return false };
        let file = &mut state.files[file];
        let (Some(current), true) = (file.current.get(offset).copied(), offset < file.durable.len()) else {
            return false;
        };
        let byte = change(current);
        file.current[offset] = byte;
        file.durable[offset] = byte;
        true
    }
}

impl Disk for MemoryDisk {
    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        let state = self.state.lock();
        if state.off {
            return Err(powered_off());
        }
        let size = |file: &usize| state.files[*file].current.len() as u64;
        Ok(state.names.iter().map(|(name, file)| (name.clone(), size(file))).collect())
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.state.lock().find(name)?;
        Ok(Arc::new(MemoryFile { disk: self.clone(), file }))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.state.lock();
        if state.names.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let file = state.files.len();
        state.files.push(FileState::default());
        state.change_names(NameChange::Set(name.to_owned(), file))?;
        Ok(Arc::new(MemoryFile { disk: self.clone(), file }))
    }

    fn open_durable(&self, name: &str) -> io::Result<Arc<dyn DurableFile>> {
        let file = self.open(name)?;
        if self.block_bytes == 1 {
            return Ok(Arc::new(WriteThenSync(file)));
        }
        let file = self.state.lock().find(name)?;
        Ok(Arc::new(MemoryFile { disk: self.clone(), file }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.state.lock();
        let file = state.find(from)?;
        state.change_names(NameChange::Rename(from.to_owned(), to.to_owned(), file))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.state.lock();
        state.find(name)?;
        state.change_names(NameChange::Remove(name.to_owned()))
    }

    fn sync_directory(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        state.step()?.into_result()?;
        state.names_durable = state.names.clone();
        state.names_pending.clear();
        Ok(())
    }

    fn powered_off(&self) -> bool {
        self.state.lock().off
    }
}

#[derive(Debug)]
struct MemoryFile {
    disk: MemoryDisk,
    file: usize,
}

impl DiskFile for MemoryFile {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let state = self.disk.state.lock();
        if state.off {
            return Err(powered_off());
        }
        let start = usize::try_from(offset).map_err(io::Error::other)?;
        let bytes = state.files[self.file].current.get(start..start + into.len());
        into.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.disk.state.lock();
        let power = state.step()?;
        let start = usize::try_from(offset).map_err(io::Error::other)?;
        let file = &mut state.files[self.file];
        overwrite(&mut file.current, start, data);
        file.pending.push((start, data.to_vec()));
        power.into_result()
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.disk.state.lock();
        state.step()?.into_result()?;
        let FileState { durable, pending, .. } = &mut state.files[self.file];
        for (offset, data) in pending.drain(..) {
            overwrite(durable, offset, &data);
        }
        Ok(())
    }
}

impl DurableFile for MemoryFile {
    fn block_bytes(&self) -> usize {
        self.disk.block_bytes
    }

    /// Like a real disk: rejects unaligned writes, and earlier writes to the range become durable first.
    fn write_durable(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.disk.state.lock();
        let power = state.step()?;
        let start = usize::try_from(offset).map_err(io::Error::other)?;
        let end = start + data.len();
        let block = self.disk.block_bytes;
        let file = &mut state.files[self.file];
        let whole = end.is_multiple_of(block) || end == file.current.len();
        if !start.is_multiple_of(block) || !whole || !data.as_ptr().addr().is_multiple_of(BLOCK_ALIGNMENT) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let FileState { current, durable, pending } = file;
        pending.retain(|(at, written)| {
            let apart = at + written.len() <= start || end <= *at;
            if !apart {
                overwrite(durable, *at, written);
            }
            apart
        });
        overwrite(current, start, data);
        match power {
            Power::On => overwrite(durable, start, data),
            Power::FailsNow => pending.push((start, data.to_vec())),
        }
        power.into_result()
    }
}

#[cfg(test)]
mod tests;

//! Counts allocations of processes: each counts its own and writes the sums into a file of a directory that the measuring
//! process made, from where that reads them.
// A global allocator cannot be had without `unsafe`; this one counts and hands everything on.
#![allow(unsafe_code)]

use anyhow::Context;
use mimalloc::MiMalloc;
use rustix::process::getppid;
use std::alloc::{GlobalAlloc, Layout};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How often a process writes its sums: old by that much at most, which is little beside seconds.
const EVERY: Duration = Duration::from_millis(100);

static CALLS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);

/// The allocator of `archon`, counted.
pub(crate) struct Counting;

impl Counting {
    fn count(bytes: usize) {
        CALLS.fetch_add(1, Ordering::Relaxed);
        BYTES.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

// SAFETY: every call goes to mimalloc as it came; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Self::count(layout.size());
        // SAFETY: the caller keeps the contract of `alloc`, which is mimalloc's.
        unsafe { MiMalloc.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: `at` came from mimalloc, by `alloc` or `realloc`.
        unsafe { MiMalloc.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        Self::count(bytes);
        // SAFETY: as for `dealloc`; the caller keeps the contract of `realloc`.
        unsafe { MiMalloc.realloc(at, layout, bytes) }
    }
}

/// Calls of the allocator and bytes asked for, up to one moment.
#[derive(Clone, Copy, Default)]
pub(crate) struct Allocations {
    pub(crate) calls: u64,
    pub(crate) bytes: u64,
}

impl Allocations {
    /// Those of this process.
    pub(crate) fn own() -> Self {
        Self { calls: CALLS.load(Ordering::Relaxed), bytes: BYTES.load(Ordering::Relaxed) }
    }

    /// What came since `before`, together with `self`.
    pub(crate) fn since(self, before: Self) -> Self {
        Self { calls: self.calls.saturating_sub(before.calls), bytes: self.bytes.saturating_sub(before.bytes) }
    }

    fn plus(self, other: Self) -> Self {
        Self { calls: self.calls + other.calls, bytes: self.bytes + other.bytes }
    }
}

/// Where the children of process `parent` write.
fn directory_of(parent: u32) -> PathBuf {
    std::env::temp_dir().join(format!("archon-counts-{parent}"))
}

/// The directory into which the children of this process write; goes away with this.
pub(crate) struct Children(PathBuf);

impl Children {
    /// Makes the directory.
    pub(crate) fn expect() -> anyhow::Result<Self> {
        let directory = directory_of(std::process::id());
        std::fs::create_dir(&directory).with_context(|| format!("making {}", directory.display()))?;
        Ok(Self(directory))
    }

    /// What these children have allocated.
    pub(crate) fn allocations(&self, pids: &[u32]) -> anyhow::Result<Allocations> {
        let mut sum = Allocations::default();
        for pid in pids {
            let path = self.0.join(pid.to_string());
            let bytes = std::fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
            let number =
                |at: usize| bytes.get(at..at + 8).and_then(|part| part.try_into().ok()).map(u64::from_le_bytes);
            let (calls, bytes) = (number(0), number(8));
            let (calls, bytes) = calls.zip(bytes).with_context(|| format!("{} is too short", path.display()))?;
            sum = sum.plus(Allocations { calls, bytes });
        }
        Ok(sum)
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// If the parent of this process counts, begins to write what this process allocates. The thread ends with the process.
pub(crate) fn report_to_parent() {
    let Some(parent) = getppid() else { return };
    let directory = directory_of(parent.as_raw_nonzero().get().unsigned_abs());
    let Ok(file) = File::create(directory.join(std::process::id().to_string())) else { return };
    let tell = move || {
        loop {
            let Allocations { calls, bytes } = Allocations::own();
            let mut record = [0; 16];
            record[..8].copy_from_slice(&calls.to_le_bytes());
            record[8..].copy_from_slice(&bytes.to_le_bytes());
            if file.write_all_at(&record, 0).is_err() {
                return;
            }
            std::thread::sleep(EVERY);
        }
    };
    // Without it the parent says that it cannot read the file.
    let _ = std::thread::Builder::new().name("counts".into()).spawn(tell);
}

//! Real syncs for sled.
//!
//! On Linux sled calls `sync_file_range` after each write to its log. That starts and awaits write-back of the range
//! but flushes neither the file's metadata nor the drive's cache, so a power loss may undo it. Syncing the files only
//! when *we* sync would not be enough: sled reuses a segment as soon as it believes that newer copies of its pages are
//! stable. With the copies still in the page cache, a power loss could keep the overwritten segment and lose the
//! copies, and then even rows far older than the replayed log would be gone. So every single sync of sled's must be
//! real. sled offers no hook for it; defining the C symbol in the program takes precedence over the C library's at link
//! time. Opening an engine checks that the definition is indeed the one in use, and refuses otherwise.

use std::sync::atomic::{AtomicU64, Ordering};

static SYNCS: AtomicU64 = AtomicU64::new(0);

/// Returns the number of sled's syncs through the definition below, in this process.
pub(super) fn syncs() -> u64 {
    SYNCS.load(Ordering::Relaxed)
}

/// Returns whether sled uses `sync_file_range` on this platform; elsewhere it calls `fsync` itself.
pub(super) const fn is_needed() -> bool {
    cfg!(target_os = "linux")
}

#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
mod symbol {
    use super::{Ordering, SYNCS};
    use std::ffi::{c_int, c_uint};

    // SAFETY: this is the C library's own declaration of fdatasync(2).
    unsafe extern "C" {
        fn fdatasync(descriptor: c_int) -> c_int;
    }

    /// Replaces the C library's function of the same name: a whole `fdatasync` instead of a range's write-back.
    ///
    /// Errors are reported as the original does: -1, with `errno` set by `fdatasync`.
    // SAFETY: the signature is that of sync_file_range(2) (off64_t is i64 on Linux), it promises strictly more than the
    // original, and nothing else in the program defines the symbol.
    #[unsafe(no_mangle)]
    extern "C" fn sync_file_range(descriptor: c_int, _offset: i64, _length: i64, _flags: c_uint) -> c_int {
        SYNCS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: fdatasync takes any integer and fails with EBADF for one that is no open file.
        unsafe { fdatasync(descriptor) }
    }
}

//! Bound on the memory of all memtables of a node.

use crate::mutant::Mutant;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Default bound on all memtables of a node together, in bytes.
const MEMTABLE_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Inverse of the share of the bound for cached client windows. A flush does not free them, so the share is small: the
/// flush of the other bytes must make enough room.
const CACHE_PART: usize = 16;

/// The bound on all memtables of a node together. Clones share it.
#[derive(Clone, Debug)]
pub struct MemtableBudget {
    used: Arc<AtomicUsize>,
    /// Used bytes that are cached windows.
    cached: Arc<AtomicUsize>,
    /// Memtables with cached windows.
    caching: Arc<AtomicUsize>,
    max: usize,
    /// The rule that a test disables in all memtables.
    #[cfg(any(test, feature = "mutants"))]
    mutant: Option<Mutant>,
}

impl Default for MemtableBudget {
    fn default() -> Self {
        Self::new(MEMTABLE_BYTES_MAX)
    }
}

impl MemtableBudget {
    /// Creates a budget of `bytes_max` bytes.
    pub fn new(bytes_max: usize) -> Self {
        Self {
            used: Arc::default(),
            cached: Arc::default(),
            caching: Arc::default(),
            max: bytes_max,
            #[cfg(any(test, feature = "mutants"))]
            mutant: None,
        }
    }

    /// Disables a rule in all memtables, for a test that proves its checks.
    #[cfg(any(test, feature = "mutants"))]
    #[must_use]
    pub fn with_mutant(self, mutant: Option<Mutant>) -> Self {
        Self { mutant, ..self }
    }

    /// Returns whether a test disables this rule.
    #[cfg(any(test, feature = "mutants"))]
    pub(crate) fn breaks(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    #[cfg(not(any(test, feature = "mutants")))]
    #[allow(clippy::unused_self)]
    pub(crate) const fn breaks(&self, _: Mutant) -> bool {
        false
    }

    /// Returns whether new writes must be refused. Writes already decided (a follower's entries, a replay) are still
    /// accepted, so writes in flight can exceed the bound.
    pub fn is_full(&self) -> bool {
        self.bytes_used() >= self.max
    }

    /// Returns whether entries from leaders must wait as well. The bound is 1.5 times the one for new writes: among
    /// equal nodes, a leader then waits for its own engine before a follower makes it wait.
    pub fn is_overfull(&self) -> bool {
        self.bytes_used() >= self.max + self.max / 2
    }

    /// Returns whether rows should go to the engine without delay.
    pub fn is_half_full(&self) -> bool {
        self.bytes_used() >= self.max / 2
    }

    /// Charges a change in the size of a memtable's cached windows, from `before` to `after` bytes in all.
    pub(crate) fn charge_cache(&self, before: usize, after: usize) {
        for used in [&self.used, &self.cached] {
            if after > before {
                used.fetch_add(after - before, Ordering::Relaxed);
            } else {
                used.fetch_sub(before - after, Ordering::Relaxed);
            }
        }
        if before == 0 && after > 0 {
            self.caching.fetch_add(1, Ordering::Relaxed);
        } else if before > 0 && after == 0 {
            self.caching.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Returns whether a memtable with `bytes` of cached windows must drop some. It must if the windows of all
    /// memtables exceed their share; or if they exceed half of it, and this memtable exceeds its equal part of that
    /// half. The other half is for memtables that begin to cache before the others have dropped their excess.
    pub(crate) fn is_cache_beyond_part(&self, bytes: usize) -> bool {
        let (cached, share) = (self.cached.load(Ordering::Relaxed), self.max / CACHE_PART);
        let part = || share / 2 / self.caching.load(Ordering::Relaxed).max(1);
        cached > share || (cached > share / 2 && bytes > part())
    }

    /// Returns whether the windows of all memtables exceed their share: a memtable then drops its own as it looks them up,
    /// until those of idle memtables are gone.
    pub(crate) fn is_cache_full(&self) -> bool {
        self.cached.load(Ordering::Relaxed) > self.max / CACHE_PART
    }

    pub(crate) fn charge(&self, bytes: usize) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn release(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Returns the bytes held by all memtables now.
    pub fn bytes_used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
}

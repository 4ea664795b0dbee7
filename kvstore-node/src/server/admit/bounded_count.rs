//! Bounded counters.

use std::sync::atomic::{AtomicUsize, Ordering};

/// A count that can be taken from within a bound.
#[derive(Debug)]
pub(super) struct BoundedCount {
    used: AtomicUsize,
    max: usize,
}

impl BoundedCount {
    pub(super) fn new(max: usize) -> Self {
        Self { used: AtomicUsize::new(0), max }
    }

    /// Takes `amount` if that leaves `left` free.
    pub(super) fn try_take(&self, amount: usize, left: usize) -> bool {
        let wanted = amount.saturating_add(left);
        let taken = |used: usize| used.checked_add(wanted).filter(|sum| *sum <= self.max).map(|_| used + amount);
        self.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, taken).is_ok()
    }

    /// Takes `amount`, even beyond the bound, as it exists already.
    pub(super) fn take(&self, amount: usize) {
        self.used.fetch_add(amount, Ordering::AcqRel);
    }

    pub(super) fn give(&self, amount: usize) {
        let before = self.used.fetch_sub(amount, Ordering::AcqRel);
        debug_assert!(before >= amount, "gave back {amount} of {before}");
    }

    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::Acquire)
    }

    pub(super) fn free(&self) -> usize {
        self.max.saturating_sub(self.used())
    }

    pub(super) const fn max(&self) -> usize {
        self.max
    }
}

//! Space of the log, for callers that must not be refused.

use std::sync::atomic::Ordering;

use super::Wal;
use crate::segment::SegmentStart;
use crate::shortage::Shortage;
use crate::writer::LogState;

impl Wal {
    /// Returns the reason why the log cannot prepare the files that it should, if so: its space is then almost
    /// limited to the reserve, and it will soon refuse non-urgent batches. Ends by itself, like
    /// [`read_only`](Wal::read_only).
    pub fn shortage(&self) -> Option<Shortage> {
        self.handle.shared.pool.shortage()
    }

    /// Returns the size of an ordinary segment, in bytes.
    pub fn segment_bytes(&self) -> u64 {
        self.handle.shared.pool.segment_bytes()
    }

    /// Returns the bytes of urgent batches, each of at most `largest`, that are certain to fit beside the queued ones
    /// even if no further file can be created. A lower bound, regardless of concurrent writes.
    pub fn sure_space(&self, largest: u64) -> u64 {
        let LogState { queue, pool, active_left, index, .. } = &*self.handle.shared;
        // In this order: concurrent writes and activations count as used, never twice as free.
        let queued = queue.bytes() as u64;
        let left = active_left.load(Ordering::Acquire);
        let beginning = SegmentStart::new(&index.read()).bytes();
        // A batch that no longer fits leaves the rest of a segment unused, less than its own size.
        let fresh = pool.segment_bytes().saturating_sub(beginning).saturating_sub(largest);
        let space = left.saturating_sub(largest) + fresh.saturating_mul(pool.ready() as u64);
        space.saturating_sub(queued)
    }
}

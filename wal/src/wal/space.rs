//! How much space the log has, for those who must not be refused.

use std::sync::atomic::Ordering;

use super::Wal;
use crate::segment::Beginning;
use crate::shortage::Shortage;
use crate::writer::Shared;

impl Wal {
    /// Why the log cannot make the files ready that it should, if so: it has little more space than its reserve then, and
    /// refuses what is not urgent before long. Ends by itself, as [`read_only`](Wal::read_only) does.
    pub fn shortage(&self) -> Option<Shortage> {
        self.handle.shared.pool.shortage()
    }

    /// Size of an ordinary segment, in bytes.
    pub fn segment_bytes(&self) -> u64 {
        self.handle.shared.pool.segment_bytes()
    }

    /// Bytes of urgent batches, each of at most `largest`, that are sure to find space beside what is queued, though not one
    /// file more can be made. Never more than that, whatever is being written meanwhile.
    pub fn sure_space(&self, largest: u64) -> u64 {
        let Shared { queue, pool, active_left, index, .. } = &*self.handle.shared;
        // In this order: what is written or put into use in between is counted as gone, never twice as there.
        let queued = queue.bytes() as u64;
        let left = active_left.load(Ordering::Acquire);
        let beginning = Beginning::new(&index.read()).bytes();
        // A batch that does not fit any more leaves the rest of a segment unused, less than its own size.
        let fresh = pool.segment_bytes().saturating_sub(beginning).saturating_sub(largest);
        let space = left.saturating_sub(largest) + fresh.saturating_mul(pool.ready() as u64);
        space.saturating_sub(queued)
    }
}

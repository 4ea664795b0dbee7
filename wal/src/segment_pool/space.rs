//! What lies ready, for those who must not be refused.

use super::{RESERVE, SegmentPool};
use crate::shortage::Shortage;

impl SegmentPool {
    /// Why the files that should be ready cannot be made, if none is left but the reserve.
    pub(crate) fn shortage(&self) -> Option<Shortage> {
        let kind = {
            let state = self.state.lock();
            state.failed.as_ref().filter(|_| state.ready.len() <= RESERVE).map(|(kind, _)| *kind)?
        };
        Some(Shortage { kind, free_bytes: self.disk.free_bytes(), needed_bytes: self.segment_bytes })
    }

    /// How many files are ready, the reserve included.
    pub(crate) fn ready(&self) -> usize {
        self.state.lock().ready.len()
    }
}

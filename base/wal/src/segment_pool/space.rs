//! Prepared space, for callers that must not be refused.

use super::{RESERVE, SegmentPool};
use crate::shortage::Shortage;

impl SegmentPool {
    /// Returns the reason why files cannot be prepared, if none is left but the reserve.
    pub(crate) fn shortage(&self) -> Option<Shortage> {
        let kind = {
            let state = self.state.lock();
            state.failed.as_ref().filter(|_| state.ready.len() <= RESERVE).map(|(kind, _)| *kind)?
        };
        Some(Shortage { kind, free_bytes: self.disk.free_bytes(), needed_bytes: self.segment_bytes })
    }

    /// Returns the number of prepared files, including the reserve.
    pub(crate) fn ready(&self) -> usize {
        self.state.lock().ready.len()
    }
}

//! State of merges into a partition.

use crate::ranges::yield_page::YieldPage;
use archon_kv::MergeRecord;
use archon_types::{Incarnation, Millis, Revision, Seq, Version};
use bytes::Bytes;

/// State of merges into this partition, while the copy serves.
#[derive(Debug, Default)]
pub(crate) struct AbsorbWork {
    /// Last merge according to the whole log, uncommitted entries included.
    pub(crate) merged: Option<MergeRecord>,
    /// Position of the entry that completes it; zero if it was there when this copy began to serve.
    pub(crate) merged_at: Seq,
    pub(crate) under_way: Option<UnderWay>,
    /// Incarnation and row version of the last report to the coordinators.
    pub(crate) reported: Option<(Incarnation, Version)>,
}

/// Transfer of keys from the right neighbour.
#[derive(Debug)]
pub(crate) struct UnderWay {
    pub(crate) attempt: Version,
    /// Last key received.
    pub(crate) after: Option<Bytes>,
    /// Bytes received.
    pub(crate) bytes: u64,
    /// Number and deadline of the outstanding page request.
    pub(crate) asked: Option<(u64, Millis)>,
    /// Earliest time of the next request.
    pub(crate) not_before: Millis,
    /// Page for which the log had no room yet.
    pub(crate) page: Option<YieldPage>,
}

impl AbsorbWork {
    /// Returns the revision that the entry at this position writes.
    pub(crate) fn revision(&self, seq: Seq) -> Revision {
        MergeRecord::revision(self.merged.as_ref(), seq)
    }

    /// Returns the last merge according to the log.
    pub(crate) const fn merged(&self) -> Option<&MergeRecord> {
        self.merged.as_ref()
    }

    /// Drops all state when the copy stops serving; the next leader reads it from the log.
    pub(crate) fn rest(&mut self) {
        *self = Self::default();
    }

    /// Starts with the merge that the log holds when this copy begins to serve.
    pub(crate) fn serve(&mut self, merged: Option<MergeRecord>) {
        *self = Self { merged, ..Self::default() };
    }

    /// Starts an attempt: its keys are cleared and sealed, so pages may come.
    pub(crate) fn begin(&mut self, attempt: Version) {
        let (after, asked, page) = (None, None, None);
        self.under_way = Some(UnderWay { attempt, after, bytes: 0, asked, not_before: Millis::ZERO, page });
    }
}

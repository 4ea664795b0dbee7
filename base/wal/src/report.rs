//! Reports of the log about its content.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use crate::batch::StreamId;
use crate::replay::Damage;

/// First and last number of a stream's records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// First number.
    pub first: u64,
    /// Last number, not below the first.
    pub last: u64,
}

/// State of one stream when the log was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamState {
    /// The stored records; `None` if there are none.
    pub bounds: Option<Bounds>,
    /// Lower numbers are trimmed; an empty stream accepts this number and higher ones.
    pub seq_min: u64,
    /// The metas by key.
    pub metas: BTreeMap<u32, Bytes>,
    /// The stream lost data, or a loss cannot be excluded. `bounds` and `metas` are the remaining data. It can be
    /// read; all changes except [`WalBatch::drop_stream`](crate::WalBatch::drop_stream) are refused.
    pub damaged: bool,
}

/// State of the log when it was opened; all of it is durable.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecoveredLog {
    /// Every stream that exists.
    pub streams: BTreeMap<StreamId, StreamState>,
    /// Every place that failed its checks. A stream may also be damaged since an earlier run:
    /// [`StreamState::damaged`] is authoritative.
    pub damaged: Vec<Damage>,
    /// Bytes of an interrupted write cut off the end; none of them were acknowledged.
    pub torn_bytes_cut: u64,
}

impl RecoveredLog {
    /// Returns the damaged streams.
    pub fn damaged_streams(&self) -> BTreeSet<StreamId> {
        let damaged = self.streams.iter().filter(|(_, state)| state.damaged);
        damaged.map(|(stream, _)| *stream).collect()
    }
}

/// Records that keep the oldest segment from being reused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinnedRecords {
    /// Streams with records in the oldest segment, in order.
    pub streams: Vec<StreamId>,
    /// Generation of the oldest segment.
    pub segment: u64,
    /// Bytes of segment files that trimming these streams would free.
    pub bytes: u64,
}

//! What the log tells about itself.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use crate::batch::StreamId;
use crate::replay::Damage;

/// First and last number that a stream holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// The first one.
    pub first: u64,
    /// The last one, not below the first.
    pub last: u64,
}

/// What was found of one stream when the log was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamState {
    /// The records held; `None` when there are none.
    pub bounds: Option<Bounds>,
    /// Numbers below are trimmed; an empty stream accepts this one and above.
    pub seq_min: u64,
    /// The metas by key.
    pub metas: BTreeMap<u32, Bytes>,
    /// The stream lost something, or nobody can tell that it did not. `bounds` and `metas` are
    /// what is left. It can be read; everything but [`WalBatch::drop_stream`](crate::WalBatch::drop_stream) is refused.
    pub damaged: bool,
}

/// What was found when the log was opened. All of it is durable.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Every stream that exists.
    pub streams: BTreeMap<StreamId, StreamState>,
    /// Every place that failed its checks. A stream may also be damaged from an earlier run:
    /// [`StreamState::damaged`] is what counts.
    pub damaged: Vec<Damage>,
    /// Bytes of an interrupted write that were cut off the end. Nothing in them was acknowledged.
    pub torn_bytes_cut: u64,
}

impl Recovered {
    /// The streams that must be taken for lost.
    pub fn damaged_streams(&self) -> BTreeSet<StreamId> {
        let damaged = self.streams.iter().filter(|(_, state)| state.damaged);
        damaged.map(|(stream, _)| *stream).collect()
    }
}

/// What keeps the oldest segment from being reused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pinned {
    /// Streams with records in the oldest segment, in order.
    pub streams: Vec<StreamId>,
    /// Generation of the oldest segment.
    pub segment: u64,
    /// Bytes of segment files that trimming these streams would free.
    pub bytes: u64,
}

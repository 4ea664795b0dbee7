//! What a caller hands to the log.

use std::fmt;

use bytes::Bytes;

use crate::error::WalError;
use crate::format::{FRAME_HEADER_BYTES, OP_HEADER_BYTES, padded};

/// Names one of the streams that share a log. The caller chooses the numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u64);

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Runs on the thread that writes after the batch is durable, or with the reason why it was not
/// written. It must be short and must not wait for the log: everything behind it waits.
pub type Done = Box<dyn FnOnce(Result<(), WalError>) + Send>;

/// One step of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Op {
    Put {
        stream: u64,
        seq: u64,
        /// Written before `data`.
        head: Option<[u8; 8]>,
        data: Bytes,
    },
    /// Removes records numbered `from` and above.
    Cut {
        stream: u64,
        from: u64,
    },
    Meta {
        stream: u64,
        key: u32,
        data: Bytes,
    },
    Drop {
        stream: u64,
    },
    /// Forgets records numbered below `floor`.
    Trim {
        stream: u64,
        floor: u64,
    },
}

impl Op {
    pub(crate) fn stream(&self) -> u64 {
        match self {
            Op::Put { stream, .. }
            | Op::Cut { stream, .. }
            | Op::Meta { stream, .. }
            | Op::Drop { stream }
            | Op::Trim { stream, .. } => *stream,
        }
    }

    fn data_bytes(&self) -> usize {
        match self {
            Op::Put { head, data, .. } => head.map_or(0, |head| head.len()) + data.len(),
            Op::Meta { data, .. } => data.len(),
            Op::Cut { .. } | Op::Drop { .. } | Op::Trim { .. } => 0,
        }
    }
}

/// Changes that become durable together or not at all, also across a crash. They take effect in
/// the order in which they were added; one batch may touch many streams.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WalBatch {
    pub(crate) ops: Vec<Op>,
    pub(crate) urgent: bool,
    /// Producer, and number among its batches.
    pub(crate) order: Option<(u32, u64)>,
    ops_bytes: usize,
}

impl WalBatch {
    /// An empty batch. Appending it waits for everything before it and syncs nothing of its own.
    pub fn new() -> WalBatch {
        WalBatch::default()
    }

    /// Adds a record. `seq` must be the stream's last number + 1; where the stream holds nothing,
    /// any number above what was trimmed starts it. `u64::MAX` is not a valid number.
    pub fn put(&mut self, stream: StreamId, seq: u64, data: Bytes) -> &mut WalBatch {
        self.push(Op::Put { stream: stream.0, seq, head: None, data })
    }

    /// Adds a record of `head` and `data`, as [`WalBatch::put`] would add them joined, without joining them first.
    pub fn put_headed(&mut self, stream: StreamId, seq: u64, head: [u8; 8], data: Bytes) -> &mut WalBatch {
        self.push(Op::Put { stream: stream.0, seq, head: Some(head), data })
    }

    /// Removes the stream's records above `after_seq`; those up to and including it stay.
    pub fn cut(&mut self, stream: StreamId, after_seq: u64) -> &mut WalBatch {
        self.push(Op::Cut { stream: stream.0, from: after_seq.saturating_add(1) })
    }

    /// Removes all records of the stream and keeps its metas and its trim mark.
    pub fn cut_all(&mut self, stream: StreamId) -> &mut WalBatch {
        self.push(Op::Cut { stream: stream.0, from: 0 })
    }

    /// Forgets the stream's records up to and including `upto_seq`, for good: unlike [`Wal::trim`](crate::Wal::trim) it
    /// is durable with the rest of the batch or not at all, for where another record must say what was forgotten. Numbers
    /// beyond the last one that the stream holds by then mean that one.
    pub fn trim(&mut self, stream: StreamId, upto_seq: u64) -> &mut WalBatch {
        self.push(Op::Trim { stream: stream.0, floor: upto_seq.saturating_add(1) })
    }

    /// Sets a small value kept beside the stream, whatever is trimmed; an empty `data` deletes it.
    /// Metas are copied into every segment, so they should stay small and few.
    pub fn meta(&mut self, stream: StreamId, key: u32, data: Bytes) -> &mut WalBatch {
        self.push(Op::Meta { stream: stream.0, key, data })
    }

    /// Forgets the stream: records, metas and marks. Its number may be used afresh afterwards.
    pub fn drop_stream(&mut self, stream: StreamId) -> &mut WalBatch {
        self.push(Op::Drop { stream: stream.0 })
    }

    /// Lets the batch use the space held in reserve when the disk is full. For what must be
    /// written even then (an epoch, a vote), never for data.
    pub fn urgent(&mut self) -> &mut WalBatch {
        self.urgent = true;
        self
    }

    /// Makes this batch number `number` of `producer`, and rising: when one is refused for lack of space, all later ones of
    /// that producer are refused likewise, also those that would have fit, until it is appended again. So a batch is
    /// never written before one that was to come first.
    pub fn ordered(&mut self, producer: u32, number: u64) -> &mut WalBatch {
        self.order = Some((producer, number));
        self
    }

    /// True when the batch holds no change.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// Number of changes in the batch.
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// Bytes the batch takes in the log and counts against the queue.
    pub fn bytes(&self) -> usize {
        padded(FRAME_HEADER_BYTES + self.ops_bytes)
    }

    pub(crate) fn push(&mut self, op: Op) -> &mut WalBatch {
        self.ops_bytes += OP_HEADER_BYTES + op.data_bytes();
        self.ops.push(op);
        self
    }
}

//! Batches: the input of the log.

use std::fmt;

use bytes::{BufMut, Bytes, BytesMut};

use crate::error::WalError;
use crate::format::{DATA_BYTES_BITS, FRAME_HEADER_BYTES, OP_HEADER_BYTES, padded};

/// Longest small value of a stream, in bytes.
pub const META_BYTES_MAX: usize = 64 * 1024;
// A step of a snapshot has all metas of a stream, which are few: 8,190 of the longest would fit.
const _: () = assert!(8_190 * (META_BYTES_MAX + 8) < 1 << DATA_BYTES_BITS);

/// Longest head of a record that costs no allocation, in bytes: that of a number of 64 bits as LEB128.
pub const HEAD_BYTES_MAX: usize = 10;

/// Number of a stream in a log, chosen by the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u64);

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Callback that runs on the writing thread once the batch is durable, or with the reason why it was not written. It
/// must be short and must not wait for the log, because it delays everything behind it.
pub type CompletionCallback = Box<dyn FnOnce(Result<(), WalError>) + Send>;

/// Beginning of a record that is not in one piece with its data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Head {
    bytes: [u8; HEAD_BYTES_MAX],
    length: usize,
}

impl Head {
    /// Copies the bytes, unless they are more than [`HEAD_BYTES_MAX`].
    fn new(head: &[u8]) -> Option<Head> {
        let mut bytes = [0; HEAD_BYTES_MAX];
        bytes.get_mut(..head.len())?.copy_from_slice(head);
        Some(Head { bytes, length: head.len() })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// One step of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Op {
    Put {
        stream: u64,
        seq: u64,
        /// Precedes `data`.
        head: Head,
        data: Bytes,
    },
    /// Removes records from number `from` on.
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
            Op::Put { head, data, .. } => head.length + data.len(),
            Op::Meta { data, .. } => data.len(),
            Op::Cut { .. } | Op::Drop { .. } | Op::Trim { .. } => 0,
        }
    }
}

/// Changes that become durable together or not at all, including after a crash. They apply in the order in which they
/// were added; a batch may change many streams.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WalBatch {
    pub(crate) ops: Vec<Op>,
    pub(crate) urgent: bool,
    /// Producer, and number among its batches.
    pub(crate) order: Option<(u32, u64)>,
    ops_bytes: usize,
}

impl WalBatch {
    /// Creates an empty batch. Appending it waits for everything before it, without a sync of its own.
    pub fn new() -> WalBatch {
        WalBatch::default()
    }

    /// Adds a record. `seq` must be the stream's last number + 1; an empty stream accepts any number above its trim
    /// mark. `u64::MAX` is not a valid number.
    pub fn put(&mut self, stream: StreamId, seq: u64, data: Bytes) -> &mut WalBatch {
        self.push(Op::Put { stream: stream.0, seq, head: Head::default(), data })
    }

    /// Adds a record of `head` and `data`, like [`WalBatch::put`] of both joined. A head of at most [`HEAD_BYTES_MAX`] bytes
    /// is not joined first.
    pub fn put_headed(&mut self, stream: StreamId, seq: u64, head: &[u8], data: Bytes) -> &mut WalBatch {
        if let Some(head) = Head::new(head) {
            return self.push(Op::Put { stream: stream.0, seq, head, data });
        }
        let mut joined = BytesMut::with_capacity(head.len() + data.len());
        joined.put_slice(head);
        joined.put_slice(&data);
        self.put(stream, seq, joined.freeze())
    }

    /// Removes the stream's records above `after_seq`; those up to and including it stay.
    pub fn cut(&mut self, stream: StreamId, after_seq: u64) -> &mut WalBatch {
        self.push(Op::Cut { stream: stream.0, from: after_seq.saturating_add(1) })
    }

    /// Removes all records of the stream; keeps its metas and trim mark.
    pub fn cut_all(&mut self, stream: StreamId) -> &mut WalBatch {
        self.push(Op::Cut { stream: stream.0, from: 0 })
    }

    /// Forgets the stream's records up to and including `upto_seq` for good. Unlike [`Wal::trim`](crate::Wal::trim),
    /// this is durable with the batch or not at all; use it when another record must state what was forgotten.
    /// Numbers beyond the stream's last one count as that one.
    pub fn trim(&mut self, stream: StreamId, upto_seq: u64) -> &mut WalBatch {
        self.push(Op::Trim { stream: stream.0, floor: upto_seq.saturating_add(1) })
    }

    /// Sets a small value of the stream, which trims do not affect; an empty `data` deletes it. Metas are copied into
    /// every segment, so they should be few, and a batch with one of more than [`META_BYTES_MAX`] bytes is refused.
    pub fn meta(&mut self, stream: StreamId, key: u32, data: Bytes) -> &mut WalBatch {
        self.push(Op::Meta { stream: stream.0, key, data })
    }

    /// Deletes the stream: records, metas and marks. Its number can be reused afterwards.
    pub fn drop_stream(&mut self, stream: StreamId) -> &mut WalBatch {
        self.push(Op::Drop { stream: stream.0 })
    }

    /// Allows the batch to use the reserved space when the disk is full. For records that must be written even then
    /// (an epoch, a vote), never for data.
    pub fn urgent(&mut self) -> &mut WalBatch {
        self.urgent = true;
        self
    }

    /// Makes this batch number `number` of `producer`; numbers must increase. After a refusal for lack of space, all
    /// later batches of the producer are refused, even if they would fit, until the refused one is appended again. So
    /// no batch is written before an earlier one.
    pub fn ordered(&mut self, producer: u32, number: u64) -> &mut WalBatch {
        self.order = Some((producer, number));
        self
    }

    /// Returns true if the batch has no changes.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// Returns the number of changes.
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// Returns the size of the batch in the log and in the queue, in bytes.
    pub fn bytes(&self) -> usize {
        padded(FRAME_HEADER_BYTES + self.ops_bytes)
    }

    pub(crate) fn push(&mut self, op: Op) -> &mut WalBatch {
        self.ops_bytes += OP_HEADER_BYTES + op.data_bytes();
        self.ops.push(op);
        self
    }
}

//! Calls of clients, and their answers.

use crate::check::key_move::KeyOwner;
use archon_types::{Answer, ClientId, ErrorKind, Millis, Op, OpId, PartitionId, Revision, TableId};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// Result of an operation for its client.
pub(crate) type Outcome = Result<Answer, ErrorKind>;

/// Returns the table and key under which a client remembers an observation, independent of the owner.
pub(crate) fn seen_at(partition: PartitionId, key: &Bytes) -> (PartitionId, Bytes) {
    (PartitionId::new(partition.table, 0), key.clone())
}

/// Destination of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ReplyTo {
    pub(crate) client: usize,
    pub(crate) worker: usize,
    pub(crate) call: u64,
    /// The partition it asked; a read may ask others later.
    pub(crate) partition: PartitionId,
    /// Number of restarts at other partitions.
    pub(crate) moves: u32,
    /// Number of the attempt.
    pub(crate) attempt: u32,
}

/// An operation to be done once, under any ids of its attempts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Operation {
    pub(crate) client: usize,
    pub(crate) call: u64,
}

/// A pending operation.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) number: u64,
    /// The partition it asks.
    pub(crate) partition: PartitionId,
    /// Number of restarts at other partitions.
    pub(crate) moves: u32,
    pub(crate) op: Op,
    /// Its id; absent for reads, and for writes that are sent once.
    pub(crate) id: Option<OpId>,
    /// The partition of its key at the begin, and the minimum positions of its histories.
    pub(crate) began: KeyOwner,
    pub(crate) floors: Vec<u64>,
    pub(crate) deadline: u64,
    pub(crate) attempts: u32,
    /// Unanswered attempts.
    pub(crate) open: BTreeSet<u32>,
    /// The current timer; older ones are ignored.
    pub(crate) timer: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Sequence {
    pub(crate) next: u64,
    pub(crate) under_way: BTreeSet<u64>,
    pub(crate) log_time: Millis,
}

impl Sequence {
    /// Returns the next id.
    pub(crate) fn begin(&mut self, client: ClientId) -> OpId {
        self.next += 1;
        self.under_way.insert(self.next);
        OpId { client, number: self.next, done_below: self.done_below(), stamp: self.log_time }
    }

    pub(crate) fn done_below(&self) -> u64 {
        self.under_way.first().copied().unwrap_or(self.next + 1)
    }
}

#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) id: ClientId,
    pub(crate) guess: BTreeMap<PartitionId, usize>,
    pub(crate) sequences: BTreeMap<PartitionId, Sequence>,
    pub(crate) seen: BTreeMap<(PartitionId, Bytes), Revision>,
    /// Its view of tables by ranges.
    pub(crate) ranges: BTreeMap<TableId, Ranges>,
    /// Partitions it used, of tables it does not know to be dropped.
    pub(crate) held: BTreeSet<PartitionId>,
    /// Tables it knows to be dropped.
    pub(crate) informed: BTreeSet<TableId>,
    pub(crate) workers: Vec<Option<Call>>,
    pub(crate) calls: u64,
    pub(crate) timers: u64,
}

/// A client's view of one table by ranges: the first key of each partition.
pub(crate) type Ranges = Vec<(Bytes, PartitionId)>;

//! Vote and log of openraft, in one write-ahead log, so that nothing overtakes anything.
//!
//! The entries that are not purged are also held in memory, decoded: replication and apply read them there. Raft
//! index `i` is stored as sequence `i + 1`, so that "before the first entry" has a number.

use super::codec;
use super::types::{Entry, LogId, TypeConfig, Vote};
use archon_wal::{Done, StreamId, Wal, WalBatch, WalConfig, WalError};
use bytes::Bytes;
use openraft::entry::RaftEntry as _;
use openraft::storage::{IOFlushed, LogState, RaftLogReader, RaftLogStorage};
use openraft::{OptionalSend, RaftTypeConfig};
use parking_lot::RwLock;
use std::collections::VecDeque;
use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Vote, committed and purged positions.
const FACTS: StreamId = StreamId(1);
/// The entries.
const LOG: StreamId = StreamId(2);
const VOTE: u32 = 1;
const COMMITTED: u32 = 2;
const PURGED: u32 = 3;
/// Most bytes of entries handed to replication at once; well below the message limit between peers.
const READ_BYTES_MAX: usize = 4 * 1024 * 1024;
/// How long a full WAL queue is given before it is asked again.
const QUEUE_RETRY: Duration = Duration::from_millis(1);
const READ_BACK_BYTES: usize = 4 * 1024 * 1024;

/// Why the log could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The write-ahead log itself refused.
    #[error("the Raft log cannot be opened: {0}")]
    Wal(#[from] WalError),
    /// What it holds does not decode, or has a hole.
    #[error("the Raft log holds what this version cannot read ({0}): start the version that wrote it")]
    Content(#[from] io::Error),
}

struct Stored {
    entry: Entry,
    bytes: usize,
}

#[derive(Default)]
struct Memory {
    vote: Option<Vote>,
    committed: Option<LogId>,
    /// The committed position is not worth an fsync of its own: it rides with the next batch.
    committed_unsaved: bool,
    purged: Option<LogId>,
    entries: VecDeque<Stored>,
    /// Encoded size of all entries.
    bytes: u64,
}

impl Memory {
    fn push(&mut self, entry: Entry, bytes: usize) {
        self.bytes += bytes as u64;
        self.entries.push_back(Stored { entry, bytes });
    }

    fn forget<'a>(bytes: &mut u64, gone: impl Iterator<Item = &'a Stored>) {
        *bytes -= gone.map(|stored| stored.bytes as u64).sum::<u64>();
    }

    fn first_index(&self) -> u64 {
        self.entries.front().map_or(0, |stored| stored.entry.log_id.index)
    }

    fn range<R: RangeBounds<u64>>(&self, range: &R) -> (usize, usize) {
        let first = self.first_index();
        let start = match range.start_bound() {
            Bound::Included(index) => *index,
            Bound::Excluded(index) => index.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(index) => index.saturating_add(1),
            Bound::Excluded(index) => *index,
            Bound::Unbounded => u64::MAX,
        };
        let place = |index: u64| usize::try_from(index.saturating_sub(first)).unwrap_or(usize::MAX);
        let length = self.entries.len();
        let start = place(start).min(length);
        (start, place(end).min(length).max(start))
    }
}

/// How large the log is, for whoever keeps it from growing.
pub(crate) struct LogSize(Arc<RwLock<Memory>>);

impl LogSize {
    /// The encoded bytes of the entries held, the first index held, and that of those that make up the last `kept` bytes.
    pub(super) fn look(&self, kept: u64) -> (u64, u64, u64) {
        let memory = self.0.read();
        let mut sum = 0;
        let newest = memory.entries.iter().rev().take_while(|stored| {
            sum += stored.bytes as u64;
            sum <= kept
        });
        // The newest one stays in any case.
        let index = |stored: Option<&Stored>| stored.map_or(0, |stored| stored.entry.log_id.index);
        let from = index(newest.last().or(memory.entries.back()));
        (memory.bytes, index(memory.entries.front()), from)
    }
}

/// The term of this voter's vote, as its disk has it.
#[derive(Clone)]
pub(crate) struct OwnTerm(Arc<RwLock<Memory>>);

impl OwnTerm {
    /// Zero as long as it has not voted.
    pub(crate) fn get(&self) -> u64 {
        self.0.read().vote.map_or(0, |vote| vote.leader_id.term)
    }
}

/// openraft's log storage; clones share one log.
#[derive(Clone)]
pub(crate) struct LogStore {
    wal: Wal,
    memory: Arc<RwLock<Memory>>,
}

impl LogStore {
    /// Opens the log in `dir`, creating it when it is not there.
    ///
    /// # Errors
    /// [`StoreError`]: a damaged log is refused, since a voter that forgot what it acknowledged must not vote.
    pub(crate) fn open(dir: &Path) -> Result<Self, StoreError> {
        let (wal, recovered) = Wal::open(dir, WalConfig { refuse_damage: true, ..WalConfig::default() })?;
        if recovered.torn_bytes_cut > 0 {
            tracing::info!(bytes = recovered.torn_bytes_cut, "cut the torn end of the Raft log");
        }
        let fact = |key| wal.meta(FACTS, key);
        let mut memory = Memory {
            vote: fact(VOTE).map(|bytes| codec::decode("vote", &bytes)).transpose()?,
            committed: fact(COMMITTED).map(|bytes| codec::decode("committed position", &bytes)).transpose()?,
            purged: fact(PURGED).map(|bytes| codec::decode("purged position", &bytes)).transpose()?,
            ..Memory::default()
        };
        let start = memory.purged.map_or(0, |purged| purged.index + 1);
        Self::read_back(&wal, &mut memory, start)?;
        Ok(Self { wal, memory: Arc::new(RwLock::new(memory)) })
    }

    fn read_back(wal: &Wal, memory: &mut Memory, start: u64) -> Result<(), StoreError> {
        let Some(bounds) = wal.bounds(LOG) else { return Ok(()) };
        let mut next = (start + 1).max(bounds.first);
        if next > start + 1 && bounds.last >= next {
            let what = format!("entries {start} to {} are missing", next - 2);
            return Err(io::Error::new(io::ErrorKind::InvalidData, what).into());
        }
        while next <= bounds.last {
            let records = wal.read(LOG, next, READ_BACK_BYTES)?;
            if records.is_empty() {
                let what = format!("entry {} is missing", next - 1);
                return Err(io::Error::new(io::ErrorKind::InvalidData, what).into());
            }
            for record in records {
                let entry: Entry = codec::decode("log entry", &record.data)?;
                if entry.log_id.index + 1 != record.seq {
                    let what = format!("record {} holds entry {}", record.seq, entry.log_id.index);
                    return Err(io::Error::new(io::ErrorKind::InvalidData, what).into());
                }
                memory.push(entry, record.data.len());
                next = record.seq + 1;
            }
        }
        Ok(())
    }

    /// For keeping it from growing.
    pub(crate) fn size(&self) -> LogSize {
        LogSize(Arc::clone(&self.memory))
    }

    /// For judging the terms of others.
    pub(crate) fn own_term(&self) -> OwnTerm {
        OwnTerm(Arc::clone(&self.memory))
    }

    /// The write-ahead log, for watching its progress and closing it.
    pub(crate) fn wal(&self) -> &Wal {
        &self.wal
    }

    /// True when nothing was ever written: no vote and no entry.
    pub(crate) fn is_empty(&self) -> bool {
        let memory = self.memory.read();
        memory.vote.is_none() && memory.entries.is_empty() && memory.purged.is_none()
    }

    /// Puts a batch on the queue, waiting for room.
    async fn enqueue(&self, mut batch: WalBatch, mut done: Done) -> io::Result<()> {
        loop {
            match self.wal.append(batch, done) {
                Ok(()) => return Ok(()),
                Err(full) if matches!(*full.reason, WalError::QueueFull { .. }) => {
                    (batch, done) = (full.batch, full.done);
                    tokio::time::sleep(QUEUE_RETRY).await;
                }
                Err(full) => return Err(io::Error::other(*full.reason)),
            }
        }
    }

    /// Writes a batch and waits until it is durable.
    async fn write(&self, batch: WalBatch) -> io::Result<()> {
        let (done, finished) = tokio::sync::oneshot::channel();
        let callback: Done = Box::new(move |result| {
            let _ = done.send(result);
        });
        self.enqueue(batch, callback).await?;
        match finished.await {
            Ok(result) => result.map_err(io::Error::other),
            Err(_) => Err(io::Error::other("the write-ahead log stopped")),
        }
    }

    /// Queues a batch whose failure shows in whatever is written after it.
    async fn queue(&self, what: &'static str, batch: WalBatch) -> io::Result<()> {
        let callback: Done = Box::new(move |result| {
            if let Err(error) = result {
                tracing::error!(%error, what, "the Raft log refused a change");
            }
        });
        self.enqueue(batch, callback).await
    }

    fn add_committed(memory: &mut Memory, batch: &mut WalBatch) -> io::Result<()> {
        if memory.committed_unsaved {
            batch.meta(FACTS, COMMITTED, codec::encode("committed position", &memory.committed)?);
            memory.committed_unsaved = false;
        }
        Ok(())
    }
}

impl RaftLogReader<TypeConfig> for LogStore {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> Result<Vec<Entry>, io::Error> {
        let memory = self.memory.read();
        let (start, end) = memory.range(&range);
        Ok(memory.entries.range(start..end).map(|stored| stored.entry.clone()).collect())
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, io::Error> {
        Ok(self.memory.read().vote)
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> Result<Vec<Entry>, io::Error> {
        let memory = self.memory.read();
        let (start, end) = memory.range(&(start..end));
        let mut bytes = 0;
        let mut entries = Vec::new();
        for stored in memory.entries.range(start..end) {
            bytes += stored.bytes;
            if bytes > READ_BYTES_MAX && !entries.is_empty() {
                break;
            }
            entries.push(stored.entry.clone());
        }
        Ok(entries)
    }
}

impl RaftLogStorage<TypeConfig> for LogStore {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<TypeConfig>, io::Error> {
        let memory = self.memory.read();
        let last = memory.entries.back().map(|stored| stored.entry.log_id);
        Ok(LogState { last_purged_log_id: memory.purged, last_log_id: last.or(memory.purged) })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), io::Error> {
        let mut batch = WalBatch::new();
        batch.meta(FACTS, VOTE, codec::encode("vote", vote)?).urgent();
        Self::add_committed(&mut self.memory.write(), &mut batch)?;
        self.write(batch).await?;
        self.memory.write().vote = Some(*vote);
        Ok(())
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), io::Error> {
        let mut memory = self.memory.write();
        memory.committed = committed;
        memory.committed_unsaved = true;
        Ok(())
    }

    async fn read_committed(&mut self) -> Result<Option<LogId>, io::Error> {
        Ok(self.memory.read().committed)
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<TypeConfig>) -> Result<(), io::Error>
    where
        I: IntoIterator<Item = <TypeConfig as RaftTypeConfig>::Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut encoded: Vec<(Entry, Bytes)> = Vec::new();
        for entry in entries {
            let bytes = codec::encode("log entry", &entry)?;
            encoded.push((entry, bytes));
        }
        let mut batch = WalBatch::new();
        {
            let mut memory = self.memory.write();
            Self::add_committed(&mut memory, &mut batch)?;
            for (entry, bytes) in encoded {
                batch.put(LOG, entry.index() + 1, bytes.clone());
                memory.push(entry, bytes.len());
            }
        }
        let done: Done = Box::new(move |result| callback.io_completed(result.map_err(io::Error::other)));
        self.enqueue(batch, done).await
    }

    async fn truncate_after(&mut self, last_log_id: Option<LogId>) -> Result<(), io::Error> {
        let mut batch = WalBatch::new();
        {
            let mut memory = self.memory.write();
            let keep = last_log_id.map_or(0, |id| id.index + 1);
            let (_, end) = memory.range(&(..keep));
            let Memory { entries, bytes, .. } = &mut *memory;
            Memory::forget(bytes, entries.range(end..));
            entries.truncate(end);
            match last_log_id {
                Some(id) => batch.cut(LOG, id.index + 1),
                None => batch.cut_all(LOG),
            };
        }
        batch.urgent();
        self.queue("truncate", batch).await
    }

    async fn purge(&mut self, log_id: LogId) -> Result<(), io::Error> {
        let mut batch = WalBatch::new();
        let whole;
        {
            let mut memory = self.memory.write();
            if memory.purged.is_some_and(|purged| purged >= log_id) {
                return Ok(());
            }
            let (_, end) = memory.range(&(..=log_id.index));
            let Memory { entries, bytes, .. } = &mut *memory;
            Memory::forget(bytes, entries.range(..end));
            entries.drain(..end);
            memory.purged = Some(log_id);
            // After a snapshot the next entry may lie far beyond the last one held, so an emptied log starts afresh.
            whole = memory.entries.is_empty();
        }
        batch.meta(FACTS, PURGED, codec::encode("purged position", &log_id)?).urgent();
        if whole {
            batch.drop_stream(LOG);
        }
        self.queue("purge", batch).await?;
        if !whole {
            self.wal.trim(LOG, log_id.index + 1);
        }
        Ok(())
    }
}

//! Vote and log of openraft, in one write-ahead log, so that their order is preserved.
//!
//! The entries that are not purged are also held in memory, decoded: replication and apply read them there. Raft
//! index `i` is stored as sequence `i + 1`, so that "before the first entry" has a number.

mod memory;
mod open;

use super::codec;
use super::log_space;
use crate::raft::types::{Entry, LogId, Membership, TypeConfig, Vote};
use archon_wal::disk::Disk;
use archon_wal::{CompletionCallback, StreamId, Wal, WalBatch, WalConfig, WalError};
use bytes::Bytes;
use memory::Memory;
pub(crate) use memory::{LogSize, OwnTerm};
use openraft::entry::RaftEntry as _;
use openraft::storage::{IOFlushed, LogState, RaftLogReader, RaftLogStorage};
use openraft::{EntryPayload, OptionalSend, RaftTypeConfig};
use parking_lot::RwLock;
use std::fmt::Debug;
use std::io;
use std::ops::RangeBounds;
use std::sync::Arc;
use std::time::Duration;

/// Vote, committed and purged positions.
pub(in crate::raft) const FACTS: StreamId = StreamId(1);
/// The entries.
pub(super) const LOG: StreamId = StreamId(2);
pub(in crate::raft) const VOTE: u32 = 1;
pub(in crate::raft) const COMMITTED: u32 = 2;
pub(in crate::raft) const PURGED: u32 = 3;
/// Maximum number of bytes of entries passed to replication at once; well below the message limit between peers.
const READ_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Upper bound of a record's overhead in a batch, in bytes.
const PUT_BYTES: usize = 64;
/// Pause before a full WAL queue is retried.
const QUEUE_RETRY: Duration = Duration::from_millis(1);

/// Reasons for which the log could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The write-ahead log itself refused.
    #[error("the Raft log cannot be opened: {0}")]
    Wal(#[from] WalError),
    /// Its content does not decode, or has a gap.
    #[error("the Raft log holds what this version cannot read ({0}): start the version that wrote it")]
    Content(#[from] io::Error),
}

/// openraft's log storage; clones share one log.
#[derive(Clone)]
pub(crate) struct LogStore {
    wal: Wal,
    memory: Arc<RwLock<Memory>>,
}

impl LogStore {
    /// Opens the log on a disk, or creates one there. `covered` returns the position of the newest snapshot; it is
    /// called only if the log has lost its beginning.
    ///
    /// # Errors
    /// [`StoreError`]: a damaged log is refused, since a voter that lost acknowledged data must not vote.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        config: WalConfig,
        covered: impl FnOnce() -> io::Result<Option<LogId>>,
    ) -> Result<Self, StoreError> {
        let (wal, recovered) = Wal::open_on(disk, WalConfig { refuse_damage: true, ..config })?;
        if recovered.torn_bytes_cut > 0 {
            tracing::info!(bytes = recovered.torn_bytes_cut, "cut the torn end of the Raft log");
        }
        let floor = recovered.streams.get(&LOG).map_or(0, |stream| stream.seq_min);
        let memory = open::read(&wal, floor, covered)?;
        Ok(Self { wal, memory: Arc::new(RwLock::new(memory)) })
    }

    /// Returns all entries that are not purged.
    pub(in crate::raft) fn entries(&self) -> Vec<Entry> {
        self.memory.read().entries.iter().map(|stored| stored.entry.clone()).collect()
    }

    /// Returns the size of the log, for bounding it.
    pub(crate) fn size(&self) -> LogSize {
        LogSize(Arc::clone(&self.memory))
    }

    /// Returns the term of the own vote, for checking the terms of others.
    pub(crate) fn own_term(&self) -> OwnTerm {
        OwnTerm(Arc::clone(&self.memory))
    }

    /// Returns the write-ahead log, for watching its progress and closing it.
    pub(crate) fn wal(&self) -> &Wal {
        &self.wal
    }

    /// Returns true if nothing was ever written: no vote and no entry.
    pub(crate) fn is_empty(&self) -> bool {
        let memory = self.memory.read();
        memory.vote.is_none() && memory.entries.is_empty() && memory.purged.is_none()
    }

    /// Returns the index of the last entry, including a purged one.
    pub(in crate::raft) fn last_index(&self) -> u64 {
        let memory = self.memory.read();
        let last = memory.entries.back().map(|stored| stored.entry.log_id);
        last.or(memory.purged).map_or(0, |last| last.index)
    }

    /// Returns the members in the newest entry about them that is not purged.
    pub(in crate::raft) fn newest_members(&self) -> Option<Membership> {
        let memory = self.memory.read();
        memory.entries.iter().rev().find_map(|stored| match &stored.entry.payload {
            EntryPayload::Membership(members) => Some(members.clone()),
            _ => None,
        })
    }

    /// Puts a batch on the queue, waiting for space.
    async fn enqueue(&self, batch: WalBatch, mut done: CompletionCallback) -> io::Result<()> {
        let mut batch = Arc::new(batch);
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
        let callback: CompletionCallback = Box::new(move |result| {
            let _ = done.send(result);
        });
        self.enqueue(batch, callback).await?;
        match finished.await {
            Ok(result) => result.map_err(io::Error::other),
            Err(_) => Err(io::Error::other("the write-ahead log stopped")),
        }
    }

    /// Queues a batch whose failure shows in the next write.
    async fn queue(&self, what: &'static str, batch: WalBatch) -> io::Result<()> {
        let callback: CompletionCallback = Box::new(move |result| {
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
        // At most as many bytes as a peer with the same log can accept at once.
        let read_bytes_max = READ_BYTES_MAX.min(log_space::batch_bytes_max(&self.wal) / 2);
        let mut bytes = 0;
        let mut entries = Vec::new();
        for stored in memory.entries.range(start..end) {
            bytes += stored.bytes;
            if bytes > read_bytes_max && !entries.is_empty() {
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
        // The space of appended entries was reserved before openraft received them, for batches of this size.
        let batch_bytes_max = log_space::batch_bytes_max(&self.wal);
        let mut batches = Vec::new();
        let mut batch = WalBatch::new();
        {
            let mut memory = self.memory.write();
            Self::add_committed(&mut memory, &mut batch)?;
            for (entry, bytes) in encoded {
                if batch.bytes() + bytes.len() + PUT_BYTES > batch_bytes_max && !batch.is_empty() {
                    batches.push(std::mem::take(&mut batch));
                }
                batch.put(LOG, entry.index() + 1, bytes.clone());
                memory.push(entry, bytes.len());
            }
        }
        for mut batch in batches {
            batch.urgent();
            self.queue("entries", batch).await?;
        }
        batch.urgent();
        let done: CompletionCallback = Box::new(move |result| callback.io_completed(result.map_err(io::Error::other)));
        self.enqueue(batch, done).await
    }

    /// Durable before it returns: a snapshot that is installed next replaces the truncated entries, and a start that
    /// found both would be refused.
    async fn truncate_after(&mut self, last_log_id: Option<LogId>) -> Result<(), io::Error> {
        self.memory.write().truncate(last_log_id);
        let mut batch = WalBatch::new();
        match last_log_id {
            Some(id) => batch.cut(LOG, id.index + 1),
            None => batch.cut_all(LOG),
        };
        batch.urgent();
        self.write(batch).await
    }

    /// Removes the entries together with the record of their removal, or keeps both: a log without its beginning and
    /// without that record is refused at the next start. Without space for the record both stay until the next purge.
    async fn purge(&mut self, log_id: LogId) -> Result<(), io::Error> {
        let whole = {
            let mut memory = self.memory.write();
            if memory.purged.is_some_and(|purged| purged >= log_id) {
                return Ok(());
            }
            memory.purge(log_id);
            memory.entries.is_empty()
        };
        let mut batch = WalBatch::new();
        batch.meta(FACTS, PURGED, codec::encode("purged position", &log_id)?).urgent();
        if whole {
            // After a snapshot the next entry may lie far beyond the last one held, so an emptied log starts over.
            batch.drop_stream(LOG);
            return self.write(batch).await;
        }
        batch.trim(LOG, log_id.index + 1);
        self.queue("purge", batch).await
    }
}

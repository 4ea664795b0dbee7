//! The handle of the log.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};

use crate::batch::{CompletionCallback, StreamId, WalBatch};
use crate::config::WalConfig;
use crate::disk::{Disk, RealDisk};
use crate::error::{WalError, WalFull};
use crate::format::SEGMENT_HEADER_BYTES;
use crate::index::SegmentEntry;
use crate::mark::Mark;
use crate::progress::{Counters, Progress};
use crate::queue::Queue;
use crate::read::{Plan, Record};
use crate::recover::{LogRecovery, recover};
use crate::report::{Bounds, PinnedRecords, RecoveredLog, StreamState};
use crate::segment::{ActivateError, Active, SegmentStart, activate};
use crate::segment_pool::SegmentPool;
use crate::writer::{self, LogState, Writer};

/// A write-ahead log shared by many streams. Clones are handles to one log; when the last one is dropped, the log is
/// drained and closed as by [`close`](Wal::close), without a time limit.
#[derive(Clone)]
pub struct Wal {
    handle: Arc<Handle>,
}

struct Handle {
    shared: Arc<LogState>,
    /// Held by the thread that writes; empty before the log is open and after it was closed.
    writer: Arc<Mutex<Option<Writer>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl std::fmt::Debug for Wal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wal").field("progress", &self.progress()).finish_non_exhaustive()
    }
}

impl Wal {
    /// Opens the log in `dir`, creates both if they do not exist, and makes the recovered data durable before it
    /// returns. The caller must lock the directory against other processes.
    ///
    /// # Errors
    /// [`WalError::Config`]; [`WalError::Io`]; [`WalError::OtherFormat`] and, if so configured,
    /// [`WalError::Corrupt`], both without any change to the directory; [`WalError::NoSpace`] if not even one segment
    /// can be created.
    pub fn open(dir: &Path, config: WalConfig) -> Result<(Wal, RecoveredLog), WalError> {
        config.check()?;
        let disk = RealDisk::open(dir).map_err(|source| {
            let path = dir.display().to_string();
            WalError::Io { action: "open the log directory", path, source }
        })?;
        Wal::open_on(Arc::new(disk), config)
    }

    /// Like [`open`](Wal::open), on any [`Disk`].
    ///
    /// # Errors
    /// As [`open`](Wal::open).
    pub fn open_on(disk: Arc<dyn Disk>, config: WalConfig) -> Result<(Wal, RecoveredLog), WalError> {
        config.check()?;
        let mut found = recover(&*disk, &config)?;
        let spares = std::mem::take(&mut found.spares);
        let pool = SegmentPool::new(disk.clone(), &config, spares, found.spare_id_next);
        let shared = Arc::new(LogState {
            disk,
            pool,
            config,
            index: RwLock::new(std::mem::take(&mut found.index)),
            queue: Queue::default(),
            counters: Counters::new(),
            active_left: AtomicU64::new(0),
        });
        let wal = Wal {
            handle: Arc::new(Handle { shared: shared.clone(), writer: Arc::default(), threads: Mutex::default() }),
        };
        // From here on, dropping `wal` stops the started threads.
        wal.spawn("wal-spare", || {
            let shared = shared.clone();
            move || shared.pool.run()
        })?;
        let active = wal.first_segment(&mut found)?;
        let recovered = wal.recovered(&found);
        let mark = Mark::open(&*shared.disk, shared.index.read().batch);
        *wal.handle.writer.lock() = Some(Writer::new(shared.clone(), active, mark));
        wal.spawn("wal-writer", || {
            let (shared, writer) = (shared.clone(), wal.handle.writer.clone());
            move || writer::run(&shared, &writer)
        })?;
        Ok((wal, recovered))
    }

    fn spawn<F: FnOnce() + Send + 'static>(&self, name: &str, body: impl FnOnce() -> F) -> Result<(), WalError> {
        let body = body();
        let guarded = move || guard(body);
        let thread = thread::Builder::new().name(name.to_owned()).spawn(guarded);
        let thread = thread.map_err(|source| WalError::Io {
            action: "start a thread for",
            path: "the log".to_owned(),
            source,
        })?;
        self.handle.threads.lock().push(thread);
        Ok(())
    }

    /// Returns the segment to write to: the last recovered one, unless there is none or there was damage. A new one
    /// begins with a snapshot, which resolves the damage for the next start.
    fn first_segment(&self, found: &mut LogRecovery) -> Result<Active, WalError> {
        let shared = &self.handle.shared;
        let found_active = match found.active.take() {
            Some(active) if !found.unsettled => return Ok(active),
            found_active => found_active,
        };
        let beginning = SegmentStart::new(&shared.index.read());
        let (disk, pool) = (&*shared.disk, &shared.pool);
        let generation = found.generation_next;
        match (activate(disk, pool, beginning, generation, 0, true), found_active) {
            (Ok(active), _) => {
                let (file, size) = (active.file.clone(), active.header.size);
                let entry = SegmentEntry { file, size, live: 0 };
                let mut index = shared.index.write();
                index.segments.insert(generation, entry);
                let unneeded = index.take_unneeded();
                drop(index);
                for (generation, segment) in unneeded {
                    pool.retire(generation, segment).map_err(|source| {
                        let path = crate::segment::segment_name(generation);
                        WalError::Io { action: "retire", path, source }
                    })?;
                }
                Ok(active)
            }
            // Without space for a new segment; one that lost its snapshot must not be used.
            (Err(ActivateError::Refused(error)), Some(active)) if active.end as usize > SEGMENT_HEADER_BYTES => {
                tracing::warn!(%error, "going on in a damaged log segment");
                Ok(active)
            }
            (Err(ActivateError::Refused(error)), _) => Err(error),
            (Err(ActivateError::Fatal(action, source)), _) => {
                Err(WalError::Io { action, path: "in the log directory".to_owned(), source })
            }
        }
    }

    fn recovered(&self, found: &LogRecovery) -> RecoveredLog {
        let index = self.handle.shared.index.read();
        let streams = index.streams.iter().map(|(stream, entry)| {
            let state = StreamState {
                bounds: bounds_of(entry),
                seq_min: entry.tail.floor,
                metas: entry.metas.clone(),
                damaged: entry.tail.frozen,
            };
            (StreamId(*stream), state)
        });
        RecoveredLog {
            streams: streams.collect(),
            damaged: found.damages.clone(),
            torn_bytes_cut: found.torn_bytes_cut,
        }
    }

    /// Queues a batch and returns at once. `done` runs on the writing thread, in the order of the appends, once the
    /// batch is durable or with the reason why it was not written: [`WalError::Sequence`],
    /// [`WalError::StreamDamaged`], [`WalError::NoSpace`], [`WalError::Closed`]. A caller that may have to repeat the batch
    /// keeps an `Arc` of it.
    ///
    /// # Errors
    /// [`WalFull`] if the queue is full, the batch too large or the log closed; it returns the batch and `done`,
    /// which is not called.
    pub fn append(&self, batch: impl Into<Arc<WalBatch>>, done: CompletionCallback) -> Result<(), WalFull> {
        let shared = &self.handle.shared;
        let config = &shared.config;
        shared.queue.push(batch.into(), done, config.batch_bytes_max(), config.queue_bytes_max)
    }

    /// As [`append`](Wal::append), but if the writer is idle and the queue empty, the batch is made durable on this
    /// thread, and `done` runs on it before this returns: this saves two thread switches, which take as long as a
    /// fast disk. Returns whether it did so; the caller then waits for the disk.
    ///
    /// # Errors
    /// As [`append`](Wal::append).
    pub fn append_here(&self, batch: impl Into<Arc<WalBatch>>, done: CompletionCallback) -> Result<bool, WalFull> {
        let batch = batch.into();
        let Handle { shared, writer, .. } = &*self.handle;
        let Some(mut held) = writer.try_lock() else { return self.append(batch, done).map(|()| false) };
        let Some(writer) = held.as_mut().filter(|writer| writer.fits(batch.bytes())) else {
            drop(held);
            return self.append(batch, done).map(|()| false);
        };
        let config = &shared.config;
        match shared.queue.pass(batch, done, config.batch_bytes_max(), config.queue_bytes_max)? {
            Some(item) => guard(|| writer.write_one(item)),
            None => return Ok(false),
        }
        Ok(true)
    }

    /// Appends and waits until the batch is durable. Must not be called from a callback or a thread that others wait
    /// for.
    ///
    /// # Errors
    /// All errors that [`append`](Wal::append) returns or passes to its callback.
    pub fn append_wait(&self, batch: WalBatch) -> Result<(), WalError> {
        let (sender, receiver) = mpsc::sync_channel(1);
        let done: CompletionCallback = Box::new(move |result| drop(sender.send(result)));
        self.append(batch, done).map_err(|full| *full.reason)?;
        receiver.recv().unwrap_or(Err(WalError::Closed))
    }

    /// Returns durable records from `from_seq` on, in order and without a gap: up to `bytes_max` bytes, including 36
    /// bytes of overhead per record, but at least one if it exists; none if `from_seq` is beyond the last one or the
    /// stream does not exist. Each is verified by its checksum. The records of one call may share memory.
    ///
    /// # Errors
    /// [`WalError::Missing`] if `from_seq` was trimmed or cut; [`WalError::Corrupt`]; [`WalError::Io`].
    pub fn read(&self, stream: StreamId, from_seq: u64, bytes_max: usize) -> Result<Vec<Record>, WalError> {
        let plan = Plan::new(&self.handle.shared.index.read(), stream, from_seq, bytes_max)?;
        plan.fetch()
    }

    /// Allows the log to forget the stream's durable records up to and including `upto_seq`; numbers beyond the last
    /// durable one count as that one. Readers see it at once. It is written with a later batch, so trimmed records
    /// may return after a crash; and it may be durable before batches that are already queued: if one of them states
    /// what was trimmed, the trim belongs into it ([`WalBatch::trim`]). A segment is reused once neither it nor an
    /// older segment holds a record.
    pub fn trim(&self, stream: StreamId, upto_seq: u64) {
        let shared = &self.handle.shared;
        let mut index = shared.index.write();
        let Some(entry) = index.streams.get_mut(&stream.0) else { return };
        if entry.tail.is_empty() {
            return;
        }
        let floor = upto_seq.saturating_add(1).min(entry.tail.next);
        if floor <= entry.tail.first.max(entry.hidden) {
            return;
        }
        entry.hidden = floor;
        // A separate write is justified only if a segment may become free.
        let wanted = index.segments.len() > 1;
        // Recorded under the lock: a cut or drop that is published later limits it.
        shared.queue.trim(stream.0, floor, wanted);
    }

    /// Returns the first and last durable record of the stream; `None` if there are none.
    pub fn bounds(&self, stream: StreamId) -> Option<Bounds> {
        self.handle.shared.index.read().streams.get(&stream.0).and_then(bounds_of)
    }

    /// Returns the durable value of one of the stream's metas.
    pub fn meta(&self, stream: StreamId, key: u32) -> Option<Bytes> {
        self.handle.shared.index.read().streams.get(&stream.0)?.metas.get(&key).cloned()
    }

    /// Returns all existing streams, in order.
    pub fn streams(&self) -> Vec<StreamId> {
        let mut streams: Vec<_> =
            self.handle.shared.index.read().streams.keys().map(|stream| StreamId(*stream)).collect();
        streams.sort_unstable();
        streams
    }

    /// Returns counters for a watchdog; costs a few loads.
    pub fn progress(&self) -> Progress {
        self.handle.shared.counters.read()
    }

    /// Sets an observer of the duration of each durable write. It runs on the writing thread, so it must be quick.
    /// Returns false and changes nothing if the log has an observer already.
    pub fn observe_syncs(&self, observer: impl Fn(Duration) + Send + Sync + 'static) -> bool {
        self.handle.shared.counters.observe(Box::new(observer))
    }

    /// Returns true while the disk has no space and only urgent batches are written. Ends by itself when space
    /// returns or enough was trimmed.
    pub fn read_only(&self) -> bool {
        self.handle.shared.pool.read_only()
    }

    /// Removes, asynchronously, the surplus spare files: for when others need the disk.
    pub fn shrink_pool(&self) {
        self.handle.shared.pool.shed();
    }

    /// Frees, asynchronously, all dispensable space, for when the disk is full and others need it: removes spare
    /// files like [`Wal::shrink_pool`], and rewrites old records if that frees segments.
    pub fn free_space(&self) {
        self.shrink_pool();
        self.handle.shared.queue.want_space();
    }

    /// Returns the bytes of all files of the log, including spares but not the one that is being recycled or removed.
    pub fn disk_bytes(&self) -> u64 {
        let shared = &self.handle.shared;
        let segments: u64 = shared.index.read().segments.values().map(|s| s.size).sum();
        segments + shared.pool.bytes()
    }

    /// Returns the records that keep the log from shrinking; `None` if it has only one segment. Examines every
    /// stream.
    pub fn oldest_pinned(&self) -> Option<PinnedRecords> {
        let index = self.handle.shared.index.read();
        let oldest = *index.segments.first_key_value()?.0;
        if index.segments.len() < 2 {
            return None;
        }
        let newest = *index.segments.last_key_value()?.0;
        let mut streams = Vec::new();
        let mut next = newest;
        for (stream, entry) in &index.streams {
            // Trimmed records pin nothing for long, even before the trim is written.
            let hidden = entry.hidden.saturating_sub(entry.base);
            let skip = usize::try_from(hidden).unwrap_or(usize::MAX);
            match entry.entries.get(skip).map(|location| location.segment) {
                Some(segment) if segment == oldest => streams.push(StreamId(*stream)),
                Some(segment) => next = next.min(segment),
                None => {}
            }
        }
        streams.sort_unstable();
        let freed = index.segments.range(oldest..next).map(|(_, segment)| segment.size);
        Some(PinnedRecords { streams, segment: oldest, bytes: freed.sum() })
    }

    /// Refuses further appends, writes the queued batches, and ends the threads.
    ///
    /// # Errors
    /// [`WalError::CloseTimeout`] if that takes longer than `timeout`; the threads then end when the disk responds.
    pub fn close(self, timeout: Duration) -> Result<(), WalError> {
        let shared = &self.handle.shared;
        shared.queue.close();
        let in_time = shared.queue.wait_finished(timeout);
        shared.pool.stop();
        let threads = std::mem::take(&mut *self.handle.threads.lock());
        if !in_time {
            // Detaches the threads; joining them could hang.
            drop(threads);
            let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
            return Err(WalError::CloseTimeout { timeout_ms });
        }
        join(threads);
        Ok(())
    }
}

/// Runs writing threads and callbacks; a panic ends the process.
fn guard(body: impl FnOnce()) {
    if std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).is_err() {
        // Callers would wait forever for a log that stopped halfway through a write.
        tracing::error!("a log thread or a callback of the log panicked: ending the process");
        std::process::abort();
    }
}

fn bounds_of(entry: &crate::index::StreamIndex) -> Option<Bounds> {
    let first = entry.visible_first();
    let next = entry.base + entry.entries.len() as u64;
    (first < next).then(|| Bounds { first, last: next - 1 })
}

fn join(threads: Vec<JoinHandle<()>>) {
    let current = thread::current().id();
    for thread in threads {
        // A callback may drop the last handle on the writer's own thread.
        if thread.thread().id() != current && thread.join().is_err() {
            tracing::error!("a log thread panicked");
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.queue.close();
        let mut threads = std::mem::take(&mut *self.threads.lock());
        // The writer may need a spare to drain the queue, so the helper stops after it.
        if threads.len() > 1 {
            join(threads.split_off(1));
        }
        self.shared.pool.stop();
        join(threads);
    }
}

mod space;
#[cfg(test)]
mod tests;

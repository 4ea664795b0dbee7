//! Flusher: the sole writer of the engine, one thread that writes committed effects in order and syncs from time to
//! time.
//!
//! It reports two positions per placement through the callback. *Written*: the engine has it, so the memtable may
//! release it. *Synced*: it is on disk, so the log need not be replayed before it and may be trimmed. Long jobs take
//! small steps between the work of other spaces: clearing a space, clearing a range of keys for a memtable's list, and
//! forming a copy from another one. Work for the space itself waits meanwhile, so that no position is reported early.
//! After a restart, the log or the requester of a copy repeats an interrupted job. An engine error ends the thread:
//! after a failed sync the state of the disk is unknown, so the process must end and recover from the log.

mod gather;
mod handle;
mod jobs;
mod marks;
mod parts;
mod sorted_rows;
mod waits;
mod writer;

pub(crate) use handle::FlusherHandle;
pub(crate) use parts::write_frozen;
pub(crate) use sorted_rows::CopiedPage;

use self::writer::Writer;
use crate::engine::{Change, Engine, EngineError, is_full};
use crate::storage::snapshots::Snapshots;
use archon_host::{ClearedSpaces, FormJob};
use archon_kv::FrozenRows;
use archon_replica::Position;
use archon_types::{DiskFull, PlacementId, Seq};
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Interval between checks of a full disk.
const DISK_SPACE_INTERVAL: Duration = Duration::from_millis(200);
/// Interval between looks at an engine that has no room.
const ROOM_INTERVAL: Duration = Duration::from_millis(20);
/// Cost of an effect in the queue beside its keys and values.
const WORK_OVERHEAD_BYTES: usize = 256;

/// Settings of the flusher.
#[derive(Clone, Debug)]
pub(crate) struct FlusherConfig {
    /// Bytes that may wait in the queue.
    pub queue_bytes_max: usize,
    /// Bytes taken from the queue in one turn.
    pub write_bytes_max: usize,
    /// Most rows passed to the engine at once.
    pub write_rows_max: usize,
    /// Bytes of gathered rows of copies, if the engine has a cheaper bulk ingest.
    pub ingest_bytes: usize,
    /// Bytes after which the engine is synced.
    pub sync_bytes: usize,
    /// The same for copies on a node in use: the log's syncs wait behind a large one.
    pub gentle_sync_bytes: usize,
    /// Longest time without a sync of unsynced writes; by default the engine's.
    pub sync_interval: Option<Duration>,
    /// Bytes of the log for rows handed over after which the engine is synced: until then the log keeps them.
    pub sync_log_bytes: u64,
    /// Rows removed in one step of clearing.
    pub clear_rows: usize,
}

impl Default for FlusherConfig {
    fn default() -> Self {
        Self {
            queue_bytes_max: 64 * 1024 * 1024,
            write_bytes_max: 1024 * 1024,
            write_rows_max: 4_096,
            ingest_bytes: 16 * 1024 * 1024,
            sync_bytes: 32 * 1024 * 1024,
            gentle_sync_bytes: 1024 * 1024,
            sync_interval: None,
            sync_log_bytes: 128 * 1024 * 1024,
            clear_rows: 1_024,
        }
    }
}

impl FlusherConfig {
    /// Returns the settings for an engine. If its syncs write tables, frequent ones would write small tables.
    pub(crate) fn of(engine: &dyn Engine) -> Self {
        let config = Self::default();
        match engine.writes_tables() {
            true => Self { gentle_sync_bytes: config.sync_bytes, ..config },
            false => config,
        }
    }
}

/// Event of the flusher. The callback runs on its thread and must not block.
#[derive(Debug)]
pub(crate) enum FlushEvent {
    /// The engine holds everything of this placement up to here, perhaps not on disk yet.
    Written {
        /// The placement.
        space: PlacementId,
        /// The position.
        upto: Seq,
    },
    /// Everything of this placement up to here is on disk: the log may note it and be trimmed.
    Synced {
        /// The placement.
        space: PlacementId,
        /// The position.
        upto: Seq,
    },
    /// Half of the queue is free after work was refused: work may be offered again.
    QueueDrained,
    /// Nothing of this placement was left, on disk too. Since then, more may have been written, and another clearing
    /// may have begun.
    Cleared {
        /// The placement.
        space: PlacementId,
        /// The number of the clearing.
        clear: u64,
    },
    /// A copy is no longer formed, as rows of its source were cleared; forming has to start over.
    Spoilt {
        /// The copy.
        space: PlacementId,
        /// The attempt of the job that formed it.
        attempt: u64,
    },
    /// A placement's data differs from what was written; its job was ended.
    Damaged {
        /// The placement.
        space: PlacementId,
        /// The damage found.
        why: String,
    },
    /// A copy being formed has every row on disk, and changes of its source are mirrored.
    RowsFormed {
        /// The copy.
        space: PlacementId,
        /// The attempt of the job that forms it.
        attempt: u64,
    },
    /// A copy is formed, on disk too. May arrive after the copy was abandoned.
    Formed {
        /// The copy.
        space: PlacementId,
        /// The attempt of the job that formed it.
        attempt: u64,
    },
    /// The engine failed and the flusher has stopped; the process must end.
    Failed(Arc<EngineError>),
}

/// Reason for refusing work.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FlusherError {
    /// The queue is full; offer the work again after `FlushEvent::QueueDrained`.
    #[error("the flusher's queue is full ({bytes} of {max} bytes); offer it again later")]
    Full {
        /// Bytes waiting.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// The space is being cleared; nothing may be written to it.
    #[error("placement {space} is being cleared")]
    Clearing {
        /// The space.
        space: PlacementId,
    },
    /// The flusher was stopped, or its engine failed.
    #[error("the flusher has stopped")]
    Stopped,
    /// The thread could not be started, for lack of memory or threads.
    #[error("the flusher's thread could not be started")]
    Start,
    /// The queue was not empty by the deadline.
    #[error(
        "the flusher did not finish by the deadline; the log holds what is missing and is replayed at the next start"
    )]
    Deadline,
}

/// Runs once everything queued before it is written and synced; dropped unrun if the engine fails before.
pub(crate) type Barrier = Box<dyn FnOnce() + Send>;

/// Rows for the engine.
#[derive(Debug)]
pub(crate) enum FlushRows {
    /// Rows as they are.
    Changes(Vec<Change>),
    /// A memtable's rows, which the flusher sorts: a shard has no time for that.
    Frozen(FrozenRows),
    /// A page of a copy.
    Copied(CopiedPage),
}

impl From<Vec<Change>> for FlushRows {
    fn from(changes: Vec<Change>) -> Self {
        Self::Changes(changes)
    }
}

impl From<FrozenRows> for FlushRows {
    fn from(frozen: FrozenRows) -> Self {
        Self::Frozen(frozen)
    }
}

impl FlushRows {
    /// Returns their cost in the queue.
    fn bytes(&self) -> usize {
        match self {
            Self::Changes(changes) => changes.iter().map(size).sum(),
            Self::Copied(page) => page.bytes(),
            Self::Frozen(frozen) => frozen.bytes(),
        }
    }
}

enum Work {
    Apply {
        space: PlacementId,
        upto: Seq,
        rows: FlushRows,
        bytes: usize,
    },
    Clear {
        space: PlacementId,
        clear: u64,
    },
    /// A memtable's list after all its ranges are cleared.
    Cleared {
        space: PlacementId,
        upto: Seq,
        rows: FrozenRows,
    },
    Form(FormJob),
    /// The end of the copy formed from this source.
    EndForm {
        from: PlacementId,
        to: PlacementId,
        end: Position,
    },
    /// The copy formed in this space is abandoned.
    StopForm(PlacementId),
    Barrier(Barrier),
    /// Rows to be freed.
    LetGo(FrozenRows),
}

#[derive(Default)]
struct Queue {
    work: VecDeque<Work>,
    bytes: usize,
    /// Being cleared, with the number of the clearing.
    clearing: BTreeMap<PlacementId, u64>,
    cleared: ClearedSpaces,
    /// Number of clearings so far.
    clears: u64,
    /// Work was refused since the queue was last drained.
    starved: bool,
    /// Written rows need a sync at once.
    sync_soon: bool,
    /// The engine refused a read for lack of space.
    read_failure: Option<EngineError>,
    stopping: bool,
    ended: bool,
}

impl Queue {
    /// Returns whether there is room; work larger than the whole queue is accepted alone.
    const fn has_capacity(&self, bytes: usize, max: usize) -> bool {
        self.bytes == 0 || self.bytes + bytes <= max
    }
}

struct FlusherState {
    queue: Mutex<Queue>,
    /// Work was queued, or stopping began.
    wake: Condvar,
    /// The thread has ended.
    end: Condvar,
    config: FlusherConfig,
    /// The disk has too little space for the engine: queued work waits.
    is_disk_full: AtomicBool,
    /// The engine failed because the disk was full, and works once it is opened again.
    failed_for_space: AtomicBool,
    /// Last known shortage.
    disk_full: Mutex<Option<DiskFull>>,
    /// Start of the engine's work on the present turn.
    busy_since: Mutex<Option<Instant>>,
    /// Syncs of the engine so far.
    syncs: AtomicU64,
    /// Bytes of the log for the rows handed over since the last sync.
    unsynced_log_bytes: AtomicU64,
    /// Bytes written to form copies so far.
    formed_bytes: AtomicU64,
    /// Time of the engine on pages of copies since it was last taken, in microseconds.
    copied_us: AtomicU64,
    /// Snapshots read during writes.
    snapshots: Arc<Snapshots>,
}

/// The flusher's thread; dropping it stops the thread without waiting.
pub(crate) struct Flusher {
    shared: Arc<FlusherState>,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Flusher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Flusher").finish_non_exhaustive()
    }
}

impl Flusher {
    /// Starts the thread. `on_panic` runs if it panics: from then on nothing reaches the engine, so the memtable fills
    /// for good.
    ///
    /// # Errors
    /// [`FlusherError::Start`] if the system gives no thread.
    pub(crate) fn start(
        engine: Arc<dyn Engine>,
        config: FlusherConfig,
        on_event: impl FnMut(FlushEvent) + Send + 'static,
        on_panic: impl FnOnce() + Send + 'static,
    ) -> Result<Self, FlusherError> {
        let shared = Arc::new(FlusherState {
            queue: Mutex::default(),
            wake: Condvar::new(),
            end: Condvar::new(),
            config,
            is_disk_full: AtomicBool::new(false),
            failed_for_space: AtomicBool::new(false),
            disk_full: Mutex::new(None),
            busy_since: Mutex::new(None),
            syncs: AtomicU64::new(0),
            unsynced_log_bytes: AtomicU64::new(0),
            formed_bytes: AtomicU64::new(0),
            copied_us: AtomicU64::new(0),
            snapshots: Arc::default(),
        });
        let writer = Writer::new(Arc::clone(&shared), engine, Box::new(on_event), Box::new(on_panic));
        let thread = std::thread::Builder::new().name("flusher".into()).spawn(move || writer.run());
        Ok(Self { shared, thread: Some(thread.map_err(|_| FlusherError::Start)?) })
    }

    /// Returns a handle for queueing work.
    pub(crate) fn handle(&self) -> FlusherHandle {
        FlusherHandle { shared: Arc::clone(&self.shared) }
    }

    /// Accepts no further work, waits until queued work is written and synced (clearing and forming are interrupted), and
    /// ends the thread. Call it where blocking is allowed.
    ///
    /// # Errors
    /// [`FlusherError::Deadline`] if that took longer than `deadline`; the thread is then left running.
    pub(crate) fn shutdown(mut self, deadline: Duration) -> Result<(), FlusherError> {
        self.stop();
        let until = Instant::now() + deadline;
        let mut queue = self.shared.queue.lock();
        while !queue.ended {
            if self.shared.end.wait_until(&mut queue, until).timed_out() && !queue.ended {
                return Err(FlusherError::Deadline);
            }
        }
        drop(queue);
        match self.thread.take().map(JoinHandle::join) {
            Some(Err(_)) => Err(FlusherError::Stopped),
            Some(Ok(())) | None => Ok(()),
        }
    }

    fn stop(&self) {
        self.shared.queue.lock().stopping = true;
        self.shared.wake.notify_all();
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        self.stop();
    }
}

fn size(change: &Change) -> usize {
    change.key.len() + change.value.as_ref().map_or(0, bytes::Bytes::len)
}

#[cfg(test)]
mod form_tests;
#[cfg(test)]
mod job_tests;
#[cfg(test)]
mod rig;
#[cfg(test)]
mod sorted_rows_tests;
#[cfg(test)]
mod tests;

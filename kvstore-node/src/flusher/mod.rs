//! The sole writer of the engine: one thread that takes committed effects in order, writes them, and syncs now and then.
//!
//! Two positions per placement come back through the callback. *Written*: the engine has it, so the memtable may let
//! go. *Synced*: it is on the disk, so the log need not be replayed before it and may be trimmed. Clearing a space, or a
//! range of keys that a memtable's list clears, and forming a copy from another one go in small steps between the work of
//! other spaces; what is queued meanwhile for the space itself waits behind, so that no position is told that is not reached.
//! One that a restart interrupts the log brings again, or whoever asked for the copy. An engine error ends the thread: after a failed sync nobody knows what the disk holds,
//! so the process must end and recover from the log.

mod copied;
mod gather;
mod handle;
mod jobs;
mod writer;

pub(crate) use copied::CopiedPage;
pub(crate) use handle::FlusherHandle;
pub(crate) use writer::write_frozen;

use self::writer::Writer;
use crate::engine::{Change, Engine, EngineError};
use crate::snapshots::Snapshots;
use archon_host::FormJob;
use archon_kv::Frozen;
use archon_replica::Position;
use archon_types::{DiskFull, PlacementId, Seq};
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often a full disk is looked at again.
const DISK_SPACE_INTERVAL: Duration = Duration::from_millis(200);
/// Cleared spaces that are remembered, of the newest copies.
const CLEARED_MAX: usize = 16_384;
/// What an effect costs in the queue beside its keys and values.
const WORK_OVERHEAD_BYTES: usize = 256;

/// How the flusher works.
#[derive(Clone, Debug)]
pub(crate) struct FlusherConfig {
    /// Bytes that may wait in the queue.
    pub queue_bytes_max: usize,
    /// Bytes taken from the queue in one turn.
    pub write_bytes_max: usize,
    /// Rows given to the engine at once, at most.
    pub write_rows_max: usize,
    /// Rows of copies that gather, if the engine takes many of them cheaper.
    pub ingest_bytes: usize,
    /// The engine is synced after this many bytes.
    pub sync_bytes: usize,
    /// And after this many of copies on a node in use: the log's syncs wait behind a large one.
    pub gentle_sync_bytes: usize,
    /// The engine is synced when something has been unsynced for this long.
    pub sync_interval: Duration,
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
            sync_interval: Duration::from_secs(1),
            clear_rows: 1_024,
        }
    }
}

/// What the flusher tells. The callback runs on its thread and must not block.
#[derive(Debug)]
pub(crate) enum FlushEvent {
    /// The engine holds everything of this placement up to here, though perhaps not on the disk.
    Written {
        /// The placement.
        space: PlacementId,
        /// The position.
        upto: Seq,
    },
    /// Everything of this placement up to here is on the disk: the log may note it and be trimmed.
    Synced {
        /// The placement.
        space: PlacementId,
        /// The position.
        upto: Seq,
    },
    /// Somebody was told that the queue is full, and half of it is free now: work may be offered again.
    QueueDrained,
    /// Nothing of this placement is left, on the disk too. More may have been written, and another clearing may have
    /// begun, since.
    Cleared {
        /// The placement.
        space: PlacementId,
        /// The number of the clearing.
        clear: u64,
    },
    /// A copy is formed no further: rows that it was to have were cleared at its source. It is to be begun anew.
    Spoilt {
        /// The copy.
        space: PlacementId,
        /// The attempt of the job that formed it.
        attempt: u64,
    },
    /// What a placement holds cannot be what was written: nothing more was done of what was to be done with it.
    Damaged {
        /// The placement.
        space: PlacementId,
        /// What was found.
        why: String,
    },
    /// A copy that is formed has every row by now, on the disk too, and what is written to its source follows.
    RowsFormed {
        /// The copy.
        space: PlacementId,
        /// The attempt of the job that forms it.
        attempt: u64,
    },
    /// A copy is formed, on the disk too. Whoever has given it up since may hear of it all the same.
    Formed {
        /// The copy.
        space: PlacementId,
        /// The attempt of the job that formed it.
        attempt: u64,
    },
    /// The engine failed and the flusher has stopped; the process must end.
    Failed(Arc<EngineError>),
}

/// Why work was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FlusherError {
    /// The queue is full; offer it again when `FlushEvent::QueueDrained` came.
    #[error("the flusher's queue is full ({bytes} of {max} bytes); offer it again later")]
    Full {
        /// Bytes waiting.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// The space is being cleared; nothing may be written to it any more.
    #[error("placement {space} is being cleared")]
    Clearing {
        /// The space.
        space: PlacementId,
    },
    /// The flusher was stopped, or its engine failed.
    #[error("the flusher has stopped")]
    Stopped,
    /// The thread could not be started, for want of memory or threads.
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
    /// As they are.
    Changes(Vec<Change>),
    /// A memtable's, which the flusher puts in order: a shard has no time for that.
    Frozen(Frozen),
    /// A page of a copy.
    Copied(CopiedPage),
}

impl From<Vec<Change>> for FlushRows {
    fn from(changes: Vec<Change>) -> Self {
        Self::Changes(changes)
    }
}

impl From<Frozen> for FlushRows {
    fn from(frozen: Frozen) -> Self {
        Self::Frozen(frozen)
    }
}

impl FlushRows {
    /// What they count in the queue.
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
    /// A memtable's list of which everything that it clears is cleared.
    Cleared {
        space: PlacementId,
        upto: Seq,
        rows: Frozen,
    },
    Form(FormJob),
    /// The copy that is formed from this source ends there.
    EndForm {
        from: PlacementId,
        to: PlacementId,
        end: Position,
    },
    /// The copy that is formed in this space is given up.
    StopForm(PlacementId),
    Barrier(Barrier),
    /// To be freed.
    LetGo(Frozen),
}

#[derive(Default)]
struct Queue {
    work: VecDeque<Work>,
    bytes: usize,
    /// Being cleared, by the number of the clearing.
    clearing: BTreeMap<PlacementId, u64>,
    /// Spaces of which a clearing was asked for: the copy has an owner, and none is formed there. Numbers of copies only rise, and a
    /// form that comes late is of a copy made a moment ago, so the lowest numbers are forgotten first.
    cleared: BTreeSet<PlacementId>,
    /// Clearings so far.
    clears: u64,
    /// Work was refused since the queue was drained last.
    starved: bool,
    stopping: bool,
    ended: bool,
}

impl Queue {
    fn note_cleared(&mut self, space: PlacementId) {
        self.cleared.insert(space);
        if self.cleared.len() > CLEARED_MAX {
            self.cleared.pop_first();
        }
    }

    /// Something larger than the whole queue is taken alone, else it would never be.
    const fn has_capacity(&self, bytes: usize, max: usize) -> bool {
        self.bytes == 0 || self.bytes + bytes <= max
    }
}

struct Shared {
    queue: Mutex<Queue>,
    /// Something was queued, or stopping began.
    wake: Condvar,
    /// The thread has ended.
    end: Condvar,
    config: FlusherConfig,
    /// The disk has too little space for the engine: what is queued waits.
    is_disk_full: AtomicBool,
    /// The engine failed because the disk was full, and works once it is opened again.
    failed_for_space: AtomicBool,
    /// How much it lacks, as last seen.
    disk_full: Mutex<Option<DiskFull>>,
    /// Since when the engine has been at work for the turn under way.
    busy_since: Mutex<Option<Instant>>,
    /// Syncs of the engine so far.
    syncs: AtomicU64,
    /// Bytes written to form copies so far.
    formed_bytes: AtomicU64,
    /// How long the engine was at work on pages of copies since that was asked last, in microseconds.
    copied_us: AtomicU64,
    /// What is read while this writes.
    snapshots: Arc<Snapshots>,
}

/// The flusher's thread; dropping it stops the thread without waiting.
pub(crate) struct Flusher {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Flusher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Flusher").finish_non_exhaustive()
    }
}

impl Flusher {
    /// Starts the thread. `on_panic` runs should it panic: from then on nothing reaches the engine any more, so that the
    /// memtable fills for good.
    ///
    /// # Errors
    /// [`FlusherError::Start`] if the system gives no thread.
    pub(crate) fn start(
        engine: Arc<dyn Engine>,
        config: FlusherConfig,
        on_event: impl FnMut(FlushEvent) + Send + 'static,
        on_panic: impl FnOnce() + Send + 'static,
    ) -> Result<Self, FlusherError> {
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            wake: Condvar::new(),
            end: Condvar::new(),
            config,
            is_disk_full: AtomicBool::new(false),
            failed_for_space: AtomicBool::new(false),
            disk_full: Mutex::new(None),
            busy_since: Mutex::new(None),
            syncs: AtomicU64::new(0),
            formed_bytes: AtomicU64::new(0),
            copied_us: AtomicU64::new(0),
            snapshots: Arc::default(),
        });
        let writer = Writer::new(Arc::clone(&shared), engine, Box::new(on_event), Box::new(on_panic));
        let thread = std::thread::Builder::new().name("flusher".into()).spawn(move || writer.run());
        Ok(Self { shared, thread: Some(thread.map_err(|_| FlusherError::Start)?) })
    }

    /// A handle to give it work.
    pub(crate) fn handle(&self) -> FlusherHandle {
        FlusherHandle { shared: Arc::clone(&self.shared) }
    }

    /// Takes no more work, waits until what is queued is written and synced (clearing and forming are broken off),
    /// and ends the thread. Call it where blocking is allowed.
    ///
    /// # Errors
    /// [`FlusherError::Deadline`] if that took longer than `deadline`; the thread is left to itself then.
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
mod copied_tests;
#[cfg(test)]
mod form_tests;
#[cfg(test)]
mod job_tests;
#[cfg(test)]
mod rig;
#[cfg(test)]
mod tests;

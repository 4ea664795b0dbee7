//! Thread that compacts the tables of an LSM tree.

use super::EngineError;
use lsm_tree::compaction::filter::Context;
use lsm_tree::compaction::{CompactionFilter, Factory, ItemAccessor, Leveled, Verdict};
use lsm_tree::{AbstractTree, AnyTree, Config, SequenceNumberCounter};
use parking_lot::{Condvar, Mutex};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// Size of a table that a compaction writes, in bytes.
const TABLE_BYTES: u64 = 32 * 1024 * 1024;
/// Bytes that a merge below the first level usually reads: a table, and about ten that it overlaps.
const MERGE_BYTES: u64 = 512 * 1024 * 1024;
/// Runs of tables in the first level from which on the engine has no room: a read may have to look into each.
const RUNS_MAX: usize = 16;
/// The same while compactions wait for space on the disk. From then on the disk counts as full.
const RUNS_PAUSED_MAX: usize = 32;
/// Runs of which the library can write down the number, with a margin. Beyond 255 it would write down another number.
pub(super) const RUNS_LIMIT: usize = 200;
/// Interval between looks at a disk with too little space for compactions.
const SPACE_INTERVAL: Duration = Duration::from_secs(2);

/// Merges the runs of tables that flushes leave in the first level into lower levels, one compaction at a time.
///
/// It ends with the first error, which [`Compactor::has_room`] returns. Dropping it interrupts a compaction in progress.
pub(super) struct Compactor {
    tree: AnyTree,
    shared: Arc<Shared>,
    hooks: Arc<CompactorHooks>,
    stop: StopFlag,
    thread: Option<JoinHandle<()>>,
}

/// Interrupts compactions of a tree.
#[derive(Clone, Default)]
pub(super) struct StopFlag(Arc<AtomicBool>);

/// Relations of the compactor to its engine.
pub(super) struct CompactorHooks {
    /// Returns whether the disk has space for a compaction that writes so many bytes.
    pub has_space: Box<dyn Fn(u64) -> bool + Send + Sync>,
    /// Names the engine in an error.
    pub fail: Box<dyn Fn(lsm_tree::Error) -> EngineError + Send + Sync>,
}

impl StopFlag {
    /// Makes compactions of a tree end with an error once the flag is set. The tree then keeps its tables as they are; the
    /// next start removes what the compaction has written.
    pub(super) fn interrupts(&self, config: Config) -> Config {
        config.with_compaction_filter_factory(Some(Arc::new(self.clone())))
    }

    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Factory for StopFlag {
    fn name(&self) -> &'static str {
        "stop"
    }

    fn make_filter(&self, _: &Context) -> Box<dyn CompactionFilter> {
        Box::new(self.clone())
    }
}

impl CompactionFilter for StopFlag {
    fn filter_item(&mut self, _: ItemAccessor<'_>, _: &Context) -> lsm_tree::Result<Verdict> {
        match self.is_set() {
            true => Err(io::Error::from(io::ErrorKind::Interrupted).into()),
            false => Ok(Verdict::Keep),
        }
    }
}

/// Removes the files of tables that no reader uses. The library does so with the next change of the tree only.
pub(super) fn release_tables(tree: &AnyTree, seqno: &SequenceNumberCounter) -> lsm_tree::Result<()> {
    tree.get_version_history_lock().maintenance(&tree.tree_config().path, seqno.get())
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// There is work, or the thread is to stop.
    work: Condvar,
}

#[derive(Default)]
struct State {
    /// Tables were added since the thread last looked.
    due: bool,
    /// The thread is at work.
    busy: bool,
    /// Compactions wait until the disk has so many free bytes.
    lacks_bytes: Option<u64>,
    /// The error that ended the thread, until it is returned.
    failure: Option<EngineError>,
    has_failed: bool,
}

impl Compactor {
    /// Starts the thread. `seqno` counts the writes of the tree, and `stop` interrupts its compactions.
    ///
    /// # Errors
    /// The error of the system if it gives no thread.
    pub(super) fn start(
        tree: &AnyTree,
        seqno: &SequenceNumberCounter,
        stop: StopFlag,
        hooks: CompactorHooks,
    ) -> io::Result<Self> {
        let (shared, hooks) = (Arc::<Shared>::default(), Arc::new(hooks));
        let (tree, seqno) = (tree.clone(), seqno.clone());
        let worker = Worker {
            tree: tree.clone(),
            seqno,
            stop: stop.clone(),
            shared: Arc::clone(&shared),
            hooks: Arc::clone(&hooks),
        };
        let thread = Builder::new().name("compactor".into()).spawn(move || worker.run())?;
        let compactor = Self { tree, shared, hooks, stop, thread: Some(thread) };
        compactor.wake();
        Ok(compactor)
    }

    /// Has the thread look for tables to merge.
    pub(super) fn wake(&self) {
        self.shared.state.lock().due = true;
        self.shared.work.notify_one();
    }

    /// Returns whether the first level may grow now: not while it is full and compactions can change that.
    ///
    /// # Errors
    /// The error that ended the compactions.
    pub(super) fn has_room(&self) -> Result<bool, EngineError> {
        let mut state = self.shared.state.lock();
        if state.has_failed {
            let ended = || (self.hooks.fail)(io::Error::other("its compactions have ended").into());
            return Err(state.failure.take().unwrap_or_else(ended));
        }
        let can_progress = (state.due || state.busy) && state.lacks_bytes.is_none();
        Ok(!can_progress || self.tree.l0_run_count() < RUNS_MAX)
    }

    /// Returns the free bytes for which compactions wait, if the first level must not grow until then.
    pub(super) fn lacks_bytes(&self) -> Option<u64> {
        let lacks_bytes = self.shared.state.lock().lacks_bytes?;
        (self.tree.l0_run_count() >= RUNS_PAUSED_MAX).then_some(lacks_bytes)
    }
}

impl Drop for Compactor {
    fn drop(&mut self) {
        let state = self.shared.state.lock();
        // Under the lock: the thread waits already, or sees it before it does.
        self.stop.set();
        self.shared.work.notify_one();
        drop(state);
        if let Some(thread) = self.thread.take() {
            // It catches panics.
            let _ = thread.join();
        }
    }
}

struct Worker {
    tree: AnyTree,
    seqno: SequenceNumberCounter,
    stop: StopFlag,
    shared: Arc<Shared>,
    hooks: Arc<CompactorHooks>,
}

impl Worker {
    fn run(self) {
        while self.await_work() {
            let compacted = self.compact();
            let mut state = self.shared.state.lock();
            state.busy = false;
            match compacted {
                Ok(lacks_bytes) => note_space(&mut state, lacks_bytes),
                // The compaction was interrupted.
                Err(_) if self.stop.is_set() => return,
                Err(error) => {
                    tracing::error!(%error, "the engine's tables cannot be compacted");
                    state.failure = Some(error);
                    state.has_failed = true;
                    return;
                }
            }
        }
    }

    /// Waits for work. Returns whether there is some: not if the thread is to stop.
    fn await_work(&self) -> bool {
        let mut state = self.shared.state.lock();
        while !state.due && !self.stop.is_set() {
            if state.lacks_bytes.is_none() {
                self.shared.work.wait(&mut state);
            } else if self.shared.work.wait_for(&mut state, SPACE_INTERVAL).timed_out() {
                break;
            }
        }
        state.due = false;
        state.busy = true;
        !self.stop.is_set()
    }

    /// Compacts until nothing is left to do. Returns the free bytes for which the next compaction waits, if the disk lacks
    /// them.
    fn compact(&self) -> Result<Option<u64>, EngineError> {
        let strategy = Arc::new(Leveled::default().with_table_target_size(TABLE_BYTES));
        while !self.stop.is_set() {
            let needed_bytes = self.needed_bytes();
            if !(self.hooks.has_space)(needed_bytes) {
                return Ok(Some(needed_bytes));
            }
            let version = self.tree.current_version().id();
            // Readers keep the tables that they began with, so every overwritten row may go.
            let compact = || self.tree.compact(Arc::<Leveled>::clone(&strategy), self.seqno.get());
            // A panic may be a fault of the library: unlike damage it is no reason to set the engine aside.
            let compacted = catch_unwind(AssertUnwindSafe(compact));
            let compacted = compacted.unwrap_or_else(|_| Err(io::Error::other("a compaction panicked").into()));
            let released = compacted.and_then(|()| release_tables(&self.tree, &self.seqno));
            released.map_err(&self.hooks.fail)?;
            if self.tree.current_version().id() == version {
                break;
            }
        }
        Ok(None)
    }

    /// Returns an upper bound on the bytes that the next compaction writes, and a usual one below the first level. A merge of
    /// the first level takes all of it, and what it overlaps in the next one.
    fn needed_bytes(&self) -> u64 {
        let version = self.tree.current_version();
        let mut levels = version.iter_levels().map(|level| level.size());
        let first = levels.next().unwrap_or(0);
        let lower: Vec<u64> = levels.filter(|bytes| *bytes > 0).collect();
        let next = lower.first().copied().unwrap_or(0);
        (first + next).max(lower.iter().sum::<u64>().min(MERGE_BYTES))
    }
}

fn note_space(state: &mut State, lacks_bytes: Option<u64>) {
    match (lacks_bytes, state.lacks_bytes) {
        (Some(needed_bytes), None) => {
            tracing::warn!(needed_bytes, "compactions of the engine wait for space on the disk");
        }
        (None, Some(_)) => tracing::info!("compactions of the engine go on"),
        _ => {}
    }
    state.lacks_bytes = lacks_bytes;
}

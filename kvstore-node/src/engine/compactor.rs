//! Thread that compacts the tables of an LSM tree.

use super::EngineError;
use lsm_tree::compaction::Leveled;
use lsm_tree::{AbstractTree, AnyTree, SequenceNumberCounter};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// Size of a table that a compaction writes, in bytes. One compaction usually merges about a dozen of them.
const TABLE_BYTES: u64 = 32 * 1024 * 1024;
/// Runs of tables in the first level from which on a flush waits: a read may have to look into each.
const RUNS_MAX: usize = 16;
/// Interval between looks at a disk with too little space for compactions.
const SPACE_INTERVAL: Duration = Duration::from_secs(2);

/// Merges the runs of tables that flushes leave in the first level into lower levels, one compaction at a time.
///
/// It ends with the first error, which [`Compactor::await_room`] returns. Dropping it waits for a compaction in
/// progress.
pub(super) struct Compactor {
    tree: AnyTree,
    shared: Arc<Shared>,
    hooks: Arc<CompactorHooks>,
    thread: Option<JoinHandle<()>>,
}

/// Relations of the compactor to its engine.
pub(super) struct CompactorHooks {
    /// Returns whether the disk has space for the merging of some of so many bytes of tables.
    pub has_space: Box<dyn Fn(u64) -> bool + Send + Sync>,
    /// Names the engine in an error.
    pub fail: Box<dyn Fn(lsm_tree::Error) -> EngineError + Send + Sync>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// There is work, or the thread is to stop.
    work: Condvar,
    /// A compaction has ended.
    progress: Condvar,
}

#[derive(Default)]
struct State {
    /// Tables were added since the thread last looked.
    due: bool,
    /// The thread is at work.
    busy: bool,
    /// Compactions wait for space on the disk.
    paused: bool,
    stopping: bool,
    /// The error that ended the thread, until it is returned.
    failure: Option<EngineError>,
    has_failed: bool,
}

impl Compactor {
    /// Starts the thread. `seqno` counts the writes of the tree.
    ///
    /// # Errors
    /// That of the system if it gives no thread.
    pub(super) fn start(tree: &AnyTree, seqno: &SequenceNumberCounter, hooks: CompactorHooks) -> io::Result<Self> {
        let (shared, hooks) = (Arc::<Shared>::default(), Arc::new(hooks));
        let (tree, seqno) = (tree.clone(), seqno.clone());
        let worker = Worker { tree: tree.clone(), seqno, shared: Arc::clone(&shared), hooks: Arc::clone(&hooks) };
        let thread = Builder::new().name("compactor".into()).spawn(move || worker.run())?;
        let compactor = Self { tree, shared, hooks, thread: Some(thread) };
        compactor.wake();
        Ok(compactor)
    }

    /// Has the thread look for tables to merge.
    pub(super) fn wake(&self) {
        self.shared.state.lock().due = true;
        self.shared.work.notify_one();
    }

    /// Waits while the first level is full and compactions can change that.
    ///
    /// # Errors
    /// The error that ended the compactions.
    pub(super) fn await_room(&self) -> Result<(), EngineError> {
        let mut state = self.shared.state.lock();
        loop {
            if state.has_failed {
                let ended = || (self.hooks.fail)(io::Error::other("its compactions have ended").into());
                return Err(state.failure.take().unwrap_or_else(ended));
            }
            let can_progress = (state.due || state.busy) && !state.paused;
            if !can_progress || self.tree.l0_run_count() < RUNS_MAX {
                return Ok(());
            }
            self.shared.progress.wait(&mut state);
        }
    }
}

impl Drop for Compactor {
    fn drop(&mut self) {
        self.shared.state.lock().stopping = true;
        self.shared.work.notify_one();
        if let Some(thread) = self.thread.take() {
            // It catches panics.
            let _ = thread.join();
        }
    }
}

/// Result of compacting until nothing is left to do.
enum Compacted {
    Done,
    /// There was too little space on the disk.
    LacksSpace,
}

struct Worker {
    tree: AnyTree,
    seqno: SequenceNumberCounter,
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
                Ok(compacted) => self.note(&mut state, &compacted),
                Err(error) => {
                    tracing::error!(%error, "the engine's tables cannot be compacted");
                    state.failure = Some(error);
                    state.has_failed = true;
                }
            }
            let ended = state.has_failed;
            self.shared.progress.notify_all();
            drop(state);
            if ended {
                return;
            }
        }
    }

    fn note(&self, state: &mut MutexGuard<'_, State>, compacted: &Compacted) {
        let paused = matches!(compacted, Compacted::LacksSpace);
        match (paused, state.paused) {
            (true, false) => tracing::warn!("compactions of the engine wait for space on the disk"),
            (false, true) => tracing::info!("compactions of the engine go on"),
            _ => {}
        }
        state.paused = paused;
    }

    /// Waits for work. Returns whether there is some: not if the thread is to stop.
    fn await_work(&self) -> bool {
        let mut state = self.shared.state.lock();
        while !state.due && !state.stopping {
            if !state.paused {
                self.shared.work.wait(&mut state);
            } else if self.shared.work.wait_for(&mut state, SPACE_INTERVAL).timed_out() {
                break;
            }
        }
        state.due = false;
        state.busy = true;
        !state.stopping
    }

    fn compact(&self) -> Result<Compacted, EngineError> {
        let strategy = Arc::new(Leveled::default().with_table_target_size(TABLE_BYTES));
        while !self.shared.state.lock().stopping {
            if !(self.hooks.has_space)(self.tree.disk_space()) {
                return Ok(Compacted::LacksSpace);
            }
            let version = self.tree.current_version().id();
            // Readers keep the tables that they began with, so every overwritten row may go.
            let compact = || self.tree.compact(Arc::<Leveled>::clone(&strategy), self.seqno.get());
            let compacted = catch_unwind(AssertUnwindSafe(compact));
            compacted
                .unwrap_or_else(|_| Err(io::Error::other("a compaction panicked").into()))
                .map_err(&self.hooks.fail)?;
            if self.tree.current_version().id() == version {
                break;
            }
            let _state = self.shared.state.lock();
            self.shared.progress.notify_all();
        }
        Ok(Compacted::Done)
    }
}

//! Thread that compacts the tables of an LSM tree.

use super::damage::{PanicNote, note_damage};
use super::disk_space::is_full;
use super::lsm_error::convert;
use super::pause::Pause;
use super::read_view::ReadView;
use super::table_files::{release_tables, remove_unfinished};
use archon_kv::engine::EngineError;
use lsm_tree::compaction::filter::Context;
use lsm_tree::compaction::{CompactionFilter, Factory, ItemAccessor, Leveled, Verdict};
use lsm_tree::{AbstractTree, AnyTree, Config, SequenceNumberCounter, TableId};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Instant;

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
/// Operation of a compaction, in errors.
const COMPACT: &str = "compact its tables";

/// Merges the runs of tables that flushes leave in the first level into lower levels, one compaction at a time.
///
/// A full disk pauses it. It ends with the first other error, which [`Compactor::check`] returns. Dropping it interrupts a
/// compaction in progress.
pub(super) struct Compactor {
    tree: AnyTree,
    shared: Arc<Shared>,
    directory: PathBuf,
    stop: StopFlag,
    thread: Option<JoinHandle<()>>,
}

/// Interrupts compactions of a tree.
#[derive(Clone, Default)]
pub(super) struct StopFlag(Arc<StopReasons>);

#[derive(Default)]
struct StopReasons {
    /// The engine is closed.
    close: AtomicBool,
    /// A flush needs the space on the disk.
    give_way: AtomicBool,
}

/// Relations of the compactor to its engine.
pub(super) struct CompactorHooks {
    /// The engine's directory.
    pub directory: PathBuf,
    /// Returns the bytes that compactions may take on the disk; unlimited if unknown.
    pub spare_bytes: Box<dyn Fn() -> u64 + Send + Sync>,
}

impl StopFlag {
    /// Makes compactions of a tree end with an error once the flag is set. The tree then keeps its tables as they are; the
    /// next start removes what the compaction has written.
    pub(super) fn interrupts(&self, config: Config) -> Config {
        config.with_compaction_filter_factory(Some(Arc::new(self.clone())))
    }

    pub(super) fn set(&self) {
        self.0.close.store(true, Ordering::Relaxed);
    }

    fn is_set(&self) -> bool {
        self.0.close.load(Ordering::Relaxed)
    }

    pub(super) fn gives_way(&self) -> bool {
        self.0.give_way.load(Ordering::Relaxed)
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

/// The library does not ask about removed and overwritten rows, so a merge of nothing else goes on to its end. A flush or a
/// stop waits for it as long as the tables of one merge take to read. It delays them, and cannot keep space from them for
/// good: the merge takes no more than it needed from the beginning, undoes itself if it meets the full disk, and frees the
/// tables that it has read.
impl CompactionFilter for StopFlag {
    fn filter_item(&mut self, _: ItemAccessor<'_>, _: &Context) -> lsm_tree::Result<Verdict> {
        match self.is_set() || self.gives_way() {
            true => Err(io::Error::from(io::ErrorKind::Interrupted).into()),
            false => Ok(Verdict::Keep),
        }
    }
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// There is work, or the thread is to stop.
    work: Condvar,
    /// The thread is no longer at work.
    idle: Condvar,
}

#[derive(Default)]
struct State {
    /// Tables were added since the thread last looked.
    due: bool,
    /// The thread is at work.
    busy: bool,
    /// Compactions wait for space on the disk.
    pause: Option<Pause>,
    /// The error that ended the thread, until it is returned.
    failure: Option<EngineError>,
    has_failed: bool,
}

impl Compactor {
    /// Starts the thread. `seqno` counts the writes of the tree, `view` serves its readers, and `stop` interrupts its
    /// compactions.
    ///
    /// # Errors
    /// The error of the system if it gives no thread.
    pub(super) fn start(
        tree: &AnyTree,
        seqno: &SequenceNumberCounter,
        view: &Arc<ReadView>,
        stop: StopFlag,
        hooks: CompactorHooks,
    ) -> io::Result<Self> {
        let (shared, directory) = (Arc::<Shared>::default(), hooks.directory.clone());
        let worker = Worker {
            tree: tree.clone(),
            seqno: seqno.clone(),
            view: Arc::clone(view),
            stop: stop.clone(),
            shared: Arc::clone(&shared),
            hooks,
            refusals: 0,
        };
        let thread = Builder::new().name("compactor".into()).spawn(move || worker.run())?;
        let compactor = Self { tree: tree.clone(), shared, directory, stop, thread: Some(thread) };
        compactor.wake();
        Ok(compactor)
    }

    /// Has the thread look for tables to merge.
    pub(super) fn wake(&self) {
        self.shared.state.lock().due = true;
        self.shared.work.notify_one();
    }

    /// Checks that compactions have not ended.
    ///
    /// # Errors
    /// The error that ended them; later calls get another one.
    pub(super) fn check(&self) -> Result<(), EngineError> {
        let mut state = self.shared.state.lock();
        if !state.has_failed {
            return Ok(());
        }
        let ended = || convert(&self.directory, COMPACT, io::Error::other("its compactions have ended").into());
        Err(state.failure.take().unwrap_or_else(ended))
    }

    /// Returns whether the first level may grow now: not while it is full and compactions can change that.
    pub(super) fn has_room(&self) -> bool {
        let can_progress = {
            let state = self.shared.state.lock();
            (state.due || state.busy) && state.pause.is_none()
        };
        !can_progress || self.tree.l0_run_count() < RUNS_MAX
    }

    /// Interrupts a compaction in progress for a flush that met a full disk. The compaction removes its tables and pauses, and
    /// the unfinished tables of the flush, with numbers from `first_table` on, are removed as well. Returns whether the flush
    /// may run again: not if there was no compaction, or if the tree has changed.
    pub(super) fn give_way(&self, first_table: TableId) -> bool {
        let mut state = self.shared.state.lock();
        let was_busy = state.busy;
        self.stop.0.give_way.store(was_busy, Ordering::Relaxed);
        while state.busy {
            self.shared.idle.wait(&mut state);
        }
        self.stop.0.give_way.store(false, Ordering::Relaxed);
        // Under the lock: the next compaction begins later.
        was_busy && remove_unfinished(&self.tree, first_table)
    }

    /// Returns the free bytes for which compactions wait, if the first level must not grow until then.
    pub(super) fn lacks_bytes(&self) -> Option<u64> {
        let pause = self.shared.state.lock().pause?;
        (self.tree.l0_run_count() >= RUNS_PAUSED_MAX).then_some(pause.needed_bytes)
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
    view: Arc<ReadView>,
    stop: StopFlag,
    shared: Arc<Shared>,
    hooks: CompactorHooks,
    /// Compactions since the last whole one that met a full disk although it seemed to have space.
    refusals: u32,
}

impl Worker {
    fn run(mut self) {
        let directory = self.hooks.directory.clone();
        while self.await_work() {
            // A flush may wait for the end of the compaction, also by a panic.
            let compacted = catch_unwind(AssertUnwindSafe(|| {
                let _note = PanicNote::new(&directory, COMPACT);
                self.compact()
            }));
            let compacted = compacted.unwrap_or_else(|_| {
                let panicked = io::Error::other("it panicked; the next start checks the tables for damage");
                Err(convert(&directory, COMPACT, panicked.into()))
            });
            let mut state = self.shared.state.lock();
            state.busy = false;
            self.shared.idle.notify_all();
            match compacted {
                Ok(pause) => note_pause(&mut state, pause),
                // The compaction was interrupted.
                Err(_) if self.stop.is_set() => return,
                Err(error) => {
                    tracing::error!(%error, "the engine's tables cannot be compacted");
                    // Nothing waits for space any longer, and a flusher that does has to meet the error.
                    state.pause = None;
                    state.failure = Some(error);
                    state.has_failed = true;
                    return;
                }
            }
        }
    }

    /// Waits for work, or for the end of a pause. Returns whether there is some: not if the thread is to stop.
    fn await_work(&self) -> bool {
        let mut state = self.shared.state.lock();
        let began = Instant::now();
        loop {
            let pause = state.pause;
            // Without the lock: the disk may be slow.
            let wait = pause.map(|pause| {
                let spare_bytes = MutexGuard::unlocked(&mut state, || (self.hooks.spare_bytes)());
                pause.remaining(began.elapsed(), spare_bytes)
            });
            match wait {
                _ if self.stop.is_set() => return false,
                Some(Some(rest)) => {
                    self.shared.work.wait_for(&mut state, rest);
                }
                None if !state.due => self.shared.work.wait(&mut state),
                Some(None) | None => break,
            }
        }
        state.due = false;
        state.busy = true;
        true
    }

    /// Compacts until nothing is left to do, or until a compaction has to wait for space on the disk.
    fn compact(&mut self) -> Result<Option<Pause>, EngineError> {
        while !self.stop.is_set() {
            let (needed_bytes, spare_bytes) = (self.needed_bytes(), (self.hooks.spare_bytes)());
            if spare_bytes < needed_bytes {
                return Ok(Some(Pause::for_space(needed_bytes, spare_bytes)));
            }
            if self.stop.gives_way() {
                return Ok(Some(self.next_pause(needed_bytes)));
            }
            let (version, first_table) = (self.tree.current_version().id(), self.tree.next_table_id());
            match self.compact_once() {
                Ok(()) => self.refusals = 0,
                Err(lsm_tree::Error::Io(error))
                    if self.is_for_lack_of_space(error.kind()) && self.undo(first_table) =>
                {
                    tracing::warn!(%error, refusals = self.refusals, "a compaction of the engine met a full disk, and is tried again");
                    return Ok(Some(self.next_pause(needed_bytes)));
                }
                Err(error) => {
                    let error = convert(&self.hooks.directory, COMPACT, error);
                    // The process may end before the flusher receives the error.
                    note_damage(&error);
                    return Err(error);
                }
            }
            if self.tree.current_version().id() == version {
                break;
            }
        }
        Ok(None)
    }

    /// Returns whether a compaction ended with this error because the disk is full, or because a flush needs the space.
    fn is_for_lack_of_space(&self, kind: io::ErrorKind) -> bool {
        is_full(kind) || (kind == io::ErrorKind::Interrupted && self.stop.gives_way())
    }

    /// Returns the pause after a compaction that found no space.
    fn next_pause(&mut self, needed_bytes: u64) -> Pause {
        let pause = Pause::after_refusal(needed_bytes, (self.hooks.spare_bytes)(), self.refusals);
        self.refusals = self.refusals.saturating_add(1);
        pause
    }

    /// Removes the tables of a failed compaction, with numbers from `first` on. Returns whether the tree is as it was before.
    fn undo(&self, first: TableId) -> bool {
        // No other table is written meanwhile.
        let _writes = self.view.pause_writes();
        remove_unfinished(&self.tree, first)
    }

    fn compact_once(&self) -> lsm_tree::Result<()> {
        let strategy = Leveled::default().with_table_target_size(TABLE_BYTES);
        // Readers keep the tables that they began with, so every overwritten row may go.
        self.tree.compact(Arc::new(strategy), self.seqno.get())?;
        self.view.refresh();
        if let Err(error) = release_tables(&self.tree, &self.seqno) {
            // The compaction is done, and the next change of the tables removes the replaced ones as well.
            tracing::warn!(%error, "tables that a compaction replaced are not removed yet");
        }
        Ok(())
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

fn note_pause(state: &mut State, pause: Option<Pause>) {
    match (pause, state.pause) {
        (Some(Pause { needed_bytes, .. }), None) => {
            tracing::warn!(needed_bytes, "compactions of the engine wait for space on the disk");
        }
        (None, Some(_)) => tracing::info!("compactions of the engine go on"),
        _ => {}
    }
    state.pause = pause;
}

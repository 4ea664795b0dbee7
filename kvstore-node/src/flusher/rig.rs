//! Test rig: a flusher on an engine that can be blocked and made to fail, with one journal of calls and events.

use super::*;
use crate::engine::{ClearStep, KeyBounds, MemoryEngine, Page, PageLimit};
use archon_types::{DiskFull, DiskLimit, PlacementId, ScanOrder};
use bytes::Bytes;

pub(super) const TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Clone, PartialEq, Debug)]
pub(super) enum Note {
    Write(usize),
    Ingest(usize),
    Removed(usize),
    Sync,
    Written(u64, u64),
    Synced(u64, u64),
    QueueDrained,
    Cleared(u64, u64),
    RowsFormed(u64, u64),
    Spoilt(u64, u64),
    Damaged(u64),
    Formed(u64, u64),
    Failed,
    Panicked,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) journal: Vec<Note>,
    pub(super) held: bool,
    /// Number of clearing steps after which the next one blocks.
    pub(super) clear_steps: Option<usize>,
    pub(super) fail_sync: bool,
    /// A write meets a limit that was not reported before.
    pub(super) over_quota: bool,
    pub(super) panic: bool,
    pub(super) full: bool,
    /// Rows of this space cannot be read.
    pub(super) damaged: Option<u64>,
    /// Disk space is short, but not exhausted.
    pub(super) tight: bool,
    /// The engine has a bulk ingest.
    pub(super) writes_tables: bool,
    pub(super) waiting: bool,
}

/// An in-memory engine that can block writes and fail syncs.
#[derive(Clone, Default)]
pub(super) struct Rig {
    inner: Arc<MemoryEngine>,
    state: Arc<(Mutex<State>, Condvar)>,
}

impl Rig {
    pub(super) fn start(&self, config: FlusherConfig) -> Flusher {
        let rig = self.clone();
        let on_event = move |event| {
            rig.note(match event {
                FlushEvent::Written { space, upto } => Note::Written(space.get(), upto.get()),
                FlushEvent::Synced { space, upto } => Note::Synced(space.get(), upto.get()),
                FlushEvent::QueueDrained => Note::QueueDrained,
                FlushEvent::Cleared { space, clear } => Note::Cleared(space.get(), clear),
                FlushEvent::Spoilt { space, attempt } => Note::Spoilt(space.get(), attempt),
                FlushEvent::Damaged { space, .. } => Note::Damaged(space.get()),
                FlushEvent::RowsFormed { space, attempt } => Note::RowsFormed(space.get(), attempt),
                FlushEvent::Formed { space, attempt } => Note::Formed(space.get(), attempt),
                FlushEvent::Failed(_) => Note::Failed,
            });
        };
        let rig = self.clone();
        Flusher::start(Arc::new(self.clone()), config, on_event, move || rig.note(Note::Panicked)).unwrap()
    }

    pub(super) fn note(&self, note: Note) {
        self.state.0.lock().journal.push(note);
        self.state.1.notify_all();
    }

    fn check(&self, space: PlacementId) -> Result<(), EngineError> {
        match self.state.0.lock().damaged == Some(space.get()) {
            true => Err(EngineError::Damaged { directory: "rig".into(), what: "a row".into() }),
            false => Ok(()),
        }
    }

    pub(super) fn set(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.0.lock());
        self.state.1.notify_all();
    }

    pub(super) fn journal(&self) -> Vec<Note> {
        self.state.0.lock().journal.clone()
    }

    pub(super) fn wait_for(&self, what: &str, condition: impl Fn(&State) -> bool) {
        let until = Instant::now() + TIMEOUT;
        let mut state = self.state.0.lock();
        while !condition(&state) {
            let late = self.state.1.wait_until(&mut state, until).timed_out();
            assert!(!late, "{what} did not happen; the journal is {:?}", state.journal);
        }
    }
}

pub(super) const DISK_FULL: DiskFull = DiskFull { free_bytes: 5, needed_bytes: 9, limit: DiskLimit::Bytes };

impl Engine for Rig {
    fn get(&self, space: PlacementId, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        self.inner.get(space, key)
    }

    fn page(
        &self,
        space: PlacementId,
        keys: KeyBounds<'_>,
        order: ScanOrder,
        limit: PageLimit,
    ) -> Result<Page, EngineError> {
        self.check(space)?;
        self.inner.page(space, keys, order, limit)
    }

    fn write(&self, changes: &[Change]) -> Result<(), EngineError> {
        let mut state = self.state.0.lock();
        state.waiting = true;
        self.state.1.notify_all();
        self.state.1.wait_while(&mut state, |state| state.held);
        state.waiting = false;
        assert!(!state.panic, "injected");
        if state.over_quota {
            state.full = true;
            let source = std::io::ErrorKind::QuotaExceeded.into();
            return Err(EngineError::Io { directory: "rig".into(), what: "write a row", source });
        }
        state.journal.push(Note::Write(changes.len()));
        drop(state);
        self.inner.write(changes)
    }

    fn writes_tables(&self) -> bool {
        self.state.0.lock().writes_tables
    }

    fn ingest(&self, rows: &[Change]) -> Result<(), EngineError> {
        assert!(rows.is_sorted_by(|one, next| one.space == next.space && one.key < next.key), "{rows:?}");
        self.note(Note::Ingest(rows.len()));
        self.inner.write(rows)
    }

    fn clear_range(&self, space: PlacementId, keys: KeyBounds<'_>, rows_max: usize) -> Result<ClearStep, EngineError> {
        self.check(space)?;
        let mut state = self.state.0.lock();
        state.waiting = state.clear_steps == Some(0);
        self.state.1.notify_all();
        self.state.1.wait_while(&mut state, |state| state.clear_steps == Some(0));
        state.waiting = false;
        state.clear_steps = state.clear_steps.map(|steps| steps - 1);
        let cleared = self.inner.clear_range(space, keys, rows_max)?;
        state.journal.push(Note::Removed(cleared.removed));
        Ok(cleared)
    }

    fn spaces(&self) -> Result<Vec<PlacementId>, EngineError> {
        self.inner.spaces()
    }

    fn sync(&self) -> Result<(), EngineError> {
        if self.state.0.lock().fail_sync {
            let source = std::io::Error::other("injected");
            return Err(EngineError::Io { directory: "rig".into(), what: "sync", source });
        }
        self.note(Note::Sync);
        self.inner.sync()
    }

    fn check_disk(&self) -> Result<(), DiskFull> {
        if self.state.0.lock().full { Err(DISK_FULL) } else { Ok(()) }
    }

    fn has_space_to_spare(&self) -> bool {
        !self.state.0.lock().tight
    }
}

pub(super) fn space(number: u64) -> PlacementId {
    PlacementId::new(number)
}

pub(super) fn change(number: u64, key: u8, value: &str) -> Change {
    let value = Some(Bytes::copy_from_slice(value.as_bytes()));
    Change { space: space(number), key: Bytes::from(vec![1, key]), value }
}

pub(super) fn put(handle: &FlusherHandle, number: u64, seq: u64, key: u8, value: &str) {
    handle.apply(space(number), Seq::new(seq), vec![change(number, key, value)]).unwrap();
}

/// Syncs only when it must.
pub(super) fn lazy() -> FlusherConfig {
    FlusherConfig { sync_interval: Some(Duration::from_secs(3_600)), ..FlusherConfig::default() }
}

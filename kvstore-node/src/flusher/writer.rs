//! Loop of the flusher.

use super::jobs::{Job, Jobs};
use super::marks::{EndNotifier, SetIdle};
use super::parts::{WRITE_BYTES, changes_of, next_part, part_length, runs};
use super::sorted_rows::{SortedRows, WrittenPages};
use super::{Barrier, DISK_SPACE_INTERVAL, FlushEvent, FlushRows, FlusherState, Work, size};
use crate::engine::{Change, Engine, EngineError, PageLimit, note_damage};
use archon_host::{FormJob, FormedPart, FormingCopy};
use archon_kv::{FrozenRows, ViewError, row};
use archon_types::{PlacementId, Seq};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Owns the engine's write side; lives on the flusher's thread.
pub(super) struct Writer {
    pub(super) shared: Arc<FlusherState>,
    pub(super) engine: Arc<dyn Engine>,
    on_event: Box<dyn FnMut(FlushEvent) + Send>,
    on_panic: Option<Box<dyn FnOnce() + Send>>,
    /// Highest position written and not yet synced, per placement.
    unsynced: BTreeMap<PlacementId, Seq>,
    unsynced_bytes: usize,
    /// Unsynced bytes of copies on a node in use.
    unsynced_gentle_bytes: usize,
    pub(super) unsynced_since: Option<Instant>,
    /// Longest time without a sync of unsynced writes.
    sync_interval: Duration,
    /// Jobs that take many turns, run one step at a time.
    pub(super) jobs: Jobs,
    /// Rows of copies not passed to the engine yet.
    pub(super) copied: SortedRows,
}

/// Work taken from the queue in one turn.
#[derive(Default)]
struct Turn {
    rows: Vec<(PlacementId, FlushRows)>,
    written: BTreeMap<PlacementId, Seq>,
    bytes: usize,
    barrier: Option<Barrier>,
    /// Written rows need a sync with this turn.
    sync_soon: bool,
    /// Rows freed with the turn.
    gone: Vec<FrozenRows>,
    /// Copies that can no longer be formed, with the attempts of their jobs.
    spoilt: Vec<(PlacementId, u64)>,
    /// Refused work may be offered again.
    queue_drained: bool,
    /// The engine refused a read for lack of space.
    read_failure: Option<EngineError>,
    stop: bool,
}

impl Turn {
    fn add(&mut self, space: PlacementId, upto: Seq, rows: FlushRows, bytes: usize) {
        self.bytes += bytes;
        self.written.entry(space).and_modify(|seq| *seq = upto.max(*seq)).or_insert(upto);
        self.rows.push((space, rows));
    }
}

impl Writer {
    pub(super) fn new(
        shared: Arc<FlusherState>,
        engine: Arc<dyn Engine>,
        on_event: Box<dyn FnMut(FlushEvent) + Send>,
        on_panic: Box<dyn FnOnce() + Send>,
    ) -> Self {
        let sync_interval = sync_interval(&shared, &*engine);
        Self {
            shared,
            engine,
            on_event,
            on_panic: Some(on_panic),
            unsynced: BTreeMap::new(),
            unsynced_bytes: 0,
            unsynced_gentle_bytes: 0,
            unsynced_since: None,
            sync_interval,
            jobs: Jobs::default(),
            copied: SortedRows::default(),
        }
    }

    pub(super) fn run(mut self) {
        // Also on a panic, threads that wait for the end or offer work must be notified.
        let _ended = EndNotifier { shared: Arc::clone(&self.shared), on_panic: self.on_panic.take() };
        loop {
            let mut turn = self.next_turn();
            let stop = turn.stop;
            for (space, attempt) in std::mem::take(&mut turn.spoilt) {
                (self.on_event)(FlushEvent::Spoilt { space, attempt });
            }
            if turn.queue_drained {
                (self.on_event)(FlushEvent::QueueDrained);
            }
            let taken = match turn.read_failure.take() {
                Some(error) => Err(error),
                None => self.take(turn),
            };
            match taken {
                Ok(true) if !stop => {}
                // Rows that were not written are recovered from the log.
                Ok(_) => return,
                Err(error) => {
                    // Opening the engine may not meet the damage, and the same work would meet it after each start.
                    note_damage(&error);
                    self.await_space_after(&error);
                    tracing::error!(%error, "engine failed, flusher stops");
                    (self.on_event)(FlushEvent::Failed(Arc::new(error)));
                    return;
                }
            }
        }
    }

    /// Waits for work, or for the time to sync, and takes a turn's worth from the queue.
    fn next_turn(&mut self) -> Turn {
        let shared = Arc::clone(&self.shared);
        let config = &shared.config;
        let mut queue = shared.queue.lock();
        while queue.work.is_empty() && !queue.stopping && queue.read_failure.is_none() {
            if queue.sync_soon && self.unsynced_since.is_some() {
                break;
            }
            let now = Instant::now();
            let job = self.jobs.due(now);
            if job.is_some_and(|due| due <= now) {
                break;
            }
            match self.unsynced_since.map(|since| since + self.sync_interval).into_iter().chain(job).min() {
                Some(due) => {
                    if shared.wake.wait_until(&mut queue, due).timed_out() {
                        break;
                    }
                }
                None => shared.wake.wait(&mut queue),
            }
        }
        let sync_soon = std::mem::take(&mut queue.sync_soon);
        let mut turn = Turn { read_failure: queue.read_failure.take(), sync_soon, ..Turn::default() };
        while turn.bytes < config.write_bytes_max && turn.barrier.is_none() {
            let work = match self.jobs.next_ready() {
                Some(work) => work,
                None => {
                    let Some(work) = queue.work.pop_front() else { break };
                    // Once, on arrival: work that waited since was queued after it.
                    if let Work::Clear { space: to, .. } | Work::StopForm(to) | Work::Form(FormJob { to, .. }) = &work {
                        self.jobs.stop_form(*to);
                    }
                    match self.jobs.after_ready(work) {
                        Some(work) => work,
                        None => continue,
                    }
                }
            };
            // A job comes after the rows of this turn, which were queued before it.
            match self.jobs.admit(work) {
                None | Some(Work::StopForm(_)) => {}
                Some(Work::EndForm { to, end, .. }) => self.jobs.end_form(to, end),
                Some(Work::Barrier(done)) => turn.barrier = Some(done),
                Some(Work::LetGo(frozen)) => turn.gone.push(frozen),
                Some(Work::Clear { space, clear }) => {
                    turn.spoilt.extend(self.jobs.begin(space, Job::Clear { clear, removed: false }));
                }
                Some(Work::Form(job)) => turn.spoilt.extend(self.jobs.begin(job.to, Job::Form(FormingCopy::new(job)))),
                Some(Work::Cleared { space, upto, rows }) => {
                    let bytes = rows.bytes();
                    turn.add(space, upto, rows.into(), bytes);
                }
                Some(Work::Apply { space, upto, rows, bytes }) => {
                    queue.bytes -= bytes;
                    match rows {
                        FlushRows::Frozen(rows) if !rows.clears().is_empty() => {
                            let job = Job::ClearRanges { upto, rows, cleared: 0 };
                            turn.spoilt.extend(self.jobs.begin(space, job));
                        }
                        rows => turn.add(space, upto, rows, bytes),
                    }
                }
            }
        }
        if queue.starved && queue.bytes <= config.queue_bytes_max / 2 {
            queue.starved = false;
            turn.queue_drained = true;
        }
        turn.stop = queue.stopping && queue.work.is_empty() && self.jobs.is_settled();
        turn
    }

    /// Does a turn's work. Returns whether all was done: not if the flusher was stopped while the disk was full.
    fn take(&mut self, mut turn: Turn) -> Result<bool, EngineError> {
        if !self.await_disk_space()? {
            return Ok(false);
        }
        let _busy = SetIdle(Arc::clone(&self.shared));
        self.set_busy();
        drop(turn.gone);
        let rows_max = self.shared.config.write_rows_max;
        let (mut bytes, mut pages) = (0, WrittenPages::default());
        let Some(rest) = self.gather(turn.rows, &mut bytes)? else { return Ok(false) };
        let (gathered, began) = (bytes, Instant::now());
        let (engine, mut unread) = (Arc::clone(&self.engine), BTreeMap::new());
        for run in runs(rest) {
            let changes = run.into_iter().flat_map(|(space, rows)| {
                changes_of(&*engine, space, rows, &mut pages).map(move |change| (space, change))
            });
            // Of a space with an unreadable window nothing more is written: its copy is damaged.
            let changes = changes.filter_map(|(space, change)| match change {
                Ok(change) => (!unread.contains_key(&space)).then_some(change),
                Err(error) => {
                    unread.entry(space).or_insert(error);
                    None
                }
            });
            let mut changes = changes.peekable();
            while changes.peek().is_some() {
                let part = self.jobs.mirrored(next_part(&mut changes, rows_max));
                bytes += part.iter().map(size).sum::<usize>();
                if !self.write(&part)? {
                    return Ok(false);
                }
                // A turn may be as long as a memtable: jobs with one step per turn would hardly advance under many writes.
                if !turn.stop
                    && let Some((space, job)) = self.jobs.next_between(Instant::now())
                {
                    self.step(space, job)?;
                }
            }
        }
        for (space, error) in unread {
            turn.written.remove(&space);
            self.stop_damaged(space, error)?;
        }
        self.unsynced_gentle_bytes += pages.gentle_bytes();
        self.worked_on_copies(pages.end(bytes - gathered, began));
        self.jobs.turn_is_written();
        for (space, upto) in turn.written {
            self.unsynced.entry(space).and_modify(|seq| *seq = upto.max(*seq)).or_insert(upto);
            self.unsynced_since.get_or_insert_with(Instant::now);
            if upto > Seq::ZERO {
                (self.on_event)(FlushEvent::Written { space, upto });
            }
        }
        self.unsynced_bytes += bytes;
        let config = &self.shared.config;
        let due = (turn.sync_soon && self.unsynced_since.is_some())
            || self.unsynced_bytes >= config.sync_bytes
            || self.shared.unsynced_log_bytes.load(Ordering::Relaxed) >= config.sync_log_bytes
            || self.unsynced_gentle_bytes >= config.gentle_sync_bytes
            || self.unsynced_since.is_some_and(|since| since.elapsed() >= self.sync_interval);
        if due || turn.barrier.is_some() || (turn.stop && self.unsynced_since.is_some()) {
            if !self.ingest_all()? {
                return Ok(false);
            }
            self.sync()?;
        }
        if let Some(done) = turn.barrier {
            done();
        }
        if !turn.stop
            && let Some((space, job)) = self.jobs.next(Instant::now())
        {
            self.step(space, job)?;
        }
        Ok(true)
    }

    /// Gives changes to the engine. Returns whether it took them all: not if the flusher was stopped while the disk was
    /// full.
    fn write(&mut self, changes: &[Change]) -> Result<bool, EngineError> {
        let mut rest = changes;
        while !rest.is_empty() {
            // A frozen list may be longer than all free space. A torn list does no harm: its position comes after its
            // rows, and until then the memtable hides them, or the log brings them again.
            *self.shared.busy_since.lock() = None;
            if !self.await_disk_space()? {
                return Ok(false);
            }
            // Much work is no sign of a hanging engine.
            self.set_busy();
            let (part, after) = rest.split_at(part_length(rest, self.shared.config.write_rows_max));
            self.shared.snapshots.before_write(&*self.engine, part);
            self.engine.write(part)?;
            self.unsynced_since.get_or_insert_with(Instant::now);
            rest = after;
        }
        Ok(true)
    }

    /// Records the engine's work on pages of copies.
    pub(super) fn worked_on_copies(&self, worked: Duration) {
        let us = u64::try_from(worked.as_micros()).unwrap_or(u64::MAX);
        self.shared.copied_us.fetch_add(us, Ordering::Relaxed);
    }

    pub(super) fn set_busy(&self) {
        *self.shared.busy_since.lock() = Some(Instant::now());
    }

    pub(super) fn sync(&mut self) -> Result<(), EngineError> {
        self.shared.unsynced_log_bytes.store(0, Ordering::Relaxed);
        self.engine.sync()?;
        self.shared.syncs.fetch_add(1, Ordering::Relaxed);
        self.sync_interval = sync_interval(&self.shared, &*self.engine);
        self.unsynced_bytes = 0;
        self.unsynced_gentle_bytes = 0;
        // Gathered rows are synced with the next one.
        self.unsynced_since = (self.copied.bytes() > 0).then(Instant::now);
        for (space, upto) in std::mem::take(&mut self.unsynced) {
            if upto > Seq::ZERO {
                (self.on_event)(FlushEvent::Synced { space, upto });
            }
        }
        Ok(())
    }

    /// Runs one step of one job; several jobs take turns.
    fn step(&mut self, space: PlacementId, job: Job) -> Result<(), EngineError> {
        if !self.settle(space, &job)? {
            self.jobs.go_on(space, job);
            return Ok(());
        }
        self.set_busy();
        match job {
            Job::Clear { clear, removed } => self.clear(space, clear, removed),
            Job::ClearRanges { upto, rows, cleared } => self.clear_ranges(space, upto, rows, cleared),
            Job::Form(forming) => self.form(space, forming),
        }
    }

    fn clear(&mut self, space: PlacementId, clear: u64, removed: bool) -> Result<(), EngineError> {
        self.shared.snapshots.before_clear_all(space);
        let step = self.engine.clear(space, self.shared.config.clear_rows)?;
        let removed = removed || step.removed > 0;
        if !step.done {
            self.jobs.go_on(space, Job::Clear { clear, removed });
            return Ok(());
        }
        // The receiver of the event may delete the placement for good. A space that never held anything, such as that
        // of a copy about to be pulled, needs no sync for that.
        if self.unsynced.remove(&space).is_some() || removed {
            self.sync()?;
        }
        self.jobs.end(space, None);
        self.shared.queue.lock().clearing.remove(&space);
        (self.on_event)(FlushEvent::Cleared { space, clear });
        Ok(())
    }

    fn clear_ranges(
        &mut self,
        space: PlacementId,
        upto: Seq,
        rows: FrozenRows,
        mut cleared: usize,
    ) -> Result<(), EngineError> {
        if let Some(range) = rows.clears().get(cleared) {
            let (from, to) = row::value_bounds(range);
            let keys = (Bound::Included(&from[..]), Bound::Excluded(&to[..]));
            self.shared.snapshots.before_clear(space, (&from, &to));
            match self.engine.clear_range(space, keys, self.shared.config.clear_rows) {
                Ok(step) => cleared += usize::from(step.done),
                Err(error) => return self.give_up(space, space, error),
            }
            self.unsynced_since.get_or_insert_with(Instant::now);
        }
        match cleared < rows.clears().len() {
            true => self.jobs.go_on(space, Job::ClearRanges { upto, rows, cleared }),
            false => self.jobs.end(space, Some(Work::Cleared { space, upto, rows })),
        }
        Ok(())
    }

    /// Ends the job of a space because a placement's data is damaged: that costs this copy, not the node. Any other
    /// error is returned as the engine's.
    fn give_up(&mut self, space: PlacementId, damaged: PlacementId, error: EngineError) -> Result<(), EngineError> {
        if !error.is_damage() {
            return Err(error);
        }
        tracing::error!(space = %damaged, %error, "a replica is damaged");
        self.jobs.end(space, None);
        (self.on_event)(FlushEvent::Damaged { space: damaged, why: error.to_string() });
        Ok(())
    }

    /// Reports that rows of a placement are damaged: that costs this copy, not the node. Any other error is returned as
    /// the engine's.
    fn stop_damaged(&mut self, space: PlacementId, error: ViewError) -> Result<(), EngineError> {
        let error = match error {
            ViewError::Engine(error) if !error.is_damage() => return Err(error),
            error => error,
        };
        tracing::error!(%space, %error, "a replica is damaged");
        (self.on_event)(FlushEvent::Damaged { space, why: error.to_string() });
        Ok(())
    }

    fn form(&mut self, space: PlacementId, mut forming: FormingCopy) -> Result<(), EngineError> {
        // Forming must not fill the disk, on all nodes of the partition alike: no write or deletion would be possible
        // then.
        if !forming.is_ending() && !self.engine.has_space_to_spare() {
            let to = space;
            tracing::debug!(%to, "no replica is formed while there is little space on the disk");
            self.jobs.rest_until(Instant::now() + DISK_SPACE_INTERVAL);
            self.jobs.go_on(space, Job::Form(forming));
            return Ok(());
        }
        let limit = PageLimit { rows_max: self.shared.config.write_rows_max, bytes_max: WRITE_BYTES };
        let began = Instant::now();
        let at_work_in = forming.at_work_in();
        let step = match forming.step(&*self.engine, self.shared.config.clear_rows, limit) {
            Ok(step) => step,
            Err(error) => return self.give_up(space, at_work_in, error),
        };
        // Counted, so that it is synced from time to time: one sync of everything would delay all clients at the end.
        self.unsynced_bytes += step.bytes;
        self.shared.formed_bytes.fetch_add(step.bytes as u64, Ordering::Relaxed);
        self.unsynced_since.get_or_insert_with(Instant::now);
        let attempt = forming.job().attempt;
        if step.done.is_some() {
            self.sync()?;
        } else if !forming.is_ending() {
            self.jobs.rest_after(began.elapsed(), Instant::now());
        }
        match step.done {
            Some(FormedPart::Copy) => self.jobs.end(space, None),
            Some(FormedPart::Rows) | None => self.jobs.go_on(space, Job::Form(forming)),
        }
        match step.done {
            Some(FormedPart::Rows) => (self.on_event)(FlushEvent::RowsFormed { space, attempt }),
            Some(FormedPart::Copy) => (self.on_event)(FlushEvent::Formed { space, attempt }),
            None => {}
        }
        Ok(())
    }
}

fn sync_interval(shared: &FlusherState, engine: &dyn Engine) -> Duration {
    shared.config.sync_interval.unwrap_or_else(|| engine.sync_interval())
}

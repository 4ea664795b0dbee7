//! Handle to the flusher.

use super::*;
use archon_kv::ViewError;
use parking_lot::MutexGuard;

/// Queues work for the flusher; cheap to clone.
#[derive(Clone)]
pub(crate) struct FlusherHandle {
    pub(super) shared: Arc<FlusherState>,
}

impl std::fmt::Debug for FlusherHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FlusherHandle").field("bytes_waiting", &self.bytes_waiting()).finish_non_exhaustive()
    }
}

impl FlusherHandle {
    /// Queues the effect at position `upto` of `space`. Positions of a space must rise. Pages of a copy are queued the
    /// same way with [`Seq::ZERO`], which reports no position.
    ///
    /// # Errors
    /// [`FlusherError::Full`], [`FlusherError::Clearing`] or [`FlusherError::Stopped`], with the rows back.
    pub(crate) fn apply(
        &self,
        space: PlacementId,
        upto: Seq,
        rows: impl Into<FlushRows>,
    ) -> Result<(), (FlusherError, FlushRows)> {
        let rows = rows.into();
        let bytes = WORK_OVERHEAD_BYTES + rows.bytes();
        let max = self.shared.config.queue_bytes_max;
        let mut queue = match self.open_queue() {
            Ok(queue) => queue,
            Err(error) => return Err((error, rows)),
        };
        if queue.clearing.contains_key(&space) {
            return Err((FlusherError::Clearing { space }, rows));
        }
        if !queue.has_capacity(bytes, max) {
            queue.starved = true;
            return Err((FlusherError::Full { bytes: queue.bytes, max }, rows));
        }
        queue.bytes += bytes;
        self.push(queue, Work::Apply { space, upto, rows, bytes });
        Ok(())
    }

    /// Frees rows that the memtable has released, perhaps a million of them.
    pub(crate) fn let_go(&self, frozen: FrozenRows) {
        // A stopped flusher leaves them to the caller's drop.
        let _ = self.queue(Work::LetGo(frozen));
    }

    /// Returns the queue, unless the flusher accepts no further work.
    fn open_queue(&self) -> Result<MutexGuard<'_, Queue>, FlusherError> {
        let queue = self.shared.queue.lock();
        if queue.stopping || queue.ended { Err(FlusherError::Stopped) } else { Ok(queue) }
    }

    fn queue(&self, work: Work) -> Result<(), FlusherError> {
        self.push(self.open_queue()?, work);
        Ok(())
    }

    fn push(&self, mut queue: MutexGuard<'_, Queue>, work: Work) {
        queue.work.push_back(work);
        drop(queue);
        self.shared.wake.notify_one();
    }

    /// Returns whether about `bytes` more would be accepted now. If not, [`FlushEvent::QueueDrained`] signals when to
    /// ask again.
    pub(crate) fn has_capacity(&self, bytes: usize) -> bool {
        let mut queue = self.shared.queue.lock();
        let taken = queue.has_capacity(bytes, self.shared.config.queue_bytes_max);
        queue.starved |= !taken;
        taken
    }

    /// Queues the removal of every row of a space, after earlier work for it. From now on no work for it is accepted
    /// until [`FlushEvent::Cleared`], which carries the number returned here: positive and unique. A second request
    /// during a clearing is the same clearing.
    ///
    /// # Errors
    /// [`FlusherError::Stopped`].
    pub(crate) fn clear(&self, space: PlacementId) -> Result<u64, FlusherError> {
        let mut queue = self.open_queue()?;
        if let Some(clear) = queue.clearing.get(&space) {
            return Ok(*clear);
        }
        queue.clears += 1;
        let clear = queue.clears;
        queue.clearing.insert(space, clear);
        queue.cleared.insert(space);
        self.push(queue, Work::Clear { space, clear });
        Ok(clear)
    }

    /// Forms a copy, after earlier work for it and for its source, in place of any other job for the same copy.
    /// [`FlushEvent::RowsFormed`] reports that every row is on disk; from then on it mirrors its source until
    /// [`FlusherHandle::end_form`]. Work for the copy's space waits meanwhile. It ends without an event by
    /// [`FlusherHandle::stop_form`], by a clearing of its space, and by one of its keys at the source.
    ///
    /// A space with a requested clearing has an owner by now, perhaps with rows in it: another thread of the node has
    /// received a newer state of the cluster first.
    ///
    /// # Errors
    /// [`FlusherError::Clearing`] or [`FlusherError::Stopped`].
    pub(crate) fn form(&self, job: FormJob) -> Result<(), FlusherError> {
        let queue = self.open_queue()?;
        // Under the same lock: a clearing requested now comes after it, and ends it.
        if queue.cleared.contains(job.to) {
            return Err(FlusherError::Clearing { space: job.to });
        }
        self.push(queue, Work::Form(job));
        Ok(())
    }

    /// Completes the copy formed from this source with all work queued for the source before: its log continues from
    /// `end`. [`FlushEvent::Formed`] reports that it is on disk.
    ///
    /// # Errors
    /// [`FlusherError::Stopped`].
    pub(crate) fn end_form(&self, from: PlacementId, to: PlacementId, end: Position) -> Result<(), FlusherError> {
        self.queue(Work::EndForm { from, to, end })
    }

    /// Returns whether a clearing of this space was requested: then it has an owner, and copies formed in it before are
    /// void.
    pub(crate) fn was_cleared(&self, space: PlacementId) -> bool {
        self.shared.queue.lock().cleared.contains(space)
    }

    /// Stops forming this copy. Its rows stay until the space is cleared.
    ///
    /// # Errors
    /// [`FlusherError::Stopped`].
    pub(crate) fn stop_form(&self, to: PlacementId) -> Result<(), FlusherError> {
        self.queue(Work::StopForm(to))
    }

    /// Writes and syncs everything queued so far at once, and then runs `done` on the flusher's thread. Work that waits
    /// in its space for a cleared range or a formed copy is not included; its own position reports it.
    ///
    /// # Errors
    /// [`FlusherError::Stopped`]; `done` is dropped.
    pub(crate) fn barrier(&self, done: Barrier) -> Result<(), FlusherError> {
        self.queue(Work::Barrier(done))
    }

    /// Counts bytes of the log for rows that are handed over. The log keeps them until the engine is synced, so many of them
    /// lead to a sync.
    pub(crate) fn add_unsynced_log(&self, bytes: u64) {
        self.shared.unsynced_log_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Has written rows synced soon, because the log needs the space of their entries.
    pub(crate) fn sync_soon(&self) {
        let mut queue = self.shared.queue.lock();
        if !queue.sync_soon {
            queue.sync_soon = true;
            drop(queue);
            self.shared.wake.notify_one();
        }
    }

    /// Returns the snapshots of rows that are overwritten here.
    pub(crate) fn snapshots(&self) -> &Arc<Snapshots> {
        &self.shared.snapshots
    }

    /// Returns whether all work waits for disk space, so that no new data should be accepted.
    pub(crate) fn is_disk_full(&self) -> bool {
        self.shared.is_disk_full.load(Ordering::Acquire)
    }

    /// Returns whether the engine failed because the disk was full, and works once it is reopened.
    pub(crate) fn has_failed_for_space(&self) -> bool {
        self.shared.failed_for_space.load(Ordering::Acquire)
    }

    /// Passes a failed read of the engine to the flusher. Some engines refuse reads after a write that found no space: the
    /// flusher then waits for space, and ends with [`FlushEvent::Failed`]. Returns whether that is the case, so that the
    /// node goes on until then.
    pub(crate) fn note_read_failure(&self, error: &ViewError) -> bool {
        let ViewError::Engine(EngineError::Io { directory, what, source }) = error else { return false };
        if self.has_failed_for_space() {
            return true;
        }
        let mut queue = self.shared.queue.lock();
        if !is_full(source.kind()) || queue.stopping || queue.ended {
            return false;
        }
        if queue.read_failure.is_none() {
            let source = std::io::Error::new(source.kind(), source.to_string());
            queue.read_failure = Some(EngineError::Io { directory: directory.clone(), what, source });
            self.shared.wake.notify_all();
        }
        true
    }

    /// Returns the shortage of the disk, if all work waits for space.
    pub(crate) fn disk_full(&self) -> Option<DiskFull> {
        *self.shared.disk_full.lock()
    }

    /// Returns whether work waits for the engine or is on its way into it.
    pub(crate) fn is_at_work(&self) -> bool {
        self.is_disk_full() || self.shared.busy_since.lock().is_some() || self.bytes_waiting() > 0
    }

    /// Returns how long the engine has been working on one write or sync. Waiting for disk space does not count.
    pub(crate) fn busy_for(&self) -> Duration {
        self.shared.busy_since.lock().map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Returns the number of syncs of the engine so far.
    pub(crate) fn syncs(&self) -> u64 {
        self.shared.syncs.load(Ordering::Relaxed)
    }

    /// Returns the bytes of keys and values written so far to form copies.
    pub(crate) fn formed_bytes(&self) -> u64 {
        self.shared.formed_bytes.load(Ordering::Relaxed)
    }

    /// Returns how long the engine has worked on pages of copies since the last call.
    pub(crate) fn take_copied_for(&self) -> Duration {
        Duration::from_micros(self.shared.copied_us.swap(0, Ordering::Relaxed))
    }

    /// Returns the bytes waiting in the queue.
    pub(crate) fn bytes_waiting(&self) -> usize {
        self.shared.queue.lock().bytes
    }
}

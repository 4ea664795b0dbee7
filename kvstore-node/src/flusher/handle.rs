//! How work is given to the flusher.

use super::*;
use parking_lot::MutexGuard;

/// Gives work to the flusher; cheap to clone.
#[derive(Clone)]
pub(crate) struct FlusherHandle {
    pub(super) shared: Arc<Shared>,
}

impl std::fmt::Debug for FlusherHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FlusherHandle").field("bytes_waiting", &self.bytes_waiting()).finish_non_exhaustive()
    }
}

impl FlusherHandle {
    /// Queues the effect at position `upto` of `space`. Positions of a space must rise. Pages of a copy go the same way
    /// with [`Seq::ZERO`], which reports no position.
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

    /// Frees rows that the memtable has let go of: there may be a million of them.
    pub(crate) fn let_go(&self, frozen: Frozen) {
        // One that has stopped leaves them to whoever drops them.
        let _ = self.queue(Work::LetGo(frozen));
    }

    /// The queue, unless nothing is taken any more.
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

    /// Whether about `bytes` more would be taken now. If not, [`FlushEvent::QueueDrained`] tells when to ask again.
    pub(crate) fn has_capacity(&self, bytes: usize) -> bool {
        let mut queue = self.shared.queue.lock();
        let taken = queue.has_capacity(bytes, self.shared.config.queue_bytes_max);
        queue.starved |= !taken;
        taken
    }

    /// Queues the removal of every row of a space, after what was queued for it before. From now on nothing more is taken
    /// for it until [`FlushEvent::Cleared`], which bears the number given here: positive, and of no other clearing. A second
    /// request while the first is under way is the same clearing.
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
        queue.note_cleared(space);
        self.push(queue, Work::Clear { space, clear });
        Ok(clear)
    }

    /// Forms a copy, after what was queued for it and for its source before, in place of any other job for the same copy.
    /// [`FlushEvent::RowsFormed`] tells when every row is on the disk; from then on it follows its source until
    /// [`FlusherHandle::end_form`]. What is applied to the copy's space meanwhile waits. Without a word
    /// it ends by [`FlusherHandle::stop_form`], by a clearing of its space, and by one of what it is to have at the source.
    ///
    /// A space of which a clearing was asked for has an owner by now, perhaps with rows in it: another thread of the node heard of
    /// a newer state of the cluster first.
    ///
    /// # Errors
    /// [`FlusherError::Clearing`] or [`FlusherError::Stopped`].
    pub(crate) fn form(&self, job: FormJob) -> Result<(), FlusherError> {
        let queue = self.open_queue()?;
        // Under the same lock: a clearing that is asked for now comes after it, and ends it.
        if queue.cleared.contains(&job.to) {
            return Err(FlusherError::Clearing { space: job.to });
        }
        self.push(queue, Work::Form(job));
        Ok(())
    }

    /// The copy that is formed from this source is whole with what was queued for the source before: its log goes on from `end`.
    /// [`FlushEvent::Formed`] tells when it is on the disk.
    ///
    /// # Errors
    /// [`FlusherError::Stopped`].
    pub(crate) fn end_form(&self, from: PlacementId, to: PlacementId, end: Position) -> Result<(), FlusherError> {
        self.queue(Work::EndForm { from, to, end })
    }

    /// Whether a clearing of this space was asked for: then it has an owner, and what was formed in it before is nobody's.
    pub(crate) fn was_cleared(&self, space: PlacementId) -> bool {
        self.shared.queue.lock().cleared.contains(&space)
    }

    /// Forms this copy no further. What is there already stays, until the space is cleared.
    ///
    /// # Errors
    /// [`FlusherError::Stopped`].
    pub(crate) fn stop_form(&self, to: PlacementId) -> Result<(), FlusherError> {
        self.queue(Work::StopForm(to))
    }

    /// Has everything queued so far written and synced at once, and then runs `done` on the flusher's thread. Not what waits
    /// in its space for a range to be cleared or a copy to be formed: of that its position tells.
    ///
    /// # Errors
    /// [`FlusherError::Stopped`]; `done` is dropped.
    pub(crate) fn barrier(&self, done: Barrier) -> Result<(), FlusherError> {
        self.queue(Work::Barrier(done))
    }

    /// The snapshots of what this writes over.
    pub(crate) fn snapshots(&self) -> &Arc<Snapshots> {
        &self.shared.snapshots
    }

    /// Whether everything waits for space on the disk, so that no new data should be taken in.
    pub(crate) fn is_disk_full(&self) -> bool {
        self.shared.is_disk_full.load(Ordering::Acquire)
    }

    /// Returns whether the engine failed because the disk was full, and works once it is reopened.
    pub(crate) fn has_failed_for_space(&self) -> bool {
        self.shared.failed_for_space.load(Ordering::Acquire)
    }

    /// How much space the disk lacks, if everything waits for it.
    pub(crate) fn disk_full(&self) -> Option<DiskFull> {
        *self.shared.disk_full.lock()
    }

    /// Returns whether work waits for the engine or is on its way into it.
    pub(crate) fn is_at_work(&self) -> bool {
        self.is_disk_full() || self.shared.busy_since.lock().is_some() || self.bytes_waiting() > 0
    }

    /// For how long the engine has been at work on one write or sync. Waiting for space on the disk does not count.
    pub(crate) fn busy_for(&self) -> Duration {
        self.shared.busy_since.lock().map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Syncs of the engine so far.
    pub(crate) fn syncs(&self) -> u64 {
        self.shared.syncs.load(Ordering::Relaxed)
    }

    /// Bytes of keys and values written so far to form copies.
    pub(crate) fn formed_bytes(&self) -> u64 {
        self.shared.formed_bytes.load(Ordering::Relaxed)
    }

    /// How long the engine was at work on pages of copies since this was asked last.
    pub(crate) fn take_copied_for(&self) -> Duration {
        Duration::from_micros(self.shared.copied_us.swap(0, Ordering::Relaxed))
    }

    /// Bytes waiting in the queue.
    pub(crate) fn bytes_waiting(&self) -> usize {
        self.shared.queue.lock().bytes
    }
}

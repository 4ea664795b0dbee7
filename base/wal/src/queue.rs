//! The bounded queue between callers and the writer.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::batch::{CompletionCallback, WalBatch};
use crate::error::{WalError, WalFull};

#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    work: Condvar,
    idle: Condvar,
}

#[derive(Default)]
struct State {
    items: VecDeque<Item>,
    /// Bytes of queued and unfinished batches.
    bytes: usize,
    /// Trim marks to write with the next group; at most one number per stream.
    trims: BTreeMap<u64, u64>,
    /// The trims justify a separate write.
    trims_wanted: bool,
    /// Space retained by old records is needed.
    space_wanted: bool,
    closing: bool,
    finished: bool,
}

pub(crate) struct Item {
    pub(crate) batch: Arc<WalBatch>,
    pub(crate) done: CompletionCallback,
}

/// Work that the writer takes at once.
pub(crate) struct Turn {
    pub(crate) items: Vec<Item>,
    pub(crate) trims: BTreeMap<u64, u64>,
    /// Space retained by old records is needed.
    pub(crate) space_wanted: bool,
}

impl Queue {
    pub(crate) fn push(
        &self,
        batch: Arc<WalBatch>,
        done: CompletionCallback,
        batch_bytes_max: usize,
        queue_bytes_max: usize,
    ) -> Result<(), WalFull> {
        let state = self.admit(batch, done, batch_bytes_max, queue_bytes_max)?;
        let first = state.items.len() == 1;
        drop(state);
        if first {
            self.work.notify_one();
        }
        Ok(())
    }

    /// As [`push`](Queue::push), for a caller that holds the writer: if nothing else is queued, it gets the item back
    /// to write it itself.
    pub(crate) fn pass(
        &self,
        batch: Arc<WalBatch>,
        done: CompletionCallback,
        batch_bytes_max: usize,
        queue_bytes_max: usize,
    ) -> Result<Option<Item>, WalFull> {
        let mut state = self.admit(batch, done, batch_bytes_max, queue_bytes_max)?;
        // Otherwise the writer thread was notified and takes this item too.
        Ok(if state.items.len() == 1 { state.items.pop_back() } else { None })
    }

    /// Queues the batch if the limits allow it.
    fn admit(
        &self,
        batch: Arc<WalBatch>,
        done: CompletionCallback,
        batch_bytes_max: usize,
        queue_bytes_max: usize,
    ) -> Result<MutexGuard<'_, State>, WalFull> {
        let bytes = batch.bytes();
        let refuse = |reason, batch, done| Err(WalFull { reason: Box::new(reason), batch, done });
        if bytes > batch_bytes_max {
            let reason = WalError::BatchTooLarge { bytes, max: batch_bytes_max };
            return refuse(reason, batch, done);
        }
        let mut state = self.state.lock();
        if state.closing {
            return refuse(WalError::Closed, batch, done);
        }
        if state.bytes + bytes > queue_bytes_max {
            let reason = WalError::QueueFull { bytes: state.bytes, max: queue_bytes_max };
            return refuse(reason, batch, done);
        }
        state.bytes += bytes;
        state.items.push_back(Item { batch, done });
        Ok(state)
    }

    /// Records a trim; `wanted` requests a write even without other work.
    pub(crate) fn trim(&self, stream: u64, floor: u64, wanted: bool) {
        let mut state = self.state.lock();
        let mark = state.trims.entry(stream).or_default();
        *mark = floor.max(*mark);
        state.trims_wanted |= wanted;
        drop(state);
        if wanted {
            self.work.notify_one();
        }
    }

    /// Asks the writer thread to free space retained by old records.
    pub(crate) fn want_space(&self) {
        let mut state = self.state.lock();
        let first = !std::mem::replace(&mut state.space_wanted, true);
        drop(state);
        if first {
            self.work.notify_one();
        }
    }

    /// Prevents a pending trim from reaching records that are put after a cut or drop.
    pub(crate) fn limit_trim(&self, stream: u64, floor_max: u64) {
        let mut state = self.state.lock();
        if let Some(mark) = state.trims.get_mut(&stream) {
            *mark = floor_max.min(*mark);
            if *mark == 0 {
                state.trims.remove(&stream);
            }
        }
    }

    /// Returns trims that could not be written; they wait for the next group.
    pub(crate) fn return_trims(&self, trims: BTreeMap<u64, u64>) {
        let mut state = self.state.lock();
        for (stream, floor) in trims {
            let mark = state.trims.entry(stream).or_default();
            *mark = floor.max(*mark);
        }
    }

    /// Waits for work; returns false once the queue is closing and drained.
    pub(crate) fn wait(&self) -> bool {
        let mut state = self.state.lock();
        loop {
            let trims_due = !state.trims.is_empty() && (state.trims_wanted || state.closing);
            let space_due = state.space_wanted && !state.closing;
            if !state.items.is_empty() || trims_due || space_due {
                return true;
            }
            if state.closing {
                return false;
            }
            self.work.wait(&mut state);
        }
    }

    /// Takes up to `bytes_max` of the queued work, at least one item.
    pub(crate) fn take(&self, bytes_max: usize) -> Turn {
        let mut state = self.state.lock();
        let mut bytes = 0;
        let mut items = Vec::with_capacity(state.items.len().min(4096));
        while let Some(item) = state.items.front() {
            bytes += item.batch.bytes();
            if !items.is_empty() && bytes > bytes_max {
                break;
            }
            items.extend(state.items.pop_front());
        }
        state.trims_wanted = false;
        let space_wanted = std::mem::take(&mut state.space_wanted);
        Turn { items, trims: std::mem::take(&mut state.trims), space_wanted }
    }

    /// Returns the bytes of queued and unfinished batches.
    pub(crate) fn bytes(&self) -> usize {
        self.state.lock().bytes
    }

    pub(crate) fn release(&self, bytes: usize) {
        let mut state = self.state.lock();
        state.bytes = state.bytes.saturating_sub(bytes);
    }

    /// Refuses further appends; the writer ends after the queued work.
    pub(crate) fn close(&self) {
        self.state.lock().closing = true;
        self.work.notify_one();
    }

    /// Ends the queue on behalf of the writer; returns the items that will never be written.
    pub(crate) fn finish(&self) -> Vec<Item> {
        let mut state = self.state.lock();
        state.closing = true;
        state.finished = true;
        let items = state.items.drain(..).collect();
        drop(state);
        self.idle.notify_all();
        items
    }

    /// Waits until the writer has ended; returns false if that takes longer than `timeout`.
    pub(crate) fn wait_finished(&self, timeout: std::time::Duration) -> bool {
        let mut state = self.state.lock();
        self.idle.wait_while_for(&mut state, |state| !state.finished, timeout);
        state.finished
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cut_limits_and_drop_removes_pending_trim() {
        let queue = Queue::default();
        queue.trim(1, 50, true);
        queue.trim(1, 40, true);
        queue.trim(2, 9, true);
        queue.limit_trim(1, 20);
        queue.limit_trim(2, 0);
        let turn = queue.take(100);
        assert_eq!(turn.trims, BTreeMap::from([(1, 20)]));
    }
}

//! Ids of writes, so that a retry takes effect at most once.
//!
//! Writes are numbered per partition: a partition remembers a client's answers from the client's lowest pending
//! number on, so a slow write in one partition must not keep the others from forgetting.

use archon_types::{ClientId, Millis, OpId, PartitionId};
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// Maximum number of pending writes per partition.
const UNDER_WAY_MAX: usize = 512;
/// A partition remembers 1,024 answers of a client; numbers that exceed the oldest pending write by more than this
/// wait.
const SPAN_MAX: u64 = 1_000;

/// Numbering of one client instance.
#[derive(Debug)]
pub(crate) struct Sequences {
    client: ClientId,
    partitions: Mutex<HashMap<PartitionId, Arc<Sequence>>>,
}

#[derive(Debug)]
struct Sequence {
    state: Mutex<State>,
    permits: Arc<Semaphore>,
    advanced: Notify,
}

#[derive(Debug)]
struct State {
    next: u64,
    under_way: BTreeSet<u64>,
    log_time: Millis,
}

impl State {
    fn done_below(&self) -> u64 {
        self.under_way.first().copied().unwrap_or(self.next)
    }
}

impl Sequences {
    pub(crate) fn new(client: ClientId) -> Self {
        Self { client, partitions: Mutex::new(HashMap::new()) }
    }

    /// Returns the client of these operations.
    pub(crate) fn client(&self) -> ClientId {
        self.client
    }

    /// Forgets the numbering of a partition that no longer exists.
    pub(crate) fn forget(&self, partition: PartitionId) {
        self.partitions.lock().remove(&partition);
    }

    /// Assigns the id of the next write in `partition`; waits while too many are pending there.
    pub(crate) async fn begin(&self, partition: PartitionId) -> Ticket {
        let sequence = Arc::clone(self.partitions.lock().entry(partition).or_insert_with(|| {
            Arc::new(Sequence::new(State { next: 1, under_way: BTreeSet::new(), log_time: Millis::ZERO }))
        }));
        // The semaphore is never closed; without a permit, only the span limits pending writes.
        let permit = match Arc::clone(&sequence.permits).try_acquire_owned() {
            Ok(permit) => Some(permit),
            Err(_) => Arc::clone(&sequence.permits).acquire_owned().await.ok(),
        };
        loop {
            if let Some((number, stamp)) = sequence.try_begin() {
                return Ticket { client: self.client, number, stamp, done_below: None, sequence, _permit: permit };
            }
            let advanced = sequence.advanced.notified();
            tokio::pin!(advanced);
            // Registered before the state is read, so that no advance is missed.
            advanced.as_mut().enable();
            if let Some((number, stamp)) = sequence.try_begin() {
                let sequence = Arc::clone(&sequence);
                return Ticket { client: self.client, number, stamp, done_below: None, sequence, _permit: permit };
            }
            advanced.await;
        }
    }
}

impl Sequence {
    fn new(state: State) -> Self {
        let permits = Arc::new(Semaphore::new(UNDER_WAY_MAX));
        Self { state: Mutex::new(state), permits, advanced: Notify::new() }
    }

    fn try_begin(&self) -> Option<(u64, Millis)> {
        let mut state = self.state.lock();
        let number = state.next;
        if number - state.done_below() >= SPAN_MAX {
            return None;
        }
        state.next += 1;
        state.under_way.insert(number);
        Some((number, state.log_time))
    }
}

/// Id of one write, held as long as the caller may retry it.
#[derive(Debug)]
pub(crate) struct Ticket {
    client: ClientId,
    number: u64,
    stamp: Millis,
    /// Set if the caller has numbered the write.
    done_below: Option<u64>,
    sequence: Arc<Sequence>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Ticket {
    /// Creates the ticket of a write that the caller has numbered.
    pub(crate) fn named(id: OpId) -> Self {
        let OpId { client, number, done_below, stamp } = id;
        let state = State { next: number.saturating_add(1), under_way: BTreeSet::from([number]), log_time: stamp };
        let sequence = Arc::new(Sequence::new(state));
        Self { client, number, stamp, done_below: Some(done_below), sequence, _permit: None }
    }

    /// Returns the id to send; number and stamp are the same in every retry.
    pub(crate) fn id(&self) -> OpId {
        let done_below = self.done_below.unwrap_or_else(|| self.sequence.state.lock().done_below());
        OpId { client: self.client, number: self.number, done_below, stamp: self.stamp }
    }

    /// Records the partition's log time from a reply. It never decreases.
    pub(crate) fn observe(&self, log_time: Millis) {
        let mut state = self.sequence.state.lock();
        state.log_time = state.log_time.max(log_time);
    }

    /// Restamps the write with the newest known log time. Allowed only if every attempt was refused (PROTOCOL rule
    /// 24). Returns whether the stamp changed.
    pub(crate) fn restamp(&mut self) -> bool {
        let log_time = self.sequence.state.lock().log_time;
        let newer = log_time > self.stamp;
        self.stamp = self.stamp.max(log_time);
        newer
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut state = self.sequence.state.lock();
        let oldest = state.done_below() == self.number;
        state.under_way.remove(&self.number);
        drop(state);
        if oldest {
            self.sequence.advanced.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_types::TableId;
    use std::time::Duration;
    use tokio::time::timeout;
    use uuid::Uuid;

    fn sequences() -> Sequences {
        Sequences::new(ClientId::new(Uuid::from_u128(1)))
    }

    fn partition(index: u32) -> PartitionId {
        PartitionId::new(TableId::new(1), index)
    }

    #[tokio::test]
    async fn done_below_is_the_oldest_pending_write_of_the_partition() {
        let sequences = sequences();
        let first = sequences.begin(partition(0)).await;
        let second = sequences.begin(partition(0)).await;
        assert_eq!((first.id().number, second.id().number), (1, 2));
        assert_eq!(second.id().done_below, 1);
        drop(first);
        assert_eq!(second.id().done_below, 2);
        assert_eq!(sequences.begin(partition(1)).await.id().number, 1);
    }

    #[tokio::test]
    async fn retry_keeps_its_stamp_and_new_write_takes_the_newest() {
        let sequences = sequences();
        let mut first = sequences.begin(partition(0)).await;
        first.observe(Millis::new(50));
        first.observe(Millis::new(40));
        assert_eq!((first.id().number, first.id().stamp), (1, Millis::ZERO));
        assert_eq!(sequences.begin(partition(0)).await.id().stamp, Millis::new(50));
        assert_eq!((first.id().number, first.id().stamp), (1, Millis::ZERO), "another attempt");
        assert!(first.restamp());
        assert_eq!(first.id().stamp, Millis::new(50));
        assert!(!first.restamp());
    }

    #[tokio::test]
    async fn numbers_stay_close_to_the_oldest_pending_write() {
        let sequences = sequences();
        let slow = sequences.begin(partition(0)).await;
        for _ in 1..SPAN_MAX {
            drop(sequences.begin(partition(0)).await);
        }
        let next = sequences.begin(partition(0));
        tokio::pin!(next);
        assert!(timeout(Duration::from_millis(20), next.as_mut()).await.is_err(), "the span is not bounded");
        drop(slow);
        let next = timeout(Duration::from_secs(5), next).await.expect("released");
        assert_eq!(next.id().number, SPAN_MAX + 1);
    }
}

//! Handles to all shards.

use super::inbox::{INBOX_BYTES_MAX, INBOX_MESSAGES_MAX, Inbox};
use super::message::ShardMessage;
use super::row_run::RowRun;
use archon_kv::Growth;
use archon_types::{Epoch, KeyRange, PartitionId, PlacementId};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use tokio::sync::oneshot;

/// Handles to all shards.
#[derive(Clone)]
pub(crate) struct Shards {
    inboxes: Arc<[Arc<Inbox<ShardMessage>>]>,
}

impl Shards {
    /// Creates inboxes for `count` shards; [`start`](super::start) gives them threads.
    pub(crate) fn new(count: usize) -> Self {
        Self { inboxes: (0..count.max(1)).map(|_| Arc::new(Inbox::new(INBOX_MESSAGES_MAX, INBOX_BYTES_MAX))).collect() }
    }

    /// Returns the inbox of the shard that owns `partition`.
    pub(crate) fn of(&self, partition: PartitionId) -> &Arc<Inbox<ShardMessage>> {
        &self.inboxes[self.number_of(partition)]
    }

    /// Returns the number of the shard that owns `partition`.
    pub(crate) fn number_of(&self, partition: PartitionId) -> usize {
        // Neighbouring partitions go to different shards; tables are spread against each other.
        let mixed =
            partition.table.get().wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(17) ^ u64::from(partition.index);
        usize::try_from(mixed % self.inboxes.len() as u64).unwrap_or(0)
    }

    /// Returns the number of shards.
    pub(crate) fn count(&self) -> usize {
        self.inboxes.len()
    }

    /// Returns the inbox of shard `number`.
    pub(crate) fn inbox(&self, number: usize) -> Option<&Arc<Inbox<ShardMessage>>> {
        self.inboxes.get(number)
    }

    /// Queues one message for every shard.
    pub(crate) fn send_all(&self, mut message: impl FnMut() -> ShardMessage) {
        for inbox in self.inboxes.iter() {
            inbox.complete(message());
        }
    }

    /// Passes a new registration to every shard; returns once all have applied it.
    pub(crate) async fn renew(&self, life: archon_host::NodeRegistration) {
        let mut waiting = Vec::new();
        self.send_all(|| {
            let (done, wait) = oneshot::channel();
            waiting.push(wait);
            ShardMessage::Renew { life, done }
        });
        for wait in waiting {
            // An ended shard leads nothing.
            let _ = wait.await;
        }
    }

    /// Has the shards give up leaderships that no lease covers any longer.
    pub(crate) fn withdraw(&self, leaderships: impl IntoIterator<Item = (PartitionId, Epoch)>) {
        let mut per_shard: BTreeMap<usize, Vec<(PartitionId, Epoch)>> = BTreeMap::new();
        for (partition, epoch) in leaderships {
            per_shard.entry(self.number_of(partition)).or_default().push((partition, epoch));
        }
        for (number, leaderships) in per_shard {
            self.inboxes[number].complete(ShardMessage::Withdrawn(leaderships));
        }
    }

    /// Returns the number of leaderships not yet given up.
    pub(crate) async fn leading(&self) -> usize {
        self.sum(ShardMessage::Leading).await
    }

    /// Returns the number of copies here that leaders on other nodes wait for, although they could do without.
    pub(crate) async fn counted(&self) -> usize {
        self.sum(ShardMessage::Counted).await
    }

    /// Returns the growth of each placement since the size scan counted it; `None` where the count no longer applies.
    pub(crate) async fn grown(&self) -> Vec<(PlacementId, Option<Growth>)> {
        let mut all = Vec::new();
        for inbox in self.inboxes.iter() {
            let (answer, wait) = oneshot::channel();
            // A shard that has ended has nothing that grows.
            if inbox.push(ShardMessage::Grown(answer)).await.is_ok() {
                all.extend(wait.await.unwrap_or_default());
            }
        }
        all
    }

    /// Returns committed rows of a placement from a key on that the engine may not have yet; `None` if no running shard
    /// has it.
    pub(crate) async fn gathered(
        &self,
        partition: PartitionId,
        placement: PlacementId,
        from: Bound<Bytes>,
    ) -> Option<RowRun> {
        let (answer, wait) = oneshot::channel();
        self.of(partition).push(ShardMessage::Gathered { placement, from, answer }).await.ok()?;
        wait.await.ok().flatten()
    }

    /// Returns the last committed user row of these keys in a placement's memtable.
    pub(crate) async fn last_gathered(
        &self,
        partition: PartitionId,
        placement: PlacementId,
        keys: KeyRange,
    ) -> Option<Bytes> {
        let (answer, wait) = oneshot::channel();
        self.of(partition).push(ShardMessage::LastGathered { placement, keys, answer }).await.ok()?;
        wait.await.ok().flatten()
    }

    async fn sum(&self, ask: impl Fn(oneshot::Sender<usize>) -> ShardMessage) -> usize {
        let mut waiting = Vec::new();
        self.send_all(|| {
            let (answer, wait) = oneshot::channel();
            waiting.push(wait);
            ask(answer)
        });
        let mut sum = 0;
        for wait in waiting {
            sum += wait.await.unwrap_or(0);
        }
        sum
    }
}

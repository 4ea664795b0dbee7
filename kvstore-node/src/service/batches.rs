//! Operations on their way to shards: those of one shard go in one message.

use super::overloaded;
use super::reply::Replies;
use crate::node::shared::shutting_down;
use crate::shard::inbox::PushError;
use crate::shard::{OpRequest, ShardMessage, Shards};
use archon_types::Millis;

/// Operations by the number of the shard that owns their partition.
#[derive(Default)]
pub(super) struct ShardBatches {
    per_shard: Vec<Vec<OpRequest>>,
}

impl ShardBatches {
    /// Adds an operation behind those of its shard.
    pub(super) fn push(&mut self, shards: &Shards, request: OpRequest) {
        let number = shards.number_of(request.partition);
        if self.per_shard.len() <= number {
            self.per_shard.resize_with(number + 1, Vec::new);
        }
        self.per_shard[number].push(request);
    }

    /// Queues the operations with their shards. `refused` gets the answers of those that have no room there.
    pub(super) fn send(&mut self, shards: &Shards, refused: &mut Replies) {
        for (number, batch) in self.per_shard.iter_mut().enumerate() {
            if batch.is_empty() {
                continue;
            }
            let Some(inbox) = shards.inbox(number) else { continue };
            let (batch, detail) = match inbox.try_push(ShardMessage::Operations(std::mem::take(batch))) {
                Ok(()) => continue,
                Err(PushError::Full(ShardMessage::Operations(batch))) => (batch, overloaded()),
                Err(PushError::Closed(ShardMessage::Operations(batch))) => (batch, shutting_down()),
                Err(_) => continue,
            };
            for request in batch {
                refused.add(request.reply, Millis::ZERO, Err(detail.clone()));
            }
        }
    }
}

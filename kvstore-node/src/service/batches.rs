//! Operations on their way to shards: those of one shard go in one message.

use super::overloaded;
use super::reply::Replies;
use crate::node::state::shutting_down;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::admit::NodeAdmission;
    use crate::service::reply::{Connection, ReplyTo};
    use crate::shard::inbox::INBOX_MESSAGES_MAX;
    use archon_host::Origin;
    use archon_types::{ErrorKind, Op, PartitionId, TableId, Version};
    use bytes::Bytes;
    use std::collections::BTreeSet;
    use std::net::{IpAddr, Ipv4Addr};
    use std::sync::Arc;

    #[test]
    fn full_inbox_refuses_operations_of_its_shard_alone() {
        let shards = Shards::new(2);
        let (connection, mut answers) = Connection::new(1);
        let admission = NodeAdmission::default();
        let stream = admission.client(IpAddr::V4(Ipv4Addr::LOCALHOST)).stream();
        let full = shards.inbox(0).unwrap();
        while full.len() < INBOX_MESSAGES_MAX {
            assert!(full.try_push(ShardMessage::Peers).is_ok());
        }
        let mut batches = ShardBatches::default();
        let mut refused_tags = BTreeSet::new();
        for tag in 0..8 {
            let partition = PartitionId::new(TableId::new(1), tag);
            if shards.number_of(partition) == 0 {
                refused_tags.insert(u64::from(tag));
            }
            let permit = stream.try_admit(1).unwrap();
            let connection = Arc::clone(&connection);
            let request = OpRequest {
                partition,
                origin: Origin::RoutingClient,
                client: 1,
                op: Op::Get { key: Bytes::new() },
                id: None,
                known: Version::ZERO,
                parked_at: None,
                confirmed: None,
                awaited_entry: false,
                reply: ReplyTo::Stream { connection, tag: tag.into(), asked: None, permit },
            };
            batches.push(&shards, request);
        }
        let mut refused = Replies::default();
        batches.send(&shards, &mut refused);
        assert_eq!(refused.send(), refused_tags.len() as u64);
        let answers: Vec<_> = answers.try_recv().unwrap().into_iter().map(|answer| answer.into_parts().0).collect();
        assert_eq!(answers.iter().map(|reply| reply.tag).collect::<BTreeSet<_>>(), refused_tags);
        assert!(
            answers.iter().all(|reply| matches!(&reply.outcome, Err(detail) if detail.kind == ErrorKind::Overloaded))
        );
        let mut turn = Vec::new();
        shards.inbox(1).unwrap().drain(&mut turn);
        let queued = |message: &ShardMessage| match message {
            ShardMessage::Operations(operations) => operations.len(),
            _ => 0,
        };
        assert_eq!(turn.iter().map(queued).collect::<Vec<_>>(), [8 - refused_tags.len()], "one message");
        // Nothing is sent twice.
        batches.send(&shards, &mut refused);
        assert_eq!((shards.inbox(1).unwrap().len(), refused.send()), (0, 0));
    }
}

//! Stream to a leader's node: it carries operations of many callers, under their own names, and the answers back.

use super::Forwards;
use super::link::Link;
use crate::service::reply::{Outcome, Replies, ReplyTo};
use crate::shard::OpRequest;
use archon_frames::{FrameError, FrameReader, FrameWriter, Keepalive, StreamKind, connect_and_greet};
use archon_host::PassedOn;
use archon_proto::convert::kv::FORWARDED;
use archon_proto::convert::kv::packed::{OpPacker, unpack_replies};
use archon_proto::v1;
use archon_security::{CONNECT_TIMEOUT, ExpectedPeer};
use archon_types::limits::{BATCH_BYTES_MAX, BATCH_OPS_MAX, MESSAGE_BYTES_MAX};
use archon_types::{ClientId, ErrorKind, Millis, NodeId, PartitionId, Version};
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval};

/// Interval of checks for operations with a gone caller, or with a partition led by another node by now.
const SWEEP: Duration = Duration::from_millis(250);

/// An operation waiting for its answer.
struct WaitingOperation {
    partition: PartitionId,
    what: PassedOn,
    caller: u64,
    cost: usize,
    /// At the last check, another node led the partition.
    moved: bool,
    reply: ReplyTo,
}

/// Unanswered operations at a peer.
pub(super) struct Carrier<'a> {
    forwards: &'a Forwards,
    link: &'a Link,
    node: NodeId,
    address: String,
    waiting: HashMap<u64, WaitingOperation>,
    next_tag: u64,
}

impl<'a> Carrier<'a> {
    pub(super) fn new(forwards: &'a Forwards, link: &'a Link, node: NodeId) -> Self {
        Self { forwards, link, node, address: "(not known)".to_owned(), waiting: HashMap::new(), next_tag: 1 }
    }

    /// Opens a stream and carries queued operations until it breaks. Returns the reason.
    pub(super) async fn stream(&mut self) -> String {
        match self.open().await {
            Ok((mut reader, mut writer)) => match self.carry(&mut reader, &mut writer).await {
                Ok(()) => String::new(),
                Err(error) => error.to_string(),
            },
            Err(error) => error.to_string(),
        }
    }

    /// Opens a stream. Nothing is sent before the peer accepts it, so a refusal is known to have had no effect.
    async fn open(&mut self) -> Result<(FrameReader, FrameWriter), FrameError> {
        let shared = &self.forwards.shared;
        let refused = |kind, why: &str| FrameError::Refused(archon_types::ErrorDetail::new(kind, why));
        let Some(life) = shared.life() else {
            return Err(refused(ErrorKind::Unavailable, "this node is not registered with a coordinator"));
        };
        let Some(peer) = shared.tables.node(self.node) else {
            return Err(refused(ErrorKind::Unreachable, "its address is not known here"));
        };
        self.address.clone_from(&peer.address);
        let (transport, expected) = (&shared.config.transport, ExpectedPeer::Node(peer.name.clone()));
        transport.check(&peer.address).map_err(FrameError::Refused)?;
        let hello = v1::OpBatch {
            cluster: Some(life.member.cluster.into()),
            node: self.node.get(),
            hops: FORWARDED,
            ..v1::OpBatch::default()
        };
        let (kind, address) = ((StreamKind::Exchange, MESSAGE_BYTES_MAX), &peer.address);
        connect_and_greet(transport, address, &expected, kind, CONNECT_TIMEOUT, |mut reader, mut writer| {
            writer.push(&hello);
            async move {
                writer.flush().await?;
                let _: v1::ReplyBatch = reader.next().await?;
                Ok((reader, writer))
            }
        })
        .await
    }

    async fn carry(&mut self, reader: &mut FrameReader, writer: &mut FrameWriter) -> Result<(), FrameError> {
        let link = self.link;
        let mut sweep = interval(SWEEP);
        sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut keepalive = Keepalive::default();
        loop {
            let leaves = !writer.is_empty();
            tokio::select! {
                // While a message is sent, the next one gathers.
                flushed = writer.flush(), if leaves => flushed?,
                () = link.wait(), if !leaves => self.send(writer),
                batch = reader.next::<v1::ReplyBatch>() => self.take(batch?)?,
                _ = sweep.tick() => {
                    self.forget_gone();
                    self.give_up_moved();
                }
                () = keepalive.tick() => keepalive.mark(reader, writer)?,
            }
        }
    }

    /// Packs as many queued operations as fit into messages, one for each client that named them.
    fn send(&mut self, writer: &mut FrameWriter) {
        let (mut count, mut bytes) = (0, 0);
        let taken = self.link.take(|next| {
            (count, bytes) = (count + 1, bytes + next.op.bytes());
            count <= BATCH_OPS_MAX && (count == 1 || bytes <= BATCH_BYTES_MAX)
        });
        let mut messages: BTreeMap<ClientId, OpPacker> = BTreeMap::new();
        for request in taken {
            let OpRequest { partition, client: caller, op, id, reply, .. } = request;
            let cost = op.cost();
            // The caller is gone, and nothing was done about it.
            if reply.is_gone() {
                self.link.give(caller, cost);
                continue;
            }
            let tag = self.next_tag;
            self.next_tag = self.next_tag.wrapping_add(1);
            let client = id.map_or(ClientId::NIL, |id| id.client);
            let message = messages.entry(client).or_insert_with(|| OpPacker::new(client));
            message.push(tag, partition, id.as_ref(), &op);
            let what = PassedOn::of(&op, id.as_ref());
            self.waiting.insert(tag, WaitingOperation { partition, what, caller, cost, moved: false, reply });
        }
        let table_version = self.forwards.shared.tables.version().get();
        let access_version = self.forwards.shared.access.version().get();
        for (_, message) in messages {
            let ops = message.finish();
            writer.push(&v1::OpBatch { ops, table_version, hops: FORWARDED, access_version, ..v1::OpBatch::default() });
        }
    }

    /// Passes answers to their callers, with the table version of the leader.
    ///
    /// # Errors
    /// An unreadable batch: the callers of its answers are unknown, so the stream is useless.
    fn take(&mut self, batch: v1::ReplyBatch) -> Result<(), FrameError> {
        let mut replies = Replies::hinting(Version::new(batch.table_version), self.forwards.timing.clone());
        let mut answered = 0;
        let mut read = Ok(());
        for reply in unpack_replies(batch.replies) {
            match reply {
                Ok(reply) => {
                    let Some(waiting) = self.waiting.remove(&reply.tag) else { continue };
                    answered += 1;
                    self.link.give(waiting.caller, waiting.cost);
                    replies.add(waiting.reply, reply.log_time, self.in_words(reply.outcome));
                }
                Err(error) => read = Err(FrameError::Unreadable(error.to_string())),
            }
        }
        let metrics = &self.forwards.shared.metrics;
        metrics.forwarded.add(answered);
        metrics.operations_refused.add(replies.send());
        read
    }

    /// Rewords a peer's error about itself for this node's client.
    fn in_words(&self, outcome: Outcome) -> Outcome {
        outcome.map_err(|mut detail| {
            if detail.kind == ErrorKind::NotPartitionLeader {
                detail.message =
                    format!("passed on to the node at {}, which answered: {}", self.address, detail.message);
            }
            detail
        })
    }

    /// Abandons operations on partitions led by another node at two checks in a row: a node that has handed over
    /// answers operations it had begun, and a dead one never does.
    fn give_up_moved(&mut self) {
        let (tables, node) = (&self.forwards.shared.tables, self.node);
        let mut verdicts: HashMap<PartitionId, bool> = HashMap::new();
        let mut moved = |partition| {
            *verdicts.entry(partition).or_insert_with(|| tables.leader(partition).is_some_and(|leader| leader != node))
        };
        let given_up = self.waiting.extract_if(|_, waiting| {
            let now = moved(waiting.partition);
            std::mem::replace(&mut waiting.moved, now) && now
        });
        let given_up: Vec<WaitingOperation> = given_up.map(|(_, waiting)| waiting).collect();
        self.tell_lost(given_up, "another node leads the partition by now");
    }

    /// Removes operations of gone callers.
    fn forget_gone(&mut self) {
        for (_, waiting) in self.waiting.extract_if(|_, waiting| waiting.reply.is_gone()) {
            self.link.give(waiting.caller, waiting.cost);
        }
    }

    /// Notifies all waiting callers that there will be no answer.
    pub(super) fn fail(&mut self, cause: &str) {
        let queued = self.link.take(|_| true);
        let waiting = std::mem::take(&mut self.waiting);
        self.tell_lost(waiting.into_values(), cause);
        let mut replies = Replies::timed(self.forwards.timing.clone());
        for request in queued {
            self.link.give(request.client, request.op.cost());
            let kind = PassedOn::of(&request.op, request.id.as_ref()).unanswered(false);
            let detail = self.forwards.lost(&self.address, request.partition, kind, cause);
            replies.add(request.reply, Millis::ZERO, Err(detail));
        }
        self.failed(replies);
    }

    fn tell_lost(&self, waiting: impl IntoIterator<Item = WaitingOperation>, cause: &str) {
        let mut replies = Replies::timed(self.forwards.timing.clone());
        for WaitingOperation { partition, what, caller, cost, reply, .. } in waiting {
            self.link.give(caller, cost);
            let detail = self.forwards.lost(&self.address, partition, what.unanswered(true), cause);
            replies.add(reply, Millis::ZERO, Err(detail));
        }
        self.failed(replies);
    }

    fn failed(&self, mut replies: Replies) {
        let failed = replies.send();
        self.forwards.shared.metrics.forwards_failed.add(failed);
        self.forwards.shared.metrics.operations_refused.add(failed);
    }
}

//! Clients' streams: many operations a message, answers in any order.

use super::kv::KvService;
use super::overloaded;
use crate::admit::StreamAdmission;
use crate::inbox::PushError;
use crate::reply::{Connection, Delivery, ReplyTo};
use crate::shard::{OpRequest, ShardMessage};
use crate::shared::Shared;
use archon_frames::{Beat, FrameError, FrameReader, FrameWriter};
use archon_proto::convert::kv::TaggedOp;
use archon_proto::convert::packed::{ReplyPacker, Unpacked, unpack_ops};
use archon_proto::v1;
use archon_types::limits::BATCH_OPS_MAX;
use archon_types::{Millis, NodeId, Version};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::mpsc;

/// Bytes of values after which one answer message is closed and the next begun.
const REPLY_BYTES_MAX: usize = 1024 * 1024;

impl KvService {
    /// Serves a client's stream until it ends, the node stops, or the client has gone. What was admitted is finished all the
    /// same.
    pub(crate) async fn exchange(self, mut reader: FrameReader, mut writer: FrameWriter) {
        let (connection, answers) = Connection::new(self.connections.fetch_add(1, Ordering::Relaxed));
        let waiting = connection.waiting();
        let ended = async {
            let first = self.accepted(&mut reader).await?;
            // Whoever is refused has sent no operation yet, and knows it: a client waits for this one.
            writer.push(&v1::ReplyBatch { table_version: self.shared.tables.version().get(), ..Default::default() });
            tokio::select! {
                ended = self.read_stream(first, &mut reader, &connection) => ended,
                ended = write_stream(&self.shared, answers, &waiting, &mut writer) => ended,
            }
        };
        super::end_stream(ended.await, writer).await;
    }

    /// The first message of a stream, which says whom it is meant for.
    async fn accepted(&self, reader: &mut FrameReader) -> Result<v1::OpBatch, FrameError> {
        let first = tokio::select! {
            first = super::first::<v1::OpBatch>(reader) => first?,
            () = self.stop.cancelled() => return Err(FrameError::Refused(crate::shared::shutting_down())),
        };
        self.meant_for_us(&first)?;
        Ok(first)
    }

    fn meant_for_us(&self, batch: &v1::OpBatch) -> Result<(), FrameError> {
        let node = (batch.node != 0).then_some(NodeId::new(batch.node));
        self.check(batch.cluster.as_ref(), node).map_err(FrameError::Refused)
    }

    async fn read_stream(
        &self,
        first: v1::OpBatch,
        reader: &mut FrameReader,
        connection: &Arc<Connection>,
    ) -> Result<(), FrameError> {
        let admission = self.shared.admission.stream();
        self.take(first, connection, &admission)?;
        let mut beat = Beat::default();
        loop {
            tokio::select! {
                batch = reader.next::<v1::OpBatch>() => {
                    let batch = batch?;
                    if batch.cluster.is_some() || batch.node != 0 {
                        self.meant_for_us(&batch)?;
                    }
                    self.take(batch, connection, &admission)?;
                }
                () = beat.tick() => beat.listen(reader)?,
                () = self.stop.cancelled() => return Err(FrameError::Refused(crate::shared::shutting_down())),
            }
        }
    }

    /// Queues one message's operations with their shards; those that cannot be are answered at once.
    fn take(
        &self,
        batch: v1::OpBatch,
        connection: &Arc<Connection>,
        admission: &StreamAdmission,
    ) -> Result<(), FrameError> {
        let known = Version::new(batch.table_version);
        let mut refused = crate::reply::Replies::default();
        let mut per_shard: BTreeMap<usize, Vec<OpRequest>> = BTreeMap::new();
        let ops = unpack_ops(batch.ops).map_err(|error| FrameError::Refused(error.into()))?;
        for Unpacked { tag, bytes, op } in ops {
            let permit = match admission.try_admit(bytes) {
                Ok(permit) => permit,
                Err(detail) if connection.refuse(tag, detail.clone()) => continue,
                Err(detail) => return Err(FrameError::Refused(detail)),
            };
            let reply = ReplyTo::Stream { connection: Arc::clone(connection), tag, permit };
            match op {
                Ok(TaggedOp { partition, id, op, .. }) => {
                    let number = self.shards.number_of(partition);
                    per_shard.entry(number).or_default().push(OpRequest {
                        partition,
                        op,
                        id,
                        known,
                        parked_at: None,
                        reply,
                    });
                }
                Err(error) => refused.add(reply, Millis::ZERO, Err(error.into())),
            }
        }
        for (number, operations) in per_shard {
            let Some(inbox) = self.shards.inbox(number) else { continue };
            let (operations, detail) = match inbox.try_push(ShardMessage::Operations(operations)) {
                Ok(()) => continue,
                Err(PushError::Full(ShardMessage::Operations(operations))) => (operations, overloaded()),
                Err(PushError::Closed(ShardMessage::Operations(operations))) => {
                    (operations, crate::shared::shutting_down())
                }
                Err(_) => continue,
            };
            for request in operations {
                refused.add(request.reply, Millis::ZERO, Err(detail.clone()));
            }
        }
        self.shared.metrics.operations_refused.add(refused.send());
        Ok(())
    }
}

/// Writes answers to a client's stream, those that have gathered meanwhile together.
async fn write_stream(
    shared: &Shared,
    mut answers: mpsc::UnboundedReceiver<Vec<Delivery>>,
    waiting: &AtomicUsize,
    writer: &mut FrameWriter,
) -> Result<(), FrameError> {
    let mut beat = Beat::default();
    writer.flush().await?;
    loop {
        let mut deliveries = tokio::select! {
            Some(deliveries) = answers.recv() => deliveries,
            () = beat.tick() => {
                beat.speak(writer);
                writer.flush().await?;
                continue;
            }
        };
        while deliveries.len() < BATCH_OPS_MAX {
            match answers.try_recv() {
                Ok(more) => deliveries.extend(more),
                Err(_) => break,
            }
        }
        let mut deliveries = deliveries.into_iter().peekable();
        while deliveries.peek().is_some() {
            let (mut replies, mut held, mut bytes) = (ReplyPacker::default(), Vec::new(), 0);
            while bytes < REPLY_BYTES_MAX {
                let Some(delivery) = deliveries.next() else { break };
                bytes += delivery.bytes;
                replies.push(delivery.reply());
                held.push(delivery);
            }
            writer.push(&v1::ReplyBatch { replies: replies.finish(), table_version: shared.tables.version().get() });
            let written = writer.flush().await;
            waiting.fetch_sub(bytes, Ordering::AcqRel);
            // The operations' shares of admission are given back only now.
            drop(held);
            written?;
        }
    }
}

//! Client streams: many operations per message, answers in any order.

use super::batches::ShardBatches;
use super::kv::KvService;
use super::overloaded;
use crate::node::state::NodeState;
use crate::server::admit::StreamAdmission;
use crate::server::ping::ping;
use crate::service::reply::{Connection, Delivery, ReplyTo};
use crate::service::timed_request::TimedRequest;
use crate::shard::OpRequest;
use archon_frames::{FrameError, FrameReader, FrameWriter, Keepalive, StreamKind, end_stream, first_message};
use archon_host::Origin;
use archon_proto::convert::kv::packed::{ReplyPacker, UnpackedOperation, unpack_ops};
use archon_proto::convert::kv::{TaggedOp, passed_on};
use archon_proto::v1;
use archon_security::{Caller, Role};
use archon_types::limits::{BATCH_OPS_MAX, MESSAGE_BYTES_MAX, OPERATION_OVERHEAD_BYTES};
use archon_types::{ErrorDetail, ErrorKind};
use archon_types::{Millis, NodeId, Right, Version};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Bytes of values after which one answer message is closed and the next begun.
const REPLY_BYTES_MAX: usize = 1024 * 1024;
/// Operations of one message that are refused individually; the rest of the message gets the same refusal.
const REFUSED_MAX: usize = 16;
/// Pause in reading a stream per refused operation: refusing has a cost too, and a client that retries thousands at
/// once would keep the node busy with that alone.
const REFUSED_PAUSE: Duration = Duration::from_micros(50);
/// Longest time for which a client may accept none of its waiting answers.
const STALLED: Duration = Duration::from_secs(3);
/// Longest time that a client may take for one message of them.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Checks that nodes only forward operations, and that only nodes forward them.
fn check_hops(caller: &Caller, passed_on: bool) -> Result<(), ErrorDetail> {
    match &caller.identity {
        Some(identity) if (identity.role() == Role::Node) != passed_on => {
            let does =
                if passed_on { "passes operations on, which nodes do" } else { "asks for keys, which clients do" };
            Err(caller.refused(StreamKind::Exchange.word(), None, format!("{identity} {does}")))
        }
        _ => Ok(()),
    }
}

impl KvService {
    /// Serves a client's stream until it ends, the node stops, or the client is gone. Admitted operations are completed
    /// all the same.
    pub(crate) async fn exchange(self, caller: Caller, mut reader: FrameReader, mut writer: FrameWriter) {
        let (connection, answers) = self.connection();
        // One ping at a time.
        let (pongs, mut ponged) = mpsc::channel(1);
        let ended = async {
            let first = self.accepted(&mut reader).await?;
            // A client waits for this message, so a refused one knows that it has sent no operation yet.
            writer.push(&v1::ReplyBatch { table_version: self.shared.tables.version().get(), ..Default::default() });
            tokio::select! {
                ended = self.read_stream(first, &caller, &mut reader, &connection, &pongs) => ended,
                ended = write_stream(&self.shared, answers, &mut ponged, &mut writer) => ended,
            }
        };
        let ended = ended.await;
        match ended {
            Err(FrameError::Stalled(_)) => self.shared.metrics.streams_stalled.add(1),
            Err(FrameError::Incomplete(_)) => self.shared.metrics.messages_incomplete.add(1),
            _ => {}
        }
        end_stream(ended, writer).await;
    }

    /// Reads the first message of a stream, which names its intended receiver.
    async fn accepted(&self, reader: &mut FrameReader) -> Result<v1::OpBatch, FrameError> {
        let first = tokio::select! {
            first = first_message::<v1::OpBatch>(reader) => first?,
            () = self.stop.cancelled() => return Err(FrameError::Refused(crate::node::state::shutting_down())),
        };
        self.meant_for_us(&first)?;
        reader.known(MESSAGE_BYTES_MAX);
        Ok(first)
    }

    fn meant_for_us(&self, batch: &v1::OpBatch) -> Result<(), FrameError> {
        let node = (batch.node != 0).then_some(NodeId::new(batch.node));
        self.check(batch.cluster.as_ref(), node).map_err(FrameError::Refused)
    }

    async fn read_stream(
        &self,
        first: v1::OpBatch,
        caller: &Caller,
        reader: &mut FrameReader,
        connection: &Arc<Connection>,
        pongs: &mpsc::Sender<u64>,
    ) -> Result<(), FrameError> {
        let admission = self.shared.admission.client(caller.from).stream();
        let asks = first.pass_on;
        let mut refused = match first.ping {
            0 => self.take(first, caller, asks, connection, &admission)?,
            _ => self.ping(&first, pongs)?,
        };
        let mut keepalive = Keepalive::default();
        loop {
            if refused > 0 {
                tokio::time::sleep(REFUSED_PAUSE * std::mem::take(&mut refused)).await;
            }
            tokio::select! {
                batch = reader.next::<v1::OpBatch>() => {
                    let batch = batch?;
                    if batch.cluster.is_some() || batch.node != 0 {
                        self.meant_for_us(&batch)?;
                    }
                    if batch.ping != 0 {
                        refused = self.ping(&batch, pongs)?;
                        continue;
                    }
                    refused = self.take(batch, caller, asks, connection, &admission)?;
                    // Other tasks on this thread, above all its shard, must not wait for message after message.
                    tokio::task::consume_budget().await;
                }
                () = keepalive.tick() => keepalive.listen(reader)?,
                () = self.stop.cancelled() => return Err(FrameError::Refused(crate::node::state::shutting_down())),
            }
        }
    }

    /// Sends a ping to the shards. Returns no refused operations to pause for.
    fn ping(&self, batch: &v1::OpBatch, pongs: &mpsc::Sender<u64>) -> Result<u32, FrameError> {
        if !batch.ops.is_empty() {
            let why = "a ping comes without operations";
            return Err(FrameError::Refused(ErrorDetail::new(ErrorKind::InvalidArgument, why)));
        }
        ping(&self.shards, batch.ping, pongs).map_err(FrameError::Refused)?;
        Ok(0)
    }

    /// Refuses forwarded operations of a node without the newest client rights known here: a node that no coordinator
    /// reaches would keep admitting revoked clients.
    fn check_forwarder(&self, goes_by: Version) -> Result<(), ErrorDetail> {
        let known = self.shared.access.version();
        if goes_by >= known {
            return Ok(());
        }
        let why = format!(
            "the node that passed this on goes by what clients might do as of version {goes_by}, and it is {known} by now"
        );
        Err(ErrorDetail::new(ErrorKind::Unavailable, why).with_retry_after_ms(100))
    }

    /// Queues one message's operations with their shards; those that cannot be queued are answered at once. Returns the
    /// number that was not admitted. `asks` means that the client wants operations of other leaders forwarded.
    fn take(
        &self,
        batch: v1::OpBatch,
        caller: &Caller,
        asks: bool,
        connection: &Arc<Connection>,
        admission: &StreamAdmission,
    ) -> Result<u32, FrameError> {
        let now = Instant::now();
        let known = Version::new(batch.table_version);
        let passed_on = passed_on(batch.hops).map_err(|error| FrameError::Refused(error.into()))?;
        check_hops(caller, passed_on).map_err(FrameError::Refused)?;
        let origin = Origin::of(passed_on, asks);
        let mut refused = crate::service::reply::Replies::default();
        let mut batches = ShardBatches::default();
        let ops = unpack_ops(batch.ops).map_err(|error| FrameError::Refused(error.into()))?;
        let (mut refusals, mut last) = (Vec::new(), None);
        let mut permissions = self.shared.access.of(caller, StreamKind::Exchange.word());
        let goes_by_less = passed_on.then(|| self.check_forwarder(Version::new(batch.access_version)).err()).flatten();
        for UnpackedOperation { tag, bytes, op } in ops {
            let denied = match (&goes_by_less, &op) {
                (Some(detail), _) => Some(detail.clone()),
                // Others of the message may be about another table: only this one is refused for it.
                (None, Ok(TaggedOp { partition, op, .. })) => {
                    permissions.check(&self.shared.tables, partition.table, Right::of(op)).err()
                }
                (None, Err(_)) => None,
            };
            if let Some(detail) = denied {
                refusals.push(connection.refusal(tag, detail).ok_or_else(|| FrameError::Refused(overloaded()))?);
                continue;
            }
            let cost = op.as_ref().map_or(bytes + OPERATION_OVERHEAD_BYTES, |tagged| tagged.op.cost());
            let admitted = match last.take_if(|_| refusals.len() >= REFUSED_MAX) {
                Some(detail) => Err(detail),
                None => admission.try_admit(cost),
            };
            let permit = match admitted {
                Ok(permit) => permit,
                Err(detail) => {
                    let Some(refusal) = connection.refusal(tag, detail.clone()) else {
                        return Err(FrameError::Refused(detail));
                    };
                    refusals.push(refusal);
                    last = Some(detail);
                    continue;
                }
            };
            let asked = op.as_ref().ok().map(|tagged| TimedRequest::new(&tagged.op, tagged.partition, now));
            let reply = ReplyTo::Stream { connection: Arc::clone(connection), tag, asked, permit };
            match op {
                Ok(TaggedOp { partition, id, op, .. }) => {
                    let request = OpRequest {
                        partition,
                        origin,
                        client: connection.id(),
                        op,
                        id,
                        known,
                        parked_at: None,
                        confirmed: None,
                        awaited_entry: false,
                        reply,
                    };
                    batches.push(&self.shards, request);
                }
                Err(error) => refused.add(reply, Millis::ZERO, Err(error.into())),
            }
        }
        batches.send(&self.shards, &mut refused);
        let not_admitted = u32::try_from(refusals.len()).unwrap_or(u32::MAX);
        self.shared.metrics.operations_refused.add(refused.send() + refusals.len() as u64);
        if !refusals.is_empty() {
            connection.send(refusals);
        }
        Ok(not_admitted)
    }
}

/// Writes answers to a client's stream, batching those that have gathered meanwhile.
async fn write_stream(
    shared: &NodeState,
    mut answers: mpsc::UnboundedReceiver<Vec<Delivery>>,
    pongs: &mut mpsc::Receiver<u64>,
    writer: &mut FrameWriter,
) -> Result<(), FrameError> {
    let mut keepalive = Keepalive::default();
    writer.flush_within(STALLED, ANSWER_TIMEOUT).await?;
    loop {
        let mut deliveries = tokio::select! {
            Some(deliveries) = answers.recv() => deliveries,
            Some(pong) = pongs.recv() => {
                writer.push(&v1::ReplyBatch { pong, ..Default::default() });
                writer.flush_within(STALLED, ANSWER_TIMEOUT).await?;
                continue;
            }
            () = keepalive.tick() => {
                keepalive.speak(writer);
                writer.flush_within(STALLED, ANSWER_TIMEOUT).await?;
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
            let mut table_version = shared.tables.version();
            while bytes < REPLY_BYTES_MAX {
                let Some(delivery) = deliveries.next() else { break };
                bytes += delivery.bytes;
                table_version = table_version.max(delivery.hint);
                replies.push(delivery.reply());
                held.push(delivery);
            }
            writer.push(&v1::ReplyBatch { replies: replies.finish(), table_version: table_version.get(), pong: 0 });
            let written = writer.flush_within(STALLED, ANSWER_TIMEOUT).await;
            // The operations' shares of admission are returned only now.
            drop(held);
            written?;
        }
    }
}

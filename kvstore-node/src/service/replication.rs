//! `Replication`: messages between replicas, and copies for loaders.

use super::refuse;
use crate::copies::copy_rest::CopyRest;
use crate::copies::pages::{self, EncodedRows};
use crate::engine::{Engine, EngineError, PageLimit, Row};
use crate::node::membership::Membership;
use crate::peers::wire;
use crate::shard::{CopyOffer, ShardMessage, Shards};
use crate::statistics::load::LoadBoard;
use crate::statistics::metrics::Metrics;
use crate::tables::Tables;
use archon_frames::{FrameError, FrameReader, FrameWriter, Keepalive, StreamKind, end_stream, first_message};
use archon_host::CopyAsk;
use archon_kv::row;
use archon_proto::convert::members::session::Member;
use archon_proto::convert::{ConvertError, ids, required};
use archon_proto::v1;
use archon_proto::v1::replication_server::Replication;
use archon_security::{Caller, Role};
use archon_types::{
    Epoch, ErrorDetail, ErrorKind, FencingProof, Incarnation, NodeId, PartitionId, PlacementId, ScanOrder, Seq, Version,
};
use bytes::Bytes;
use futures::Stream;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::{Request, Response, Status};

/// Least pace of a copy: at a lower one its source would keep the log for a loader for days.
const COPY_BYTES_PER_SECOND_MIN: u64 = 1024 * 1024;
/// Pages read ahead of a slow loader.
const PAGES_AHEAD: usize = 4;

/// The service.
#[derive(Clone)]
pub(crate) struct ReplicationService {
    pub(crate) membership: Arc<Membership>,
    pub(crate) tables: Arc<Tables>,
    pub(crate) copy_rest: Arc<CopyRest>,
    pub(crate) load: Arc<LoadBoard>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) shards: Shards,
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) stop: CancellationToken,
    /// Owns the tasks that send copies; the node awaits them when it stops.
    pub(crate) tasks: TaskTracker,
}

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

impl ReplicationService {
    /// Checks that a peer's message is for this incarnation of this node, and that the peer is the named one in its
    /// present incarnation.
    fn check(
        &self,
        caller: &Caller,
        call: &str,
        cluster: Option<&v1::ClusterRef>,
        sender: Option<&v1::Sender>,
        receiver: u64,
        incarnation: Option<Incarnation>,
    ) -> Result<Member, ErrorDetail> {
        let peer = Member::from_wire(cluster, sender)?;
        let receiver = NodeId::new(ids::non_zero(receiver, "ReplicationBatch.receiver")?);
        self.membership.addressed(peer.cluster, receiver, incarnation)?;
        // A node that has just joined is accepted once this one knows it; until then it retries.
        let Some(known) = self.tables.node(peer.node) else {
            let why = format!(
                "node {} is not known here; its messages are accepted once the coordinators have announced it",
                peer.node
            );
            return Err(ErrorDetail::new(ErrorKind::Unavailable, why).with_retry_after_ms(50));
        };
        caller.check_name(call, Role::Node, &known.name)?;
        if let Some(over) = self.membership.over(peer.node, peer.incarnation) {
            return Err(over.refusal());
        }
        if peer.incarnation < known.incarnation {
            let why = format!(
                "node {} sends as incarnation {}, but has registered as {} since",
                peer.node, peer.incarnation, known.incarnation
            );
            return Err(ErrorDetail::new(ErrorKind::StaleIncarnation, why));
        }
        Ok(peer)
    }

    /// Reads a peer's stream of messages until it ends, the node stops, or either side's registration has changed.
    /// Answers go over the stream to the peer.
    pub(crate) async fn replicate(self, caller: &Caller, mut reader: FrameReader, mut writer: FrameWriter) {
        let ended = self.read_stream(caller, &mut reader, &mut writer).await;
        end_stream(ended, writer).await;
    }

    async fn read_stream(
        &self,
        caller: &Caller,
        reader: &mut FrameReader,
        writer: &mut FrameWriter,
    ) -> Result<(), FrameError> {
        let mut batch = tokio::select! {
            first = first_message::<v1::ReplicationBatch>(reader) => first?,
            () = self.stop.cancelled() => return Err(FrameError::Refused(crate::node::state::shutting_down())),
        };
        // The most that clients may send at once, plus what a turn adds to it.
        reader.known(crate::peers::wire::BATCH_BYTES_READ_MAX);
        let head = v1::ReplicationBatch { parts: Vec::new(), ..batch.clone() };
        let incarnation = Incarnation::new(head.receiver_incarnation);
        let mut keepalive = Keepalive::default();
        loop {
            // The registration of either side may have changed since the stream began.
            let peer = self.check(
                caller,
                StreamKind::Replicate.word(),
                head.cluster.as_ref(),
                head.sender.as_ref(),
                head.receiver,
                Some(incarnation),
            );
            if let Some(over) = self.over(&peer, &head) {
                writer.push(&v1::ReplicationBatch { over: Some(over.into()), ..Default::default() });
            }
            let mut taken = std::pin::pin!(self.take(peer.map_err(FrameError::Refused)?, batch));
            loop {
                tokio::select! {
                    taken = &mut taken => break taken.map_err(FrameError::Refused)?,
                    // A shard without room blocks this stream; keepalives show the peer that the node lives.
                    () = keepalive.tick() => {
                        keepalive.speak(writer);
                        writer.flush().await?;
                    }
                    () = self.stop.cancelled() => {
                        return Err(FrameError::Refused(crate::node::state::shutting_down()));
                    }
                }
            }
            batch = loop {
                tokio::select! {
                    next = reader.next::<v1::ReplicationBatch>() => break next?,
                    () = keepalive.tick() => {
                        keepalive.mark(reader, writer)?;
                        writer.flush().await?;
                    }
                    () = self.stop.cancelled() => {
                        return Err(FrameError::Refused(crate::node::state::shutting_down()));
                    }
                }
            };
        }
    }

    /// Returns the report to a fenced sender, whose stream is refused for that reason (PROTOCOL rule 72).
    fn over(&self, peer: &Result<Member, ErrorDetail>, head: &v1::ReplicationBatch) -> Option<FencingProof> {
        let stale = peer.as_ref().is_err_and(|detail| detail.kind == ErrorKind::StaleIncarnation);
        let sender = Member::from_wire(head.cluster.as_ref(), head.sender.as_ref()).ok().filter(|_| stale)?;
        self.membership.over(sender.node, sender.incarnation)
    }

    /// Processes one batch of a peer's messages.
    async fn take(&self, peer: Member, batch: v1::ReplicationBatch) -> Result<(), ErrorDetail> {
        let mut per_shard: BTreeMap<usize, (PartitionId, Vec<archon_replica::Message>)> = BTreeMap::new();
        for message in batch.parts.into_iter().flat_map(wire::unpack) {
            let message = message?;
            if message.from.node != peer.node || message.from.incarnation != peer.incarnation {
                let problem = format!("names {:?}, but the stream is of node {}", message.from, peer.node);
                return Err(ConvertError::new("ReplicationBatch.parts", problem).into());
            }
            let number = self.shards.number_of(message.partition);
            per_shard.entry(number).or_insert_with(|| (message.partition, Vec::new())).1.push(message);
        }
        for (partition, messages) in per_shard.into_values() {
            let pushed = self.shards.of(partition).push(ShardMessage::Replication(messages)).await;
            pushed.map_err(|_| crate::node::state::shutting_down())?;
        }
        Ok(())
    }

    /// Sends the pages of a copy until the loader has all or is gone, or the source can no longer guarantee them.
    async fn give(
        self,
        offer: CopyOffer,
        after: Bytes,
        bytes_per_second: u64,
        pages: mpsc::Sender<Result<v1::CopyPage, Status>>,
    ) {
        let why = tokio::select! {
            () = self.send_pages(&offer, after, bytes_per_second, &pages) => return,
            () = offer.spoilt.cancelled() => {
                ErrorDetail::new(ErrorKind::NotPartitionLeader, "the source replica no longer leads, or keeps no log for it; ask the leader")
            }
            () = self.stop.cancelled() => crate::node::state::shutting_down(),
        };
        // Without room for it the stream ends before its last page, which has the same meaning.
        let _ = pages.try_send(Err(refuse(why)));
    }

    /// Returns the commit position of a copy's source.
    async fn committed(&self, partition: PartitionId, placement: PlacementId) -> Option<Seq> {
        let (answer, wait) = oneshot::channel();
        self.shards.of(partition).push(ShardMessage::Committed { placement, answer }).await.ok()?;
        wait.await.ok()?
    }

    async fn send_pages(
        &self,
        offer: &CopyOffer,
        mut after: Bytes,
        bytes_per_second: u64,
        pages: &mpsc::Sender<Result<v1::CopyPage, Status>>,
    ) {
        let (start, source) = (offer.start, offer.source);
        let began = Instant::now();
        let mut sent = 0;
        loop {
            let page_began = Instant::now();
            // Also encoded there: the task itself runs on the thread of a shard.
            let page = tokio::task::spawn_blocking({
                let (engine, after) = (Arc::clone(&self.engine), after.clone());
                move || {
                    let from = if after.is_empty() { Bound::Unbounded } else { Bound::Excluded(&after[..]) };
                    let keys = (from, Bound::Unbounded);
                    let page = engine.page(source, keys, ScanOrder::Ascending, PageLimit::COPY)?;
                    let encoded = page.more.then(|| encode(&page.rows));
                    Ok::<_, EngineError>((page, encoded))
                }
            });
            let failed = |why: String| Err(refuse(ErrorDetail::new(ErrorKind::Unavailable, why)));
            let page = page.await;
            let (mut page, encoded) = match page {
                Ok(Ok(read)) => read,
                Ok(Err(error)) => return drop(pages.send(failed(error.to_string())).await),
                Err(_) => return drop(pages.send(failed("reading a page failed".into())).await),
            };
            if let Some(last) = page.rows.last() {
                after = last.key.clone();
            }
            let last = !page.more;
            let committed = if last { self.committed(offer.partition, source).await } else { None };
            // Checked after reading, as it is cancelled before the space is emptied: a page read meanwhile, above all
            // the last one, may lack rows; and the commit position may be that of another log.
            if offer.spoilt.is_cancelled() {
                return std::future::pending().await;
            }
            match committed {
                Some(committed) => row::note_copied(&mut page.rows, committed),
                None if last => return drop(pages.send(failed("the source is gone".into())).await),
                None => {}
            }
            let EncodedRows { bytes: rows, crc32c } = encoded.unwrap_or_else(|| encode(&page.rows));
            let length = rows.len() as u64;
            if bytes_per_second == 0 {
                self.copy_rest.worked(page_began.elapsed());
            }
            let message = v1::CopyPage {
                start_seq: start.at.seq.get(),
                crc32c,
                rows,
                last_key: after.clone(),
                last,
                bytes_total: self.load.bytes_of(source),
                start: Some(wire::position(start.at)),
                version: start.version.get(),
            };
            if pages.send(Ok(message)).await.is_err() || last {
                return;
            }
            sent += length;
            self.metrics.copy_bytes_out.add(length);
            let rest = async {
                match bytes_per_second {
                    0 => drop(self.copy_rest.rest().await),
                    rate => tokio::time::sleep(due(sent, rate).saturating_sub(began.elapsed())).await,
                }
            };
            tokio::select! {
                () = rest => {}
                // The loader hung up.
                () = pages.closed() => return,
            }
        }
    }
}

fn encode(rows: &[Row]) -> EncodedRows {
    pages::encode(rows.iter().map(|row| (&row.key, &row.value)))
}

/// Returns when this many bytes may have been sent, since the first: at the loader's rate, but not below the least.
fn due(sent: u64, bytes_per_second: u64) -> Duration {
    Duration::from_secs_f64(sent as f64 / bytes_per_second.max(COPY_BYTES_PER_SECOND_MIN) as f64)
}

#[tonic::async_trait]
impl Replication for ReplicationService {
    type CopyStream = Answers<v1::CopyPage>;

    async fn copy(&self, request: Request<v1::CopyRequest>) -> Result<Response<Self::CopyStream>, Status> {
        let (caller, request) = (Caller::of(&request), request.into_inner());
        self.check(
            &caller,
            "/archon.v1.Replication/Copy",
            request.cluster.as_ref(),
            request.sender.as_ref(),
            request.receiver,
            None,
        )
        .map_err(refuse)?;
        let partition = required(request.partition, "CopyRequest.partition")?;
        let ask = CopyAsk {
            partition: PartitionId::try_from(partition)?,
            loader: PlacementId::new(ids::non_zero(request.placement, "CopyRequest.placement")?),
            source: PlacementId::new(ids::non_zero(request.source, "CopyRequest.source")?),
            epoch: Epoch::new(request.epoch),
            resume: Seq::new(request.start_seq),
        };
        let (answer, wait) = oneshot::channel();
        let pushed = self.shards.of(ask.partition).push(ShardMessage::CopyAsked { ask, answer }).await;
        pushed.map_err(|_| refuse(crate::node::state::shutting_down()))?;
        let offer = wait.await.map_err(|_| refuse(crate::node::state::shutting_down()))?.map_err(refuse)?;
        // A copy that cannot resume begins at its first key; the loader sees the other start.
        let after = if offer.start.resumed { request.after } else { Bytes::new() };
        let (sender, receiver) = mpsc::channel(PAGES_AHEAD);
        let service = self.clone();
        self.tasks.spawn(service.give(offer, after, request.bytes_per_second, sender));
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }

    async fn r#yield(&self, request: Request<v1::YieldRequest>) -> Result<Response<v1::YieldPage>, Status> {
        let (caller, request) = (Caller::of(&request), request.into_inner());
        self.check(
            &caller,
            "/archon.v1.Replication/Yield",
            request.cluster.as_ref(),
            request.sender.as_ref(),
            request.receiver,
            None,
        )
        .map_err(refuse)?;
        let right = PartitionId::try_from(required(request.partition, "YieldRequest.partition")?)?;
        let (answer, wait) = oneshot::channel();
        let (attempt, after) = (Version::new(request.attempt), request.after);
        let message = ShardMessage::YieldAsked { right, attempt, after, answer };
        let pushed = self.shards.of(right).push(message).await;
        pushed.map_err(|_| refuse(crate::node::state::shutting_down()))?;
        let page = wait.await.map_err(|_| refuse(crate::node::state::shutting_down()))?;
        let page = page.ok_or_else(|| {
            let why = format!("this node does not lead partition {right}, or it does not give its keys away yet");
            refuse(ErrorDetail::new(ErrorKind::Unavailable, why).with_retry_after_ms(20))
        })?;
        let EncodedRows { bytes: rows, crc32c } = encode(&page.rows);
        self.metrics.copy_bytes_out.add(rows.len() as u64);
        let (revision, log_time_ms) = (page.revision.get(), page.log_time.get());
        Ok(Response::new(v1::YieldPage { rows, crc32c, more: page.more, revision, log_time_ms }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_types::limits::PAGE_BYTES_MAX;

    #[test]
    fn copy_has_a_least_pace() {
        assert_eq!(due(PAGE_BYTES_MAX as u64, u64::MAX), Duration::ZERO);
        assert_eq!(due(PAGE_BYTES_MAX as u64, 1), Duration::from_millis(250));
        assert_eq!(due(64 << 20, 32 << 20), Duration::from_secs(2));
    }
}

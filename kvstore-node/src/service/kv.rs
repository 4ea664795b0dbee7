//! `Kv`: clients' operations, in streams and as plain calls.

use super::{overloaded, refuse};
use crate::admit::StreamAdmission;
use crate::inbox::PushError;
use crate::reply::{Connection, Delivery, ReplyTo};
use crate::shard::{OpRequest, ShardMessage, Shards};
use crate::shared::Shared;
use archon_proto::convert::ids;
use archon_proto::convert::kv::TaggedOp;
use archon_proto::convert::packed::{ReplyPacker, Unpacked, unpack_ops};
use archon_proto::v1;
use archon_proto::v1::kv_server::Kv;
use archon_types::limits::BATCH_OPS_MAX;
use archon_types::{Answer, ErrorDetail, ErrorKind, Millis, NodeId, Op, Revision, Version};
use futures::Stream;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

/// Bytes of values after which one answer message is closed and the next begun.
const REPLY_BYTES_MAX: usize = 1024 * 1024;
/// Answer messages that may wait for a slow client's stream.
const MESSAGES_AHEAD: usize = 4;

/// The service.
#[derive(Clone)]
pub(crate) struct KvService {
    pub(crate) shared: Arc<Shared>,
    pub(crate) shards: Shards,
    pub(crate) stop: CancellationToken,
    pub(crate) connections: Arc<AtomicU64>,
}

type Replies = Pin<Box<dyn Stream<Item = Result<v1::ReplyBatch, Status>> + Send>>;

impl KvService {
    /// Queues one message's operations with their shards; those that cannot be are answered at once.
    fn take(
        &self,
        batch: v1::OpBatch,
        connection: &Arc<Connection>,
        admission: &StreamAdmission,
    ) -> Result<(), ErrorDetail> {
        let known = Version::new(batch.table_version);
        let mut refused = crate::reply::Replies::default();
        let mut per_shard: BTreeMap<usize, Vec<OpRequest>> = BTreeMap::new();
        for Unpacked { tag, bytes, op } in unpack_ops(batch.ops)? {
            let permit = match admission.try_admit(bytes) {
                Ok(permit) => permit,
                Err(detail) if connection.refuse(tag, detail.clone()) => continue,
                Err(detail) => return Err(detail),
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

    /// Reads a client's stream until it ends, the node stops, or the client has gone.
    async fn read_stream(
        &self,
        mut stream: Streaming<v1::OpBatch>,
        connection: &Arc<Connection>,
        answers: &mpsc::Sender<Result<v1::ReplyBatch, Status>>,
    ) -> Result<(), ErrorDetail> {
        let admission = self.shared.admission.stream();
        let mut first = true;
        loop {
            let batch = tokio::select! {
                batch = stream.message() => batch,
                () = answers.closed() => return Ok(()),
                () = self.stop.cancelled() => return Err(crate::shared::shutting_down()),
            };
            let Ok(Some(batch)) = batch else { return Ok(()) };
            let named = batch.cluster.is_some() || batch.node != 0;
            if first || named {
                let node = (batch.node != 0).then_some(NodeId::new(batch.node));
                self.check(batch.cluster.as_ref(), node)?;
            }
            first = false;
            self.take(batch, connection, &admission)?;
        }
    }

    /// Checks whom a stream's first message, or a plain call, is meant for.
    pub(super) fn check(&self, cluster: Option<&v1::ClusterRef>, node: Option<NodeId>) -> Result<(), ErrorDetail> {
        let Some(life) = self.shared.life() else {
            let why = format!("node {} is not registered with a coordinator", self.shared.config.name);
            return Err(ErrorDetail::new(ErrorKind::Unavailable, why).with_retry_after_ms(100));
        };
        ids::check_cluster(cluster, life.member.cluster)?;
        match node {
            Some(node) => self.shared.addressed(life.member.cluster, node, None).map(drop),
            None => Ok(()),
        }
    }
}

/// Writes answers to a client's stream, those that have gathered meanwhile together.
async fn write_stream(
    shared: Arc<Shared>,
    mut answers: mpsc::UnboundedReceiver<Vec<Delivery>>,
    waiting: Arc<AtomicUsize>,
    sender: mpsc::Sender<Result<v1::ReplyBatch, Status>>,
) {
    while let Some(mut deliveries) = answers.recv().await {
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
            let batch = v1::ReplyBatch { replies: replies.finish(), table_version: shared.tables.version().get() };
            let sent = sender.send(Ok(batch)).await;
            waiting.fetch_sub(bytes, Ordering::AcqRel);
            // The operations' shares of admission are given back only now.
            drop(held);
            if sent.is_err() {
                return;
            }
        }
    }
}

fn unexpected(answer: &Answer) -> ErrorDetail {
    ErrorDetail::new(ErrorKind::Internal, format!("a shard answered a plain call by {answer:?}"))
}

#[tonic::async_trait]
impl Kv for KvService {
    type ExchangeStream = Replies;

    async fn exchange(&self, request: Request<Streaming<v1::OpBatch>>) -> Result<Response<Replies>, Status> {
        let stream = request.into_inner();
        let id = self.connections.fetch_add(1, Ordering::Relaxed);
        let (connection, answers) = Connection::new(id);
        let (sender, receiver) = mpsc::channel(MESSAGES_AHEAD);
        let waiting = connection.waiting();
        let service = self.clone();
        let errors = sender.clone();
        tokio::spawn(async move {
            if let Err(detail) = service.read_stream(stream, &connection, &errors).await {
                drop(errors.send(Err(refuse(detail))).await);
            }
        });
        let shared = Arc::clone(&self.shared);
        tokio::spawn(write_stream(shared, answers, waiting, sender));
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }

    async fn get(&self, request: Request<v1::GetRequest>) -> Result<Response<v1::GetResponse>, Status> {
        let request = request.into_inner();
        let op = Op::Get { key: request.key };
        match self.call(request.cluster.as_ref(), &request.table, op, None).await.map_err(refuse)? {
            (log_time, Answer::Value(value)) => {
                Ok(Response::new(v1::GetResponse { value: Some(value.into()), log_time_ms: log_time.get() }))
            }
            (_, other) => Err(refuse(unexpected(&other))),
        }
    }

    async fn put(&self, request: Request<v1::PutRequest>) -> Result<Response<v1::PutResponse>, Status> {
        let request = request.into_inner();
        let op = Op::Put { key: request.key, value: request.value };
        match self.call(request.cluster.as_ref(), &request.table, op, request.id).await.map_err(refuse)? {
            (log_time, Answer::Written { revision }) => {
                Ok(Response::new(v1::PutResponse { revision: revision.get(), log_time_ms: log_time.get() }))
            }
            (_, other) => Err(refuse(unexpected(&other))),
        }
    }

    async fn delete(&self, request: Request<v1::DeleteRequest>) -> Result<Response<v1::DeleteResponse>, Status> {
        let request = request.into_inner();
        let op = Op::Delete { key: request.key };
        match self.call(request.cluster.as_ref(), &request.table, op, request.id).await.map_err(refuse)? {
            (log_time, Answer::Deleted { existed }) => {
                Ok(Response::new(v1::DeleteResponse { existed, log_time_ms: log_time.get() }))
            }
            (_, other) => Err(refuse(unexpected(&other))),
        }
    }

    async fn compare_and_set(
        &self,
        request: Request<v1::CompareAndSetRequest>,
    ) -> Result<Response<v1::CompareAndSetResponse>, Status> {
        let request = request.into_inner();
        let expected = Revision::new(request.expected);
        let op = Op::CompareAndSet { key: request.key, expected, value: request.value };
        match self.call(request.cluster.as_ref(), &request.table, op, request.id).await.map_err(refuse)? {
            (log_time, Answer::Written { revision }) => {
                Ok(Response::new(v1::CompareAndSetResponse { revision: revision.get(), log_time_ms: log_time.get() }))
            }
            (_, Answer::ConditionFailed { revision }) => {
                let why = format!("the key has revision {revision}, not {expected}; nothing was changed");
                let detail = ErrorDetail::new(ErrorKind::ConditionFailed, why);
                Err(refuse(detail.with_have_need(revision.get(), expected.get())))
            }
            (_, other) => Err(refuse(unexpected(&other))),
        }
    }

    async fn increment(
        &self,
        request: Request<v1::IncrementRequest>,
    ) -> Result<Response<v1::IncrementResponse>, Status> {
        let request = request.into_inner();
        let op = Op::Increment { key: request.key, by: request.by };
        match self.call(request.cluster.as_ref(), &request.table, op, request.id).await.map_err(refuse)? {
            (log_time, Answer::Counter { value, revision }) => {
                let revision = revision.get();
                Ok(Response::new(v1::IncrementResponse { value, revision, log_time_ms: log_time.get() }))
            }
            (_, Answer::NotANumber) => {
                let why = "the value is not a decimal integer that the sum fits into; nothing was changed";
                Err(refuse(ErrorDetail::new(ErrorKind::WrongValueType, why)))
            }
            (_, other) => Err(refuse(unexpected(&other))),
        }
    }

    async fn scan(&self, request: Request<v1::ScanRequest>) -> Result<Response<v1::ScanResponse>, Status> {
        match self.page(request.into_inner()).await.map_err(refuse)? {
            (log_time, Answer::Page { entries, more }) => {
                let page = v1::AnswerPage { entries: entries.into_iter().map(Into::into).collect(), more };
                Ok(Response::new(v1::ScanResponse { page: Some(page), log_time_ms: log_time.get() }))
            }
            (_, other) => Err(refuse(unexpected(&other))),
        }
    }

    async fn batch(&self, request: Request<v1::BatchRequest>) -> Result<Response<v1::BatchResponse>, Status> {
        let replies = self.several(request.into_inner()).await.map_err(refuse)?;
        Ok(Response::new(v1::BatchResponse { replies }))
    }
}

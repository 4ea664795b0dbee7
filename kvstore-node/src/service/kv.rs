//! `Kv`: client operations as unary calls. `exchange.rs` has the streams.

use super::refuse;
use super::reply::{Connection, Delivery};
use super::snapshot::Pages;
use crate::engine::Engine;
use crate::node::state::NodeState;
use crate::shard::Shards;
use archon_proto::convert::ids;
use archon_proto::convert::kv::key_range::range_field;
use archon_proto::v1;
use archon_proto::v1::kv_server::Kv;
use archon_security::Caller;
use archon_types::{Answer, ErrorDetail, ErrorKind, Expiry, NodeId, Op, Revision};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::{Request, Response, Status};

/// The service.
#[derive(Clone)]
pub(crate) struct KvService {
    pub(crate) shared: Arc<NodeState>,
    pub(crate) shards: Shards,
    pub(crate) stop: CancellationToken,
    pub(crate) connections: Arc<AtomicU64>,
    pub(crate) engine: Arc<dyn Engine>,
    /// Owns the tasks that send snapshots; the node awaits them when it stops.
    pub(crate) tasks: TaskTracker,
}

impl KvService {
    /// Creates the way back to a client that has many operations in progress, and its end.
    pub(super) fn connection(&self) -> (Arc<Connection>, mpsc::UnboundedReceiver<Vec<Delivery>>) {
        Connection::new(self.connections.fetch_add(1, Ordering::Relaxed))
    }

    /// Checks the intended receiver of a stream's first message, or of a unary call.
    pub(super) fn check(&self, cluster: Option<&v1::ClusterRef>, node: Option<NodeId>) -> Result<(), ErrorDetail> {
        let Some(life) = self.shared.life() else {
            let why = format!("node {} is not registered with a coordinator", self.shared.config.name);
            return Err(ErrorDetail::new(ErrorKind::Unavailable, why).with_retry_after_ms(100));
        };
        ids::check_cluster(cluster, life.member.cluster)?;
        match node {
            Some(node) => self.shared.membership.addressed(life.member.cluster, node, None).map(drop),
            None => Ok(()),
        }
    }
}

fn unexpected(answer: &Answer) -> ErrorDetail {
    ErrorDetail::new(ErrorKind::Internal, format!("a shard answered a plain call by {answer:?}"))
}

fn expiry_of(wire: v1::Expiry) -> Result<Expiry, Status> {
    Expiry::try_from(wire).map_err(|error| refuse(error.into()))
}

fn parted<T>(request: Request<T>) -> (Caller, T) {
    (Caller::of(&request), request.into_inner())
}

#[tonic::async_trait]
impl Kv for KvService {
    async fn get(&self, request: Request<v1::GetRequest>) -> Result<Response<v1::GetResponse>, Status> {
        let (caller, request) = parted(request);
        let op = Op::Get { key: request.key };
        match self.call(&caller, request.cluster.as_ref(), &request.table, op, None).await? {
            (log_time, Answer::Value(value)) => {
                Ok(Response::new(v1::GetResponse { value: Some(value.into()), log_time_ms: log_time.get() }))
            }
            (_, other) => Err(refuse(unexpected(&other))),
        }
    }

    async fn get_stale(&self, request: Request<v1::GetStaleRequest>) -> Result<Response<v1::GetStaleResponse>, Status> {
        let (caller, request) = parted(request);
        let row = self.stale(&caller, request).await.map_err(refuse)?;
        let as_of_revision = row.as_of.get();
        Ok(Response::new(v1::GetStaleResponse { value: Some(row.found.into()), as_of_revision }))
    }

    async fn put(&self, request: Request<v1::PutRequest>) -> Result<Response<v1::PutResponse>, Status> {
        let (caller, request) = parted(request);
        let op = Op::write(request.key, request.value, None, request.expiry.map(expiry_of).transpose()?);
        match self.call(&caller, request.cluster.as_ref(), &request.table, op, request.id).await? {
            (log_time, Answer::Written { revision }) => {
                Ok(Response::new(v1::PutResponse { revision: revision.get(), log_time_ms: log_time.get() }))
            }
            (_, other) => Err(refuse(unexpected(&other))),
        }
    }

    async fn delete(&self, request: Request<v1::DeleteRequest>) -> Result<Response<v1::DeleteResponse>, Status> {
        let (caller, request) = parted(request);
        let op = Op::Delete { key: request.key };
        match self.call(&caller, request.cluster.as_ref(), &request.table, op, request.id).await? {
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
        let (caller, request) = parted(request);
        let expected = Revision::new(request.expected);
        let op = Op::write(request.key, request.value, Some(expected), request.expiry.map(expiry_of).transpose()?);
        match self.call(&caller, request.cluster.as_ref(), &request.table, op, request.id).await? {
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
        let (caller, request) = parted(request);
        let op = Op::Increment { key: request.key, by: request.by };
        match self.call(&caller, request.cluster.as_ref(), &request.table, op, request.id).await? {
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
        let (caller, request) = parted(request);
        match self.page(&caller, request).await.map_err(refuse)? {
            (log_time, Answer::Page { entries, more, range }) => {
                let page = v1::AnswerPage {
                    entries: entries.into_iter().map(Into::into).collect(),
                    more,
                    range: range_field(range),
                };
                Ok(Response::new(v1::ScanResponse { page: Some(page), log_time_ms: log_time.get() }))
            }
            (_, other) => Err(refuse(unexpected(&other))),
        }
    }

    async fn batch(&self, request: Request<v1::BatchRequest>) -> Result<Response<v1::BatchResponse>, Status> {
        let (caller, request) = parted(request);
        let replies = self.several(&caller, request).await.map_err(refuse)?;
        Ok(Response::new(v1::BatchResponse { replies }))
    }

    type SnapshotStream = Pages;

    async fn snapshot(&self, request: Request<v1::SnapshotRequest>) -> Result<Response<Self::SnapshotStream>, Status> {
        let (caller, request) = parted(request);
        let pages = self.give_snapshot(&caller, request).await.map_err(refuse)?;
        Ok(Response::new(pages))
    }
}

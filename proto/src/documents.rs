//! The generic gRPC call of the administration: a document there, a document back (ADR 0089).
//!
//! The path names the method, so that rights, traces and logs see it before the message is read. Neither side knows the documents here:
//! both are bytes, and this code exists once, not once per method.

use crate::trace::TracedChannel;
use crate::v1::{AdminAnswer, AdminRequest};
pub use archon_documents::ANSWER_BYTES_MAX;
use archon_documents::{Method, SERVICE, method_at};
use archon_types::limits::MESSAGE_BYTES_MAX;
use futures::future::BoxFuture;
use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::server::{NamedService, UnaryService};
use tonic::{GrpcMethod, Request, Response, Status};
use tonic_prost::ProstCodec;

/// Bytes of a message beside its document.
const ENVELOPE_BYTES: usize = 1024;

/// Largest document in an answer.
pub const DOCUMENT_BYTES_MAX: usize = ANSWER_BYTES_MAX - 1024;

/// Calls a method.
///
/// # Errors
/// The status that the call ended with.
pub async fn call(
    channel: TracedChannel,
    method: &'static Method,
    mut request: Request<AdminRequest>,
) -> Result<Response<AdminAnswer>, Status> {
    let grpc = tonic::client::Grpc::new(channel);
    let bytes_max = ANSWER_BYTES_MAX + ENVELOPE_BYTES;
    let mut grpc = grpc.max_decoding_message_size(bytes_max).max_encoding_message_size(bytes_max);
    grpc.ready().await.map_err(|error| Status::unknown(format!("the connection is not ready: {error}")))?;
    request.extensions_mut().insert(GrpcMethod::new(SERVICE, method.name));
    let path = http::uri::PathAndQuery::from_static(method.path);
    grpc.unary(request, path, ProstCodec::default()).await
}

/// A future answer.
pub type AnswerFuture = BoxFuture<'static, Result<Response<AdminAnswer>, Status>>;

/// Answers methods.
pub trait AnswerDocuments: Send + Sync + 'static {
    /// Answers one call.
    fn answer(self: Arc<Self>, method: &'static Method, request: Request<AdminRequest>) -> AnswerFuture;
}

/// The gRPC service of the methods; other calls of the same service go to `others`.
pub struct DocumentService<A, S> {
    answers: Arc<A>,
    others: S,
}

impl<A, S> DocumentService<A, S> {
    /// A service that has methods answered by `answers`.
    pub const fn new(answers: Arc<A>, others: S) -> Self {
        Self { answers, others }
    }
}

impl<A, S: Clone> Clone for DocumentService<A, S> {
    fn clone(&self) -> Self {
        Self { answers: Arc::clone(&self.answers), others: self.others.clone() }
    }
}

impl<A, S> fmt::Debug for DocumentService<A, S> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("DocumentService").finish_non_exhaustive()
    }
}

impl<A, S> NamedService for DocumentService<A, S> {
    const NAME: &'static str = SERVICE;
}

impl<A, S> Service<http::Request<Body>> for DocumentService<A, S>
where
    A: AnswerDocuments,
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<http::Response<Body>, Infallible>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.others.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let Some(method) = method_at(request.uri().path()) else { return Box::pin(self.others.call(request)) };
        let answers: Arc<dyn AnswerDocuments> = Arc::<A>::clone(&self.answers);
        Box::pin(async move { Ok(answer(OneMethod { answers, method }, request).await) })
    }
}

/// Reads the message, has it answered, and writes the answer. Not generic: compiled once.
async fn answer(one: OneMethod, request: http::Request<Body>) -> http::Response<Body> {
    let grpc = tonic::server::Grpc::new(ProstCodec::default());
    let bytes_max = one.method.request_bytes_max.max(MESSAGE_BYTES_MAX) + ENVELOPE_BYTES;
    let mut grpc = grpc.max_decoding_message_size(bytes_max).max_encoding_message_size(usize::MAX);
    grpc.unary(one, request).await
}

/// One method with who answers it.
struct OneMethod {
    answers: Arc<dyn AnswerDocuments>,
    method: &'static Method,
}

impl UnaryService<AdminRequest> for OneMethod {
    type Response = AdminAnswer;
    type Future = AnswerFuture;

    fn call(&mut self, request: Request<AdminRequest>) -> AnswerFuture {
        Arc::clone(&self.answers).answer(self.method, request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_documents::{TableSummary, Tables, write};
    use archon_types::limits::{NAME_BYTES_MAX, TABLES_MAX};
    use archon_types::{KeysBy, TableContent};

    #[test]
    fn list_of_most_tables_fits_into_answer() {
        let table = TableSummary {
            id: u64::MAX,
            name: "t".repeat(NAME_BYTES_MAX),
            partitions_total: u32::MAX,
            keys: KeysBy::Range.into(),
            split_above_bytes: Some(u64::MAX),
            split_above_rate: Some(u64::MAX),
            merge_below_bytes: Some(u64::MAX),
            replication: u32::MAX,
            holds: TableContent::Lease.into(),
            version: u64::MAX,
        };
        let bytes = write(&Tables { tables: vec![table; TABLES_MAX] }).unwrap().len();
        assert!(bytes <= DOCUMENT_BYTES_MAX, "{bytes}");
    }
}

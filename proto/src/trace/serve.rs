//! Incoming calls with trace context.

use super::current::{begun, within};
use super::{TRACEPARENT, parts};
use archon_types::TraceContext;
use futures::FutureExt as _;
use futures::future::{BoxFuture, Either};
use std::task::{Context, Poll};
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tower_layer::Layer;
use tracing::instrument::Instrument as _;
use tracing::{Span, debug};

/// Returns the context of a request: `None` if the header is missing, repeated or malformed.
pub fn of_header(headers: &http::HeaderMap) -> Option<TraceContext> {
    let mut said = headers.get_all(TRACEPARENT).iter();
    let (first, more) = (said.next()?, said.next());
    first.to_str().ok().filter(|_| more.is_none()).and_then(TraceContext::parse)
}

/// Longest recorded name of a service or a method, in bytes: callers choose it, and must not be able to fill a
/// collector's queue.
const NAME_BYTES_MAX: usize = 64;

fn bounded(name: &str) -> &str {
    if name.len() > NAME_BYTES_MAX { "(a long name)" } else { name }
}

/// A request of a trace, while it is answered.
#[derive(Debug)]
pub struct RequestSpan {
    span: Span,
    own: TraceContext,
}

impl RequestSpan {
    /// Begins a span under the caller's.
    pub fn begin(caller: TraceContext, service: &str, method: &str) -> Self {
        let (service, method) = (bounded(service), bounded(method));
        let span = span_of_call!("request", "server", service, method, caller, code);
        let own = begun(&span, caller, true);
        Self { span, own }
    }

    /// Runs the synchronous part of the work.
    pub fn within<T>(&self, work: impl FnOnce() -> T) -> T {
        self.span.in_scope(work)
    }

    /// Runs the rest; its calls are part of the trace.
    pub async fn finish<F: Future>(self, work: F) -> F::Output {
        within(self.own, work).instrument(self.span).await
    }
}

/// Layer that answers each traced call within its own span.
#[derive(Clone, Copy, Debug, Default)]
pub struct TraceLayer;

impl<S> Layer<S> for TraceLayer {
    type Service = TracedService<S>;

    fn layer(&self, inner: S) -> TracedService<S> {
        TracedService(inner)
    }
}

/// A service with spans for traced calls.
#[derive(Clone, Debug)]
pub struct TracedService<S>(S);

impl<S> Service<http::Request<Body>> for TracedService<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Either<S::Future, BoxFuture<'static, Result<S::Response, S::Error>>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let Some(caller) = of_header(request.headers()) else { return Either::Left(self.0.call(request)) };
        let path = request.uri().path().to_owned();
        let (service, method) = parts(&path);
        let span = RequestSpan::begin(caller, service, method);
        // A refusal comes at once, and is logged.
        let answer = span.within(|| self.0.call(request));
        let work = async move {
            let response = answer.await;
            // A refusal has its code in the head, a success has it after the message.
            let code = response.as_ref().ok().and_then(|response| response.headers().get("grpc-status"));
            let code = code.and_then(|code| code.to_str().ok()).unwrap_or("0");
            Span::current().record("code", code);
            debug!(code, "answered");
            response
        };
        Either::Right(span.finish(work).boxed())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{TracedChannel, current};
    use super::*;
    use crate::v1;
    use crate::v1::table_client::TableClient;
    use crate::v1::table_server::{self, TableServer};
    use tonic::codegen::http::HeaderValue;

    const HEADER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    /// Answers with its own context.
    #[derive(Clone)]
    struct ContextEcho;

    impl Service<http::Request<Body>> for ContextEcho {
        type Response = http::Response<Body>;
        type Error = std::convert::Infallible;
        type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: http::Request<Body>) -> Self::Future {
            async {
                let mut response = http::Response::new(Body::empty());
                if let Some(context) = current() {
                    response.headers_mut().insert(TRACEPARENT, context.to_string().parse().unwrap());
                }
                Ok(response)
            }
            .boxed()
        }
    }

    async fn told(headers: &[&[u8]]) -> Option<TraceContext> {
        let mut request = http::Request::new(Body::empty());
        for header in headers {
            request.headers_mut().append(TRACEPARENT, HeaderValue::from_bytes(header).unwrap());
        }
        let response = TraceLayer.layer(ContextEcho).call(request).await.unwrap();
        of_header(response.headers())
    }

    #[tokio::test]
    async fn answer_is_part_of_the_callers_trace_in_its_own_span() {
        let caller = TraceContext::parse(HEADER).unwrap();
        let own = told(&[HEADER.as_bytes()]).await.expect("a trace");
        assert_eq!((own.trace(), own.is_sampled()), (caller.trace(), true));
        assert_ne!(own.span(), caller.span());
        assert_eq!(current(), None, "it is over");
    }

    #[tokio::test]
    async fn malformed_context_is_ignored() {
        let long = [HEADER.as_bytes(), &[b'0'; 8_000]].concat();
        for hostile in [&b""[..], b"00", b"\xff\xfe", &long, b"ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"]
        {
            assert_eq!(told(&[hostile]).await, None);
        }
        assert_eq!(told(&[HEADER.as_bytes(), HEADER.as_bytes()]).await, None, "which of them is meant?");
        assert_eq!(told(&[]).await, None);
    }

    #[tokio::test]
    async fn call_passes_the_trace_on() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let incoming = tonic::transport::server::TcpIncoming::from(listener);
        let server = tonic::transport::Server::builder().layer(TraceLayer).add_service(TableServer::new(Table));
        let serving = tokio::spawn(server.serve_with_incoming(incoming));
        let channel = tonic::transport::Endpoint::from_shared(format!("http://{address}")).unwrap().connect_lazy();
        let mut client = TableClient::new(TracedChannel::from(channel));
        let ask = client.get_table(v1::GetTableRequest::default());
        let caller = TraceContext::parse(HEADER).unwrap();
        let status = within(caller, ask).await.unwrap_err();
        let own = TraceContext::parse(status.message()).expect("the server was in a trace");
        assert!(own.trace() == caller.trace() && own.span() != caller.span(), "{own} of {caller}");
        let status = client.get_table(v1::GetTableRequest::default()).await.unwrap_err();
        assert_eq!(status.message(), "no trace");
        serving.abort();
    }

    /// Answers with its own trace.
    struct Table;

    #[tonic::async_trait]
    impl table_server::Table for Table {
        async fn get_table(
            &self,
            _: tonic::Request<v1::GetTableRequest>,
        ) -> Result<tonic::Response<v1::GetTableResponse>, tonic::Status> {
            let context = current().map_or_else(|| "no trace".to_owned(), |context| context.to_string());
            Err(tonic::Status::not_found(context))
        }
    }
}

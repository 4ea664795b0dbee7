//! Responses of gRPC: counted from the end of a call until the caller has read them.

use archon_proto::convert::error::status_of;
use archon_proto::guarded_connection::Connection;
use archon_security::{CallPermit, CallQuota, Caller, CountedBody, UnreadAccount, UnreadBudget};
use archon_types::ErrorDetail;
use http_body::Frame;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tower_layer::Layer;

/// Calls with streamed responses. Their callers can pause for longer, since they do other work between messages.
const STREAMING: [&str; 3] =
    ["/archon.v1.Kv/Snapshot", HEALTH_WATCH, "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"];

/// The call that watches the health of a member.
const HEALTH_WATCH: &str = "/grpc.health.v1.Health/Watch";

/// Bounds the responses that a gRPC server holds because their callers do not read them, and the calls in progress of each caller. Calls between members have a
/// budget of their own, as with [`PartialBodies`](crate::PartialBodies). This is the outermost layer: it also gives each
/// request the [`Caller`](archon_security::Caller) of its connection.
#[derive(Clone, Debug)]
pub struct BoundedResponses {
    others: UnreadBudget,
    members: UnreadBudget,
    calls: CallQuota,
    watches: CallQuota,
    /// Prefix of the paths that members call.
    members_call: &'static str,
}

impl BoundedResponses {
    /// `members` is the budget of calls to paths under `members_call` (`/package.Service/`), `others` of all others.
    pub fn new(others: UnreadBudget, members: UnreadBudget, members_call: &'static str) -> Self {
        Self { others, members, calls: CallQuota::calls(), watches: CallQuota::watches(), members_call }
    }

    /// Replaces the quota of calls in progress.
    #[must_use]
    pub fn with_calls(self, calls: CallQuota) -> Self {
        Self { calls, ..self }
    }

    /// Counts a call that other members do not make against its caller's quota.
    fn enter(&self, path: &str, caller: &Caller) -> Result<Option<CallPermit>, ErrorDetail> {
        if path.starts_with(self.members_call) {
            return Ok(None);
        }
        let quota = if path == HEALTH_WATCH { &self.watches } else { &self.calls };
        quota.enter(caller).map(Some)
    }
}

impl<S> Layer<S> for BoundedResponses {
    type Service = CountedResponses<S>;

    fn layer(&self, inner: S) -> CountedResponses<S> {
        CountedResponses { inner, responses: self.clone() }
    }
}

/// A service with counted responses.
#[derive(Clone, Debug)]
pub struct CountedResponses<S> {
    inner: S,
    responses: BoundedResponses,
}

impl<S> Service<http::Request<Body>> for CountedResponses<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: http::Request<Body>) -> Self::Future {
        let Some(connection) = request.extensions_mut().remove::<Connection>() else {
            // A test server, with connections that have no place.
            return Box::pin(self.inner.call(request));
        };
        let path = request.uri().path();
        let ours = path.starts_with(self.responses.members_call);
        let budget = if ours { &self.responses.members } else { &self.responses.others }.clone();
        let admitted = connection.identify().and_then(|()| budget.check(connection.caller.from, 0));
        let call = match admitted.and_then(|()| self.responses.enter(path, &connection.caller)) {
            Ok(call) => call,
            Err(detail) => return Box::pin(std::future::ready(Ok(status_of(&detail).into_http()))),
        };
        let streamed = STREAMING.contains(&path);
        request.extensions_mut().insert(connection.caller.clone());
        let response = self.inner.call(request);
        Box::pin(async move {
            let response = response.await?;
            let account =
                UnreadAccount { unread: Arc::clone(&connection.unread), budget, from: connection.caller.from };
            // The place of the connection and the call are held until the body ends.
            let refuse = move |detail: ErrorDetail| {
                let _held = (&connection, &call);
                let mut trailers = http::HeaderMap::new();
                status_of(&detail).add_header(&mut trailers).map(|()| Frame::trailers(trailers))
            };
            Ok(response.map(|body| Body::new(CountedBody::new(body, account, streamed, refuse))))
        })
    }
}

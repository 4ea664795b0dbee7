//! Outgoing calls with trace context.

use super::current::{begun, current};
use super::{TRACEPARENT, parts};
use futures::future::Either;
use std::task::{Context, Poll};
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::transport::Channel;
use tracing::instrument::{Instrument, Instrumented};

/// A channel that passes on the trace of its caller.
#[derive(Clone, Debug)]
pub struct TracedChannel(Channel);

impl From<Channel> for TracedChannel {
    fn from(channel: Channel) -> Self {
        Self(channel)
    }
}

type Answer = <Channel as Service<http::Request<Body>>>::Future;

impl Service<http::Request<Body>> for TracedChannel {
    type Response = http::Response<Body>;
    type Error = tonic::transport::Error;
    type Future = Either<Answer, Instrumented<Answer>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, mut request: http::Request<Body>) -> Self::Future {
        let Some(parent) = current() else { return Either::Left(self.0.call(request)) };
        let (service, method) = parts(request.uri().path());
        let span = span_of_call!("call", "client", service, method, parent);
        let own = begun(&span, parent, false);
        if let Ok(header) = own.to_string().parse() {
            request.headers_mut().insert(TRACEPARENT, header);
        }
        let answer = span.in_scope(|| self.0.call(request));
        Either::Right(answer.instrument(span))
    }
}

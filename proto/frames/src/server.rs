//! The gRPC server of coordinators and nodes.

use crate::{BoundedResponses, PartialBodies};
use archon_proto::authority::Authority;
use archon_proto::guarded_connection::GuardedConnection;
use archon_proto::trace::TraceLayer;
use std::io;
use std::pin::Pin;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tonic::transport::Server;

/// Most requests at once on one connection.
const STREAMS_MAX: u32 = 128;

/// Settings of HTTP/2 connections.
#[derive(Clone, Copy, Debug)]
pub struct GrpcSettings {
    /// Silence on a connection after which the server pings it.
    pub keepalive_interval: Duration,
    /// Longest time from a ping to its answer; then the connection is closed.
    pub keepalive_timeout: Duration,
    /// The flow-control window of one request, in bytes; `None` is the library's default.
    pub stream_window_bytes: Option<u32>,
    /// The flow-control window of one connection, in bytes; `None` is the library's default.
    pub connection_window_bytes: Option<u32>,
}

/// A running server. It ends at its token, or with an error of the library.
pub type ServerFuture = Pin<Box<dyn Future<Output = Result<(), tonic::transport::Error>> + Send>>;

/// Services with the layers that each call passes, from outside to inside: bounded responses, traces, authority, bounded requests.
///
/// The HTTP/2 library is generic in connections and services. This type names both, and its future is boxed (a future that is not is
/// compiled by each crate that polls it), so that the library is compiled once.
#[derive(Clone, Debug)]
pub struct GrpcServer {
    /// Settings of its connections.
    pub settings: GrpcSettings,
    /// The services.
    pub routes: Routes,
    /// Bounds what callers do not read.
    pub responses: BoundedResponses,
    /// Refuses calls that the caller may not make.
    pub authority: Authority,
    /// Bounds requests that have not arrived whole.
    pub partial: PartialBodies,
}

impl GrpcServer {
    /// Serves connections until `end`, then until the calls in progress have ended.
    ///
    /// # Errors
    /// An error of the library, which ends the server.
    pub fn serve(
        self,
        connections: mpsc::Receiver<io::Result<GuardedConnection>>,
        end: CancellationToken,
    ) -> ServerFuture {
        let Self { settings, routes, responses, authority, partial } = self;
        let served = Server::builder()
            .max_concurrent_streams(STREAMS_MAX)
            .initial_stream_window_size(settings.stream_window_bytes)
            .initial_connection_window_size(settings.connection_window_bytes)
            .http2_keepalive_interval(Some(settings.keepalive_interval))
            .http2_keepalive_timeout(Some(settings.keepalive_timeout))
            .layer(responses)
            .layer(TraceLayer)
            .layer(authority)
            .layer(partial)
            .add_routes(routes)
            .serve_with_incoming_shutdown(ReceiverStream::new(connections), end.cancelled_owned());
        Box::pin(served)
    }
}

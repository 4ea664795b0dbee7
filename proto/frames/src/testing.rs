//! Servers of fake members for tests: gRPC calls and frame streams on loopback.

use crate::{FrameReader, FrameWriter, IncomingConnections, PARTIAL_BYTES_MAX, PartialBudget, StreamKind, sort};
use archon_security::Transport;
use archon_security::connection_limit::ConnectionLimit;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::service::Routes;
use tonic::transport::Server;

/// Maximum number of concurrent connections. A quarter of them may be unidentified, as on other listeners.
const CONNECTIONS_MAX: usize = 1_024;

/// Server of a fake member, without TLS. It has a thread with a runtime of its own, so it answers even while a test blocks
/// its runtime. Its end breaks all connections at once, like the end of a process.
#[derive(Debug)]
pub struct FakeServer {
    address: SocketAddr,
    end: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl FakeServer {
    /// Starts a server at an address (`127.0.0.1:0` for a free port) with these gRPC services. `streams` serves each frame
    /// stream, until the returned future ends.
    ///
    /// # Errors
    /// If it cannot listen, or cannot start a thread.
    pub fn start<F: Future<Output = ()> + Send>(
        address: &str,
        routes: Routes,
        streams: impl Fn(StreamKind, FrameReader, FrameWriter) -> F + Clone + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let (address, end) = (listener.local_addr()?, CancellationToken::new());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let ended = end.clone();
        let thread = thread::Builder::new().name("fake-server".to_owned()).spawn(move || {
            runtime.block_on(async {
                if let Err(error) = serve(listener, routes, streams, ended).await {
                    // A test shows this with its failure; few install a subscriber of events.
                    eprintln!("a fake server failed: {error}");
                }
            });
            runtime.shutdown_background();
        })?;
        Ok(Self { address, end, thread: Some(thread) })
    }

    /// Starts a server on a free port that closes frame streams at once.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn of_calls(routes: Routes) -> io::Result<Self> {
        Self::start("127.0.0.1:0", routes, |_, _, _| async {})
    }

    /// Returns its address.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Ends the server, as dropping it does. When this returns, all connections are broken and nothing listens at the address.
    pub fn end(&mut self) {
        self.end.cancel();
        if let Some(thread) = self.thread.take() {
            // It has printed a panic.
            let _ = thread.join();
        }
    }
}

impl Drop for FakeServer {
    fn drop(&mut self) {
        self.end();
    }
}

/// Serves until `end`, or until gRPC fails.
async fn serve<F: Future<Output = ()> + Send>(
    listener: TcpListener,
    routes: Routes,
    streams: impl Fn(StreamKind, FrameReader, FrameWriter) -> F + Clone + Send + Sync + 'static,
    end: CancellationToken,
) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let incoming = IncomingConnections::new(
        listener,
        ConnectionLimit::with_address_max(CONNECTIONS_MAX, CONNECTIONS_MAX, Arc::default()),
        Transport::default(),
    );
    let (grpc, connections) = mpsc::channel(CONNECTIONS_MAX);
    let served = Server::builder().add_routes(routes).serve_with_incoming(ReceiverStream::new(connections));
    let budget = PartialBudget::new(PARTIAL_BYTES_MAX);
    let failed = |error: &io::Error| tracing::warn!(%error, "a fake server could not accept a connection");
    let serve = move |_, kind, reader, writer| streams(kind, reader, writer);
    tokio::select! {
        () = sort(incoming, grpc, budget, TaskTracker::new(), end.clone(), failed, serve) => Ok(()),
        served = served => served.map_err(io::Error::other),
    }
}

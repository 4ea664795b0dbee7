//! Metrics server: a separate listener for scrapes and probes. HTTP, `GET` only, few connections, each for one
//! request and a few seconds. Connections are limited as on other listeners: one without a complete head makes room
//! for a newer one. It shares neither port nor threads with the cluster's server, so neither can block the other.

use crate::exposition::{Format, render};
use crate::source::Source;
use archon_security::connection_limit::{CallerKind, ConnectionLimit, Entry};
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

/// Maximum number of connections. A quarter of them can be without a complete head, and an eighth is reserved for
/// this machine.
pub const CONNECTIONS_MAX: usize = 32;
/// Maximum number of requests per address, and of its connections without a complete head.
const ADDRESS_MAX: usize = 4;
/// Deadline of a complete head, from the start of its connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum duration of a connection, including its answer.
pub const TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum size of a request's head, in bytes.
pub const HEADER_BYTES_MAX: usize = 8 * 1024;
/// Maximum number of headers of a request.
const HEADERS_MAX: usize = 64;
/// Delay after a failed accept.
const ACCEPT_AGAIN: Duration = Duration::from_millis(20);
/// Time for open connections to finish when the server closes.
pub const CLOSE_DEADLINE: Duration = Duration::from_secs(2);

const PLAIN: &str = "text/plain; charset=utf-8";
const PATHS: &str = "/metrics, /livez and /readyz";

/// A running metrics server. Dropping it closes it; [`MetricsServer::close`] also waits for that.
#[derive(Debug)]
pub struct MetricsServer {
    address: SocketAddr,
    end: DropGuard,
    accepting: JoinHandle<()>,
    connections: TaskTracker,
}

impl MetricsServer {
    /// Serves the data of `source` on `listener` until closed. Must be called within a runtime.
    ///
    /// # Errors
    /// The listener has no address.
    pub fn open(listener: TcpListener, source: Arc<dyn Source>) -> std::io::Result<Self> {
        let address = listener.local_addr()?;
        let end = CancellationToken::new();
        let connections = TaskTracker::new();
        let shared = Arc::new(ServerState { source, rendering: Arc::new(Semaphore::new(1)) });
        let accepting = tokio::spawn(accept(listener, shared, connections.clone(), end.clone()));
        tracing::info!(%address, "serving metrics and health");
        Ok(Self { address, end: end.drop_guard(), accepting, connections })
    }

    /// Returns the address, with the actual port if port 0 was requested.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Closes the server. Pending requests get no answer.
    pub async fn close(self) {
        drop(self.end);
        self.connections.close();
        let ended = tokio::time::timeout(CLOSE_DEADLINE, async {
            if let Err(error) = self.accepting.await {
                tracing::error!(%error, "the metrics server failed");
            }
            self.connections.wait().await;
        });
        if ended.await.is_err() {
            tracing::warn!("connections of the metrics server did not end in time");
        }
    }
}

/// State of all connections.
struct ServerState {
    source: Arc<dyn Source>,
    /// Limits rendering to one thread, however many scrapes there are.
    rendering: Arc<Semaphore>,
}

async fn accept(listener: TcpListener, shared: Arc<ServerState>, connections: TaskTracker, end: CancellationToken) {
    let connection_limit = ConnectionLimit::with_address_max(CONNECTIONS_MAX, ADDRESS_MAX, Arc::default());
    loop {
        let accepted = tokio::select! {
            () = end.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let (stream, entry) = match accepted {
            Ok((stream, from)) => (stream, connection_limit.enter(from.ip())),
            Err(error) => {
                tracing::debug!(%error, "a connection to the metrics server could not be accepted");
                tokio::time::sleep(ACCEPT_AGAIN).await;
                continue;
            }
        };
        let (shared, end, entry) = (Arc::clone(&shared), end.clone(), Arc::new(entry));
        connections.spawn(async move {
            tokio::select! {
                () = end.cancelled() => {}
                () = entry.shed() => tracing::debug!("a connection of the metrics server was closed in favour of a \
                                                      newer one"),
                served = tokio::time::timeout(TIMEOUT, serve(stream, shared, Arc::clone(&entry))) => match served {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => tracing::debug!(%error, "a request to the metrics server failed"),
                    Err(_) => tracing::debug!("a request to the metrics server took too long"),
                },
            }
        });
    }
}

/// Serves one request.
async fn serve(stream: TcpStream, shared: Arc<ServerState>, entry: Arc<Entry>) -> hyper::Result<()> {
    let service = service_fn(move |request| {
        let (shared, entry) = (Arc::clone(&shared), Arc::clone(&entry));
        async move {
            // Probes of this machine do not compete with scrapes.
            let kind = if entry.from().is_loopback() { CallerKind::Member } else { CallerKind::Client };
            Ok::<_, Infallible>(match entry.identify(kind) {
                Ok(()) => answer(&request, shared).await,
                Err(refusal) => plain(StatusCode::SERVICE_UNAVAILABLE, format!("{refusal}\n")),
            })
        }
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .keep_alive(false)
        .max_buf_size(HEADER_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .serve_connection(TokioIo::new(stream), service)
        .await
}

async fn answer(request: &Request<Incoming>, shared: Arc<ServerState>) -> Response<Full<Bytes>> {
    if request.method() != Method::GET {
        let mut refusal = plain(StatusCode::METHOD_NOT_ALLOWED, "only GET is answered here\n".to_owned());
        refusal.headers_mut().insert(ALLOW, HeaderValue::from_static("GET"));
        return refusal;
    }
    match request.uri().path() {
        "/metrics" => {
            let accept = request.headers().get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
            metrics(shared, Format::accepted(accept)).await
        }
        "/livez" => health_answer(shared.source.alive()),
        "/readyz" => health_answer(shared.source.ready()),
        _ => plain(StatusCode::NOT_FOUND, format!("there is nothing here; there are {PATHS}\n")),
    }
}

/// Renders the metrics on a thread for blocking work, because it makes many system calls.
async fn metrics(shared: Arc<ServerState>, format: Format) -> Response<Full<Bytes>> {
    let Ok(turn) = Arc::clone(&shared.rendering).acquire_owned().await else { return not_rendered() };
    let rendered = tokio::task::spawn_blocking(move || {
        let rendered = render(shared.source.families(), format);
        drop(turn);
        rendered
    });
    match rendered.await {
        Ok(Ok(text)) => response(StatusCode::OK, format.content_type(), text),
        _ => not_rendered(),
    }
}

fn not_rendered() -> Response<Full<Bytes>> {
    plain(StatusCode::INTERNAL_SERVER_ERROR, "the metrics could not be read; see the log\n".to_owned())
}

fn health_answer(verdict: Result<(), String>) -> Response<Full<Bytes>> {
    match verdict {
        Ok(()) => plain(StatusCode::OK, "ok\n".to_owned()),
        Err(why) => plain(StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
    }
}

fn plain(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    response(status, PLAIN, text)
}

fn response(status: StatusCode, content_type: &'static str, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    // Cached health and metrics are useless.
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;

//! Connections of a console, with limits on number, time, and unread responses.

use crate::api;
use crate::cluster::Cluster;
use crate::error::ApiError;
use archon_client::{ErrorKind, Transport};
use archon_security::connection_limit::{CallerKind, ConnectionLimit, Entry};
use archon_security::{
    Caller, CountedBody, HttpServer, Role, Stream, UnreadAccount, UnreadBudget, UnreadResponses, UnreadWatch,
};
use axum::Router;
use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use std::convert::Infallible;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower_service::Service;

const SERVER: HttpServer = HttpServer {
    name: "the console",
    plaintext_error: r#"{"error":{"kind":"refused","message":"this console requires TLS: use https:// and a client certificate of this cluster (docs/operate/console.md)"}}"#,
    http2: true,
};

/// Maximum number of connections, half of them of one address. A browser opens up to six without TLS.
const CONNECTIONS_MAX: usize = 256;
/// Maximum bytes of unread responses, which use the memory of a coordinator.
const UNREAD_BYTES_MAX: usize = 32 * 1024 * 1024;
/// HTTP/1 buffer size of a connection in either direction.
const BUFFER_BYTES_MAX: usize = 128 * 1024;
/// Deadline of a connection's first request, and of each head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of concurrent requests on an HTTP/2 connection.
const STREAMS_MAX: u32 = 16;
/// Delay after a failed accept.
const ACCEPT_AGAIN: Duration = Duration::from_millis(20);
/// Maximum age of unacknowledged data: a feed connection that does not read loses its place.
const UNREAD_TIMEOUT: Duration = Duration::from_secs(60);
/// Time for pending requests when the console closes.
pub(crate) const END_TIMEOUT: Duration = Duration::from_secs(1);

/// Serves until `stop`.
pub(crate) async fn serve(listener: std::net::TcpListener, cluster: Arc<Cluster>, stop: CancellationToken) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "the console cannot be served"),
    };
    let places = ConnectionLimit::noting(CONNECTIONS_MAX, Arc::clone(&cluster.config.refusals));
    let served = SharedState {
        router: api::router(Arc::clone(&cluster), stop.clone()),
        transport: cluster.config.transport.clone(),
        budget: UnreadBudget::new(UNREAD_BYTES_MAX),
        stop: stop.clone(),
    };
    let tasks = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => break,
        };
        match accepted {
            Ok((connection, from)) => {
                let (served, entry) = (served.clone(), places.enter(from.ip()));
                tasks.spawn(served.serve(connection, entry));
            }
            Err(error) => {
                tracing::debug!(%error, "a connection to the console could not be accepted");
                sleep(ACCEPT_AGAIN).await;
            }
        }
    }
    tasks.close();
    if timeout(END_TIMEOUT, tasks.wait()).await.is_err() {
        tracing::debug!("requests of the console were cut short");
    }
}

/// State shared by all connections.
#[derive(Clone)]
struct SharedState {
    router: Router,
    transport: Transport,
    budget: UnreadBudget,
    stop: CancellationToken,
}

impl SharedState {
    async fn serve(self, connection: TcpStream, entry: Entry) {
        let opened = tokio::select! {
            opened = open(connection, &self.transport, &entry) => opened,
            () = entry.shed() => None,
            () = self.stop.cancelled() => None,
        };
        if let Some((stream, caller)) = opened {
            self.answer(stream, caller, entry).await;
        }
    }
}

/// Returns the stream and its caller, if a trusted authority signed the caller's certificate.
async fn open(connection: TcpStream, transport: &Transport, entry: &Entry) -> Option<(Stream, Caller)> {
    let _ = connection.set_nodelay(true);
    let _ = socket2::SockRef::from(&connection).set_tcp_user_timeout(Some(UNREAD_TIMEOUT));
    let Some(tls) = transport.tls() else { return Some((connection.into(), entry.caller(None))) };
    SERVER.accept(connection, tls, entry).await
}

/// The requests of one connection.
struct Requests {
    router: Router,
    caller: Caller,
    entry: Entry,
    budget: UnreadBudget,
    unread: Arc<UnreadResponses>,
    /// Set after the first request.
    asked: AtomicBool,
}

impl Requests {
    async fn answer(&self, mut request: Request<Incoming>) -> Result<Response, Infallible> {
        self.asked.store(true, Ordering::Relaxed);
        let from = self.caller.from;
        if let Err(refused) = self.identify().and_then(|()| self.check_room(0)) {
            return Ok(refused.into_response());
        }
        request.extensions_mut().insert(self.caller.clone());
        let response = self.router.clone().call(request).await?;
        // A body of known length is rejected before its head is sent.
        if let Err(refused) = self.check_room(response.body().size_hint().lower()) {
            return Ok(refused.into_response());
        }
        let kind = response.headers().get(CONTENT_TYPE);
        let streamed = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
        let account = UnreadAccount { unread: Arc::clone(&self.unread), budget: self.budget.clone(), from };
        let refuse = |detail| Err(axum::Error::new(detail));
        Ok(response.map(|body| Body::new(CountedBody::new(body, account, streamed, refuse))))
    }

    /// Moves the connection to an identified place. Participants have no rights here, and remain anonymous.
    fn identify(&self) -> Result<(), ApiError> {
        let kind = match self.caller.identity.as_deref().map(archon_security::Identity::role) {
            Some(Role::Participant) => return Ok(()),
            Some(role) => CallerKind::of(role),
            None => CallerKind::Client,
        };
        self.entry.identify(kind).map_err(|refusal| ApiError::new(ErrorKind::Overloaded, refusal.to_string()))
    }

    fn check_room(&self, bytes: u64) -> Result<(), ApiError> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        self.budget
            .check(self.caller.from, bytes)
            .map_err(|detail| ApiError::new(ErrorKind::Overloaded, detail.message))
    }
}

impl SharedState {
    async fn answer(self, stream: Stream, caller: Caller, entry: Entry) {
        let mut watch = UnreadWatch::default();
        let unread = Arc::clone(watch.responses());
        let Self { router, budget, stop, .. } = self;
        let requests = Arc::new(Requests { router, caller, entry, budget, unread, asked: AtomicBool::new(false) });
        let answering = Arc::clone(&requests);
        let service = hyper::service::service_fn(move |request: Request<Incoming>| {
            let requests = Arc::clone(&answering);
            async move { requests.answer(request).await }
        });
        let mut server = Builder::new(TokioExecutor::new());
        server.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(BUFFER_BYTES_MAX);
        server
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS_MAX)
            .keep_alive_interval(Some(HEAD_TIMEOUT))
            .keep_alive_timeout(HEAD_TIMEOUT);
        let connection = server.serve_connection(TokioIo::new(stream), service);
        tokio::pin!(connection);
        let silent = async {
            sleep(HEAD_TIMEOUT).await;
            // After a request, the limits of requests apply.
            if requests.asked.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
        };
        let served = tokio::select! {
            served = connection.as_mut() => served,
            () = silent => return tracing::debug!("a connection of the console asks for nothing"),
            () = requests.entry.shed() => return tracing::debug!("a connection of the console was closed in favour of \
                                                                  a newer one"),
            () = poll_fn(|context| watch.poll_stalled(context)) => {
                return tracing::debug!("a connection of the console does not read its responses");
            }
            () = stop.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = served {
            tracing::debug!(%error, "a connection of the console broke");
        }
    }
}

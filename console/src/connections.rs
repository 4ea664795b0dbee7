//! Connections of a console: bounded in number and in time.

use crate::api;
use crate::console::Cluster;
use crate::in_plaintext;
use archon_client::Transport;
use archon_security::{Caller, Stream, counted_address};
use axum::Router;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower_service::Service;

/// Connections at once. A browser opens up to six without TLS.
const CONNECTIONS_MAX: usize = 256;
/// How long a connection may take to ask for something, and a head to come.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Requests at once on one connection of HTTP/2.
const STREAMS_MAX: u32 = 16;
/// How long it waits after a connection could not be accepted.
const ACCEPT_AGAIN: Duration = Duration::from_millis(20);
/// How long what was sent may lie unread: who watches and does not read gives its place to others.
const UNREAD_TIMEOUT: Duration = Duration::from_secs(60);
/// How long requests may take that are under way at the end.
pub(crate) const END_TIMEOUT: Duration = Duration::from_secs(1);

/// Serves until `stop`.
pub(crate) async fn serve(listener: std::net::TcpListener, cluster: Arc<Cluster>, stop: CancellationToken) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "the console cannot be served"),
    };
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let router = api::router(Arc::clone(&cluster), stop.clone());
    let tasks = TaskTracker::new();
    loop {
        // Whoever finds no place waits in the system's queue.
        let next = async {
            let place = Arc::clone(&places).acquire_owned().await;
            (place, listener.accept().await)
        };
        let (place, accepted) = tokio::select! {
            next = next => next,
            () = stop.cancelled() => break,
        };
        match accepted {
            Ok((connection, from)) => {
                let from = from.ip().to_canonical();
                let caller = Caller::new(counted_address(from), from, None, Arc::clone(&cluster.config.refusals));
                let (transport, router, stop) = (cluster.config.transport.clone(), router.clone(), stop.clone());
                tasks.spawn(async move {
                    if let Some(Some((stream, caller))) =
                        stop.run_until_cancelled(open(connection, &transport, caller)).await
                    {
                        answer(stream, caller, router, stop).await;
                    }
                    drop(place);
                });
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

/// Who is there, if that is somebody whom the cluster's authority vouches for.
async fn open(connection: TcpStream, transport: &Transport, mut caller: Caller) -> Option<(Stream, Caller)> {
    let _ = connection.set_nodelay(true);
    let _ = socket2::SockRef::from(&connection).set_tcp_user_timeout(Some(UNREAD_TIMEOUT));
    let Some(tls) = transport.tls() else { return Some((connection.into(), caller)) };
    if in_plaintext::begins(&connection).await {
        in_plaintext::turn_away(connection).await;
        return None;
    }
    match tls.accept(connection).await {
        Ok(stream) => {
            caller.identity = stream.peer().cloned();
            Some((stream, caller))
        }
        Err(error) if error.is_refusal() => {
            // Nobody is told but those who watch: the other side has heard why from its own library.
            caller.identity = error.refused().cloned().map(Arc::new);
            let _ = caller.refused("a connection to the console", None, error.to_string());
            None
        }
        Err(error) => {
            tracing::debug!(from = %caller.from, %error, "a connection to the console came to nothing");
            None
        }
    }
}

/// Whether a connection has asked for anything.
#[derive(Default)]
struct Asked(AtomicBool);

async fn answer(stream: Stream, caller: Caller, router: Router, stop: CancellationToken) {
    let asked = Arc::<Asked>::default();
    let noted = Arc::clone(&asked);
    let service = hyper::service::service_fn(move |mut request: Request<Incoming>| {
        noted.0.store(true, Ordering::Relaxed);
        request.extensions_mut().insert(caller.clone());
        router.clone().call(request)
    });
    let mut server = Builder::new(TokioExecutor::new());
    server.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
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
        // One that has asked for something is bounded by what it asked for.
        if asked.0.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    };
    let served = tokio::select! {
        served = connection.as_mut() => served,
        () = silent => return tracing::debug!("a connection of the console asks for nothing"),
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = served {
        tracing::debug!(%error, "a connection of the console broke");
    }
}

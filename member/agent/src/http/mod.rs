//! Connections of the service and of callers on this machine.

mod body;
mod guard;
mod listener;
mod probes;
mod requests;
mod stream;

pub(crate) use listener::Listener;

use crate::shared::Shared;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use listener::Connection;
use requests::{Caller, LOOKUPS_MAX, WATCHES_MAX};
use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Maximum number of connections; further ones wait to be accepted.
const CONNECTIONS_MAX: usize = 64;
/// Buffer of a connection in either direction, which also bounds the head of a request.
const BUFFER_BYTES_MAX: usize = 64 * 1024;
/// Time limit for the head of a request, and of an idle connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Time limit for the first request of a connection.
const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Delay after a failed accept.
const ACCEPT_AGAIN: Duration = Duration::from_millis(20);

/// Serves until `end`.
pub(crate) async fn serve(listener: Listener, shared: Arc<Shared>, end: CancellationToken) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let lookups = Arc::new(Semaphore::new(LOOKUPS_MAX));
    let watches = Arc::new(Semaphore::new(WATCHES_MAX));
    let tasks = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            accepted = async {
                let place = Arc::clone(&places).acquire_owned().await;
                (place, listener.accept().await)
            } => accepted,
            () = end.cancelled() => break,
        };
        match accepted {
            (Ok(place), Ok(connection)) => {
                let end = end.clone();
                let caller = Caller {
                    shared: Arc::clone(&shared),
                    by_network: matches!(connection, Connection::Tcp(_)),
                    lookups: Arc::clone(&lookups),
                    watches: Arc::clone(&watches),
                    has_asked: Arc::default(),
                    cut: CancellationToken::new(),
                };
                tasks.spawn(async move {
                    let has_asked = Arc::clone(&caller.has_asked);
                    tokio::select! {
                        () = answer(connection, caller) => {}
                        () = silence(&has_asked) => {}
                        () = end.cancelled() => {}
                    }
                    drop(place);
                });
            }
            // The semaphore is never closed.
            (Err(_), _) => break,
            (_, Err(error)) => {
                tracing::debug!(%error, "a connection to the agent could not be accepted");
                sleep(ACCEPT_AGAIN).await;
            }
        }
    }
    tasks.close();
    tasks.wait().await;
}

/// Ends if a connection has no request in time.
async fn silence(has_asked: &AtomicBool) {
    sleep(FIRST_REQUEST_TIMEOUT).await;
    if has_asked.load(Ordering::Relaxed) {
        pending::<()>().await;
    }
}

async fn answer(connection: Connection, caller: Caller) {
    let cut = caller.cut.clone();
    let service = service_fn(move |request| {
        let caller = caller.clone();
        async move { Ok::<_, Infallible>(caller.answer(request).await) }
    });
    let mut server = hyper::server::conn::http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(BUFFER_BYTES_MAX);
    let served = match connection {
        Connection::Tcp(stream) => {
            let _ = stream.set_nodelay(true);
            tokio::select! {
                served = server.serve_connection(TokioIo::new(stream), service) => served,
                () = cut.cancelled() => Ok(()),
            }
        }
        Connection::Unix(stream) => tokio::select! {
            served = server.serve_connection(TokioIo::new(stream), service) => served,
            () = cut.cancelled() => Ok(()),
        },
    };
    if let Err(error) = served {
        tracing::debug!(%error, "a connection to the agent broke");
    }
}

//! Connections of the service and of callers.

mod access;
mod body;
mod call;
mod guard;
mod listener;
mod probes;
mod requests;
mod stream;

pub(crate) use listener::Listener;

use crate::state::AgentState;
use archon_client::follow_revocations;
use archon_security::connection_limit::CallerKind;
use archon_security::{HttpServer, UnreadAccount, UnreadWatch};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use listener::Connection;
use requests::{Caller, OwnerQuotas};
use std::convert::Infallible;
use std::future::{pending, poll_fn};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

const SERVER: HttpServer = HttpServer {
    name: "the agent",
    plaintext_error: r#"{"error":{"kind":"forbidden","message":"this agent requires TLS: use https:// and a certificate of its participant (docs/reference/agent.md)"}}"#,
    http2: false,
};

/// Maximum number of local connections; further ones wait to be accepted.
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
pub(crate) async fn serve(listener: Listener, shared: Arc<AgentState>, end: CancellationToken) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let quotas = OwnerQuotas::new(matches!(listener, Listener::Tls(..)));
    let tasks = TaskTracker::new();
    if let Listener::Tls(_, door) = &listener {
        let revocations = follow_revocations(shared.config.coordinators.clone(), Arc::clone(&door.tls));
        tasks.spawn(end.clone().run_until_cancelled_owned(revocations));
    }
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &places) => accepted,
            () = end.cancelled() => break,
        };
        match accepted {
            Ok((place, connection)) => {
                let end = end.clone();
                let caller = Caller {
                    shared: Arc::clone(&shared),
                    is_plaintext: matches!(connection, Connection::Tcp(_)),
                    certified: None,
                    unread: None,
                    quotas: quotas.clone(),
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
            Err(error) => {
                tracing::debug!(%error, "a connection to the agent could not be accepted");
                sleep(ACCEPT_AGAIN).await;
            }
        }
    }
    tasks.close();
    tasks.wait().await;
}

/// Accepts a connection. Local ones wait for a place; with TLS, where strangers can connect, the limit of the listener
/// closes the oldest anonymous connection instead.
async fn accept(
    listener: &Listener,
    places: &Arc<Semaphore>,
) -> io::Result<(Option<OwnedSemaphorePermit>, Connection)> {
    let place = match listener {
        Listener::Tls(..) => None,
        Listener::Tcp(_) | Listener::Unix(..) => Arc::clone(places).acquire_owned().await.ok(),
    };
    Ok((place, listener.accept().await?))
}

/// Ends if a connection has no request in time.
async fn silence(has_asked: &AtomicBool) {
    sleep(FIRST_REQUEST_TIMEOUT).await;
    if has_asked.load(Ordering::Relaxed) {
        pending::<()>().await;
    }
}

async fn answer(connection: Connection, caller: Caller) {
    match connection {
        Connection::Tcp(stream) => {
            let _ = stream.set_nodelay(true);
            serve_requests(stream, caller).await;
        }
        Connection::Unix(stream) => serve_requests(stream, caller).await,
        Connection::Tls(stream, entry, door) => {
            let _ = stream.set_nodelay(true);
            let serving = async {
                let Some((stream, certified)) = SERVER.accept(stream, &door.tls, &entry).await else { return };
                // The service has a place among members, so other callers cannot take it.
                let kind = match access::is_service(&certified, &caller.shared.config.name) {
                    true => CallerKind::Member,
                    false => CallerKind::Client,
                };
                if let Err(refusal) = entry.identify(kind) {
                    return tracing::debug!(%refusal, from = %entry.from(), "a connection to the agent is closed");
                }
                let mut watch = UnreadWatch::default();
                let (unread, budget) = (Arc::clone(watch.responses()), door.budget.clone());
                let account = UnreadAccount { unread, budget, from: entry.from() };
                let caller = Caller { certified: Some(certified), unread: Some(account), ..caller };
                tokio::select! {
                    () = serve_requests(stream, caller) => {}
                    () = poll_fn(|context| watch.poll_stalled(context)) => {
                        tracing::debug!("a connection to the agent does not read its answers");
                    }
                }
            };
            tokio::select! {
                () = serving => {}
                () = entry.shed() => tracing::debug!("a connection to the agent was closed in favour of a newer one"),
            }
        }
    }
}

async fn serve_requests(stream: impl AsyncRead + AsyncWrite + Unpin + Send, caller: Caller) {
    let cut = caller.cut.clone();
    let service = service_fn(move |request| {
        let caller = caller.clone();
        async move { Ok::<_, Infallible>(caller.answer(request).await) }
    });
    let mut server = hyper::server::conn::http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(BUFFER_BYTES_MAX);
    let served = tokio::select! {
        served = server.serve_connection(TokioIo::new(stream), service) => served,
        () = cut.cancelled() => Ok(()),
    };
    if let Err(error) = served {
        tracing::debug!(%error, "a connection to the agent broke");
    }
}

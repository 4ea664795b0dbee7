//! Connections of a listener that speaks gRPC and streams of frames: let in as far as its limit allows, and told apart by their first byte.

use crate::ending::end_stream;
use crate::{FrameError, FrameReader, FrameWriter, Opening, PartialBudget, StreamKind, accept};
use archon_proto::connection_limit::{ConnectionLimit, Entry, Refusal};
use archon_proto::guarded::{Guarded, TURNED_AWAY_MAX, TURNED_AWAY_TIMEOUT};
use archon_proto::listen::ACCEPT_AGAIN;
use archon_security::{Caller, Protocol, Stream, Transport};
use archon_types::{ErrorDetail, ErrorKind};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How long a connection may say nothing at all.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// After which time whoever was turned away is to come again, in milliseconds.
const RETRY_AFTER_MS: u64 = 1_000;

/// Connections of a listener, as far as its limit lets them in.
#[derive(Debug)]
pub struct Incoming {
    listener: TcpListener,
    connection_limit: Arc<ConnectionLimit>,
    transport: Transport,
    hearing: Arc<Semaphore>,
}

impl Incoming {
    /// The connections of `listener`, by `transport`.
    pub fn new(listener: TcpListener, connection_limit: Arc<ConnectionLimit>, transport: Transport) -> Self {
        Self { listener, connection_limit, transport, hearing: Arc::new(Semaphore::new(TURNED_AWAY_MAX)) }
    }

    /// The next one that is let in, with its place. Those before it that are not hear why, in a task of `tasks` each. Dropping the
    /// future loses nothing.
    ///
    /// # Errors
    /// What the system says; there may be others after it.
    pub async fn next(&mut self, tasks: &TaskTracker) -> io::Result<(TcpStream, Entry)> {
        loop {
            let (stream, from) = self.listener.accept().await?;
            match self.connection_limit.enter(from.ip()) {
                Ok(entry) => {
                    stream.set_nodelay(true)?;
                    return Ok((stream, entry));
                }
                Err(refusal) => {
                    // Beyond those that are told already, closing says it.
                    if let Ok(permit) = Arc::clone(&self.hearing).try_acquire_owned() {
                        tasks.spawn(async move {
                            turn_away_in_its_words(stream, full(&refusal)).await;
                            drop(permit);
                        });
                    }
                }
            }
        }
    }
}

/// Takes connections until `stop`, each in a task of `tasks`: those of gRPC go to `grpc`, and of streams, of which `partial` bounds what
/// has not arrived whole, to `serve`. One that cannot be accepted is told to `failed`, waits, and is tried again.
pub async fn sort<F: Future<Output = ()> + Send>(
    mut incoming: Incoming,
    grpc: mpsc::Sender<io::Result<Guarded>>,
    partial: PartialBudget,
    tasks: TaskTracker,
    stop: CancellationToken,
    failed: impl Fn(&io::Error),
    serve: impl Fn(Caller, StreamKind, FrameReader, FrameWriter) -> F + Clone + Send + Sync + 'static,
) {
    loop {
        let transport = incoming.transport.clone();
        let accepted = tokio::select! {
            accepted = incoming.next(&tasks) => accepted,
            () = stop.cancelled() => return,
        };
        match accepted {
            Ok((connection, entry)) => {
                let (grpc, stop, partial, serve) = (grpc.clone(), stop.clone(), partial.clone(), serve.clone());
                tasks.spawn(async move {
                    route(connection, &transport, entry, grpc, &stop, |_| partial.clone(), serve).await;
                });
            }
            Err(error) => {
                failed(&error);
                tokio::time::sleep(ACCEPT_AGAIN).await;
            }
        }
    }
}

/// Waits for what a connection begins with: one of gRPC is given to `grpc`, a stream to `serve`, with whoever opens it and may.
/// `stop` ends what is waited for here, not what is served.
pub async fn route<F: Future<Output = ()>>(
    connection: TcpStream,
    transport: &Transport,
    entry: Entry,
    grpc: mpsc::Sender<io::Result<Guarded>>,
    stop: &CancellationToken,
    partial: impl Fn(StreamKind) -> PartialBudget,
    serve: impl FnOnce(Caller, StreamKind, FrameReader, FrameWriter) -> F,
) {
    match stop.run_until_cancelled(open(connection, transport, &entry)).await {
        Some(Some((Protocol::Frames, stream))) => {
            let caller = entry.caller(stream.peer().cloned());
            // What a stream has under way it ends itself; a handshake is not waited for.
            match stop.run_until_cancelled(accept(stream, partial)).await {
                Some(Ok((kind, reader, writer))) => match kind.check(&caller) {
                    Ok(()) => serve(caller, kind, reader, writer).await,
                    Err(detail) => end_stream(Err(FrameError::Refused(detail)), writer).await,
                },
                Some(Err(error)) => tracing::debug!(%error, "a connection is no stream"),
                None => {}
            }
        }
        // Also what is neither: that is gRPC's to refuse. A server that has ended takes no more.
        Some(Some((Protocol::Grpc, stream))) => drop(grpc.send(Ok(Guarded::new(stream, entry))).await),
        Some(None) | None => {}
    }
}

/// What is spoken on a connection, once it is known who is there; nothing on one that came to nothing.
async fn open(connection: TcpStream, transport: &Transport, entry: &Entry) -> Option<(Protocol, Stream)> {
    let Ok(Ok(opening)) = timeout(SILENCE_MAX, Opening::of(&connection)).await else {
        tracing::debug!("a connection said nothing");
        return None;
    };
    match (transport, opening) {
        (Transport::Plaintext { .. }, Opening::Frames) => Some((Protocol::Frames, connection.into())),
        (Transport::Plaintext { .. }, Opening::Tls | Opening::Other) => Some((Protocol::Grpc, connection.into())),
        (Transport::Tls(tls), Opening::Tls) => {
            let from = connection.peer_addr().ok();
            match tls.accept(connection).await {
                Ok(stream) => Some((stream.protocol().unwrap_or(Protocol::Grpc), stream)),
                Err(error) if error.is_refusal() => {
                    // Nobody is told but those who watch: the other side has heard why from its own library.
                    let who = error.refused().cloned().map(Arc::new);
                    let _ = entry.caller(who).refused("a connection", None, error.to_string());
                    None
                }
                Err(error) => {
                    tracing::debug!(?from, %error, "a connection came to nothing");
                    None
                }
            }
        }
        (Transport::Tls(_), Opening::Frames | Opening::Other) => {
            let why =
                "this member speaks TLS, and the connection is plaintext: name a directory of credentials by --tls-dir";
            turn_away_in_its_words(connection, ErrorDetail::new(ErrorKind::Refused, why)).await;
            None
        }
    }
}

/// What they hear for whom there is no place.
fn full(why: &Refusal) -> ErrorDetail {
    ErrorDetail::new(ErrorKind::Overloaded, why.to_string()).with_retry_after_ms(RETRY_AFTER_MS)
}

/// Tells a connection that is not taken why, in the words of what it speaks, unless it says nothing itself. One that is to be encrypted
/// is only closed: words in plaintext would mislead it.
pub async fn turn_away_in_its_words(connection: TcpStream, why: ErrorDetail) {
    let told = async {
        // Whether it was heard is for the other side to know.
        match Opening::of(&connection).await {
            Ok(Opening::Frames) => drop(crate::turn_away(connection.into(), why).await),
            Ok(Opening::Other) => drop(archon_proto::guarded::turn_away(connection, &why).await),
            Ok(Opening::Tls) | Err(_) => {}
        }
    };
    let _ = timeout(TURNED_AWAY_TIMEOUT, told).await;
}

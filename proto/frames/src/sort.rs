//! Connections of a listener that speaks gRPC and streams of frames: let in as far as its limit allows, and told apart by their first byte.

use crate::ending::end_stream;
use crate::{FrameError, FrameReader, FrameWriter, Opening, PartialBudget, StreamKind, accept};
use archon_proto::guarded::{Guarded, TURNED_AWAY_TIMEOUT, no_place};
use archon_proto::listen::ACCEPT_AGAIN;
use archon_security::connection_limit::{CallerKind, ConnectionLimit, Entry, Refusal};
use archon_security::{Caller, Protocol, Stream, Transport};
use archon_types::{ErrorDetail, ErrorKind};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Time after which a connection that has sent nothing is closed, in plaintext and by TLS.
const SILENCE_MAX: Duration = Duration::from_secs(10);
const TLS_SILENCE_MAX: Duration = Duration::from_secs(3);

/// Connections of a listener, with their places.
#[derive(Debug)]
pub struct Incoming {
    listener: TcpListener,
    connection_limit: Arc<ConnectionLimit>,
    transport: Transport,
}

impl Incoming {
    /// The connections of `listener`, by `transport`.
    pub const fn new(listener: TcpListener, connection_limit: Arc<ConnectionLimit>, transport: Transport) -> Self {
        Self { listener, connection_limit, transport }
    }

    /// Returns the next connection with its place. Dropping the future loses nothing.
    ///
    /// # Errors
    /// What the system says; there may be others after it.
    pub async fn next(&mut self) -> io::Result<(TcpStream, Entry)> {
        let (stream, from) = self.listener.accept().await?;
        stream.set_nodelay(true)?;
        Ok((stream, self.connection_limit.enter(from.ip())))
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
            accepted = incoming.next() => accepted,
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
/// `stop` ends what is waited for here, not what is served. So does a newer connection that gets the place of this one.
pub async fn route<F: Future<Output = ()>>(
    connection: TcpStream,
    transport: &Transport,
    entry: Entry,
    grpc: mpsc::Sender<io::Result<Guarded>>,
    stop: &CancellationToken,
    partial: impl Fn(StreamKind) -> PartialBudget,
    serve: impl FnOnce(Caller, StreamKind, FrameReader, FrameWriter) -> F,
) {
    let opening = async {
        tokio::select! {
            opened = open(connection, transport, &entry) => opened,
            () = entry.shed() => None,
            () = stop.cancelled() => None,
        }
    };
    let Some((protocol, stream)) = opening.await else { return };
    // A certificate identifies its caller. In plaintext a stream's handshake does, and the first request of gRPC.
    let role = stream.peer().map(|peer| peer.role());
    if let Some(Err(refusal)) = role.map(|role| entry.identify(CallerKind::of(role))) {
        return turn_away(protocol, stream, no_place(&refusal)).await;
    }
    if protocol == Protocol::Grpc {
        // Also what is neither: that is gRPC's to refuse. A server that has ended takes no more.
        return drop(grpc.send(Ok(Guarded::new(stream, entry))).await);
    }
    let caller = entry.caller(stream.peer().cloned());
    // A stream ends its own work; an unfinished handshake is dropped.
    let accepted = async {
        tokio::select! {
            accepted = accept(stream, partial) => Some(accepted),
            () = entry.shed() => None,
            () = stop.cancelled() => None,
        }
    };
    match accepted.await {
        Some(Ok((kind, reader, writer))) => match admit(&entry, kind, &caller) {
            Ok(()) => serve(caller, kind, reader, writer).await,
            Err(detail) => end_stream(Err(FrameError::Refused(detail)), writer).await,
        },
        Some(Err(error)) => tracing::debug!(%error, "a connection is no stream"),
        None => {}
    }
}

/// Checks that a caller may open a stream, and that there is a place for it.
fn admit(entry: &Entry, kind: StreamKind, caller: &Caller) -> Result<(), ErrorDetail> {
    kind.check(caller)?;
    let kind = match kind {
        StreamKind::Exchange => CallerKind::Client,
        StreamKind::Replicate | StreamKind::Beats => CallerKind::Member,
    };
    entry.identify(kind).map_err(|refusal: Refusal| no_place(&refusal))
}

/// What is spoken on a connection, once it is known who is there; nothing on one that came to nothing.
async fn open(connection: TcpStream, transport: &Transport, entry: &Entry) -> Option<(Protocol, Stream)> {
    let silence_max = if transport.tls().is_some() { TLS_SILENCE_MAX } else { SILENCE_MAX };
    let Ok(Ok(opening)) = timeout(silence_max, Opening::of(&connection)).await else {
        tracing::debug!("a connection said nothing");
        return None;
    };
    match (transport, opening) {
        (Transport::Plaintext { .. }, Opening::Frames) => Some((Protocol::Frames, connection.into())),
        (Transport::Plaintext { .. }, Opening::Tls | Opening::Other) => Some((Protocol::Grpc, connection.into())),
        (Transport::Tls(tls), Opening::Tls) => {
            let from = connection.peer_addr().ok();
            let Some(delay) = entry.handshake_delay(Instant::now()) else {
                tracing::debug!(?from, "a connection is closed: its address begins too many TLS handshakes");
                return None;
            };
            sleep(delay).await;
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

/// Sends the reason to a connection that is not served, and ends it.
async fn turn_away(protocol: Protocol, stream: Stream, why: ErrorDetail) {
    let ended = async {
        // Errors are ignored: the peer may be gone.
        match protocol {
            Protocol::Frames => drop(crate::turn_away(stream, why).await),
            Protocol::Grpc => drop(archon_proto::guarded::turn_away(stream, &why).await),
        }
    };
    let _ = timeout(TURNED_AWAY_TIMEOUT, ended).await;
}

/// Tells a connection that is not taken why, in the words of what it speaks, unless it says nothing itself. One that is to be encrypted
/// is only closed: words in plaintext would mislead it.
pub async fn turn_away_in_its_words(connection: TcpStream, why: ErrorDetail) {
    match timeout(TURNED_AWAY_TIMEOUT, Opening::of(&connection)).await {
        Ok(Ok(Opening::Frames)) => turn_away(Protocol::Frames, connection.into(), why).await,
        Ok(Ok(Opening::Other)) => turn_away(Protocol::Grpc, connection.into(), why).await,
        Ok(Ok(Opening::Tls) | Err(_)) | Err(_) => {}
    }
}

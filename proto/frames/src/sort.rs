//! Connections of a listener for gRPC and streams of frames: admitted up to its limit, and distinguished by their first
//! byte.

use crate::ending::end_stream;
use crate::{ConnectionProtocol, FrameError, FrameReader, FrameWriter, PartialBudget, StreamKind, accept};
use archon_proto::guarded_connection::{GuardedConnection, TURNED_AWAY_TIMEOUT, no_place};
use archon_proto::listen::ACCEPT_AGAIN;
use archon_security::connection_limit::{CallerKind, ConnectionLimit, Entry, Refusal};
use archon_security::{Caller, Protocol, Role, Stream, Transport};
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
pub struct IncomingConnections {
    listener: TcpListener,
    connection_limit: Arc<ConnectionLimit>,
    transport: Transport,
}

impl IncomingConnections {
    /// Creates the source of connections of `listener`, by `transport`.
    pub const fn new(listener: TcpListener, connection_limit: Arc<ConnectionLimit>, transport: Transport) -> Self {
        Self { listener, connection_limit, transport }
    }

    /// Returns the next connection with its place. Cancel safe.
    ///
    /// # Errors
    /// The error of the system; further connections may follow.
    pub async fn next(&mut self) -> io::Result<(TcpStream, Entry)> {
        let (stream, from) = self.listener.accept().await?;
        stream.set_nodelay(true)?;
        Ok((stream, self.connection_limit.enter(from.ip())))
    }
}

/// Accepts connections until `stop`, each in a task of `tasks`: gRPC connections go to `grpc`, and streams to `serve`;
/// `partial` bounds their partial messages. A failure to accept is passed to `failed`; the next attempt follows after a
/// pause.
pub async fn sort<F: Future<Output = ()> + Send>(
    mut incoming: IncomingConnections,
    grpc: mpsc::Sender<io::Result<GuardedConnection>>,
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

/// Waits for the first byte of a connection: a gRPC connection goes to `grpc`, a stream of an authorized caller to
/// `serve`. `stop` ends the wait here, but not the service of a connection. So does a newer connection that gets the
/// place of this one.
pub async fn route<F: Future<Output = ()>>(
    connection: TcpStream,
    transport: &Transport,
    entry: Entry,
    grpc: mpsc::Sender<io::Result<GuardedConnection>>,
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
        // gRPC also refuses unknown protocols. A server that has ended accepts no more connections.
        return drop(grpc.send(Ok(GuardedConnection::new(stream, entry))).await);
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
        // Members repeat it, with pauses, as long as their versions differ. Others must not fill the log.
        Some(Err(FrameError::Refused(why))) if is_member(&caller) => {
            tracing::warn!(message = %why.message, "a member of another version is refused");
        }
        Some(Err(error)) => tracing::debug!(%error, "a connection is not a stream"),
        None => {}
    }
}

/// Returns whether a caller has the certificate of a node or a coordinator.
fn is_member(caller: &Caller) -> bool {
    caller.identity.as_ref().is_some_and(|identity| matches!(identity.role(), Role::Node | Role::Coordinator))
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

/// Determines the protocol of a connection, once its caller is known; `None` for a failed connection.
async fn open(connection: TcpStream, transport: &Transport, entry: &Entry) -> Option<(Protocol, Stream)> {
    let silence_max = if transport.tls().is_some() { TLS_SILENCE_MAX } else { SILENCE_MAX };
    let Ok(Ok(opening)) = timeout(silence_max, ConnectionProtocol::of(&connection)).await else {
        tracing::debug!("a connection sent nothing");
        return None;
    };
    match (transport, opening) {
        (Transport::Plaintext { .. }, ConnectionProtocol::Frames) => Some((Protocol::Frames, connection.into())),
        (Transport::Plaintext { .. }, ConnectionProtocol::Tls | ConnectionProtocol::Other) => {
            Some((Protocol::Grpc, connection.into()))
        }
        (Transport::Tls(tls), ConnectionProtocol::Tls) => {
            let from = connection.peer_addr().ok();
            let Some(delay) = entry.handshake_delay(Instant::now()) else {
                tracing::debug!(?from, "a connection is closed: its address has too many unfinished TLS handshakes");
                return None;
            };
            sleep(delay).await;
            match tls.accept(connection).await {
                Ok(stream) => Some((stream.protocol().unwrap_or(Protocol::Grpc), stream)),
                Err(error) if error.is_refusal() => {
                    // Reported to local observers only: the TLS library of the peer has reported the reason there.
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
        (Transport::Tls(_), ConnectionProtocol::Frames | ConnectionProtocol::Other) => {
            let why = "this member requires TLS, but the connection is plaintext: give a directory of credentials with \
                 --tls-dir";
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
            Protocol::Grpc => drop(archon_proto::guarded_connection::turn_away(stream, &why).await),
        }
    };
    let _ = timeout(TURNED_AWAY_TIMEOUT, ended).await;
}

/// Sends the reason to a connection without a place, in its own protocol, unless it is silent itself. A TLS connection
/// is only closed, because plaintext would mislead it.
pub async fn turn_away_in_its_words(connection: TcpStream, why: ErrorDetail) {
    match timeout(TURNED_AWAY_TIMEOUT, ConnectionProtocol::of(&connection)).await {
        Ok(Ok(ConnectionProtocol::Frames)) => turn_away(Protocol::Frames, connection.into(), why).await,
        Ok(Ok(ConnectionProtocol::Other)) => turn_away(Protocol::Grpc, connection.into(), why).await,
        Ok(Ok(ConnectionProtocol::Tls) | Err(_)) | Err(_) => {}
    }
}

//! Listener for clients that speak the Redis Cluster protocol (ADR 0093). Their operations take the way of the unary
//! calls of `Kv`: the same rights, admission, shards, evaluation and metrics.

mod clients;
mod cluster;
mod connection;
mod conversions;
mod cursors;
mod execute;
mod info;
mod keys;
mod keyspace;
mod queue;
mod refusal;
mod replica;
mod routing;
mod script_cache;
mod scripts;
mod session;
mod several;
mod single;
mod state;
mod topology;
mod transaction;
mod values;
mod workspace;

pub(crate) use state::RedisService;

use crate::server::acceptor::{Acceptor, IncomingConnection};
use archon_frames::{IncomingConnections, StreamKind};
use archon_proto::listen::detect_lost_peer;
use archon_security::connection_limit::{CallerKind, Entry};
use archon_security::{Caller, Role, Stream, Transport};
use archon_types::ErrorDetail;
use state::CALL;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};

/// Longest time for the refusal of a connection to be sent.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);

impl RedisService {
    /// Accepts connections until the node stops. Each is served on one of `runtimes`, in turn.
    pub(crate) async fn serve(self, listener: TcpListener, runtimes: Vec<Handle>) {
        let shared = Arc::clone(&self.kv.shared);
        let stop = self.kv.stop.clone();
        let limit = Arc::clone(&shared.connection_limit);
        let incoming = IncomingConnections::new(listener, limit, shared.config.transport.clone());
        let mut acceptor = Acceptor::new(incoming, &shared.metrics.accept_errors, "connections of Redis clients");
        for runtime in runtimes.iter().cycle() {
            let accepted = tokio::select! {
                accepted = acceptor.next() => accepted,
                () = stop.cancelled() => return,
            };
            self.kv.tasks.spawn_on(self.clone().take(accepted), runtime);
        }
    }

    async fn take(self, accepted: IncomingConnection) {
        let IncomingConnection { connection, entry } = accepted;
        // The protocol has no keepalives.
        if let Err(error) = detect_lost_peer(&connection) {
            tracing::debug!(%error, "the loss of a Redis client will not be detected");
        }
        let stop = self.kv.stop.clone();
        let opened = async {
            tokio::select! {
                opened = self.open(connection, &entry) => opened,
                () = entry.shed() => Ok(None),
                () = stop.cancelled() => Ok(None),
            }
        };
        match opened.await {
            Ok(Some(stream)) => connection::serve(&self, stream, &entry).await,
            Ok(None) => {}
            Err(error) => tracing::debug!(%error, "a connection of a Redis client could not be taken"),
        }
    }

    /// Does the TLS handshake of a connection, where TLS is used; `None` if it fails.
    async fn open(&self, connection: std::net::TcpStream, entry: &Entry) -> io::Result<Option<Stream>> {
        let connection = TcpStream::from_std(connection)?;
        let Transport::Tls(tls) = &self.kv.shared.config.transport else { return Ok(Some(connection.into())) };
        let Some(delay) = entry.handshake_delay(Instant::now()) else {
            tracing::debug!("a connection is closed: its address has too many unfinished TLS handshakes");
            return Ok(None);
        };
        sleep(delay).await;
        match tls.accept(connection).await {
            Ok(stream) => Ok(Some(stream)),
            Err(error) if error.is_refusal() => {
                let who = error.refused().cloned().map(Arc::new);
                let _ = entry.caller(who).refused(CALL, None, error.to_string());
                Ok(None)
            }
            Err(error) => Err(io::Error::other(error.to_string())),
        }
    }
}

/// Refuses callers that may not access keys, and nodes: these forward operations, and ask for none.
fn check_caller(caller: &Caller) -> Result<(), ErrorDetail> {
    StreamKind::Exchange.check(caller)?;
    match &caller.identity {
        Some(identity) if identity.role() == Role::Node => {
            Err(caller.refused(CALL, None, format!("{identity} asks for keys, which clients do")))
        }
        _ => Ok(()),
    }
}

/// Returns the places that a caller counts among.
fn caller_kind(caller: &Caller) -> CallerKind {
    caller.identity.as_ref().map_or(CallerKind::Client, |identity| CallerKind::of(identity.role()))
}

/// Sends the last bytes of a connection, if its peer takes them.
async fn send_last(stream: &mut Stream, bytes: &[u8]) {
    use tokio::io::AsyncWriteExt;
    let sent = async {
        stream.write_all(bytes).await?;
        stream.shutdown().await
    };
    // The peer may be gone.
    let _ = timeout(REFUSAL_TIMEOUT, sent).await;
}

//! Acceptance of HTTP connections with TLS: handshakes are limited per address, and plaintext gets a readable error.

use crate::Caller;
use crate::limits::connection_limit::Entry;
use crate::net::stream::Stream;
use crate::tls::Tls;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

/// First byte of a TLS handshake.
const HANDSHAKE: u8 = 0x16;
/// Maximum silence of a connection.
const SILENCE_MAX: Duration = Duration::from_secs(5);
/// Time to read the answer to a plaintext request.
const PARTING_TIMEOUT: Duration = Duration::from_secs(1);

/// A server of HTTP with TLS.
#[derive(Clone, Copy, Debug)]
pub struct HttpServer {
    /// Name in logs and refusals, as in "a connection to the console".
    pub name: &'static str,
    /// JSON document that answers a request in plaintext.
    pub plaintext_error: &'static str,
    /// Offers HTTP/2 as well.
    pub http2: bool,
}

impl HttpServer {
    /// Does the handshake of a new connection. Returns the stream and its caller, if a trusted authority signed the
    /// caller's certificate.
    pub async fn accept(self, connection: TcpStream, tls: &Tls, entry: &Entry) -> Option<(Stream, Caller)> {
        let (name, from) = (self.name, entry.from());
        if begins_in_plaintext(&connection).await {
            turn_away(connection, self.plaintext_error).await;
            return None;
        }
        let Some(delay) = entry.handshake_delay(Instant::now()) else {
            tracing::debug!(%from, "a connection to {name} is closed: its address has too many unfinished TLS handshakes");
            return None;
        };
        sleep(delay).await;
        let accepted = if self.http2 { tls.accept(connection).await } else { tls.accept_http1(connection).await };
        match accepted {
            Ok(stream) => {
                let caller = entry.caller(stream.peer().cloned());
                Some((stream, caller))
            }
            Err(error) if error.is_refusal() => {
                // Only recorded for auditors: the caller's TLS library has reported the reason already.
                let caller = entry.caller(error.refused().cloned().map(Arc::new));
                let _ = caller.refused(&format!("a connection to {name}"), None, error.to_string());
                None
            }
            Err(error) => {
                tracing::debug!(%from, %error, "a connection to {name} came to nothing");
                None
            }
        }
    }
}

/// Returns whether a connection begins in plaintext; TLS handles silent ones.
async fn begins_in_plaintext(connection: &TcpStream) -> bool {
    let mut first = [0];
    let begun = timeout(SILENCE_MAX, connection.peek(&mut first)).await;
    begun.is_ok_and(|read| read.is_ok_and(|read| read > 0 && first[0] != HANDSHAKE))
}

/// Sends the error as plaintext HTTP: a TLS alert could be taken for an HTTP/0.9 answer.
async fn turn_away(mut connection: TcpStream, body: &str) {
    let length = body.len();
    let answer = format!(
        "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: \
         close\r\n\r\n{body}"
    );
    let answering = async {
        if connection.write_all(answer.as_bytes()).await.is_ok() && connection.shutdown().await.is_ok() {
            // Closing a socket with unread data resets the connection and drops what was sent.
            let mut unread = [0; 4096];
            while connection.read(&mut unread).await.is_ok_and(|read| read > 0) {}
        }
    };
    let _ = timeout(PARTING_TIMEOUT, answering).await;
}

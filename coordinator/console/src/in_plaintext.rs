//! Answer to plaintext HTTP requests on a TLS listener.

use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// First byte of a TLS handshake.
const HANDSHAKE: u8 = 0x16;
/// Maximum silence of a connection.
const SILENCE_MAX: Duration = Duration::from_secs(5);
/// Time to read the answer.
const PARTING_TIMEOUT: Duration = Duration::from_secs(1);
/// In the format of the interface's errors.
const BODY: &str = r#"{"error":{"kind":"refused","message":"this console requires TLS: use https:// and a client certificate of this cluster (docs/operate/console.md)"}}"#;

/// Returns whether a connection begins in plaintext; TLS handles silent ones.
pub(crate) async fn begins(connection: &TcpStream) -> bool {
    let mut first = [0];
    let begun = timeout(SILENCE_MAX, connection.peek(&mut first)).await;
    begun.is_ok_and(|read| read.is_ok_and(|read| read > 0 && first[0] != HANDSHAKE))
}

/// Sends the error as plaintext HTTP: a TLS alert could be taken for an HTTP/0.9 answer.
pub(crate) async fn turn_away(mut connection: TcpStream) {
    let length = BODY.len();
    let answer = format!(
        "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: \
         close\r\n\r\n{BODY}"
    );
    let telling = async {
        if connection.write_all(answer.as_bytes()).await.is_ok() && connection.shutdown().await.is_ok() {
            // Closing a socket with unread data resets the connection and drops what was sent.
            let mut unread = [0; 4096];
            while connection.read(&mut unread).await.is_ok_and(|read| read > 0) {}
        }
    };
    let _ = timeout(PARTING_TIMEOUT, telling).await;
}

//! What somebody hears who speaks HTTP without TLS where TLS is spoken.

use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// What TLS begins with.
const HANDSHAKE: u8 = 0x16;
/// How long a connection may say nothing.
const SILENCE_MAX: Duration = Duration::from_secs(5);
/// How long it may take to read the answer.
const PARTING_TIMEOUT: Duration = Duration::from_secs(1);
/// As an error of the interface.
const BODY: &str = r#"{"error":{"kind":"refused","message":"this console speaks TLS: say https:// and show a certificate of this cluster (docs/CONSOLE.md)"}}"#;

/// Whether a connection begins in plaintext; of one that says nothing TLS finds out.
pub(crate) async fn begins(connection: &TcpStream) -> bool {
    let mut first = [0];
    let begun = timeout(SILENCE_MAX, connection.peek(&mut first)).await;
    begun.is_ok_and(|read| read.is_ok_and(|read| read > 0 && first[0] != HANDSHAKE))
}

/// Says so, in words of HTTP: bytes of TLS would be taken for an answer of an older one.
pub(crate) async fn turn_away(mut connection: TcpStream) {
    let length = BODY.len();
    let answer = format!(
        "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{BODY}"
    );
    let telling = async {
        if connection.write_all(answer.as_bytes()).await.is_ok() && connection.shutdown().await.is_ok() {
            // A connection that is closed while something in it is unread takes back what was sent.
            let mut unread = [0; 4096];
            while connection.read(&mut unread).await.is_ok_and(|read| read > 0) {}
        }
    };
    let _ = timeout(PARTING_TIMEOUT, telling).await;
}

//! Admitted gRPC connections, and the refusal of connections without a place.

use archon_security::connection_limit::{CallerKind, Entry, Refusal};
use archon_security::{Caller, Stream, UnreadResponses, UnreadWatch};
use archon_types::{ErrorDetail, ErrorKind};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::time::timeout;
use tonic::transport::server::Connected;

/// Time limit for sending the reason to a refused peer.
pub const TURNED_AWAY_TIMEOUT: Duration = Duration::from_secs(1);
/// Delay before a caller without a place retries, in milliseconds.
const RETRY_AFTER_MS: u64 = 1_000;
/// Time limit for the first request of an HTTP/2 client before it receives the reason for its refusal.
const REQUEST_TIMEOUT: Duration = Duration::from_millis(500);
/// Length of the HTTP/2 client preface; frames follow.
const PREFACE_BYTES: usize = 24;

/// A connection with its place. It is closed if its peer does not read its responses.
#[derive(Debug)]
pub struct GuardedConnection {
    stream: Stream,
    entry: Arc<Entry>,
    watch: UnreadWatch,
}

/// Returns the error for a caller without a place.
pub fn no_place(refusal: &Refusal) -> ErrorDetail {
    ErrorDetail::new(ErrorKind::Overloaded, refusal.to_string()).with_retry_after_ms(RETRY_AFTER_MS)
}

impl GuardedConnection {
    /// Wraps an admitted connection.
    pub fn new(stream: Stream, entry: Entry) -> Self {
        Self { stream, entry: Arc::new(entry), watch: UnreadWatch::default() }
    }
}

/// The connection of a request.
#[derive(Clone, Debug)]
pub struct Connection {
    /// The caller that opened it.
    pub caller: Caller,
    /// Its responses that the caller has not read.
    pub unread: Arc<UnreadResponses>,
    /// Its place.
    entry: Arc<Entry>,
}

impl Connection {
    /// Gives the connection a client's place, unless its certificate has given it one already.
    ///
    /// # Errors
    /// [`ErrorKind::Overloaded`] if there is none.
    pub fn identify(&self) -> Result<(), ErrorDetail> {
        self.entry.identify(CallerKind::Client).map_err(|refusal| no_place(&refusal))
    }
}

impl Connected for GuardedConnection {
    type ConnectInfo = Connection;

    fn connect_info(&self) -> Connection {
        let caller = self.entry.caller(self.stream.peer().cloned());
        Connection { caller, unread: Arc::clone(self.watch.responses()), entry: Arc::clone(&self.entry) }
    }
}

impl AsyncRead for GuardedConnection {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.watch.poll_stalled(context).is_ready() {
            tracing::debug!(from = %self.entry.from(), "a connection is closed: its peer does not read its responses");
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        if self.entry.poll_shed(context).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl AsyncWrite for GuardedConnection {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, from)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, from)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// Sends the reason for the refusal to an HTTP/2 connection, and closes it.
///
/// # Errors
/// If the connection breaks before.
pub async fn turn_away(mut stream: Stream, why: &ErrorDetail) -> io::Result<()> {
    // A client passes the reason on to its requests in progress; later requests only see that the connection is closed.
    if let Ok(asked) = timeout(REQUEST_TIMEOUT, request(&mut stream)).await {
        asked?;
    }
    stream.write_all(&farewell(why)).await?;
    stream.shutdown().await?;
    // Unread bytes would make the system reset the connection, and the reason would be lost.
    let mut rest = [0; 1024];
    while stream.read(&mut rest).await? > 0 {}
    Ok(())
}

/// Reads up to the first request, the head of a frame that opens a stream.
async fn request(stream: &mut Stream) -> io::Result<()> {
    const HEADERS: u8 = 1;
    let mut skipped = PREFACE_BYTES as u64;
    loop {
        tokio::io::copy(&mut (&mut *stream).take(skipped), &mut tokio::io::sink()).await?;
        let mut head = [0; 9];
        stream.read_exact(&mut head).await?;
        let [high, middle, low, kind, ..] = head;
        if kind == HEADERS {
            return Ok(());
        }
        skipped = u32::from_be_bytes([0, high, middle, low]).into();
    }
}

/// Returns the data of an HTTP/2 server that accepts no request: empty SETTINGS, and GOAWAY with the reason. Its code
/// is `ENHANCE_YOUR_CALM` if there is no place, `INADEQUATE_SECURITY` otherwise.
fn farewell(why: &ErrorDetail) -> Vec<u8> {
    const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    const GO_AWAY: u8 = 7;
    let code: u32 = if why.kind == ErrorKind::Overloaded { 0xb } else { 0xc };
    let why: Vec<u8> = why.message.bytes().take(1_000).collect();
    // No stream was accepted, so the last stream is zero.
    let payload = [&0_u32.to_be_bytes()[..], &code.to_be_bytes(), &why].concat();
    let length = u32::try_from(payload.len()).unwrap_or(0).to_be_bytes();
    [&SETTINGS[..], &length[1..], &[GO_AWAY, 0], &0_u32.to_be_bytes(), &payload].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpStream;

    #[tokio::test]
    async fn refused_peer_receives_the_reason_after_its_first_request() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (server, _) = listener.accept().await.unwrap();
        let why = ErrorDetail::new(ErrorKind::Overloaded, "full");
        let turned = tokio::spawn(async move { turn_away(server.into(), &why).await });
        let settings = [0, 0, 6, 4, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1];
        client.write_all(&[b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &settings[..]].concat()).await.unwrap();
        let mut said = [0; 30];
        let early = timeout(REQUEST_TIMEOUT / 20, client.read(&mut said)).await;
        assert!(early.is_err(), "said before anything was asked for: {early:?}");
        client.write_all(&[0, 0, 1, 1, 5, 0, 0, 0, 1, 0x82]).await.unwrap();
        client.read_exact(&mut said).await.unwrap();
        assert_eq!(&said[26..], b"full");
        drop(client);
        turned.await.unwrap().unwrap();
    }

    #[test]
    fn farewell_follows_the_standard() {
        let said = farewell(&ErrorDetail::new(ErrorKind::Overloaded, "full"));
        assert_eq!(&said[9..], &[0, 0, 12, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 11, b'f', b'u', b'l', b'l']);
    }
}

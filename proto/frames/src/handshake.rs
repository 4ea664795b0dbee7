//! Handshake of a stream.

use crate::{FrameError, FrameReader, FrameWriter, PartialBudget};
use archon_security::{Caller, ExpectedPeer, Protocol, Role, Stream, Transport, rights};
use archon_types::{ErrorDetail, ErrorKind};
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// First byte of a connection that carries a stream; gRPC begins differently.
const FIRST_BYTE: u8 = MAGIC[0];
/// Length of a handshake.
pub const HANDSHAKE_BYTES: usize = MAGIC.len() + 2;

const MAGIC: &[u8; 6] = b"ARCHON";
/// Deadline of the first answer on a new stream: three round trips of 300 ms, and the answer itself.
pub const OPEN_TIMEOUT: Duration = Duration::from_secs(2);
/// Time limit for the handshake of an accepted connection.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// Content of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamKind {
    /// A client's operations (`OpBatch`), answered by a node (`ReplyBatch`).
    Exchange,
    /// Messages between replicas (`ReplicationBatch`), in one direction.
    Replicate,
    /// Heartbeats of members (`Beats`), answered by a coordinator (`BeatAnswers`).
    Beats,
}

impl StreamKind {
    const fn code(self) -> u8 {
        match self {
            Self::Exchange => b'x',
            Self::Replicate => b'r',
            Self::Beats => b'b',
        }
    }

    /// Format of the frames and of their content. Others are refused. Messages between replicas had log entries with client
    /// rows in format 1; they had no values that expire in format 2, and no transactions in format 3.
    const fn format(self) -> u8 {
        match self {
            Self::Exchange | Self::Beats => 1,
            Self::Replicate => 4,
        }
    }

    /// Returns the first bytes that the connecting side sends.
    pub fn handshake(self) -> [u8; HANDSHAKE_BYTES] {
        let mut handshake = [0; HANDSHAKE_BYTES];
        handshake[..MAGIC.len()].copy_from_slice(MAGIC);
        handshake[MAGIC.len()] = self.code();
        handshake[MAGIC.len() + 1] = self.format();
        handshake
    }

    /// Returns the roles that may open such a stream.
    pub const fn openers(self) -> &'static [Role] {
        match self {
            Self::Exchange => rights::EXCHANGE,
            Self::Replicate => rights::REPLICATE,
            Self::Beats => rights::BEATS,
        }
    }

    /// Returns the name of the stream in refusals.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Exchange => "a stream of operations on keys",
            Self::Replicate => "a stream of messages between replicas",
            Self::Beats => "a stream of heartbeats",
        }
    }

    /// Refuses callers that may not open such a stream.
    ///
    /// # Errors
    /// The allowed roles and the caller.
    pub fn check(self, caller: &Caller) -> Result<(), ErrorDetail> {
        caller.check_role(self.openers(), self.word())
    }

    fn of_handshake(handshake: &[u8; HANDSHAKE_BYTES]) -> Result<Self, FrameError> {
        let unreadable = |problem: String| Err(FrameError::Unreadable(problem));
        let Some([kind, format]) = handshake.strip_prefix(MAGIC.as_slice()) else {
            return unreadable("the connection does not begin with a handshake".to_owned());
        };
        let known = [Self::Exchange, Self::Replicate, Self::Beats];
        let Some(stream) = known.into_iter().find(|known| known.code() == *kind) else {
            return unreadable(format!("a stream of kind {kind}, which this version does not know"));
        };
        if *format != stream.format() {
            let (what, known) = (stream.word(), stream.format());
            // A refusal, so that the peer logs the reason as well.
            let why = format!(
                "{what} in format {format}; this version speaks format {known}, run the same version on both sides \
                 (docs/operate/runbooks/upgrade.md)"
            );
            return Err(FrameError::Refused(ErrorDetail::new(ErrorKind::Refused, why)));
        }
        Ok(stream)
    }
}

/// Connects to `address` (`host:port`), expecting the peer `expected`, for a stream. Each of the peer's frames may have
/// `bytes_max` bytes.
///
/// # Errors
/// [`FrameError::Connect`] if there is no connection. `timeout` is that of [`Transport::connect`].
pub async fn connect(
    transport: &Transport,
    address: &str,
    expected: &ExpectedPeer,
    kind: StreamKind,
    bytes_max: usize,
    timeout: Duration,
) -> Result<(FrameReader, FrameWriter), FrameError> {
    connect_and_greet(transport, address, expected, (kind, bytes_max), timeout, |reader, writer| {
        std::future::ready(Ok((reader, writer)))
    })
    .await
}

/// Connects like [`connect`], and lets `greet` open the stream, within [`OPEN_TIMEOUT`]. If one address of a name
/// refuses the handshake, the next one is tried.
///
/// # Errors
/// Like [`connect`]; the error of `greet`.
pub async fn connect_and_greet<T, F: Future<Output = Result<T, FrameError>>>(
    transport: &Transport,
    address: &str,
    expected: &ExpectedPeer,
    (kind, bytes_max): (StreamKind, usize),
    timeout: Duration,
    greet: impl Fn(FrameReader, FrameWriter) -> F,
) -> Result<T, FrameError> {
    let greet = |stream: Stream| {
        let (from, to) = stream.into_split();
        let handshake = greet(FrameReader::new(from, bytes_max), FrameWriter::handshake(to, kind));
        let greeted = tokio::time::timeout(OPEN_TIMEOUT, handshake);
        async move {
            let greeted = greeted.await.unwrap_or(Err(FrameError::Silent(OPEN_TIMEOUT)));
            greeted.map_err(ConnectError::Handshake)
        }
    };
    let connected = transport.connect_and_greet(address, expected, Protocol::Frames, timeout, greet).await;
    connected.map_err(|error| match error {
        ConnectError::Connection(source) => FrameError::Connect { address: address.to_owned(), source },
        ConnectError::Handshake(error) => error,
    })
}

/// Failed connection, or failed handshake on a connection.
enum ConnectError {
    Connection(std::io::Error),
    Handshake(FrameError),
}

impl From<std::io::Error> for ConnectError {
    fn from(error: std::io::Error) -> Self {
        Self::Connection(error)
    }
}

/// Protocol of a connection, from its first byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConnectionProtocol {
    /// A stream of frames begins, for [`accept`].
    Frames,
    /// A TLS handshake begins.
    Tls,
    /// gRPC, or an unknown protocol.
    Other,
}

/// First byte of a TLS handshake.
const FIRST_BYTE_OF_TLS: u8 = 0x16;

impl ConnectionProtocol {
    /// Waits for the first byte of a connection, without consuming it.
    ///
    /// # Errors
    /// If the connection ends before.
    pub async fn of(connection: &TcpStream) -> std::io::Result<Self> {
        let mut first = [0];
        match connection.peek(&mut first).await? {
            0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(match first[0] {
                FIRST_BYTE => Self::Frames,
                FIRST_BYTE_OF_TLS => Self::Tls,
                _ => Self::Other,
            }),
        }
    }
}

/// Reads the handshake of an accepted stream. Partial messages of the peer count against the budget that `partial`
/// returns for such a stream, and are limited to a small size until the reader is marked as
/// [`known`](FrameReader::known).
///
/// # Errors
/// If the handshake is missing, unknown to this version, or late. [`FrameError::Refused`] for a known stream in another
/// format; the peer gets that refusal, too.
pub async fn accept(
    mut stream: Stream,
    partial: impl Fn(StreamKind) -> PartialBudget,
) -> Result<(StreamKind, FrameReader, FrameWriter), FrameError> {
    let mut handshake = [0; HANDSHAKE_BYTES];
    let read = timeout(HANDSHAKE_TIMEOUT, stream.read_exact(&mut handshake)).await;
    read.map_err(|_| FrameError::Silent(HANDSHAKE_TIMEOUT))??;
    let kind = match StreamKind::of_handshake(&handshake) {
        Ok(kind) => kind,
        Err(FrameError::Refused(why)) => {
            // A peer that does not read it, or does not close the connection, hears nothing.
            let _ = timeout(HANDSHAKE_TIMEOUT, refuse_stream(stream, why.clone())).await;
            return Err(FrameError::Refused(why));
        }
        Err(error) => return Err(error),
    };
    let (from, to) = stream.into_split();
    Ok((kind, FrameReader::of_stranger(from, partial(kind)), FrameWriter::new(to)))
}

/// Sends the reason for a refusal on a new stream, and closes the connection.
///
/// # Errors
/// If the connection breaks before.
pub async fn turn_away(mut stream: Stream, why: ErrorDetail) -> Result<(), FrameError> {
    let mut handshake = [0; HANDSHAKE_BYTES];
    stream.read_exact(&mut handshake).await?;
    refuse_stream(stream, why).await
}

async fn refuse_stream(stream: Stream, why: ErrorDetail) -> Result<(), FrameError> {
    let (mut from, to) = stream.into_split();
    let mut writer = FrameWriter::new(to);
    writer.refuse(why);
    writer.flush().await?;
    drop(writer);
    // Unread bytes would make the system reset the connection, and the reason would be lost.
    let mut rest = [0; 1024];
    while from.read(&mut rest).await? > 0 {}
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handshakes_are_distinguished_and_others_rejected() {
        for kind in [StreamKind::Exchange, StreamKind::Replicate, StreamKind::Beats] {
            let handshake = kind.handshake();
            assert_eq!(StreamKind::of_handshake(&handshake).unwrap(), kind);
        }
        let problem = |handshake: &[u8; HANDSHAKE_BYTES]| StreamKind::of_handshake(handshake).unwrap_err().to_string();
        let format = |found, known| format!("in format {found}; this version speaks format {known}");
        assert!(problem(b"ARCHONx\x02").contains(&format(2, 1)));
        assert!(problem(b"ARCHONr\x01").contains(&format(1, 4)), "entries had client rows");
        assert!(problem(b"ARCHONr\x02").contains(&format(2, 4)), "no value expired");
        assert!(problem(b"ARCHONr\x03").contains(&format(3, 4)), "there were no transactions");
        let earlier = StreamKind::of_handshake(b"ARCHONr\x02").unwrap_err();
        assert!(
            matches!(&earlier, FrameError::Refused(why) if why.message.contains("run the same version")),
            "{earlier}"
        );
        assert!(problem(b"ARCHONq\x01").contains("a stream of kind 113"));
        assert!(problem(b"ABCDEFGH").contains("does not begin with a handshake"));
    }
}

//! Connections in plaintext or with TLS.

use crate::callers::identity::Identity;
use crate::tls::Tls;
use crate::tls::verified_peer::VerifiedPeer;
use rustls::pki_types::CertificateDer;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio_rustls::TlsStream;

/// Protocol of a connection, negotiated by TLS (ALPN).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// gRPC, over HTTP/2.
    Grpc,
    /// A stream of frames.
    Frames,
}

impl Protocol {
    pub(crate) const fn alpn(self) -> &'static [u8] {
        match self {
            Self::Grpc => b"h2",
            Self::Frames => b"archon",
        }
    }

    /// Protocols that servers accept, best first. The console also speaks HTTP/1.1.
    pub(crate) const SERVED: [&[u8]; 3] = [b"h2", b"archon", b"http/1.1"];
    /// Protocols that servers of HTTP/1.1 alone accept.
    pub(crate) const HTTP1: &[u8] = b"http/1.1";
}

/// A connection to another process.
#[derive(Debug)]
pub struct Stream {
    pub(crate) io: Io,
    /// Identity of the peer from its certificate; none without TLS.
    pub(crate) peer: Option<Arc<Identity>>,
}

#[derive(Debug)]
pub(crate) enum Io {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>, VerifiedPeer),
}

impl From<TcpStream> for Stream {
    /// Creates a plaintext connection.
    fn from(stream: TcpStream) -> Self {
        Self { io: Io::Plain(stream), peer: None }
    }
}

impl Stream {
    /// Returns the identity of the peer, if it has sent a certificate.
    pub fn peer(&self) -> Option<&Arc<Identity>> {
        self.peer.as_ref()
    }

    /// Returns the address of the peer, and the own one, of this connection; `None` if it has ended.
    pub fn addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        let connection = match &self.io {
            Io::Plain(stream) => stream,
            Io::Tls(stream, _) => stream.get_ref().0,
        };
        Some((connection.peer_addr().ok()?, connection.local_addr().ok()?))
    }

    /// Returns true if the peer sends nothing more: it has closed the connection, or its direction, or the connection
    /// was reset. Received bytes may still be unread. Takes nothing from the connection and does not wait.
    pub fn is_ended(&self) -> bool {
        let connection = match &self.io {
            Io::Plain(stream) => stream,
            Io::Tls(stream, _) => stream.get_ref().0,
        };
        let ready = std::pin::pin!(connection.ready(Interest::READABLE));
        match ready.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(ready)) => ready.is_read_closed(),
            Poll::Ready(Err(_)) => true,
            Poll::Pending => false,
        }
    }

    /// Returns the certificate of the peer, if any.
    pub fn peer_certificate(&self) -> Option<&CertificateDer<'static>> {
        let Io::Tls(stream, _) = &self.io else { return None };
        stream.get_ref().1.peer_certificates().and_then(<[_]>::first)
    }

    /// Returns the negotiated protocol; `None` without TLS.
    pub fn protocol(&self) -> Option<Protocol> {
        let Io::Tls(stream, _) = &self.io else { return None };
        let agreed = stream.get_ref().1.alpn_protocol();
        Some(if agreed == Some(Protocol::Frames.alpn()) { Protocol::Frames } else { Protocol::Grpc })
    }

    /// Records the dialled address.
    pub(crate) fn set_dialled(&mut self, by: &Arc<Tls>, address: &str) {
        if let Io::Tls(_, peer) = &mut self.io {
            peer.set_dialled(by, address);
        }
    }

    /// Splits the connection into both directions.
    pub fn into_split(self) -> (ReadHalf, WriteHalf) {
        match self.io {
            Io::Plain(stream) => {
                let (read, write) = stream.into_split();
                (ReadHalf(Half::Plain(read)), WriteHalf::Plain(write))
            }
            Io::Tls(stream, peer) => {
                let (read, write) = tokio::io::split(stream);
                (ReadHalf(Half::Tls(read, peer)), WriteHalf::Tls(write))
            }
        }
    }
}

/// Receiving half of a connection.
#[derive(Debug)]
pub struct ReadHalf(Half);

#[derive(Debug)]
enum Half {
    Plain(OwnedReadHalf),
    Tls(tokio::io::ReadHalf<Box<TlsStream<TcpStream>>>, VerifiedPeer),
}

/// Sending half of a connection. Encrypted bytes may be buffered until it is flushed.
#[derive(Debug)]
pub enum WriteHalf {
    /// Plaintext.
    Plain(OwnedWriteHalf),
    /// Encrypted.
    Tls(tokio::io::WriteHalf<Box<TlsStream<TcpStream>>>),
}

/// Reads while the certificate of the peer is trusted.
fn read_believed(
    from: Pin<&mut impl AsyncRead>,
    peer: &mut VerifiedPeer,
    context: &mut Context<'_>,
    into: &mut ReadBuf<'_>,
) -> Poll<io::Result<()>> {
    peer.check()?;
    let before = into.filled().len();
    let read = from.poll_read(context, into);
    match &read {
        Poll::Ready(Err(error)) => peer.heard(error),
        Poll::Ready(Ok(())) if into.filled().len() > before => {
            if let Err(turned_away) = peer.check_word() {
                into.set_filled(before);
                return Poll::Ready(Err(turned_away));
            }
            peer.answered();
        }
        Poll::Ready(Ok(())) | Poll::Pending => {}
    }
    read
}

impl AsyncRead for ReadHalf {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().0 {
            Half::Plain(half) => Pin::new(half).poll_read(context, into),
            Half::Tls(half, peer) => read_believed(Pin::new(half), peer, context, into),
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().io {
            Io::Plain(stream) => Pin::new(stream).poll_read(context, into),
            Io::Tls(stream, peer) => read_believed(Pin::new(stream), peer, context, into),
        }
    }
}

/// Implements `AsyncWrite` for a type that is either plaintext or TLS.
macro_rules! write_to_either {
    ($of:ty, $plain:pat, $tls:pat, $field:ident => $it:expr, $to:ident) => {
        impl AsyncWrite for $of {
            fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
                let $field = self.get_mut();
                match $it {
                    $plain => Pin::new($to).poll_write(context, from),
                    $tls => Pin::new($to).poll_write(context, from),
                }
            }

            fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
                let $field = self.get_mut();
                match $it {
                    $plain => Pin::new($to).poll_flush(context),
                    $tls => Pin::new($to).poll_flush(context),
                }
            }

            fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
                let $field = self.get_mut();
                match $it {
                    $plain => Pin::new($to).poll_shutdown(context),
                    $tls => Pin::new($to).poll_shutdown(context),
                }
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                context: &mut Context<'_>,
                from: &[io::IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                let $field = self.get_mut();
                match $it {
                    $plain => Pin::new($to).poll_write_vectored(context, from),
                    $tls => Pin::new($to).poll_write_vectored(context, from),
                }
            }

            fn is_write_vectored(&self) -> bool {
                true // Both support it.
            }
        }
    };
}

write_to_either!(Stream, Io::Plain(to), Io::Tls(to, _), stream => &mut stream.io, to);
write_to_either!(WriteHalf, Self::Plain(to), Self::Tls(to), half => half, to);

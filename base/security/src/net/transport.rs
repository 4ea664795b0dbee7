//! Transport between processes: plaintext on this machine or a trusted network, or TLS.

use crate::callers::identity::{Identity, Role};
use crate::net::dial::Dial;
use crate::net::names::{NAMES, Seconds};
use crate::net::stream::{Protocol, Stream};
use crate::tls::Tls;
use crate::tls::expected_peer::ExpectedPeer;
use crate::tls::reached::{UnnamedAddress, host_of};
use archon_types::check_plaintext;
use archon_types::{ErrorDetail, ErrorKind, MemberCertificate, TransportKind};
use http::Uri;
use hyper_util::rt::TokioIo;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tonic::transport::{Channel, Endpoint};
use tower_service::Service;

/// Deadline of TCP and of TLS, each, among members: three round trips of 300 ms.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Deadline of the look-up of a name. The look-up goes on behind it, for the next attempt.
pub const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);

/// Transport of a process.
#[derive(Clone, Debug)]
pub enum Transport {
    /// Plaintext.
    Plaintext {
        /// Allows connections beyond this machine: the operator trusts the network.
        insecure: bool,
    },
    /// TLS with certificates on both sides.
    Tls(Arc<Tls>),
}

/// Two transports with the same credentials are equal.
impl PartialEq for Transport {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Plaintext { insecure }, Self::Plaintext { insecure: other }) => insecure == other,
            (Self::Tls(tls), Self::Tls(other)) => Arc::ptr_eq(tls, other),
            _ => false,
        }
    }
}

impl Eq for Transport {}

impl Default for Transport {
    /// Returns plaintext, limited to this machine.
    fn default() -> Self {
        Self::Plaintext { insecure: false }
    }
}

impl Transport {
    /// Creates a plaintext transport, not limited to this machine if `insecure`.
    pub const fn plaintext(insecure: bool) -> Self {
        Self::Plaintext { insecure }
    }

    /// Rejects addresses that must not be dialled or listened on.
    ///
    /// # Errors
    /// Plaintext would leave this machine; names the setting that allows it.
    pub fn check(&self, address: &str) -> Result<(), ErrorDetail> {
        match self {
            Self::Plaintext { insecure } => check_plaintext(address, *insecure),
            Self::Tls(_) => Ok(()),
        }
    }

    /// Returns the kind of transport for the administration.
    pub const fn kind(&self) -> TransportKind {
        match self {
            Self::Plaintext { insecure: false } => TransportKind::Loopback,
            Self::Plaintext { insecure: true } => TransportKind::Insecure,
            Self::Tls(_) => TransportKind::Tls,
        }
    }

    /// Returns whether plaintext connections leave this machine.
    pub const fn is_insecure(&self) -> bool {
        matches!(self, Self::Plaintext { insecure: true })
    }

    /// Returns the credentials, if any.
    pub const fn tls(&self) -> Option<&Arc<Tls>> {
        match self {
            Self::Plaintext { .. } => None,
            Self::Tls(tls) => Some(tls),
        }
    }

    /// Rejects an identity that the own certificate does not have: other processes would reject it.
    ///
    /// # Errors
    /// The wanted identity and that of the certificate.
    pub fn check_own(&self, role: Role, name: &str) -> Result<(), ErrorDetail> {
        match self.identity() {
            Some(identity) if identity.role() != role || identity.name() != name => {
                let why = format!("this is {role}/{name}, and its certificate is of {identity}; give it its own");
                Err(ErrorDetail::new(ErrorKind::InvalidArgument, why))
            }
            _ => Ok(()),
        }
    }

    /// Rejects an advertised address that the own certificate does not name, and credentials from a later renewal that no longer name it.
    /// `other` phrases how to advertise an address that the certificate does name.
    ///
    /// # Errors
    /// The address, the hosts in the certificate, and the remedy.
    pub fn check_reached(&self, address: &str, other: impl Fn(&str) -> String) -> Result<(), ErrorDetail> {
        let Some(tls) = self.tls() else { return Ok(()) };
        let unnamed = |unnamed: UnnamedAddress| unnamed.message(Some(&other));
        tls.check_reached(address).map_err(|error| ErrorDetail::new(ErrorKind::InvalidArgument, unnamed(error)))
    }

    /// Returns the certificate in use, to report to others; none without TLS.
    pub fn certificate(&self) -> Option<MemberCertificate> {
        self.tls().map(|tls| tls.certificate())
    }

    /// Returns the identity of this process; without TLS it has none.
    pub fn identity(&self) -> Option<Identity> {
        self.tls().map(|tls| tls.identity())
    }

    /// Connects to `address`, `host:port`. TCP and TLS have `timeout` each, name resolution [`LOOKUP_TIMEOUT`].
    ///
    /// # Errors
    /// The server is not reachable, is not expected, or plaintext is not allowed for it.
    pub async fn connect(
        &self,
        address: &str,
        expected: &ExpectedPeer,
        protocol: Protocol,
        timeout: Duration,
    ) -> io::Result<Stream> {
        let greet = |stream| std::future::ready(Ok::<_, io::Error>(stream));
        self.connect_and_greet(address, expected, protocol, timeout, greet).await
    }

    /// Connects as [`connect`](Self::connect) and passes the connection to `greet`. The addresses of a name are tried side by side, and a
    /// connection that TLS or `greet` refuses is followed by the next address.
    ///
    /// # Errors
    /// As [`connect`](Self::connect); the error of `greet` for the last address that got so far.
    pub async fn connect_and_greet<T, E: From<io::Error>, F: Future<Output = Result<T, E>>>(
        &self,
        address: &str,
        expected: &ExpectedPeer,
        protocol: Protocol,
        timeout: Duration,
        greet: impl Fn(Stream) -> F,
    ) -> Result<T, E> {
        self.check(address).map_err(|refused| io::Error::other(refused.message))?;
        let (host, port) = (host_of(address), port_of(address)?);
        let addresses = NAMES.addresses(host, LOOKUP_TIMEOUT).await?;
        let mut dial = Dial::new(&addresses, port, timeout);
        // The failure at the latest stage is the most informative.
        let mut failed: Option<(Stage, E)> = None;
        while let Some((socket, dialled)) = dial.next().await {
            let (stage, error) = match dialled {
                Err(error) => (Stage::Tcp, at(host, socket, error).into()),
                Ok(stream) => match self.secure(stream, address, socket, expected, protocol, timeout).await {
                    Err(error) => (Stage::Tls, error.into()),
                    Ok(stream) => match greet(stream).await {
                        Err(error) => (Stage::Handshake, error),
                        Ok(greeted) => return Ok(greeted),
                    },
                },
            };
            if failed.as_ref().is_none_or(|(furthest, _)| stage >= *furthest) {
                failed = Some((stage, error));
            }
        }
        let none = || io::Error::new(io::ErrorKind::NotFound, format!("{host} has no address")).into();
        Err(failed.map_or_else(none, |(_, error)| error))
    }

    /// Completes the TLS handshake on a connection that was made to `socket`; plaintext needs none.
    async fn secure(
        &self,
        stream: TcpStream,
        address: &str,
        socket: SocketAddr,
        expected: &ExpectedPeer,
        protocol: Protocol,
        timeout: Duration,
    ) -> io::Result<Stream> {
        stream.set_nodelay(true)?;
        let Self::Tls(tls) = self else { return Ok(stream.into()) };
        let host = host_of(address);
        match tokio::time::timeout(timeout, tls.connect(stream, host, expected, protocol)).await {
            Ok(Ok(mut stream)) => {
                stream.set_dialled(tls, address);
                Ok(stream)
            }
            Ok(Err(error)) => {
                tls.complain(address, &error);
                Err(io::Error::other(error))
            }
            Err(_) => {
                let why = format!("no TLS handshake within {}", Seconds(timeout));
                Err(at(host, socket, io::Error::new(io::ErrorKind::TimedOut, why)))
            }
        }
    }

    /// Returns a channel to `address` that connects on first use, and reconnects as needed.
    pub fn channel(&self, endpoint: &Endpoint, address: &str, expected: ExpectedPeer, timeout: Duration) -> Channel {
        endpoint.connect_with_connector_lazy(self.connector(address, expected, timeout))
    }

    /// Returns a connected channel.
    ///
    /// # Errors
    /// The process is not there, or not who is expected.
    // Boxed: otherwise each crate that polls this future compiles it again, and it holds an HTTP/2 client.
    pub fn connected_channel<'a>(
        &self,
        endpoint: &'a Endpoint,
        address: &str,
        expected: ExpectedPeer,
        timeout: Duration,
    ) -> Pin<Box<dyn Future<Output = Result<Channel, tonic::transport::Error>> + Send + 'a>> {
        Box::pin(endpoint.connect_with_connector(self.connector(address, expected, timeout)))
    }

    /// Returns the connector of a channel, which works as [`connect`](Self::connect) does. The channel must have no such
    /// deadline of its own: the caller would not know that nothing was sent.
    fn connector(&self, address: &str, expected: ExpectedPeer, timeout: Duration) -> Connector {
        Connector { transport: self.clone(), address: address.into(), expected: Arc::new(expected), timeout }
    }
}

/// Returns the port of `host:port`.
fn port_of(address: &str) -> io::Result<u16> {
    address.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidInput, format!("{address:?} is not an address; write host:port"))
    })
}

/// Adds the address that was dialled to an error, unless the caller has named that one.
fn at(host: &str, socket: SocketAddr, error: io::Error) -> io::Error {
    if host.parse::<IpAddr>().is_ok() { error } else { io::Error::new(error.kind(), format!("{socket}: {error}")) }
}

/// The stages of a connection to an address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Stage {
    Tcp,
    Tls,
    Handshake,
}

/// Makes the connections of one channel.
#[derive(Clone, Debug)]
pub struct Connector {
    transport: Transport,
    address: Arc<str>,
    expected: Arc<ExpectedPeer>,
    timeout: Duration,
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Stream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TokioIo<Stream>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let Self { transport, address, expected, timeout } = self.clone();
        Box::pin(async move {
            // A channel polls this while a call waits. In a task of its own the connection is made though that call gives up, and serves
            // the next one.
            let mut connecting = JoinSet::new();
            connecting.spawn(async move { transport.connect(&address, &expected, Protocol::Grpc, timeout).await });
            let connected = connecting.join_next().await.unwrap_or_else(|| Ok(Err(io::ErrorKind::NotConnected.into())));
            connected.map_err(io::Error::other)?.map(TokioIo::new)
        })
    }
}

//! How a process reaches others and is reached: in plaintext on this machine or on a network that is trusted, or by TLS.

use crate::blocking::look_up;
use crate::expected::Expected;
use crate::identity::{Identity, Role};
use crate::reached::{UnnamedAddress, host_of};
use crate::stream::{Protocol, Stream};
use crate::tls::Tls;
use archon_types::plaintext::check_plaintext;
use archon_types::{ErrorDetail, ErrorKind, MemberCertificate, TransportKind};
use http::Uri;
use hyper_util::rt::TokioIo;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::TcpStream;
use tonic::transport::{Channel, Endpoint};
use tower_service::Service;

/// How a process talks to others.
#[derive(Clone, Debug)]
pub enum Transport {
    /// Without TLS.
    Plaintext {
        /// Beyond this machine as well: the operator trusts the network.
        insecure: bool,
    },
    /// With certificates on both sides.
    Tls(Arc<Tls>),
}

/// TLS with the same credentials is the same.
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
    /// Plaintext on this machine.
    fn default() -> Self {
        Self::Plaintext { insecure: false }
    }
}

impl Transport {
    /// In plaintext; beyond this machine if `insecure` was said.
    pub const fn plaintext(insecure: bool) -> Self {
        Self::Plaintext { insecure }
    }

    /// Whether an address may be dialled or listened on, wherever it was learned.
    ///
    /// # Errors
    /// If plaintext would leave this machine, with what allows it.
    pub fn check(&self, address: &str) -> Result<(), ErrorDetail> {
        match self {
            Self::Plaintext { insecure } => check_plaintext(address, *insecure),
            Self::Tls(_) => Ok(()),
        }
    }

    /// Which kind it is, in the words of the administration.
    pub const fn kind(&self) -> TransportKind {
        match self {
            Self::Plaintext { insecure: false } => TransportKind::Loopback,
            Self::Plaintext { insecure: true } => TransportKind::Insecure,
            Self::Tls(_) => TransportKind::Tls,
        }
    }

    /// Whether plaintext goes beyond this machine.
    pub const fn is_insecure(&self) -> bool {
        matches!(self, Self::Plaintext { insecure: true })
    }

    /// The credentials, if there are any.
    pub const fn tls(&self) -> Option<&Arc<Tls>> {
        match self {
            Self::Plaintext { .. } => None,
            Self::Tls(tls) => Some(tls),
        }
    }

    /// Refuses to be somebody whom the own certificate does not name: others would not believe it.
    ///
    /// # Errors
    /// Who was to be, and whom the certificate names.
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

    /// By which certificate this process talks, as it tells others; nothing without TLS.
    pub fn certificate(&self) -> Option<MemberCertificate> {
        self.tls().map(|tls| tls.certificate())
    }

    /// Who this process is to others; without TLS it is whoever it says.
    pub fn identity(&self) -> Option<Identity> {
        self.tls().map(|tls| tls.identity())
    }

    /// Connects to `address`, `host:port`, within `timeout`.
    ///
    /// # Errors
    /// If there is nobody, or not who is expected, or plaintext must not go there.
    pub async fn connect(
        &self,
        address: &str,
        expected: &Expected,
        protocol: Protocol,
        timeout: Duration,
    ) -> io::Result<Stream> {
        self.check(address).map_err(|refused| io::Error::other(refused.message))?;
        let connecting = async {
            let stream = reach(address, timeout).await?;
            stream.set_nodelay(true)?;
            match self {
                Self::Plaintext { .. } => Ok(stream.into()),
                Self::Tls(tls) => match tls.connect(stream, host_of(address), expected, protocol).await {
                    Ok(mut stream) => {
                        stream.set_dialled(tls, address);
                        Ok(stream)
                    }
                    Err(error) => {
                        tls.complain(address, &error);
                        Err(io::Error::other(error))
                    }
                },
            }
        };
        tokio::time::timeout(timeout, connecting).await.unwrap_or_else(|_| {
            let why = format!("no connection within {} ms", timeout.as_millis());
            Err(io::Error::new(io::ErrorKind::TimedOut, why))
        })
    }

    /// A channel that connects to `address` when it is first used, and again when it must.
    pub fn channel(&self, endpoint: &Endpoint, address: &str, expected: Expected, timeout: Duration) -> Channel {
        endpoint.connect_with_connector_lazy(self.connector(address, expected, timeout))
    }

    /// What makes a channel's connections, each within `timeout`. The channel is to have no such deadline of its own: whoever has called
    /// would not know that nothing was sent.
    pub fn connector(&self, address: &str, expected: Expected, timeout: Duration) -> Connector {
        Connector { transport: self.clone(), address: address.into(), expected: Arc::new(expected), timeout }
    }
}

/// Connects to the first address of a name that answers; each has its share of the time.
async fn reach(address: &str, timeout: Duration) -> io::Result<TcpStream> {
    let addresses = look_up(address).await?;
    let share = timeout / u32::try_from(addresses.len().max(1)).unwrap_or(u32::MAX);
    let mut failed = io::Error::new(io::ErrorKind::NotFound, format!("{address} has no address"));
    for address in addresses {
        match tokio::time::timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => failed = error,
            Err(_) => failed = io::Error::new(io::ErrorKind::TimedOut, format!("{address} does not answer")),
        }
    }
    Err(failed)
}

/// Makes the connections of one channel.
#[derive(Clone, Debug)]
pub struct Connector {
    transport: Transport,
    address: Arc<str>,
    expected: Arc<Expected>,
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
            let connected = transport.connect(&address, &expected, Protocol::Grpc, timeout).await;
            connected.map(TokioIo::new)
        })
    }
}

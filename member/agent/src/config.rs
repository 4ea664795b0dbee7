//! Configuration of an agent, and the reasons for its end.

use crate::map_file::MapFile;
use archon_client::{Error, Identity, Transport};
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Valid values of [`AgentConfig::service_lease`].
pub const SERVICE_LEASES: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(3_600);
/// Default of [`AgentConfig::service_lease`].
pub const SERVICE_LEASE: Duration = Duration::from_secs(1);
/// Default of [`AgentConfig::stop_limit`].
pub const STOP_LIMIT: Duration = Duration::from_secs(10);

/// Configuration of an [`Agent`](crate::Agent).
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// Coordinators, `host:port`.
    pub coordinators: Vec<String>,
    /// Transport to the cluster.
    pub transport: Transport,
    /// Lease tables that the service serves.
    pub tables: Vec<String>,
    /// Name of the participant.
    pub name: String,
    /// Address of the service, for its callers.
    pub address: String,
    /// Share of partitions relative to others.
    pub weight: u32,
    /// Maximum number of partitions.
    pub partitions_max: Option<u32>,
    /// Failure zone.
    pub zone: Option<String>,
    /// Heartbeat interval, lease and failure time-out, instead of the cluster's.
    pub timing: Option<(Duration, Duration, Duration)>,
    /// Files with owners, for proxies.
    pub maps: Vec<MapFile>,
    /// Place where the agent listens for its service.
    pub listen: ListenAddress,
    /// Longest permission of the service, and its longest silence; within [`SERVICE_LEASES`].
    pub service_lease: Duration,
    /// Time limit for a program to send its first heartbeat.
    pub start_limit: Duration,
    /// Time limit of a stop.
    pub stop_limit: Duration,
}

/// Reason why an agent ends.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The address is not of this machine alone, and there is no TLS.
    #[error(
        "without TLS the agent listens on loopback only, not on {0}; give --tls-dir with a certificate of the \
         participant that names this host (`archon cert participant NAME --host H`), or use 127.0.0.1:7700 or unix:/path"
    )]
    NotLoopback(SocketAddr),
    /// The certificate names no host, so services cannot verify it.
    #[error(
        "the certificate of {identity} names no host, so services cannot verify it, and the agent does not listen on \
         {address}; issue it with the hosts of this machine: `archon cert participant {} --host H --force`", .identity.name()
    )]
    NoHost {
        /// The address.
        address: SocketAddr,
        /// Identity in the certificate.
        identity: Identity,
    },
    /// The socket is in use, or the path is another file.
    #[error("cannot listen on unix:{}: {why}", .path.display())]
    Socket {
        /// Path of the socket.
        path: PathBuf,
        /// Obstacle.
        why: String,
    },
    /// The address is not available.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Error of the system.
        source: io::Error,
    },
    /// The program of the service does not start, or fails.
    #[error("the program {}: {why}", .program.display())]
    Program {
        /// Name of the program.
        program: OsString,
        /// Obstacle.
        why: String,
    },
    /// The cluster has refused the participant permanently.
    #[error(transparent)]
    Refused(#[from] Error),
}

/// Place where an agent listens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ListenAddress {
    /// An address: of loopback in plaintext, otherwise with TLS and client certificates.
    Address(SocketAddr),
    /// A Unix socket, for processes of the same user.
    Socket(PathBuf),
}

impl Default for ListenAddress {
    /// An address of loopback, for one agent on a machine.
    fn default() -> Self {
        Self::Address((Ipv4Addr::LOCALHOST, 7_700).into())
    }
}

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return match path {
                "" => Err("unix: names no path; write unix:/run/archon/agent.sock".to_owned()),
                path => Ok(Self::Socket(path.into())),
            };
        }
        let literal =
            text.strip_prefix("localhost:").map_or_else(|| text.to_owned(), |port| format!("127.0.0.1:{port}"));
        literal
            .parse()
            .map(Self::Address)
            .map_err(|_| format!("{text:?} is no place to listen; write ip:port, as in 127.0.0.1:7700, or unix:/path"))
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(out),
            Self::Socket(path) => write!(out, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_from_text() {
        assert_eq!("127.0.0.1:7700".parse(), Ok(ListenAddress::Address(([127, 0, 0, 1], 7700).into())));
        assert_eq!("localhost:7700".parse(), Ok(ListenAddress::Address(([127, 0, 0, 1], 7700).into())));
        assert_eq!("unix:/run/a.sock".parse(), Ok(ListenAddress::Socket("/run/a.sock".into())));
        for wrong in ["", "unix:", "7700", "example.org:7700"] {
            assert!(wrong.parse::<ListenAddress>().is_err(), "{wrong}");
        }
    }
}

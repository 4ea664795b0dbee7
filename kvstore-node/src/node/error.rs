//! Why a node cannot start or go on.

use crate::config::ConfigError;
use crate::engine::EngineError;
use crate::flusher::FlusherError;
use crate::identity::IdentityError;
use crate::session::SessionError;
use archon_wal::WalError;
use std::net::SocketAddr;

/// Why a node cannot start or go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// An impossible value.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The data directory.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The write-ahead log.
    #[error(transparent)]
    Wal(#[from] WalError),
    /// The flusher.
    #[error(transparent)]
    Flusher(#[from] FlusherError),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The cause.
        source: std::io::Error,
    },
    /// The address for metrics cannot be listened on.
    #[error("cannot listen on {address} for metrics: {source}")]
    ListenForMetrics {
        /// The address.
        address: SocketAddr,
        /// The cause.
        source: std::io::Error,
    },
    /// The system gave no thread.
    #[error("cannot start a thread: {0}; raise the limit on threads")]
    Thread(#[source] std::io::Error),
    /// The coordinator refuses the node for good.
    #[error(transparent)]
    Session(#[from] Box<SessionError>),
    /// The gRPC server ended by itself.
    #[error("the gRPC server failed: {0}")]
    Server(String),
    /// A part failed beyond repair; the log says which. Nothing acknowledged is lost.
    #[error("a part of the node failed beyond repair; start it again, and it recovers from its log")]
    Failed,
}

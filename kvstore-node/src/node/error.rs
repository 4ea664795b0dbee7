//! Errors of a node that cannot start or continue.

use crate::engine::{EngineError, is_full};
use crate::flusher::FlusherError;
use crate::node::config::ConfigError;
use crate::node::identity::IdentityError;
use crate::session::SessionError;
use archon_wal::WalError;
use std::net::SocketAddr;

/// Reason why a node cannot start or continue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// An invalid value.
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
    /// The address for Redis clients cannot be listened on.
    #[error("cannot listen on {address} for Redis clients: {source}")]
    ListenForRedis {
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
    /// The engine met a full disk, which has space again: restart the node.
    #[error("the disk was full and has space again; start the node again, and it recovers from its log")]
    FailedForSpace,
    /// A part failed beyond repair; the log has the details. Nothing acknowledged is lost.
    #[error("a part of the node failed beyond repair; start it again, and it recovers from its log")]
    Failed,
}

impl NodeError {
    /// Returns whether a full disk keeps the node from starting: space, inodes or a quota.
    pub(crate) fn is_disk_full(&self) -> bool {
        if matches!(self, Self::Wal(WalError::NoSpace { .. })) {
            return true;
        }
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(self);
        while let Some(error) = cause {
            if error.downcast_ref::<std::io::Error>().is_some_and(|error| is_full(error.kind())) {
                return true;
            }
            cause = error.source();
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::ErrorKind;

    #[test]
    fn disk_full_is_recognised_by_quota_and_space_errors() {
        let engine = |kind: ErrorKind| {
            NodeError::from(EngineError::Io { directory: "d".into(), what: "open", source: kind.into() })
        };
        let identity = |kind: ErrorKind| {
            NodeError::from(IdentityError::Io { directory: "d".into(), what: "write", source: kind.into() })
        };
        for kind in [ErrorKind::StorageFull, ErrorKind::QuotaExceeded] {
            assert!(engine(kind).is_disk_full() && identity(kind).is_disk_full());
        }
        assert!(!engine(ErrorKind::PermissionDenied).is_disk_full());
        assert!(NodeError::from(WalError::NoSpace { bytes: 1 }).is_disk_full());
        assert!(!NodeError::Failed.is_disk_full());
    }
}

//! Reasons why a coordinator does not start, or ends.

use crate::config::ConfigError;
use crate::identity::IdentityError;
use crate::quorum::timing::TooFar;
use crate::raft::{SnapshotError, StoreError};
use std::io;
use std::net::SocketAddr;

/// Reason why a coordinator does not start, or ends.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CoordinatorError {
    /// The configuration is impossible.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The data directory is not this coordinator's.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The Raft log cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The snapshots cannot be used.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// The address is taken or not of this machine.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The address for metrics is taken or not of this machine.
    #[error("cannot listen on {address} for metrics: {source}")]
    ListenForMetrics {
        /// The address.
        address: SocketAddr,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The quorum's timing does not fit the distance to another coordinator.
    #[error("{}; {}", .0, .0.remedy())]
    TooFar(#[from] TooFar),
    /// This voter's directory is empty, but its peers know it with another one.
    #[error(
        "coordinator {id} was a voter with another data directory than this one, which is {found}: its disk was wiped \
         or \
         replaced. A voter that forgot its votes must not vote again: restore the old data directory, or join as a new \
         one \
         (--join, another --id) and then `archon quorum replace {id} NEW`"
    )]
    WipedVoter {
        /// Its id.
        id: u64,
        /// Its present directory.
        found: uuid::Uuid,
    },
    /// It is no longer a member.
    #[error(
        "coordinator {id} was removed from the quorum for good: its number and its data directory cannot be used \
         again. To reuse this machine, start a new coordinator with --join, an empty --data-dir and another --id"
    )]
    Removed {
        /// Its id.
        id: u64,
    },
    /// It applied the same entries as the others, with another result.
    #[error(
        "as of log entry {index} the state of coordinator {id} differs from that of the majority, so it must not be \
         used. A restart reads the disk again; if the error repeats, the data directory is damaged: keep a copy of it \
         for diagnosis, start a new coordinator with --join, an empty --data-dir and another --id, then run `archon \
         quorum replace {id} NEW`"
    )]
    WrongState {
        /// Its id.
        id: u64,
        /// The entry as of which that shows.
        index: u64,
    },
    /// Its directory is an older copy.
    #[error(
        "{why}. It has forgotten votes and entries that it acknowledged, and with it what is committed could be lost. \
         Give it the \
         directory itself back, as it was when it stopped; or leave it stopped, and have a new one take its place: \
         start that with \
         --join, an empty --data-dir and another --id, then `archon quorum replace`"
    )]
    OlderCopy {
        /// Evidence.
        why: String,
    },
    /// A recovery began without it.
    #[error(
        "coordinator {id} belongs to a quorum that lost its majority and was recovered without it: the cluster is now \
         in generation {generation}. Never start it again with this data directory; to reuse this machine, start a new \
         coordinator with --join, an empty --data-dir and another --id"
    )]
    Outlived {
        /// Its id.
        id: u64,
        /// The present generation of the cluster.
        generation: u64,
    },
    /// Two processes would vote under one number.
    #[error(
        "another process runs as coordinator {id} at {address} with a copy of this data directory: two voters with one \
         number could elect two leaders. Stop one of them, and let it join the quorum again with an empty --data-dir"
    )]
    Copied {
        /// Its id.
        id: u64,
        /// Address of the other one.
        address: String,
    },
    /// A peer refuses this coordinator.
    #[error("{peer} refuses this coordinator: {why}")]
    Refused {
        /// The peer's address.
        peer: String,
        /// Its reason.
        why: String,
    },
    /// Raft ended; a restart reads the state on disk.
    #[error("raft failed: {what}; restart this coordinator, and check its disk if it fails again")]
    Raft {
        /// Its reason.
        what: String,
    },
    /// The start failed; [`crate::Coordinator::shutdown`] returns the cause.
    #[error("the coordinator could not start")]
    Start,
    /// It was stopped before it had started.
    #[error("the coordinator was stopped while it waited for its peers")]
    Stopped,
    /// The gRPC server ended.
    #[error("the server failed: {what}")]
    Server {
        /// Its reason.
        what: String,
    },
    /// A background task ended unexpectedly.
    #[error("the task {task} ended unexpectedly: {what}; this is a defect")]
    Task {
        /// The task.
        task: &'static str,
        /// Its end.
        what: String,
    },
}

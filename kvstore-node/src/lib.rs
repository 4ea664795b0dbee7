//! A node of Archon: hosts partitions of the replicated key-value store.
//!
//! | part | what it does |
//! |---|---|
//! | `config`, `identity` | what the operator chose; who the data directory is |
//! | `recover` | from log and engine to placements that may be opened |
//! | `session` | registration, heartbeats (the lease), reports, farewell; on its own thread |
//! | `shard` | the threads that own partitions: evaluate, replicate, answer |
//! | `flusher`, `engine` | applied effects on their way to the disk |
//! | `peer`, `copy` | other nodes: replication streams, copies |
//! | `forward` | operations that other nodes lead, on their way there |
//! | `server`, `sort`, `service` | streams of frames and gRPC in front of all that |
//!
//! The write-ahead log is where a write is acknowledged; the engine follows. An answer leaves only after commit and,
//! where no follower holds the data as well, only under a valid lease.

mod access;
mod admit;
mod asked;
mod clock;
mod config;
mod copy;
mod copy_pace;
mod demux;
pub mod engine;
mod flusher;
mod forward;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod grants;
mod health;
mod holdings;
mod home;
mod identity;
mod inbox;
mod load;
mod memory;
mod metrics;
mod node;
mod op_times;
mod pages;
mod peer;
mod ping;
mod readiness;
mod recover;
mod reply;
mod reports;
mod row_walk;
mod server;
mod service;
mod session;
mod shard;
mod shared;
mod size_scan;
mod slow;
mod snapshots;
mod split_search;
mod stats;
mod store;
mod tables;
mod wire;
mod yields;

pub use archon_telemetry::AskReady;
pub use config::{ConfigError, NodeConfig};
pub use engine::EngineKind;
pub use flusher::FlusherError;
pub use identity::IdentityError;
pub use memory::MEMORY_BYTES_MIN;
pub use node::{Node, NodeError};
pub use session::SessionError;

use tokio_util::sync::CancellationToken;

/// Every metric that a node tells.
pub fn metric_definitions() -> impl Iterator<Item = &'static archon_telemetry::Definition> {
    stats::definitions()
}

/// Runs a node until `stop` is cancelled (it then hands over what it leads and ends in order, within
/// [`NodeConfig::stop_deadline`]) or until it fails. Once it listens, `listening` gets what asks whether it takes part in
/// its cluster.
///
/// # Errors
/// [`NodeError`]: the node could not start, was refused by the coordinator, or failed beyond repair.
pub async fn run(
    config: NodeConfig,
    stop: CancellationToken,
    listening: impl FnOnce(AskReady),
) -> Result<(), NodeError> {
    let node = Node::start(config).await?;
    listening(node.ask_ready());
    tokio::select! {
        () = stop.cancelled() => {}
        () = node.ended() => {}
    }
    node.stop().await
}

//! A node of Archon: hosts partitions of the replicated key-value store.
//!
//! | folder | responsibility |
//! |---|---|
//! | `node/` | start and stop; configuration; identity of the data directory; recovery from log and engine |
//! | `session/` | registration, heartbeats (the lease), reports, leave request; on its own thread |
//! | `shard/` | the threads that own partitions: evaluate, replicate, answer |
//! | `flusher/`, `engine/`, `storage/` | applied effects on their way to the disk; formats, snapshots and slow walks of stored rows |
//! | `peers/`, `copies/` | other nodes: replication streams, copies |
//! | `ranges/` | split keys, and the rows of merge sources |
//! | `forward/` | operations on their way to the nodes that lead |
//! | `server/`, `service/` | frame streams and gRPC in front of all that |
//! | `statistics/` | metrics, load, and slow operations |
//!
//! The write-ahead log is where a write is acknowledged; the engine follows. An answer is sent only after commit and,
//! if no follower holds the data as well, only under a valid lease.

mod copies;
pub mod engine;
mod flusher;
mod forward;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod node;
mod peers;
mod ranges;
mod server;
mod service;
mod session;
mod shard;
mod statistics;
mod storage;
mod tables;

pub use archon_telemetry::AskReady;
pub use engine::EngineKind;
pub use flusher::FlusherError;
pub use node::config::{
    CONNECTIONS, COPY_BYTES_PER_SECOND_MIN, ConfigError, NodeConfig, RedisConfig, SLOW_OPERATION_MS,
};
pub use node::identity::IdentityError;
pub use node::memory::MEMORY_BYTES_MIN;
pub use node::{Node, NodeError};
pub use session::SessionError;

use crate::session::space_wait::SpaceWait;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Returns every metric of a node.
pub fn metric_definitions() -> impl Iterator<Item = &'static archon_telemetry::Definition> {
    statistics::stats::definitions()
}

/// Interval between start attempts of a node that lacks disk space.
const START_AGAIN_AFTER: Duration = Duration::from_secs(2);

/// Runs a node until `stop` is cancelled (it then hands over its leaderships and ends gracefully, within
/// [`NodeConfig::stop_deadline`]) or until it fails. Once it listens, `listening` gets a function that returns its
/// readiness. A full disk ends no node: one that cannot start waits for space, and one that fails on it later starts
/// again once there is space.
///
/// # Errors
/// [`NodeError`]: the node could not start, was refused by the coordinator, or failed beyond repair.
pub async fn run(
    config: NodeConfig,
    stop: CancellationToken,
    listening: impl FnOnce(AskReady),
) -> Result<(), NodeError> {
    let current: Arc<Mutex<Option<AskReady>>> = Arc::default();
    let mut listening = Some(listening);
    loop {
        let Some(node) = start(&config, &stop).await? else { return Ok(()) };
        *current.lock() = Some(node.ask_ready());
        if let Some(listening) = listening.take() {
            let current = Arc::clone(&current);
            let starting = || Err("the node starts again".to_owned());
            listening(Box::new(move || current.lock().as_ref().map_or_else(starting, |ask| ask())));
        }
        tokio::select! {
            () = stop.cancelled() => {}
            () = node.ended() => {}
        }
        match node.stop().await {
            Err(NodeError::FailedForSpace) if !stop.is_cancelled() => {
                *current.lock() = None;
                tracing::warn!("the disk has space again: the node starts again and recovers from its log");
            }
            ended => return ended,
        }
    }
}

/// Starts a node, once there is space for it. Returns `None` if it has to stop before.
async fn start(config: &NodeConfig, stop: &CancellationToken) -> Result<Option<Node>, NodeError> {
    let mut wait: Option<SpaceWait> = None;
    loop {
        match Node::start(config.clone()).await {
            Err(error) if error.is_disk_full() => {
                if wait.is_none() {
                    let directory = config.data_dir.display();
                    tracing::error!(
                        %error, %directory,
                        "the disk is full (bytes, inodes or a quota): the node waits for space and starts by itself"
                    );
                }
                let report = wait.get_or_insert_with(|| SpaceWait::new(config)).report(config);
                tokio::select! {
                    () = stop.cancelled() => return Ok(None),
                    () = report => {}
                }
            }
            started => return started.map(Some),
        }
        tokio::select! {
            () = stop.cancelled() => return Ok(None),
            () = tokio::time::sleep(START_AGAIN_AFTER) => {}
        }
    }
}

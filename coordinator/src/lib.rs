//! A coordinator: one voter of the quorum that decides which node owns which partition.
//!
//! [`run`] is all that a binary needs; [`Coordinator`] is the same with access to its parts, for tests and embedding.
//! Its decisions are made in `archon-coordinator-core`; this crate contains the log (`raft/`), the leader's loop
//! (`leader/`), changes of the quorum (`quorum/`), pushes to nodes (`push/`), heartbeats (`beats/`) and the services
//! (`service/`). Only `raft/` names the Raft library.

mod audit;
mod beats;
mod clock;
mod config;
mod coordinator;
mod end;
mod error;
mod first_start;
mod identity;
mod leader;
mod push;
mod quorum;
mod raft;
mod readiness;
mod recovery;
mod serve;
mod service;
mod single_flight;
mod statistics;
mod withdrawn;

pub use archon_coordinator_core::COORDINATORS_MAX;
pub use archon_telemetry::AskReady;
pub use config::{ConfigError, CoordinatorConfig, FirstStart};
pub use coordinator::{Coordinator, STOP_DEADLINE};
pub use error::CoordinatorError;
pub use identity::IdentityError;
pub use quorum::timing::{QuorumTiming, TooFar};
#[cfg(feature = "fuzzing")]
pub use raft::fuzzing;
pub use raft::{SnapshotError, StoreError};
pub use recovery::snapshot_file::SnapshotFile;
pub use recovery::{NewGeneration, RecoverError, Survivor, SurvivorSummary};

use archon_security::Refusals;
use raft::Storage;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Returns every metric of a coordinator.
pub fn metric_definitions() -> impl Iterator<Item = &'static archon_telemetry::Definition> {
    statistics::stats::definitions()
}

/// Runs a coordinator on `config.listen` until `stop` is cancelled; then it hands leadership over, finishes work in
/// progress within [`STOP_DEADLINE`] and returns. Once its port serves, `serving` receives the readiness check of its
/// part in the quorum. It records refusals in `refusals`, and writes these, including those of other parts of its
/// process, to its audit file as well.
///
/// # Errors
/// [`CoordinatorError`]: it could not start, or its log or its disk failed. A restart is then right, unless the message
/// demands a change first.
pub async fn run(
    config: CoordinatorConfig,
    refusals: Arc<Refusals>,
    stop: CancellationToken,
    serving: impl FnOnce(AskReady),
) -> Result<(), CoordinatorError> {
    config.check()?;
    let address = config.listen;
    let listener = TcpListener::bind(address).await.map_err(|source| CoordinatorError::Listen { address, source })?;
    started(Coordinator::start_on(listener, config, refusals, Storage::open), serving, stop).await
}

/// Like [`run`], on a bound listener, so that the peers' addresses can be known before any of them starts.
///
/// # Errors
/// Like [`run`].
pub async fn run_on(
    listener: TcpListener,
    config: CoordinatorConfig,
    stop: CancellationToken,
) -> Result<(), CoordinatorError> {
    started(Coordinator::start(listener, config), |_| {}, stop).await
}

async fn started(
    start: impl Future<Output = Result<Coordinator, CoordinatorError>>,
    serving: impl FnOnce(AskReady),
    stop: CancellationToken,
) -> Result<(), CoordinatorError> {
    // A newcomer may wait for its admission for long.
    let coordinator = tokio::select! {
        () = stop.cancelled() => return Ok(()),
        coordinator = start => coordinator?,
    };
    serving(coordinator.ask_ready());
    until_stopped(coordinator, stop).await
}

async fn until_stopped(coordinator: Coordinator, stop: CancellationToken) -> Result<(), CoordinatorError> {
    let failure = tokio::select! {
        () = stop.cancelled() => None,
        error = coordinator.failed() => Some(error),
    };
    match (failure, coordinator.shutdown().await) {
        // A stop while it waits for its peers is no failure.
        (None, None | Some(CoordinatorError::Stopped)) => Ok(()),
        (_, Some(cause)) => Err(cause),
        (Some(failure), None) => Err(failure),
    }
}

//! Records in the data directory the protocol by which it is written, so that a version without it is refused before it
//! touches anything (PROTOCOL rule 64).

use crate::identity::{Identity, IdentityError};
use crate::raft::Quorum;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Pause before a retry after a disk error.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The identity of a running coordinator's directory, which is locked as long as this lives.
pub(crate) type SharedIdentity = Arc<Mutex<Identity>>;

/// Works until `stop`.
pub(crate) async fn run(identity: SharedIdentity, quorum: Quorum, stop: CancellationToken) {
    let mut applied = quorum.replicated().applied();
    let mut told = false;
    loop {
        applied.borrow_and_update();
        let spoken = quorum.replicated().spoken().cluster();
        if let Err(error) = record(&identity, spoken).await {
            if !std::mem::replace(&mut told, true) {
                tracing::warn!(%error, "that the protocol rose is not kept yet; it is tried again");
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(RETRY_INTERVAL) => continue,
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            changed = applied.changed() => if changed.is_err() { return },
        }
    }
}

async fn record(identity: &SharedIdentity, protocol: u32) -> Result<(), IdentityError> {
    if !identity.lock().lags(protocol) {
        return Ok(());
    }
    let kept = Arc::clone(identity);
    let recorded = tokio::task::spawn_blocking(move || kept.lock().record_protocol(protocol)).await;
    recorded.unwrap_or_else(|error| Err(identity.lock().task_failed(error)))
}

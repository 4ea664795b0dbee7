//! Keeps in the data directory by which protocol it is written, so that a version that does not speak it is refused before it
//! touches anything (PROTOCOL rule 64).

use super::Home;
use crate::shared::Shared;
use std::time::Duration;

/// Pause before it is tried again after the disk refused it.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Keeps it whenever a coordinator says that the protocol rose; never ends.
pub(super) async fn keep(shared: &Shared, home: &dyn Home) {
    let mut told = shared.protocol();
    let mut warned = false;
    loop {
        let protocol = *told.borrow_and_update();
        match home.record_protocol(protocol).await {
            // The sender is in `shared`.
            Ok(()) => drop(told.changed().await),
            Err(error) => {
                if !std::mem::replace(&mut warned, true) {
                    tracing::warn!(%error, "that the protocol rose is not kept yet; it is tried again");
                }
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
        }
    }
}

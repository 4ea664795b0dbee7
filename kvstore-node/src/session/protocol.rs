//! Stores the data directory's protocol in it, so that a version without that protocol is refused before it touches
//! anything (PROTOCOL rule 64).

use super::Home;
use std::time::Duration;
use tokio::sync::watch;

/// Pause before a retry after the disk refused it.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Stores the cluster's protocol, and again whenever a coordinator raises it; never ends.
pub(super) async fn keep(mut told: watch::Receiver<u32>, home: &dyn Home) {
    let mut warned = false;
    loop {
        let protocol = *told.borrow_and_update();
        match home.record_protocol(protocol).await {
            // The sender lives as long as the node.
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

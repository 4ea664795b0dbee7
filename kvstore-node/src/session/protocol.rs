//! Stores the data directory's protocol in it, so that a version without that protocol is refused before it touches
//! anything (PROTOCOL rule 64).

use super::Home;
use crate::node::shared::Shared;
use std::time::Duration;

/// Pause before a retry after the disk refused it.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Stores the protocol whenever a coordinator raises it; never ends.
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

//! The task that compares the checksums of the coordinators.

use crate::raft::machine::checksums::Checksums;
use crate::raft::machine::raft::Raft;
use openraft::ServerState;
use openraft::async_runtime::WatchReceiver as _;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Interval of comparisons.
pub(crate) const LOOK_INTERVAL: Duration = Duration::from_millis(250);

impl Checksums {
    /// Compares the known checksums until `stop`.
    pub(crate) async fn run(self, raft: Raft, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(LOOK_INTERVAL) => {}
            }
            let (voters, members, leads) = {
                let metrics = raft.metrics();
                let metrics = metrics.borrow_watched();
                let membership = metrics.membership_config.membership();
                let members: BTreeSet<u64> = membership.nodes().map(|(id, _)| *id).collect();
                (membership.voter_ids().collect(), members, metrics.state == ServerState::Leader)
            };
            self.look(&voters, &members, leads);
        }
    }
}

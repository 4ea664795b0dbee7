//! Further actions of a voter whose log is short of space, beside refusals: it hands leadership to a voter with space,
//! and frees disk space.

use crate::raft::quorum::Quorum;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// Pause between attempts to hand leadership over.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);

/// Watches the space until `stop`.
pub(in crate::raft) async fn run(quorum: Quorum, stop: CancellationToken) {
    let mut votes = true;
    loop {
        let mut pause = LOOK_INTERVAL;
        // It would vote for itself without a message to check.
        let may_vote = quorum.space.may_vote();
        if votes != may_vote {
            votes = may_vote;
            quorum.raft.runtime_config().elect(may_vote);
        }
        if quorum.replicated().snapshot_waits() {
            quorum.wal().shrink_pool();
        }
        if quorum.should_give_way() {
            tracing::warn!("this coordinator has no space for changes; giving leadership to one that has");
            if !quorum.give_way().await {
                tracing::warn!("no other coordinator took over");
            }
            pause = RETRY_INTERVAL;
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

//! Deadlines of a node's graceful stop.

use archon_telemetry::CLOSE_DEADLINE;
use std::time::Duration;

pub(super) const SERVER_DEADLINE: Duration = Duration::from_secs(2);
pub(super) const FLUSHER_DEADLINE: Duration = Duration::from_secs(5);
pub(super) const SHARDS_DEADLINE: Duration = Duration::from_secs(5);
pub(super) const WAL_DEADLINE: Duration = Duration::from_secs(5);
/// Longest wait of a leaving node for the coordinator to record that.
pub(super) const LEAVING_HEARD_DEADLINE: Duration = Duration::from_millis(500);

/// Returns the longest duration of a graceful stop if every step takes its full deadline; time during which copies are
/// blocked is not counted, as it ends with a page.
pub(super) const fn stop_deadline(hand_over: Duration) -> Duration {
    // Session, streams to leaders, server, readers of streams, two scans, streams to peers.
    const OF_SERVERS: Duration = SERVER_DEADLINE.saturating_mul(7);
    LEAVING_HEARD_DEADLINE
        .saturating_add(hand_over)
        .saturating_add(OF_SERVERS)
        .saturating_add(FLUSHER_DEADLINE)
        .saturating_add(SHARDS_DEADLINE)
        .saturating_add(WAL_DEADLINE)
        .saturating_add(CLOSE_DEADLINE)
}

//! Measurement of the round trip to every member.

use crate::raft::network::hello::check_distance;
use crate::raft::quorum::Quorum;
use archon_security::Transport;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Pause between two measurements.
const INTERVAL: Duration = Duration::from_secs(10);

/// Measures the round trip to every member until `stop`, and logs those that are too long for the timing.
pub(crate) async fn run(quorum: Quorum, transport: Transport, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(INTERVAL) => {}
        }
        let members = quorum.addresses();
        quorum.distances.retain(&members);
        for (id, address) in members.into_iter().filter(|(id, _)| *id != quorum.local_voter.id) {
            let measured = tokio::select! {
                () = stop.cancelled() => return,
                measured = check_distance(&transport, &quorum.local_voter, id, &address) => measured,
            };
            if let Some(far) = quorum.distances.note(id, measured) {
                tracing::warn!("{far}: it is treated as unreachable, and elections may not succeed; {}", far.remedy());
            }
        }
    }
}

//! The revoked certificates, for processes of participants that accept connections themselves.

use super::Context;
use archon_proto::convert::members::revocations::{Revocations, RevocationsQuery};
use archon_types::ErrorDetail;
use std::time::Duration;
use tokio::time::Instant;

/// Maximum wait of a poll for a leader: it should try another coordinator soon.
const LEADER_WAIT: Duration = Duration::from_millis(30);

/// Waits until there is a newer list than that of the caller. Only the leader answers, as only it pushes the list to nodes.
///
/// # Errors
/// `NotCoordinatorLeader`, also if this coordinator stops leading.
pub(super) async fn poll(context: &Context, query: RevocationsQuery) -> Result<Revocations, ErrorDetail> {
    let session = context.leader(LEADER_WAIT).await?;
    let deadline = Instant::now() + Duration::from_millis(query.wait_ms.into());
    let state = session.quorum().replicated();
    let mut version = state.access_version();
    loop {
        // Marked as seen before the state is read: a later change wakes.
        version.borrow_and_update();
        let list = state.read(|state| (state.access_version > query.version).then(|| state.access_list()));
        let waits = list.is_none() && Instant::now() < deadline && !context.stop.is_cancelled();
        if !waits {
            return Ok(Revocations { list, coordinators: session.quorum().coordinators() });
        }
        tokio::select! {
            () = session.stop().cancelled() => return Err(session.quorum().not_leading()),
            () = context.stop.cancelled() => {}
            () = tokio::time::sleep_until(deadline) => {}
            _ = version.changed() => {}
        }
    }
}

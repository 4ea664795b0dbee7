//! State comparison: the leader has all coordinators compute the checksums of their states as of the same entries
//! (`raft/machine/checksums.rs`).

use crate::leader::session::Session;
use crate::raft::spare;
use archon_coordinator_core::{Actor, CHECKED_SINCE, Command, Response};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Interval between checks of the schedule.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// The shortest time between two comparisons.
const INTERVAL_MIN: Duration = Duration::from_secs(60);
/// The next one follows after at least this many times the duration of the last one: half a percent of one core.
const SHARE: u32 = 200;
/// Maximum time to commit the request.
const PROPOSE_DEADLINE: Duration = Duration::from_secs(2);

/// Works until the session ends.
pub(crate) async fn run(session: Arc<Session>) {
    let quorum = session.quorum();
    let applied = quorum.replicated().applied();
    let (mut due, mut checked) = (Instant::now(), 0);
    loop {
        tokio::select! {
            () = session.stop().cancelled() => return,
            () = tokio::time::sleep(LOOK_INTERVAL) => {}
        }
        let is_alone = || quorum.replicated().read(|state| state.coordinators.members.len() < 2);
        let is_spoken = quorum.replicated().spoken().cluster() >= CHECKED_SINCE;
        // An unchanged state needs no new comparison.
        let unchanged = *applied.borrow() <= checked;
        if Instant::now() < due || unchanged || !is_spoken || is_alone() {
            continue;
        }
        // Otherwise a leader that lost the others would collect entries that cannot be committed.
        if quorum.read_only().is_some() || spare(&quorum.view().voters).is_none() {
            continue;
        }
        let who = Actor::Coordinator(quorum.id());
        match session.propose(None, who, vec![Command::CheckState], PROPOSE_DEADLINE).await {
            Ok(answers) => {
                if let Some(Response::Done { version }) = answers.first() {
                    checked = version.get();
                }
                due = Instant::now() + INTERVAL_MIN.max(quorum.checksum_took() * SHARE);
            }
            Err(error) => tracing::debug!(%error, "that states are compared was not committed; it is tried again"),
        }
    }
}

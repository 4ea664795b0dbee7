//! The leader commits new addresses of members that moved, including its own: one after the other, like `archon quorum
//! set-address`.

use crate::leader::session::Session;
use archon_coordinator_core::{Actor, Command, check_quorum_change};
use archon_types::QuorumChange;
use std::sync::Arc;
use std::time::Duration;

/// Interval between checks for moved members.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// Maximum time of a commit before a new decision.
const COMMIT_DEADLINE: Duration = Duration::from_secs(2);

/// Works until the session ends.
pub(crate) async fn run(session: Arc<Session>) {
    let mut refused = String::new();
    loop {
        tokio::select! {
            () = session.stop().cancelled() => return,
            () = tokio::time::sleep(LOOK_INTERVAL) => {}
        }
        let (command, why) = next(&session);
        if let Some(command) = command {
            let who = Actor::Coordinator(session.quorum().id());
            if let Err(error) = session.propose(None, who, vec![command], COMMIT_DEADLINE).await {
                tracing::warn!(%error, "where a coordinator is was not recorded; it is tried again");
            }
        } else if why != refused {
            if !why.is_empty() {
                tracing::warn!(why, "where a coordinator is cannot be recorded");
            }
            refused = why;
        }
    }
}

/// Returns the command that records the address of a moved member that answers; if there is none, the reasons.
fn next(session: &Session) -> (Option<Command>, String) {
    let quorum = session.quorum();
    let found = quorum.found_elsewhere();
    let is_changing = || quorum.replicated().read(|state| state.coordinators.pending.is_some());
    // The usual case, decided at once.
    if found.is_empty() || is_changing() || !quorum.members_are_applied() {
        return (None, String::new());
    }
    let (health, mut whys) = (quorum.health(), Vec::new());
    // Each answer of Raft names the number and the directory.
    for (id, found) in found.into_iter().filter(|(id, _)| health.heard.contains(id)) {
        let change = QuorumChange::SetAddress { id, address: found.is };
        match quorum.replicated().read(|state| check_quorum_change(state, &health, &change, false)) {
            Ok(Some(command)) => return (Some(command), String::new()),
            Ok(None) => {}
            Err(refusal) => whys.push(refusal.to_string()),
        }
    }
    (None, whys.join("; "))
}

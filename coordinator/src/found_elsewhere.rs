//! Whoever leads has it recorded where members are that were found elsewhere than the log has them, itself included: as
//! `archon quorum set-address` does, one after the other.

use crate::session::Session;
use archon_coordinator_core::{Actor, Command, check_quorum_change};
use archon_types::QuorumChange;
use std::sync::Arc;
use std::time::Duration;

/// How often it is looked whether somebody was found.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// How long committing it may take before it is decided anew.
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

/// What has it recorded where one of those is that were found and answer; if none can be, why not.
fn next(session: &Session) -> (Option<Command>, String) {
    let quorum = session.quorum();
    let found = quorum.found_elsewhere();
    let is_changing = || quorum.replicated().read(|state| state.coordinators.pending.is_some());
    // Nearly always, and at once.
    if found.is_empty() || is_changing() || !quorum.members_are_applied() {
        return (None, String::new());
    }
    let (health, mut whys) = (quorum.health(), Vec::new());
    // Each answer of Raft's names the number and the directory.
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

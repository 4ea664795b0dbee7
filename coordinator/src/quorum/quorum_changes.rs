//! Execution of quorum changes: the leader has Raft take one step after the other, until the members are as requested.
//! `core` decides the next step.

use crate::leader::session::Session;
use archon_coordinator_core::{Actor, ClusterState, Command, QuorumStep, next_step};
use std::sync::Arc;
use std::time::Duration;

/// Interval between checks for work and for awaited conditions.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum time of one step before a new decision.
const STEP_DEADLINE: Duration = Duration::from_secs(5);

/// Works until the session ends.
pub(crate) async fn run(session: Arc<Session>) {
    let quorum = session.quorum();
    let mut applied = quorum.replicated().applied();
    let mut failed = String::new();
    loop {
        let news = async {
            // A closed channel cannot happen while the state lives; the timer covers it.
            let _ = applied.changed().await;
        };
        tokio::select! {
            () = session.stop().cancelled() => return,
            () = news => {}
            () = tokio::time::sleep(LOOK_INTERVAL) => {}
        }
        let Some(step) = step(&session) else { continue };
        let step = match step {
            QuorumStep::Done => {
                end(&session).await;
                continue;
            }
            QuorumStep::CatchUp(..) => {
                pause(&session).await;
                continue;
            }
            step => step,
        };
        tracing::info!(?step, "changing the quorum");
        match quorum.take(step, STEP_DEADLINE).await {
            Ok(()) => failed.clear(),
            Err(why) => {
                if why != failed {
                    tracing::warn!(why, "a step of a change of the quorum failed; retrying");
                    failed = why;
                }
                pause(&session).await;
            }
        }
    }
}

/// Commits the end of the change.
async fn end(session: &Session) {
    let if_version = session.quorum().replicated().read(|state| state.coordinators.version);
    let done = vec![Command::EndQuorumChange { if_version, done: true }];
    let who = Actor::Coordinator(session.quorum().id());
    if let Err(error) = session.propose(None, who, done, STEP_DEADLINE).await {
        tracing::warn!(%error, "the end of a change of the quorum was not committed; it is tried again");
        pause(session).await;
    }
}

async fn pause(session: &Session) {
    tokio::select! {
        () = session.stop().cancelled() => {}
        () = tokio::time::sleep(LOOK_INTERVAL) => {}
    }
}

/// Returns the next step, if a change is in progress and the state contains all members known to Raft.
pub(crate) fn step(session: &Session) -> Option<QuorumStep> {
    let quorum = session.quorum();
    let pending = |state: &ClusterState| state.coordinators.joint || state.coordinators.pending.is_some();
    // The usual case, decided at once.
    if !quorum.replicated().read(pending) || !quorum.members_are_applied() {
        return None;
    }
    let health = quorum.health();
    quorum.replicated().read(|state| next_step(state, &health))
}

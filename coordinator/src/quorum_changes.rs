//! Carries out what is wanted of the quorum: whoever leads has Raft take one step after the other, until the members are as they
//! are wanted. Which step is next is decided in `core`.

use crate::session::Session;
use archon_coordinator_core::{Actor, ClusterState, Command, QuorumStep, next_step};
use std::sync::Arc;
use std::time::Duration;

/// How often it is looked whether there is something to do, and whether what is waited for has come.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// How long one step may take before it is decided anew.
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
                    tracing::warn!(why, "a step of a change of the quorum was not made; it is tried again");
                    failed = why;
                }
                pause(&session).await;
            }
        }
    }
}

/// Says that what was wanted is so.
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

/// What is next, if something is under way and the state knows all that Raft goes by.
pub(crate) fn step(session: &Session) -> Option<QuorumStep> {
    let quorum = session.quorum();
    let pending = |state: &ClusterState| state.coordinators.joint || state.coordinators.pending.is_some();
    // Nearly always, and at once.
    if !quorum.replicated().read(pending) || !quorum.members_are_applied() {
        return None;
    }
    let health = quorum.health();
    quorum.replicated().read(|state| next_step(state, &health))
}

//! Automatic raises of the protocol once every member speaks the next one. `core` makes the decision.

use crate::leader::session::Session;
use archon_coordinator_core::{Actor, next_raise};
use std::sync::Arc;
use std::time::Duration;

/// Interval between checks for a newer common protocol.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// Number of consecutive checks in which every member must speak it: a member that was just stopped, to be started as
/// the previous version, is heard for another moment.
const STEADY_LOOKS: u32 = 8;
/// Maximum time to commit the change.
const PROPOSE_DEADLINE: Duration = Duration::from_secs(2);

/// Works until the session ends.
pub(crate) async fn run(session: Arc<Session>) {
    let quorum = session.quorum();
    let (mut steady, mut pause) = (0, Duration::ZERO);
    loop {
        tokio::select! {
            () = session.stop().cancelled() => return,
            () = tokio::time::sleep(pause) => pause = LOOK_INTERVAL,
        }
        let spoken = quorum.replicated().spoken();
        // The usual case, decided at once: nothing newer is spoken here.
        if spoken.cluster() >= spoken.range().newest || quorum.read_only().is_some() {
            continue;
        }
        let speak = quorum.view().coordinators_speak();
        let Some(raise) = quorum.replicated().read(|state| next_raise(state, &speak)) else {
            steady = 0;
            continue;
        };
        steady += 1;
        // A new cluster had no members before.
        let young = quorum.replicated().read(|state| state.members().next().is_none());
        if steady < STEADY_LOOKS && !young {
            continue;
        }
        match young {
            true => tracing::info!(?raise, "the new cluster starts with the newest protocol"),
            false => tracing::info!(?raise, "every member supports a newer protocol"),
        }
        let who = Actor::Coordinator(quorum.id());
        match session.propose(None, who, vec![raise], PROPOSE_DEADLINE).await {
            Ok(answers) => {
                if let Some(refusal) = answers.iter().find_map(|answer| answer.refusal()) {
                    // A member of an older version registered just before.
                    tracing::debug!(%refusal, "the protocol does not rise yet");
                }
            }
            Err(error) => tracing::warn!(%error, "that the protocol rises was not committed; it is tried again"),
        }
    }
}

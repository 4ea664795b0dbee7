//! Watchdog of this coordinator itself: a leader with a stalled disk or loop gives leadership away, since during the
//! stall no node is failed over and no lease is reliable.

use crate::clock::boot_now;
use crate::leader::control::millis;
use crate::leader::session::Session;
use crate::statistics::metrics::Metrics;
use archon_coordinator_core::term::Stall;
use std::sync::Arc;
use std::time::Duration;

const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// Pause between attempts to give leadership away while the stall goes on.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);

/// Watches one session until it ends.
pub(crate) async fn run(session: Arc<Session>, metrics: Arc<Metrics>) {
    loop {
        tokio::select! {
            () = session.stop().cancelled() => return,
            () = tokio::time::sleep(LOOK_INTERVAL) => {}
        }
        let Some(why) = stall(&session) else {
            session.set_granting(true);
            continue;
        };
        // Heartbeats stay unanswered from here, so that nodes look for a reliable coordinator.
        session.set_granting(false);
        metrics.stalls.add(1);
        tracing::warn!(%why, "this coordinator stalls; giving leadership away");
        tokio::select! {
            () = session.stop().cancelled() => return,
            given = session.quorum().give_way() => {
                if !given {
                    tracing::warn!("no other coordinator can take over now");
                }
            }
        }
        tokio::select! {
            () = session.stop().cancelled() => return,
            () = tokio::time::sleep(RETRY_INTERVAL) => {}
        }
    }
}

fn stall(session: &Session) -> Option<Stall> {
    let syncing = session.quorum().wal().progress().outstanding_since;
    Stall::of(session.turned_at(), syncing.map(|since| millis(since.elapsed())), boot_now())
}

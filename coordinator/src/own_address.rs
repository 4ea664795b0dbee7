//! A coordinator that is started again at another address tells the quorum where it is reached.

use crate::first_start::{Newcomer, join};
use crate::raft::Quorum;
use archon_security::Transport;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// After which time it is looked anew whom to ask.
const ROUND_MAX: Duration = Duration::from_secs(15);
/// Pause after each attempt: what was asked for is committed meanwhile.
const PAUSE: Duration = Duration::from_secs(1);

/// How long whoever leads is given to find by itself where this coordinator is.
const LEADER_FIRST: Duration = Duration::from_secs(2);

/// As [`tell`], of a coordinator that was found at `me.address`, where `--peers` says that it is, and not where the log has it.
pub(crate) async fn tell_if_found(quorum: Quorum, transport: Transport, me: Newcomer, work: CancellationToken) {
    loop {
        tokio::select! {
            () = work.cancelled() => return,
            () = tokio::time::sleep(LEADER_FIRST) => {}
        }
        if quorum.recorded_addresses().get(&me.id) == Some(&me.address) {
            return;
        }
        if quorum.found_elsewhere().get(&me.id).is_some_and(|found| found.is == me.address) {
            return tell(quorum, transport, me, work).await;
        }
    }
}

/// Tells the quorum where this member is reached since it was started again, until its log says so.
pub(crate) async fn tell(quorum: Quorum, transport: Transport, me: Newcomer, work: CancellationToken) {
    let mut refused = String::new();
    loop {
        if quorum.recorded_addresses().get(&me.id) == Some(&me.address) {
            tracing::info!(address = me.address, "the others know where this coordinator is reached");
            return;
        }
        // Itself first: if it is the one that leads, the others only name its old address, where nobody is.
        let others = quorum.addresses().into_iter().filter(|(id, _)| *id != me.id).map(|(_, address)| address);
        let asked: Vec<String> = std::iter::once(me.address.clone()).chain(others).collect();
        let told = tokio::select! {
            () = work.cancelled() => return,
            told = join(&transport, &me, &asked) => told.map(drop),
            // Where they are may change meanwhile.
            () = tokio::time::sleep(ROUND_MAX) => Ok(()),
        };
        if let Err(error) = told
            && refused != error.to_string()
        {
            tracing::error!(%error, address = me.address, "the others are not told yet that this coordinator is reached there");
            refused = error.to_string();
        }
        tokio::select! {
            () = work.cancelled() => return,
            () = tokio::time::sleep(PAUSE) => {}
        }
    }
}

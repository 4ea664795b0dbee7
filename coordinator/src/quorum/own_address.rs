//! Announcement of its address by a coordinator that was started again at another one.

use crate::first_start::{Newcomer, join};
use crate::raft::Quorum;
use archon_security::Transport;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Time after which the coordinators to ask are determined again.
const ROUND_MAX: Duration = Duration::from_secs(15);
/// Pause after each attempt, in which the request may be committed.
const PAUSE: Duration = Duration::from_secs(1);

/// Time in which the leader may find the new address by itself.
const LEADER_FIRST: Duration = Duration::from_secs(2);

/// Like [`tell`], for a coordinator that was found at `me.address`, its address in `--peers`, and not at its address in
/// the log.
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

/// Announces the new address of this member to the quorum, until its log contains it.
pub(crate) async fn tell(quorum: Quorum, transport: Transport, me: Newcomer, work: CancellationToken) {
    let mut refused = String::new();
    loop {
        if quorum.recorded_addresses().get(&me.id) == Some(&me.address) {
            tracing::info!(address = me.address, "the other coordinators know the address of this coordinator");
            return;
        }
        // Itself first: if it leads, the others only name its old address, where no process listens.
        let others = quorum.addresses().into_iter().filter(|(id, _)| *id != me.id).map(|(_, address)| address);
        let asked: Vec<String> = std::iter::once(me.address.clone()).chain(others).collect();
        let told = tokio::select! {
            () = work.cancelled() => return,
            told = join(&transport, &me, &asked) => told.map(drop),
            // Their addresses may change meanwhile.
            () = tokio::time::sleep(ROUND_MAX) => Ok(()),
        };
        if let Err(error) = told
            && refused != error.to_string()
        {
            tracing::error!(%error, address = me.address, "the other coordinators do not know the new address of this \
                                                           coordinator yet");
            refused = error.to_string();
        }
        tokio::select! {
            () = work.cancelled() => return,
            () = tokio::time::sleep(PAUSE) => {}
        }
    }
}

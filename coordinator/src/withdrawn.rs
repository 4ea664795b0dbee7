//! Refusal of revoked certificates by this coordinator, as of its own log.

use crate::raft::Quorum;
use archon_security::{Transport, withdrawn_certificates};
use tokio_util::sync::CancellationToken;

/// Makes TLS refuse revoked certificates until `work` ends. Without TLS no certificates are shown.
///
/// Removed coordinators are not included: they may ask about their removal, and nothing else
/// (`archon_proto::authority`), unless an admin revoked their certificates.
pub(crate) async fn follow(quorum: Quorum, transport: Transport, work: CancellationToken) {
    let Some(tls) = transport.tls() else { return };
    let mut applied = quorum.replicated().applied();
    let mut known = None;
    loop {
        applied.borrow_and_update();
        let (version, access) = quorum.replicated().read(|state| (state.access_version, state.access.clone()));
        if known != Some(version) {
            tls.withdraw(withdrawn_certificates(&access));
            known = Some(version);
        }
        tokio::select! {
            () = work.cancelled() => return,
            changed = applied.changed() => if changed.is_err() { return },
        }
    }
}

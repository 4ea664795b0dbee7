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
    let mut version = quorum.replicated().access_version();
    loop {
        version.borrow_and_update();
        let access = quorum.replicated().read(|state| state.access.clone());
        tls.withdraw(withdrawn_certificates(&access));
        tokio::select! {
            () = work.cancelled() => return,
            changed = version.changed() => if changed.is_err() { return },
        }
    }
}

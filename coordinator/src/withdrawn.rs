//! Has this coordinator refuse certificates that were withdrawn, from the moment that it knows of them.

use crate::raft::Quorum;
use archon_security::{Transport, WithdrawnCertificates, withdrawn_certificates};
use archon_types::Access;
use tokio_util::sync::CancellationToken;

/// Goes by what is withdrawn until `work` ends. Without TLS nobody shows a certificate.
pub(crate) async fn follow(quorum: Quorum, transport: Transport, work: CancellationToken) {
    let Some(tls) = transport.tls() else { return };
    let mut applied = quorum.replicated().applied();
    let mut known = None;
    loop {
        applied.borrow_and_update();
        let (version, access) = quorum.replicated().read(|state| (state.access_version, state.access.clone()));
        if known != Some(version) {
            tls.withdraw(of_coordinators(&access));
            known = Some(version);
        }
        tokio::select! {
            () = work.cancelled() => return,
            changed = applied.changed() => if changed.is_err() { return },
        }
    }
}

/// What coordinators refuse: everything but one that was removed from the quorum, which may ask whether it is. Raft takes nothing of it,
/// and nodes refuse it as well.
fn of_coordinators(access: &Access) -> WithdrawnCertificates {
    let mut withdrawn = withdrawn_certificates(access);
    withdrawn.retain(|_, begins_before| begins_before.is_some());
    withdrawn
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_types::Millis;
    use archon_types::access::WHENEVER;

    #[test]
    fn whoever_was_removed_may_ask_whether_it_was() {
        let mut access = Access::default();
        access.set_withdrawn("coordinator/3", Some(WHENEVER));
        access.set_withdrawn("coordinator/2", Some(Millis::new(5)));
        access.set_withdrawn("poet/homer", Some(Millis::new(5)));
        let found: Vec<String> = of_coordinators(&access).into_keys().map(|identity| identity.to_string()).collect();
        assert_eq!(found, ["coordinator/2"], "a role that this version does not know is nobody here");
    }
}

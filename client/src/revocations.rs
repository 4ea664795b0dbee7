//! Revoked certificates, for services with a TLS listener of their own.

use arc_swap::ArcSwap;
use archon_security::{Tls, Transport};
use archon_session::Coordinators;
use std::sync::Arc;

/// Has credentials refuse revoked certificates, for as long as the future is polled: new connections that these
/// credentials accept or open, and open ones at their next request. It learns of a revocation within milliseconds, and
/// keeps the last list while no coordinator answers.
///
/// For participants that listen with the same credentials ([`Tls::accept`]); coordinators refuse the request of other
/// roles. It never ends, and dropping it is safe.
pub async fn follow_revocations(coordinators: Vec<String>, tls: Arc<Tls>) {
    let learned = Arc::new(ArcSwap::<Vec<String>>::default());
    let told = Arc::clone(&learned);
    let transport = Transport::Tls(Arc::clone(&tls));
    let coordinators = Coordinators::new(coordinators, transport, move || told.load().to_vec());
    let learn = |addresses: Vec<String>| {
        if !addresses.is_empty() && **learned.load() != addresses {
            learned.store(Arc::new(addresses));
        }
    };
    archon_session::follow_revocations(&coordinators, &tls, learn).await;
}

//! Revoked certificates, for services with a TLS listener of their own.

use archon_security::{Tls, Transport};
use archon_session::{Coordinators, LearnedCoordinators};
use std::sync::Arc;

/// Has credentials refuse revoked certificates, for as long as the future is polled: new connections that these
/// credentials accept or open, and open ones at their next request. It learns of a revocation within milliseconds, and
/// keeps the last list while no coordinator answers.
///
/// For participants that listen with the same credentials ([`Tls::accept`]); coordinators refuse the request of other
/// roles. It never ends, and dropping it is safe.
pub async fn follow_revocations(coordinators: Vec<String>, tls: Arc<Tls>) {
    let learned = LearnedCoordinators::default();
    let (transport, addresses) = (Transport::Tls(Arc::clone(&tls)), learned.clone());
    let coordinators = Coordinators::new(coordinators, transport, move || addresses.addresses());
    archon_session::follow_revocations(&coordinators, &tls, &learned).await;
}

//! Rights of callers with TLS: the certificate decides.

use super::call::Call;
use crate::protocol::{ErrorBody, ErrorKind};
use archon_security::{Caller, Role};

/// Returns whether a caller is the service: it has a certificate of the agent's participant.
pub(super) fn is_service(caller: &Caller, participant: &str) -> bool {
    let identity = caller.identity.as_deref();
    identity.is_some_and(|identity| identity.role() == Role::Participant && identity.name() == participant)
}

/// Rejects a caller that may not make this request. The session belongs to the service, which has a certificate of the
/// agent's participant.
///
/// # Errors
/// `Forbidden`, with the identity that may.
pub(super) fn check(caller: &Caller, call: &Call<'_>, participant: &str) -> Result<(), ErrorBody> {
    let Some(identity) = &caller.identity else {
        return Err(ErrorBody::new(ErrorKind::Forbidden, "the connection has no certificate"));
    };
    let reads_state = matches!(identity.role(), Role::Operator | Role::Admin);
    let who = match call {
        Call::Where(_) | Call::Owners | Call::WatchOwners | Call::Alive | Call::Ready => return Ok(()),
        _ if is_service(caller, participant) => return Ok(()),
        Call::Metrics | Call::Status if reads_state => return Ok(()),
        Call::Metrics | Call::Status => format!("operators, admins and participant/{participant}"),
        Call::Events | Call::Heartbeat | Call::Answers | Call::Owned(_) => {
            format!("the service, with a certificate of participant/{participant}")
        }
    };
    let why = format!("{identity} may not request {}: that is for {who}", call.name());
    let detail = caller.refused("a request to the agent", Some(format!("participant/{participant}")), why);
    Err(ErrorBody::new(ErrorKind::Forbidden, detail.message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_security::connection_limit::ConnectionLimit;
    use std::net::Ipv4Addr;
    use std::sync::Arc;

    fn may(identity: Option<&str>, call: &Call<'_>) -> bool {
        let entry = ConnectionLimit::new(8).enter(Ipv4Addr::LOCALHOST.into());
        let identity = identity.map(|text| Arc::new(text.parse().unwrap()));
        check(&entry.caller(identity), call, "w1").is_ok()
    }

    #[test]
    fn certificate_decides_which_requests_a_caller_may_make() {
        for call in [Call::Events, Call::Heartbeat, Call::Answers, Call::Owned("3")] {
            assert!(may(Some("participant/w1"), &call));
            for other in ["participant/w2", "client/w1", "admin/alice", "node/athens"] {
                assert!(!may(Some(other), &call), "{other}");
            }
        }
        for call in [Call::Metrics, Call::Status] {
            for (identity, allowed) in
                [("participant/w1", true), ("operator/o", true), ("admin/a", true), ("client/c", false)]
            {
                assert_eq!(may(Some(identity), &call), allowed, "{identity}");
            }
        }
        for call in [Call::Where("k"), Call::Owners, Call::WatchOwners, Call::Alive, Call::Ready] {
            assert!(may(Some("client/c"), &call) && !may(None, &call));
        }
    }
}

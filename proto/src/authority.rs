//! Authorization of gRPC calls by the caller's role, before the message is read.

use crate::convert::error::status_of;
use archon_security::{Caller, ON_BEHALF_OF, REMOVED_COORDINATOR_CALL, Role, Transport, callers};
use archon_types::{ErrorDetail, ErrorKind};
use futures::future::{Either, Ready, ready};
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tower_layer::Layer;

/// Relation of a coordinator's number to the quorum, as the server's log has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CoordinatorStatus {
    /// A member of the quorum, as voter or learner.
    Member,
    /// Not a member, such as a newcomer.
    Unknown,
    /// This server has not read its log yet.
    Unread,
    /// A former member; its number is not reused.
    Removed,
}

/// Looks up a coordinator by its number.
type Lookup = Arc<dyn Fn(u64) -> CoordinatorStatus + Send + Sync>;

/// Refuses calls that the caller's role may not make. Without TLS callers have no identity, and every call is allowed.
#[derive(Clone)]
pub struct Authority {
    /// Callers present certificates.
    encrypted: bool,
    /// The members of the quorum; `None` on nodes.
    coordinators: Option<Lookup>,
}

impl Authority {
    /// Returns the authority of a node, which refuses calls on behalf of others.
    pub const fn of_node(transport: &Transport) -> Self {
        Self { encrypted: transport.tls().is_some(), coordinators: None }
    }

    /// Returns the authority of a coordinator, where members of the quorum act for the callers of their consoles.
    pub fn of_coordinator(
        transport: &Transport,
        status: impl Fn(u64) -> CoordinatorStatus + Send + Sync + 'static,
    ) -> Self {
        Self { encrypted: transport.tls().is_some(), coordinators: Some(Arc::new(status)) }
    }

    /// Returns the caller that makes the call `path`: the one that `connected`, or the one named in `behalf`.
    ///
    /// # Errors
    /// `Refused`, with the reason, if it may not; `InvalidArgument` if `behalf` names no caller; `Unavailable` while the members of the
    /// quorum are not known here.
    fn caller(&self, connected: &Caller, path: &str, behalf: Option<&str>) -> Result<Caller, ErrorDetail> {
        let Some(identity) = &connected.identity else { return Ok(connected.clone()) };
        let status = match (identity.coordinator(), &self.coordinators) {
            (Some(number), Some(status)) => status(number),
            // Nodes learn of removed coordinators in the same way as of revoked certificates.
            _ => CoordinatorStatus::Unknown,
        };
        if status == CoordinatorStatus::Removed && (path != REMOVED_COORDINATOR_CALL || behalf.is_some()) {
            let why = format!("{identity} was removed from the quorum: it may only call Raft/Hello");
            return Err(connected.refused(path, None, why));
        }
        let caller = match behalf {
            None => connected.clone(),
            Some(_) if self.coordinators.is_none() => {
                let why = format!(
                    "{identity} may not call on behalf of others here: nodes do not accept \
                                   {ON_BEHALF_OF}"
                );
                return Err(connected.refused(path, None, why));
            }
            Some(_) if status == CoordinatorStatus::Unread => {
                let why = "this coordinator has not read its log yet and does not know the members of the quorum";
                return Err(ErrorDetail::new(ErrorKind::Unavailable, why).with_retry_after_ms(100));
            }
            Some(_) if status != CoordinatorStatus::Member => {
                let who = if identity.role() == Role::Coordinator { ", and it is none now" } else { "" };
                let why = format!("{identity} may not call on behalf of others: only members of the quorum may{who}");
                return Err(connected.refused(path, None, why));
            }
            Some(text) => connected.on_behalf_of(text).map_err(|error| match error {
                archon_security::BehalfError::Malformed => {
                    ErrorDetail::new(ErrorKind::InvalidArgument, error.to_string())
                }
                archon_security::BehalfError::Member(_) => connected.refused(path, None, error.to_string()),
            })?,
        };
        caller.check_role(callers(path), path)?;
        Ok(caller)
    }
}

impl fmt::Debug for Authority {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Authority").field("encrypted", &self.encrypted).finish_non_exhaustive()
    }
}

impl<S> Layer<S> for Authority {
    type Service = AuthorizedService<S>;

    fn layer(&self, inner: S) -> AuthorizedService<S> {
        AuthorizedService { inner, authority: self.clone() }
    }
}

/// A service that authorizes its callers.
#[derive(Clone, Debug)]
pub struct AuthorizedService<S> {
    inner: S,
    authority: Authority,
}

impl<S> Service<http::Request<Body>> for AuthorizedService<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Either<Ready<Result<S::Response, S::Error>>, S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: http::Request<Body>) -> Self::Future {
        if self.authority.encrypted {
            match authorize(&self.authority, &request) {
                // Handlers see the caller that the call is made for.
                Ok(caller) => drop(request.extensions_mut().insert(caller)),
                Err(status) => return Either::Left(ready(Ok(status.into_http()))),
            }
        }
        Either::Right(self.inner.call(request))
    }
}

/// Returns the caller of a request, if it may make the call.
fn authorize(authority: &Authority, request: &http::Request<Body>) -> Result<Caller, tonic::Status> {
    // The connection limit names the peer of every connection that it lets in.
    let connected = request.extensions().get::<Caller>().filter(|caller| caller.identity.is_some());
    let connected = connected.ok_or_else(|| tonic::Status::unauthenticated("the caller showed no certificate"))?;
    // Text that is not ASCII names no caller.
    let behalf = request.headers().get(ON_BEHALF_OF).map(|text| text.to_str().unwrap_or_default());
    authority.caller(connected, request.uri().path(), behalf).map_err(|detail| status_of(&detail))
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_security::known_calls;

    const MEMBER: u64 = 1;
    const REMOVED: u64 = 3;
    const UNREAD: u64 = 9;
    const ALICE: &str = "admin/alice 10.0.0.7";

    fn coordinator() -> Authority {
        let status = |number| match number {
            MEMBER => CoordinatorStatus::Member,
            REMOVED => CoordinatorStatus::Removed,
            UNREAD => CoordinatorStatus::Unread,
            _ => CoordinatorStatus::Unknown,
        };
        Authority { encrypted: true, coordinators: Some(Arc::new(status)) }
    }

    fn node() -> Authority {
        Authority { encrypted: true, coordinators: None }
    }

    fn of(identity: &str) -> Caller {
        let mut caller = Caller::NOBODY;
        caller.identity = Some(Arc::new(identity.parse().expect("an identity")));
        caller
    }

    fn calls() -> Vec<String> {
        let calls: Vec<String> = known_calls().collect();
        assert!(calls.len() > 50, "{}", calls.len());
        calls
    }

    fn kind(result: Result<Caller, ErrorDetail>) -> Result<String, ErrorKind> {
        result.map(|caller| caller.identity.expect("an identity").to_string()).map_err(|error| error.kind)
    }

    #[test]
    fn removed_coordinator_may_call_hello_only() {
        let removed = of("coordinator/3");
        for call in calls() {
            let own = kind(coordinator().caller(&removed, &call, None));
            let expected =
                if call == REMOVED_COORDINATOR_CALL { Ok("coordinator/3".into()) } else { Err(ErrorKind::Refused) };
            assert_eq!(own, expected, "{call}");
            for behalf in [ALICE, "coordinator/1 10.0.0.7", "client/shop 10.0.0.7", "nonsense", ""] {
                let spoken = kind(coordinator().caller(&removed, &call, Some(behalf)));
                assert_eq!(spoken, Err(ErrorKind::Refused), "{call} for {behalf}");
            }
        }
    }

    #[test]
    fn only_members_of_the_quorum_act_for_others() {
        for call in calls() {
            for identity in [
                "coordinator/4",
                "coordinator/3",
                "node/athens",
                "participant/billing-3",
                "client/shop",
                "operator/dashboard",
                "admin/bob",
            ] {
                let spoken = kind(coordinator().caller(&of(identity), &call, Some(ALICE)));
                assert_eq!(spoken, Err(ErrorKind::Refused), "{identity} calls {call}");
            }
            // The role of the represented caller decides.
            let spoken = kind(coordinator().caller(&of("coordinator/1"), &call, Some(ALICE)));
            let allowed = callers(&call).contains(&Role::Admin);
            assert_eq!(spoken, if allowed { Ok("admin/alice".into()) } else { Err(ErrorKind::Refused) }, "{call}");
        }
    }

    #[test]
    fn members_cannot_be_represented() {
        for call in calls() {
            for behalf in ["coordinator/1", "coordinator/2", "node/athens", "participant/billing-3"] {
                let spoken = coordinator().caller(&of("coordinator/1"), &call, Some(&format!("{behalf} 10.0.0.7")));
                assert_eq!(kind(spoken), Err(ErrorKind::Refused), "{call} for {behalf}");
            }
            let early = kind(coordinator().caller(&of("coordinator/9"), &call, Some(ALICE)));
            assert_eq!(early, Err(ErrorKind::Unavailable), "{call}");
            let spoken = coordinator().caller(&of("coordinator/1"), &call, Some("nonsense"));
            assert_eq!(kind(spoken), Err(ErrorKind::InvalidArgument), "{call}");
        }
    }

    #[test]
    fn node_refuses_calls_on_behalf_of_others() {
        for call in calls() {
            for identity in ["coordinator/1", "coordinator/3", "node/athens", "admin/bob"] {
                let spoken = kind(node().caller(&of(identity), &call, Some(ALICE)));
                assert_eq!(spoken, Err(ErrorKind::Refused), "{identity} calls {call}");
            }
        }
    }

    #[test]
    fn role_decides_on_own_calls() {
        for call in calls() {
            for identity in ["coordinator/1", "coordinator/4", "node/athens", "client/shop", "operator/o", "admin/bob"]
            {
                let caller = of(identity);
                let role = caller.identity.as_ref().expect("an identity").role();
                let allowed = callers(&call).contains(&role);
                for authority in [coordinator(), node()] {
                    let own = kind(authority.caller(&caller, &call, None));
                    let expected = if allowed { Ok(identity.to_owned()) } else { Err(ErrorKind::Refused) };
                    assert_eq!(own, expected, "{identity} calls {call}");
                }
            }
        }
    }
}

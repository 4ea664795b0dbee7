//! Who has sent a request.

use crate::identity::{Identity, Role};
use archon_types::{ErrorDetail, ErrorKind};
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

/// Who has sent a request or opened a stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Caller {
    /// The address that it counts for.
    pub from: IpAddr,
    /// Who it is, as its certificate says; nobody knows without TLS, and then it is whoever it says.
    pub identity: Option<Arc<Identity>>,
}

impl Caller {
    /// Somebody of whom nothing is known.
    pub const NOBODY: Self = Self { from: IpAddr::V6(Ipv6Addr::UNSPECIFIED), identity: None };

    /// Who has sent a request of gRPC. Where callers must say who they are, one that has not is refused before.
    pub fn of<T>(request: &tonic::Request<T>) -> Self {
        request.extensions().get().cloned().unwrap_or(Self::NOBODY)
    }

    /// Refuses it unless it has one of these roles. `what` is what it asks for.
    ///
    /// # Errors
    /// Who may, and who asked.
    pub fn check_role(&self, allowed: &[Role], what: &str) -> Result<(), ErrorDetail> {
        self.check_role_to(allowed, &format_args!("call {what}"))
    }

    /// The same of what is no call: `speak for others`.
    ///
    /// # Errors
    /// As [`Caller::check_role`].
    pub fn check_role_to(&self, allowed: &[Role], what: &dyn fmt::Display) -> Result<(), ErrorDetail> {
        match &self.identity {
            Some(identity) if !allowed.contains(&identity.role()) => {
                let roles: Vec<&str> = allowed.iter().map(|role| role.word()).collect();
                let whom = if roles.is_empty() { "nobody".to_owned() } else { roles.join(", ") };
                Err(self.refused(format!("{identity} may not {what}: that is for {whom}")))
            }
            _ => Ok(()),
        }
    }

    /// Refuses it unless it is the one in whose name it speaks.
    ///
    /// # Errors
    /// Who it is, and who it says that it is.
    pub fn check_name(&self, role: Role, name: &str) -> Result<(), ErrorDetail> {
        match &self.identity {
            Some(identity) if identity.role() != role || identity.name() != name => {
                Err(self.refused(format!("{identity} speaks in the name of {role}/{name}")))
            }
            _ => Ok(()),
        }
    }

    /// Every refusal is told to whoever watches over the cluster.
    fn refused(&self, why: String) -> ErrorDetail {
        tracing::warn!(target: "audit", from = %self.from, "refused: {why}");
        ErrorDetail::new(ErrorKind::Refused, why)
    }
}

//! Callers of requests and streams.

use crate::callers::identity::{Identity, Role};
use crate::callers::rights::spoken;
use crate::limits::refusals::{Refusal, Refusals};
use archon_types::{ErrorDetail, ErrorKind, Right, denial};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

/// Returns the address that limits count by: an IPv6 address stands for its /64 network.
pub fn counted_address(from: IpAddr) -> IpAddr {
    match from.to_canonical() {
        IpAddr::V6(six) if !six.is_loopback() => {
            let [a, b, c, d, ..] = six.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        other => other,
    }
}

/// Caller of a request or stream.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Address that limits count by.
    pub from: IpAddr,
    /// Address of the connection.
    pub address: IpAddr,
    /// Identity in the caller's certificate. Without TLS there is none, and callers are not authenticated.
    pub identity: Option<Arc<Identity>>,
    /// The coordinator that makes the call for it, if it was made at a console.
    pub via: Option<Arc<Identity>>,
    /// Records refusals of this caller.
    refusals: Option<Arc<Refusals>>,
}

impl Caller {
    /// A caller without identity and address.
    pub const NOBODY: Self = {
        let nowhere = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
        Self { from: nowhere, address: nowhere, identity: None, via: None, refusals: None }
    };

    /// Creates a caller that connects from `address`, counts for `from`, and whose refusals go to `refusals`.
    pub const fn new(from: IpAddr, address: IpAddr, identity: Option<Arc<Identity>>, refusals: Arc<Refusals>) -> Self {
        Self { from, address, identity, via: None, refusals: Some(refusals) }
    }

    /// Returns the caller of a gRPC request. Where TLS is required, requests without a certificate are rejected
    /// earlier.
    pub fn of<T>(request: &tonic::Request<T>) -> Self {
        request.extensions().get().cloned().unwrap_or(Self::NOBODY)
    }

    /// Rejects callers without one of these roles. `call` is the requested operation.
    ///
    /// # Errors
    /// The allowed roles and the caller.
    pub fn check_role(&self, allowed: &[Role], call: &str) -> Result<(), ErrorDetail> {
        match &self.identity {
            Some(identity) if !allowed.contains(&identity.role()) => {
                let roles: Vec<&str> = allowed.iter().map(|role| role.word()).collect();
                let whom = if roles.is_empty() { "nobody".to_owned() } else { roles.join(", ") };
                Err(self.refused(call, None, format!("{identity} may not {}: that is for {whom}", spoken(call))))
            }
            _ => Ok(()),
        }
    }

    /// Rejects callers that claim another identity than their own. `call` is the requested operation.
    ///
    /// # Errors
    /// The caller and the claimed identity.
    pub fn check_name(&self, call: &str, role: Role, name: &str) -> Result<(), ErrorDetail> {
        match &self.identity {
            Some(identity) if identity.role() != role || identity.name() != name => {
                let subject = format!("{role}/{name}");
                let why = format!("{identity} speaks in the name of {subject}");
                Err(self.refused(call, Some(subject), why))
            }
            _ => Ok(()),
        }
    }

    /// Returns the name of a client: clients need a right for each table. Other roles that can access rows have
    /// access to all tables.
    pub fn client(&self) -> Option<&str> {
        self.identity.as_deref().filter(|identity| identity.role() == Role::Client).map(Identity::name)
    }

    /// Rejects clients without the wanted right to a table. `has` is the granted right; `call` is the requested
    /// operation.
    ///
    /// # Errors
    /// The granted right, and who can grant more.
    pub fn check_right(&self, has: Option<Right>, wanted: Right, table: &str, call: &str) -> Result<(), ErrorDetail> {
        match self.client() {
            Some(client) if has < Some(wanted) => {
                Err(self.refused(call, Some(format!("table {table}")), denial(client, wanted, table, has)))
            }
            _ => Ok(()),
        }
    }

    /// Rejects participants, which access no rows: routes reveal keys, because ranges begin at keys.
    ///
    /// # Errors
    /// The caller.
    pub fn check_routes(&self, table: &str, call: &str) -> Result<(), ErrorDetail> {
        match &self.identity {
            Some(identity) if identity.role() == Role::Participant => {
                let why = format!(
                    "{identity} may not know where rows of table {table} are: it owns leases, and reads no rows"
                );
                Err(self.refused(call, Some(format!("table {table}")), why))
            }
            _ => Ok(()),
        }
    }

    /// Records a refusal in the log and the recorder; returns its error.
    pub fn refused(&self, call: &str, subject: Option<String>, why: String) -> ErrorDetail {
        if let Some(refusals) = &self.refusals {
            let (identity, from, call) = (self.identity.clone(), Some(self.address), Some(call.to_owned()));
            let via = self.via.clone();
            refusals.note(Refusal { identity, via, from, call, subject, why: why.clone(), left_out: 0 }, self.from);
        }
        ErrorDetail::new(ErrorKind::Refused, why)
    }
}

//! Who has sent a request.

use crate::identity::{Identity, Role};
use crate::refusals::{Refusal, Refusals};
use crate::rights::spoken;
use archon_types::{ErrorDetail, ErrorKind, Right, denial};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

/// The address that counts: whoever has one of version 6 has the whole network that it lies in.
pub fn counted_address(from: IpAddr) -> IpAddr {
    match from.to_canonical() {
        IpAddr::V6(six) if !six.is_loopback() => {
            let [a, b, c, d, ..] = six.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        other => other,
    }
}

/// Who has sent a request or opened a stream.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The address that it counts for.
    pub from: IpAddr,
    /// The address that it connects from.
    pub address: IpAddr,
    /// Who it is, as its certificate says; nobody knows without TLS, and then it is whoever it says.
    pub identity: Option<Arc<Identity>>,
    /// The coordinator that makes the call for it, if it was made at a console.
    pub via: Option<Arc<Identity>>,
    /// Who is told when it is refused.
    refusals: Option<Arc<Refusals>>,
}

impl Caller {
    /// Somebody of whom nothing is known.
    pub const NOBODY: Self = {
        let nowhere = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
        Self { from: nowhere, address: nowhere, identity: None, via: None, refusals: None }
    };

    /// Somebody who connects from `address` and counts for `from`, of whose refusals `refusals` takes note.
    pub const fn new(from: IpAddr, address: IpAddr, identity: Option<Arc<Identity>>, refusals: Arc<Refusals>) -> Self {
        Self { from, address, identity, via: None, refusals: Some(refusals) }
    }

    /// Who has sent a request of gRPC. Where callers must say who they are, one that has not is refused before.
    pub fn of<T>(request: &tonic::Request<T>) -> Self {
        request.extensions().get().cloned().unwrap_or(Self::NOBODY)
    }

    /// Refuses it unless it has one of these roles. `call` is what it asks for.
    ///
    /// # Errors
    /// Who may, and who asked.
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

    /// Refuses it unless it is the one in whose name it speaks. `call` is what it asks for.
    ///
    /// # Errors
    /// Who it is, and who it says that it is.
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

    /// Its name, if it is a client: what it may do to rows is granted table by table. Whoever else may work with rows at all may do so
    /// with all of them.
    pub fn client(&self) -> Option<&str> {
        self.identity.as_deref().filter(|identity| identity.role() == Role::Client).map(Identity::name)
    }

    /// Refuses it if it is a client that was not granted this right to a table. `has`: which one it was; `call` is what it asks for.
    ///
    /// # Errors
    /// What it may do, and who can grant the rest.
    pub fn check_right(&self, has: Option<Right>, wanted: Right, table: &str, call: &str) -> Result<(), ErrorDetail> {
        match self.client() {
            Some(client) if has < Some(wanted) => {
                Err(self.refused(call, Some(format!("table {table}")), denial(client, wanted, table, has)))
            }
            _ => Ok(()),
        }
    }

    /// Refuses it if it has no business with the rows of any table, of which routes tell a part: ranges begin at keys.
    ///
    /// # Errors
    /// Who it is.
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

    /// Refuses it, and has that told to whoever watches over the cluster: what it asked for is another's to ask.
    pub fn refused(&self, call: &str, subject: Option<String>, why: String) -> ErrorDetail {
        if let Some(refusals) = &self.refusals {
            let (identity, from, call) = (self.identity.clone(), Some(self.address), Some(call.to_owned()));
            let via = self.via.clone();
            refusals.note(Refusal { identity, via, from, call, subject, why: why.clone(), left_out: 0 }, self.from);
        }
        ErrorDetail::new(ErrorKind::Refused, why)
    }
}

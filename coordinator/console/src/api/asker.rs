//! Callers of operations and their rights. All access to the cluster goes through [`Asker`], so every call is
//! authorized.

use crate::api::console_state::ConsoleState;
use crate::error::ApiError;
use crate::guard::{check_role, forbidden};
use archon_client::{Admin, Client, ErrorKind, Right};
use archon_security::Caller;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use std::convert::Infallible;

/// The caller of an operation.
#[derive(Clone, Debug)]
pub(crate) struct Asker {
    caller: Caller,
    shared: ConsoleState,
}

impl FromRequestParts<ConsoleState> for Asker {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, shared: &ConsoleState) -> Result<Self, Infallible> {
        let caller = parts.extensions.get::<Caller>().cloned().unwrap_or(Caller::NOBODY);
        Ok(Self { caller, shared: shared.clone() })
    }
}

impl Asker {
    /// Returns the caller.
    pub(crate) const fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Returns the state shared by all requests.
    pub(crate) const fn shared(&self) -> &ConsoleState {
        &self.shared
    }

    /// Checks that the caller may make a gRPC call, given by its path.
    ///
    /// # Errors
    /// The roles that may.
    pub(crate) fn may(&self, call: &str) -> Result<(), ApiError> {
        check_role(&self.caller, call, self.shared.is_encrypted())
    }

    /// Returns the administration of the cluster for a call by this caller.
    ///
    /// # Errors
    /// As [`Asker::may`].
    pub(crate) fn admin(&self, method: &str) -> Result<Admin, ApiError> {
        self.may(&format!("/archon.v1.Admin/{method}"))?;
        // The leading coordinator checks the rights again, and records the caller.
        Ok(self.shared.cluster.admin.on_behalf_of(&self.caller))
    }

    /// Returns the administration for a call that only reads. It fails soon without a leader, instead of waiting for
    /// one.
    ///
    /// # Errors
    /// As [`Asker::may`].
    pub(crate) fn reader(&self, method: &str) -> Result<Admin, ApiError> {
        self.may(&format!("/archon.v1.Admin/{method}"))?;
        Ok(self.shared.cluster.quick.on_behalf_of(&self.caller))
    }

    /// Returns a client of a table for an operation by this caller that needs `right`.
    ///
    /// # Errors
    /// As [`Asker::may`]; errors of building the client.
    pub(crate) async fn rows(&self, right: Right, method: &str, table: &str) -> Result<Client, ApiError> {
        let call = format!("/archon.v1.Kv/{method}");
        self.may(&call)?;
        if let Some(client) = self.caller.client() {
            // Nodes see the console as a coordinator, which has the rights of all its callers; so they are checked
            // here.
            let admin = &self.shared.cluster.admin;
            let has = match admin.access(Some(client), Some(table)).await {
                Ok(access) => access.may.and_then(|right| right.known()),
                // Without a right to all tables, callers must not learn which tables exist.
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    let rights = admin.access(Some(client), None).await?.rights;
                    let to_every = rights.iter().filter(|right| right.table_id.is_none());
                    to_every.filter_map(|right| right.may.known()).max()
                }
                Err(error) => return Err(error.into()),
            };
            self.caller.check_right(has, right, table, &call).map_err(|detail| forbidden(detail.message))?;
        }
        Ok(self.shared.cluster.rows(table).await?)
    }
}

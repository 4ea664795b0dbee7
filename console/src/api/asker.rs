//! Who asks, and with which rights: the only way to the cluster, so that nothing is done for somebody who may not.

use super::Shared;
use crate::error::ApiError;
use crate::guard::{check_role, forbidden};
use archon_client::{Admin, Client, ErrorKind, Right};
use archon_security::Caller;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use std::convert::Infallible;

/// Somebody who asks for something.
#[derive(Clone, Debug)]
pub(crate) struct Asker {
    caller: Caller,
    shared: Shared,
}

impl FromRequestParts<Shared> for Asker {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, shared: &Shared) -> Result<Self, Infallible> {
        let caller = parts.extensions.get::<Caller>().cloned().unwrap_or(Caller::NOBODY);
        Ok(Self { caller, shared: shared.clone() })
    }
}

impl Asker {
    /// What all requests share.
    pub(crate) const fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Whether it may make a call of gRPC, by its path.
    ///
    /// # Errors
    /// Who may.
    pub(crate) fn may(&self, call: &str) -> Result<(), ApiError> {
        check_role(&self.caller, call, self.shared.is_encrypted())
    }

    /// The cluster, for a call of the administration that it may make.
    ///
    /// # Errors
    /// As [`Asker::may`].
    pub(crate) fn admin(&self, method: &str) -> Result<Admin, ApiError> {
        self.may(&format!("/archon.v1.Admin/{method}"))?;
        // The leading coordinator looks at the rights once more, and remembers who it was.
        Ok(self.shared.cluster.admin.on_behalf_of(&self.caller))
    }

    /// The cluster, for a call that only looks: whoever looks would rather hear soon that nobody leads than wait for a leader.
    ///
    /// # Errors
    /// As [`Asker::may`].
    pub(crate) fn reader(&self, method: &str) -> Result<Admin, ApiError> {
        self.may(&format!("/archon.v1.Admin/{method}"))?;
        Ok(self.shared.cluster.quick.on_behalf_of(&self.caller))
    }

    /// The rows of a table, for an operation that it may make, and that takes this right.
    ///
    /// # Errors
    /// As [`Asker::may`]; what building a client fails of.
    pub(crate) async fn rows(&self, right: Right, method: &str, table: &str) -> Result<Client, ApiError> {
        let call = format!("/archon.v1.Kv/{method}");
        self.may(&call)?;
        if let Some(client) = self.caller.client() {
            // To nodes the console is a coordinator, which may whatever those may whom it asks for.
            let admin = &self.shared.cluster.admin;
            let has = match admin.access(Some(client), Some(table)).await {
                Ok(access) => access.may.and_then(|right| right.known()),
                // Which tables there are is told to nobody who may not read them all.
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

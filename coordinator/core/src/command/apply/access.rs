//! Grants and revocations of client rights, and revocations of certificates.

use crate::command::apply::entry::Entry;
use crate::command::refusals::{not_found, refused, stale};
use crate::state::ClusterState;
use crate::state::events::EventKind;
use crate::state::response::Response;
use archon_types::{ErrorDetail, Millis, RIGHTS_MAX, Right, Scope, WITHDRAWN_MAX, check_identity};
use std::sync::Arc;

/// Sets the right of a scope to `after` if it is `before`.
pub(super) fn set(
    state: &mut ClusterState,
    entry: Entry<'_>,
    scope: &Scope,
    before: Option<Right>,
    after: Option<Right>,
) -> Result<Response, ErrorDetail> {
    scope.check()?;
    let table = match scope.table.map(|id| state.tables.get(&id).ok_or(id)).transpose() {
        Ok(table) => table.map(|table| (table.id, table.name.clone())),
        Err(id) => return Err(not_found(format!("table number {id} no longer exists"))),
    };
    if state.access.granted(scope) != before {
        // All rights share one version: a single right has none of its own.
        return Err(stale("what was granted", state.access_version, entry.version()));
    }
    if before == after {
        return entry.done();
    }
    if before.is_none() && state.access.len() >= RIGHTS_MAX {
        return Err(refused(format!(
            "{RIGHTS_MAX} rights are granted, which is the limit: grant a right to every client or for every table, \
             and revoke the rights that it covers"
        )));
    }
    Arc::make_mut(&mut state.access).set(scope, after);
    state.access_version = entry.version();
    entry.note(state, EventKind::AccessChanged { client: scope.client.clone(), table, before, after });
    entry.done()
}

/// Sets the revocation time of an identity's certificates to `after` if it is `before`.
pub(super) fn withdraw(
    state: &mut ClusterState,
    entry: Entry<'_>,
    identity: &str,
    before: Option<Millis>,
    after: Option<Millis>,
) -> Result<Response, ErrorDetail> {
    check_identity(identity)?;
    let withdrawn = state.access.withdrawn();
    if withdrawn.get(identity).copied() != before {
        return Err(stale("what was withdrawn", state.access_version, entry.version()));
    }
    if before == after {
        return entry.done();
    }
    if before.is_none() && withdrawn.len() >= WITHDRAWN_MAX {
        return Err(refused(format!(
            "certificates of {WITHDRAWN_MAX} identities are revoked, which is the limit: readmit identities whose \
             revoked certificates have expired (`archon access readmit`), or change the authority \
             (docs/operate/certificates.md)"
        )));
    }
    Arc::make_mut(&mut state.access).set_withdrawn(identity, after);
    state.access_version = entry.version();
    entry.note(state, EventKind::CertificatesWithdrawn { identity: identity.to_owned(), before, after });
    entry.done()
}

//! Grants and revocations of client rights, and revocations of certificates.

use crate::command::apply::entry::Entry;
use crate::command::refusals::{not_found, refused, stale};
use crate::operator::check_weight_max;
use crate::state::ClusterState;
use crate::state::events::EventKind;
use crate::state::response::Response;
use archon_types::{ErrorDetail, Millis, RIGHTS_MAX, Right, Scope, WITHDRAWN_MAX, check_identity};
use std::sync::Arc;

/// A right with its limit of weight.
type GrantedRight = (Option<Right>, Option<u32>);

/// Sets the right of a scope, and its limit of weight, to `after` if they are `before`.
pub(super) fn set(
    state: &mut ClusterState,
    entry: Entry<'_>,
    scope: &Scope,
    before: GrantedRight,
    after: GrantedRight,
) -> Result<Response, ErrorDetail> {
    scope.check()?;
    if let (_, Some(weight)) = after {
        check_weight_max(scope, after.0, weight)?;
    }
    let table = match scope.table.map(|id| state.tables.get(&id).ok_or(id)).transpose() {
        Ok(table) => table.map(|table| (table.id, table.name.clone())),
        Err(id) => return Err(not_found(format!("table number {id} no longer exists"))),
    };
    if (state.access.granted(scope), state.access.weight_max(scope)) != before {
        // All rights share one version: a single right has none of its own.
        return Err(stale("what was granted", state.access_version, entry.version()));
    }
    if before == after {
        return entry.done();
    }
    if before.0.is_none() && state.access.len() >= RIGHTS_MAX {
        return Err(refused(format!(
            "{RIGHTS_MAX} rights are granted, which is the limit: grant a right to every client or for every table, \
             and revoke the rights that it covers"
        )));
    }
    let (right, weight_max) = after;
    let access = Arc::make_mut(&mut state.access);
    access.set(scope, right);
    if let Some(weight_max) = weight_max {
        access.limit_weight(scope, weight_max);
    }
    state.access_version = entry.version();
    let client = scope.client.clone();
    entry.note(state, EventKind::AccessChanged { client, table, before: before.0, after: right, weight_max });
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

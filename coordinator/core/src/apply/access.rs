//! Rights of clients, granted and taken back.

use super::{Entry, not_found, refused, stale};
use crate::events::EventKind;
use crate::response::Response;
use crate::state::ClusterState;
use archon_types::{ErrorDetail, RIGHTS_MAX, Right, Scope};
use std::sync::Arc;

/// Grants exactly this, in place of `before`.
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
        Err(id) => return Err(not_found(format!("there is no table with number {id} any more"))),
    };
    if state.access.granted(scope) != before {
        // Versions of all rights: a single one has none of its own.
        return Err(stale("what was granted", state.access_version, entry.version()));
    }
    if before == after {
        return entry.done();
    }
    if before.is_none() && state.access.len() >= RIGHTS_MAX {
        return Err(refused(format!(
            "{RIGHTS_MAX} rights are granted, which is the limit: grant some to every client, or for every table, and take \
             those back that follow from that"
        )));
    }
    Arc::make_mut(&mut state.access).set(scope, after);
    state.access_version = entry.version();
    entry.note(state, EventKind::AccessChanged { client: scope.client.clone(), table, before, after });
    entry.done()
}

//! The protocol rises (PROTOCOL rule 63).

use super::{Entry, refused};
use crate::command::Actor;
use crate::coordinators::WITHDRAWN_SINCE;
use crate::events::EventKind;
use crate::mutant::Mutant;
use crate::response::Response;
use crate::state::ClusterState;
use crate::upgrade::registered_laggard;
use archon_types::{ErrorDetail, OWN_SINCE, Right, Scope, TableId};
use std::sync::Arc;

/// From now on the cluster speaks this protocol. Who registered meanwhile counts: that is known here and was not when it was
/// decided. Of coordinators the one that leads knows, and whoever could not read this entry does not come here.
pub(super) fn raise(state: &mut ClusterState, entry: Entry<'_>, to: u32) -> Result<Response, ErrorDetail> {
    if to <= state.protocol {
        return entry.done();
    }
    // One that is on its way was decided before an operator was told that it stays.
    if state.protocol_held && matches!(entry.who, Actor::Coordinator(_)) && !state.breaks(Mutant::HoldOverridden) {
        return Err(refused("the protocol is held"));
    }
    if let Some(joining) = state.coordinators.joining() {
        return Err(refused(format!("coordinator {joining} is joining, and is not known to speak protocol {to}")));
    }
    let older = registered_laggard(state, to);
    if let Some(older) = older.filter(|_| !state.breaks(Mutant::RaisedOverOlder)) {
        return Err(refused(format!("{} does not speak protocol {to}", older.node.name)));
    }
    let before = std::mem::replace(&mut state.protocol, to);
    if before < WITHDRAWN_SINCE && to >= WITHDRAWN_SINCE && !state.coordinators.retired.is_empty() {
        state.access_version = entry.version();
    }
    if before < OWN_SINCE && to >= OWN_SINCE {
        keep_owners(state, entry);
    }
    // What it was held for is over.
    state.protocol_held = false;
    // Whoever was judged fit to join before may not speak it.
    state.coordinators.version = entry.version();
    entry.note(state, EventKind::ProtocolRaised { before, after: to });
    entry.done()
}

/// Until now every participant could own partitions of every lease table. It goes on to, of the tables that are there, until an
/// admin takes that back.
fn keep_owners(state: &mut ClusterState, entry: Entry<'_>) {
    let tables: Vec<TableId> = state.lease_tables().map(|table| table.id).collect();
    for table in tables {
        Arc::make_mut(&mut state.access).set(&Scope { client: None, table: Some(table) }, Some(Right::Own));
        state.access_version = entry.version();
    }
}

/// The protocol stays as it is until an operator wants otherwise, or rises by itself again.
pub(super) fn hold(state: &mut ClusterState, entry: Entry<'_>, held: bool) -> Result<Response, ErrorDetail> {
    if state.protocol_held != held {
        state.protocol_held = held;
        entry.note(state, EventKind::ProtocolHeld { held });
    }
    entry.done()
}

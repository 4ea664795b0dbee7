//! Raises of the protocol (PROTOCOL rule 63).

use crate::command::apply::entry::Entry;
use crate::command::refusals::refused;
use crate::mutant::Mutant;
use crate::quorum::upgrade::registered_laggard;
use crate::state::ClusterState;
use crate::state::actor::Actor;
use crate::state::events::EventKind;
use crate::state::protocols::WITHDRAWN_SINCE;
use crate::state::response::Response;
use archon_types::{ErrorDetail, OWN_SINCE, Right, Scope, TableId};
use std::sync::Arc;

/// Raises the protocol of the cluster. Members that registered since the decision count: they are known here. The
/// leader has checked the coordinators, and a coordinator that cannot read this entry does not get here.
pub(super) fn raise(state: &mut ClusterState, entry: Entry<'_>, to: u32) -> Result<Response, ErrorDetail> {
    if to <= state.protocol {
        return entry.done();
    }
    // The raise was decided before the operator's hold took effect.
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
    // The reason for the hold is gone.
    state.protocol_held = false;
    // A newcomer that passed the check before may not speak the new protocol.
    state.coordinators.version = entry.version();
    entry.note(state, EventKind::ProtocolRaised { before, after: to });
    entry.done()
}

/// Grants every participant the existing lease tables until an admin revokes that: before this protocol participants
/// needed no grant.
fn keep_owners(state: &mut ClusterState, entry: Entry<'_>) {
    let tables: Vec<TableId> = state.lease_tables().map(|table| table.id).collect();
    for table in tables {
        Arc::make_mut(&mut state.access).set(&Scope { client: None, table: Some(table) }, Some(Right::Own));
        state.access_version = entry.version();
    }
}

/// Holds the protocol, or lets it rise automatically again.
pub(super) fn hold(state: &mut ClusterState, entry: Entry<'_>, held: bool) -> Result<Response, ErrorDetail> {
    if state.protocol_held != held {
        state.protocol_held = held;
        entry.note(state, EventKind::ProtocolHeld { held });
    }
    entry.done()
}

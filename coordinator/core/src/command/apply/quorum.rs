//! Application of quorum changes. Raft carries them out.

use crate::command::apply::entry::Entry;
use crate::command::refusals::{refused, stale};
use crate::mutant::Mutant;
use crate::state::ClusterState;
use crate::state::coordinators::{PendingChange, Wish};
use crate::state::events::EventKind;
use crate::state::response::Response;
use archon_types::{ErrorDetail, Version};

pub(super) fn change(
    state: &mut ClusterState,
    entry: Entry<'_>,
    if_version: Version,
    wish: &Wish,
) -> Result<Response, ErrorDetail> {
    check_version(state, if_version)?;
    if let Some(pending) = &state.coordinators.pending
        && !state.breaks(Mutant::SecondChangeTaken)
    {
        return Err(refused(format!("another change of the quorum is under way: {}", pending.wish)));
    }
    let pending = PendingChange { wish: wish.clone(), who: entry.who.clone(), at: entry.at, since: entry.version() };
    state.coordinators.pending = Some(pending);
    state.coordinators.version = entry.version();
    entry.note(state, EventKind::QuorumChangeBegun { wish: wish.clone() });
    entry.done()
}

/// Ends the pending change: `done` if it took effect, else an operator cancelled it.
pub(super) fn end(
    state: &mut ClusterState,
    entry: Entry<'_>,
    if_version: Version,
    done: bool,
) -> Result<Response, ErrorDetail> {
    check_version(state, if_version)?;
    let coordinators = &mut state.coordinators;
    if coordinators.joint {
        return Err(refused("the voters are just changing, which ends by itself"));
    }
    let Some(pending) = coordinators
        .pending
        .take_if(|pending| !done || pending.wish.wanted(&coordinators.members) == coordinators.members)
    else {
        return Err(refused("no change of the quorum is under way, or it is not done yet"));
    };
    coordinators.version = entry.version();
    let (wish, voters) = (pending.wish, coordinators.voters());
    let what = if done { EventKind::QuorumChanged { wish, voters } } else { EventKind::QuorumChangeCancelled { wish } };
    entry.note(state, what);
    entry.done()
}

fn check_version(state: &ClusterState, if_version: Version) -> Result<(), ErrorDetail> {
    match state.coordinators.version {
        now if now == if_version => Ok(()),
        now => Err(stale("the quorum", now, if_version)),
    }
}

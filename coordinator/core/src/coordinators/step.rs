//! The next step of a change of the quorum: one step of Raft's joint membership (Ongaro 2014, §4) at a time, from what is to
//! what is wanted, so that it does not matter who leads or how often it is asked.

use super::{Coordinator, Coordinators, Members, PendingChange, QuorumHealth, Wish, voters};
use crate::mutant::Mutant;
use crate::state::ClusterState;
use std::collections::BTreeSet;

/// Who lacks no more entries than this has caught up: so many may be on their way at any moment.
pub const CATCH_UP_ENTRIES: u64 = 64;

/// What the leading coordinator has Raft do next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum QuorumStep {
    /// The members are as they are wanted: the change is over ([`crate::Command::EndQuorumChange`]).
    Done,
    /// The voters of before do not count any more.
    LeaveJoint,
    /// A newcomer begins to copy the log.
    AddLearner(u64, Coordinator),
    /// A member is reached elsewhere.
    SetAddress(u64, Coordinator),
    /// A newcomer, or one that is to become a voter, lacks so many entries, if that is known; nothing is done until it has them.
    CatchUp(u64, Option<u64>),
    /// The leading coordinator is to go: one of these leads first, and carries on.
    GiveWay(BTreeSet<u64>),
    /// These are the voters from now on.
    SetVoters(BTreeSet<u64>),
    /// These are members no more.
    Forget(BTreeSet<u64>),
}

/// What brings the quorum nearer to what is wanted of it; `None` if nothing is under way.
pub fn next_step(state: &ClusterState, health: &QuorumHealth) -> Option<QuorumStep> {
    let Coordinators { members, joint, pending, .. } = &state.coordinators;
    // A leader may have failed in the middle, and whatever was wanted has been taken back since.
    if *joint {
        return Some(QuorumStep::LeaveJoint);
    }
    let PendingChange { wish, .. } = pending.as_ref()?;
    let step = towards(state, &wish.wanted(members), health);
    // Whoever is told that a newcomer has joined may go on with it.
    let joins = match wish {
        Wish::Join(newcomer) if step == QuorumStep::Done => Some(newcomer.id),
        _ => None,
    };
    let copies = joins.filter(|id| lags(state, health, *id)).map(|id| QuorumStep::CatchUp(id, health.behind(id)));
    Some(copies.unwrap_or(step))
}

fn lags(state: &ClusterState, health: &QuorumHealth, id: u64) -> bool {
    !state.breaks(Mutant::NewcomerUnready) && health.behind(id).is_none_or(|behind| behind > CATCH_UP_ENTRIES)
}

fn towards(state: &ClusterState, wanted: &Members, health: &QuorumHealth) -> QuorumStep {
    let now = &state.coordinators.members;
    let gone: BTreeSet<u64> = now.keys().filter(|id| !wanted.contains_key(id)).copied().collect();
    if let Some((id, new)) = wanted.iter().find(|(id, _)| !now.contains_key(id)) {
        return QuorumStep::AddLearner(*id, Coordinator { voter: false, ..new.clone() });
    }
    let moved = |(id, member): &(&u64, &Coordinator)| now.get(id).is_some_and(|now| now.address != member.address);
    if let Some((id, member)) = wanted.iter().find(moved) {
        return QuorumStep::SetAddress(*id, member.clone());
    }
    let (before, after) = (voters(now), voters(wanted));
    let forgets = state.breaks(Mutant::VoterForgotten) && !gone.is_empty();
    if before != after && !forgets {
        // A majority that counts on somebody who has nothing yet could decide nothing.
        if let Some(new) = after.difference(&before).find(|id| lags(state, health, **id)) {
            return QuorumStep::CatchUp(*new, health.behind(*new));
        }
        let stay: BTreeSet<u64> = before.intersection(&after).copied().collect();
        let stays = after.contains(&health.leader) || state.breaks(Mutant::LeaderStays);
        if !stays && !stay.is_empty() {
            return QuorumStep::GiveWay(stay);
        }
        return QuorumStep::SetVoters(after);
    }
    if gone.is_empty() { QuorumStep::Done } else { QuorumStep::Forget(gone) }
}

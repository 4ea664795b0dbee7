//! The next step of a change of the quorum: one step of Raft's joint membership (Ongaro 2014, §4) at a time, from the
//! present members to the target, so that the result does not depend on the leader or the number of calls.

use super::QuorumHealth;
use crate::mutant::Mutant;
use crate::state::ClusterState;
use crate::state::coordinators::{Coordinator, Coordinators, Members, PendingChange, Wish, voters};
use std::collections::BTreeSet;

/// Number of missing entries up to which a member has caught up: so many may be in transit at any moment.
pub const CATCH_UP_ENTRIES: u64 = 64;

/// Next action of the leading coordinator on Raft.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum QuorumStep {
    /// The members are the target set: the change is finished ([`crate::Command::EndQuorumChange`]).
    Done,
    /// The former voters cease to count.
    LeaveJoint,
    /// A newcomer starts to copy the log.
    AddLearner(u64, Coordinator),
    /// A member has another address.
    SetAddress(u64, Coordinator),
    /// A newcomer, or a future voter, lacks this number of entries, if known; the change waits until it has them.
    CatchUp(u64, Option<u64>),
    /// The leading coordinator is to leave: one of these leads first, and continues.
    GiveWay(BTreeSet<u64>),
    /// These become the voters.
    SetVoters(BTreeSet<u64>),
    /// These cease to be members.
    Forget(BTreeSet<u64>),
}

/// Returns the next step towards the target; `None` if no change is in progress.
pub fn next_step(state: &ClusterState, health: &QuorumHealth) -> Option<QuorumStep> {
    let Coordinators { members, joint, pending, .. } = &state.coordinators;
    // A leader may have failed in the middle, and the change may have been cancelled since.
    if *joint {
        return Some(QuorumStep::LeaveJoint);
    }
    let PendingChange { wish, .. } = pending.as_ref()?;
    let step = towards(state, &wish.wanted(members), health);
    // The caller of a finished join may continue with the newcomer.
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
        // A majority that needs a member without the log could decide nothing.
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

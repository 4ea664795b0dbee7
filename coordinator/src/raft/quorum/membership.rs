//! Members of the quorum: conversion between openraft's types and ours, and steps from one member set to the next.

use super::Quorum;
use crate::raft::log::log_space::Purpose;
use crate::raft::quorum::members::voter_of;
use crate::raft::types::TypeConfig;
use archon_coordinator_core::{QuorumHealth, QuorumStep};
use openraft::async_runtime::WatchReceiver as _;
use openraft::raft::Precondition;
use openraft::{ChangeMembers, TokioInstant};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;

/// Upper bound of an entry about the members, in bytes; a change writes up to two.
const ENTRY_BYTES: usize = 8 * 1024;

impl Quorum {
    /// Returns the health of the members in the view of this coordinator, which leads.
    pub(crate) fn health(&self) -> QuorumHealth {
        let view = self.view();
        let heard = view.voters.iter().filter(|voter| !voter.is_away());
        QuorumHealth {
            leader: view.id,
            heard: heard.map(|voter| voter.id).collect(),
            behind: view.voters.iter().filter_map(|voter| Some((voter.id, voter.entries_behind?))).collect(),
        }
    }

    /// As [`Quorum::health`], but member `id` counts as heard only if it answers a message sent from now on: a member
    /// that died a moment ago would pass for alive.
    pub(crate) async fn health_if_answers(&self, id: u64, within: Duration) -> QuorumHealth {
        let begun = <TokioInstant as openraft::Instant>::now();
        let mut metrics = self.raft.metrics();
        let answers = async {
            loop {
                let heard = metrics.borrow_watched().heartbeat.as_ref().and_then(|all| all.get(&id).copied().flatten());
                if heard.is_some_and(|heard| *heard > begun) {
                    return true;
                }
                if metrics.changed().await.is_err() {
                    return false;
                }
            }
        };
        let answered = id == self.local_voter.id || tokio::time::timeout(within, answers).await.unwrap_or(false);
        let mut health = self.health();
        if !answered {
            health.heard.remove(&id);
        }
        health
    }

    /// Returns true if the state contains every entry about the members that Raft uses: steps are decided from the
    /// state.
    pub(crate) fn members_are_applied(&self) -> bool {
        let metrics = self.raft.server_metrics();
        let effective = *metrics.borrow_watched().membership_config.log_id();
        effective == self.replicated().membership_log_id()
    }

    /// Makes Raft take a step. The caller checks again for conditions that the step waits for.
    ///
    /// # Errors
    /// Reason for which it is not done, or not known to be; the next step is then decided from scratch.
    pub(crate) async fn take(&self, step: QuorumStep, within: Duration) -> Result<(), String> {
        let change = match step {
            QuorumStep::Done | QuorumStep::CatchUp(..) => return Ok(()),
            QuorumStep::GiveWay(stay) => {
                return if self.give_way_to(&stay).await {
                    Ok(())
                } else {
                    Err("no coordinator took the \
                                                                               lead"
                        .to_owned())
                };
            }
            // Nothing is added to the target set.
            QuorumStep::LeaveJoint => ChangeMembers::AddVoterIds(BTreeSet::new()),
            QuorumStep::AddLearner(id, coordinator) => {
                ChangeMembers::AddNodes(BTreeMap::from([(id, voter_of(coordinator))]))
            }
            // Another process at that address is not mistaken for this one: each answer names its directory.
            QuorumStep::SetAddress(id, coordinator) => {
                ChangeMembers::SetNodes(BTreeMap::from([(id, voter_of(coordinator))]))
            }
            QuorumStep::SetVoters(voters) => ChangeMembers::ReplaceAllVoters(voters),
            QuorumStep::Forget(gone) => ChangeMembers::RemoveNodes(gone),
        };
        let space = self.space.admitted(Purpose::Change, 2, ENTRY_BYTES, Instant::now() + within).await;
        let space = space.map_err(|_| "the log has no space for it".to_owned())?;
        let last_membership_log_id = self.replicated().membership_log_id();
        let now = Precondition::<TypeConfig>::LastMembershipLogId { last_membership_log_id };
        let raft = self.raft.clone();
        // A former voter continues as a learner until it is removed.
        let retain = true;
        // The change continues if the caller stops waiting: the space is held until it is answered.
        let changing = tokio::spawn(async move {
            let changed = raft.change_membership_if(change, retain, [now]).await;
            drop(space);
            changed.map(drop).map_err(|error| error.to_string())
        });
        match tokio::time::timeout(within, changing).await {
            Ok(Ok(changed)) => changed,
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("it was not committed in time".to_owned()),
        }
    }
}

//! The members of the quorum, present and former ones, and the change in progress.

use crate::state::actor::Actor;
use archon_types::{Millis, QuorumChange, StorageId, Version};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Maximum number of coordinators of one quorum, learners included.
pub const COORDINATORS_MAX: usize = 9;

/// Members of the quorum by number.
pub type Members = BTreeMap<u64, Coordinator>;

/// A member of the quorum.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Coordinator {
    /// Its address for others, `host:port`.
    pub address: String,
    /// The data directory with which it became a member. With another one it has lost its votes.
    pub storage: StorageId,
    /// True if its vote counts; a learner only copies the log.
    pub voter: bool,
}

/// State of the coordinators.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Coordinators {
    /// The members as of Raft's last entry about them. While the voters change, both the old and the new ones are
    /// voters.
    pub members: Members,
    /// True while the voters are changing: a majority of both sets decides.
    pub joint: bool,
    /// Numbers that are never reused, with their data directories: entries of the log name voters by number, and a
    /// newcomer with an old number could be taken for the former one.
    pub retired: BTreeMap<u64, StorageId>,
    /// The change in progress, one at a time.
    pub pending: Option<PendingChange>,
    /// Log index of the last change of this state.
    pub version: Version,
}

impl Coordinators {
    /// Returns the numbers of the voters.
    pub fn voters(&self) -> BTreeSet<u64> {
        voters(&self.members)
    }

    /// Returns the number of an accepted newcomer that is no member yet.
    pub(crate) fn joining(&self) -> Option<u64> {
        match &self.pending.as_ref()?.wish {
            Wish::Join(newcomer) => Some(newcomer.id),
            Wish::Change(_) => None,
        }
    }

    /// Returns true if this coordinator is a former member.
    pub fn has_removed(&self, id: u64, storage: StorageId) -> bool {
        self.retired.get(&id) == Some(&storage)
    }

    /// Returns the certificate identities of removed coordinators.
    pub fn removed(&self) -> impl Iterator<Item = String> {
        self.retired.keys().map(|id| format!("coordinator/{id}"))
    }

    /// Returns the lowest number above all that were ever used.
    pub fn next_id(&self) -> u64 {
        let last = |map: Option<u64>| map.unwrap_or(0);
        let members = last(self.members.keys().next_back().copied());
        members.max(last(self.retired.keys().next_back().copied())).saturating_add(1)
    }
}

/// Returns the numbers of the voters.
pub(crate) fn voters(members: &Members) -> BTreeSet<u64> {
    members.iter().filter(|(_, member)| member.voter).map(|(id, _)| *id).collect()
}

/// Returns the size of a majority of `voters`.
pub const fn majority(voters: usize) -> usize {
    voters / 2 + 1
}

/// A coordinator that asks to become a member.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Newcomer {
    /// Its number.
    pub id: u64,
    /// Its address for others, `host:port`.
    pub address: String,
    /// Its data directory.
    pub storage: StorageId,
    /// True if it is to become a voter once it has the log; otherwise it stays a learner.
    pub voter: bool,
}

/// Target of a change.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Wish {
    /// A newcomer joins.
    Join(Newcomer),
    /// An operator's change.
    Change(QuorumChange),
}

/// A change in progress.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PendingChange {
    /// Its target.
    pub wish: Wish,
    /// Its originator.
    pub who: Actor,
    /// Time of the request, on the proposer's wall clock.
    pub at: Millis,
    /// Log index of the command that started it.
    pub since: Version,
}

impl Wish {
    /// Returns the target set of members: the same at the beginning and in the middle of the change.
    pub fn wanted(&self, now: &Members) -> Members {
        let mut wanted = now.clone();
        let set_voter = |wanted: &mut Members, id: u64, voter: bool| {
            if let Some(member) = wanted.get_mut(&id) {
                member.voter = voter;
            }
        };
        match self {
            Self::Join(newcomer) => {
                // An existing member was a voter before, or has become one.
                let voter = newcomer.voter || now.get(&newcomer.id).is_some_and(|member| member.voter);
                let (address, storage) = (newcomer.address.clone(), newcomer.storage);
                wanted.insert(newcomer.id, Coordinator { address, storage, voter });
            }
            Self::Change(QuorumChange::Promote { id }) => set_voter(&mut wanted, *id, true),
            Self::Change(QuorumChange::Demote { id }) => set_voter(&mut wanted, *id, false),
            Self::Change(QuorumChange::Remove { id }) => drop(wanted.remove(id)),
            Self::Change(QuorumChange::Replace { old, new }) => {
                set_voter(&mut wanted, *new, true);
                wanted.remove(old);
            }
            Self::Change(QuorumChange::SetAddress { id, address }) => {
                if let Some(member) = wanted.get_mut(id) {
                    member.address.clone_from(address);
                }
            }
        }
        wanted
    }
}

impl fmt::Display for Wish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Join(Newcomer { id, address, voter, .. }) => {
                let as_what = if *voter { "voter" } else { "learner" };
                write!(f, "coordinator {id} at {address} joins as a {as_what}")
            }
            Self::Change(change) => change.fmt(f),
        }
    }
}

//! A change of the quorum in progress.

use super::{Coordinator, Members};
use crate::command::Actor;
use archon_types::{Millis, QuorumChange, StorageId, Version};
use serde::{Deserialize, Serialize};
use std::fmt;

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

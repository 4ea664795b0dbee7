//! The coordinators themselves, as the log has them: who is a member of the quorum, who was, and what change is under way.
//!
//! Raft's own entries say who is a member, and the state follows them ([`members_changed`]). What is wanted of the quorum is a
//! command as everything else is: whoever leads brings Raft there step by step ([`next_step`]), so that a change that loses its
//! leader in the middle is carried on by the next one.

mod acquaintances;
mod checksums;
mod health;
mod marks;
mod pending;
mod step;

pub use acquaintances::{Acquaintances, CoordinatorStanding, Unheard};
pub use checksums::{Compared, StateChecksum, compare};
pub use health::QuorumHealth;
pub use marks::{Mark, Marks, Outdated};
pub use pending::{Newcomer, PendingChange, Wish};
pub use step::{CATCH_UP_ENTRIES, QuorumStep, next_step};

use crate::state::ClusterState;
use archon_types::{StorageId, Version};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Most coordinators of one quorum, learners included.
pub const COORDINATORS_MAX: usize = 9;

/// Members of the quorum by number.
pub type Members = BTreeMap<u64, Coordinator>;

/// A member of the quorum.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Coordinator {
    /// Where others reach it, `host:port`.
    pub address: String,
    /// The data directory with which it became a member. With another one it has forgotten its votes.
    pub storage: StorageId,
    /// Whether its vote counts; a learner only copies the log.
    pub voter: bool,
}

/// Everything about the coordinators.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Coordinators {
    /// The members as of the last entry of Raft's about them. While the voters change, those of before and of after are voters.
    pub members: Members,
    /// Whether the voters are just changing: a majority of both sets decides.
    pub joint: bool,
    /// Numbers that are never used again, with the data directories that had them: entries of the log name voters by number,
    /// and a newcomer by an old number could be taken for the one that is gone.
    pub retired: BTreeMap<u64, StorageId>,
    /// What is under way, one change at a time.
    pub pending: Option<PendingChange>,
    /// Log index of the last change of all this.
    pub version: Version,
}

impl Coordinators {
    /// The numbers of those whose votes count.
    pub fn voters(&self) -> BTreeSet<u64> {
        voters(&self.members)
    }

    /// The number of a newcomer that is let in and is no member yet.
    pub(crate) fn joining(&self) -> Option<u64> {
        match &self.pending.as_ref()?.wish {
            Wish::Join(newcomer) => Some(newcomer.id),
            Wish::Change(_) => None,
        }
    }

    /// Whether this coordinator was a member and is none any more.
    pub fn has_removed(&self, id: u64, storage: StorageId) -> bool {
        self.retired.get(&id) == Some(&storage)
    }

    /// Identities of the certificates of coordinators that were removed.
    pub fn removed(&self) -> impl Iterator<Item = String> {
        self.retired.keys().map(|id| format!("coordinator/{id}"))
    }

    /// The lowest number above all that were ever used.
    pub fn next_id(&self) -> u64 {
        let last = |map: Option<u64>| map.unwrap_or(0);
        let members = last(self.members.keys().next_back().copied());
        members.max(last(self.retired.keys().next_back().copied())).saturating_add(1)
    }
}

/// The numbers of those whose votes count.
pub(crate) fn voters(members: &Members) -> BTreeSet<u64> {
    members.iter().filter(|(_, member)| member.voter).map(|(id, _)| *id).collect()
}

/// How many of so many voters decide.
pub const fn majority(voters: usize) -> usize {
    voters / 2 + 1
}

/// Takes in an entry of Raft's that says who the members are.
pub fn members_changed(state: &mut ClusterState, index: u64, members: Members, joint: bool) {
    state.applied = state.applied.max(index);
    let coordinators = &mut state.coordinators;
    let before = std::mem::replace(&mut coordinators.members, members);
    let gone: Vec<(u64, StorageId)> = before
        .into_iter()
        .filter(|(id, _)| !coordinators.members.contains_key(id))
        .map(|(id, member)| (id, member.storage))
        .collect();
    coordinators.retired.extend(gone.iter().copied());
    coordinators.joint = joint;
    coordinators.version = Version::new(index);
    if state.protocol >= WITHDRAWN_SINCE {
        // Nodes refuse certificates of removed coordinators: see `ClusterState::refused_certificates`.
        state.access_version = if gone.is_empty() { state.access_version } else { Version::new(index) };
    }
}

/// The protocol that brought [`crate::Command::CheckState`].
pub const CHECKED_SINCE: u32 = 2;

/// The protocol that brought certificates that are withdrawn.
pub(crate) const WITHDRAWN_SINCE: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn member(id: u64) -> (u64, Coordinator) {
        let storage = StorageId::new(Uuid::from_u128(id.into()));
        (id, Coordinator { address: format!("127.0.0.1:{id}"), storage, voter: true })
    }

    #[test]
    fn a_number_that_was_used_is_free_for_nobody() {
        let mut state = ClusterState { protocol: WITHDRAWN_SINCE, ..ClusterState::new() };
        assert_eq!(state.coordinators.next_id(), 1);
        members_changed(&mut state, 1, [1, 2, 3].map(member).into(), false);
        members_changed(&mut state, 2, [1, 3].map(member).into(), false);
        members_changed(&mut state, 3, [1, 7].map(member).into(), false);
        members_changed(&mut state, 4, [1].map(member).into(), false);
        let retired: Vec<u64> = state.coordinators.retired.keys().copied().collect();
        assert_eq!((retired, state.coordinators.next_id()), (vec![2, 3, 7], 8));
        assert_eq!((state.applied, state.coordinators.version), (4, Version::new(4)));
        // A certificate that names one of them went on reading and writing rows.
        let refused = state.refused_certificates();
        let removed: Vec<&str> = refused.iter().filter(|(_, of)| of.removed).map(|(whose, _)| whose.as_str()).collect();
        assert_eq!(removed, ["coordinator/2", "coordinator/3", "coordinator/7"]);
        assert_eq!(state.access_version, Version::new(4));
    }
}

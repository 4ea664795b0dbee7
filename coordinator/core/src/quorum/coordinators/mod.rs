//! The coordinators in the log: present and former members of the quorum, and the change in progress.
//!
//! Raft's own entries name the members, and the state follows them ([`members_changed`]). The target of a change is a
//! command like any other: the leader brings Raft there step by step ([`next_step`]), so that the next leader continues
//! a change that loses its leader in the middle.

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

/// Applies an entry of Raft about the members.
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

/// Protocol that introduced [`crate::Command::CheckState`].
pub const CHECKED_SINCE: u32 = 2;

/// Protocol that introduced the revocation of certificates.
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
    fn used_numbers_are_not_reused() {
        let mut state = ClusterState { protocol: WITHDRAWN_SINCE, ..ClusterState::new() };
        assert_eq!(state.coordinators.next_id(), 1);
        members_changed(&mut state, 1, [1, 2, 3].map(member).into(), false);
        members_changed(&mut state, 2, [1, 3].map(member).into(), false);
        members_changed(&mut state, 3, [1, 7].map(member).into(), false);
        members_changed(&mut state, 4, [1].map(member).into(), false);
        let retired: Vec<u64> = state.coordinators.retired.keys().copied().collect();
        assert_eq!((retired, state.coordinators.next_id()), (vec![2, 3, 7], 8));
        assert_eq!((state.applied, state.coordinators.version), (4, Version::new(4)));
        // Regression: a certificate that names one of them still read and wrote rows.
        let refused = state.refused_certificates();
        let removed: Vec<&str> = refused.iter().filter(|(_, of)| of.removed).map(|(whose, _)| whose.as_str()).collect();
        assert_eq!(removed, ["coordinator/2", "coordinator/3", "coordinator/7"]);
        assert_eq!(state.access_version, Version::new(4));
    }
}

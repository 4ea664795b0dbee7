//! The coordinators in the log: present and former members of the quorum, and the change in progress.
//!
//! Raft's own entries name the members, and the state follows them ([`members_changed`]). The target of a change is a
//! command like any other: the leader brings Raft there step by step ([`next_step`]), so that the next leader continues
//! a change that loses its leader in the middle.

mod acquaintances;
mod checksums;
mod health;
mod marks;
mod step;

pub use acquaintances::{Acquaintances, CoordinatorRefusal, CoordinatorStanding};
pub use checksums::{ChecksumComparison, StateChecksum, compare};
pub use health::QuorumHealth;
pub use marks::{Mark, Marks, VoterRefusal};
pub use step::{CATCH_UP_ENTRIES, QuorumStep, next_step};

use crate::state::ClusterState;
use crate::state::coordinators::Members;
use crate::state::protocols::WITHDRAWN_SINCE;
use archon_types::{StorageId, Version};

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::coordinators::Coordinator;
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

//! Health of the coordinators in the leader's view.

use crate::state::coordinators::majority;
use std::collections::{BTreeMap, BTreeSet};

/// The leading coordinator's view of the members of the quorum.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct QuorumHealth {
    /// The leader.
    pub leader: u64,
    /// Members that it hears, itself included.
    pub heard: BTreeSet<u64>,
    /// Number of missing log entries of each member, where known.
    pub behind: BTreeMap<u64, u64>,
}

impl QuorumHealth {
    /// Returns the number of these voters that may fail before nothing can be decided; `None` if nothing can be decided
    /// already.
    pub fn spare(&self, voters: &BTreeSet<u64>) -> Option<usize> {
        voters.intersection(&self.heard).count().checked_sub(majority(voters.len()))
    }

    /// Returns the number of entries that a member lacks, if it is heard and the number is known.
    pub fn behind(&self, id: u64) -> Option<u64> {
        if id == self.leader { Some(0) } else { self.behind.get(&id).copied().filter(|_| self.heard.contains(&id)) }
    }
}

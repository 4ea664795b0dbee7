//! How the coordinators are, as the leading one sees them.

use super::majority;
use std::collections::{BTreeMap, BTreeSet};

/// What the leading coordinator knows of the members of the quorum.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct QuorumHealth {
    /// The one that leads.
    pub leader: u64,
    /// Those that it hears, itself included.
    pub heard: BTreeSet<u64>,
    /// How many entries of the log each of them lacks, where that is known.
    pub behind: BTreeMap<u64, u64>,
}

impl QuorumHealth {
    /// How many of these voters may fail before nothing can be decided; `None` if that is so already.
    pub fn spare(&self, voters: &BTreeSet<u64>) -> Option<usize> {
        voters.intersection(&self.heard).count().checked_sub(majority(voters.len()))
    }

    /// How many entries a member lacks, if it is heard and that is known.
    pub fn behind(&self, id: u64) -> Option<u64> {
        if id == self.leader { Some(0) } else { self.behind.get(&id).copied().filter(|_| self.heard.contains(&id)) }
    }
}

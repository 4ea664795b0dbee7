//! Membership of the quorum, and the steps of a change.

use archon_coordinator_core::majority;
use archon_coordinator_core::{Coordinator, Members, QuorumStep};
use archon_types::StorageId;
use std::collections::{BTreeMap, BTreeSet};

/// Content of an entry about the members.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Membership {
    /// The voters; during a change, those of before and those of after.
    configs: Vec<BTreeSet<u64>>,
    /// All members, learners included.
    nodes: BTreeMap<u64, (String, StorageId)>,
}

impl Membership {
    /// Returns the first members, all of them voters.
    pub(crate) fn founding(nodes: BTreeMap<u64, (String, StorageId)>) -> Self {
        Self { configs: vec![nodes.keys().copied().collect()], nodes }
    }

    pub(crate) fn is_voter(&self, id: u64) -> bool {
        self.configs.iter().any(|voters| voters.contains(&id))
    }

    pub(crate) fn is_joint(&self) -> bool {
        self.configs.len() > 1
    }

    /// Returns true if `has` holds for a majority: of both sets during a change.
    pub(crate) fn decides(&self, has: impl Fn(u64) -> bool) -> bool {
        let majority = |voters: &BTreeSet<u64>| voters.iter().filter(|id| has(**id)).count() >= majority(voters.len());
        self.configs.iter().all(majority)
    }

    pub(crate) fn numbers(&self) -> impl Iterator<Item = u64> + '_ {
        self.nodes.keys().copied()
    }

    pub(crate) fn voters(&self) -> BTreeSet<u64> {
        self.configs.iter().flatten().copied().collect()
    }

    pub(crate) fn address(&self, id: u64) -> Option<&str> {
        self.nodes.get(&id).map(|(address, _)| address.as_str())
    }

    pub(crate) fn directory(&self, id: u64) -> Option<StorageId> {
        self.nodes.get(&id).map(|(_, storage)| *storage)
    }

    pub(crate) fn directories(&self) -> BTreeMap<u64, StorageId> {
        self.nodes.iter().map(|(id, (_, storage))| (*id, *storage)).collect()
    }

    /// Returns the members as in the coordinators' state.
    pub(crate) fn members(&self) -> (Members, bool) {
        let member = |(id, (address, storage)): (&u64, &(String, StorageId))| {
            (*id, Coordinator { address: address.clone(), storage: *storage, voter: self.is_voter(*id) })
        };
        (self.nodes.iter().map(member).collect(), self.is_joint())
    }

    /// Returns the members after a step, as in openraft; `None` if it refuses the step. A former voter stays as a
    /// learner until it is removed. `joint`: voters change by joint consensus.
    pub(crate) fn after(&self, step: &QuorumStep, joint: bool) -> Option<Self> {
        let mut after = self.clone();
        match step {
            QuorumStep::Done | QuorumStep::CatchUp(..) | QuorumStep::GiveWay(_) => return None,
            QuorumStep::LeaveJoint => after.configs = self.configs.last().cloned().into_iter().collect(),
            QuorumStep::AddLearner(id, new) => {
                after.nodes.entry(*id).or_insert_with(|| (new.address.clone(), new.storage));
            }
            QuorumStep::SetAddress(id, new) => {
                after.nodes.insert(*id, (new.address.clone(), new.storage));
            }
            QuorumStep::SetVoters(voters) => {
                let unknown = voters.iter().any(|id| !self.nodes.contains_key(id));
                if self.is_joint() || voters.is_empty() || unknown {
                    return None;
                }
                if !joint {
                    after.configs.clear();
                }
                after.configs.push(voters.clone());
            }
            QuorumStep::Forget(gone) => {
                if gone.iter().any(|id| self.is_voter(*id)) {
                    return None;
                }
                after.nodes.retain(|id, _| !gone.contains(id));
            }
        }
        (after != *self).then_some(after)
    }
}

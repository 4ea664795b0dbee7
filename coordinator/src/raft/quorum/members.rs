//! Conversion of the members of the quorum between openraft's types and ours.

use crate::raft::machine::ReplicatedState;
use crate::raft::machine::raft::Raft;
use crate::raft::types::{Membership, Voter};
use archon_coordinator_core::{Coordinator, Members};
use archon_types::StorageId;
use openraft::async_runtime::WatchReceiver as _;
use std::collections::{BTreeMap, BTreeSet};

/// Returns the members in an entry, and whether their voters are just changing.
pub(crate) fn members_of(membership: &Membership) -> (Members, bool) {
    let voters: BTreeSet<u64> = membership.voter_ids().collect();
    let member = |(id, voter): (&u64, &Voter)| {
        let storage = StorageId::new(voter.storage);
        (*id, Coordinator { address: voter.address.clone(), storage, voter: voters.contains(id) })
    };
    (membership.nodes().map(member).collect(), membership.get_joint_config().len() > 1)
}

/// Returns the addresses of the members in an entry.
pub(crate) fn addresses_of(membership: &Membership) -> BTreeMap<u64, String> {
    membership.nodes().map(|(id, voter)| (*id, voter.address.clone())).collect()
}

pub(crate) fn voter_of(coordinator: Coordinator) -> Voter {
    Voter { address: coordinator.address, storage: coordinator.storage.get() }
}

/// Returns the addresses of the members of the log, and of the expected ones until the log names coordinator `id`
/// itself: the others may all be gone.
pub(crate) fn members_to_ask(
    raft: &Raft,
    replicated: &ReplicatedState,
    expected: &BTreeMap<u64, String>,
    id: u64,
) -> BTreeMap<u64, String> {
    let mut members = addresses_of(raft.server_metrics().borrow_watched().membership_config.membership());
    if !members.contains_key(&id) {
        for (id, address) in expected {
            members.entry(*id).or_insert_with(|| address.clone());
        }
    }
    replicated.addresses().reached_at(members)
}

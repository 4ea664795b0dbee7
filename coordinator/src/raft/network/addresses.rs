//! Addresses of the members: as the applied log has them, and the ones where moved members were found. openraft keeps
//! its connection to a member while the member's number stays the same, so without this it would call a moved member at
//! the old address until the next leader change.

use crate::raft::quorum::members::addresses_of;
use crate::raft::types::Membership;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Clones share their content.
#[derive(Clone, Debug, Default)]
pub(in crate::raft) struct Addresses(Arc<RwLock<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    /// Addresses in the applied log.
    recorded: BTreeMap<u64, String>,
    /// Members that answer at another address.
    elsewhere: BTreeMap<u64, AddressChange>,
}

/// Address of a member that does not answer where the log has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AddressChange {
    /// Address in the log. As soon as the log has another one, the log counts.
    pub(crate) was: String,
    /// Address where it answers.
    pub(crate) is: String,
}

impl Addresses {
    /// Sets the members of the applied log.
    pub(in crate::raft) fn set(&self, members: &Membership) {
        let (mut inner, recorded) = (self.0.write(), addresses_of(members));
        inner.elsewhere.retain(|id, found| recorded.get(id) == Some(&found.was));
        inner.recorded = recorded;
    }

    /// Notes the address where a member answers; `None` stands for the one in the log. Returns true if that is new.
    pub(super) fn set_elsewhere(&self, id: u64, elsewhere: Option<AddressChange>) -> bool {
        let mut inner = self.0.write();
        let before = match elsewhere.clone() {
            Some(found) => inner.elsewhere.insert(id, found),
            None => inner.elsewhere.remove(&id),
        };
        before != elsewhere
    }

    /// Returns the members that answer at another address.
    pub(in crate::raft) fn elsewhere(&self) -> BTreeMap<u64, AddressChange> {
        self.0.read().elsewhere.clone()
    }

    /// Returns the addresses where members are reached, given those in the log.
    pub(in crate::raft) fn reached_at(&self, recorded: BTreeMap<u64, String>) -> BTreeMap<u64, String> {
        let inner = self.0.read();
        let reached = |(id, address): (u64, String)| match inner.elsewhere.get(&id) {
            Some(found) if found.was == address => (id, found.is.clone()),
            _ => (id, address),
        };
        recorded.into_iter().map(reached).collect()
    }

    /// Returns the address where a member is reached, if it differs from `known`.
    pub(super) fn other_than(&self, id: u64, known: &str) -> Option<String> {
        let inner = self.0.read();
        let (recorded, found) = (inner.recorded.get(&id), inner.elsewhere.get(&id));
        let found = found.filter(|found| recorded.is_none_or(|recorded| *recorded == found.was)).map(|found| &found.is);
        found.or(recorded).filter(|address| *address != known).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raft::types::Voter;
    use uuid::Uuid;

    fn members(address: &str) -> Membership {
        let nodes = BTreeMap::from([(2, Voter { address: address.to_owned(), storage: Uuid::nil() })]);
        Membership::new(vec![[2].into()], nodes).unwrap()
    }

    #[test]
    fn newer_address_in_the_log_wins() {
        let addresses = Addresses::default();
        let found = AddressChange { was: "old:1".to_owned(), is: "hint:1".to_owned() };
        assert!(addresses.set_elsewhere(2, Some(found.clone())) && !addresses.set_elsewhere(2, Some(found)));
        assert_eq!(addresses.other_than(2, "old:1").as_deref(), Some("hint:1"), "nothing is applied yet");
        addresses.set(&members("old:1"));
        assert_eq!(addresses.other_than(2, "old:1").as_deref(), Some("hint:1"));
        assert_eq!(addresses.reached_at([(2, "old:1".to_owned())].into()), [(2, "hint:1".to_owned())].into());
        addresses.set(&members("new:1"));
        assert_eq!(addresses.other_than(2, "hint:1").as_deref(), Some("new:1"));
        assert_eq!(addresses.reached_at([(2, "new:1".to_owned())].into()), [(2, "new:1".to_owned())].into());
        assert!(addresses.elsewhere().is_empty());
    }
}

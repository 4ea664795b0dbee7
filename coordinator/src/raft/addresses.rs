//! Where the members are reached, as the applied log has it, and where those are found that are not there. openraft keeps its way to a member
//! while its number stays the same, so that one that moves would be called at its old address until somebody else leads.

use super::membership::addresses_of;
use super::types::Membership;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Addresses(Arc<RwLock<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    /// As the applied log has them.
    recorded: BTreeMap<u64, String>,
    /// Members that answer elsewhere.
    elsewhere: BTreeMap<u64, Elsewhere>,
}

/// Where a member answers that does not where the log has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Elsewhere {
    /// Where the log has it. As soon as that has another address, it is the log that counts.
    pub(crate) was: String,
    /// Where it answers.
    pub(crate) is: String,
}

impl Addresses {
    /// The members are these from now on.
    pub(super) fn set(&self, members: &Membership) {
        let (mut inner, recorded) = (self.0.write(), addresses_of(members));
        inner.elsewhere.retain(|id, found| recorded.get(id) == Some(&found.was));
        inner.recorded = recorded;
    }

    /// A member answers there, or, if nothing is said, where the log has it. Returns whether that was not known.
    pub(super) fn set_elsewhere(&self, id: u64, elsewhere: Option<Elsewhere>) -> bool {
        let mut inner = self.0.write();
        let before = match elsewhere.clone() {
            Some(found) => inner.elsewhere.insert(id, found),
            None => inner.elsewhere.remove(&id),
        };
        before != elsewhere
    }

    /// The members that answer elsewhere.
    pub(super) fn elsewhere(&self) -> BTreeMap<u64, Elsewhere> {
        self.0.read().elsewhere.clone()
    }

    /// Where members are reached of which the log has these addresses.
    pub(super) fn reached_at(&self, recorded: BTreeMap<u64, String>) -> BTreeMap<u64, String> {
        let inner = self.0.read();
        let reached = |(id, address): (u64, String)| match inner.elsewhere.get(&id) {
            Some(found) if found.was == address => (id, found.is.clone()),
            _ => (id, address),
        };
        recorded.into_iter().map(reached).collect()
    }

    /// Where a member is reached, if that is another address than `known`.
    pub(super) fn other_than(&self, id: u64, known: &str) -> Option<String> {
        let inner = self.0.read();
        let (recorded, found) = (inner.recorded.get(&id), inner.elsewhere.get(&id));
        let found = found.filter(|found| recorded.is_none_or(|recorded| *recorded == found.was)).map(|found| &found.is);
        found.or(recorded).filter(|address| *address != known).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::super::types::Voter;
    use super::*;
    use uuid::Uuid;

    fn members(address: &str) -> Membership {
        let nodes = BTreeMap::from([(2, Voter { address: address.to_owned(), storage: Uuid::nil() })]);
        Membership::new(vec![[2].into()], nodes).unwrap()
    }

    #[test]
    fn a_member_was_called_elsewhere_when_the_log_had_a_newer_address() {
        let addresses = Addresses::default();
        let found = Elsewhere { was: "old:1".to_owned(), is: "hint:1".to_owned() };
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

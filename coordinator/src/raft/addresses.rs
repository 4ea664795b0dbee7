//! Where the members are reached, as the applied log has it. openraft keeps its way to a member while its number stays the same, so
//! that one that moves would be called at its old address until somebody else leads.

use super::membership::addresses_of;
use super::types::Membership;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Addresses(Arc<RwLock<BTreeMap<u64, String>>>);

impl Addresses {
    /// The members are these from now on.
    pub(super) fn set(&self, members: &Membership) {
        *self.0.write() = addresses_of(members);
    }

    /// Where a member is reached, if that is another address than `known`.
    pub(super) fn other_than(&self, id: u64, known: &str) -> Option<String> {
        self.0.read().get(&id).filter(|address| *address != known).cloned()
    }
}

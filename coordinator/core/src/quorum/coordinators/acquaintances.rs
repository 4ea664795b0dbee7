//! Trusted coordinators: a number and a data directory belong together permanently (PROTOCOL rule 58), and a stranger
//! is accepted once a member vouches for both (rule 59).

use crate::mutant::{DisabledRule, Mutant};
use archon_types::StorageId;
use std::collections::{BTreeMap, BTreeSet};

/// Standing of a coordinator towards another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CoordinatorStanding {
    /// A member, with this directory.
    Member,
    /// Its number became a member with another directory: this one has lost its votes.
    OtherDirectory,
    /// Its number belonged to a removed coordinator.
    Retired,
    /// Unknown here.
    Unknown,
}

/// Reason for which a coordinator is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CoordinatorRefusal {
    /// Its number belongs to another directory.
    OtherDirectory,
    /// There is no quorum yet, or none that is known here, and it is not an expected one.
    Unexpected,
    /// It is no member, and no member has vouched for it.
    Stranger,
}

/// Coordinators that another one knows, with their directories.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Acquaintances {
    members: BTreeMap<u64, StorageId>,
    vouched: BTreeMap<u64, StorageId>,
    broken: DisabledRule,
}

impl Acquaintances {
    /// Creates them from the members of the own log, which may name none.
    pub fn new(members: BTreeMap<u64, StorageId>) -> Self {
        Self { members, ..Self::default() }
    }

    /// Disables the rule that `broken` names, if it is one of these.
    #[must_use]
    pub fn broken_by(self, broken: DisabledRule) -> Self {
        Self { broken, ..self }
    }

    /// Adds the ones that a member vouches for. The own log takes precedence: its members, and the removed ones, which
    /// a lagging member may not know.
    #[must_use]
    pub fn with_vouched(mut self, vouched: &BTreeMap<u64, StorageId>, removed: impl Fn(u64) -> bool) -> Self {
        let counts = |id: u64| !removed(id) || self.broken.breaks(Mutant::RemovedVouched);
        if !self.broken.breaks(Mutant::VouchedIgnored) {
            self.vouched = vouched.iter().filter(|(id, _)| counts(**id)).map(|(id, storage)| (*id, *storage)).collect();
        }
        self
    }

    /// Returns true if the own log names no members.
    pub fn names_nobody(&self) -> bool {
        self.members.is_empty()
    }

    fn directory(&self, id: u64) -> Option<StorageId> {
        self.members.get(&id).or_else(|| self.vouched.get(&id)).copied()
    }

    /// Returns the standing of a coordinator with this directory; `retired`: the number belonged to a removed one.
    pub fn standing(&self, id: u64, storage: Option<StorageId>, retired: bool) -> CoordinatorStanding {
        match self.directory(id) {
            Some(known) if self.is_directory(known, storage) => CoordinatorStanding::Member,
            Some(_) => CoordinatorStanding::OtherDirectory,
            None if retired => CoordinatorStanding::Retired,
            None => CoordinatorStanding::Unknown,
        }
    }

    /// Checks that `me`, with these acquaintances, accepts a message of this coordinator. `expected`: the coordinators
    /// that may talk to it before its log names itself; the log of a newcomer begins with earlier members, which may
    /// all be gone.
    ///
    /// # Errors
    /// Reason of the refusal.
    pub fn hears(
        &self,
        me: u64,
        id: u64,
        storage: StorageId,
        expected: &BTreeSet<u64>,
    ) -> Result<(), CoordinatorRefusal> {
        match self.directory(id) {
            Some(known) if self.is_directory(known, Some(storage)) => Ok(()),
            Some(_) => Err(CoordinatorRefusal::OtherDirectory),
            None if expected.contains(&id) && self.is_new_here(me) => Ok(()),
            None if self.names_nobody() => Err(CoordinatorRefusal::Unexpected),
            None if self.broken.breaks(Mutant::StrangerHeard) => Ok(()),
            None => Err(CoordinatorRefusal::Stranger),
        }
    }

    /// Returns true if `me` still relies on the expected coordinators: its own log does not name it yet.
    fn is_new_here(&self, me: u64) -> bool {
        self.names_nobody() || (!self.members.contains_key(&me) && !self.broken.breaks(Mutant::ExpectedForgotten))
    }

    fn is_directory(&self, known: StorageId, storage: Option<StorageId>) -> bool {
        storage == Some(known) || self.broken.breaks(Mutant::OtherDirectoryHeard)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn directory(number: u128) -> StorageId {
        StorageId::new(Uuid::from_u128(number))
    }

    fn known() -> Acquaintances {
        Acquaintances::new((1..=3).map(|id| (id, directory(id.into()))).collect())
    }

    #[test]
    fn vouched_coordinator_is_accepted_with_that_directory_only() {
        let members = [(1, directory(1)), (2, directory(2))].into();
        let vouched = [(1, directory(9)), (4, directory(4))].into();
        let known = Acquaintances::new(members).with_vouched(&vouched, |_| false);
        let nobody = BTreeSet::new();
        assert_eq!(known.hears(2, 4, directory(4), &nobody), Ok(()));
        assert_eq!(known.hears(2, 4, directory(44), &nobody), Err(CoordinatorRefusal::OtherDirectory));
        assert_eq!(
            known.hears(2, 1, directory(9), &nobody),
            Err(CoordinatorRefusal::OtherDirectory),
            "the log counts more"
        );
        // A coordinator with an empty log accepts the expected ones, by number.
        let empty = Acquaintances::default();
        assert_eq!(empty.hears(2, 4, directory(4), &nobody), Err(CoordinatorRefusal::Unexpected));
        assert_eq!(empty.hears(2, 4, directory(4), &[4].into()), Ok(()));
    }

    #[test]
    fn newcomer_with_partial_log_accepts_expected_members() {
        let (known, expected) = (known(), [5, 6].into());
        assert_eq!(known.hears(7, 5, directory(5), &expected), Ok(()), "of its log's members nobody may be left");
        assert_eq!(known.hears(7, 3, directory(33), &expected), Err(CoordinatorRefusal::OtherDirectory));
        assert_eq!(known.hears(7, 4, directory(4), &expected), Err(CoordinatorRefusal::Stranger));
        // Once the log names itself, it names the others as well.
        assert_eq!(known.hears(3, 5, directory(5), &expected), Err(CoordinatorRefusal::Stranger));
    }

    #[test]
    fn newcomer_with_empty_log_accepts_vouched_leader() {
        let told = Acquaintances::default().with_vouched(&[(4, directory(4))].into(), |_| false);
        let expected = [2].into();
        assert_eq!(told.hears(7, 4, directory(4), &expected), Ok(()));
        assert_eq!(told.hears(7, 5, directory(5), &expected), Err(CoordinatorRefusal::Unexpected));
        assert!(told.names_nobody(), "it knows of no quorum by its own log");
    }

    #[test]
    fn removed_number_has_standing_retired() {
        let known = known();
        assert_eq!(known.standing(7, Some(directory(7)), true), CoordinatorStanding::Retired);
        assert_eq!(known.standing(7, None, false), CoordinatorStanding::Unknown);
        assert_eq!(known.standing(2, Some(directory(2)), true), CoordinatorStanding::Member);
    }
}

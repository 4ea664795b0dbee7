//! Whom a coordinator believes: a number and a data directory belong together for ever (PROTOCOL rule 58), and a stranger is heard
//! once a member vouches for both (rule 59).

use crate::mutant::{Broken, Mutant};
use archon_types::StorageId;
use std::collections::{BTreeMap, BTreeSet};

/// What a coordinator is to another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CoordinatorStanding {
    /// A member, with this directory.
    Member,
    /// Its number became a member with another directory: this one has forgotten its votes.
    OtherDirectory,
    /// Its number belonged to one that was removed.
    Retired,
    /// Nobody here knows it.
    Unknown,
}

/// Why a coordinator is not heard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unheard {
    /// Its number belongs to another directory.
    OtherDirectory,
    /// There is no quorum yet, or none that is known here, and it is nobody who was named.
    Unexpected,
    /// It is no member, and nobody has vouched for it.
    Stranger,
}

/// Coordinators that another one knows, with their directories.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Acquaintances {
    members: BTreeMap<u64, StorageId>,
    vouched: BTreeMap<u64, StorageId>,
    broken: Broken,
}

impl Acquaintances {
    /// The members of its own log; nobody, if that names none.
    pub fn new(members: BTreeMap<u64, StorageId>) -> Self {
        Self { members, ..Self::default() }
    }

    /// Takes a rule away, if it breaks one.
    #[must_use]
    pub fn broken_by(self, broken: Broken) -> Self {
        Self { broken, ..self }
    }

    /// Those as well whom a member vouches for. What the log says counts more: who the members are, and who was removed, of which a member
    /// that lags may not know.
    #[must_use]
    pub fn with_vouched(mut self, vouched: &BTreeMap<u64, StorageId>, removed: impl Fn(u64) -> bool) -> Self {
        let counts = |id: u64| !removed(id) || self.broken.breaks(Mutant::RemovedVouched);
        if !self.broken.breaks(Mutant::VouchedIgnored) {
            self.vouched = vouched.iter().filter(|(id, _)| counts(**id)).map(|(id, storage)| (*id, *storage)).collect();
        }
        self
    }

    /// Whether its log names no members.
    pub fn names_nobody(&self) -> bool {
        self.members.is_empty()
    }

    fn directory(&self, id: u64) -> Option<StorageId> {
        self.members.get(&id).or_else(|| self.vouched.get(&id)).copied()
    }

    /// What a coordinator with this directory is to it; `retired`: whether the number belonged to one that was removed.
    pub fn standing(&self, id: u64, storage: Option<StorageId>, retired: bool) -> CoordinatorStanding {
        match self.directory(id) {
            Some(known) if self.is_directory(known, storage) => CoordinatorStanding::Member,
            Some(_) => CoordinatorStanding::OtherDirectory,
            None if retired => CoordinatorStanding::Retired,
            None => CoordinatorStanding::Unknown,
        }
    }

    /// Whether `me`, whose acquaintances these are, hears a message of this coordinator. `expected`: who may talk to it before its log names
    /// itself; the log of a newcomer begins with members of long ago, who may all be gone.
    ///
    /// # Errors
    /// Why not.
    pub fn hears(&self, me: u64, id: u64, storage: StorageId, expected: &BTreeSet<u64>) -> Result<(), Unheard> {
        match self.directory(id) {
            Some(known) if self.is_directory(known, Some(storage)) => Ok(()),
            Some(_) => Err(Unheard::OtherDirectory),
            None if expected.contains(&id) && self.is_new_here(me) => Ok(()),
            None if self.names_nobody() => Err(Unheard::Unexpected),
            None if self.broken.breaks(Mutant::StrangerHeard) => Ok(()),
            None => Err(Unheard::Stranger),
        }
    }

    /// Whether `me` goes by those of whom it was told: its own log does not name it yet.
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
    fn whoever_a_member_vouches_for_is_heard_with_that_directory_alone() {
        let members = [(1, directory(1)), (2, directory(2))].into();
        let vouched = [(1, directory(9)), (4, directory(4))].into();
        let known = Acquaintances::new(members).with_vouched(&vouched, |_| false);
        let nobody = BTreeSet::new();
        assert_eq!(known.hears(2, 4, directory(4), &nobody), Ok(()));
        assert_eq!(known.hears(2, 4, directory(44), &nobody), Err(Unheard::OtherDirectory));
        assert_eq!(known.hears(2, 1, directory(9), &nobody), Err(Unheard::OtherDirectory), "the log counts more");
        // One whose log names nobody hears those that it was told of, by number.
        let empty = Acquaintances::default();
        assert_eq!(empty.hears(2, 4, directory(4), &nobody), Err(Unheard::Unexpected));
        assert_eq!(empty.hears(2, 4, directory(4), &[4].into()), Ok(()));
    }

    #[test]
    fn a_newcomer_with_a_first_part_of_the_log_refused_those_who_had_let_it_in() {
        let (known, expected) = (known(), [5, 6].into());
        assert_eq!(known.hears(7, 5, directory(5), &expected), Ok(()), "of its log's members nobody may be left");
        assert_eq!(known.hears(7, 3, directory(33), &expected), Err(Unheard::OtherDirectory));
        assert_eq!(known.hears(7, 4, directory(4), &expected), Err(Unheard::Stranger));
        // Once the log names itself, it names the others as well.
        assert_eq!(known.hears(3, 5, directory(5), &expected), Err(Unheard::Stranger));
    }

    #[test]
    fn a_newcomer_without_an_entry_refused_a_leader_that_joined_since_whoever_vouched_for_it() {
        let told = Acquaintances::default().with_vouched(&[(4, directory(4))].into(), |_| false);
        let expected = [2].into();
        assert_eq!(told.hears(7, 4, directory(4), &expected), Ok(()));
        assert_eq!(told.hears(7, 5, directory(5), &expected), Err(Unheard::Unexpected));
        assert!(told.names_nobody(), "it knows of no quorum by its own log");
    }

    #[test]
    fn a_number_that_was_removed_is_told_so() {
        let known = known();
        assert_eq!(known.standing(7, Some(directory(7)), true), CoordinatorStanding::Retired);
        assert_eq!(known.standing(7, None, false), CoordinatorStanding::Unknown);
        assert_eq!(known.standing(2, Some(directory(2)), true), CoordinatorStanding::Member);
    }
}

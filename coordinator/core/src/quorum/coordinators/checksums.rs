//! Comparison of the coordinators' states: each sums its own up as of the same entries of the log, and the result of a
//! majority of the voters is right.

use crate::state::coordinators::majority;
use std::collections::{BTreeMap, BTreeSet};

/// Checksum of one coordinator's state as of an entry.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct StateChecksum {
    /// The entry that asked for it.
    pub index: u64,
    /// Version of the program that made it: another one may write the same state differently.
    pub version: String,
    /// The checksum.
    pub checksum: u64,
}

impl StateChecksum {
    /// Returns true if the two can be compared.
    pub fn is_comparable(&self, other: &Self) -> bool {
        (self.index, &self.version) == (other.index, &other.version)
    }
}

/// Result of comparing the checksums of one entry.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ChecksumComparison {
    /// The checksum of a majority of the voters.
    pub agreed: Option<StateChecksum>,
    /// Coordinators with another checksum.
    pub differ: BTreeSet<u64>,
    /// Coordinators with the agreed checksum.
    pub agree: BTreeSet<u64>,
}

/// Compares the coordinators' checksums with that of `of`, where they are comparable. Without a majority that agrees,
/// all differ if any two do: it is unknown then which of them is right.
pub fn compare(of: &StateChecksum, told: &BTreeMap<u64, StateChecksum>, voters: &BTreeSet<u64>) -> ChecksumComparison {
    let comparable: BTreeMap<u64, &StateChecksum> =
        told.iter().filter(|(_, told)| told.is_comparable(of)).map(|(id, told)| (*id, told)).collect();
    let mut votes: BTreeMap<u64, usize> = BTreeMap::new();
    for (_, told) in comparable.iter().filter(|(id, _)| voters.contains(id)) {
        *votes.entry(told.checksum).or_default() += 1;
    }
    let agreed = votes.iter().find(|(_, votes)| **votes >= majority(voters.len())).map(|(checksum, _)| *checksum);
    let Some(checksum) = agreed else {
        let different: BTreeSet<u64> = comparable.values().map(|told| told.checksum).collect();
        let differ = if different.len() > 1 { comparable.into_keys().collect() } else { BTreeSet::new() };
        return ChecksumComparison { differ, ..ChecksumComparison::default() };
    };
    let (agree, differ) = comparable.into_iter().partition::<BTreeMap<_, _>, _>(|(_, told)| told.checksum == checksum);
    ChecksumComparison {
        agreed: Some(StateChecksum { checksum, ..of.clone() }),
        differ: differ.into_keys().collect(),
        agree: agree.into_keys().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(index: u64, version: &str, checksum: u64) -> StateChecksum {
        StateChecksum { index, version: version.to_owned(), checksum }
    }

    fn told(all: &[(u64, u64)]) -> BTreeMap<u64, StateChecksum> {
        all.iter().map(|(id, checksum)| (*id, of(7, "1", *checksum))).collect()
    }

    #[test]
    fn checksum_of_a_voter_majority_is_right() {
        let voters = [1, 2, 3].into();
        let compared = compare(&of(7, "1", 0), &told(&[(1, 5), (2, 5), (3, 6), (4, 6)]), &voters);
        let agreed = Some(of(7, "1", 5));
        assert_eq!(
            compared,
            ChecksumComparison { agreed, differ: [3, 4].into(), agree: [1, 2].into() },
            "4 is a learner"
        );
        // The third checksum is not known yet.
        assert_eq!(compare(&of(7, "1", 0), &told(&[(1, 5)]), &voters), ChecksumComparison::default());
        let compared = compare(&of(7, "1", 0), &told(&[(1, 5), (2, 5)]), &voters);
        assert_eq!((compared.agreed, compared.differ.len()), (Some(of(7, "1", 5)), 0));
    }

    #[test]
    fn no_checksum_is_right_without_a_majority() {
        let compared = compare(&of(7, "1", 0), &told(&[(1, 5), (3, 6)]), &[1, 2, 3].into());
        assert_eq!(compared, ChecksumComparison { differ: [1, 3].into(), ..ChecksumComparison::default() });
    }

    #[test]
    fn checksums_of_other_entries_or_versions_are_ignored() {
        let mut all = told(&[(1, 5), (2, 5)]);
        all.insert(3, of(8, "1", 6));
        all.insert(4, of(7, "2", 6));
        let compared = compare(&of(7, "1", 0), &all, &[1, 2, 3, 4].into());
        assert_eq!(compared, ChecksumComparison::default(), "two of four are no majority");
        assert_eq!(compare(&of(7, "1", 0), &all, &[1, 2, 3].into()).agree, [1, 2].into());
    }
}

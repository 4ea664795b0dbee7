//! The middle of a partition that an operator wants to split and names no key for: found by a walk over its rows, outside the shard,
//! and remembered until whoever asked asks again.

use crate::byte_halves::ByteHalves;
use crate::partitions::Partitions;
use crate::refusal::Refusal;
use crate::shell::Shell;
use crate::split_point::SplitSearch;
use archon_types::split::check_split_at;
use archon_types::{KeyRange, Middle, Millis, PartitionId};
use bytes::Bytes;

/// How long the middle that was found is good, in milliseconds: the partition goes on changing.
const GOOD_MS: u64 = 30_000;
/// How long it is said that rows could not be read before it is tried again, in milliseconds.
const FAILED_MS: u64 = 2_000;

/// What a leader remembers between the questions for its middle.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) enum MiddleSearch {
    /// Nobody asked.
    #[default]
    None,
    /// The walk came to nothing.
    Failed(Millis),
    /// Its rows are walked over.
    UnderWay(KeyRange),
    /// What the walk found in these keys.
    Found { range: KeyRange, at: Option<Bytes>, found: Millis },
}

impl MiddleSearch {
    /// What can be said now of a partition with these keys; `None` if its rows have to be walked over for it.
    fn known(&self, range: &KeyRange, now: Millis) -> Option<Middle> {
        match self {
            Self::UnderWay(of) if of == range => Some(Middle::Searching),
            Self::Found { range: of, at, found } if of == range && now.since(*found) < GOOD_MS => {
                Some(at.clone().map_or(Middle::Indivisible, Middle::At))
            }
            _ => None,
        }
    }

    /// A walk has ended, or come to nothing.
    pub(crate) fn walked(&mut self, search: &SplitSearch, halves: Option<&ByteHalves>, now: Millis) {
        if *self != Self::UnderWay(search.range.clone()) {
            return;
        }
        let range = search.range.clone();
        let cuts = |at: &Bytes| check_split_at(&range, at).is_ok();
        *self = match halves.map(|halves| halves.middle().filter(cuts)) {
            Some(at) => Self::Found { range, at, found: now },
            None => Self::Failed(now),
        };
    }
}

impl<S: Shell> Partitions<S> {
    /// The middle of a partition that is led here, as far as it is known. If it is not, a walk over its rows is begun.
    ///
    /// # Errors
    /// Why this node does not say: above all if it does not lead.
    pub fn middle(&mut self, partition: PartitionId) -> Result<Middle, Refusal> {
        let shell = &self.turn.shell;
        if shell.is_stopping() {
            return Err(Refusal::Stopping);
        }
        if shell.is_dropped(partition) {
            return Err(Refusal::Dropped);
        }
        let local = self.active.get(&partition).and_then(|placement| self.copies.get_mut(placement));
        let local = local.filter(|local| !local.set_aside && local.serving).ok_or(Refusal::Elsewhere)?;
        let range = local.range().cloned().ok_or(Refusal::Changing)?;
        if let MiddleSearch::Failed(at) = local.middle
            && self.turn.now.since(at) < FAILED_MS
        {
            return Err(Refusal::Unreadable("a walk over its rows came to nothing".to_owned()));
        }
        if let Some(known) = local.middle.known(&range, self.turn.now) {
            return Ok(known);
        }
        let search = SplitSearch { partition, placement: local.placement, range: range.clone() };
        let begun = self.turn.shell.find_split_point(search);
        local.middle = if begun { MiddleSearch::UnderWay(range) } else { MiddleSearch::None };
        Ok(Middle::Searching)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutant::Broken;
    use crate::test_shell::{OWN, PARTITION, TestShell, row, serving};

    fn leader() -> Partitions<TestShell> {
        let mut node = serving(Broken::default(), row(1, &[]));
        node.begin(Millis::new(2_000));
        node
    }

    fn walked(node: &mut Partitions<TestShell>, rows: &[&str]) {
        let mut halves = ByteHalves::default();
        rows.iter().for_each(|key| halves.add(key.as_bytes(), 100));
        let search = node.shell().searches.last().cloned().expect("a walk");
        node.split_point(&search, Some(&halves), 5);
    }

    #[test]
    fn the_first_question_begins_a_walk_and_a_later_one_is_answered() {
        let mut node = leader();
        assert_eq!(node.middle(PARTITION), Ok(Middle::Searching));
        assert_eq!(node.middle(PARTITION), Ok(Middle::Searching), "it goes on");
        assert_eq!(node.shell().searches.len(), 1);
        walked(&mut node, &["a", "b", "c", "d"]);
        assert_eq!(node.middle(PARTITION), Ok(Middle::At(Bytes::from_static(b"c"))));
        node.begin(Millis::new(2_000 + GOOD_MS - 1));
        assert_eq!(node.middle(PARTITION), Ok(Middle::At(Bytes::from_static(b"c"))));
        node.begin(Millis::new(2_000 + GOOD_MS));
        assert_eq!(node.middle(PARTITION), Ok(Middle::Searching), "it is old");
        assert_eq!(node.shell().searches.len(), 2);
    }

    #[test]
    fn what_cannot_be_parted_is_said_to_be_so() {
        for rows in [&[][..], &["a"]] {
            let mut node = leader();
            assert_eq!(node.middle(PARTITION), Ok(Middle::Searching));
            walked(&mut node, rows);
            assert_eq!(node.middle(PARTITION), Ok(Middle::Indivisible), "{rows:?}");
        }
    }

    #[test]
    fn a_walk_that_came_to_nothing_is_told_of_and_begins_anew() {
        let mut node = leader();
        assert_eq!(node.middle(PARTITION), Ok(Middle::Searching));
        let search = node.shell().searches[0].clone();
        node.split_point(&search, None, 5);
        assert!(matches!(node.middle(PARTITION), Err(Refusal::Unreadable(_))));
        node.begin(Millis::new(2_000 + FAILED_MS));
        assert_eq!(node.middle(PARTITION), Ok(Middle::Searching));
        assert_eq!(node.shell().searches.len(), 2);
    }

    #[test]
    fn who_does_not_lead_says_nothing() {
        let mut node = leader();
        node.copies.get_mut(&OWN).expect("a copy").serving = false;
        assert_eq!(node.middle(PARTITION), Err(Refusal::Elsewhere));
        let other = PartitionId::new(PARTITION.table, PARTITION.index + 1);
        assert_eq!(node.middle(other), Err(Refusal::Elsewhere));
    }
}

//! Split-key search for an operator's split without a key: one walk over the partition's rows, outside the shard. The
//! result is kept until the operator asks again.

use crate::operations::refusal::Refusal;
use crate::partitions::Partitions;
use crate::ranges::middle_search::{MiddleSearch, SearchedKeys};
use crate::ranges::split_watch::SplitSearch;
use crate::shell::Shell;
use archon_types::{Middle, PartitionId};

/// Time for which a failed walk is reported before a retry, in milliseconds.
const FAILED_MS: u64 = 2_000;

impl<S: Shell> Partitions<S> {
    /// Returns the split key of a partition led here, as far as it is known. Otherwise starts a walk over its rows.
    ///
    /// # Errors
    /// The reason why this node cannot answer, above all that it does not lead.
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
        let logged_bytes = local.retention.logged_bytes();
        if let Some(known) = local.middle.known(&range, logged_bytes, self.turn.now) {
            return Ok(known);
        }
        let search = SplitSearch { partition, placement: local.placement, range: range.clone() };
        let begun = self.turn.shell.find_split_point(search);
        local.middle =
            if begun { MiddleSearch::UnderWay(SearchedKeys { range, logged_bytes }) } else { MiddleSearch::None };
        Ok(Middle::Searching)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutant::DisabledRule;
    use crate::ranges::byte_halves::ByteHalves;
    use crate::ranges::middle_search::{ANSWER_MS, SMALL_BYTES};
    use crate::ranges::split_watch::MIDDLE_MS_MAX;
    use crate::test_shell::{OWN, PARTITION, TestShell, request, row, serving, settle};
    use archon_types::limits::VALUE_BYTES_MAX;
    use archon_types::{Millis, Op};
    use bytes::Bytes;

    fn leader() -> Partitions<TestShell> {
        let mut node = serving(DisabledRule::default(), row(1, &[]));
        node.begin(Millis::new(2_000));
        node
    }

    /// Completes the walk with these rows of `bytes` each.
    fn walked(node: &mut Partitions<TestShell>, rows: &[&str], bytes: u64) {
        let mut halves = ByteHalves::default();
        rows.iter().for_each(|key| halves.add(key.as_bytes(), bytes));
        let search = node.shell().searches.last().cloned().expect("a walk");
        node.split_point(&search, Some(&halves), 5);
    }

    fn write(node: &mut Partitions<TestShell>, bytes: usize) {
        for value in vec![7; bytes].chunks(VALUE_BYTES_MAX) {
            let value = Bytes::copy_from_slice(value);
            node.operate(request(Op::Put { key: Bytes::from_static(b"x"), value }, "put"));
            settle(node);
        }
    }

    const C: Bytes = Bytes::from_static(b"c");

    #[test]
    fn first_middle_request_starts_walk_and_later_one_is_answered() {
        let mut node = leader();
        assert_eq!(node.middle(PARTITION), Ok(Middle::Searching));
        assert_eq!(node.middle(PARTITION), Ok(Middle::Searching), "it goes on");
        assert_eq!(node.shell().searches.len(), 1);
        walked(&mut node, &["a", "b", "c", "d"], SMALL_BYTES);
        assert_eq!(node.middle(PARTITION), Ok(Middle::At(C)));
        node.begin(Millis::new(2_000 + MIDDLE_MS_MAX - 1));
        assert_eq!(node.middle(PARTITION), Ok(Middle::At(C)));
        node.begin(Millis::new(2_000 + MIDDLE_MS_MAX));
        assert_eq!(node.middle(PARTITION), Ok(Middle::Searching), "it is old");
        assert_eq!(node.shell().searches.len(), 2);
    }

    /// An operator tries a dry run, loads rows, and splits.
    #[test]
    fn middle_expires_once_partition_has_grown() {
        for (bytes, written, good) in [(100, 0, false), (SMALL_BYTES, 1 << 20, true), (SMALL_BYTES, 4 << 20, false)] {
            let mut node = leader();
            assert_eq!(node.middle(PARTITION), Ok(Middle::Searching));
            walked(&mut node, &["a", "b", "c", "d"], bytes);
            assert_eq!(node.middle(PARTITION), Ok(Middle::At(C)));
            write(&mut node, written);
            let again = if good { Middle::At(C) } else { Middle::Searching };
            assert_eq!(node.middle(PARTITION), Ok(again), "{bytes} {written}");
        }
    }

    #[test]
    fn middle_request_is_answered_despite_writes() {
        let ask_after = |ms: u64| {
            let mut node = leader();
            assert_eq!(node.middle(PARTITION), Ok(Middle::Searching));
            walked(&mut node, &["a", "b", "c", "d"], 100);
            write(&mut node, 10_000);
            node.begin(Millis::new(2_000 + ms));
            node.middle(PARTITION)
        };
        assert_eq!(ask_after(ANSWER_MS - 1), Ok(Middle::At(C)));
        assert_eq!(ask_after(ANSWER_MS), Ok(Middle::Searching), "that is somebody else");
    }

    #[test]
    fn indivisible_answer_is_not_kept() {
        let mut node = leader();
        assert_eq!(node.middle(PARTITION), Ok(Middle::Searching));
        walked(&mut node, &[], 0);
        assert_eq!(node.middle(PARTITION), Ok(Middle::Indivisible));
        assert_eq!(node.middle(PARTITION), Ok(Middle::Searching), "it is not kept");
        walked(&mut node, &["a", "b", "c", "d"], 100);
        assert_eq!(node.middle(PARTITION), Ok(Middle::At(C)));
    }

    #[test]
    fn middle_of_single_row_is_indivisible() {
        for rows in [&[][..], &["a"]] {
            let mut node = leader();
            assert_eq!(node.middle(PARTITION), Ok(Middle::Searching));
            walked(&mut node, rows, 100);
            assert_eq!(node.middle(PARTITION), Ok(Middle::Indivisible), "{rows:?}");
        }
    }

    #[test]
    fn failed_middle_walk_is_reported_and_retried() {
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
    fn middle_is_refused_without_leadership() {
        let mut node = leader();
        node.copies.get_mut(&OWN).expect("a copy").serving = false;
        assert_eq!(node.middle(PARTITION), Err(Refusal::Elsewhere));
        let other = PartitionId::new(PARTITION.table, PARTITION.index + 1);
        assert_eq!(node.middle(other), Err(Refusal::Elsewhere));
    }
}

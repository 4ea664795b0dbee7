//! Split-key search for an operator's split without a key: one walk over the partition's rows, outside the shard. The
//! result is kept until the operator asks again.

use crate::operations::refusal::Refusal;
use crate::partitions::Partitions;
use crate::ranges::byte_halves::ByteHalves;
use crate::ranges::split_point::{MIDDLE_MS_MAX, SplitSearch};
use crate::shell::Shell;
use archon_types::check_split_at;
use archon_types::{KeyRange, Middle, Millis, PartitionId};
use bytes::Bytes;

/// Time for which a result is kept for the operator regardless of writes, in milliseconds. Without it, a partition with
/// many writes would never get an answer.
const ANSWER_MS: u64 = 2_000;
/// Partitions up to this size are walked quickly, so each later request walks them again.
const SMALL_BYTES: u64 = 16 * 1024 * 1024;
/// Inverse of the share of a larger partition's bytes that may be written before a result expires.
const CHANGED_PART: u64 = 16;
/// Time for which a failed walk is reported before a retry, in milliseconds.
const FAILED_MS: u64 = 2_000;

/// State of a leader between requests for its split key.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) enum MiddleSearch {
    /// No request yet.
    #[default]
    None,
    /// The walk failed.
    Failed(Millis),
    /// A walk is in progress.
    UnderWay(Asked),
    /// Result of a walk.
    Found(Found),
}

/// The searched keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Asked {
    range: KeyRange,
    /// Bytes ever logged when the walk was requested.
    logged_bytes: u64,
}

/// Result of a walk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Found {
    of: Asked,
    at: Option<Bytes>,
    /// Bytes of all rows.
    bytes: u64,
    found: Millis,
    /// A caller has received it.
    told: bool,
}

impl Found {
    /// Returns whether it still holds for a partition that has logged this many bytes by now.
    const fn is_good(&self, logged_bytes: u64, now: Millis) -> bool {
        let age_ms = now.since(self.found);
        if !self.told && age_ms < ANSWER_MS {
            return true;
        }
        let written = logged_bytes.saturating_sub(self.of.logged_bytes);
        let is_as_it_was = self.bytes > SMALL_BYTES && written <= self.bytes / CHANGED_PART;
        self.at.is_some() && is_as_it_was && age_ms < MIDDLE_MS_MAX
    }
}

impl MiddleSearch {
    /// Returns the known answer for a partition with these keys and logged bytes; `None` if its rows must be walked.
    fn known(&mut self, range: &KeyRange, logged_bytes: u64, now: Millis) -> Option<Middle> {
        match self {
            Self::UnderWay(of) if of.range == *range => Some(Middle::Searching),
            Self::Found(found) if found.of.range == *range && found.is_good(logged_bytes, now) => {
                found.told = true;
                Some(found.at.clone().map_or(Middle::Indivisible, Middle::At))
            }
            _ => None,
        }
    }

    /// Takes the result of a walk; `None` if it failed.
    pub(crate) fn walked(&mut self, search: &SplitSearch, halves: Option<&ByteHalves>, now: Millis) {
        let of = match self {
            Self::UnderWay(of) if of.range == search.range => of.clone(),
            _ => return,
        };
        let cuts = |at: &Bytes| check_split_at(&search.range, at).is_ok();
        *self = match halves {
            Some(halves) => {
                let at = halves.middle().filter(cuts);
                Self::Found(Found { of, at, bytes: halves.bytes(), found: now, told: false })
            }
            None => Self::Failed(now),
        };
    }
}

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
        local.middle = if begun { MiddleSearch::UnderWay(Asked { range, logged_bytes }) } else { MiddleSearch::None };
        Ok(Middle::Searching)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutant::Broken;
    use crate::test_shell::{OWN, PARTITION, TestShell, request, row, serving, settle};
    use archon_types::Op;
    use archon_types::limits::VALUE_BYTES_MAX;

    fn leader() -> Partitions<TestShell> {
        let mut node = serving(Broken::default(), row(1, &[]));
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

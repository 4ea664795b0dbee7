//! Remaining parts of a table, given the finished pieces.

use crate::error::BackupError;
use crate::manifest::Piece;
use archon_client::{Bytes, Client, KeyRange, SnapshotOf};
use std::collections::BTreeSet;

/// Returns the partitions without a piece.
pub(crate) fn left_of_hashed(partitions: u32, done: &[Piece]) -> Vec<SnapshotOf> {
    let done: BTreeSet<u32> = done.iter().map(|piece| piece.partition).collect();
    (0..partitions).filter(|partition| !done.contains(partition)).map(SnapshotOf::Partition).collect()
}

/// Returns the keys without a piece, split at the current bounds of partitions.
pub(crate) fn left_of_ranges(client: &Client, done: &[Piece]) -> Result<Vec<SnapshotOf>, BackupError> {
    let done: Result<Vec<KeyRange>, BackupError> = done.iter().map(Piece::keys).collect();
    let now: Vec<KeyRange> = client.partition_keys().into_iter().map(|(_, keys)| keys).collect();
    Ok(parted(&gaps(done?), &now).into_iter().map(SnapshotOf::Keys).collect())
}

/// Returns the keys between ranges that do not overlap.
fn gaps(mut ranges: Vec<KeyRange>) -> Vec<KeyRange> {
    ranges.sort_by(|one, other| one.begin.cmp(&other.begin));
    let (mut gaps, mut next) = (Vec::new(), Some(Bytes::new()));
    for range in ranges {
        let Some(begin) = next.take() else { break };
        gaps.push(KeyRange { begin, end: Some(range.begin) });
        next = range.end;
    }
    gaps.extend(next.map(|begin| KeyRange { begin, end: None }));
    gaps.retain(|gap| !gap.is_empty());
    gaps
}

/// Splits ranges at the begin keys of others.
fn parted(ranges: &[KeyRange], at: &[KeyRange]) -> Vec<KeyRange> {
    let mut parted = Vec::new();
    for range in ranges {
        let mut rest = range.clone();
        let mut cuts: Vec<&Bytes> = at.iter().map(|range| &range.begin).collect();
        cuts.sort();
        for cut in cuts {
            if rest.contains(cut) && rest.begin != *cut {
                parted.push(rest.clone().before(cut.clone()));
                rest.begin = cut.clone();
            }
        }
        parted.push(rest);
    }
    parted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(begin: &'static str, end: &'static str) -> KeyRange {
        let bytes = |text: &'static str| Bytes::from_static(text.as_bytes());
        KeyRange { begin: bytes(begin), end: (!end.is_empty()).then(|| bytes(end)) }
    }

    #[test]
    fn remaining_keys_are_the_gaps_between_pieces() {
        assert_eq!(gaps(vec![]), [KeyRange::ALL]);
        assert_eq!(gaps(vec![KeyRange::ALL]), []);
        assert_eq!(gaps(vec![range("m", "p"), range("", "c")]), [range("c", "m"), range("p", "")]);
        assert_eq!(gaps(vec![range("m", "")]), [range("", "m")]);
    }

    #[test]
    fn remaining_keys_are_split_at_current_partitions() {
        let now = [range("", "d"), range("d", "m"), range("m", "")];
        assert_eq!(parted(&[range("c", "p")], &now), [range("c", "d"), range("d", "m"), range("m", "p")]);
        assert_eq!(parted(&[KeyRange::ALL], &now), now);
        assert_eq!(parted(&[range("d", "e")], &now), [range("d", "e")]);
    }
}

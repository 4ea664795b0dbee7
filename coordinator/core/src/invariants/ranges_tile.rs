//! Each key of a table has exactly one partition: by its hash, or because the ranges of a table by ranges are
//! contiguous.

use crate::invariants::violation::{Violation, violated};
use crate::state::ClusterState;
use archon_types::{KeyRange, Keys, Partition, Table};

const NAME: &str = "ranges_tile";

pub(super) fn check(state: &ClusterState) -> Result<(), Violation> {
    state.tables.values().try_for_each(|table| of_table(state, table))
}

fn of_table(state: &ClusterState, table: &Table) -> Result<(), Violation> {
    let rows = || state.partitions.of_table(table.id);
    if let Some(row) = rows().find(|row| row.id.index >= table.keys.numbers_end()) {
        return violated(NAME, format!("partition {} has a number that was not given, of {:?}", row.id, table.keys));
    }
    match table.keys {
        Keys::Hash { partitions } if state.partitions.count_of(table.id) != partitions => {
            violated(NAME, format!("table {} has not {partitions} partitions", table.id))
        }
        Keys::Hash { .. } => match rows().find(|row| !row.range.is_all()) {
            Some(row) => violated(NAME, format!("keys are hashed, but {} has only {:?}", row.id, row.range)),
            None => Ok(()),
        },
        Keys::Range { .. } => {
            let mut rows: Vec<&Partition> = rows().collect();
            rows.sort_by(|one, other| one.range.begin.cmp(&other.range.begin));
            let first = KeyRange::ALL.begin;
            let ends = std::iter::once(Some(&first)).chain(rows.iter().map(|row| row.range.end.as_ref()));
            let begins = rows.iter().map(|row| Some(&row.range.begin)).chain(std::iter::once(None));
            match ends.zip(begins).find(|(end, begin)| end != begin) {
                Some((end, begin)) => violated(NAME, format!("table {}: after {end:?} comes {begin:?}", table.id)),
                None => Ok(()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_types::{Epoch, PartitionId, PartitionStatus, RangeLimits, TableContent, TableId, Version};

    fn state(ranges: &[(&'static str, Option<&'static str>)]) -> ClusterState {
        let (id, version) = (TableId::new(1), Version::new(1));
        let mut state = ClusterState::new();
        let (name, keys) = ("times".to_owned(), Keys::Range { next: 3, limits: RangeLimits::NONE });
        state.tables.insert(id, Table { id, name, keys, replication: 1, holds: TableContent::Data, version });
        for (index, (begin, end)) in (0..).zip(ranges) {
            state.partitions.insert(Partition {
                id: PartitionId::new(id, index),
                epoch: Epoch::ZERO,
                version,
                leader: None,
                placements: Vec::new(),
                status: PartitionStatus::Unassigned,
                min_in_sync: 1,
                range: KeyRange { begin: (*begin).into(), end: end.map(Into::into) },
                split: None,
                merge: None,
                absorbed: Version::ZERO,
            });
        }
        state
    }

    #[test]
    fn gaps_overlaps_and_open_ends_are_found() {
        let tiles = |ranges: &[_]| check(&state(ranges)).is_ok();
        assert!(tiles(&[("", None)]));
        assert!(tiles(&[("m", None), ("", Some("g")), ("g", Some("m"))]));
        assert!(!tiles(&[("", Some("g")), ("h", None)]), "a gap");
        assert!(!tiles(&[("", Some("h")), ("g", None)]), "an overlap");
        assert!(!tiles(&[("", Some("g"))]), "no end");
        assert!(!tiles(&[("g", None)]), "no begin");
        assert!(!tiles(&[]), "nothing");
        assert!(!tiles(&[("", Some("a")), ("a", Some("b")), ("b", Some("c")), ("c", None)]), "a number above the last");
    }
}

//! Division of rows into parts, each of which goes to the engine at once.

use super::sorted_rows::WrittenPages;
use super::{FlushRows, FlusherConfig, size};
use crate::engine::{Change, Engine};
use archon_kv::{FrozenRows, ViewError, row};
use archon_types::PlacementId;
use std::collections::BTreeSet;
use std::iter::Peekable;
use std::ops::Bound;

/// Most bytes passed to the engine at once; a larger row goes alone. Less than the free space required by a disk check.
pub(super) const WRITE_BYTES: usize = 1024 * 1024;

/// Writes a memtable's list while no flusher runs, as before it starts. Does not sync.
pub(crate) fn write_frozen(engine: &dyn Engine, space: PlacementId, frozen: &FrozenRows) -> Result<(), ViewError> {
    let FlusherConfig { clear_rows, write_rows_max, .. } = FlusherConfig::default();
    for range in frozen.clears() {
        let (from, to) = row::value_bounds(range);
        let keys = (Bound::Included(&from[..]), Bound::Excluded(&to[..]));
        while !engine.clear_range(space, keys, clear_rows)?.done {}
    }
    let mut unread = None;
    let changes = frozen.changes(engine, space).map_while(|change| change.map_err(|error| unread = Some(error)).ok());
    let mut changes = changes.peekable();
    while changes.peek().is_some() {
        engine.write(&next_part(&mut changes, write_rows_max))?;
    }
    drop(changes);
    unread.map_or(Ok(()), Err)
}

/// Splits a turn's rows before each memtable of a space that has rows before it: its windows are read when a part of the
/// run is put together, and all earlier rows of the space must be in the engine by then. A part ends with its run.
pub(super) fn runs(rows: Vec<(PlacementId, FlushRows)>) -> Vec<Vec<(PlacementId, FlushRows)>> {
    let mut runs = Vec::new();
    let mut spaces = BTreeSet::new();
    let mut run = Vec::new();
    for (space, rows) in rows {
        if !spaces.insert(space) && matches!(rows, FlushRows::Frozen(_)) {
            spaces = BTreeSet::from([space]);
            runs.push(std::mem::take(&mut run));
        }
        run.push((space, rows));
    }
    runs.push(run);
    runs
}

/// Returns the changes for the engine, in order of key if the rows are a memtable's. A page of a copy is added to
/// `pages` as well.
pub(super) fn changes_of<'a>(
    engine: &'a dyn Engine,
    space: PlacementId,
    rows: FlushRows,
    pages: &mut WrittenPages,
) -> impl Iterator<Item = Result<Change, ViewError>> + use<'a> {
    let (changes, frozen) = match rows {
        FlushRows::Changes(changes) => (changes, None),
        FlushRows::Copied(page) => (pages.add(page), None),
        FlushRows::Frozen(frozen) => (Vec::new(), Some(frozen.changes(engine, space))),
    };
    changes.into_iter().map(Ok).chain(frozen.into_iter().flatten())
}

/// Takes as many of the next changes as go to the engine at once: at least one.
pub(super) fn next_part(changes: &mut Peekable<impl Iterator<Item = Change>>, rows_max: usize) -> Vec<Change> {
    let mut part: Vec<Change> = changes.next().into_iter().collect();
    let mut bytes = part.iter().map(size).sum::<usize>();
    while part.len() < rows_max
        && let Some(change) = changes.next_if(|change| bytes + size(change) <= WRITE_BYTES)
    {
        bytes += size(&change);
        part.push(change);
    }
    part
}

/// Returns how many of these changes go to the engine at once: at least one.
pub(super) fn part_length(changes: &[Change], rows_max: usize) -> usize {
    let mut bytes = 0;
    let fits = |change: &&Change| {
        bytes += size(change);
        bytes <= WRITE_BYTES
    };
    changes.iter().take(rows_max).take_while(fits).count().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_kv::{Effect, Memtable, MemtableBudget};
    use archon_types::{Millis, Seq};

    /// Its windows would be read while earlier rows of the space are not in the engine yet.
    #[test]
    fn memtable_is_read_after_earlier_rows_of_its_space_are_written() {
        let frozen = || {
            let mut memtable = Memtable::new(Seq::ZERO, MemtableBudget::default());
            memtable.push(Seq::new(1), Effect::new(Millis::new(1), Vec::new())).unwrap();
            memtable.commit(Seq::new(1));
            FlushRows::Frozen(memtable.freeze().unwrap())
        };
        let changes = || FlushRows::Changes(Vec::new());
        let rows = [(1, changes()), (2, frozen()), (2, changes()), (1, changes()), (1, frozen()), (3, frozen())];
        let rows = rows.into_iter().chain([(2, frozen()), (3, frozen())]);
        let runs = runs(rows.map(|(space, rows)| (PlacementId::new(space), rows)).collect());
        let spaces = |run: &Vec<(PlacementId, FlushRows)>| run.iter().map(|(space, _)| space.get()).collect::<Vec<_>>();
        let expected = [vec![1, 2, 2, 1], vec![1, 3, 2], vec![3]];
        assert_eq!(runs.iter().map(spaces).collect::<Vec<_>>(), expected);
    }
}

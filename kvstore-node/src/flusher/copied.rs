//! Rows of copies that gather until there are enough for the engine's way to take many at once.
//!
//! Nobody misses them meanwhile: a copy counts once a barrier behind its last page has run, for which the engine is synced, and before that
//! and before anything else is done in their space the flusher writes what has gathered. A restart loses them with the copy, which is
//! pulled anew.

use crate::engine::Change;
use archon_types::PlacementId;
use std::collections::BTreeMap;

/// The rows of each space, in ascending order of key.
#[derive(Default)]
pub(super) struct Copied {
    spaces: BTreeMap<PlacementId, (usize, Vec<Change>)>,
    bytes: usize,
}

impl Copied {
    /// Bytes of keys and values that have gathered.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether these rows of a space are in order of key, and come after those that have gathered.
    pub(super) fn is_followed_by(&self, space: PlacementId, rows: &[Change]) -> bool {
        let last = self.spaces.get(&space).and_then(|(_, gathered)| gathered.last());
        let all = last.into_iter().chain(rows);
        all.is_sorted_by(|one, next| one.key < next.key)
    }

    /// Adds rows that follow.
    pub(super) fn add(&mut self, space: PlacementId, bytes: usize, rows: Vec<Change>) {
        let (gathered_bytes, gathered) = self.spaces.entry(space).or_default();
        *gathered_bytes += bytes;
        self.bytes += bytes;
        gathered.extend(rows);
    }

    /// The space of which most has gathered.
    pub(super) fn largest(&self) -> Option<PlacementId> {
        self.spaces.iter().max_by_key(|(_, (bytes, _))| *bytes).map(|(space, _)| *space)
    }

    /// Those of a space, which gather no more.
    pub(super) fn take(&mut self, space: PlacementId) -> Option<Vec<Change>> {
        let (bytes, rows) = self.spaces.remove(&space)?;
        self.bytes -= bytes;
        Some(rows)
    }
}

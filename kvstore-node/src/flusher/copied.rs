//! Rows of copies that gather until there are enough for the engine's way to take many at once.
//!
//! Nobody misses them meanwhile: a copy counts once a barrier behind its last page has run, for which the engine is synced, and before that
//! and before anything else is done in their space the flusher writes what has gathered. A restart loses them with the copy, which is
//! pulled anew.

use super::size;
use crate::engine::Change;
use archon_types::PlacementId;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// A page of a copy that this node pulls.
#[derive(Debug)]
pub(crate) struct CopiedPage {
    /// Its rows, in order of key.
    pub(crate) rows: Vec<Change>,
    /// Whether the node is in use, so that what it writes is synced by and by and not at once.
    pub(crate) gently: bool,
    /// Told once the engine has them, or they gather for it; dropped if they are not wanted any more.
    pub(crate) written: oneshot::Sender<()>,
}

impl CopiedPage {
    /// Bytes of its keys and values.
    pub(crate) fn bytes(&self) -> usize {
        self.rows.iter().map(size).sum()
    }
}

/// The pages of copies among what a turn writes.
#[derive(Default)]
pub(super) struct WrittenPages {
    bytes: usize,
    /// Bytes of those on a node in use.
    gentle_bytes: usize,
    written: Vec<oneshot::Sender<()>>,
}

impl WrittenPages {
    /// Adds a page, and gives back its rows.
    pub(super) fn add(&mut self, page: CopiedPage) -> Vec<Change> {
        self.bytes += page.bytes();
        self.gentle_bytes += if page.gently { page.bytes() } else { 0 };
        self.written.push(page.written);
        page.rows
    }

    /// Bytes of those on a node in use.
    pub(super) const fn gentle_bytes(&self) -> usize {
        self.gentle_bytes
    }

    /// All that the turn wrote, `bytes`, is written, which began then: tells those who wait, and returns the pages' share of that time.
    pub(super) fn end(self, bytes: usize, began: Instant) -> Duration {
        for written in self.written {
            // A task that was stopped does not wait any more.
            let _ = written.send(());
        }
        share(began.elapsed(), self.bytes, bytes)
    }
}

/// The share of a time that `part` of `all` bytes took.
fn share(time: Duration, part: usize, all: usize) -> Duration {
    if part == 0 { Duration::ZERO } else { time.mul_f64((part as f64 / all.max(part) as f64).min(1.0)) }
}

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

    /// Adds a page whose rows follow.
    pub(super) fn add(&mut self, space: PlacementId, page: CopiedPage) {
        let bytes = page.bytes();
        let (gathered_bytes, gathered) = self.spaces.entry(space).or_default();
        *gathered_bytes += bytes;
        self.bytes += bytes;
        gathered.extend(page.rows);
        // A task that was stopped does not wait any more.
        let _ = page.written.send(());
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

//! Gathered rows of pulled copies, collected until there are enough for the engine's bulk ingest.
//!
//! They are not missed meanwhile: a copy is in sync only after a barrier behind its last page, for which the engine is
//! synced. Before that, and before any other work in their space, the flusher writes the gathered rows. A restart loses
//! them with the copy, which is pulled again.

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
    /// The node is in use, so that syncs are spread out.
    pub(crate) gently: bool,
    /// Resolved once the engine has them, or they are gathered; dropped if they are no longer needed.
    pub(crate) written: oneshot::Sender<()>,
}

impl CopiedPage {
    /// Returns the bytes of its keys and values.
    pub(crate) fn bytes(&self) -> usize {
        self.rows.iter().map(size).sum()
    }
}

/// Pages of copies among the writes of a turn.
#[derive(Default)]
pub(super) struct WrittenPages {
    bytes: usize,
    /// Bytes of pages on a node in use.
    gentle_bytes: usize,
    written: Vec<oneshot::Sender<()>>,
}

impl WrittenPages {
    /// Adds a page, and returns its rows.
    pub(super) fn add(&mut self, page: CopiedPage) -> Vec<Change> {
        self.bytes += page.bytes();
        self.gentle_bytes += if page.gently { page.bytes() } else { 0 };
        self.written.push(page.written);
        page.rows
    }

    /// Returns the bytes of pages on a node in use.
    pub(super) const fn gentle_bytes(&self) -> usize {
        self.gentle_bytes
    }

    /// Completes a turn that wrote `bytes` in total since `began`: notifies the waiting tasks, and returns the pages'
    /// share of the time.
    pub(super) fn end(self, bytes: usize, began: Instant) -> Duration {
        for written in self.written {
            // A stopped task no longer waits.
            let _ = written.send(());
        }
        share(began.elapsed(), self.bytes, bytes)
    }
}

/// Returns the share of a time for `part` of `all` bytes.
fn share(time: Duration, part: usize, all: usize) -> Duration {
    if part == 0 { Duration::ZERO } else { time.mul_f64((part as f64 / all.max(part) as f64).min(1.0)) }
}

/// The rows of each space, in ascending order of key.
#[derive(Default)]
pub(super) struct SortedRows {
    spaces: BTreeMap<PlacementId, (usize, Vec<Change>)>,
    bytes: usize,
}

impl SortedRows {
    /// Returns the bytes of gathered keys and values.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns whether these rows of a space are in order of key, and come after the gathered ones.
    pub(super) fn is_followed_by(&self, space: PlacementId, rows: &[Change]) -> bool {
        let last = self.spaces.get(&space).and_then(|(_, gathered)| gathered.last());
        let all = last.into_iter().chain(rows);
        all.is_sorted_by(|one, next| one.key < next.key)
    }

    /// Adds a page with following rows.
    pub(super) fn add(&mut self, space: PlacementId, page: CopiedPage) {
        let bytes = page.bytes();
        let (gathered_bytes, gathered) = self.spaces.entry(space).or_default();
        *gathered_bytes += bytes;
        self.bytes += bytes;
        gathered.extend(page.rows);
        // A stopped task no longer waits.
        let _ = page.written.send(());
    }

    /// Returns the space with the most gathered bytes.
    pub(super) fn largest(&self) -> Option<PlacementId> {
        self.spaces.iter().max_by_key(|(_, (bytes, _))| *bytes).map(|(space, _)| *space)
    }

    /// Takes the gathered rows of a space.
    pub(super) fn take(&mut self, space: PlacementId) -> Option<Vec<Change>> {
        let (bytes, rows) = self.spaces.remove(&space)?;
        self.bytes -= bytes;
        Some(rows)
    }
}

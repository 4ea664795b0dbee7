//! Load of the node, for the coordinator's plans and status. Never used for safety.

use archon_proto::convert::members::load::{CopyProgress, Load, PlacementLoad};
use archon_types::{Millis, PlacementId};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};

/// Most placements in one heartbeat; the rest follow in the next ones.
const PLACEMENTS_PER_HEARTBEAT_MAX: usize = 1_024;

/// Time after its last refusal during which the log counts as refusing, in milliseconds.
const LOG_REFUSED_MS: u64 = 2_000;

#[derive(Debug, Default)]
struct Board {
    placements: BTreeMap<PlacementId, PlacementLoad>,
    changed: BTreeSet<PlacementId>,
    copies: BTreeMap<PlacementId, CopyProgress>,
    /// Kept and not served: this version cannot read their logs.
    unreadable: BTreeSet<PlacementId>,
    operations_last: u64,
}

/// Sizes and copies, written by their sources and read by the session.
#[derive(Debug, Default)]
pub(crate) struct LoadBoard {
    board: Mutex<Board>,
    /// Time of the log's last refusal, zero if there was none.
    log_refused_at: AtomicU64,
}

impl LoadBoard {
    /// Records the size of a placement.
    pub(crate) fn placement(&self, load: PlacementLoad) {
        let mut board = self.board.lock();
        if board.placements.insert(load.placement, load) != Some(load) {
            board.changed.insert(load.placement);
        }
    }

    /// Records that the size of a placement is unknown again.
    pub(crate) fn uncounted(&self, placement: PlacementId) {
        let mut board = self.board.lock();
        if board.placements.remove(&placement).is_some() {
            board.changed.insert(placement);
        }
    }

    /// Removes a placement.
    pub(crate) fn forget(&self, placement: PlacementId) {
        let mut board = self.board.lock();
        board.placements.remove(&placement);
        board.changed.remove(&placement);
        board.copies.remove(&placement);
        board.unreadable.remove(&placement);
    }

    /// Records a placement with a log that this version cannot read.
    pub(crate) fn unreadable(&self, placement: PlacementId) {
        self.board.lock().unreadable.insert(placement);
    }

    /// Returns the number of unreadable placements.
    pub(crate) fn unreadable_count(&self) -> usize {
        self.board.lock().unreadable.len()
    }

    /// Records the progress of a copy, `None` once it has ended.
    pub(crate) fn copy(&self, placement: PlacementId, progress: Option<CopyProgress>) {
        let mut board = self.board.lock();
        match progress {
            Some(progress) => board.copies.insert(placement, progress),
            None => board.copies.remove(&placement),
        };
    }

    /// Returns the recorded bytes of a placement, zero if unknown.
    pub(crate) fn bytes_of(&self, placement: PlacementId) -> u64 {
        self.counted(placement).unwrap_or(0)
    }

    /// Returns the recorded bytes of a placement; `None` if it was not counted yet.
    pub(crate) fn counted(&self, placement: PlacementId) -> Option<u64> {
        self.board.lock().placements.get(&placement).map(|load| load.bytes)
    }

    /// Returns the number of keys of these placements, as last counted; of those that were not, zero.
    pub(crate) fn keys_of(&self, placements: &[PlacementId]) -> u64 {
        let board = self.board.lock();
        placements.iter().filter_map(|placement| board.placements.get(placement)).map(|load| load.keys).sum()
    }

    /// Marks everything to be reported again: a new coordinator may know nothing.
    pub(crate) fn report_all(&self) {
        let mut board = self.board.lock();
        board.changed = board.placements.keys().copied().collect();
    }

    /// Takes the load to report now. `operations` is the count since the start, `elapsed_ms` the time since the last
    /// call.
    pub(crate) fn take(&self, operations: u64, elapsed_ms: u64) -> Load {
        let mut board = self.board.lock();
        let since = operations.saturating_sub(board.operations_last);
        board.operations_last = operations;
        let mut placements = Vec::new();
        while placements.len() < PLACEMENTS_PER_HEARTBEAT_MAX {
            let Some(placement) = board.changed.pop_first() else { break };
            let unknown = PlacementLoad { placement, bytes: 0, keys: 0 };
            placements.push(board.placements.get(&placement).copied().unwrap_or(unknown));
        }
        Load {
            bytes_stored: board.placements.values().map(|load| load.bytes).sum(),
            operations_per_second: since.saturating_mul(1_000) / elapsed_ms.max(1),
            placements,
            copies: board.copies.values().copied().collect(),
            disk_full: None,
            certificate: None,
            log_pin: None,
        }
    }

    /// Records that the write-ahead log refuses a shard's data, for lack of space.
    pub(crate) fn log_refused(&self, now: Millis) {
        self.log_refused_at.store(now.get().max(1), Ordering::Relaxed);
    }

    /// Returns whether that happened recently. A refused batch is retried, so a moment without a refusal proves
    /// nothing.
    pub(crate) fn is_log_refused(&self, now: Millis) -> bool {
        let at = self.log_refused_at.load(Ordering::Relaxed);
        at != 0 && now.since(Millis::new(at)) < LOG_REFUSED_MS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_reports_changes_and_everything_to_new_coordinator() {
        let board = LoadBoard::default();
        let load = |bytes| PlacementLoad { placement: PlacementId::new(1), bytes, keys: 1 };
        board.placement(load(10));
        assert_eq!(board.take(100, 500).placements, [load(10)]);
        board.placement(load(10));
        let told = board.take(200, 500);
        assert!(told.placements.is_empty());
        assert_eq!((told.bytes_stored, told.operations_per_second), (10, 200));
        board.report_all();
        assert_eq!(board.take(200, 500).placements, [load(10)]);
        board.forget(PlacementId::new(1));
        assert_eq!(board.bytes_of(PlacementId::new(1)), 0);
    }

    #[test]
    fn uncounted_size_is_reported() {
        let board = LoadBoard::default();
        let load = |bytes, keys| PlacementLoad { placement: PlacementId::new(1), bytes, keys };
        board.placement(load(10, 1));
        assert_eq!(board.take(0, 500).placements, [load(10, 1)]);
        board.uncounted(PlacementId::new(1));
        assert_eq!(board.counted(PlacementId::new(1)), None);
        let told = board.take(0, 500);
        assert_eq!((told.placements, told.bytes_stored), (vec![load(0, 0)], 0));
        board.uncounted(PlacementId::new(1));
        assert!(board.take(0, 500).placements.is_empty(), "that is said once");
        board.placement(load(10, 1));
        assert_eq!(board.take(0, 500).placements, [load(10, 1)]);
    }

    #[test]
    fn retried_log_still_counts_as_refusing() {
        let board = LoadBoard::default();
        assert!(!board.is_log_refused(Millis::new(10)));
        board.log_refused(Millis::new(10));
        assert!(board.is_log_refused(Millis::new(1_000)));
        assert!(!board.is_log_refused(Millis::new(10 + LOG_REFUSED_MS)));
    }
}

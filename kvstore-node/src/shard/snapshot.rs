//! Snapshots of partitions led here: each begins between two lists of the memtable, when the engine holds all of the
//! one and nothing of the next.

use super::flush::hand_to_flusher;
use super::{Shard, SnapshotAsk, SnapshotOffer};
use crate::storage::snapshots::SnapshotOwner;
use archon_host::Refusal;
use archon_kv::row;
use archon_types::{ErrorDetail, ErrorKind, KeyRange, Millis, PartitionId, PlacementId, Seq};
use tokio::sync::oneshot;

/// Most snapshots of one shard that wait for the engine; more are refused.
const WAITING_MAX: usize = 64;

/// A snapshot that waits until the engine has its rows.
pub(super) struct WantedSnapshot {
    partition: PartitionId,
    placement: PlacementId,
    /// The commit position at the request.
    at_least: Seq,
    keys: KeyRange,
    owner: SnapshotOwner,
    answer: oneshot::Sender<Result<SnapshotOffer, ErrorDetail>>,
}

impl Shard {
    /// Brings committed rows to the engine, for a snapshot to begin there.
    pub(super) fn snapshot_asked(&mut self, ask: SnapshotAsk) {
        let SnapshotAsk { partition, keys, owner, answer } = ask;
        if self.snapshots_wanted.len() >= WAITING_MAX {
            let why = "too many snapshots wait to begin; try again later";
            let _ = answer.send(Err(ErrorDetail::new(ErrorKind::Overloaded, why).with_retry_after_ms(500)));
            return;
        }
        match self.partitions.snapshot_source(partition) {
            Ok(placement) => {
                let committed = self.partitions.memtable(placement).map(archon_kv::Memtable::committed);
                let at_least = committed.unwrap_or_default();
                self.snapshots_wanted.push(WantedSnapshot { partition, placement, at_least, keys, owner, answer });
                self.hurry(placement);
            }
            Err(refusal) => {
                // The caller may have given up.
                let _ = answer.send(Err(self.partitions.shell().words(partition, refusal)));
            }
        }
    }

    /// Removes requests of gone callers, and advances the others.
    pub(super) fn look_at_snapshots(&mut self) {
        if self.snapshots_wanted.is_empty() {
            return;
        }
        self.snapshots_wanted.retain(|wanted| !wanted.answer.is_closed());
        let mut placements: Vec<PlacementId> = self.snapshots_wanted.iter().map(|wanted| wanted.placement).collect();
        placements.dedup();
        placements.into_iter().for_each(|placement| self.hurry(placement));
    }

    /// Has the next list of the memtable go to the engine at once; without one, the engine has everything.
    fn hurry(&mut self, placement: PlacementId) {
        let now = self.now;
        let at = match self.partitions.of(placement) {
            Some((shell, local)) => {
                if local.memtable.frozen().is_none() && local.memtable.rows_bytes() == 0 {
                    local.memtable.committed()
                } else {
                    if local.memtable.frozen().is_none() {
                        local.freeze();
                    }
                    return hand_to_flusher(shell, local, now);
                }
            }
            // It is no longer here; the waiting requests get that error.
            None => Seq::new(u64::MAX),
        };
        self.snapshots_at(placement, at);
    }

    /// Begins the waiting snapshots of a placement: the engine holds everything up to `at`, and nothing more is on its
    /// way there.
    pub(super) fn snapshots_at(&mut self, placement: PlacementId, at: Seq) {
        if !self.snapshots_wanted.iter().any(|wanted| wanted.placement == placement) {
            return;
        }
        let ready = |wanted: &mut WantedSnapshot| wanted.placement == placement && wanted.at_least <= at;
        let ready: Vec<WantedSnapshot> = self.snapshots_wanted.extract_if(.., ready).collect();
        for wanted in ready {
            let offer = self.begin_snapshot(&wanted, at);
            let _ = wanted.answer.send(offer);
        }
        if self.snapshots_wanted.iter().any(|wanted| wanted.placement == placement)
            && let Some((_, local)) = self.partitions.of(placement)
            && local.memtable.frozen().is_none()
        {
            // The rows they wait for have gathered meanwhile.
            local.freeze();
        }
    }

    fn begin_snapshot(&self, wanted: &WantedSnapshot, at: Seq) -> Result<SnapshotOffer, ErrorDetail> {
        let WantedSnapshot { partition, placement, keys, .. } = wanted;
        let shell = self.partitions.shell();
        let words = |refusal| shell.words(*partition, refusal);
        let start = self.partitions.snapshot_of(*placement, *partition, keys, at).map_err(words)?;
        let unreadable = |why: String| words(Refusal::Unreadable(why));
        let log_time = shell.context.engine.get(*placement, row::LOG_TIME_KEY);
        let log_time = log_time.map_err(|error| unreadable(error.to_string()))?;
        let log_time = log_time.map_or(Ok(Millis::ZERO), |row| row::decode_millis(&row));
        let log_time = log_time.map_err(|error| unreadable(error.to_string()))?;
        let rows =
            shell.context.flusher.snapshots().open(*placement, row::value_bounds(&start.keys), wanted.owner.clone());
        let rows =
            rows.map_err(|error| ErrorDetail::new(ErrorKind::Overloaded, error.to_string()).with_retry_after_ms(500))?;
        Ok(SnapshotOffer { start, log_time, source: *placement, rows })
    }
}

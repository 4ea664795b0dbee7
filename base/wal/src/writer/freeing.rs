//! Frees segments: rewrites old records at the end of the log, and writes trims.

use super::{HaltReason, Writer};
use crate::batch::{Op, StreamId, WalBatch};
use crate::error::WalError;
use crate::index::{Change, Location};
use crate::read::Plan;
use crate::relocate::plan_relocation;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// Pause before a large stream that could not be moved is read again: reading it delays all writes.
const LARGE_RETRY: Duration = Duration::from_secs(1);

impl Writer {
    /// Rewrites old records at the end of the log if they retain too much of it. Requires that no group is under
    /// construction.
    pub(super) fn relocate(&mut self) -> Result<(), HaltReason> {
        let space_wanted = std::mem::take(&mut self.space_wanted);
        if !std::mem::take(&mut self.relocation_due) && !space_wanted {
            return Ok(());
        }
        let config = &self.shared.config;
        // On a full disk, any freed space allows writes again.
        let kept_bytes_max = if space_wanted || self.shared.pool.read_only() { 0 } else { config.kept_bytes_max };
        let mut limits = config.relocation(kept_bytes_max);
        if self.large_refused.is_some_and(|at| at.elapsed() < LARGE_RETRY) {
            limits.stream_bytes_max = 0;
        }
        let plan = plan_relocation(&self.shared.index.read(), limits, |stream| !self.immovable.contains(&stream));
        for stream in plan {
            let records = {
                let index = self.shared.index.read();
                let first = index.streams.get(&stream).map_or(0, |entry| entry.tail.first);
                Plan::new(&index, StreamId(stream), first, usize::MAX)
            };
            let records = match records.and_then(Plan::fetch) {
                Ok(records) => records,
                // Trimmed since the plan was made: the trim frees them.
                Err(WalError::Missing { .. }) => {
                    self.relocation_due = true;
                    continue;
                }
                Err(error) => {
                    tracing::warn!(%error, stream, "old records of the log cannot be read, and keep all segments behind them");
                    self.immovable.insert(stream);
                    return Ok(());
                }
            };
            let Some(first) = records.first().map(|record| record.seq) else { continue };
            let mut batch = WalBatch::new();
            batch.cut_all(StreamId(stream));
            for record in records {
                batch.put(StreamId(stream), record.seq, record.data);
            }
            // It frees more than it takes.
            batch.urgent();
            if let Err(error) = self.take(&batch)? {
                tracing::debug!(%error, stream, "old records of the log stay where they are");
                if batch.bytes() as u64 > limits.moved_bytes_max {
                    self.large_refused = Some(Instant::now());
                }
                return Ok(());
            }
            let steps = self.changes.split_off(self.changes.len() - batch.len());
            let number = self.next_batch - 1;
            let locations: VecDeque<Location> = steps
                .into_iter()
                .filter_map(|(_, change)| match change {
                    Change::Put { location, .. } => Some(location),
                    _ => None,
                })
                .collect();
            self.changes.push((number, Change::Move { stream, first, locations }));
            self.shared.counters.relocated(batch.bytes());
            self.flush()?;
        }
        Ok(())
    }

    pub(super) fn write_trims(&mut self, trims: BTreeMap<u64, u64>) -> Result<(), HaltReason> {
        let mut batch = WalBatch::new();
        for (&stream, &floor) in &trims {
            if let Some(accepted) = self.accepted.get(&stream) {
                let mut tail = accepted.tail;
                tail.trim(floor);
                if tail != accepted.tail {
                    batch.push(Op::Trim { stream, floor });
                }
            }
        }
        if batch.is_empty() {
            return Ok(());
        }
        // A trim frees space: it may use the reserve.
        batch.urgent();
        if let Err(error) = self.accept(&batch)? {
            tracing::warn!(%error, "trim marks wait for space in the log");
            self.shared.queue.return_trims(trims);
        } else {
            // The remaining records may be few and old, in front of much free space.
            self.relocation_due = true;
        }
        Ok(())
    }
}

//! Flush policy: when committed rows go to the flusher; and handling of its events.

use super::Shard;
use super::shell::ShardShell;
use crate::flusher::{FlushEvent, FlusherError};
use archon_host::{FlushUrgency, LocalCopy};
use archon_types::Millis;

/// Longest time for which committed rows gather before they go to the flusher: rows overwritten meanwhile cost the
/// engine nothing. A restart replays about as much of the log.
const FLUSH_MS: u64 = 15_000;
/// The same for few rows.
const FLUSH_MIN_MS: u64 = 2_000;
/// The same when an operation is about to wait for the engine.
const FLUSH_SOON_MS: u64 = 50;
/// Bytes of a partition's committed rows that count as few: they cost little.
const FLUSH_FEW_BYTES: usize = 64 * 1024;
/// Bytes of a partition's committed rows after which they no longer wait.
const FLUSH_ROWS_BYTES: usize = 8 * 1024 * 1024;
/// Bytes of log with gathered effects, over all partitions of the node, unless memory is short: a row keeps its log
/// entry in memory, and on a follower the whole message.
const FLUSH_LOG_BYTES: u64 = 256 * 1024 * 1024;
/// Steps by which the gathering times of partitions differ, from the whole time down to about half: otherwise
/// partitions that began together, as after a start, would all flush at the same moment, again and again, and clients
/// would wait for the disk.
const FLUSH_STEPS: u64 = 32;

/// Passes rows committed since the last time to the flusher, if they have gathered for long enough, one such list at a
/// time and within its queue's capacity.
pub(super) fn hand_to_flusher(shell: &ShardShell, local: &mut LocalCopy<ShardShell>, now: Millis) {
    if shell.journal.is_refused() {
        // Synced rows free the log.
        shell.context.flusher.sync_soon();
    }
    if local.memtable.frozen().is_none() && has_gathered(shell, local, now) {
        shell.context.flusher.add_unsynced_log(local.retention.logged_bytes() - local.gathered_from);
        local.freeze();
    }
    let Some(frozen) = local.memtable.frozen() else { return };
    if local.flushing >= frozen.upto {
        return; // already on its way
    }
    if !shell.context.flusher.has_capacity(frozen.bytes()) {
        return;
    }
    match shell.context.flusher.apply(local.placement, frozen.upto, frozen.clone()) {
        Ok(()) => local.flushing = frozen.upto,
        Err((FlusherError::Full { .. } | FlusherError::Clearing { .. }, _)) => {}
        Err((error, _)) => tracing::debug!(%error, "nothing more is flushed"),
    }
}

fn has_gathered(shell: &ShardShell, local: &LocalCopy<ShardShell>, now: Millis) -> bool {
    let Some(since) = local.gathering_since else { return false };
    let partitions = u64::try_from(shell.context.holdings.len().max(1)).unwrap_or(u64::MAX);
    let step = local.placement.get() % FLUSH_STEPS;
    let log_bytes_max = FLUSH_LOG_BYTES.min(shell.context.shared.memory.memtables_bytes) / partitions;
    let log_bytes_max = staggered(log_bytes_max, step).max(64 * 1024);
    let few = local.memtable.rows_bytes() <= FLUSH_FEW_BYTES;
    let gathers_ms = match local.flush_urgency {
        FlushUrgency::Now => 0,
        FlushUrgency::Soon => FLUSH_SOON_MS,
        FlushUrgency::None if few => FLUSH_MIN_MS,
        FlushUrgency::None => staggered(FLUSH_MS, step),
    };
    now.since(since) >= gathers_ms
        || local.memtable.rows_bytes() >= FLUSH_ROWS_BYTES
        || local.retention.logged_bytes() - local.gathered_from >= log_bytes_max
        || shell.context.budget.is_half_full()
        // Rows in the engine free the log.
        || shell.journal.is_refused()
}

/// Returns the whole time for step 0, down to about half for the last step, [`FLUSH_STEPS`]` - 1`.
const fn staggered(whole: u64, step: u64) -> u64 {
    whole - whole / (2 * FLUSH_STEPS) * step
}

impl Shard {
    pub(super) fn flushed(&mut self, event: FlushEvent) {
        let now = self.now;
        match event {
            FlushEvent::Written { space, upto } => {
                let Some((shell, local)) = self.partitions.of(space) else { return };
                match local.memtable.frozen().filter(|frozen| frozen.upto <= upto) {
                    // Finding the cached rows that it cleared is not worth the effort.
                    Some(frozen) if !frozen.clears().is_empty() => local.own.forget(),
                    Some(frozen) => {
                        shell.cache.borrow_mut().written(&mut local.own, frozen.values(), local.serving);
                    }
                    None => {}
                }
                if let Some(frozen) = local.memtable.flushed(upto) {
                    shell.context.flusher.let_go(frozen);
                }
                // Before anything more is on its way to the engine.
                self.snapshots_at(space, upto);
                if let Some((shell, local)) = self.partitions.of(space) {
                    hand_to_flusher(shell, local, now);
                }
            }
            FlushEvent::Synced { space, upto } => self.partitions.synced(space, upto),
            FlushEvent::QueueDrained => {
                self.partitions.offer_rows();
                self.partitions.each(|shell, local| hand_to_flusher(shell, local, now));
            }
            FlushEvent::Cleared { space, clear } => self.partitions.cleared(space, clear),
            FlushEvent::Spoilt { space, attempt } => self.partitions.spoilt(space, attempt),
            FlushEvent::Damaged { space, why } => self.partitions.damaged(space, why),
            FlushEvent::RowsFormed { space, attempt } => self.partitions.mirroring(space, attempt),
            FlushEvent::Formed { space, attempt } => self.partitions.formed(space, attempt),
            FlushEvent::Failed(error) => {
                tracing::error!(%error, "the engine has failed; the node stops and recovers from the log at its next start");
                self.context.shared.lifecycle.fail();
            }
        }
    }
}

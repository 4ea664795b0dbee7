//! Copies: the leader's pins, and the loader's pages on their way to the engine.

use super::pull::Pull;
use super::slot::Slot;
use super::{CopyAsk, CopyChunk, CopyStart, Env, Shard};
use crate::copy::CopyJob;
use crate::engine::Change;
use crate::flusher::FlusherError;
use archon_host::Pin;
use archon_kv::Recent;
use archon_replica::{Input, Position, ReplicaAddress};
use archon_types::{Epoch, ErrorDetail, ErrorKind, PlacementId, Seq, Version};
use tokio_util::sync::CancellationToken;

impl Shard {
    /// A loader elsewhere wants a copy: the log is kept for it from here on.
    pub(super) fn copy_asked(&mut self, ask: CopyAsk) -> Result<CopyStart, ErrorDetail> {
        let slot = self.slots.get_mut(&ask.source).filter(|slot| slot.partition == ask.partition);
        let Some(slot) = slot else { return Err(self.env.not_here(ask)) };
        if slot.copy().gives_copies() != Some(ask.epoch) {
            return Err(self.env.not_here(ask));
        }
        if !slot.copy().loads(ask.loader) {
            let why = format!(
                "placement {} is not loading partition {} as far as its leader knows",
                ask.loader, ask.partition
            );
            return Err(ErrorDetail::new(ErrorKind::Unavailable, why));
        }
        let pinned = slot.retention.pinned(ask.loader);
        let resumed = ask.resume > Seq::ZERO && pinned == Some(ask.resume);
        let seq = if resumed { ask.resume } else { slot.retention.complete().seq };
        let Some(at) = slot.replica.position_at(seq) else {
            let why = format!("the log of partition {} does not reach back to {seq}", ask.partition);
            return Err(ErrorDetail::new(ErrorKind::Unavailable, why));
        };
        let spoilt = CancellationToken::new();
        // In place of an earlier one, whose pages nobody wants any more.
        let pin = Pin { seq, epoch: ask.epoch, guard: spoilt.clone().drop_guard() };
        slot.retention.pin(ask.loader, pin);
        Ok(CopyStart { at, version: slot.replica.version(), source: ask.source, resumed, spoilt })
    }

    /// A clearing of the space is done: if it is the one that was waited for, pages may come.
    pub(super) fn pull(&mut self, placement: PlacementId, clear: u64) {
        let Some(slot) = self.slots.get_mut(&placement) else { return };
        let Some(pull) = slot.pull.as_mut() else { return };
        if pull.begin(clear) {
            let (leader, epoch) = (pull.leader, pull.epoch);
            let job = CopyJob { partition: slot.partition, placement, attempt: clear, leader, epoch };
            self.env.context.copies.start(job);
        }
    }

    pub(super) fn copy_rows(&mut self, chunk: CopyChunk) {
        let Some(slot) = self.slots.get_mut(&chunk.placement) else { return };
        let Some(pull) = &mut slot.pull else { return };
        pull.queue(chunk);
        self.env.offer_rows(slot);
    }

    pub(super) fn copy_done(&mut self, placement: PlacementId, attempt: u64, at: Position, version: Version) {
        let Some(slot) = self.slots.get_mut(&placement) else { return };
        if let Some(Pull { copy, .. }) = slot.pull.take_if(|pull| pull.is_of(attempt)) {
            tracing::info!(partition = %slot.partition, %placement, seq = %at.seq, "copied; following the log");
            self.env.context.shared.load.copy(placement, None);
            self.env.step(slot, Input::Copied { copy, at, version });
        }
    }

    /// The leader no longer keeps the log from where the copy began: it begins anew.
    pub(super) fn copy_again(&mut self, placement: PlacementId, attempt: u64) {
        let Some(slot) = self.slots.get_mut(&placement) else { return };
        let Some(pull) = slot.pull.as_mut().filter(|pull| pull.is_of(attempt)) else { return };
        pull.restart(self.env.clear(placement));
        self.env.context.shared.metrics.copies_restarted.add(1);
    }
}

impl Env {
    pub(super) fn start_copy(&mut self, slot: &mut Slot, copy: u64, leader: ReplicaAddress, epoch: Epoch) {
        tracing::info!(partition = %slot.partition, placement = %slot.placement, leader = %leader.node, "pulling a copy");
        slot.recent = Recent::new(Seq::ZERO, self.context.budget.clone());
        slot.recent.set_engine_ahead(super::ENGINE_AHEAD_UNKNOWN);
        slot.gathering_since = None;
        slot.cache.clear();
        slot.flushing = Seq::ZERO;
        slot.retention.empty();
        slot.emptied.is_pulled();
        self.context.copies.stop(slot.placement);
        slot.pull = Some(Pull::new(copy, leader, epoch, self.clear(slot.placement)));
    }

    pub(super) fn stop_copy(&mut self, slot: &mut Slot, copy: u64) {
        if slot.pull.take_if(|pull| pull.copy == copy).is_some() {
            self.context.copies.stop(slot.placement);
            self.context.shared.load.copy(slot.placement, None);
        }
    }

    fn clear(&self, placement: PlacementId) -> Option<u64> {
        let clear = self.context.flusher.clear(placement);
        clear.inspect_err(|error| tracing::warn!(%placement, %error, "the copy waits for the next start")).ok()
    }

    /// Offers rows of a copy to the flusher, in order; what it has no room for waits until it tells that there is some.
    pub(super) fn offer_rows(&mut self, slot: &mut Slot) {
        let space = slot.placement;
        let Some(pull) = &mut slot.pull else { return };
        while let Some(chunk) = pull.waiting.pop_front() {
            let change = |(key, value): &(bytes::Bytes, bytes::Bytes)| Change {
                space,
                key: key.clone(),
                value: Some(value.clone()),
            };
            match self.context.flusher.apply(space, Seq::ZERO, chunk.rows.iter().map(change).collect::<Vec<_>>()) {
                Ok(()) => {
                    // A task that was stopped does not wait any more.
                    let _ = chunk.taken.send(());
                }
                // A space that is being cleared is pulled into anew when that is done.
                Err((FlusherError::Full { .. } | FlusherError::Clearing { .. }, _)) => {
                    pull.waiting.push_front(chunk);
                    return;
                }
                Err((error, _)) => tracing::debug!(%error, "rows of a copy are dropped"),
            }
        }
    }

    fn not_here(&self, ask: CopyAsk) -> ErrorDetail {
        let tables = &self.context.shared.tables;
        let why =
            format!("placement {} does not lead epoch {} of partition {} here", ask.source, ask.epoch, ask.partition);
        ErrorDetail::new(ErrorKind::NotPartitionLeader, why)
            .with_leader(tables.leader_address(ask.partition))
            .with_table_version(tables.version())
    }
}

//! Whom a partition remembers: read in slices by whoever takes it over, kept within its bound by forgetting others.

use super::budget::Budget;
use super::park::PARKED_MAX;
use super::slot::Slot;
use super::{Env, OpRequest, Shard};
use archon_host::Pending;
use archon_kv::{ClientIndex, Effect, Forgetting, PartitionView, Reader, Room};
use archon_types::{Answer, ErrorKind};
use std::time::Instant;

/// How long a new client's operation waits until a new leader has read whom its partition remembers, in milliseconds.
const READING_MS_MAX: u64 = 1_000;

impl Shard {
    /// Reads on whom partitions remember that were just taken over, while there is time, and once at least.
    pub(super) fn read_clients(&mut self, budget: &mut Budget) {
        while let Some(placement) = self.env.reading.pop_front() {
            if let Some(slot) = self.slots.get_mut(&placement) {
                self.env.read_clients(slot);
            }
            budget.spend(true, Instant::now);
            if budget.is_spent() {
                break;
            }
        }
    }
}

impl Env {
    /// A new leader is to read whom its partition remembers, a part in each turn.
    pub(super) fn begin_reading(&mut self, slot: &mut Slot) {
        slot.clients = ClientIndex::unread();
        self.reading.push_back(slot.placement);
    }

    fn read_clients(&mut self, slot: &mut Slot) {
        if !slot.serving {
            return;
        }
        let view = PartitionView::new(&slot.recent, &*self.context.engine, slot.placement, Reader::Newest);
        match slot.clients.read(&view, &self.context.dedup) {
            Ok(true) => self.reading.push_back(slot.placement),
            Ok(false) => self.unpark(slot),
            Err(error) => self.unusable(slot, &error),
        }
    }

    /// Sees to it that an operation of this client may be recorded. Gives it back if it may be evaluated; otherwise it has
    /// been answered, or waits.
    pub(super) fn remember(&mut self, slot: &mut Slot, mut request: OpRequest) -> Option<OpRequest> {
        let Some(client) = request.id.as_ref().map(|id| id.client).filter(|client| !slot.clients.knows(*client)) else {
            return Some(request);
        };
        let at = slot.log_time.stamp(self.context.shared.wall.now());
        let view = PartitionView::new(&slot.recent, &*self.context.engine, slot.placement, Reader::Newest);
        let refusal = match slot.clients.room_for(client, &view, at, &self.context.dedup) {
            Ok(Room::Free) => return Some(request),
            Ok(Room::Forget(forgetting)) => match self.forget(slot, forgetting) {
                Ok(()) => return Some(request),
                Err(kind) => self.no_writes(slot, kind),
            },
            Ok(Room::Unknown(detail)) => {
                let since = *request.parked_at.get_or_insert(self.now);
                if self.now.since(since) < READING_MS_MAX && slot.waiting.parked() < PARKED_MAX {
                    slot.waiting.park(request);
                    return None;
                }
                detail
            }
            Err(error) => self.unreadable(slot, &error),
        };
        self.replies.add(request.reply, slot.waiting.log_time(), Err(refusal));
        None
    }

    /// Forgets clients that were silent for long, or are too many, as an ordinary entry of the log. Returns whether there
    /// were any.
    pub(super) fn forget_clients(&mut self, slot: &mut Slot) -> bool {
        let wall = self.context.shared.wall.now().max(slot.log_time.last());
        let view = PartitionView::new(&slot.recent, &*self.context.engine, slot.placement, Reader::Newest);
        if !slot.clients.has_to_forget(wall, &self.context.dedup)
            || self.room(slot).is_err()
            || !self.footing(slot).holds()
        {
            return false;
        }
        let at = slot.log_time.stamp(wall);
        match slot.clients.to_forget(&view, at, &self.context.dedup) {
            Ok(Some(forgetting)) => self.forget(slot, forgetting).is_ok(),
            Ok(None) => false,
            Err(error) => {
                self.unusable(slot, &error);
                false
            }
        }
    }

    fn forget(&mut self, slot: &mut Slot, forgetting: Forgetting) -> Result<(), ErrorKind> {
        if let Some(effect) = forgetting.effect {
            let at = effect.at;
            let (entry, effect) = Effect::into_entry(effect);
            let (ticket, seq) = self.propose(slot, entry)?;
            if let Err(error) = slot.recent.push(seq, effect) {
                self.damaged.push((slot.placement, error.to_string()));
            }
            let outcome = Ok(Answer::NotANumber);
            slot.waiting.commit_first(Pending { seq, at, ticket: Some(ticket), reply: None, outcome });
        }
        slot.clients.remove(&forgetting.clients);
        self.context.shared.metrics.clients_forgotten.add(forgetting.clients.len() as u64);
        Ok(())
    }
}

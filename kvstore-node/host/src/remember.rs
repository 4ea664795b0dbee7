//! Whom a partition remembers: read in slices by whoever takes it over, kept within its bound by forgetting others.

use crate::refusal::Refusal;
use crate::request::Request;
use crate::shell::{Observed, Shell};
use crate::slot::Slot;
use crate::turn::Turn;
use crate::waiting::Pending;
use archon_kv::{Effect, Forgetting, PartitionView, Reader, Room};
use archon_types::ErrorKind;

impl<S: Shell> Turn<S> {
    /// Reads on whom a partition remembers that was just taken over.
    pub(crate) fn read_clients(&mut self, slot: &mut Slot<S>) {
        if !slot.serving {
            return;
        }
        let view = PartitionView::new(&slot.memtable, self.shell.engine(), slot.placement, Reader::Newest);
        match slot.clients.read(&view, self.shell.dedup()) {
            Ok(true) => self.reading.push_back(slot.placement),
            Ok(false) => self.unpark(slot),
            Err(error) => self.unusable(slot, &error),
        }
    }

    /// Sees to it that an operation of this client may be recorded. Gives it back if it may be evaluated; otherwise it has
    /// been answered, or waits.
    pub(crate) fn remember(&mut self, slot: &mut Slot<S>, request: Request<S::Reply>) -> Option<Request<S::Reply>> {
        let Some(client) = request.id.as_ref().map(|id| id.client).filter(|client| !slot.clients.knows(*client)) else {
            return Some(request);
        };
        let at = slot.log_time.stamp(self.shell.wall());
        let view = PartitionView::new(&slot.memtable, self.shell.engine(), slot.placement, Reader::Newest);
        let (request, refusal) = match slot.clients.room_for(client, &view, at, self.shell.dedup()) {
            Ok(Room::Free) => return Some(request),
            Ok(Room::Forget(forgetting)) => match self.forget(slot, forgetting) {
                Ok(()) => return Some(request),
                Err(kind) => (request, Refusal::NoWrites(kind)),
            },
            Ok(Room::Unknown(detail)) => {
                (self.park_for(slot, request, self.patience.reading_ms)?, Refusal::Told(detail))
            }
            Err(error) => (request, self.unreadable(slot, &error)),
        };
        self.refuse(slot, request.reply, refusal);
        None
    }

    /// Forgets clients that were silent for long, or are too many, as an ordinary entry of the log. Returns whether there
    /// were any.
    pub(crate) fn forget_clients(&mut self, slot: &mut Slot<S>) -> bool {
        let wall = self.shell.wall().max(slot.log_time.last());
        if !slot.clients.has_to_forget(wall, self.shell.dedup())
            || self.room(slot).is_err()
            || !self.footing(slot).holds()
        {
            return false;
        }
        let at = slot.log_time.stamp(wall);
        let view = PartitionView::new(&slot.memtable, self.shell.engine(), slot.placement, Reader::Newest);
        match slot.clients.to_forget(&view, at, self.shell.dedup()) {
            Ok(Some(forgetting)) => self.forget(slot, forgetting).is_ok(),
            Ok(None) => false,
            Err(error) => {
                self.unusable(slot, &error);
                false
            }
        }
    }

    fn forget(&mut self, slot: &mut Slot<S>, forgetting: Forgetting) -> Result<(), ErrorKind> {
        if let Some(effect) = forgetting.effect {
            let at = effect.at;
            let (entry, effect) = Effect::into_entry(effect);
            let (ticket, seq) = self.propose(slot, entry)?;
            if let Err(error) = slot.memtable.push(seq, effect) {
                self.damaged.push((slot.placement, error.to_string()));
            }
            slot.waiting.commit_first(Pending { seq, at, ticket: Some(ticket), answer: None });
        }
        slot.clients.remove(&forgetting.clients);
        self.shell.observe(slot.at(), Observed::Forgotten(forgetting.clients.len()));
        Ok(())
    }
}

//! Client records of a partition: read in slices after a takeover, and bounded by dropping others.

use crate::copies::local_copy::LocalCopy;
use crate::operations::refusal::Refusal;
use crate::operations::request::{Request, WaitsFor};
use crate::shell::{CopyEvent, Shell};
use crate::turn::Turn;
use archon_kv::{ClientCapacity, ForgottenClients, PartitionView, Reader};
use archon_types::ErrorKind;

impl<S: Shell> Turn<S> {
    /// Reads more client records of a partition that was just taken over.
    pub(crate) fn read_clients(&mut self, local: &mut LocalCopy<S>) {
        if !local.serving {
            return;
        }
        let view = PartitionView::new(&local.memtable, self.shell.engine(), local.placement, Reader::Newest);
        match local.clients.read(&view, self.shell.dedup()) {
            Ok(true) => self.reading.push_back(local.placement),
            Ok(false) => self.unpark(local),
            Err(error) => self.unusable(local, &error),
        }
    }

    /// Makes room for a record of this client. Returns the operation if it may be evaluated; otherwise it has been
    /// answered, or waits.
    pub(crate) fn remember(
        &mut self,
        local: &mut LocalCopy<S>,
        request: Request<S::Reply>,
    ) -> Option<Request<S::Reply>> {
        let Some(client) = request.id.as_ref().map(|id| id.client).filter(|client| !local.clients.knows(*client))
        else {
            return Some(request);
        };
        let at = local.log_time.stamp(self.shell.wall());
        let view = PartitionView::new(&local.memtable, self.shell.engine(), local.placement, Reader::Newest);
        let (request, refusal) = match local.clients.capacity_for(client, &view, at, self.shell.dedup()) {
            Ok(ClientCapacity::Free) => return Some(request),
            Ok(ClientCapacity::Forget(forgetting)) => match self.forget(local, forgetting) {
                Ok(()) => return Some(request),
                Err(kind) => (request, Refusal::NoWrites(kind)),
            },
            Ok(ClientCapacity::Unknown(detail)) => {
                let reading_ms = self.park_limits.reading_ms;
                (self.park_for(local, request, reading_ms, WaitsFor::Clients)?, Refusal::Detail(detail))
            }
            Err(error) => (request, self.unreadable(local, &error)),
        };
        self.refuse(local, request.reply, refusal);
        None
    }

    /// Drops records of clients that were silent for long, or are too many, as an ordinary log entry. Returns whether
    /// there were any.
    pub(crate) fn forget_clients(&mut self, local: &mut LocalCopy<S>) -> bool {
        let wall = self.shell.wall().max(local.log_time.last());
        if !local.clients.has_to_forget(wall, self.shell.dedup())
            || self.room(local).is_err()
            || !self.leadership(local).holds()
        {
            return false;
        }
        let at = local.log_time.stamp(wall);
        let view = PartitionView::new(&local.memtable, self.shell.engine(), local.placement, Reader::Newest);
        match local.clients.to_forget(&view, at, self.shell.dedup()) {
            Ok(Some(forgetting)) => self.forget(local, forgetting).is_ok(),
            Ok(None) => false,
            Err(error) => {
                self.unusable(local, &error);
                false
            }
        }
    }

    fn forget(&mut self, local: &mut LocalCopy<S>, forgetting: ForgottenClients) -> Result<(), ErrorKind> {
        if let Some(effect) = forgetting.effect {
            self.note(local, effect)?;
        }
        local.clients.remove(&forgetting.clients);
        self.shell.observe(local.at(), CopyEvent::Forgotten(forgetting.clients.len()));
        Ok(())
    }
}

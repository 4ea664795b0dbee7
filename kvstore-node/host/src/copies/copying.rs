//! Copies between nodes: the leader's pins, and the loader's pages on their way to the engine.

use crate::copies::local_copy::LocalCopy;
use crate::copies::pages::{CopyAsk, CopyJob, CopyPage, CopyStart, OfferResult};
use crate::copies::pull::Pull;
use crate::copies::retention::Pin;
use crate::mutant::Mutant;
use crate::operations::refusal::CopyRefusal;
use crate::shell::{CopyEvent, Shell};
use crate::turn::Turn;
use archon_replica::{Input, Position, ReplicaAddress};
use archon_types::{Epoch, Seq, Version};

impl<S: Shell> Turn<S> {
    /// Starts a copy for a loader on another node: keeps the log from here until `guard` is dropped.
    pub(crate) fn copy_asked(
        &mut self,
        local: &mut LocalCopy<S>,
        ask: CopyAsk,
        guard: S::Guard,
    ) -> Result<CopyStart, CopyRefusal> {
        let unchecked = ask.resume > Seq::ZERO && self.broken.breaks(Mutant::CopyUnchecked);
        if local.view().gives_copies() != Some(ask.epoch) && !unchecked {
            return Err(CopyRefusal::NotHere);
        }
        if !local.view().loads(ask.loader) && !unchecked {
            return Err(CopyRefusal::NotLoading);
        }
        let pinned = local.retention.pinned(ask.loader);
        let resumed = ask.resume > Seq::ZERO && (pinned == Some(ask.resume) || unchecked);
        let seq = if resumed { ask.resume } else { local.retention.complete().seq };
        let known = local.replica.position_at(seq).or(unchecked.then_some(Position::new(ask.epoch, seq)));
        let Some(at) = known else { return Err(CopyRefusal::LogTooShort(seq)) };
        // Replaces an earlier pin; its pages are no longer needed.
        local.retention.pin(ask.loader, Pin { seq, epoch: ask.epoch, guard });
        Ok(CopyStart { at, version: local.replica.version(), resumed })
    }

    pub(crate) fn start_copy(&mut self, local: &mut LocalCopy<S>, copy: u64, leader: ReplicaAddress, epoch: Epoch) {
        self.shell.observe(local.at(), CopyEvent::Pulling(leader));
        local.begin_pull(self.shell.budget());
        self.shell.forget_rows(&mut local.own);
        self.shell.stop_copy(local.placement);
        local.pull = Some(Pull::new(copy, leader, epoch, self.shell.clear(local.placement)));
    }

    pub(crate) fn stop_copy(&mut self, local: &mut LocalCopy<S>, copy: u64) {
        if local.pull.take_if(|pull| pull.copy == copy).is_some() {
            self.shell.stop_copy(local.placement);
            self.shell.observe(local.at(), CopyEvent::CopyStopped);
        }
    }

    /// Takes the end of a clearing: if it is the one awaited, pages may come.
    pub(crate) fn pull(&mut self, local: &mut LocalCopy<S>, clear: u64) {
        let Some(pull) = local.pull.as_mut() else { return };
        if pull.begin(clear) {
            let (partition, placement) = (local.partition, local.placement);
            let (leader, epoch) = (pull.leader, pull.epoch);
            self.shell.start_copy(CopyJob { partition, placement, attempt: clear, leader, epoch });
        }
    }

    pub(crate) fn copy_page(&mut self, local: &mut LocalCopy<S>, page: CopyPage<S::Page>) {
        let Some(pull) = &mut local.pull else { return };
        pull.queue(page);
        self.offer_rows(local);
    }

    /// Offers rows of a copy to the engine, in order; rows without room wait until the engine reports room.
    pub(crate) fn offer_rows(&mut self, local: &mut LocalCopy<S>) {
        let Some(pull) = &mut local.pull else { return };
        while let Some(CopyPage { placement, attempt, stream, content }) = pull.waiting.pop_front() {
            if let OfferResult::Wait(content) = self.shell.offer(local.placement, content) {
                pull.waiting.push_front(CopyPage { placement, attempt, stream, content });
                return;
            }
        }
    }

    /// Completes a copy: all rows are on the engine's disk.
    pub(crate) fn copy_done(&mut self, local: &mut LocalCopy<S>, attempt: u64, at: Position, version: Version) {
        if let Some(Pull { copy, .. }) = local.pull.take_if(|pull| pull.is_of(attempt)) {
            self.shell.observe(local.at(), CopyEvent::Copied(at.seq));
            self.step(local, Input::Copied { copy, at, version });
        }
    }

    /// Restarts a copy, as its leader no longer keeps the log from the start position.
    pub(crate) fn copy_again(&mut self, local: &mut LocalCopy<S>, attempt: u64) {
        let Some(pull) = local.pull.as_mut().filter(|pull| pull.is_of(attempt)) else { return };
        pull.restart(self.shell.clear(local.placement));
        self.shell.observe(local.at(), CopyEvent::PullingAgain);
    }
}

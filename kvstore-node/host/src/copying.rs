//! Copies: the leader's pins, and the loader's pages on their way to the engine.

use crate::local_copy::LocalCopy;
use crate::mutant::Mutant;
use crate::pull::Pull;
use crate::refusal::CopyRefusal;
use crate::retention::Pin;
use crate::shell::{Observed, Shell};
use crate::turn::Turn;
use archon_replica::{Input, Position, ReplicaAddress};
use archon_types::{Epoch, PartitionId, PlacementId, Seq, Version};

/// A loader that asks for a copy.
#[derive(Clone, Copy, Debug)]
pub struct CopyAsk {
    /// The partition.
    pub partition: PartitionId,
    /// Its copy that loads.
    pub loader: PlacementId,
    /// The copy that is asked.
    pub source: PlacementId,
    /// The epoch in which the loader obeys the source.
    pub epoch: Epoch,
    /// Position at which a copy that is to be resumed began; zero for a new one.
    pub resume: Seq,
}

/// Where a copy begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopyStart {
    /// The log is kept from the entry after this one on.
    pub at: Position,
    /// The version of the row under which the copy is given: in it the loader does not count.
    pub version: Version,
    /// It goes on where an earlier attempt ended: what that one read is still good.
    pub resumed: bool,
}

/// One copy to pull into an empty space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopyJob {
    /// The partition.
    pub partition: PartitionId,
    /// Its copy that loads.
    pub placement: PlacementId,
    /// The clearing that emptied the space: whatever this job brings bears its number.
    pub attempt: u64,
    /// Who gives the copy.
    pub leader: ReplicaAddress,
    /// The epoch in which it leads.
    pub epoch: Epoch,
}

/// What arrived of a copy that this node pulls.
#[derive(Clone, Debug)]
pub struct CopyPage<P> {
    /// The copy that loads.
    pub placement: PlacementId,
    /// The clearing after which it was pulled; pages of a former one are dropped.
    pub attempt: u64,
    /// The number of the stream that brought it, within the attempt.
    pub stream: u64,
    /// Its rows.
    pub content: P,
}

/// What became of rows that were offered to the engine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Offered<P> {
    /// They are on their way, or nobody wants them any more.
    Taken,
    /// There is no room for them now.
    Wait(P),
}

impl<S: Shell> Turn<S> {
    /// A loader elsewhere wants a copy: the log is kept for it from here on, until `guard` is dropped.
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
        // In place of an earlier one, whose pages nobody wants any more.
        local.retention.pin(ask.loader, Pin { seq, epoch: ask.epoch, guard });
        Ok(CopyStart { at, version: local.replica.version(), resumed })
    }

    pub(crate) fn start_copy(&mut self, local: &mut LocalCopy<S>, copy: u64, leader: ReplicaAddress, epoch: Epoch) {
        self.shell.observe(local.at(), Observed::Pulling(leader));
        local.begin_pull(self.shell.budget());
        self.shell.forget_rows(&mut local.own);
        self.shell.stop_copy(local.placement);
        local.pull = Some(Pull::new(copy, leader, epoch, self.shell.clear(local.placement)));
    }

    pub(crate) fn stop_copy(&mut self, local: &mut LocalCopy<S>, copy: u64) {
        if local.pull.take_if(|pull| pull.copy == copy).is_some() {
            self.shell.stop_copy(local.placement);
            self.shell.observe(local.at(), Observed::CopyStopped);
        }
    }

    /// A clearing of the space is done: if it is the one that was waited for, pages may come.
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

    /// Offers rows of a copy to the engine, in order; what it has no room for waits until it tells that there is some.
    pub(crate) fn offer_rows(&mut self, local: &mut LocalCopy<S>) {
        let Some(pull) = &mut local.pull else { return };
        while let Some(CopyPage { placement, attempt, stream, content }) = pull.waiting.pop_front() {
            if let Offered::Wait(content) = self.shell.offer(local.placement, content) {
                pull.waiting.push_front(CopyPage { placement, attempt, stream, content });
                return;
            }
        }
    }

    /// All rows of a copy are in, on the engine's disk.
    pub(crate) fn copy_done(&mut self, local: &mut LocalCopy<S>, attempt: u64, at: Position, version: Version) {
        if let Some(Pull { copy, .. }) = local.pull.take_if(|pull| pull.is_of(attempt)) {
            self.shell.observe(local.at(), Observed::Copied(at.seq));
            self.step(local, Input::Copied { copy, at, version });
        }
    }

    /// The leader no longer keeps the log from where the copy began: it begins anew.
    pub(crate) fn copy_again(&mut self, local: &mut LocalCopy<S>, attempt: u64) {
        let Some(pull) = local.pull.as_mut().filter(|pull| pull.is_of(attempt)) else { return };
        pull.restart(self.shell.clear(local.placement));
        self.shell.observe(local.at(), Observed::PullingAgain);
    }
}

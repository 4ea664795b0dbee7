//! Copy of a new partition that a node forms from its own copy of the parent (PROTOCOL rules 38 to 40).
//!
//! Forming begins as soon as the row has the split: rows are copied and writes mirrored while every key is served. Once
//! the log seals the keys, the engine gets what it lacks up to the seal, and the copy is complete.

use crate::copies::local_copy::{FlushUrgency, LocalCopy, RecoveredCopy};
use crate::log_write::LogWrite;
use crate::mutant::Mutant;
use crate::partitions::Partitions;
use crate::ranges::form::FormJob;
use crate::ranges::split_work::{FormedCopy, OwnCopy, Stage};
use crate::shell::{CopyEvent, CopyLocation, Shell};
use crate::turn::Turn;
use archon_kv::{LogTime, Memtable, PartitionView, Reader, Seal, ViewError, row};
use archon_replica::{Position, RecoveredState};
use archon_types::{PartitionId, PlacementId, RightCopy, RightStage, Seq, Version};

/// Pause before a copy is formed again in a damaged space, in milliseconds.
const FORM_AGAIN_MS: u64 = 5_000;
/// Largest lag of the engine behind the log in a copy that has caught up, in milliseconds.
const CAUGHT_UP_MS: u64 = 100;
/// Extra lag allowed, as an inverse fraction of the time spent catching up: a longer pause beats an abandoned split.
const CAUGHT_UP_SLACK: u64 = 50;
/// Largest lag allowed at all, in milliseconds. A replica further behind could not finish before the split times out,
/// and all clients would have waited without result.
const BEHIND_MS_MAX: u64 = 1_000;

/// Copy that a row has this node form.
#[derive(Clone, Copy)]
pub(crate) struct WantedCopy {
    attempt: Version,
    partition: PartitionId,
    pub(crate) copy: RightCopy,
}

impl<S: Shell> Partitions<S> {
    /// Records that every row of this copy is on disk, and writes are mirrored.
    pub fn mirroring(&mut self, copy: PlacementId, attempt: u64) {
        let now = self.turn.now;
        if let Some(own) = self.own_copy_of(copy, attempt).filter(|own| own.stage == Stage::Copying) {
            own.come_to(Stage::CatchingUp(now));
        }
    }

    /// Abandons a copy after its source rows were cleared; forming restarts once that is done.
    pub fn spoilt(&mut self, copy: PlacementId, attempt: u64) {
        let fits = |own: &OwnCopy| own.copy == copy && own.attempt.get() == attempt && own.follows();
        for local in self.copies.values_mut().filter(|local| local.split.own.as_ref().is_some_and(fits)) {
            local.split.own = None;
            local.flush_urgency = FlushUrgency::None;
        }
    }

    /// Abandons a copy in a damaged space. Forming restarts after [`FORM_AGAIN_MS`] with a cleared space.
    pub(crate) fn form_damaged(&mut self, copy: PlacementId) {
        let fits = |own: &OwnCopy| own.copy == copy && (own.follows() || matches!(own.stage, Stage::Ending(_)));
        for local in self.copies.values_mut().filter(|local| local.split.own.as_ref().is_some_and(fits)) {
            local.split.own = None;
            local.split.form_again_at = self.turn.now.plus(FORM_AGAIN_MS);
            local.flush_urgency = FlushUrgency::None;
        }
    }

    /// Records that the copy of this attempt is on the engine's disk, and passes it to the thread that has its
    /// partition and alone writes to its log.
    pub fn formed(&mut self, copy: PlacementId, attempt: u64) {
        let Some(own) = self.own_copy_of(copy, attempt) else { return };
        let Stage::Ending(at) = own.stage else { return };
        own.come_to(Stage::Adopting(at));
        let partition = own.partition;
        let restarts = self.turn.broken.breaks(Mutant::RevisionRestarts);
        let at = if restarts { Position::new(at.epoch, Seq::ZERO) } else { at }; // rule 38
        self.turn.shell.adopt(FormedCopy { partition, placement: copy, at });
    }

    fn own_copy_of(&mut self, copy: PlacementId, attempt: u64) -> Option<&mut OwnCopy> {
        let fits = |own: &&mut OwnCopy| own.copy == copy && own.attempt.get() == attempt;
        self.copies.values_mut().filter_map(|local| local.split.own.as_mut()).find(fits)
    }

    /// Takes over a formed copy, unless it is known here already: its log begins at the seal.
    pub fn adopt(&mut self, formed: FormedCopy) {
        let FormedCopy { partition, placement, at } = formed;
        let is_kept = self.dormant.contains_key(&placement) || self.unreadable.get(placement).is_some();
        if is_kept || self.is_taken(placement) {
            return;
        }
        self.turn.shell.log(placement, LogWrite::Begin { partition, epoch: at.epoch, base: at });
        self.turn.shell.log_token(placement, 0);
        self.adopting.insert(placement, formed);
    }

    /// Holds a formed copy from here on, as the log has it on disk.
    pub(crate) fn adopted(&mut self, placement: PlacementId) {
        let Some(FormedCopy { partition, at: base, .. }) = self.adopting.remove(&placement) else { return };
        let at = CopyLocation { partition, placement, epoch: base.epoch, commit: base.seq };
        match self.found_formed(placement, partition, base) {
            Ok(found) => {
                self.dormant.insert(placement, found);
                self.turn.shell.observe(at, CopyEvent::Formed);
            }
            Err(error) => {
                self.keep_unread(placement, at, base);
                self.turn.shell.fail(at, &error);
            }
        }
    }

    /// Returns the recovered state of a formed copy.
    fn found_formed(
        &self,
        copy: PlacementId,
        partition: PartitionId,
        base: Position,
    ) -> Result<RecoveredCopy, ViewError> {
        let stamp = self.turn.shell.engine().get(copy, row::LOG_TIME_KEY)?;
        let stamp = stamp.map(|stamp| row::decode_millis(&stamp)).transpose()?;
        Ok(RecoveredCopy {
            partition,
            recovered: RecoveredState { epoch: base.epoch, base, runs: Vec::new(), last: base.seq, commit: base.seq },
            complete: base,
            memtable: Memtable::new(base.seq, self.turn.shell.budget()),
            log_time: LogTime::starting_at(stamp.unwrap_or_default()),
            unreadable: None,
        })
    }

    /// Stops forming this copy: it is opened or deleted.
    pub(crate) fn form_no_more(&mut self, copy: PlacementId) {
        for placement in &self.turn.splitting {
            let own = self.copies.get_mut(placement).and_then(|local| local.split.own.as_mut());
            if let Some(own) = own.filter(|own| own.copy == copy) {
                own.come_to(Stage::Over);
                self.turn.shell.stop_form(copy);
            }
        }
    }
}

impl<S: Shell> Turn<S> {
    /// Returns the copy of the new partition that belongs on this node.
    pub(crate) fn own_copy(&self, local: &LocalCopy<S>) -> Option<WantedCopy> {
        let row = local.row()?;
        let split = row.split.as_deref()?;
        let copy = *split.copy_on(self.shell.life()?.node)?;
        Some(WantedCopy { attempt: split.attempt, partition: split.right_of(row.id), copy })
    }

    /// Forms the copy of the new partition that belongs on this node, and reports it. `held` returns the partition of a
    /// copy that is held here and not served; `taken` means that the node has the copy already.
    pub(crate) fn form_own(
        &mut self,
        local: &mut LocalCopy<S>,
        taken: bool,
        held: impl Fn(PlacementId) -> Option<PartitionId>,
    ) {
        if self.shell.life().is_none() {
            return;
        }
        let wanted = self.own_copy(local);
        let pulls = local.is_pulling();
        let over =
            |own: &mut OwnCopy| wanted.is_none_or(|wanted| wanted.attempt != own.attempt) || (pulls && own.follows());
        if let Some(own) = local.split.own.take_if(over) {
            self.shell.stop_form(own.copy);
            local.flush_urgency = FlushUrgency::None;
        }
        let Some(wanted) = wanted else { return };
        let WantedCopy { attempt, partition, copy } = wanted;
        let held = held(copy.id).or_else(|| self.shell.holds(copy.id)).filter(|of| *of == partition);
        if local.split.own.is_none() {
            if taken || pulls || self.now < local.split.form_again_at {
                return;
            }
            let Some(stage) = self.first_stage(local, wanted, held.is_some()) else { return };
            local.split.own = Some(OwnCopy { attempt, partition, copy: copy.id, stage, reported: None });
        }
        self.end_own(local);
        let Some(own) = &mut local.split.own else { return };
        if let (Stage::Adopting(at), Some(_)) = (own.stage, held) {
            own.come_to(Stage::Formed(at));
        }
        self.report_stage(local, copy.stage);
    }

    /// Returns the first stage of forming. A held copy is complete: the log has had it only since then, before a
    /// restart.
    fn first_stage(&mut self, local: &mut LocalCopy<S>, wanted: WantedCopy, held: bool) -> Option<Stage> {
        if held {
            return self.sealed_for(local, wanted.attempt).map(Stage::Formed);
        }
        let row = local.row()?;
        let range = row.split.as_deref()?.right_range(&row.range);
        // Clearing for a merge, which precedes its rows, would spoil the copy if the engine did it later.
        if !self.has_absorbed(local) {
            return None;
        }
        if local.memtable.is_to_clear(&range, local.flushing) {
            local.flush_urgency = FlushUrgency::Now;
            self.shell.ticked(local, self.now);
            local.flush_urgency = FlushUrgency::None;
        }
        if local.memtable.is_to_clear(&range, local.flushing) {
            return None;
        }
        let (attempt, to) = (wanted.attempt.get(), wanted.copy.id);
        self.shell.form(FormJob { attempt, from: local.placement, to, range }).then_some(Stage::Copying)
    }

    /// Completes the copy if its keys are sealed by now, once the engine received everything up to the seal: it works
    /// in order.
    fn end_own(&mut self, local: &mut LocalCopy<S>) {
        let Some(own) = local.split.own.as_ref().filter(|own| own.follows()) else { return };
        let (attempt, copy, copying) = (own.attempt, own.copy, own.stage == Stage::Copying);
        let cut = local.row().and_then(|row| row.split.as_deref()).is_some_and(|split| split.cut);
        let end = self.sealed_for(local, attempt);
        // Little must be left to write when the keys are sealed, as clients wait from then on.
        local.flush_urgency = match (cut || end.is_some(), copying) {
            (true, _) => FlushUrgency::Now,
            (false, false) => FlushUrgency::Soon,
            (false, true) => FlushUrgency::None,
        };
        if local.flush_urgency > FlushUrgency::None {
            self.shell.ticked(local, self.now);
        }
        self.catch_up(local);
        let Some(end) = end.filter(|end| local.flushing >= end.seq) else { return };
        local.flush_urgency = FlushUrgency::None;
        self.shell.end_form(local.placement, copy, end);
        if let Some(own) = &mut local.split.own {
            own.come_to(Stage::Ending(end));
        }
    }

    /// Moves a copy with every row to `Mirroring` once the engine is only a moment behind. The writes that gathered
    /// while rows were copied may take it half a second, for which all users of the keys would wait if they were sealed
    /// meanwhile.
    fn catch_up(&self, local: &mut LocalCopy<S>) {
        let behind_ms = local.unwritten_since().map_or(0, |since| self.now.since(since));
        let Some(own) = &mut local.split.own else { return };
        let Stage::CatchingUp(since) = own.stage else { return };
        let may_lack_ms = CAUGHT_UP_MS + self.now.since(since) / CAUGHT_UP_SLACK;
        if behind_ms <= may_lack_ms.min(BEHIND_MS_MAX) {
            own.come_to(Stage::Mirroring);
        }
    }

    /// Reports the stage of the copy, once per incarnation and per row version that does not have it.
    fn report_stage(&mut self, local: &mut LocalCopy<S>, known: RightStage) {
        let Some(life) = self.shell.life() else { return };
        // The coordinators refuse reports of an incarnation, for good, before it has received a row.
        if local.split.told != Some(life.incarnation) {
            return;
        }
        let reported = Some((life.incarnation, local.replica.version()));
        let own = local.split.own.as_ref().filter(|own| own.reported != reported && own.is_at() > known);
        let Some(fact) = own.and_then(OwnCopy::fact) else { return };
        if self.report(local, fact)
            && let Some(own) = &mut local.split.own
        {
            own.reported = reported;
        }
    }

    /// Returns the position of this attempt's seal in the log, if it is committed and known to be here.
    fn sealed_for(&mut self, local: &LocalCopy<S>, attempt: Version) -> Option<Position> {
        let early = self.broken.breaks(Mutant::FormedEarly); // rule 38
        let reader = if early { Reader::Newest } else { Reader::Committed };
        let view = PartitionView::new(&local.memtable, self.shell.engine(), local.placement, reader);
        match Seal::current(&view) {
            Ok(seal) => {
                let seal = seal.filter(|seal| seal.attempt == attempt)?;
                let at = seal.position;
                // Rows of a copy being pulled have no position yet.
                (early || (at.seq <= local.memtable.committed() && !local.is_pulling())).then_some(at)
            }
            Err(error) => {
                self.unusable(local, &error);
                None
            }
        }
    }
}

#[cfg(test)]
#[path = "split_off_tests.rs"]
mod tests;

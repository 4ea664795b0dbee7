//! The copy of a new partition that a node forms from its own copy of the partition that is split (PROTOCOL rules 38 to 40).
//!
//! It is begun as soon as the row speaks of the split: rows are copied and whatever is written follows, while every key is served.
//! When the keys are given up in the log, what the engine lacks up to there is brought to it, and the copy is whole.

use crate::form::FormJob;
use crate::local_copy::{FlushUrgency, Found, LocalCopy};
use crate::log_write::LogWrite;
use crate::mutant::Mutant;
use crate::partitions::Partitions;
use crate::shell::{At, Observed, Shell};
use crate::split::SplitWork;
use crate::turn::Turn;
use archon_kv::{LogTime, Memtable, PartitionView, Reader, Seal, ViewError, row};
use archon_replica::{Position, Recovered};
use archon_types::{Fact, Incarnation, Millis, PartitionId, PlacementId, RightCopy, RightStage, Seq, Version};

/// Pause before a copy is formed again in a space that was found damaged, in milliseconds.
const FORM_AGAIN_MS: u64 = 5_000;
/// How far the engine of a copy that has caught up is behind the log, in milliseconds.
const CAUGHT_UP_MS: u64 = 100;
/// Of the time for which a copy tries to catch up, this part more is put up with: rather a longer pause than none of two halves.
const CAUGHT_UP_SLACK: u64 = 50;
/// What is put up with at most, in milliseconds. To whoever is further behind the end of the copy would take longer than a split that has
/// begun to give keys up may take, and all would have waited in vain.
const BEHIND_MS_MAX: u64 = 1_000;

/// A copy of the partition that is split off, which this node forms.
#[derive(Debug)]
pub(crate) struct OwnCopy {
    attempt: Version,
    partition: PartitionId,
    copy: PlacementId,
    stage: Stage,
    /// In which life, and under which version of the row, its stage was reported last.
    reported: Option<(Incarnation, Version)>,
}

/// What a row wants formed on this node.
#[derive(Clone, Copy)]
pub(crate) struct WantedCopy {
    attempt: Version,
    partition: PartitionId,
    pub(crate) copy: RightCopy,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// The engine copies rows.
    Copying,
    /// It has them all since then, but not yet what has gathered while it copied them.
    CatchingUp(Millis),
    /// It has them all, and what is written follows within a moment.
    Mirroring,
    /// The keys are given up there: the engine was given everything, and brings it to the disk.
    Ending(Position),
    /// Whoever has its partition takes it up.
    Adopting(Position),
    /// It is whole.
    Formed(Position),
    /// It is opened, or deleted: whatever an old row says, its rows are not to be written over.
    Over,
}

/// A copy that was formed and that nobody knows yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FormedCopy {
    /// The partition that is split off.
    pub partition: PartitionId,
    /// Its copy.
    pub placement: PlacementId,
    /// Where its log begins.
    pub at: Position,
}

impl OwnCopy {
    fn come_to(&mut self, stage: Stage) {
        (self.stage, self.reported) = (stage, None);
    }

    /// It reads rows that whoever pulls the other copy anew throws away.
    const fn follows(&self) -> bool {
        matches!(self.stage, Stage::Copying | Stage::CatchingUp(_) | Stage::Mirroring)
    }

    /// How far it is, as the row says it.
    const fn is_at(&self) -> RightStage {
        match self.stage {
            Stage::Copying | Stage::CatchingUp(_) => RightStage::Copying,
            Stage::Mirroring | Stage::Ending(_) | Stage::Adopting(_) => RightStage::Mirroring,
            Stage::Formed(_) | Stage::Over => RightStage::Formed,
        }
    }

    fn fact(&self) -> Option<Fact> {
        let (attempt, copy) = (self.attempt, self.copy);
        match self.stage {
            Stage::Mirroring => Some(Fact::Mirroring { attempt, copy }),
            Stage::Formed(position) => Some(Fact::Formed { attempt, copy, position }),
            Stage::Copying | Stage::CatchingUp(_) | Stage::Ending(_) | Stage::Adopting(_) | Stage::Over => None,
        }
    }
}

impl SplitWork {
    /// Whether the copy here is being brought to its end, or is past it.
    pub(crate) fn is_ending(&self) -> bool {
        self.own.as_ref().is_some_and(|own| !own.follows())
    }
}

impl<S: Shell> Partitions<S> {
    /// Every row of that copy is there, on the disk, and what is written follows.
    pub fn mirroring(&mut self, copy: PlacementId, attempt: u64) {
        let now = self.turn.now;
        if let Some(own) = self.own_copy_of(copy, attempt).filter(|own| own.stage == Stage::Copying) {
            own.come_to(Stage::CatchingUp(now));
        }
    }

    /// That copy is formed no further, since rows that it was to have were cleared: it is begun anew once that is done.
    pub fn spoilt(&mut self, copy: PlacementId, attempt: u64) {
        let fits = |own: &OwnCopy| own.copy == copy && own.attempt.get() == attempt && own.follows();
        for local in self.copies.values_mut().filter(|local| local.split.own.as_ref().is_some_and(fits)) {
            local.split.own = None;
            local.flush_urgency = FlushUrgency::None;
        }
    }

    /// The space in which a copy is formed is damaged, and its job has ended. It starts again after a while, for the space is cleared first.
    pub(crate) fn form_damaged(&mut self, copy: PlacementId) {
        let fits = |own: &OwnCopy| own.copy == copy && (own.follows() || matches!(own.stage, Stage::Ending(_)));
        for local in self.copies.values_mut().filter(|local| local.split.own.as_ref().is_some_and(fits)) {
            local.split.own = None;
            local.split.form_again_at = self.turn.now.plus(FORM_AGAIN_MS);
            local.flush_urgency = FlushUrgency::None;
        }
    }

    /// A copy was formed in that attempt: the engine holds it, on its disk. Whoever has its partition is to take it up, who alone
    /// writes to its log.
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

    /// Takes up a copy that was formed, unless it is known here by now: its log begins where the keys were given away.
    pub fn adopt(&mut self, formed: FormedCopy) {
        let FormedCopy { partition, placement, at } = formed;
        if self.is_taken(placement) || self.dormant.contains_key(&placement) {
            return;
        }
        self.turn.shell.log(placement, LogWrite::Begin { partition, epoch: at.epoch, base: at });
        self.turn.shell.log_token(placement, 0);
        self.adopting.insert(placement, formed);
    }

    /// The log knows of a copy that was formed, on the disk: it is held from here on.
    pub(crate) fn adopted(&mut self, placement: PlacementId) {
        let Some(FormedCopy { partition, at: base, .. }) = self.adopting.remove(&placement) else { return };
        let at = At { partition, placement, epoch: base.epoch, commit: base.seq };
        match self.found_formed(placement, partition, base) {
            Ok(found) => {
                self.dormant.insert(placement, found);
                self.turn.shell.observe(at, Observed::Formed);
            }
            Err(error) => self.turn.shell.fail(at, &error),
        }
    }

    /// What is held of a copy that was formed.
    fn found_formed(&self, copy: PlacementId, partition: PartitionId, base: Position) -> Result<Found, ViewError> {
        let stamp = self.turn.shell.engine().get(copy, row::LOG_TIME_KEY)?;
        let stamp = stamp.map(|stamp| row::decode_millis(&stamp)).transpose()?;
        Ok(Found {
            partition,
            recovered: Recovered { epoch: base.epoch, base, runs: Vec::new(), last: base.seq, commit: base.seq },
            complete: base,
            memtable: Memtable::new(base.seq, self.turn.shell.budget()),
            log_time: LogTime::starting_at(stamp.unwrap_or_default()),
            unreadable: None,
        })
    }

    /// Forms this copy no more: another is opened in its place, or it is deleted.
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
    /// The copy of the other partition that belongs on this node.
    pub(crate) fn own_copy(&self, local: &LocalCopy<S>) -> Option<WantedCopy> {
        let row = local.row()?;
        let split = row.split.as_deref()?;
        let copy = *split.copy_on(self.shell.life()?.node)?;
        Some(WantedCopy { attempt: split.attempt, partition: split.right_of(row.id), copy })
    }

    /// Forms the copy of the other partition that belongs on this node, and says so. `held` says of which partition a copy is that is
    /// held here and not served, `taken` that somebody has it already.
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

    /// Where forming a copy begins. One that is held is whole: the log knows of it only since it was, before a restart.
    fn first_stage(&mut self, local: &mut LocalCopy<S>, wanted: WantedCopy, held: bool) -> Option<Stage> {
        if held {
            return self.sealed_for(local, wanted.attempt).map(Stage::Formed);
        }
        let row = local.row()?;
        let range = row.split.as_deref()?.right_range(&row.range);
        // What was cleared for a merge, before its rows came, would spoil the copy if the engine did it later.
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

    /// Brings the copy to its end, if its keys are given up by now and once the engine was given everything up to there: it
    /// works in order.
    fn end_own(&mut self, local: &mut LocalCopy<S>) {
        let Some(own) = local.split.own.as_ref().filter(|own| own.follows()) else { return };
        let (attempt, copy, copying) = (own.attempt, own.copy, own.stage == Stage::Copying);
        let cut = local.row().and_then(|row| row.split.as_deref()).is_some_and(|split| split.cut);
        let end = self.sealed_for(local, attempt);
        // Little is to be left to write when the keys are given up: somebody waits for them then.
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

    /// A copy that has every row says so once the engine is but a moment behind: what gathered while rows were copied may take it
    /// half a second, for which all who use the keys would wait if they were given up meanwhile.
    fn catch_up(&self, local: &mut LocalCopy<S>) {
        let behind_ms = local.unwritten_since().map_or(0, |since| self.now.since(since));
        let Some(own) = &mut local.split.own else { return };
        let Stage::CatchingUp(since) = own.stage else { return };
        let may_lack_ms = CAUGHT_UP_MS + self.now.since(since) / CAUGHT_UP_SLACK;
        if behind_ms <= may_lack_ms.min(BEHIND_MS_MAX) {
            own.come_to(Stage::Mirroring);
        }
    }

    /// Reports how far the copy is, once in each life and for each version of the row that does not know it.
    fn report_stage(&mut self, local: &mut LocalCopy<S>, known: RightStage) {
        let Some(life) = self.shell.life() else { return };
        // Before this life is told anything nobody listens to it: what it says would be refused for good.
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

    /// Where this attempt's seal stands in the log, if it is committed and known to be here.
    fn sealed_for(&mut self, local: &LocalCopy<S>, attempt: Version) -> Option<Position> {
        let early = self.broken.breaks(Mutant::FormedEarly); // rule 38
        let reader = if early { Reader::Newest } else { Reader::Committed };
        let view = PartitionView::new(&local.memtable, self.shell.engine(), local.placement, reader);
        match Seal::current(&view) {
            Ok(seal) => {
                let seal = seal.filter(|seal| seal.attempt == attempt)?;
                let at = seal.position;
                // Rows of a copy that is being pulled are of no position at all yet.
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

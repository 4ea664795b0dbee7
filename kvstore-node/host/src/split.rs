//! Splits, from the side of a copy of the partition that is split: what a leader's log says of keys that its row gives away, and
//! the copy of the other partition that is formed from this one.
//!
//! The row says what is wanted, the log what is true. A leader makes its log agree with the newest row that it knows: it seals the
//! keys when the row says that they are to go, opens them again when a newer row says that nothing came of it, and clears them
//! when they are another partition's (PROTOCOL rules 35 to 41).

use crate::form::FormJob;
use crate::local_copy::{Found, LocalCopy};
use crate::log_write::LogWrite;
use crate::mutant::Mutant;
use crate::partitions::Partitions;
use crate::refusal::Refusal;
use crate::request::Request;
use crate::shell::{At, Observed, Shell};
use crate::turn::Turn;
use archon_kv::{LogTime, Memtable, PartitionView, Reader, Seal, ViewError, reshape, row};
use archon_replica::{Position, Recovered};
use archon_types::{
    Fact, Incarnation, KeyRange, Partition, PartitionId, PlacementId, Report, RightCopy, Split, Version,
};

/// What a copy knows of the split of its partition.
#[derive(Debug, Default)]
pub(crate) struct SplitWork {
    /// What its whole log says, uncommitted entries included, while it serves.
    seal: Option<Seal>,
    /// The copy of the other partition on this node.
    own: Option<OwnCopy>,
    /// The life of the node in which it was told a row last.
    told: Option<Incarnation>,
}

/// A copy of the partition that is split off, which this node forms.
#[derive(Debug)]
struct OwnCopy {
    attempt: Version,
    partition: PartitionId,
    copy: PlacementId,
    at: Position,
    stage: Stage,
}

/// What a row wants formed on this node.
#[derive(Clone, Copy)]
struct WantedCopy {
    attempt: Version,
    partition: PartitionId,
    copy: RightCopy,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// The engine copies rows.
    Forming,
    /// Whoever has its partition takes it up.
    Adopting,
    /// It is whole. In which life and under which version of the row that was said last.
    Formed(Option<(Incarnation, Version)>),
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

impl SplitWork {
    /// Whether the log gives this key away, as far as it is known while the copy serves.
    pub(crate) fn seals(&self, key: &[u8]) -> bool {
        self.seal.as_ref().is_some_and(|seal| seal.covers(key))
    }

    /// Of some keys of the partition, those that its log does not give away.
    pub(crate) fn unsealed(&self, keys: KeyRange) -> KeyRange {
        self.seal.as_ref().map_or_else(|| keys.clone(), |seal| keys.clone().before(seal.at.clone()))
    }

    /// Nothing is admitted any more: what the log says is read anew by whoever serves next.
    pub(crate) fn rest(&mut self) {
        self.seal = None;
    }

    const fn is_idle(&self) -> bool {
        self.seal.is_none() && self.own.is_none()
    }
}

impl<S: Shell> Partitions<S> {
    /// What follows from rows and logs of partitions that are being split. There are few of them, and mostly none.
    pub(crate) fn split(&mut self) {
        for placement in self.turn.splitting.clone() {
            let taken = self.copies.get(&placement).and_then(|local| self.turn.own_copy(local));
            let taken = taken.is_some_and(|wanted| self.is_taken(wanted.copy.id));
            let Some(local) = self.copies.get_mut(&placement) else {
                self.turn.splitting.remove(&placement);
                continue;
            };
            self.turn.agree(local);
            self.turn.form_own(local, taken, |copy| self.dormant.get(&copy).map(|found| found.partition));
            if local.split.is_idle() && local.row().is_none_or(|row| row.split.is_none()) {
                self.turn.splitting.remove(&placement);
            }
        }
    }

    /// Whether somebody here has this copy already, whose rows are not to be written over whatever an old row says.
    fn is_taken(&self, copy: PlacementId) -> bool {
        self.copies.contains_key(&copy) || self.unloading.contains_key(&copy)
    }

    /// A copy was formed in that attempt: the engine holds it, on its disk. Whoever has its partition is to take it up, who alone
    /// writes to its log.
    pub fn formed(&mut self, copy: PlacementId, attempt: u64) {
        let fits = |own: &&mut OwnCopy| own.copy == copy && own.attempt.get() == attempt && own.stage == Stage::Forming;
        let own = self.copies.values_mut().filter_map(|local| local.split.own.as_mut()).find(fits);
        let Some(own) = own else { return };
        own.stage = Stage::Adopting;
        self.turn.shell.adopt(FormedCopy { partition: own.partition, placement: copy, at: own.at });
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
        })
    }

    /// Forms this copy no more: another is opened in its place, or it is deleted.
    pub(crate) fn form_no_more(&mut self, copy: PlacementId) {
        for placement in &self.turn.splitting {
            let own = self.copies.get_mut(placement).and_then(|local| local.split.own.as_mut());
            if let Some(own) = own.filter(|own| own.copy == copy) {
                own.stage = Stage::Over;
                self.turn.shell.stop_form(copy);
            }
        }
    }
}

impl<S: Shell> Turn<S> {
    /// A leader that begins to serve reads what its log gives away.
    pub(crate) fn read_seal(&mut self, local: &mut LocalCopy<S>) {
        let view = PartitionView::new(&local.memtable, self.shell.engine(), local.placement, Reader::Newest);
        match Seal::standing(&view) {
            Ok(seal) if self.broken.breaks(Mutant::SealForgotten) => drop(seal), // rule 35
            Ok(seal) => {
                if seal.is_some() {
                    self.splitting.insert(local.placement);
                }
                local.split.seal = seal;
            }
            Err(error) => self.unusable(local, &error),
        }
    }

    /// Takes in what the row says of a split.
    pub(crate) fn note_split(&mut self, local: &mut LocalCopy<S>, row: &Partition) {
        local.split.told = self.shell.life().map(|life| life.incarnation);
        if row.split.is_some() {
            self.splitting.insert(local.placement);
        }
    }

    /// Has an operation wait for what becomes of its key, if the log has given that away and the row has not.
    pub(crate) fn wait_for_split(
        &mut self,
        local: &mut LocalCopy<S>,
        request: Request<S::Reply>,
    ) -> Option<Request<S::Reply>> {
        let sealed = request.op.key().is_some_and(|key| local.split.seals(key) && !local.is_beyond(key));
        let reads = request.op.is_read() && self.broken.breaks(Mutant::ReadsWhileSealed); // rule 35
        if !sealed || reads || self.broken.breaks(Mutant::MovedBeforePart) {
            return Some(request);
        }
        let request = self.park_for(local, request, self.patience.settle_ms)?;
        if self.broken.breaks(Mutant::SealGivenUp) {
            return Some(request); // rule 36
        }
        let log_time = local.waiting.log_time();
        self.turn_away(request, log_time, Refusal::Changing);
        None
    }

    /// Makes the log of a leader agree with its row.
    fn agree(&mut self, local: &mut LocalCopy<S>) {
        if !local.serving || local.aside || self.room(local).is_err() || !self.footing(local).holds() {
            return;
        }
        let (Some(row), Some(position)) = (local.row(), local.replica.next_position()) else { return };
        let seal = local.split.seal.as_ref();
        let early = self.broken.breaks(Mutant::ClearEarly) && local.split.own.is_some(); // rule 41
        let lacks = match early {
            true => seal.map(|seal| Lack::Clear(sealed_range(seal))),
            false => lack(row, seal, position),
        };
        let Some(lacks) = lacks else { return };
        let at = local.log_time.stamp(self.shell.wall());
        let (effect, seal) = match lacks {
            Lack::Seal(seal) => (reshape::split(at, &seal), Some(seal)),
            Lack::Open => (reshape::open(at), None),
            Lack::Clear(range) => (reshape::clear(at, range), None),
        };
        if self.note(local, effect).is_ok() {
            self.shell.forget_rows(&mut local.own);
            local.split.seal = seal;
            self.unpark(local);
        }
    }

    /// The copy of the other partition that belongs on this node.
    fn own_copy(&self, local: &LocalCopy<S>) -> Option<WantedCopy> {
        let row = local.row()?;
        let split = row.split.as_deref()?;
        let copy = *split.copy_on(self.shell.life()?.node)?;
        Some(WantedCopy { attempt: split.attempt, partition: split.right_of(row.id), copy })
    }

    /// Forms the copy of the other partition that belongs on this node, and says so. `held` says of which partition a copy is that is
    /// held here and not served, `taken` that somebody has it already.
    fn form_own(&mut self, local: &mut LocalCopy<S>, taken: bool, held: impl Fn(PlacementId) -> Option<PartitionId>) {
        let Some(life) = self.shell.life() else { return };
        let wanted = self.own_copy(local);
        let over = |own: &mut OwnCopy| wanted.is_none_or(|wanted| wanted.attempt != own.attempt);
        if let Some(own) = local.split.own.take_if(over) {
            self.shell.stop_form(own.copy);
        }
        let Some(WantedCopy { attempt, partition, copy }) = wanted else { return };
        let held = held(copy.id).or_else(|| self.shell.holds(copy.id)).filter(|of| *of == partition);
        if local.split.own.is_none() {
            if taken {
                return;
            }
            let Some(at) = self.sealed_for(local, attempt) else { return };
            let stage = match held {
                // Before a restart: the log knows of it only since it was whole.
                Some(_) => Stage::Formed(None),
                None if self.begin_form(local, attempt, copy.id, at) => Stage::Forming,
                None => return,
            };
            local.split.own = Some(OwnCopy { attempt, partition, copy: copy.id, at, stage });
        }
        let version = local.replica.version();
        let Some(own) = &mut local.split.own else { return };
        if own.stage == Stage::Adopting && held.is_some() {
            own.stage = Stage::Formed(None);
        }
        // Before this life is told anything nobody listens to it: what it says would be refused for good.
        if local.split.told != Some(life.incarnation) {
            return;
        }
        let said = Some((life.incarnation, version));
        if !matches!(own.stage, Stage::Formed(before) if before != said) || copy.formed {
            return;
        }
        let fact = Fact::Formed { attempt, copy: copy.id, position: own.at };
        own.stage = Stage::Formed(said);
        let (partition, placement, epoch) = (local.partition, local.placement, local.replica.epoch());
        self.shell.report(Report { partition, placement, epoch, version, fact });
    }

    /// Where this attempt's seal stands in the log, if it is committed and known to be here.
    fn sealed_for(&mut self, local: &LocalCopy<S>, attempt: Version) -> Option<Position> {
        let early = self.broken.breaks(Mutant::FormedEarly); // rule 38
        let reader = if early { Reader::Newest } else { Reader::Committed };
        let view = PartitionView::new(&local.memtable, self.shell.engine(), local.placement, reader);
        match Seal::standing(&view) {
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

    /// Has the engine form a copy, once it was given everything up to where the keys were sealed: it works in order.
    fn begin_form(&mut self, local: &mut LocalCopy<S>, attempt: Version, to: PlacementId, at: Position) -> bool {
        local.in_a_hurry = local.flushing < at.seq;
        if local.in_a_hurry {
            self.shell.ticked(local, self.now);
        }
        if local.flushing < at.seq {
            return false;
        }
        local.in_a_hurry = false;
        let range = local.row().and_then(|row| Some(row.split.as_deref()?.right_range(&row.range)));
        let Some(range) = range else { return false };
        self.shell.form(FormJob { attempt: attempt.get(), from: local.placement, to, range, at });
        true
    }
}

fn sealed_range(seal: &Seal) -> KeyRange {
    KeyRange { begin: seal.at.clone(), end: seal.end.clone() }
}

/// What a leader's log lacks to agree with its row.
enum Lack {
    /// The keys are to be given away.
    Seal(Seal),
    /// Nothing came of it.
    Open,
    /// They are another partition's.
    Clear(KeyRange),
}

/// What the log of a leader lacks, whose whole log says `seal` and goes on at `position`.
fn lack(row: &Partition, seal: Option<&Seal>, position: Position) -> Option<Lack> {
    let split = row.split.as_deref();
    let Some(seal) = seal else {
        let Split { attempt, at, .. } = split?;
        return Some(Lack::Seal(Seal { attempt: *attempt, at: at.clone(), end: row.range.end.clone(), position }));
    };
    let goes_on = split.is_some_and(|split| split.attempt == seal.attempt);
    // A row as old as the attempt or older says nothing of how it ended.
    if goes_on || row.version <= seal.attempt {
        return None;
    }
    let parted = row.range.end.as_ref() == Some(&seal.at);
    Some(if parted { Lack::Clear(sealed_range(seal)) } else { Lack::Open })
}

#[cfg(test)]
#[path = "split_tests.rs"]
mod tests;

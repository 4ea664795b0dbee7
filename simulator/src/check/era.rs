//! What is known of one partition, from outside. Where an operator accepts a loss, another history begins: with exactly what the
//! copy holds that leads then, at the moment when it begins to. What a side does that was cut off, and goes on in an earlier epoch, is judged by the history
//! before; nothing of it may show in the one after.

use super::by_key::KeyOrigin;
use super::exactly_once::Applied;
use super::merged::merged_in;
use super::{History, Violation};
use crate::host::disk::Stream;
use archon_kv::Effect;
use archon_kv::row::{KIND_VALUE, SEAL_KEY};
use archon_replica::Entry;
use archon_replica::invariants::{Epochs, Ledger};
use archon_types::{ClientId, Epoch, KeyRange, Op, OpId, PartitionId, PlacementId, Seq};
use std::collections::{BTreeMap, BTreeSet};

/// One history of a partition.
#[derive(Debug, Default)]
pub(crate) struct Era {
    /// The first epoch in it.
    from: Epoch,
    /// The history that it is a beginning of, and up to where.
    parent: Option<(usize, Seq)>,
    /// The copy that is to lead first, until it does. It goes on until then as whatever it was: what it holds by then counts.
    awaited: Option<PlacementId>,
    pub(crate) ledger: Ledger,
    /// Somebody outside has heard of everything up to here.
    pub(crate) acknowledged: Seq,
    /// Up to where each copy was compared with the ledger, at which revision of its log.
    pub(super) compared: BTreeMap<PlacementId, (u64, Seq)>,
    pub(super) applied: Applied,
    pub(crate) history: History,
    /// What is added to a position in the log for a revision, since the last merge.
    base: u64,
    /// Keys that are coming from another partition, which has them still.
    coming: Option<KeyRange>,
}

impl Era {
    /// Where the operation of this name took effect.
    pub(crate) fn position_of(&self, client: ClientId, number: u64) -> Option<Seq> {
        self.applied.position_of(client, number)
    }

    /// The revision of what is written at this position.
    pub(super) fn revision(&self, at: Seq) -> Seq {
        Seq::new(at.get() + self.base)
    }

    /// An entry is committed. Gives what of it is the partition's own, and whose operation it is.
    pub(super) fn takes(
        &mut self,
        at: Seq,
        mut effect: Effect,
    ) -> Result<(Effect, Option<(ClientId, u64)>), Violation> {
        let seal = effect.changes.iter().rev().find(|row| row.key == SEAL_KEY).map(|row| row.value.is_some());
        match seal {
            Some(true) => self.coming = effect.clear.clone(),
            Some(false) => self.coming = None,
            None => {}
        }
        if let Some(coming) = &self.coming {
            effect.changes.retain(|row| row.key.first() != Some(&KIND_VALUE) || !coming.contains(&row.key[1..]));
        }
        let revision = self.revision(at);
        let name = self.applied.take(revision, &effect)?;
        self.history.committed(revision, &effect, name.is_some())?;
        self.base = merged_in(&effect).map_or(self.base, |merged| merged.base);
        Ok((effect, name))
    }

    /// What is known of its keys, as it ends.
    pub(super) fn ends_in(&self, keys: &KeyRange) -> (History, Applied) {
        (self.history.until(Seq::new(u64::MAX)).within(keys), self.applied.of_keys(keys))
    }

    /// It has the keys of another partition from here on, and what is known of them.
    pub(super) fn absorb_history(&mut self, history: History, applied: Applied, keys: &KeyRange) {
        self.history.absorb(history, keys);
        self.applied.absorb(applied);
    }

    /// Up to where a disk holds what was committed.
    fn held_by(&self, stream: &Stream) -> Seq {
        let committed = self.ledger.entries();
        let number = |seq: Seq| usize::try_from(seq.get()).unwrap_or(usize::MAX);
        let base = number(stream.base.seq);
        let fits = base == 0 || committed.get(base - 1).is_some_and(|entry| entry.at == stream.base);
        let after = committed.get(base..).filter(|_| fits).unwrap_or_default();
        let same = after.iter().zip(&stream.entries).take_while(|(committed, held)| committed == held).count();
        if fits { Seq::new((base + same) as u64) } else { Seq::ZERO }
    }

    /// The history of a partition that is split off after `kept`.
    pub(super) fn split_off(&self, keys: &KeyRange, kept: Seq) -> Result<Self, Violation> {
        let mut era = Self {
            acknowledged: self.acknowledged.min(kept),
            applied: self.applied.of_keys(keys),
            history: self.history.until(self.revision(kept)).within(keys),
            base: self.base,
            ..Self::default()
        };
        for entry in self.ledger.entries().iter().take_while(|entry| entry.at.seq <= kept) {
            era.ledger.commit(PlacementId::default(), entry)?;
        }
        Ok(era)
    }

    /// The history that goes on after `kept`, from an epoch on.
    fn cut(&self, own: usize, from: Epoch, leader: PlacementId, kept: Seq) -> Result<Self, Violation> {
        let mut era = Self {
            from,
            parent: Some((own, kept)),
            awaited: None,
            ledger: Ledger::default(),
            acknowledged: self.acknowledged.min(kept),
            compared: BTreeMap::new(),
            applied: self.applied.without_effects(),
            history: self.history.until(kept),
            base: self.base,
            coming: self.coming.clone(),
        };
        let is_kept = |entry: &&Entry| entry.at.seq <= kept;
        for entry in self.ledger.entries().iter().take_while(is_kept) {
            era.ledger.commit(leader, entry)?;
            let effect =
                Effect::decode(&entry.bytes).map_err(|error| Violation::Prefix { detail: error.to_string() })?;
            era.applied.take(entry.at.seq, &effect)?;
        }
        Ok(era)
    }
}

/// What is known of one partition, from outside.
#[derive(Debug)]
pub(crate) struct PartitionCheck {
    /// Its histories; only the last one goes on for good.
    eras: Vec<Era>,
    pub(super) epochs: Epochs,
    /// Copies that must never count again.
    pub(super) given_up: BTreeSet<PlacementId>,
    /// Where its keys were before, if it was split off.
    pub(super) key_origin: Option<KeyOrigin>,
    /// Who has its keys, if it has ended, and where it gave them up.
    pub(super) merged_into: Option<(PartitionId, Seq)>,
}

impl Default for PartitionCheck {
    fn default() -> Self {
        Self {
            eras: vec![Era::default()],
            epochs: Epochs::default(),
            given_up: BTreeSet::new(),
            key_origin: None,
            merged_into: None,
        }
    }
}

impl PartitionCheck {
    fn era_of(&self, epoch: Epoch) -> usize {
        self.eras.partition_point(|era| era.from <= epoch).saturating_sub(1)
    }

    /// The history that a leadership of this epoch belongs to.
    pub(crate) fn led_in(&mut self, epoch: Epoch) -> &mut Era {
        let number = self.era_of(epoch);
        &mut self.eras[number]
    }

    /// The history that goes on.
    pub(crate) fn latest(&self) -> &Era {
        &self.eras[self.eras.len() - 1]
    }

    /// It is split off, with this history.
    pub(super) fn begins_as(&mut self, era: Era, key_origin: KeyOrigin) {
        (self.eras, self.key_origin) = (vec![era], Some(key_origin));
    }

    /// The history that goes on, to be looked at by checks.
    pub(super) fn latest_mut(&mut self) -> &mut Era {
        let last = self.eras.len() - 1;
        &mut self.eras[last]
    }

    /// Whether what is done in this epoch is given up.
    pub(crate) fn is_given_up(&self, epoch: Epoch) -> bool {
        self.era_of(epoch) + 1 < self.eras.len()
    }

    /// What an operation that begins now must not fall behind, in each history that has begun.
    pub(crate) fn floors(&self) -> Vec<u64> {
        let begun = self.eras.iter().take_while(|era| era.awaited.is_none());
        begun.map(|era| era.history.floor()).collect()
    }

    /// What an operation that began at `floors` must not fall behind if it is answered in this epoch.
    pub(crate) fn floor(&self, floors: &[u64], epoch: Epoch) -> u64 {
        let (mut number, mut most) = (self.era_of(epoch), u64::MAX);
        while number >= floors.len()
            && let Some((parent, kept)) = self.eras[number].parent
        {
            most = most.min(kept.get());
            number = parent;
        }
        floors.get(number).copied().unwrap_or(0).min(most)
    }

    /// A client sends a write without a number.
    pub(crate) fn sent_unnumbered(&mut self, op: &Op) {
        self.eras.iter_mut().for_each(|era| era.applied.sent_unnumbered(op));
    }

    /// A client sends a write with this number, for the first time or again.
    pub(crate) fn sent_numbered(&mut self, id: OpId, op: &Op) {
        self.eras.iter_mut().for_each(|era| era.applied.sent_numbered(id, op));
    }

    /// All copies but the one that leads must never count again.
    pub(crate) fn give_up(&mut self, copies: impl IntoIterator<Item = PlacementId>, leader: Option<PlacementId>) {
        self.given_up.extend(copies);
        if let Some(leader) = leader {
            self.given_up.remove(&leader);
        }
    }

    /// An operator accepts a loss: from this epoch on counts what the disk of the copy holds that leads, once it does, or
    /// nothing at all. Returns how many acknowledged positions are given up, as it looks now.
    pub(crate) fn accept_loss(
        &mut self,
        from: Epoch,
        leader: Option<(PlacementId, Option<&Stream>)>,
    ) -> Result<u64, Violation> {
        let (copy, disk) = leader.unwrap_or_default();
        let era = self.begin(self.eras.len(), from, (copy, &[disk]), Seq::ZERO)?;
        let (_, kept) = era.parent.unwrap_or_default();
        let given_up = self.latest().acknowledged.get().saturating_sub(kept.get());
        // Until then nothing is demanded of it: it may be told by a leader of before to begin anew, and say so.
        self.eras.push(Era { awaited: leader.map(|(copy, _)| copy), acknowledged: Seq::ZERO, ..era });
        Ok(given_up)
    }

    /// Returns true if the copy was made leader by an operator, and nothing has been done since.
    pub(crate) fn is_awaited(&self, copy: PlacementId) -> bool {
        self.latest().awaited == Some(copy)
    }

    /// The copy with which the history of this epoch begins, if nobody has done anything in it yet.
    pub(crate) fn awaited(&self, epoch: Epoch) -> Option<PlacementId> {
        self.eras[self.era_of(epoch)].awaited
    }

    /// Somebody does something in the history of this epoch for the first time, so the copy that was awaited has begun to lead.
    /// These are the disks of both, and `known` is what is known to be committed: some of that may still be on its way to a
    /// disk, and is not demanded of it yet.
    pub(crate) fn begins(&mut self, epoch: Epoch, disks: [Option<&Stream>; 2], known: Seq) -> Result<(), Violation> {
        let number = self.era_of(epoch);
        let (from, leader) = (self.eras[number].from, self.eras[number].awaited.unwrap_or_default());
        self.eras[number] = self.begin(number, from, (leader, &disks), known)?;
        Ok(())
    }

    /// What goes on of the histories before this one.
    fn begin(
        &self,
        number: usize,
        from: Epoch,
        (leader, disks): (PlacementId, &[Option<&Stream>]),
        known: Seq,
    ) -> Result<Era, Violation> {
        let held = |era: &Era| disks.iter().flatten().map(|disk| era.held_by(disk)).max().unwrap_or_default();
        // A copy that was given up before may hold more of an earlier history than of the last one.
        let best = (0..number).max_by_key(|number| (held(&self.eras[*number]), *number)).unwrap_or(0);
        let held = held(&self.eras[best]);
        let kept = held.max(known.min(self.eras[best].ledger.last()));
        let era = self.eras[best].cut(best, from, leader, kept)?;
        Ok(Era { acknowledged: era.acknowledged.min(held), ..era })
    }
}

#[cfg(test)]
#[path = "era_tests.rs"]
mod tests;

//! External knowledge of one partition. An operator who accepts a loss starts another history, with exactly the data of
//! the copy that leads then, at the begin of its leadership. A cut-off side that continues in an earlier epoch is
//! judged by the earlier history; none of its later effects may show in the new one.

use super::History;
use super::exactly_once::EffectPositions;
use crate::check::exactly_once::merged_in;
use crate::check::operations::KeyOrigin;
use crate::check::violation::Violation;
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
    /// Its first epoch.
    from: Epoch,
    /// The parent history, and the length of the shared prefix.
    parent: Option<(usize, Seq)>,
    /// The copy that must lead first, until it does. Until then it continues in its former role, and its data at that
    /// moment counts.
    awaited: Option<PlacementId>,
    pub(crate) ledger: Ledger,
    /// Everything up to here was acknowledged to a client.
    pub(crate) acknowledged: Seq,
    /// Position up to which each copy was compared with the ledger, and the revision of its log at that time.
    pub(super) compared: BTreeMap<PlacementId, (u64, Seq)>,
    pub(super) applied: EffectPositions,
    pub(crate) history: History,
    /// Offset from log position to revision, since the last merge.
    base: u64,
    /// Keys that are being moved from another partition, which still has them.
    coming: Option<KeyRange>,
}

impl Era {
    /// Returns where the operation of this id took effect.
    pub(crate) fn position_of(&self, client: ClientId, number: u64) -> Option<Seq> {
        self.applied.position_of(client, number)
    }

    /// Returns the revision of a write at this position.
    pub(super) fn revision(&self, at: Seq) -> Seq {
        Seq::new(at.get() + self.base)
    }

    /// Takes a committed entry. Returns its effect on the partition's own rows, and the operation id.
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
        let name = self.applied.take(revision, &effect, |key| self.history.has_expired(key, effect.at))?;
        self.history.committed(revision, &effect, name.is_some())?;
        self.base = merged_in(&effect).map_or(self.base, |merged| merged.base);
        Ok((effect, name))
    }

    /// Returns the knowledge of keys that were given up at `sealed`. Nothing is read after that, so the log time of later
    /// entries ends no value.
    pub(super) fn ends_in(&self, keys: &KeyRange, sealed: Seq) -> (History, EffectPositions) {
        (self.history.until(self.revision(sealed)).within(keys), self.applied.of_keys(keys))
    }

    /// Adds the keys of another partition and their history.
    pub(super) fn absorb_history(&mut self, history: History, applied: EffectPositions, keys: &KeyRange) {
        self.history.absorb(history, keys);
        // The log time may have reached their expiries before they came.
        self.history.expire(self.revision(self.ledger.last()));
        self.applied.absorb(applied);
    }

    /// Returns the position up to which a disk contains the committed entries.
    fn held_by(&self, stream: &Stream) -> Seq {
        let committed = self.ledger.entries();
        let number = |seq: Seq| usize::try_from(seq.get()).unwrap_or(usize::MAX);
        let base = number(stream.base.seq);
        let fits = base == 0 || committed.get(base - 1).is_some_and(|entry| entry.at == stream.base);
        let after = committed.get(base..).filter(|_| fits).unwrap_or_default();
        let same = after.iter().zip(&stream.entries).take_while(|(committed, held)| committed == held).count();
        if fits { Seq::new((base + same) as u64) } else { Seq::ZERO }
    }

    /// Returns the history of a partition that is split off after `kept`.
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

    /// Returns the history that continues after `kept`, from an epoch on.
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
        let mut replayed = History::default();
        for entry in self.ledger.entries().iter().take_while(is_kept) {
            era.ledger.commit(leader, entry)?;
            let effect =
                Effect::decode(&entry.bytes).map_err(|error| Violation::Prefix { detail: error.to_string() })?;
            let name = era.applied.take(entry.at.seq, &effect, |key| replayed.has_expired(key, effect.at))?;
            replayed.committed(entry.at.seq, &effect, name.is_some())?;
        }
        Ok(era)
    }
}

/// External knowledge of one partition.
#[derive(Debug)]
pub(crate) struct PartitionCheck {
    /// Its histories; only the last one continues permanently.
    eras: Vec<Era>,
    pub(super) epochs: Epochs,
    /// Copies that must never be in sync again.
    pub(super) given_up: BTreeSet<PlacementId>,
    /// Former partition of its keys, if it was split off.
    pub(super) key_origin: Option<KeyOrigin>,
    /// New partition of its keys, if it has ended, and the position of its seal.
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

    /// Returns the history of a leadership in this epoch.
    pub(crate) fn led_in(&mut self, epoch: Epoch) -> &mut Era {
        let number = self.era_of(epoch);
        &mut self.eras[number]
    }

    /// Returns the current history.
    pub(crate) fn latest(&self) -> &Era {
        &self.eras[self.eras.len() - 1]
    }

    /// Starts a split-off partition with this history.
    pub(super) fn begins_as(&mut self, era: Era, key_origin: KeyOrigin) {
        (self.eras, self.key_origin) = (vec![era], Some(key_origin));
    }

    /// Returns the current history, for checks.
    pub(super) fn latest_mut(&mut self) -> &mut Era {
        let last = self.eras.len() - 1;
        &mut self.eras[last]
    }

    /// Returns true if writes of this epoch are discarded.
    pub(crate) fn is_given_up(&self, epoch: Epoch) -> bool {
        self.era_of(epoch) + 1 < self.eras.len()
    }

    /// Returns the minimum positions of an operation that begins now, one per history.
    pub(crate) fn floors(&self) -> Vec<u64> {
        let begun = self.eras.iter().take_while(|era| era.awaited.is_none());
        begun.map(|era| era.history.floor()).collect()
    }

    /// Returns the minimum position of an operation that began at `floors` and is answered in this epoch.
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

    /// Records a client's write without an id.
    pub(crate) fn sent_unnumbered(&mut self, op: &Op) {
        self.eras.iter_mut().for_each(|era| era.applied.sent_unnumbered(op));
    }

    /// Records a client's write with this id, first or repeated.
    pub(crate) fn sent_numbered(&mut self, id: OpId, op: &Op) {
        self.eras.iter_mut().for_each(|era| era.applied.sent_numbered(id, op));
    }

    /// Marks all copies except the leader as permanently out of sync.
    pub(crate) fn give_up(&mut self, copies: impl IntoIterator<Item = PlacementId>, leader: Option<PlacementId>) {
        self.given_up.extend(copies);
        if let Some(leader) = leader {
            self.given_up.remove(&leader);
        }
    }

    /// Records an accepted loss: from this epoch on, the data on the disk of the copy that leads counts, once it leads,
    /// or nothing at all. Returns the number of acknowledged positions discarded, as known now.
    pub(crate) fn accept_loss(
        &mut self,
        from: Epoch,
        leader: Option<(PlacementId, Option<&Stream>)>,
    ) -> Result<u64, Violation> {
        let (copy, disk) = leader.unwrap_or_default();
        let era = self.begin(self.eras.len(), from, (copy, &[disk]), Seq::ZERO)?;
        let (_, kept) = era.parent.unwrap_or_default();
        let given_up = self.latest().acknowledged.get().saturating_sub(kept.get());
        // Until then nothing is required of it: a former leader may have it start over, and it may report so.
        self.eras.push(Era { awaited: leader.map(|(copy, _)| copy), acknowledged: Seq::ZERO, ..era });
        Ok(given_up)
    }

    /// Returns true if the copy was made leader by an operator, and nothing has been done since.
    pub(crate) fn is_awaited(&self, copy: PlacementId) -> bool {
        self.latest().awaited == Some(copy)
    }

    /// Returns the copy that starts the history of this epoch, if that history has no events yet.
    pub(crate) fn awaited(&self, epoch: Epoch) -> Option<PlacementId> {
        self.eras[self.era_of(epoch)].awaited
    }

    /// Starts the history of this epoch at its first event: the awaited copy has begun to lead. `disks` are those of
    /// the awaited copy and of the copy that acts. `known` is the committed position; entries up to it may still be in
    /// flight to a disk, and are not required of it yet.
    pub(crate) fn begins(&mut self, epoch: Epoch, disks: [Option<&Stream>; 2], known: Seq) -> Result<(), Violation> {
        let number = self.era_of(epoch);
        let (from, leader) = (self.eras[number].from, self.eras[number].awaited.unwrap_or_default());
        self.eras[number] = self.begin(number, from, (leader, &disks), known)?;
        Ok(())
    }

    /// Returns the new history, with the prefix that it shares with an earlier one.
    fn begin(
        &self,
        number: usize,
        from: Epoch,
        (leader, disks): (PlacementId, &[Option<&Stream>]),
        known: Seq,
    ) -> Result<Era, Violation> {
        let held = |era: &Era| disks.iter().flatten().map(|disk| era.held_by(disk)).max().unwrap_or_default();
        // A copy that was discarded before may share more with an earlier history than with the last one.
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

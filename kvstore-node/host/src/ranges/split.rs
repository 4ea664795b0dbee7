//! Split seals: keys that a leader's log gives away. `split_off` forms the copy of the new partition.
//!
//! The row states the goal, the log the fact. A leader makes its log agree with the newest row it knows: it seals the
//! keys when the row moves them away, lifts the seal when a newer row has cancelled the split, and clears the keys when
//! they belong to another partition (PROTOCOL rules 35 to 41).

use crate::copies::local_copy::LocalCopy;
use crate::mutant::Mutant;
use crate::operations::refusal::Refusal;
use crate::operations::request::{Request, WaitsFor};
use crate::partitions::Partitions;
use crate::shell::{CopyEvent, Shell};
use crate::turn::Turn;
use archon_kv::{MergeRecord, PartitionView, Reader, Seal, ViewError, reshape};
use archon_replica::Position;
use archon_types::{KeyRange, Partition, PlacementId};
use bytes::Bytes;

impl<S: Shell> Partitions<S> {
    /// Advances partitions that are being split or merged. There are few of them, and mostly none.
    pub(crate) fn split(&mut self) {
        for placement in self.turn.splitting.clone() {
            let taken = self.copies.get(&placement).and_then(|local| self.turn.own_copy(local));
            let taken = taken.is_some_and(|wanted| self.is_taken(wanted.copy.id));
            let Some(local) = self.copies.get_mut(&placement) else {
                self.turn.splitting.remove(&placement);
                continue;
            };
            self.turn.agree(local);
            self.turn.absorb(local);
            let held = |copy| {
                let dormant = self.dormant.get(&copy).map(|found| found.partition);
                dormant.or_else(|| self.unreadable.get(copy).map(|unreadable| unreadable.partition))
            };
            self.turn.form_own(local, taken, held);
            if local.split.is_idle() && local.row().is_none_or(|row| !row.is_reshaped()) {
                self.turn.splitting.remove(&placement);
            }
        }
    }

    /// Returns whether this node has the copy already; its rows must not be overwritten because of an old row.
    pub(crate) fn is_taken(&self, copy: PlacementId) -> bool {
        self.copies.contains_key(&copy) || self.unloading.contains_key(&copy)
    }
}

impl<S: Shell> Turn<S> {
    /// Reads the seal and the merge record in the log when a leader begins to serve.
    pub(crate) fn read_seal(&mut self, local: &mut LocalCopy<S>) -> Result<(), ViewError> {
        let view = PartitionView::new(&local.memtable, self.shell.engine(), local.placement, Reader::Newest);
        let (seal, merged) = (Seal::current(&view)?, MergeRecord::current(&view)?);
        local.absorb.serve(merged);
        let is_kept = !self.broken.breaks(Mutant::SealForgotten); // rule 35
        if is_kept {
            if seal.is_some() {
                self.splitting.insert(local.placement);
            }
            local.split.seal = seal;
        }
        Ok(())
    }

    /// Records the split in a new row.
    pub(crate) fn note_split(&mut self, local: &mut LocalCopy<S>, row: &Partition) {
        local.split.told = self.shell.life().map(|life| life.incarnation);
        if row.is_reshaped() {
            self.splitting.insert(local.placement);
        }
    }

    /// Parks an operation on a key that the log has sealed and the row has not moved yet.
    pub(crate) fn wait_for_split(
        &mut self,
        local: &mut LocalCopy<S>,
        request: Request<S::Reply>,
    ) -> Option<Request<S::Reply>> {
        // Keys being merged in are still beyond the row: clients must not be redirected away from them.
        let is_sealed = |key: &Bytes| local.split.seals(key) && (!local.is_beyond(key) || local.is_absorbing());
        let sealed = match request.op.key() {
            Some(_) => request.op.any_key(is_sealed),
            None => local.is_yielding(),
        };
        // Keys of a cancelled split belong to no other partition: only the entry is missing, which a full disk may
        // delay.
        let opens = || local.row().zip(local.split.seal.as_ref()).is_some_and(|(row, seal)| is_given_up(row, seal));
        let beyond = request.op.any_key(|key| local.is_beyond(key));
        let broken = || self.broken.breaks(Mutant::ReadsWhileSealed); // rule 35
        let reads = request.op.is_read() && (broken() || (!beyond && opens()));
        if !sealed || reads || self.broken.breaks(Mutant::MovedBeforePart) {
            return Some(request);
        }
        if self.is_let_in(local, &request) || self.is_sealed_too_late(local, &request) {
            return Some(request);
        }
        let request = self.park_for(local, request, self.park_limits.settle_ms, WaitsFor::Reshaping)?;
        if self.broken.breaks(Mutant::SealGivenUp) {
            return Some(request); // rule 36
        }
        let log_time = local.waiting.log_time();
        self.turn_away(request, log_time, Refusal::Changing);
        None
    }

    /// Returns whether a test serves an operation on keys that the copy no longer has, or not yet: a read that arrived
    /// when it had them (rule 35), or any operation once they are merged in (rule 48).
    pub(crate) fn is_let_in(&self, local: &LocalCopy<S>, request: &Request<S::Reply>) -> bool {
        let begun = self.broken.breaks(Mutant::ReadNotRechecked) && request.confirmed.is_some();
        begun || (self.broken.breaks(Mutant::WidenUnabsorbed) && local.has_all_it_absorbs())
    }

    /// Returns whether a test lets writes continue until the seal is committed (rule 35).
    fn is_sealed_too_late(&self, local: &LocalCopy<S>, request: &Request<S::Reply>) -> bool {
        let open = |seal: &Seal| seal.position.seq > local.replica.commit();
        let late = self.broken.breaks(Mutant::SealAtCommit) && local.split.seal.as_ref().is_some_and(open);
        late && !request.op.is_read()
    }

    /// Makes the log of a leader agree with its row.
    fn agree(&mut self, local: &mut LocalCopy<S>) {
        if !local.serving || local.set_aside || self.room(local).is_err() || !self.leadership(local).holds() {
            return;
        }
        let (Some(row), Some(position)) = (local.row(), local.replica.next_position()) else { return };
        let seal = local.split.seal.as_ref();
        let early = self.broken.breaks(Mutant::ClearEarly) && local.split.is_ending(); // rule 41
        let lacks = match early {
            true => seal.map(|seal| LogDifference::Clear(seal.range())),
            false => lack(row, seal, position),
        };
        let Some(lacks) = lacks else { return };
        let absorbs = match &lacks {
            LogDifference::Absorb(seal) => Some(seal.attempt),
            _ => None,
        };
        let version = row.version;
        let at = local.log_time.stamp(self.shell.wall());
        let (effect, seal) = match lacks {
            LogDifference::Seal(seal) => (reshape::split(at, &seal), Some(seal)),
            LogDifference::Absorb(seal) => (self.absorbing(at, &seal), Some(seal)),
            LogDifference::Open => (reshape::open(at), None),
            // rule 46
            LogDifference::Clear(_) if self.broken.breaks(Mutant::AbsorbOverRemains) => (reshape::open(at), None),
            LogDifference::Clear(range) => (reshape::clear(at, range, version), None),
        };
        if self.note(local, effect).is_ok() {
            self.shell.forget_rows(&mut local.own);
            self.note_pause(local, seal.is_some());
            if let Some(attempt) = absorbs {
                local.absorb.begin(attempt);
            }
            local.split.seal = seal;
            self.unpark(local);
        }
    }

    /// Records the start or end of a seal, for metrics.
    fn note_pause(&mut self, local: &mut LocalCopy<S>, sealed: bool) {
        let since = std::mem::replace(&mut local.split.sealed_since, sealed.then_some(self.now));
        if let Some(since) = since {
            self.shell.observe(local.at(), CopyEvent::Unsealed { sealed_ms: self.now.since(since) });
        }
    }
}

/// Difference between a leader's log and its row.
enum LogDifference {
    /// The keys have to be sealed.
    Seal(Seal),
    /// The split or merge was cancelled.
    Open,
    /// The keys belong to another partition.
    Clear(KeyRange),
    /// The keys come from another partition.
    Absorb(Seal),
}

/// Returns the entry that a leader's log lacks; the whole log has `seal` and continues at `position`.
fn lack(row: &Partition, seal: Option<&Seal>, position: Position) -> Option<LogDifference> {
    let split = row.split.as_deref();
    let Some(seal) = seal else {
        let seal = |attempt, keys: KeyRange| Seal { attempt, at: keys.begin, end: keys.end, position };
        if let Some(split) = split {
            return split.cut.then(|| LogDifference::Seal(seal(split.attempt, split.right_range(&row.range))));
        }
        let attempt = row.merge.as_ref()?.attempt;
        return Some(match row.absorbed_range() {
            Some(keys) => LogDifference::Absorb(seal(attempt, keys)),
            None => LogDifference::Seal(seal(attempt, row.range.clone())),
        });
    };
    if !is_over(row, seal) {
        return None;
    }
    Some(if is_given_up(row, seal) { LogDifference::Open } else { LogDifference::Clear(seal.range()) })
}

/// Returns whether the row has ended the attempt that sealed keys. A row no newer than the attempt does not decide
/// this.
fn is_over(row: &Partition, seal: &Seal) -> bool {
    let split = row.split.as_deref().map(|split| split.attempt);
    let merge = row.merge.as_deref().map(|merge| merge.attempt);
    split.or(merge) != Some(seal.attempt) && row.version > seal.attempt
}

/// Returns whether the row has cancelled the attempt.
fn is_given_up(row: &Partition, seal: &Seal) -> bool {
    is_over(row, seal) && row.range.end.as_ref() != Some(&seal.at)
}

#[cfg(test)]
#[path = "split_tests.rs"]
pub(crate) mod tests;

#[cfg(test)]
#[path = "sealed_tests.rs"]
mod sealed_tests;

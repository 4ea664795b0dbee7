//! Keys that change partitions: the checks of a key continue in its new partition. A partition that is split off
//! inherits the history of its parent up to the cut, restricted to its keys; afterwards the parent must not write those
//! keys, and an operation that took effect in one partition must not take effect in the other.

use super::PartitionCheck;
use crate::check::checks::Checks;
use crate::check::key_move::KeyMove;
use crate::check::operations::{KeyOrigin, Operations};
use crate::check::violation::Violation;
use crate::client::calls::Operation;
use archon_coordinator_core::ClusterState;
use archon_kv::Effect;
use archon_kv::row::{KIND_VALUE, SEAL_KEY};
use archon_replica::Position;
use archon_types::{ClientId, KeyRange, NodeStatus, OpId, PartitionId, Seq};
use std::collections::BTreeSet;

impl Checks {
    /// Records the operation that a client sends under an id.
    pub(crate) fn sent_as(&mut self, partition: PartitionId, id: OpId, operation: Operation) {
        self.operations.named.insert((partition, id.client, id.number), operation);
    }

    /// X: records that the operation of this id took effect in this partition, and checks that it did in no other.
    pub(super) fn done_once(&mut self, partition: PartitionId, client: ClientId, number: u64) -> Result<(), Violation> {
        let Operations { named, done } = &mut self.operations;
        let Some(operation) = named.get(&(partition, client, number)) else { return Ok(()) };
        let name = (partition, client, number);
        match done.insert(*operation, name).filter(|before| *before != name) {
            Some((before, ..)) => {
                let detail = format!("{operation:?} took effect in {before} and again in {partition}");
                Err(Violation::Twice { detail })
            }
            None => Ok(()),
        }
    }

    /// Returns the current partition of a key that this partition once had.
    pub(crate) fn owner_of(&self, partition: PartitionId, key: &[u8]) -> PartitionId {
        let mut owner = partition;
        // A key may return to a former partition, and move on from there.
        let mut gone_on = BTreeSet::from([partition]);
        loop {
            let took = |key_origin: &KeyOrigin| key_origin.of == owner && key_origin.keys.contains(key);
            let took = |known: &PartitionCheck| known.key_origin.as_ref().is_some_and(took);
            let next = self.partitions.iter().find(|(next, known)| took(known) && !gone_on.contains(*next));
            let merged = || self.partitions.get(&owner).and_then(|known| known.merged_into).map(|(left, _)| left);
            let Some(next) = next.map(|(next, _)| *next).or_else(merged) else { return owner };
            gone_on.insert(next);
            owner = next;
        }
    }

    /// Records the splits that a command completed or abandoned.
    pub(crate) fn note_splits(&mut self, before: &ClusterState, after: &ClusterState) -> Result<(), Violation> {
        for (node, copy, _) in after.condemned.iter().filter(|(node, copy, _)| !before.condemned.contains(*node, *copy))
        {
            let status = before.node(node).map(|node| node.node.status);
            self.condemned.entry(copy).or_insert(status != Some(NodeStatus::Alive));
        }
        for left in before.partitions.iter() {
            let Some(split) = &left.split else { continue };
            let right = split.right_of(left.id);
            let Some(row) = after.partitions.get(right) else { continue };
            if row.epoch <= left.epoch {
                let detail = format!("{right} begins in epoch {}, its keys were led in {}", row.epoch, left.epoch);
                return Err(Violation::State { detail });
            }
            let Some(position) = split.position else {
                let detail = format!("{right} is split off {} and nobody knows where its log begins", left.id);
                return Err(Violation::Prefix { detail });
            };
            self.part(left.id, right, position, split.right_range(&left.range))?;
        }
        Ok(())
    }

    /// P and L: checks that the keys of the other partition are sealed at `position`, permanently.
    pub(super) fn part(
        &mut self,
        left: PartitionId,
        right: PartitionId,
        position: Position,
        keys: KeyRange,
    ) -> Result<(), Violation> {
        let known = self.of(left).latest();
        let number = usize::try_from(position.seq.get()).unwrap_or(usize::MAX);
        let seal = number.checked_sub(1).and_then(|number| known.ledger.entries().get(number));
        let seal = seal.filter(|entry| entry.at == position).and_then(|entry| Effect::decode(&entry.bytes).ok());
        let sealed = |effect: &Effect| effect.changes.iter().any(|row| row.key == SEAL_KEY && row.value.is_some());
        if !seal.is_some_and(|effect| sealed(&effect)) {
            let detail = format!("{right} begins at {position:?}, where the log of {left} does not give its keys up");
            return Err(Violation::Prefix { detail });
        }
        for entry in known.ledger.entries().iter().skip(number) {
            let Ok(effect) = Effect::decode(&entry.bytes) else { continue };
            keeps_off(left, &keys, entry.at.seq, &effect)?;
        }
        let era = known.split_off(&keys, position.seq)?;
        let revision = known.revision(position.seq).get();
        self.key_moves.push(KeyMove { from: left, to: right, keys: keys.clone(), sealed: Some(revision) });
        let key_origin = KeyOrigin { of: left, at: position.seq, until: None, keys };
        self.of(right).begins_as(era, key_origin);
        Ok(())
    }

    /// L: checks that a committed entry does not concern keys that the partition gave up before.
    pub(super) fn keeps_off_what_it_gave_up(
        &self,
        partition: PartitionId,
        at: Seq,
        effect: &Effect,
    ) -> Result<(), Violation> {
        let key_origin = self.partitions.values().filter_map(|known| known.key_origin.as_ref());
        let gave_up = |key_origin: &&KeyOrigin| {
            key_origin.of == partition && key_origin.at < at && key_origin.until.is_none_or(|until| at <= until)
        };
        key_origin.filter(gave_up).try_for_each(|key_origin| keeps_off(partition, &key_origin.keys, at, effect))
    }
}

fn keeps_off(partition: PartitionId, keys: &KeyRange, at: Seq, effect: &Effect) -> Result<(), Violation> {
    let values = effect.changes.iter().filter(|row| row.key.first() == Some(&KIND_VALUE));
    match values.map(|row| row.key.slice(1..)).find(|key| keys.contains(key)) {
        Some(key) => {
            let detail = format!("{partition} writes {key:?} at {at}, which it has given up");
            Err(Violation::NotLinearizable { detail })
        }
        None => Ok(()),
    }
}

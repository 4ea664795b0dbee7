//! Merge sources that ended: the left neighbour has exactly their rows, and their history continues there.

use crate::check::checks::Checks;
use crate::check::exactly_once::merged_in;
use crate::check::key_move::KeyMove;
use crate::check::violation::Violation;
use archon_coordinator_core::ClusterState;
use archon_kv::row::{KIND_VALUE, SEAL_KEY, decode_value};
use archon_kv::{Effect, Seal};
use archon_replica::Entry;
use archon_types::{KeyRange, PartitionId, Revision, Seq, Version};
use bytes::Bytes;
use std::collections::BTreeMap;

/// User keys, each with value and revision.
type Values = BTreeMap<Bytes, (Bytes, Revision)>;

impl Checks {
    /// Records the merges that a command of the log completed.
    pub(crate) fn note_merges(&mut self, before: &ClusterState, after: &ClusterState) -> Result<(), Violation> {
        let there = |table| after.tables.contains_key(&table);
        for row in before.partitions.merging().filter(|row| there(row.id.table)) {
            let Some((merge, right)) = row.absorbs() else { continue };
            let Some(range) = row.absorbed_range().filter(|_| after.partitions.get(right).is_none()) else { continue };
            self.merge(row.id, right, merge.attempt, &range)?;
        }
        Ok(())
    }

    /// Moves right's rows to left: prefixes, linearizability and exactly-once (P, L and X of docs/design/simulation.md) are
    /// checked against the joined history.
    pub(super) fn merge(
        &mut self,
        left: PartitionId,
        right: PartitionId,
        attempt: Version,
        range: &KeyRange,
    ) -> Result<(), Violation> {
        let given = self.of(right).latest();
        let Some(sealed) = sealed_at(given.ledger.entries(), attempt) else {
            let detail = format!("{right} ends in {left}, and its log does not give its keys up in attempt {attempt}");
            return Err(Violation::Prefix { detail });
        };
        let had = values(given.ledger.entries(), range)?;
        let (history, applied) = given.ends_in(range, sealed);
        let taken = self.of(left).latest();
        if !absorbed(taken.ledger.entries(), attempt) {
            let detail = format!("{left} has the keys of {right}, and its log does not say that it absorbed them");
            return Err(Violation::Prefix { detail });
        }
        let has = values(taken.ledger.entries(), range)?;
        if had != has {
            let detail = format!("{right} had {had:?}, and {left} has {has:?}");
            return Err(Violation::Prefix { detail });
        }
        let known = self.of(left).latest_mut();
        known.absorb_history(history, applied, range);
        let last = known.ledger.last();
        self.of(right).merged_into = Some((left, sealed));
        self.key_moves.push(KeyMove { from: right, to: left, keys: range.clone(), sealed: None });
        // Keys that left gave up in an earlier split and has again: it may write them again.
        for known in self.partitions.values_mut() {
            let back =
                known.key_origin.as_mut().filter(|key_origin| key_origin.of == left && key_origin.keys.overlaps(range));
            if let Some(key_origin) = back {
                key_origin.until = Some(last);
            }
        }
        if self.damage.reached(right) {
            self.damage.reaches(left);
        }
        Ok(())
    }

    /// L: checks that a partition writes no user rows after its end.
    pub(super) fn writes_nothing_after_its_end(&self, partition: PartitionId, entry: &Entry) -> Result<(), Violation> {
        let ended = self.partitions.get(&partition).and_then(|known| known.merged_into);
        let Some((left, _)) = ended.filter(|(_, sealed)| entry.at.seq > *sealed) else { return Ok(()) };
        let Ok(effect) = Effect::decode(&entry.bytes) else { return Ok(()) };
        if effect.changes.iter().any(|row| row.key.first() == Some(&KIND_VALUE)) {
            let detail = format!("{partition} writes at {}, and its keys are {left}'s", entry.at.seq);
            return Err(Violation::NotLinearizable { detail });
        }
        Ok(())
    }
}

/// Returns where the log permanently gives all keys up in this attempt.
fn sealed_at(log: &[Entry], attempt: Version) -> Option<Seq> {
    let mut standing = None;
    for entry in log {
        let Ok(effect) = Effect::decode(&entry.bytes) else { continue };
        for row in effect.changes.iter().filter(|row| row.key == SEAL_KEY) {
            let seal = row.value.as_ref().and_then(|row| Seal::decode(row).ok());
            standing = seal.filter(|seal| seal.attempt == attempt).map(|_| entry.at.seq);
        }
    }
    standing
}

fn absorbed(log: &[Entry], attempt: Version) -> bool {
    let mut merged = log.iter().rev().filter_map(|entry| Effect::decode(&entry.bytes).ok());
    merged.find_map(|effect| merged_in(&effect)).is_some_and(|merged| merged.attempt == attempt)
}

/// Returns the rows of these keys after a log.
fn values(log: &[Entry], range: &KeyRange) -> Result<Values, Violation> {
    let mut values = Values::new();
    for entry in log {
        let Ok(effect) = Effect::decode(&entry.bytes) else { continue };
        values.retain(|key, _| !effect.clear.as_ref().is_some_and(|cleared| cleared.contains(key)));
        for row in effect.changes.iter().filter(|row| row.key.first() == Some(&KIND_VALUE)) {
            let key = row.key.slice(1..);
            match &row.value {
                None => drop(values.remove(&key)),
                Some(row) if range.contains(&key) => {
                    let value = decode_value(row);
                    let value = value.map_err(|error| Violation::Prefix { detail: error.to_string() })?;
                    values.insert(key, value);
                }
                Some(_) => {}
            }
        }
    }
    Ok(values)
}

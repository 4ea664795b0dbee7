//! Routing of keys in a table by ranges: a client goes by its own table, which may be out of date. A read follows its
//! key at every attempt; a write keeps its id and its partition until that partition reports that the key has moved
//! (rule 43).

use crate::client::calls::Ranges;
use crate::client::keys::{DrawnOperation, value_of};
use crate::client::{calls, keys};
use crate::mutant::ShellMutant;
use crate::ranges::splits;
use crate::scenario::Theme;
use crate::world::World;
use archon_types::{KeyRange, Op, PartitionId, Revision, ScanOrder};
use bytes::Bytes;

impl World {
    /// Updates a client's view of the table of this partition; no effect for hashed tables.
    fn refresh(&mut self, client: usize, partition: PartitionId) {
        let state = &self.quorum.state;
        if !state.is_range(partition.table) {
            return;
        }
        let rows = state.partitions.of_table(partition.table);
        let mut ranges: Ranges = rows.map(|row| (row.range.begin.clone(), row.id)).collect();
        ranges.sort_unstable();
        self.clients[client].ranges.insert(partition.table, ranges);
    }

    /// As [`Self::refresh`], in most cases: updates take time to spread.
    fn hear_of_splits(&mut self, client: usize, partition: PartitionId) {
        if self.healing || self.splits.below(3) > 0 {
            self.refresh(client, partition);
        }
    }

    /// Returns the partition of a key in this partition's table, in a client's view.
    fn partition_of(&self, client: usize, partition: PartitionId, key: &[u8]) -> PartitionId {
        let ranges = self.clients[client].ranges.get(&partition.table);
        let found = ranges.and_then(|ranges| ranges.iter().rev().find(|(begin, _)| &begin[..] <= key));
        found.map_or(partition, |(_, found)| *found)
    }

    /// Draws an operation on a key of this partition, and the partition that the client asks. `None` for hashed tables.
    pub(super) fn draw_in_range(
        &mut self,
        client: usize,
        partition: PartitionId,
        number: u64,
    ) -> Option<DrawnOperation> {
        // Tables stay out of date longer in worlds in which keys come back soon.
        let every = if self.plan.returns_keys { 12 } else { 4 };
        if self.healing || self.splits.below(every) == 0 || !self.clients[client].ranges.contains_key(&partition.table)
        {
            self.refresh(client, partition);
        }
        self.clients[client].ranges.get(&partition.table)?;
        let range = self.quorum.state.partitions.get(partition).map(|row| row.range.clone()).unwrap_or(KeyRange::ALL);
        let keys: Vec<Bytes> = splits::keys(self.plan.range_keys).filter(|key| range.contains(key)).collect();
        let key = match keys.is_empty() {
            // None is in use, so the lowest is drawn.
            true => range.begin,
            false => keys[self.splits.index(keys.len())].clone(),
        };
        let asked = self.partition_of(client, partition, &key);
        Some((asked, self.draw_op_on(client, asked, key, number)))
    }

    fn draw_op_on(&mut self, client: usize, partition: PartitionId, key: Bytes, number: u64) -> Op {
        let counted = keys::is_counted(&key);
        match self.splits.below(24) {
            0..=8 if counted => Op::Increment { key, by: 1 },
            0..=5 => Op::Put { key, value: value_of(client, number) },
            6..=8 => {
                let seen = self.clients[client].seen.get(&calls::seen_at(partition, &key)).copied();
                Op::CompareAndSet { key, expected: seen.unwrap_or(Revision::ZERO), value: value_of(client, number) }
            }
            9 | 10 => Op::Delete { key },
            11..=13 => {
                let prefix = self.splits.pick(&["", "", "k", "k1", "k5"]).unwrap_or_default();
                let after = self.splits.pick(&["", "", "k0", "k4"]).unwrap_or_default();
                let limit = self.splits.pick(&[0, 1, 2, 10]).unwrap_or(0);
                let order = if self.splits.below(3) == 0 { ScanOrder::Descending } else { ScanOrder::Ascending };
                let keys = KeyRange::of_prefix(Bytes::from_static(prefix.as_bytes())).after(after.as_bytes());
                Op::Scan { keys, order, limit }
            }
            _ => Op::Get { key },
        }
    }

    /// Reroutes a read before another attempt to its key's partition in the client's view.
    pub(super) fn follow_key(&mut self, client: usize, worker: usize) {
        let Some(call) = &self.clients[client].workers[worker] else { return };
        let unasked = !call.op.is_read() && self.breaks(ShellMutant::RenameUnasked); // rule 43
        let Some(key) = call.op.key().filter(|_| call.op.is_read() || unasked).cloned() else { return };
        if !self.clients[client].ranges.contains_key(&call.partition.table) {
            return;
        }
        let partition = call.partition;
        self.hear_of_splits(client, partition);
        let now = self.partition_of(client, partition, &key);
        if unasked {
            return self.begin_where_the_key_is(client, worker);
        }
        if let Some(call) = &mut self.clients[client].workers[worker] {
            call.partition = now;
        }
    }

    /// Restarts a write before another attempt at its key's new partition, if the old one has ended and no attempt is
    /// open, since an open attempt has an unknown outcome (rule 51). Returns whether the operation continues.
    pub(super) fn goes_on_after_merge(&mut self, client: usize, worker: usize) -> bool {
        let Some(call) = &self.clients[client].workers[worker] else { return false };
        let (partition, writes) = (call.partition, !call.op.is_read());
        if self.plan.theme != Theme::Merges || !writes {
            return true;
        }
        if self.healing || self.merges.below(3) > 0 {
            self.refresh(client, partition);
        }
        let ranges = self.clients[client].ranges.get(&partition.table);
        if ranges.is_none_or(|ranges| ranges.iter().any(|(_, of)| *of == partition)) {
            return true;
        }
        let renames = self.breaks(ShellMutant::RenameAfterMerge);
        let open = self.clients[client].workers[worker].as_ref().is_some_and(|call| !call.open.is_empty());
        if open && !renames {
            self.coverage.open_after_merge += 1;
            self.end_call(client, worker);
            return false;
        }
        self.coverage.renamed_after_merge += 1;
        self.begin_where_the_key_is(client, worker);
        true
    }

    /// Handles a partition's answer that the key has moved and nothing was or will be done: once the client knows the
    /// new owner, it restarts there, under another id.
    pub(super) fn begin_elsewhere(&mut self, client: usize, worker: usize) {
        let Some(call) = &self.clients[client].workers[worker] else { return };
        let (partition, Some(key)) = (call.partition, call.op.key().cloned()) else { return };
        self.coverage.moved += 1;
        self.hear_of_splits(client, partition);
        if self.partition_of(client, partition, &key) != partition {
            self.begin_where_the_key_is(client, worker);
        }
    }

    fn begin_where_the_key_is(&mut self, client: usize, worker: usize) {
        let Some(call) = &self.clients[client].workers[worker] else { return };
        let (partition, Some(key)) = (call.partition, call.op.key().cloned()) else { return };
        let now = self.partition_of(client, partition, &key);
        if now == partition {
            return;
        }
        let own = &mut self.clients[client];
        let (name, held) = (own.id, &mut own.held);
        held.insert(now);
        let Some(call) = &mut own.workers[worker] else { return };
        call.partition = now;
        if call.op.is_read() {
            return;
        }
        self.coverage.renamed += 1;
        call.moves += 1;
        call.attempts = 0;
        call.open.clear();
        if let Some(id) = &mut call.id {
            if let Some(sequence) = own.sequences.get_mut(&partition) {
                sequence.under_way.remove(&id.number);
            }
            *id = own.sequences.entry(now).or_default().begin(name);
        }
    }
}

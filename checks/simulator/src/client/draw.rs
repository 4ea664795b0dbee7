//! Client operations, drawn from the seed.

use crate::client::calls::Call;
use crate::client::keys::{self, COUNTED, KEYS, is_counted, value_of};
use crate::world::World;
use archon_types::{
    Change, Check, Expiry, KeyRange, ManyKeys, Op, PartitionId, Revision, ScanOrder, TableId, Transaction, Write,
};
use bytes::Bytes;
use std::collections::BTreeSet;

impl World {
    /// Draws and records a client's next operation; `None` if the worker has a pending one.
    pub(super) fn draw_call(&mut self, client: usize, worker: usize, partition: PartitionId) -> Option<()> {
        if self.clients[client].workers[worker].is_some() {
            return None;
        }
        let deadline = self.truth + self.random.between(self.plan.unit_ms() * 5, self.plan.unit_ms() * 40);
        let own = &mut self.clients[client];
        own.calls += 1;
        let number = own.calls;
        let (partition, op) = match self.draw_in_range(client, partition, number) {
            Some(drawn) => drawn,
            None => {
                let op = self.draw_op(client, partition, number);
                let binary = self.plan.binary_keys;
                (partition, if self.plan.transacts { several(op, client, number, binary) } else { op })
            }
        };
        let op = if self.plan.expires { self.expiring(op, number) } else { op };
        // Without an id nothing distinguishes two deliveries, so it is sent once.
        let named = !op.is_read() && !self.random.permille(350);
        // The check of X recognizes the writes of a transaction by its record.
        let named = named || matches!(op, Op::Transaction(_));
        let began = self.checks.begins_at(partition, op.key().map(|key| &key[..]));
        let floors = self.checks.of(began.owner).floors();
        let own = &mut self.clients[client];
        own.held.insert(partition);
        let id = named.then(|| {
            let name = own.id;
            own.sequences.entry(partition).or_default().begin(name)
        });
        let (moves, attempts, open, timer) = (0, 0, BTreeSet::new(), 0);
        own.workers[worker] =
            Some(Call { number, partition, moves, op, id, began, floors, deadline, attempts, open, timer });
        Some(())
    }

    /// Draws any partition of any table, dropped ones included until the client is notified.
    pub(super) fn draw_partition(&mut self, client: usize) -> PartitionId {
        let mut known: Vec<PartitionId> = self.quorum.state.data_rows().map(|row| row.id).collect();
        let tables = &self.quorum.state.tables;
        known.extend(self.clients[client].held.iter().filter(|held| !tables.contains_key(&held.table)));
        self.random.pick(&known).unwrap_or(PartitionId::new(TableId::new(1), 0))
    }

    /// Turns two of three writes into ones of values that expire.
    fn expiring(&self, op: Op, number: u64) -> Op {
        // Without a draw of its own, so that seeds do not change.
        let expiry = match number % 9 {
            0..=2 => return op,
            3 => Expiry::Keep,
            _ => Expiry::After(self.plan.unit_ms() * (1 + number % 20)),
        };
        match op {
            Op::Put { key, value } => Op::PutExpiring { key, value, expected: None, expiry },
            Op::CompareAndSet { key, expected, value } => {
                Op::PutExpiring { key, value, expected: Some(expected), expiry }
            }
            // Later increments keep the expiry.
            Op::Delete { key } if is_counted(&key) => {
                Op::PutExpiring { key, value: number.to_string().into(), expected: None, expiry }
            }
            Op::Transaction(transaction) => {
                let expiring = |write: &Write| match &write.change {
                    Change::Put { value, .. } => {
                        let change = Change::Put { value: value.clone(), expiry: Some(expiry) };
                        Write { key: write.key.clone(), change }
                    }
                    Change::Delete => write.clone(),
                };
                let writes = transaction.writes().iter().map(expiring).collect();
                Transaction::new(transaction.checks().to_vec(), writes).map_or(Op::Transaction(transaction), several_op)
            }
            other => other,
        }
    }

    fn draw_op(&mut self, client: usize, partition: PartitionId, number: u64) -> Op {
        let kind = self.random.below(24);
        let binary = self.plan.binary_keys;
        let counted = keys::with_prefix(Bytes::from_static(COUNTED), binary);
        let key = keys::with_prefix(keys::key(self.random.below(KEYS)), binary);
        let value = value_of(client, number);
        match kind {
            0..=3 => Op::Increment { key: counted, by: 1 },
            4..=8 => Op::Put { key, value },
            9..=11 => {
                let seen = self.clients[client].seen.get(&(partition, key.clone()));
                let expected = seen.copied().unwrap_or(Revision::ZERO);
                Op::CompareAndSet { key, expected, value }
            }
            12 | 13 => Op::Delete { key },
            14 if self.random.below(4) == 0 => Op::Delete { key: counted },
            14..=16 => {
                let prefix = self.random.pick(&["", "", "k", "k1", "c"]).unwrap_or_default();
                let after = self.random.pick(&["", "", "", "k0", "count"]).unwrap_or_default();
                let limit = self.random.pick(&[0, 1, 2, 10]).unwrap_or(0);
                // Without a draw of its own, so that seeds do not change.
                let order = if limit == 2 { ScanOrder::Descending } else { ScanOrder::Ascending };
                let full = |name: &'static str| {
                    keys::with_prefix(Bytes::from_static(name.as_bytes()), binary && !name.is_empty())
                };
                let keys = KeyRange::of_prefix(full(prefix)).after(&full(after));
                Op::Scan { keys, order, limit }
            }
            17 => Op::Get { key: counted },
            _ => Op::Get { key },
        }
    }
}

fn several_op(transaction: Transaction) -> Op {
    Op::Transaction(Box::new(transaction))
}

/// Turns two of three operations on one key into ones on several, without a draw of its own.
fn several(op: Op, client: usize, number: u64, binary: bool) -> Op {
    if number.is_multiple_of(3) {
        return op;
    }
    let name = |number: u64| keys::with_prefix(keys::key(number), binary);
    let next = |key: &Bytes| {
        let number = key.last().map_or(0, |digit| u64::from(digit.wrapping_sub(b'0')));
        name((number + 1) % KEYS)
    };
    let put = |key: Bytes| Write { key, change: Change::Put { value: value_of(client, number), expiry: None } };
    let made = match &op {
        Op::Get { .. } | Op::Scan { .. } => {
            return ManyKeys::new((0..KEYS).map(name).collect()).map_or(op, |many| Op::GetMany(Box::new(many)));
        }
        Op::Put { key, .. } => Transaction::new(vec![], vec![put(key.clone()), put(next(key))]),
        Op::CompareAndSet { key, expected, .. } => {
            let check = Check { key: key.clone(), expected: *expected };
            Transaction::new(vec![check], vec![put(key.clone()), put(next(key))])
        }
        Op::Delete { key } if !is_counted(key) => {
            Transaction::new(vec![], vec![put(next(key)), Write { key: key.clone(), change: Change::Delete }])
        }
        _ => return op,
    };
    made.map_or(op, several_op)
}

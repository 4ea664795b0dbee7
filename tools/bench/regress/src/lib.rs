//! Pure parts of an operation's cost, one operation at a time: allocations and instructions are the same in every run,
//! so that a regression shows without a quiet machine.

mod rows;

use archon_kv::ClientPage;
use archon_kv::{DedupLimits, Effect, Request, View, ViewError, Window, engine, evaluate, row};
use archon_proto::convert::kv::packed::{OpPacker, ReplyPacker, unpack_ops, unpack_replies};
use archon_proto::convert::kv::{TaggedOp, TaggedReply};
use archon_proto::v1;
use archon_replica::{
    Body, Configuration, Identity, Input, Limits, Message, Output, Peer, Position, RecoveredState, Replica,
    ReplicaAddress, Timing,
};
use archon_types::{
    Answer, ClientId, Epoch, Incarnation, KeyRange, Millis, NodeId, Op, OpId, Partition, PartitionId, PartitionStatus,
    Placement, PlacementId, ReplicaState, Revision, ScanOrder, Seq, StoredValue, TableId, Version,
};
use bytes::Bytes;
use prost::Message as _;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use uuid::Uuid;

/// Operations per message, as under load.
const TOGETHER: u64 = 64;
const PARTITION: PartitionId = PartitionId::new(TableId::new(1), 7);
const VALUE: &[u8] = &[0x5a; 100];

/// A part of an operation's path.
#[derive(Clone, Copy, Debug)]
pub struct HotPath {
    /// Its name in reports and baselines.
    pub name: &'static str,
    /// Runs that part this many times, a multiple of 64; returns a value that depends on all of it.
    pub run: fn(u64) -> u64,
}

/// All hot paths.
pub const ALL: [HotPath; 7] = [
    HotPath { name: "puts-to-node", run: puts_to_node },
    HotPath { name: "evaluate-put", run: evaluate_put },
    HotPath { name: "commit-at-two", run: commit_at_two },
    HotPath { name: "write-rows", run: rows::write_rows },
    HotPath { name: "read-rows", run: rows::read_rows },
    HotPath { name: "scan-rows", run: rows::scan_rows },
    HotPath { name: "values-to-client", run: values_to_client },
];

fn key(number: u64) -> Bytes {
    Bytes::from(format!("bench/{number:010}"))
}

fn id(client: ClientId, number: u64) -> OpId {
    OpId { client, number, done_below: number.saturating_sub(TOGETHER), stamp: Millis::new(1_000) }
}

/// Returns the operations that a node reads from a message.
fn arrived(packer: OpPacker) -> impl Iterator<Item = TaggedOp> {
    let message = v1::OpBatch { ops: packer.finish(), table_version: 9, ..v1::OpBatch::default() };
    let read = v1::OpBatch::decode(Bytes::from(message.encode_to_vec())).ok();
    let ops = read.and_then(|read| unpack_ops(read.ops).ok());
    ops.into_iter().flatten().filter_map(|op| op.op.ok())
}

/// From operations in the client to operations in the node: one message of 64 puts, packed, encoded and decoded.
fn puts_to_node(count: u64) -> u64 {
    let client = ClientId::new(Uuid::from_u128(7));
    let value = Bytes::from_static(VALUE);
    let mut sum = 0;
    for batch in 0..count / TOGETHER {
        let mut packer = OpPacker::new(client);
        for number in batch * TOGETHER..(batch + 1) * TOGETHER {
            let op = Op::Put { key: key(number), value: value.clone() };
            packer.push(number + 1, PARTITION, Some(&id(client, number + 1)), &op);
        }
        sum += arrived(packer).map(|op| op.tag).sum::<u64>();
    }
    sum
}

/// From answers in the node to answers in the client: one message of 64 values, packed, encoded and decoded.
fn values_to_client(count: u64) -> u64 {
    let value = Bytes::from_static(VALUE);
    let mut sum = 0;
    for batch in 0..count / TOGETHER {
        let mut packer = ReplyPacker::default();
        for number in batch * TOGETHER..(batch + 1) * TOGETHER {
            let outcome = Ok(Answer::Value(Some(StoredValue::new(value.clone(), Revision::new(number + 1)))));
            packer.push(&TaggedReply { tag: number + 1, log_time: Millis::new(1_000), outcome });
        }
        let message = v1::ReplyBatch { replies: packer.finish(), table_version: 9, pong: 0 };
        let Ok(read) = v1::ReplyBatch::decode(Bytes::from(message.encode_to_vec())) else { continue };
        sum += unpack_replies(read.replies).filter_map(Result::ok).map(|reply| reply.tag).sum::<u64>();
    }
    sum
}

/// A partition's rows and windows without an engine, so that only the evaluation is counted.
#[derive(Default)]
struct Rows(BTreeMap<Bytes, Bytes>, BTreeMap<ClientId, Arc<Window>>);

impl View for Rows {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, ViewError> {
        Ok(self.0.get(key).cloned())
    }

    fn page(&self, _: Bound<&[u8]>, _: &[u8], _: ScanOrder, _: engine::PageLimit) -> Result<engine::Page, ViewError> {
        Ok(engine::Page::default())
    }

    fn window(&self, client: ClientId) -> Result<Option<Arc<Window>>, ViewError> {
        Ok(self.1.get(&client).cloned())
    }

    fn clients(&self, _: ClientId, _: usize) -> Result<ClientPage, ViewError> {
        Ok(ClientPage::default())
    }
}

/// Evaluates retryable puts, encodes their effects, and applies them as a follower does.
fn evaluate_put(count: u64) -> u64 {
    let client = ClientId::new(Uuid::from_u128(7));
    let value = Bytes::from_static(VALUE);
    let mut rows = Rows::default();
    let mut sum = 0;
    for number in 1..=count {
        let op = Op::Put { key: key(number % 1_024), value: value.clone() };
        let id = id(client, number);
        let (at, revision) = (Millis::new(1_000), Revision::new(number));
        let request = Request { op: &op, id: Some(&id) };
        let Ok(evaluation) = evaluate(request, &rows, at, revision, &DedupLimits::DEFAULT) else { continue };
        let Some(effect) = evaluation.effect else { continue };
        let Ok(read) = effect.encode().and_then(|entry| Effect::decode(&entry)) else { continue };
        for change in read.rows() {
            match change.value {
                Some(value) => drop(rows.0.insert(change.key, value)),
                None => drop(rows.0.remove(&change.key)),
            }
        }
        if let Some(record) = &read.record {
            let window = rows.1.entry(record.client).or_insert_with(|| Arc::new(Window::new(record, read.at)));
            Arc::make_mut(window).record(record, read.at);
        }
        sum += number;
    }
    debug_assert!(rows.0.contains_key(&row::value_key(&key(1))));
    sum
}

const fn address(number: u64) -> ReplicaAddress {
    ReplicaAddress { placement: PlacementId::new(number), node: NodeId::new(number), incarnation: Incarnation::new(1) }
}

fn replica(number: u64) -> Option<Replica> {
    let ReplicaAddress { placement, node, incarnation } = address(number);
    let identity = Identity { partition: PARTITION, placement, node, incarnation };
    Replica::new(identity, RecoveredState::default(), Limits::default()).ok()
}

fn configuration() -> Configuration {
    let placement =
        |number| Placement { id: PlacementId::new(number), node: NodeId::new(number), state: ReplicaState::Live };
    let row = Partition {
        id: PARTITION,
        epoch: Epoch::new(1),
        version: Version::new(1),
        leader: Some(PlacementId::new(1)),
        placements: [1, 2].map(placement).to_vec(),
        status: PartitionStatus::Online,
        min_in_sync: 1,
        range: KeyRange::ALL,
        split: None,
        merge: None,
        absorbed: Version::ZERO,
    };
    let peer = |number| {
        (PlacementId::new(number), Peer { node: NodeId::new(number), incarnation: Incarnation::new(1), failed: false })
    };
    Configuration { row, peers: [1, 2].map(peer).into(), timing: Timing::default() }
}

/// A leader and a follower with instant disks and network.
struct Pair {
    replicas: [Replica; 2],
    /// Pending outputs: index of the replica, and output.
    work: VecDeque<(usize, Output)>,
    committed: Seq,
}

impl Pair {
    fn step(&mut self, who: usize, inputs: impl IntoIterator<Item = Input>) {
        let now = Millis::new(10_000);
        let mut out = Vec::new();
        for input in inputs {
            self.replicas[who].step(now, input, &mut out);
        }
        self.replicas[who].flush(now, &mut out);
        self.work.extend(out.into_iter().map(|output| (who, output)));
    }

    fn settle(&mut self) {
        while let Some((who, output)) = self.work.pop_front() {
            match output {
                Output::Persist { token, .. } => self.step(who, [Input::Persisted { token }]),
                Output::Send(message) => self.step(1 - who, [Input::Message(message)]),
                Output::Commit { upto } if who == 0 => self.committed = upto,
                _ => {}
            }
        }
    }
}

/// Replicates entries from a leader to a follower until both hold them, 64 at a time; returns the number of committed
/// entries.
fn commit_at_two(count: u64) -> u64 {
    let (Some(leader), Some(follower)) = (replica(1), replica(2)) else { return 0 };
    let mut pair = Pair { replicas: [leader, follower], work: VecDeque::new(), committed: Seq::ZERO };
    for who in [1, 0] {
        pair.step(who, [Input::Configure(configuration())]);
    }
    // Repeats the leader's messages from before the follower existed.
    let adopted = Body::Adopted { at: Position::ZERO, held: Seq::ZERO };
    let (from, to, epoch) = (address(2), address(1), Epoch::new(1));
    pair.settle();
    pair.step(0, [Input::Message(Message { partition: PARTITION, from, to, epoch, body: adopted })]);
    pair.settle();
    let entry = Bytes::from_static(VALUE);
    for batch in 0..count / TOGETHER {
        let tickets = batch * TOGETHER..(batch + 1) * TOGETHER;
        pair.step(0, tickets.map(|ticket| Input::Propose { ticket, entry: entry.clone() }));
        pair.settle();
        for who in 0..2 {
            let upto = pair.committed;
            pair.step(who, [Input::Trimmed { upto }]);
        }
        pair.settle();
    }
    pair.committed.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A path without work would be fast.
    #[test]
    fn every_path_does_its_work() {
        let sum: u64 = (1..=640).sum();
        for path in ALL {
            let expected = if ["commit-at-two", "scan-rows"].contains(&path.name) { 640 } else { sum };
            assert_eq!((path.run)(640), expected, "{}", path.name);
        }
    }
}

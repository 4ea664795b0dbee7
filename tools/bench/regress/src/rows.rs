//! Work of a partition's rows: writes that become visible, reads, ordered pages.

use crate::{PARTITION, TOGETHER, VALUE, arrived, id, key};
use archon_kv::{DedupLimits, MemoryEngine, Memtable, MemtableBudget, PartitionView, Reader, Request, evaluate, row};
use archon_proto::convert::kv::packed::OpPacker;
use archon_types::{Answer, ClientId, KeyRange, Millis, Op, PlacementId, Revision, ScanOrder, Seq};
use bytes::Bytes;
use uuid::Uuid;

/// Keys of a partition.
const KEYS: u64 = 1_024;
/// Entries of one page.
const PAGE: u32 = 64;
const SPACE: PlacementId = PlacementId::new(1);
const AT: Millis = Millis::new(1_000);
const CLIENT: ClientId = ClientId::new(Uuid::from_u128(7));

/// A partition at a leader: the unfrozen memtable over an empty engine.
struct Leader {
    memtable: Memtable,
    engine: MemoryEngine,
}

impl Leader {
    fn empty() -> Self {
        Self { memtable: Memtable::new(Seq::ZERO, MemtableBudget::default()), engine: MemoryEngine::new() }
    }

    fn loaded() -> Self {
        let mut leader = Self::empty();
        (1..=KEYS).for_each(|number| leader.write(number));
        leader.commit(KEYS);
        leader
    }

    fn view(&self, reader: Reader) -> PartitionView<'_> {
        PartitionView::new(&self.memtable, &self.engine, SPACE, reader)
    }

    /// Evaluates a retryable write, and keeps its effect.
    fn write(&mut self, number: u64) {
        let op = Op::Put { key: key(number % KEYS), value: Bytes::from_static(VALUE) };
        let id = id(CLIENT, number);
        let request = Request { op: &op, id: Some(&id) };
        let evaluated = evaluate(request, &self.view(Reader::Newest), AT, Revision::new(number), &DedupLimits::DEFAULT);
        if let Some(effect) = evaluated.ok().and_then(|evaluation| evaluation.effect) {
            let (_, effect) = effect.into_entry().expect("an effect within bounds");
            // A position that is not the next one would make the sum of the path too small.
            let _ = self.memtable.push(Seq::new(number), effect);
        }
    }

    fn commit(&mut self, upto: u64) {
        self.memtable.commit(Seq::new(upto));
    }
}

/// Writes at a leader, from the operation to the visible row, 64 committed at a time.
pub(crate) fn write_rows(count: u64) -> u64 {
    let mut leader = Leader::empty();
    for batch in 0..count / TOGETHER {
        let numbers = batch * TOGETHER + 1..=(batch + 1) * TOGETHER;
        numbers.clone().for_each(|number| leader.write(number));
        leader.commit(*numbers.end());
    }
    // All of them, if every one was accepted.
    (1..=leader.memtable.last().get()).sum()
}

/// Reads at a leader, from a message of 64 operations to the values.
pub(crate) fn read_rows(count: u64) -> u64 {
    let leader = Leader::loaded();
    let mut sum = 0;
    for batch in 0..count / TOGETHER {
        let mut packer = OpPacker::new(CLIENT);
        for number in batch * TOGETHER..(batch + 1) * TOGETHER {
            packer.push(number + 1, PARTITION, None, &Op::Get { key: key(number % KEYS) });
        }
        for tagged in arrived(packer) {
            let Op::Get { key } = &tagged.op else { continue };
            let found = row::with_value_key(key, |key| leader.memtable.get(key, Reader::Committed));
            let value = found.flatten().and_then(|row| row::decode_value(row).ok());
            sum += value.map_or(0, |(value, _)| if value == VALUE { tagged.tag } else { 0 });
        }
    }
    sum
}

/// Reads ordered pages of 64 entries, from scattered keys: `count` entries in all.
pub(crate) fn scan_rows(count: u64) -> u64 {
    let leader = Leader::loaded();
    let mut sum = 0;
    for page in 0..count / u64::from(PAGE) {
        // A key followed by enough entries.
        let from = page * 7_919 % (KEYS - u64::from(PAGE));
        let keys = KeyRange { begin: key(from), ..KeyRange::ALL };
        let scan = Op::Scan { keys, order: ScanOrder::Ascending, limit: PAGE };
        let request = Request { op: &scan, id: None };
        let found = evaluate(request, &leader.view(Reader::Committed), AT, Revision::ZERO, &DedupLimits::DEFAULT);
        if let Some(Ok(Answer::Page { entries, .. })) = found.ok().map(|found| found.answer) {
            sum += entries.len() as u64;
        }
    }
    sum
}

use super::*;
use crate::engine::{Change, Engine, PageLimit};
use crate::rows::row::{value_bounds, value_key};
use crate::rows::view::{PartitionView, View};
use crate::{MemoryEngine, Memtable, MemtableBudget, Reader};
use archon_types::{Epoch, PlacementId, Position, Revision, ScanOrder, Seq, Version};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ops::Bound;

const SPACE: PlacementId = PlacementId::new(1);

/// An entry of the partition's log.
#[derive(Clone, Debug)]
enum Step {
    Put(u8),
    Remove(u8),
    /// Keys from here on are sealed.
    Seal(u8),
    Open,
    /// Keys from here on belong to another partition.
    Clear(u8),
    /// Keys from here on will come from the neighbour.
    Absorb(u8),
    /// Some of those keys have arrived.
    Page(Vec<u8>),
    /// All of them have arrived.
    Absorbed(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..12_u8).prop_map(Step::Put),
        2 => (0..12_u8).prop_map(Step::Remove),
        1 => (0..12_u8).prop_map(Step::Seal),
        1 => Just(Step::Open),
        1 => (0..12_u8).prop_map(Step::Clear),
        2 => (0..12_u8).prop_map(Step::Absorb),
        2 => proptest::collection::vec(0..12_u8, 0..4).prop_map(Step::Page),
        1 => (0..12_u8).prop_map(Step::Absorbed),
    ]
}

fn keys_from(number: u8) -> KeyRange {
    KeyRange { begin: Bytes::from(vec![number]), end: None }
}

fn seal(seq: u64, from: u8) -> Seal {
    let position = Position::new(Epoch::new(1), Seq::new(seq));
    Seal { attempt: Version::new(seq), at: keys_from(from).begin, end: None, position }
}

fn entry(step: &Step, seq: u64) -> Effect {
    let at = Millis::new(seq);
    let set =
        |number: u8| RowChange::set(value_key(&[number]), crate::rows::row::encode_value(Revision::new(seq), b"value"));
    match step {
        Step::Put(number) => Effect::new(at, vec![set(*number)]),
        Step::Remove(number) => Effect::new(at, vec![RowChange::remove(value_key(&[*number]))]),
        Step::Seal(from) => split(at, &seal(seq, *from)),
        Step::Open => open(at),
        Step::Clear(from) => clear(at, keys_from(*from), Version::new(seq)),
        Step::Absorb(from) => absorb(at, &seal(seq, *from)),
        Step::Page(numbers) => Effect::new(at, numbers.iter().map(|number| set(*number)).collect()),
        Step::Absorbed(from) => {
            let (attempt, last) = (Version::new(seq), Revision::new(seq * 10));
            absorbed(at, &MergeRecord::next(None, attempt, keys_from(*from).begin, last, Seq::new(seq), at))
        }
    }
}

/// The rows that result from the entries, in order.
fn expected(log: &[Effect]) -> BTreeMap<Bytes, Bytes> {
    let mut rows = BTreeMap::new();
    for effect in log {
        rows.retain(|key: &Bytes, _| !effect.clears(key));
        for RowChange { key, value } in effect.rows() {
            match value {
                Some(value) => rows.insert(key, value),
                None => rows.remove(&key),
            };
        }
    }
    rows
}

/// Brings the memtable's committed rows to the engine.
fn flush(memtable: &mut Memtable, engine: &MemoryEngine) {
    let Some(frozen) = memtable.freeze() else { return };
    for range in frozen.clears() {
        let (from, to) = value_bounds(range);
        engine.clear_range(SPACE, (Bound::Included(&from[..]), Bound::Excluded(&to[..])), usize::MAX).unwrap();
    }
    let change = |row: &RowChange| Change { space: SPACE, key: row.key.clone(), value: row.value.clone() };
    engine.write(&frozen.rows().iter().map(change).collect::<Vec<_>>()).unwrap();
    memtable.flushed(frozen.upto);
}

fn shown(memtable: &Memtable, engine: &MemoryEngine) -> BTreeMap<Bytes, Bytes> {
    let view = PartitionView::new(memtable, engine, SPACE, Reader::Committed);
    let page = view.page(Bound::Unbounded, &[u8::MAX], ScanOrder::Ascending, PageLimit::bytes(usize::MAX)).unwrap();
    page.rows
        .into_iter()
        .map(|row| (row.key, row.value))
        .filter(|(key, _)| key != crate::rows::row::POSITION_KEY)
        .collect()
}

fn replay(memtable: &mut Memtable, log: &[Effect], after: usize) {
    for (seq, effect) in (1..).zip(log).skip(after) {
        let effect = Effect::decode(&effect.encode().unwrap()).unwrap();
        memtable.push(Seq::new(seq), effect).unwrap();
    }
    memtable.commit(Seq::new(log.len() as u64));
}

proptest! {
    /// The engine holds a part of the log, written in one go or two; a follower's log was cut somewhere and written
    /// again.
    #[test]
    fn log_gives_same_rows_wherever_it_is_cut(steps in proptest::collection::vec(step(), 1..14)) {
        let log: Vec<Effect> = (1..).zip(&steps).map(|(seq, step)| entry(step, seq)).collect();
        let expected = expected(&log);
        for cut in 0..=log.len() {
            for first in [0, cut / 2, cut] {
                let engine = MemoryEngine::new();
                let mut before = Memtable::new(Seq::ZERO, MemtableBudget::default());
                replay(&mut before, &log[..first], 0);
                flush(&mut before, &engine);
                replay(&mut before, &log[..cut], first);
                flush(&mut before, &engine);
                let mut memtable = Memtable::new(Seq::new(cut as u64), MemtableBudget::default());
                replay(&mut memtable, &log, cut);
                prop_assert_eq!(&shown(&memtable, &engine), &expected, "after {} and {} entries", first, cut);
                flush(&mut memtable, &engine);
                prop_assert_eq!(&shown(&memtable, &engine), &expected, "all of it, {} before", cut);
            }
            let (engine, mut memtable) = (MemoryEngine::new(), Memtable::new(Seq::ZERO, MemtableBudget::default()));
            for (seq, effect) in (1..).zip(&log) {
                memtable.push(Seq::new(seq), effect.clone()).unwrap();
            }
            memtable.truncate(Seq::new(cut as u64)).unwrap();
            replay(&mut memtable, &log, cut);
            prop_assert_eq!(&shown(&memtable, &engine), &expected, "cut after {} entries", cut);
        }
    }
}

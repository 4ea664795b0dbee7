//! Conformance suite for engines, run on each.

use super::*;
use archon_types::{PlacementId, ScanOrder};
use bytes::Bytes;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

pub(super) const ALL_KEYS: KeyBounds<'static> = (Bound::Unbounded, Bound::Unbounded);

pub(super) fn space(number: u64) -> PlacementId {
    PlacementId::new(number)
}

pub(super) fn put(number: u64, key: &[u8], value: &[u8]) -> Change {
    Change { space: space(number), key: Bytes::copy_from_slice(key), value: Some(Bytes::copy_from_slice(value)) }
}

fn remove(number: u64, key: &[u8]) -> Change {
    Change { space: space(number), key: Bytes::copy_from_slice(key), value: None }
}

fn all(engine: &dyn Engine, number: u64) -> Vec<(Bytes, Bytes)> {
    let page = engine.page(space(number), ALL_KEYS, ScanOrder::Ascending, PageLimit::bytes(usize::MAX)).unwrap();
    assert!(!page.more);
    page.rows.into_iter().map(|row| (row.key, row.value)).collect()
}

/// Bytes that differ from chunk to chunk.
pub(super) fn value(length: usize, seed: u8) -> Vec<u8> {
    (0..length).map(|at| (at / 1_000) as u8 ^ (at % 251) as u8 ^ seed).collect()
}

/// Runs the whole suite on an empty engine.
fn conforms(engine: &dyn Engine) {
    last_write_counts(engine);
    spaces_are_apart(engine);
    pages_go_on_where_they_ended(engine);
    pages_go_back_from_the_end(engine);
    large_values_come_back(engine);
    clearing_goes_in_steps(engine);
    clearing_a_range_leaves_the_rest(engine);
    what_is_written_behind_a_clearing_is_cleared_as_well(engine);
    oversized_rows_are_refused(engine);
    many_rows_at_once_lie_over_what_was_there(engine);
}

fn last_write_counts(engine: &dyn Engine) {
    assert_eq!(engine.get(space(1), b"\x01a").unwrap(), None);
    engine.write(&[put(1, b"\x01a", b"1"), put(1, b"\x01a", b"2"), put(1, b"\x01b", b"")]).unwrap();
    engine.write(&[remove(1, b"\x01absent")]).unwrap();
    assert_eq!(engine.get(space(1), b"\x01a").unwrap().unwrap(), "2");
    assert_eq!(engine.get(space(1), b"\x01b").unwrap().unwrap(), "");
    engine.write(&[remove(1, b"\x01a"), put(1, b"\x01c", b"3"), remove(1, b"\x01c")]).unwrap();
    assert_eq!(engine.get(space(1), b"\x01a").unwrap(), None);
    assert_eq!(all(engine, 1).len(), 1);
    engine.sync().unwrap();
}

fn spaces_are_apart(engine: &dyn Engine) {
    let numbers = [0, 1, 2, 255, 256, u64::MAX];
    for number in numbers {
        engine.write(&[put(number, b"\x01b", number.to_string().as_bytes())]).unwrap();
    }
    for number in numbers {
        assert_eq!(all(engine, number), [(Bytes::from_static(b"\x01b"), Bytes::from(number.to_string()))]);
    }
    assert_eq!(engine.spaces().unwrap(), numbers.map(space));
    assert_eq!(all(engine, 3), []);
}

fn pages_go_on_where_they_ended(engine: &dyn Engine) {
    let keys: Vec<Vec<u8>> = (0..100_u8).map(|at| vec![1, at / 10, at]).collect();
    let rows: Vec<_> = keys.iter().map(|key| put(10, key, b"12345")).collect();
    engine.write(&rows).unwrap();
    for limit in [PageLimit::bytes(0), PageLimit::bytes(50), PageLimit { rows_max: 7, bytes_max: usize::MAX }] {
        let mut found = Vec::new();
        let mut from = Bound::Unbounded;
        loop {
            let rest = (from.as_ref().map(|key: &Bytes| &key[..]), Bound::Unbounded);
            let page = engine.page(space(10), rest, ScanOrder::Ascending, limit).unwrap();
            assert!(!page.rows.is_empty() && page.rows.len() <= limit.rows_max);
            found.extend(page.rows.iter().map(|row| row.key.to_vec()));
            if !page.more {
                break;
            }
            from = Bound::Excluded(page.rows.last().unwrap().key.clone());
        }
        assert_eq!(found, keys);
    }
    let from =
        |bound| engine.page(space(10), (bound, Bound::Unbounded), ScanOrder::Ascending, PageLimit::bytes(1)).unwrap();
    assert_eq!(from(Bound::Included(&[1, 3, 35])).rows[0].key, &[1, 3, 35][..]);
    assert_eq!(from(Bound::Excluded(&[1, 3, 35])).rows[0].key, &[1, 3, 36][..]);
    assert_eq!(from(Bound::Included(&[1, 9, 100])), Page::default());
    assert_eq!(from(Bound::Included(&[0xFF, 0xFF])), Page::default());
    let between = |from, to, rows_max| {
        let page = engine
            .page(space(10), (from, to), ScanOrder::Ascending, PageLimit { rows_max, bytes_max: usize::MAX })
            .unwrap();
        (page.rows.len(), page.more)
    };
    let (low, high) = (&[1, 3, 35][..], &[1, 3, 37][..]);
    assert_eq!(between(Bound::Included(low), Bound::Included(high), 9), (3, false));
    assert_eq!(between(Bound::Included(low), Bound::Excluded(high), 9), (2, false));
    assert_eq!(
        between(Bound::Included(low), Bound::Excluded(high), 2),
        (2, false),
        "what lies behind is not asked for"
    );
    assert_eq!(between(Bound::Included(low), Bound::Included(high), 2), (2, true));
    assert_eq!(between(Bound::Excluded(low), Bound::Excluded(low), 9), (0, false));
    assert_eq!(between(Bound::Included(high), Bound::Included(low), 9), (0, false), "it ends before it begins");
    assert_eq!(between(Bound::Unbounded, Bound::Included(&[0xFF, 0xFF]), 1_000), (100, false));
}

fn pages_go_back_from_the_end(engine: &dyn Engine) {
    let keys: Vec<Vec<u8>> = (0..50_u8).map(|at| vec![1, at]).collect();
    let rows: Vec<_> = keys.iter().map(|key| put(11, key, b"12345")).collect();
    engine.write(&rows).unwrap();
    engine.write(&[put(10, &[1, 99], b"another"), put(12, &[1, 0], b"another")]).unwrap();
    engine.write(&[put(11, &[1, 20], &value(200_000, 7))]).unwrap();
    let page = |keys: KeyBounds<'_>, rows_max| {
        let limit = PageLimit { rows_max, bytes_max: usize::MAX };
        engine.page(space(11), keys, ScanOrder::Descending, limit).unwrap()
    };
    let mut found = Vec::new();
    let mut to = Bound::Unbounded;
    loop {
        let part = page((Bound::Unbounded, to.as_ref().map(|key: &Bytes| &key[..])), 7);
        found.extend(part.rows.iter().map(|row| row.key.to_vec()));
        if !part.more {
            break;
        }
        to = Bound::Excluded(part.rows.last().unwrap().key.clone());
    }
    assert!(found.iter().rev().eq(keys.iter()), "{found:?}");
    let keys_of = |page: Page| page.rows.iter().map(|row| row.key[1]).collect::<Vec<_>>();
    assert_eq!(keys_of(page((Bound::Included(&[1, 30]), Bound::Excluded(&[1, 33])), 9)), [32, 31, 30]);
    assert_eq!(keys_of(page((Bound::Excluded(&[1, 30]), Bound::Included(&[1, 33])), 2)), [33, 32]);
    assert_eq!(page((Bound::Included(&[1, 33]), Bound::Included(&[1, 30])), 9), Page::default());
}

fn large_values_come_back(engine: &dyn Engine) {
    let lengths = [65_535, 65_536, 65_537, 131_072, 131_073, 1_048_576 + 9];
    for (seed, length) in (0..).zip(lengths.into_iter().chain(lengths.into_iter().rev())) {
        for key in [&b"\x01k"[..], b"\x01k\x00", b"\x01k\x00\x00\x01"] {
            engine.write(&[put(20, key, &value(length, seed))]).unwrap();
            assert_eq!(engine.get(space(20), key).unwrap().unwrap(), value(length, seed));
        }
        assert_eq!(all(engine, 20).len(), 3, "chunks must not show");
        let to = Bound::Included(&[0xFF; 40][..]);
        let page =
            engine.page(space(20), (Bound::Unbounded, to), ScanOrder::Ascending, PageLimit::bytes(usize::MAX)).unwrap();
        assert_eq!(page.rows.len(), 3, "nor where everything is asked for");
    }
    engine.write(&[put(20, b"\x01k", b"small"), remove(20, b"\x01k\x00")]).unwrap();
    assert_eq!(engine.get(space(20), b"\x01k").unwrap().unwrap(), "small");
    assert_eq!(engine.get(space(20), b"\x01k\x00").unwrap(), None);
    assert_eq!(all(engine, 20).len(), 2);
    let page = engine.page(space(20), ALL_KEYS, ScanOrder::Ascending, PageLimit::bytes(100)).unwrap();
    assert_eq!((page.rows.len(), page.more), (1, true));
}

fn clearing_goes_in_steps(engine: &dyn Engine) {
    for at in 0..30_u8 {
        engine.write(&[put(30, &[1, at], b"x")]).unwrap();
    }
    engine.write(&[put(30, b"\x02large", &value(200_000, 1)), put(31, b"\x01a", b"stays")]).unwrap();
    let first = engine.clear(space(30), 10).unwrap();
    assert_eq!(first, ClearStep { removed: 10, done: false });
    let mut steps = 1;
    while !engine.clear(space(30), 10).unwrap().done {
        steps += 1;
        assert!(steps < 10, "clearing does not end");
    }
    assert_eq!(all(engine, 30), []);
    assert_eq!(all(engine, 31).len(), 1);
    assert!(!engine.spaces().unwrap().contains(&space(30)), "something was left behind");
    assert_eq!(engine.clear(space(30), 10).unwrap(), ClearStep { removed: 0, done: true });
}

fn clearing_a_range_leaves_the_rest(engine: &dyn Engine) {
    let keys: Vec<_> = (0..30_u8).map(|at| [1, at]).collect();
    for key in &keys {
        engine.write(&[put(32, key, b"x"), put(33, key, b"stays")]).unwrap();
    }
    for at in [9, 10, 19, 20] {
        engine.write(&[put(32, &[1, at], &value(200_000, at))]).unwrap();
    }
    engine.write(&[put(32, b"\x03t", b"stays")]).unwrap();
    let clear = |from, to| {
        let mut removed = Vec::new();
        loop {
            let step = engine.clear_range(space(32), (from, to), 4).unwrap();
            removed.push(step.removed);
            assert!(removed.len() < 20, "clearing does not end");
            if step.done {
                return removed;
            }
        }
    };
    let left = || all(engine, 32).into_iter().map(|(key, _)| key[1]).collect::<Vec<_>>();
    let (low, high) = (&[1, 10][..], &[1, 20][..]);
    assert_eq!(clear(Bound::Included(high), Bound::Excluded(low)), [0], "it ends before it begins");
    assert_eq!(clear(Bound::Included(low), Bound::Excluded(low)), [0]);
    assert_eq!(left().len(), 31);
    assert_eq!(clear(Bound::Included(low), Bound::Excluded(high)), [4, 4, 2]);
    assert_eq!(left(), [(0..10).collect(), (20..30).collect(), vec![b't']].concat());
    assert_eq!(engine.get(space(32), &[1, 9]).unwrap().unwrap(), value(200_000, 9), "a large value beside the range");
    assert_eq!(clear(Bound::Included(low), Bound::Excluded(high)), [0]);
    assert_eq!(clear(Bound::Excluded(&[1, 20]), Bound::Included(&[1, 22])), [2]);
    assert_eq!(clear(Bound::Included(&[1, 20]), Bound::Excluded(&[2])), [4, 4]);
    assert_eq!(left(), [(0..10).collect(), vec![b't']].concat());
    // Nor are the chunks of rows before it taken for a part of a range without an end.
    assert_eq!(clear(Bound::Included(&[2]), Bound::Unbounded), [1]);
    assert_eq!(engine.get(space(32), &[1, 9]).unwrap().unwrap(), value(200_000, 9));
    assert_eq!(clear(Bound::Unbounded, Bound::Unbounded), [4, 4, 2]);
    assert_eq!((left().len(), all(engine, 33).len()), (0, 30));
    assert!(!engine.spaces().unwrap().contains(&space(32)), "something was left behind");
}

/// A clearing that was abandoned, and starts over after rows were written.
fn what_is_written_behind_a_clearing_is_cleared_as_well(engine: &dyn Engine) {
    let rows: Vec<_> = (0..20_u8).map(|at| put(34, &[1, at], b"x")).collect();
    let range = (Bound::Included(&[1, 2][..]), Bound::Excluded(&[1, 18][..]));
    type Step<'a> = &'a dyn Fn() -> ClearStep;
    let clear: Step<'_> = &|| engine.clear(space(34), 5).unwrap();
    let clear_range: Step<'_> = &|| engine.clear_range(space(34), range, 5).unwrap();
    for (first, second, left) in [(clear, clear, 0), (clear_range, clear_range, 4), (clear_range, clear, 0)] {
        engine.write(&rows).unwrap();
        assert_eq!(first(), ClearStep { removed: 5, done: false });
        engine.write(&rows[1..4]).unwrap();
        while !second().done {}
        assert_eq!(all(engine, 34).len(), left);
    }
    // One range after the other, without the end of the first one being reported.
    engine.write(&rows).unwrap();
    assert!(!clear_range().done);
    let before = (Bound::Unbounded, Bound::Included(&[1, 7][..]));
    while !engine.clear_range(space(34), before, 5).unwrap().done {}
    assert_eq!(all(engine, 34).len(), 12);
    while !clear_range().done {}
    assert_eq!(all(engine, 34).len(), 2);
    while !clear().done {}
}

fn oversized_rows_are_refused(engine: &dyn Engine) {
    let long = vec![1; ENGINE_KEY_BYTES_MAX + 1];
    for key in [&long[..], b"", b"\xFFx"] {
        assert!(matches!(engine.write(&[put(40, key, b"")]), Err(EngineError::TooLarge { .. })));
    }
    engine.write(&[put(40, &long[1..], b"fits")]).unwrap();
    assert_eq!(engine.get(space(40), &long[1..]).unwrap().unwrap(), "fits");
}

fn many_rows_at_once_lie_over_what_was_there(engine: &dyn Engine) {
    let rows = |text: &str| (0..100_u8).map(|at| put(50, &[1, at], text.as_bytes())).collect::<Vec<_>>();
    engine.write(&rows("old")).unwrap();
    while !engine.clear(space(50), 7).unwrap().done {}
    engine.write(&[put(50, &[1, 3], b"old"), put(49, &[1, 3], b"another"), put(51, &[1, 3], b"another")]).unwrap();
    engine.ingest(&rows("copied")).unwrap();
    engine.write(&[put(50, &[1, 4], b"new"), remove(50, &[1, 5])]).unwrap();
    let found = all(engine, 50);
    assert_eq!(found.len(), 99);
    assert!(found.iter().all(|(key, value)| *value == if key[1] == 4 { "new" } else { "copied" }), "{found:?}");
    assert_eq!((all(engine, 49).len(), all(engine, 51).len()), (1, 1));
    engine.ingest(&[]).unwrap();
    // A clearing in progress does not take later rows for removed.
    assert!(!engine.clear(space(50), 50).unwrap().done);
    engine.ingest(&rows("again")[..20]).unwrap();
    while !engine.clear(space(50), 50).unwrap().done {}
    assert_eq!(all(engine, 50), []);
    assert!(matches!(engine.ingest(&[put(50, b"\xFFx", b"")]), Err(EngineError::TooLarge { .. })));
}

#[test]
fn memory_engine_conforms() {
    conforms(&MemoryEngine::new());
}

/// Runs a test on each on-disk engine, in a directory of its own.
pub(super) fn on_each(test: impl Fn(EngineKind, &std::path::Path)) {
    for kind in EngineKind::ALL {
        let root = tempfile::tempdir().unwrap();
        test(kind, &root.path().join("engine"));
    }
}

#[test]
fn each_engine_conforms_and_survives_reopening() {
    on_each(|kind, directory| {
        let contents = |engine: &dyn Engine| -> Vec<_> {
            engine.spaces().unwrap().into_iter().map(|space| all(engine, space.get())).collect()
        };
        let before = {
            let engine = open(kind, directory);
            conforms(&*engine);
            engine.sync().unwrap();
            contents(&*engine)
        };
        assert!(contents(&*open(kind, directory)) == before, "{kind}");
    });
}

#[test]
fn reader_beside_writer_sees_whole_values() {
    on_each(|kind, directory| {
        let engine = open(kind, directory);
        let lengths = [300_000, 10, 70_000, 200_000];
        engine.write(&[put(1, b"\x01a", &value(lengths[0], 0))]).unwrap();
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for seed in 0..100_u8 {
                    engine.write(&[put(1, b"\x01a", &value(lengths[usize::from(seed) % 4], seed))]).unwrap();
                }
                done.store(true, std::sync::atomic::Ordering::SeqCst);
            });
            while !done.load(std::sync::atomic::Ordering::SeqCst) {
                let found = engine.get(space(1), b"\x01a").unwrap().unwrap();
                let seed = found[0];
                assert!(found == value(lengths[usize::from(seed) % 4], seed), "{kind}: torn, {} bytes", found.len());
            }
        });
    });
}

pub(super) fn config(kind: EngineKind) -> EngineConfig {
    EngineConfig { kind: Some(kind), cache_bytes: 8 << 20, ..EngineConfig::default() }
}

pub(super) fn open(kind: EngineKind, directory: &std::path::Path) -> Arc<dyn Engine> {
    let (engine, aside) = open_or_quarantine(directory, &config(kind)).unwrap();
    assert_eq!(aside, None);
    engine
}

#[derive(Clone, Debug)]
enum Step {
    Put(u64, u8, usize),
    Ingest(u64, u8, u8, usize),
    Remove(u64, u8),
    Clear(u64),
    ClearRange(u64, u8, u8),
    Sync,
    /// Ends the engine without a sync, and opens it again.
    Crash,
}

fn step() -> impl Strategy<Value = Step> {
    let length = prop_oneof![8 => 0..100_usize, 1 => 65_000..66_000_usize, 1 => 100_000..300_000_usize];
    prop_oneof![
        10 => (0..3_u64, 0..6_u8, length).prop_map(|(space, key, length)| Step::Put(space, key, length)),
        3 => (0..3_u64, 0..6_u8, 0..7_u8, 0..70_000_usize)
            .prop_map(|(space, from, to, length)| Step::Ingest(space, from, to, length)),
        4 => (0..3_u64, 0..6_u8).prop_map(|(space, key)| Step::Remove(space, key)),
        1 => (0..3_u64).prop_map(Step::Clear),
        2 => (0..3_u64, 0..6_u8, 0..7_u8).prop_map(|(space, from, to)| Step::ClearRange(space, from, to)),
        1 => Just(Step::Sync),
        1 => Just(Step::Crash),
    ]
}

type Rows = BTreeMap<(u64, u8), Bytes>;

fn rows(engine: &dyn Engine) -> Rows {
    (0..3)
        .flat_map(|number| all(engine, number).into_iter().map(move |(key, value)| ((number, key[1]), value)))
        .collect()
}

fn agrees_with_a_map(kind: EngineKind, steps: Vec<Step>) -> Result<(), TestCaseError> {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("engine");
    let mut engine = open(kind, &directory);
    let mut model = Rows::new();
    // The states since the last sync: a crash leaves one of them.
    let mut unsynced = vec![Rows::new()];
    for (seed, step) in (0_u8..).zip(steps) {
        match step {
            Step::Put(space, key, length) => {
                engine.write(&[put(space, &[1, key], &value(length, seed))]).unwrap();
                model.insert((space, key), value(length, seed).into());
            }
            Step::Ingest(space, from, to, length) => {
                let rows: Vec<_> = (from..to).map(|key| put(space, &[1, key], &value(length, seed))).collect();
                engine.ingest(&rows).unwrap();
                model.extend((from..to).map(|key| ((space, key), value(length, seed).into())));
            }
            Step::Remove(space, key) => {
                engine.write(&[remove(space, &[1, key])]).unwrap();
                model.remove(&(space, key));
            }
            Step::Clear(number) => {
                while !engine.clear(space(number), 3).unwrap().done {
                    unsynced.push(rows(&*engine));
                }
                model.retain(|(space, _), _| *space != number);
            }
            Step::ClearRange(number, from, to) => {
                let keys = [[1, from], [1, to]];
                let keys = (Bound::Included(&keys[0][..]), Bound::Excluded(&keys[1][..]));
                while !engine.clear_range(space(number), keys, 2).unwrap().done {
                    unsynced.push(rows(&*engine));
                }
                model.retain(|(space, key), _| *space != number || !(from..to).contains(key));
            }
            Step::Sync => {
                engine.sync().unwrap();
                unsynced.clear();
            }
            Step::Crash => {
                drop(engine);
                engine = open(kind, &directory);
                model = rows(&*engine);
                prop_assert!(unsynced.contains(&model), "{kind} has rows that it never had at one time");
                unsynced.clear();
            }
        }
        prop_assert!(rows(&*engine) == model, "{kind} differs");
        unsynced.push(model.clone());
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(12) })]

    #[test]
    fn each_engine_agrees_with_a_map(steps in proptest::collection::vec(step(), 1..60)) {
        for kind in EngineKind::ALL {
            agrees_with_a_map(kind, steps.clone())?;
        }
    }
}

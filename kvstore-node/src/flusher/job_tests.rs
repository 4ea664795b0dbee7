//! Tests of jobs in steps: cleared ranges, also beside formed copies; `form_tests` tests forming alone.

use super::rig::{Note, Rig, TIMEOUT, change, lazy, put, space};
use super::*;
use crate::engine::{EngineConfig, EngineKind, PageLimit, open_or_quarantine};
use archon_kv::{Effect, Memtable, MemtableBudget, RowChange, reshape, row};
use archon_replica::Position;
use archon_types::{Epoch, KeyRange, Millis, ScanOrder, Version};
use bytes::Bytes;
use proptest::prelude::*;
use std::ops::Bound;

pub(super) fn range(begin: u8, end: Option<u8>) -> KeyRange {
    let bound = |number: u8| Bytes::from(vec![number]);
    KeyRange { begin: bound(begin), end: end.map(bound) }
}

fn set(key: u8, value: &str) -> RowChange {
    RowChange::set(row::value_key(&[key]), Bytes::copy_from_slice(value.as_bytes()))
}

/// End of copies.
pub(super) const END: Position = Position::new(Epoch::new(3), Seq::new(40));

/// User rows of a space: their keys and values.
pub(super) fn values(rig: &Rig, number: u64) -> BTreeMap<u8, String> {
    let limit = PageLimit::bytes(usize::MAX);
    let users = (Bound::Included(&[row::KIND_VALUE][..]), Bound::Excluded(&[row::KIND_VALUE + 1][..]));
    let page = rig.page(space(number), users, ScanOrder::Ascending, limit).unwrap();
    page.rows.into_iter().map(|row| (row.key[1], String::from_utf8_lossy(&row.value).into())).collect()
}

pub(super) fn fill(handle: &FlusherHandle, number: u64, rows: u8) {
    let rows: Vec<_> = (0..rows).map(|key| change(number, key, "old")).collect();
    handle.apply(space(number), Seq::ZERO, rows).unwrap();
}

/// A list that clears and writes, up to position 7.
pub(super) fn clearing() -> FrozenRows {
    let mut memtable = Memtable::new(Seq::new(4), MemtableBudget::default());
    let before = Effect::new(Millis::new(5), vec![set(10, "before"), set(60, "before")]);
    let after = Effect::new(Millis::new(7), vec![set(70, "after"), set(200, "after")]);
    for (at, effect) in
        [(5, before), (6, reshape::clear(Millis::new(6), range(50, Some(150)), Version::new(1))), (7, after)]
    {
        memtable.push(Seq::new(at), effect).unwrap();
    }
    memtable.commit(Seq::new(7));
    memtable.freeze().unwrap()
}

fn cleared() -> BTreeMap<u8, String> {
    let old = (0..50).chain(150..200).map(|key| (key, "old".to_owned()));
    let new = [(10, "before"), (70, "after"), (200, "after")].map(|(key, value)| (key, value.to_owned()));
    old.chain(new).collect()
}

#[test]
fn range_clear_runs_beside_other_work_and_blocks_its_space() {
    let rig = Rig::default();
    let flusher = rig.start(FlusherConfig { clear_rows: 1, ..lazy() });
    let handle = flusher.handle();
    fill(&handle, 1, 200);
    rig.set(|state| state.clear_steps = Some(3));
    handle.apply(space(1), Seq::new(7), clearing()).unwrap();
    rig.wait_for("the fourth step", |state| state.waiting);
    put(&handle, 1, 8, 80, "later");
    put(&handle, 2, 1, 0, "a");
    let clear = handle.clear(space(3)).unwrap();
    rig.set(|state| state.clear_steps = None);
    rig.wait_for("the later row", |state| state.journal.contains(&Note::Written(1, 8)));
    let journal = rig.journal();
    let at = |wanted: &Note| journal.iter().position(|note| note == wanted).unwrap();
    let last_step = journal.iter().rposition(|note| *note == Note::Removed(1)).unwrap();
    assert!(at(&Note::Written(2, 1)) < last_step && at(&Note::Cleared(3, clear)) < last_step, "others waited");
    assert!(!journal.contains(&Note::Written(1, 7)) || last_step < at(&Note::Written(1, 7)), "told too early");
    assert!(last_step < at(&Note::Written(1, 8)), "what was queued behind was told before: {journal:?}");
    flusher.shutdown(TIMEOUT).unwrap();
    let mut expected = cleared();
    expected.insert(80, "later".into());
    assert_eq!(values(&rig, 1), expected);
    assert!(rig.journal().contains(&Note::Synced(1, 8)));
}

#[test]
fn clear_advances_during_long_turns() {
    let rig = Rig::default();
    let flusher = rig.start(FlusherConfig { clear_rows: 1, write_rows_max: 1, ..lazy() });
    let handle = flusher.handle();
    fill(&handle, 1, 200);
    rig.set(|state| state.clear_steps = Some(0));
    handle.apply(space(1), Seq::new(7), clearing()).unwrap();
    rig.wait_for("the first step", |state| state.waiting);
    // All of it is taken in one turn.
    handle.apply(space(3), Seq::new(7), (0..200).map(|key| change(3, key, "much")).collect::<Vec<_>>()).unwrap();
    rig.set(|state| state.clear_steps = None);
    rig.wait_for("the clearing", |state| state.journal.contains(&Note::Written(1, 7)));
    let journal = rig.journal();
    let others = journal.iter().position(|note| *note == Note::Written(3, 7));
    let before = journal[..others.unwrap()].iter().filter(|note| **note == Note::Removed(1)).count();
    assert!(before >= 100, "{before} steps while 200 rows of another space were written");
    flusher.shutdown(TIMEOUT).unwrap();
    assert_eq!(values(&rig, 1), cleared());
}

#[test]
fn clear_interrupted_by_restart_is_repeated() {
    for steps in [0, 1, 40, 98] {
        let rig = Rig::default();
        let flusher = rig.start(FlusherConfig { clear_rows: 1, ..lazy() });
        fill(&flusher.handle(), 1, 200);
        rig.set(|state| state.clear_steps = Some(steps));
        flusher.handle().apply(space(1), Seq::new(7), clearing()).unwrap();
        put(&flusher.handle(), 1, 8, 80, "later");
        rig.wait_for("the step", |state| state.waiting);
        flusher.stop();
        rig.set(|state| state.clear_steps = None);
        flusher.shutdown(TIMEOUT).unwrap();
        let told = |note: &Note| matches!(note, Note::Written(1, _) | Note::Synced(1, _));
        assert!(!rig.journal().iter().any(told), "a position that was not reached: {:?}", rig.journal());
        // The log brings the same list, or a longer one.
        let flusher = rig.start(lazy());
        flusher.handle().apply(space(1), Seq::new(7), clearing()).unwrap();
        rig.wait_for("the list", |state| state.journal.contains(&Note::Written(1, 7)));
        flusher.shutdown(TIMEOUT).unwrap();
        assert_eq!(values(&rig, 1), cleared(), "after {steps} steps");
    }
}

pub(super) fn job(attempt: u64, range: KeyRange) -> FormJob {
    FormJob { attempt, from: space(1), to: space(2), range }
}

#[derive(Clone, Debug)]
enum Step {
    Put(u8, u8),
    Remove(u8, u8),
    Clear(u8, u8, Option<u8>),
    Give(u8),
    ClearSpace,
    Form(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let (of, key) = (0..2_u8, 0..12_u8);
    prop_oneof![
        6 => (of.clone(), key.clone()).prop_map(|(of, key)| Step::Put(of, key)),
        2 => (of.clone(), key.clone()).prop_map(|(of, key)| Step::Remove(of, key)),
        2 => (of.clone(), key.clone(), proptest::option::of(key.clone()))
            .prop_map(|(of, begin, end)| Step::Clear(of, begin, end)),
        4 => of.prop_map(Step::Give),
        1 => Just(Step::ClearSpace),
        1 => key.prop_map(Step::Form),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    /// Lists of two spaces follow each other without waiting, a third is cleared again and again, and copies are formed
    /// from the first: each space ends in the state of its entries, and its positions are reported in order.
    #[test]
    fn spaces_end_in_state_of_their_entries(
        steps in proptest::collection::vec(step(), 1..60),
        writes in proptest::collection::vec((0..12_u8, any::<bool>()), 0..30),
        write_rows_max in 1..4_usize,
    ) {
        let rig = Rig::default();
        let flusher = rig.start(FlusherConfig { clear_rows: 1, write_rows_max, write_bytes_max: 2_000, ..lazy() });
        let handle = flusher.handle();
        let mut memtables = [(); 2].map(|()| Memtable::new(Seq::ZERO, MemtableBudget::default()));
        let mut models: [BTreeMap<u8, String>; 2] = Default::default();
        let mut given = [0; 2];
        let give = |memtables: &mut [Memtable; 2], given: &mut [u64; 2], of: usize| {
            let Some(frozen) = memtables[of].freeze() else { return };
            given[of] = frozen.upto.get();
            memtables[of].flushed(frozen.upto);
            handle.apply(space(of as u64 + 1), frozen.upto, frozen).unwrap();
        };
        let mut attempt = 0;
        for (at, step) in (1..).zip(steps) {
            let text = format!("{at:09}");
            let (of, effect) = match step {
                Step::Put(of, key) => (of, Effect::new(Millis::new(at), vec![set(key, &text)])),
                Step::Remove(of, key) => {
                    (of, Effect::new(Millis::new(at), vec![RowChange::remove(row::value_key(&[key]))]))
                }
                Step::Clear(of, begin, end) => (of, reshape::clear(Millis::new(at), range(begin, end), Version::new(1))),
                Step::Give(of) => {
                    give(&mut memtables, &mut given, usize::from(of));
                    continue;
                }
                Step::ClearSpace => {
                    handle.clear(space(3)).unwrap();
                    continue;
                }
                Step::Form(begin) => {
                    attempt = at;
                    handle.form(FormJob { to: space(4), ..job(at, range(begin, None)) }).unwrap();
                    continue;
                }
            };
            let of = usize::from(of);
            models[of].retain(|key, _| !effect.clears(&row::value_key(&[*key])));
            for change in effect.changes.iter().filter(|change| change.key[0] == row::KIND_VALUE) {
                match &change.value {
                    Some(_) => models[of].insert(change.key[1], text.clone()),
                    None => models[of].remove(&change.key[1]),
                };
            }
            memtables[of].push(Seq::new(at), effect).unwrap();
            memtables[of].commit(Seq::new(at));
        }
        for (of, model) in models.iter().enumerate() {
            give(&mut memtables, &mut given, of);
            let (number, last) = (of as u64 + 1, given[of]);
            if last > 0 {
                rig.wait_for("the last list", |state| state.journal.contains(&Note::Written(number, last)));
            }
            prop_assert_eq!(&values(&rig, number), model);
            let told = rig.journal().into_iter().filter_map(|note| match note {
                Note::Written(told, upto) if told == number => Some(upto),
                _ => None,
            });
            prop_assert!(told.collect::<Vec<_>>().is_sorted(), "positions fall");
        }
        // The last copy is formed during further writes.
        let last = FormJob { to: space(4), ..job(attempt + 1_000, range(3, Some(9))) };
        handle.form(last.clone()).unwrap();
        for (at, (key, removed)) in (1_000..).zip(writes) {
            let key = row::value_key(&[key]);
            let change = match removed {
                true => RowChange::remove(key.clone()),
                false => RowChange::set(key.clone(), Bytes::from(format!("{at:09}"))),
            };
            models[0].remove(&key[1]);
            if !removed {
                models[0].insert(key[1], format!("{at:09}"));
            }
            let mut memtable = Memtable::new(Seq::new(at - 1), MemtableBudget::default());
            memtable.push(Seq::new(at), Effect::new(Millis::new(at), vec![change])).unwrap();
            memtable.commit(Seq::new(at));
            handle.apply(space(1), Seq::new(at), memtable.freeze().unwrap()).unwrap();
        }
        handle.end_form(last.from, last.to, END).unwrap();
        rig.wait_for("the last copy", |state| state.journal.contains(&Note::Formed(4, last.attempt)));
        let rows = rig.journal().iter().filter(|note| **note == Note::RowsFormed(4, last.attempt)).count();
        prop_assert_eq!(rows, 1);
        let mut part = models[0].clone();
        part.retain(|key, _| (3..9).contains(key));
        prop_assert_eq!(values(&rig, 4), part);
        flusher.shutdown(TIMEOUT).unwrap();
    }
}

/// The clearing would meet it again after each start, and end the node.
#[test]
fn damage_met_by_clear_sets_engine_aside_at_next_start() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("engine");
    let config = EngineConfig { kind: Some(EngineKind::Lsm), ..EngineConfig::default() };
    let (engine, _) = open_or_quarantine(&directory, &config).unwrap();
    let rows: Vec<_> = (0..200).map(|key| change(1, key, &"x".repeat(500))).collect();
    engine.write(&rows).unwrap();
    engine.sync().unwrap();
    drop(engine);
    for table in std::fs::read_dir(directory.join("tree/tables")).unwrap() {
        let path = table.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[100] ^= 1;
        std::fs::write(&path, bytes).unwrap();
    }
    let (engine, aside) = open_or_quarantine(&directory, &config).unwrap();
    assert_eq!(aside, None, "opening the engine meets the damage already");
    let (failed, end) = std::sync::mpsc::channel();
    let on_event = move |event| match event {
        FlushEvent::Failed(error) => failed.send(error.is_damage()).unwrap(),
        other => panic!("{other:?}"),
    };
    let flusher = Flusher::start(engine, lazy(), on_event, || ()).unwrap();
    flusher.handle().clear(space(1)).unwrap();
    assert_eq!(end.recv_timeout(TIMEOUT), Ok(true));
    flusher.shutdown(TIMEOUT).unwrap();
    let (_, aside) = open_or_quarantine(&directory, &config).unwrap();
    assert!(aside.is_some());
}

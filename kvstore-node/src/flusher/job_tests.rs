//! What goes in steps: ranges that are cleared, and copies that are formed.

use super::tests::{Note, Rig, TIMEOUT, change, lazy, put, space};
use super::*;
use crate::engine::PageLimit;
use archon_kv::{Effect, Memtable, MemtableBudget, RowChange, reshape, row};
use archon_replica::Position;
use archon_types::{Epoch, KeyRange, Millis, ScanOrder, Version};
use bytes::Bytes;
use proptest::prelude::*;
use std::ops::Bound;

fn range(begin: u8, end: Option<u8>) -> KeyRange {
    let bound = |number: u8| Bytes::from(vec![number]);
    KeyRange { begin: bound(begin), end: end.map(bound) }
}

fn set(key: u8, value: &str) -> RowChange {
    RowChange::set(row::value_key(&[key]), Bytes::copy_from_slice(value.as_bytes()))
}

/// Where copies end.
const END: Position = Position::new(Epoch::new(3), Seq::new(40));

/// Users' rows of a space: their keys and values.
fn values(rig: &Rig, number: u64) -> BTreeMap<u8, String> {
    let limit = PageLimit::bytes(usize::MAX);
    let users = (Bound::Included(&[row::KIND_VALUE][..]), Bound::Excluded(&[row::KIND_VALUE + 1][..]));
    let page = rig.page(space(number), users, ScanOrder::Ascending, limit).unwrap();
    page.rows.into_iter().map(|row| (row.key[1], String::from_utf8_lossy(&row.value).into())).collect()
}

fn fill(handle: &FlusherHandle, number: u64, rows: u8) {
    let rows: Vec<_> = (0..rows).map(|key| change(number, key, "old")).collect();
    handle.apply(space(number), Seq::ZERO, rows).unwrap();
}

/// A list that clears and writes, up to position 7.
fn clearing() -> Frozen {
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
fn a_range_is_cleared_beside_other_work_and_its_space_waits() {
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
fn a_clearing_had_one_step_per_memtable_of_others_and_held_its_space_up() {
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
fn a_clearing_that_a_restart_interrupted_is_carried_out_again() {
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
        // The log brings the same list, or one that holds more.
        let flusher = rig.start(lazy());
        flusher.handle().apply(space(1), Seq::new(7), clearing()).unwrap();
        rig.wait_for("the list", |state| state.journal.contains(&Note::Written(1, 7)));
        flusher.shutdown(TIMEOUT).unwrap();
        assert_eq!(values(&rig, 1), cleared(), "after {steps} steps");
    }
}

fn job(attempt: u64, range: KeyRange) -> FormJob {
    FormJob { attempt, from: space(1), to: space(2), range }
}

/// Forms a copy that ends where its source is now.
fn form(handle: &FlusherHandle, job: FormJob) -> Result<(), FlusherError> {
    let (from, to) = (job.from, job.to);
    handle.form(job)?;
    handle.end_form(from, to, END)
}

/// A source of 200 rows, and remains in the space of the copy.
fn source(rig: &Rig, config: FlusherConfig) -> Flusher {
    let flusher = rig.start(config);
    fill(&flusher.handle(), 1, 200);
    fill(&flusher.handle(), 2, 20);
    let (done, written) = std::sync::mpsc::channel();
    flusher.handle().barrier(Box::new(move || done.send(()).unwrap_or_default())).unwrap();
    written.recv_timeout(TIMEOUT).unwrap();
    flusher
}

fn position(rig: &Rig, number: u64) -> Option<Bytes> {
    rig.get(space(number), row::POSITION_KEY).unwrap()
}

#[test]
fn a_copy_is_formed_beside_other_work_and_told_once_it_is_on_the_disk() {
    let rig = Rig::default();
    let flusher = source(&rig, FlusherConfig { clear_rows: 1, ..lazy() });
    let handle = flusher.handle();
    rig.set(|state| state.clear_steps = Some(3));
    form(&handle, job(5, range(100, None))).unwrap();
    rig.wait_for("the fourth step", |state| state.waiting);
    put(&handle, 3, 1, 0, "a");
    // The source goes on as well, beside the range.
    put(&handle, 1, 50, 0, "new");
    rig.set(|state| state.clear_steps = None);
    rig.wait_for("the copy", |state| state.journal.contains(&Note::Formed(2, 5)));
    let journal = rig.journal();
    let at = |wanted: &Note| journal.iter().position(|note| note == wanted).unwrap();
    assert!(at(&Note::Written(3, 1)) < at(&Note::Formed(2, 5)) && at(&Note::Written(1, 50)) < at(&Note::Formed(2, 5)));
    let last_write = journal.iter().rposition(|note| matches!(note, Note::Write(_))).unwrap();
    assert!(journal[last_write..at(&Note::Formed(2, 5))].contains(&Note::Sync), "not on the disk: {journal:?}");
    assert_eq!(values(&rig, 2).into_keys().collect::<Vec<_>>(), (100..200).collect::<Vec<_>>());
    assert_eq!(position(&rig, 2), Some(row::encode_position(Seq::new(40))));
    flusher.shutdown(TIMEOUT).unwrap();
}

#[test]
fn a_copy_that_is_given_up_is_not_told_and_not_formed_where_somebody_cleared() {
    let rig = Rig::default();
    let flusher = source(&rig, FlusherConfig { clear_rows: 1, ..lazy() });
    let handle = flusher.handle();
    rig.set(|state| state.clear_steps = Some(3));
    form(&handle, job(5, range(100, None))).unwrap();
    rig.wait_for("the fourth step", |state| state.waiting);
    handle.stop_form(space(2)).unwrap();
    let clear = handle.clear(space(2)).unwrap();
    rig.set(|state| state.clear_steps = None);
    rig.wait_for("the clearing", |state| state.journal.contains(&Note::Cleared(2, clear)));
    assert_eq!((values(&rig, 2).len(), position(&rig, 2)), (0, None));
    // Whoever asked for that has the space: nothing is formed there any more.
    assert_eq!(form(&handle, job(6, range(0, None))), Err(FlusherError::Clearing { space: space(2) }));
    assert!(handle.was_cleared(space(2)) && !handle.was_cleared(space(4)));
    // In place of one that is under way, and by a clearing alone.
    let fourth = |attempt, keys| FormJob { to: space(4), ..job(attempt, keys) };
    rig.set(|state| state.clear_steps = Some(0));
    form(&handle, fourth(6, range(0, None))).unwrap();
    rig.wait_for("the first step", |state| state.waiting);
    form(&handle, fourth(7, range(190, None))).unwrap();
    rig.set(|state| state.clear_steps = None);
    rig.wait_for("the copy", |state| state.journal.contains(&Note::Formed(4, 7)));
    assert_eq!(values(&rig, 4).len(), 10);
    rig.set(|state| state.clear_steps = Some(0));
    form(&handle, fourth(8, range(0, None))).unwrap();
    rig.wait_for("the first step", |state| state.waiting);
    let clear = handle.clear(space(4)).unwrap();
    rig.set(|state| state.clear_steps = None);
    rig.wait_for("the clearing", |state| state.journal.contains(&Note::Cleared(4, clear)));
    flusher.shutdown(TIMEOUT).unwrap();
    let formed = rig.journal().into_iter().filter(|note| matches!(note, Note::Formed(..)));
    assert_eq!(formed.collect::<Vec<_>>(), [Note::Formed(4, 7)]);
    assert_eq!(values(&rig, 4).len(), 0);
}

#[test]
fn a_copy_that_a_restart_interrupted_is_formed_anew() {
    for steps in [0, 1, 10, 19] {
        let rig = Rig::default();
        let flusher = source(&rig, FlusherConfig { clear_rows: 1, ..lazy() });
        rig.set(|state| state.clear_steps = Some(steps));
        form(&flusher.handle(), job(5, range(50, None))).unwrap();
        rig.wait_for("the step", |state| state.waiting);
        flusher.stop();
        rig.set(|state| state.clear_steps = None);
        flusher.shutdown(TIMEOUT).unwrap();
        let flusher = rig.start(lazy());
        form(&flusher.handle(), job(6, range(100, Some(120)))).unwrap();
        rig.wait_for("the copy", |state| state.journal.contains(&Note::Formed(2, 6)));
        flusher.shutdown(TIMEOUT).unwrap();
        assert_eq!(values(&rig, 2).into_keys().collect::<Vec<_>>(), (100..120).collect::<Vec<_>>());
    }
}

#[test]
fn a_copy_is_not_formed_from_what_is_cleared_meanwhile() {
    for whole in [true, false] {
        let rig = Rig::default();
        let flusher = source(&rig, FlusherConfig { clear_rows: 1, ..lazy() });
        let handle = flusher.handle();
        rig.set(|state| state.clear_steps = Some(3));
        form(&handle, job(5, range(100, None))).unwrap();
        rig.wait_for("the fourth step", |state| state.waiting);
        let done = match whole {
            true => Note::Cleared(1, handle.clear(space(1)).unwrap()),
            false => {
                handle.apply(space(1), Seq::new(7), clearing()).unwrap();
                Note::Written(1, 7)
            }
        };
        rig.set(|state| state.clear_steps = None);
        rig.wait_for("the clearing", |state| state.journal.contains(&done));
        flusher.shutdown(TIMEOUT).unwrap();
        assert!(!rig.journal().contains(&Note::Formed(2, 5)), "it lacks what was cleared");
        assert!(rig.journal().contains(&Note::Spoilt(2, 5)), "whoever waits for it waited for ever");
        assert_eq!(position(&rig, 2), None);
    }
}

#[test]
fn one_damaged_row_ended_the_node_that_formed_a_copy_of_it_or_cleared_it() {
    for forms in [true, false] {
        let rig = Rig::default();
        let flusher = source(&rig, lazy());
        let handle = flusher.handle();
        rig.set(|state| state.damaged = Some(1));
        match forms {
            true => handle.form(job(5, range(100, None))).unwrap(),
            false => handle.apply(space(1), Seq::new(7), clearing()).unwrap(),
        }
        rig.wait_for("the word of it", |state| state.journal.contains(&Note::Damaged(1)));
        put(&handle, 3, 1, 0, "a");
        rig.wait_for("what others write", |state| state.journal.contains(&Note::Written(3, 1)));
        assert!(!rig.journal().contains(&Note::Failed));
        flusher.shutdown(TIMEOUT).unwrap();
    }
}

#[test]
fn damage_where_a_copy_was_to_be_formed_cost_the_healthy_one_that_it_is_formed_from() {
    let rig = Rig::default();
    let flusher = source(&rig, lazy());
    rig.set(|state| state.damaged = Some(2));
    flusher.handle().form(job(5, range(100, None))).unwrap();
    rig.wait_for("the word of it", |state| state.journal.contains(&Note::Damaged(2)));
    assert!(!rig.journal().contains(&Note::Damaged(1)));
    flusher.shutdown(TIMEOUT).unwrap();
}

#[test]
fn a_copy_that_had_waited_with_its_end_for_its_source_never_ended() {
    let rig = Rig::default();
    let flusher = source(&rig, lazy());
    let handle = flusher.handle();
    rig.set(|state| state.clear_steps = Some(0));
    handle.apply(space(1), Seq::new(7), clearing()).unwrap();
    rig.wait_for("the clearing", |state| state.waiting);
    handle.form(job(5, range(180, None))).unwrap();
    handle.end_form(space(1), space(2), END).unwrap();
    rig.set(|state| state.clear_steps = None);
    rig.wait_for("the copy", |state| state.journal.contains(&Note::Formed(2, 5)));
    flusher.shutdown(TIMEOUT).unwrap();
}

#[test]
fn a_copy_follows_its_source_until_its_end_is_known() {
    let rig = Rig::default();
    let flusher = source(&rig, lazy());
    let handle = flusher.handle();
    handle.form(job(5, range(100, None))).unwrap();
    rig.wait_for("the rows", |state| state.journal.contains(&Note::RowsFormed(2, 5)));
    put(&handle, 1, 7, 150, "new");
    put(&handle, 1, 8, 20, "beside");
    rig.wait_for("the row", |state| state.journal.contains(&Note::Written(1, 8)));
    assert_eq!((values(&rig, 2)[&150].as_str(), position(&rig, 2)), ("new", None));
    handle.end_form(space(1), space(2), END).unwrap();
    put(&handle, 1, 9, 151, "later");
    rig.wait_for("the copy", |state| state.journal.contains(&Note::Formed(2, 5)));
    put(&handle, 1, 10, 152, "after it was told");
    rig.wait_for("the row", |state| state.journal.contains(&Note::Written(1, 10)));
    let formed = values(&rig, 2);
    assert_eq!((formed[&152].as_str(), formed.len()), ("old", 100));
    flusher.shutdown(TIMEOUT).unwrap();
}

#[test]
fn a_copy_had_one_step_per_memtable_and_never_gained_on_whoever_wrote() {
    let rig = Rig::default();
    let flusher = source(&rig, FlusherConfig { write_rows_max: 1, ..lazy() });
    let handle = flusher.handle();
    rig.set(|state| state.clear_steps = Some(0));
    handle.form(job(5, range(180, None))).unwrap();
    rig.wait_for("the copy's beginning", |state| state.waiting);
    // All of it is taken in one turn.
    let list = (0..5_000).map(|number| change(3, (number % 200) as u8, "much")).collect::<Vec<_>>();
    handle.apply(space(3), Seq::new(7), list).unwrap();
    rig.set(|state| state.clear_steps = None);
    rig.wait_for("the list", |state| state.journal.contains(&Note::Written(3, 7)));
    assert!(rig.journal().contains(&Note::RowsFormed(2, 5)), "the copy waited for all of the list");
    flusher.shutdown(TIMEOUT).unwrap();
}

#[test]
fn what_begins_in_a_turn_comes_after_the_rows_that_were_queued_before_it() {
    let rig = Rig::default();
    let flusher = source(&rig, FlusherConfig { write_rows_max: 1, ..lazy() });
    let handle = flusher.handle();
    rig.set(|state| state.held = true);
    put(&handle, 4, 1, 0, "all else waits");
    rig.wait_for("the first row", |state| state.waiting);
    // All of it is taken in one turn.
    fill(&handle, 2, 100);
    handle.form(job(5, range(180, None))).unwrap();
    fill(&handle, 3, 100);
    let clear = handle.clear(space(3)).unwrap();
    rig.set(|state| state.held = false);
    rig.wait_for("the clearing", |state| state.journal.contains(&Note::Cleared(3, clear)));
    rig.wait_for("the rows", |state| state.journal.contains(&Note::RowsFormed(2, 5)));
    assert!(values(&rig, 2).into_keys().eq(180..200) && values(&rig, 3).is_empty());
    flusher.shutdown(TIMEOUT).unwrap();
}

#[test]
fn a_copy_ends_behind_what_waits_for_its_source() {
    let rig = Rig::default();
    let flusher = source(&rig, FlusherConfig { clear_rows: 1, ..lazy() });
    let handle = flusher.handle();
    handle.form(job(5, range(150, None))).unwrap();
    rig.wait_for("the rows", |state| state.journal.contains(&Note::RowsFormed(2, 5)));
    rig.set(|state| state.clear_steps = Some(3));
    handle.apply(space(1), Seq::new(7), clearing()).unwrap();
    rig.wait_for("the fourth step", |state| state.waiting);
    // It waits for the clearing, and the end of the copy for it.
    put(&handle, 1, 8, 180, "later");
    handle.end_form(space(1), space(2), END).unwrap();
    rig.set(|state| state.clear_steps = None);
    rig.wait_for("the copy", |state| state.journal.contains(&Note::Formed(2, 5)));
    let formed = values(&rig, 2);
    assert_eq!((formed[&180].as_str(), formed[&200].as_str()), ("later", "after"));
    flusher.shutdown(TIMEOUT).unwrap();
}

#[test]
fn a_copy_that_nobody_waited_for_filled_the_disk_so_that_not_even_its_space_could_be_cleared() {
    let rig = Rig::default();
    rig.set(|state| state.tight = true);
    let flusher = source(&rig, FlusherConfig { clear_rows: 8, ..lazy() });
    let handle = flusher.handle();
    handle.form(job(5, range(0, None))).unwrap();
    put(&handle, 3, 1, 0, "a");
    rig.wait_for("what others write", |state| state.journal.contains(&Note::Written(3, 1)));
    assert_eq!(values(&rig, 2).len(), 20, "not even emptied");
    handle.stop_form(space(2)).unwrap();
    let clear = handle.clear(space(2)).unwrap();
    rig.wait_for("the clearing", |state| state.journal.contains(&Note::Cleared(2, clear)));
    // With space again it is formed.
    handle.form(FormJob { to: space(4), ..job(6, range(0, None)) }).unwrap();
    rig.set(|state| state.tight = false);
    rig.wait_for("the rows", |state| state.journal.contains(&Note::RowsFormed(4, 6)));
    flusher.shutdown(TIMEOUT).unwrap();
}

#[test]
fn a_copy_waits_for_space_on_the_disk() {
    let rig = Rig::default();
    let flusher = source(&rig, lazy());
    rig.set(|state| state.full = true);
    form(&flusher.handle(), job(5, range(100, None))).unwrap();
    put(&flusher.handle(), 3, 1, 0, "a");
    let until = Instant::now() + TIMEOUT;
    while !flusher.handle().is_disk_full() {
        assert!(Instant::now() < until, "nobody looked at the disk");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!((position(&rig, 2), values(&rig, 3).len()), (None, 0));
    rig.set(|state| state.full = false);
    rig.wait_for("the copy", |state| state.journal.contains(&Note::Formed(2, 5)));
    assert_eq!(values(&rig, 2).len(), 100);
    flusher.shutdown(TIMEOUT).unwrap();
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

    /// Lists of two spaces follow each other without waiting, a third is cleared again and again, and copies are formed from
    /// the first: each space ends in what its entries say, and its positions are told in order.
    #[test]
    fn spaces_end_in_what_their_entries_say(
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
        // The last copy is formed while more is written.
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

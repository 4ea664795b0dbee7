//! Tests of forming copies, step by step.

use super::job_tests::{END, clearing, fill, job, range, values};
use super::rig::{Note, Rig, TIMEOUT, change, lazy, put, space};
use super::*;
use archon_kv::row;
use bytes::Bytes;

/// Forms a copy that ends at the present state of its source.
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

fn wait_formed(rig: &Rig, number: u64, attempt: u64) {
    rig.wait_for("the copy", |state| state.journal.contains(&Note::Formed(number, attempt)));
}

fn wait_rows_formed(rig: &Rig, number: u64, attempt: u64) {
    rig.wait_for("the rows", |state| state.journal.contains(&Note::RowsFormed(number, attempt)));
}

fn position(rig: &Rig, number: u64) -> Option<Bytes> {
    rig.get(space(number), row::POSITION_KEY).unwrap()
}

#[test]
fn forming_runs_beside_other_work_and_is_reported_durable() {
    let rig = Rig::default();
    let flusher = source(&rig, FlusherConfig { clear_rows: 1, ..lazy() });
    let handle = flusher.handle();
    rig.set(|state| state.clear_steps = Some(3));
    form(&handle, job(5, range(100, None))).unwrap();
    rig.wait_for("the fourth step", |state| state.waiting);
    put(&handle, 3, 1, 0, "a");
    // Writes to the source continue as well, outside the range.
    put(&handle, 1, 50, 0, "new");
    rig.set(|state| state.clear_steps = None);
    wait_formed(&rig, 2, 5);
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
fn abandoned_form_is_not_reported() {
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
    // The space has an owner since the clearing: no copy is formed there any longer.
    assert_eq!(form(&handle, job(6, range(0, None))), Err(FlusherError::Clearing { space: space(2) }));
    assert!(handle.was_cleared(space(2)) && !handle.was_cleared(space(4)));
    // In place of one in progress, and by a clearing alone.
    let fourth = |attempt, keys| FormJob { to: space(4), ..job(attempt, keys) };
    rig.set(|state| state.clear_steps = Some(0));
    form(&handle, fourth(6, range(0, None))).unwrap();
    rig.wait_for("the first step", |state| state.waiting);
    form(&handle, fourth(7, range(190, None))).unwrap();
    rig.set(|state| state.clear_steps = None);
    wait_formed(&rig, 4, 7);
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
fn form_interrupted_by_restart_starts_over() {
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
        wait_formed(&rig, 2, 6);
        flusher.shutdown(TIMEOUT).unwrap();
        assert_eq!(values(&rig, 2).into_keys().collect::<Vec<_>>(), (100..120).collect::<Vec<_>>());
    }
}

#[test]
fn form_is_spoilt_by_clear_of_source() {
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
fn damaged_row_fails_its_copy_not_the_node() {
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
fn damage_in_target_space_spares_source_copy() {
    let rig = Rig::default();
    let flusher = source(&rig, lazy());
    rig.set(|state| state.damaged = Some(2));
    flusher.handle().form(job(5, range(100, None))).unwrap();
    rig.wait_for("the word of it", |state| state.journal.contains(&Note::Damaged(2)));
    assert!(!rig.journal().contains(&Note::Damaged(1)));
    flusher.shutdown(TIMEOUT).unwrap();
}

#[test]
fn form_end_queued_behind_source_is_processed() {
    let rig = Rig::default();
    let flusher = source(&rig, lazy());
    let handle = flusher.handle();
    rig.set(|state| state.clear_steps = Some(0));
    handle.apply(space(1), Seq::new(7), clearing()).unwrap();
    rig.wait_for("the clearing", |state| state.waiting);
    handle.form(job(5, range(180, None))).unwrap();
    handle.end_form(space(1), space(2), END).unwrap();
    rig.set(|state| state.clear_steps = None);
    wait_formed(&rig, 2, 5);
    flusher.shutdown(TIMEOUT).unwrap();
}

#[test]
fn form_mirrors_source_until_its_end() {
    let rig = Rig::default();
    let flusher = source(&rig, lazy());
    let handle = flusher.handle();
    handle.form(job(5, range(100, None))).unwrap();
    wait_rows_formed(&rig, 2, 5);
    put(&handle, 1, 7, 150, "new");
    put(&handle, 1, 8, 20, "beside");
    rig.wait_for("the row", |state| state.journal.contains(&Note::Written(1, 8)));
    assert_eq!((values(&rig, 2)[&150].as_str(), position(&rig, 2)), ("new", None));
    handle.end_form(space(1), space(2), END).unwrap();
    put(&handle, 1, 9, 151, "later");
    wait_formed(&rig, 2, 5);
    put(&handle, 1, 10, 152, "after it was told");
    rig.wait_for("the row", |state| state.journal.contains(&Note::Written(1, 10)));
    let formed = values(&rig, 2);
    assert_eq!((formed[&152].as_str(), formed.len()), ("old", 100));
    flusher.shutdown(TIMEOUT).unwrap();
}

/// The copy rests between its steps, so that a busy machine may delay one beyond the turn.
#[test]
fn form_advances_during_long_turns() {
    assert!((0..5).any(|_| is_formed_during_long_turn()), "the copy waited for all of the list, five times");
}

/// Writes a long list beside a copy in progress; returns true if the copy was formed before the end of the list.
fn is_formed_during_long_turn() -> bool {
    let rig = Rig::default();
    let flusher = source(&rig, FlusherConfig { write_rows_max: 1, ..lazy() });
    let handle = flusher.handle();
    rig.set(|state| state.clear_steps = Some(0));
    handle.form(job(5, range(180, None))).unwrap();
    rig.wait_for("the copy's beginning", |state| state.waiting);
    // All of it is taken in one turn, which lasts much longer than the steps of the copy and the rests between them.
    let list = (0..200_000).map(|number| change(3, (number % 200) as u8, "much")).collect::<Vec<_>>();
    handle.apply(space(3), Seq::new(7), list).unwrap();
    rig.set(|state| state.clear_steps = None);
    rig.wait_for("the list", |state| state.journal.contains(&Note::Written(3, 7)));
    let formed = rig.journal().contains(&Note::RowsFormed(2, 5));
    flusher.shutdown(TIMEOUT).unwrap();
    formed
}

#[test]
fn job_begins_after_rows_queued_before_it() {
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
    wait_rows_formed(&rig, 2, 5);
    assert!(values(&rig, 2).into_keys().eq(180..200) && values(&rig, 3).is_empty());
    flusher.shutdown(TIMEOUT).unwrap();
}

#[test]
fn form_ends_after_work_waiting_for_source() {
    let rig = Rig::default();
    let flusher = source(&rig, FlusherConfig { clear_rows: 1, ..lazy() });
    let handle = flusher.handle();
    handle.form(job(5, range(150, None))).unwrap();
    wait_rows_formed(&rig, 2, 5);
    rig.set(|state| state.clear_steps = Some(3));
    handle.apply(space(1), Seq::new(7), clearing()).unwrap();
    rig.wait_for("the fourth step", |state| state.waiting);
    // It waits for the clearing, and the end of the copy waits for it.
    put(&handle, 1, 8, 180, "later");
    handle.end_form(space(1), space(2), END).unwrap();
    rig.set(|state| state.clear_steps = None);
    wait_formed(&rig, 2, 5);
    let formed = values(&rig, 2);
    assert_eq!((formed[&180].as_str(), formed[&200].as_str()), ("later", "after"));
    flusher.shutdown(TIMEOUT).unwrap();
}

#[test]
fn form_without_waiters_pauses_when_space_is_short() {
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
    wait_rows_formed(&rig, 4, 6);
    flusher.shutdown(TIMEOUT).unwrap();
}

#[test]
fn form_waits_for_disk_space() {
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
    wait_formed(&rig, 2, 5);
    assert_eq!(values(&rig, 2).len(), 100);
    flusher.shutdown(TIMEOUT).unwrap();
}

//! Tests of the flusher: order, positions, syncs, a full queue and a full disk.

use super::rig::{DISK_FULL, Note, Rig, TIMEOUT, change, lazy, put, space};
use super::*;
use archon_kv::row::{self, Outcome};
use archon_kv::{Effect, Memtable, MemtableBudget, Record, RowChange, ViewError, Window};
use archon_testkit::{check, wait_for};
use archon_types::{ClientId, Millis};
use bytes::Bytes;

#[test]
fn effects_arrive_in_order_before_their_position() {
    let rig = Rig::default();
    let flusher = rig.start(lazy());
    let handle = flusher.handle();
    rig.set(|state| state.held = true);
    for seq in 1..=50 {
        put(&handle, 1, seq, 0, &seq.to_string());
        put(&handle, 2, seq + 100, (seq % 7) as u8, &seq.to_string());
    }
    rig.set(|state| state.held = false);
    flusher.shutdown(TIMEOUT).unwrap();
    assert_eq!(rig.get(space(1), &[1, 0]).unwrap().unwrap(), "50");
    assert_eq!(rig.get(space(2), &[1, 1]).unwrap().unwrap(), "50");
    let journal = rig.journal();
    let at = |wanted: &Note| journal.iter().rposition(|note| note == wanted).unwrap();
    let last_write = journal.iter().rposition(|note| matches!(note, Note::Write(_))).unwrap();
    assert!(last_write < at(&Note::Written(1, 50)));
    assert!(at(&Note::Written(2, 150)) < at(&Note::Sync));
    assert!(at(&Note::Sync) < at(&Note::Synced(1, 50)) && at(&Note::Sync) < at(&Note::Synced(2, 150)));
    let writes = journal.iter().filter(|note| matches!(note, Note::Write(_))).count();
    assert!(writes <= 3, "what waits must go in one write: {journal:?}");
}

#[test]
fn memtable_rows_arrive_in_order_before_their_position() {
    let rig = Rig::default();
    let flusher = rig.start(lazy());
    let mut memtable = Memtable::new(Seq::ZERO, MemtableBudget::default());
    for seq in 1..=200 {
        // User rows and windows of many clients, unordered.
        let client = ClientId::new(uuid::Uuid::from_u128(u128::from(seq * 7_919 % 211)));
        let put = RowChange::set(row::value_key(&[(seq * 31 % 199) as u8]), Bytes::from_static(b"row"));
        let record = Some(Record { client, number: seq, done_below: 0, outcome: Outcome::NotANumber });
        let effect = Effect { record, ..Effect::new(Millis::new(seq), vec![put]) };
        memtable.push(Seq::new(seq), effect).unwrap();
    }
    memtable.commit(Seq::new(200));
    let frozen = memtable.freeze().unwrap();
    let engine = archon_kv::MemoryEngine::new();
    let rows = frozen.changes(&engine, space(1)).collect::<Result<Vec<_>, _>>().unwrap();
    assert!(rows.len() >= 400 && rows.is_sorted_by_key(|row| row.key.clone()), "{} rows", rows.len());
    flusher.handle().apply(space(1), frozen.upto, frozen).unwrap();
    rig.wait_for("the write", |state| state.journal.contains(&Note::Written(1, 200)));
    for row in &rows {
        assert_eq!(rig.get(space(1), &row.key).unwrap(), row.value);
    }
    flusher.handle().let_go(memtable.flushed(Seq::new(200)).unwrap());
    flusher.shutdown(TIMEOUT).unwrap();
}

/// Records of operations of one client, at the position of their number.
fn recording(client: ClientId, numbers: std::ops::RangeInclusive<u64>) -> Memtable {
    let mut memtable = Memtable::new(Seq::new(numbers.start() - 1), MemtableBudget::default());
    for number in numbers.clone() {
        let record = Some(Record { client, number, done_below: 0, outcome: Outcome::NotANumber });
        let effect = Effect { record, ..Effect::new(Millis::new(number), Vec::new()) };
        memtable.push(Seq::new(number), effect).unwrap();
    }
    memtable.commit(Seq::new(*numbers.end()));
    memtable
}

#[test]
fn flushed_records_are_joined_with_window_of_engine() {
    let rig = Rig::default();
    let flusher = rig.start(lazy());
    let client = ClientId::new(uuid::Uuid::from_u128(9));
    for numbers in [1..=3, 4..=5] {
        let upto = *numbers.end();
        let frozen = recording(client, numbers).freeze().unwrap();
        flusher.handle().apply(space(1), frozen.upto, frozen).unwrap();
        rig.wait_for("the write", |state| state.journal.contains(&Note::Written(1, upto)));
    }
    let row = rig.get(space(1), &row::client_key(client)).unwrap().unwrap();
    let window = Window::decode(&row).unwrap();
    assert_eq!((window.created, window.last, window.outcomes_from(0)), (Millis::new(1), Millis::new(5), 5));
    flusher.shutdown(TIMEOUT).unwrap();
}

#[test]
fn malformed_window_costs_its_copy_only() {
    let rig = Rig::default();
    let flusher = rig.start(lazy());
    let client = ClientId::new(uuid::Uuid::from_u128(9));
    let malformed = Change { space: space(1), key: row::client_key(client), value: Some(Bytes::from_static(b"?")) };
    flusher.handle().apply(space(1), Seq::ZERO, vec![malformed]).unwrap();
    rig.wait_for("the row", |state| state.journal.contains(&Note::Write(1)));
    for number in [1, 2] {
        let frozen = recording(client, 1..=3).freeze().unwrap();
        flusher.handle().apply(space(number), frozen.upto, frozen).unwrap();
    }
    rig.wait_for("the other copy", |state| state.journal.contains(&Note::Written(2, 3)));
    let journal = rig.journal();
    assert!(journal.contains(&Note::Damaged(1)) && !journal.contains(&Note::Written(1, 3)), "{journal:?}");
    flusher.shutdown(TIMEOUT).unwrap();
}

#[test]
fn full_queue_returns_changes_and_accepts_them_later() {
    let rig = Rig::default();
    let flusher = rig.start(FlusherConfig { queue_bytes_max: 1_000, ..lazy() });
    let handle = flusher.handle();
    rig.set(|state| state.held = true);
    put(&handle, 1, 1, 0, "a");
    rig.wait_for("the first write", |state| state.waiting);
    let large = "x".repeat(5_000);
    put(&handle, 1, 2, 0, &large);
    let (error, back) = handle.apply(space(1), Seq::new(3), vec![change(1, 1, "b")]).unwrap_err();
    assert!(matches!(error, FlusherError::Full { max: 1_000, .. }), "{error}");
    assert!(matches!(&back, FlushRows::Changes(rows) if *rows == [change(1, 1, "b")]), "{back:?}");
    rig.set(|state| state.held = false);
    rig.wait_for("the second write", |state| state.journal.contains(&Note::Written(1, 2)));
    handle.apply(space(1), Seq::new(3), back).unwrap();
    flusher.shutdown(TIMEOUT).unwrap();
    assert!(rig.journal().contains(&Note::Synced(1, 3)));
}

#[test]
fn flusher_syncs_by_time_bytes_and_on_demand() {
    let rig = Rig::default();
    let flusher = rig.start(FlusherConfig { sync_interval: Some(Duration::from_millis(10)), ..lazy() });
    put(&flusher.handle(), 1, 1, 0, "a");
    rig.wait_for("the sync by time", |state| state.journal.contains(&Note::Synced(1, 1)));
    flusher.shutdown(TIMEOUT).unwrap();

    let rig = Rig::default();
    let flusher = rig.start(FlusherConfig { sync_bytes: 2_000, ..lazy() });
    let handle = flusher.handle();
    put(&handle, 1, 1, 0, "a");
    rig.wait_for("the write", |state| state.journal.contains(&Note::Written(1, 1)));
    assert!(!rig.journal().contains(&Note::Sync));
    put(&handle, 1, 2, 0, &"x".repeat(2_000));
    rig.wait_for("the sync by bytes", |state| state.journal.contains(&Note::Synced(1, 2)));
    put(&handle, 1, 3, 0, "b");
    let seen = rig.clone();
    handle.barrier(Box::new(move || seen.note(Note::Write(999)))).unwrap();
    rig.wait_for("the barrier", |state| state.journal.contains(&Note::Write(999)));
    let journal = rig.journal();
    let at = |wanted: &Note| journal.iter().position(|note| note == wanted).unwrap();
    assert!(at(&Note::Synced(1, 3)) < at(&Note::Write(999)));
    flusher.shutdown(TIMEOUT).unwrap();
}

#[test]
fn page_of_a_copy_is_written_without_position() {
    let rig = Rig::default();
    let flusher = rig.start(lazy());
    flusher.handle().apply(space(1), Seq::ZERO, vec![change(1, 0, "a")]).unwrap();
    flusher.shutdown(TIMEOUT).unwrap();
    assert_eq!(rig.journal(), [Note::Write(1), Note::Sync]);
}

#[test]
fn clear_runs_beside_other_work_and_closes_its_space() {
    let rig = Rig::default();
    let flusher = rig.start(FlusherConfig { clear_rows: 1, ..lazy() });
    let handle = flusher.handle();
    rig.set(|state| state.held = true);
    let rows: Vec<_> = (0..200).map(|key| change(1, key, "x")).collect();
    handle.apply(space(1), Seq::new(1), rows).unwrap();
    let clear = handle.clear(space(1)).unwrap();
    assert_eq!(handle.clear(space(1)), Ok(clear), "it is under way");
    assert_ne!(handle.clear(space(3)), Ok(clear));
    let (error, _) = handle.apply(space(1), Seq::new(2), vec![]).unwrap_err();
    assert_eq!(error, FlusherError::Clearing { space: space(1) });
    put(&handle, 2, 1, 0, "a");
    rig.set(|state| state.held = false);
    rig.wait_for("the clearing", |state| state.journal.contains(&Note::Cleared(1, clear)));
    let journal = rig.journal();
    let at = |wanted: &Note| journal.iter().position(|note| note == wanted).unwrap();
    assert!(at(&Note::Written(2, 1)) < at(&Note::Cleared(1, clear)), "clearing held up other work: {journal:?}");
    assert_eq!(
        journal[at(&Note::Cleared(1, clear)) - 1..][..1],
        [Note::Synced(2, 1)],
        "cleared but not synced: {journal:?}"
    );
    assert_eq!(journal.iter().filter(|note| **note == Note::Cleared(1, clear)).count(), 1);
    assert_eq!(rig.spaces().unwrap(), [space(2)]);
    flusher.shutdown(TIMEOUT).unwrap();
}

#[test]
fn queue_drained_is_reported_only_after_refusal() {
    let rig = Rig::default();
    let flusher = rig.start(FlusherConfig { queue_bytes_max: 2_000, write_bytes_max: 1, ..lazy() });
    let handle = flusher.handle();
    rig.set(|state| state.held = true);
    let mut seq = 0;
    let refused = loop {
        seq += 1;
        if let Err((error, _)) = handle.apply(space(1), Seq::new(seq), vec![change(1, 0, "x")]) {
            break error;
        }
    };
    assert!(matches!(refused, FlusherError::Full { .. }), "{refused}");
    assert!(!rig.journal().contains(&Note::QueueDrained));
    rig.set(|state| state.held = false);
    rig.wait_for("the word that the queue is drained", |state| state.journal.contains(&Note::QueueDrained));
    handle.apply(space(1), Seq::new(seq), vec![change(1, 0, "x")]).unwrap();
    rig.wait_for("the last effect", |state| state.journal.contains(&Note::Written(1, seq)));
    assert_eq!(rig.journal().iter().filter(|note| **note == Note::QueueDrained).count(), 1, "nobody was refused since");
    flusher.shutdown(TIMEOUT).unwrap();
}

#[test]
fn empty_space_is_cleared_without_sync() {
    let rig = Rig::default();
    let flusher = rig.start(lazy());
    let handle = flusher.handle();
    let first = handle.clear(space(1)).unwrap();
    rig.wait_for("the clearing", |state| state.journal.contains(&Note::Cleared(1, first)));
    assert!(!rig.journal().contains(&Note::Sync), "{:?}", rig.journal());
    // After any write, even if removed since, the clearing is on disk before it is reported.
    handle.apply(space(1), Seq::ZERO, vec![change(1, 0, "x")]).unwrap();
    let second = handle.clear(space(1)).unwrap();
    rig.wait_for("the second clearing", |state| state.journal.ends_with(&[Note::Sync, Note::Cleared(1, second)]));
    assert_ne!(first, second, "whoever waits for the second must not take the word of the first for it");
    flusher.shutdown(TIMEOUT).unwrap();
}

#[test]
fn failed_sync_ends_flusher_without_position() {
    let rig = Rig::default();
    let flusher = rig.start(lazy());
    let handle = flusher.handle();
    rig.set(|state| state.fail_sync = true);
    put(&handle, 1, 1, 0, "a");
    let (dropped, gone) = std::sync::mpsc::channel::<()>();
    handle.barrier(Box::new(move || dropped.send(()).unwrap_or_default())).unwrap();
    rig.wait_for("the failure", |state| state.journal.contains(&Note::Failed));
    assert!(gone.recv().is_err(), "the barrier must not run");
    assert!(!rig.journal().contains(&Note::Synced(1, 1)));
    flusher.shutdown(TIMEOUT).unwrap();
    let (error, _) = handle.apply(space(1), Seq::new(2), vec![]).unwrap_err();
    assert_eq!(error, FlusherError::Stopped);
    assert_eq!(handle.barrier(Box::new(|| ())), Err(FlusherError::Stopped));
    assert_eq!(handle.clear(space(1)), Err(FlusherError::Stopped));
}

#[test]
fn shutdown_keeps_its_deadline() {
    let rig = Rig::default();
    let flusher = rig.start(lazy());
    let handle = flusher.handle();
    rig.set(|state| state.held = true);
    put(&handle, 1, 1, 0, "a");
    assert_eq!(flusher.shutdown(Duration::from_millis(20)), Err(FlusherError::Deadline));
    assert_eq!(handle.clear(space(1)), Err(FlusherError::Stopped));
    rig.set(|state| state.held = false);
    rig.wait_for("the late end", |state| state.journal.contains(&Note::Synced(1, 1)));
}

#[test]
fn full_disk_pauses_writes_without_failing_engine() {
    let rig = Rig::default();
    let flusher = rig.start(lazy());
    let handle = flusher.handle();
    put(&handle, 1, 1, 0, "before");
    rig.wait_for("the first write", |state| state.journal.contains(&Note::Written(1, 1)));
    rig.set(|state| state.full = true);
    put(&handle, 1, 2, 0, "during");
    rig.wait_for("what was taken to be synced", |state| state.journal.contains(&Note::Synced(1, 1)));
    assert!(handle.is_disk_full());
    assert_eq!(handle.disk_full(), Some(DISK_FULL));
    assert_eq!(rig.get(space(1), &[1, 0]).unwrap().unwrap(), "before");
    rig.set(|state| state.full = false);
    rig.wait_for("the second write", |state| state.journal.contains(&Note::Written(1, 2)));
    assert!(!handle.is_disk_full() && handle.disk_full().is_none());
    flusher.shutdown(TIMEOUT).unwrap();
    assert!(!rig.journal().contains(&Note::Failed));
}

#[test]
fn engine_that_met_quota_fails_once_there_is_space() {
    let rig = Rig::default();
    let flusher = rig.start(lazy());
    let handle = flusher.handle();
    rig.set(|state| state.over_quota = true);
    put(&handle, 1, 1, 0, "over the quota");
    let until = Instant::now() + TIMEOUT;
    while handle.disk_full().is_none() {
        assert!(Instant::now() < until, "the disk does not count as full");
        std::thread::yield_now();
    }
    assert!(handle.is_disk_full() && handle.has_failed_for_space() && handle.busy_for() == Duration::ZERO);
    assert_eq!(rig.journal(), [], "the node goes on, and takes no writes");
    rig.set(|state| state.full = false);
    rig.wait_for("the end of the engine", |state| state.journal == [Note::Failed]);
    let _ = flusher.shutdown(TIMEOUT);
}

fn read_failure(kind: std::io::ErrorKind) -> ViewError {
    EngineError::Io { directory: "rig".into(), what: "read a row", source: kind.into() }.into()
}

#[test]
fn read_refused_for_space_leaves_node_read_only() {
    let rig = Rig::default();
    let flusher = rig.start(lazy());
    let handle = flusher.handle();
    rig.set(|state| state.full = true);
    assert!(handle.note_read_failure(&read_failure(std::io::ErrorKind::QuotaExceeded)));
    wait_for("a full disk", TIMEOUT, || check(handle.disk_full().is_some(), || "it is not".to_owned()));
    assert!(handle.is_disk_full() && handle.has_failed_for_space());
    assert!(handle.note_read_failure(&read_failure(std::io::ErrorKind::Other)), "reads fail until there is space");
    assert_eq!(rig.journal(), []);
    rig.set(|state| state.full = false);
    rig.wait_for("the end of the engine", |state| state.journal == [Note::Failed]);
    let _ = flusher.shutdown(TIMEOUT);
}

/// The flusher waits for space already, with an engine that works.
#[test]
fn read_refused_while_disk_is_full_ends_engine_once_there_is_space() {
    let rig = Rig::default();
    rig.set(|state| state.full = true);
    let flusher = rig.start(lazy());
    let handle = flusher.handle();
    put(&handle, 1, 1, 1, "v");
    wait_for("a full disk", TIMEOUT, || check(handle.disk_full().is_some(), || "it is not".to_owned()));
    assert!(handle.note_read_failure(&read_failure(std::io::ErrorKind::StorageFull)));
    wait_for("the flusher", TIMEOUT, || check(handle.has_failed_for_space(), || "it does not hear of it".to_owned()));
    rig.set(|state| state.full = false);
    rig.wait_for("the end of the engine", |state| state.journal == [Note::Failed]);
    let _ = flusher.shutdown(TIMEOUT);
}

#[test]
fn read_refused_for_other_reason_is_not_waited_for() {
    let rig = Rig::default();
    let flusher = rig.start(lazy());
    assert!(!flusher.handle().note_read_failure(&read_failure(std::io::ErrorKind::PermissionDenied)));
    assert!(!flusher.handle().has_failed_for_space());
    let _ = flusher.shutdown(TIMEOUT);
}

#[test]
fn engine_failure_without_full_disk_is_immediate() {
    let rig = Rig::default();
    let flusher = rig.start(lazy());
    let handle = flusher.handle();
    rig.set(|state| state.fail_sync = true);
    put(&handle, 1, 1, 0, "a");
    handle.barrier(Box::new(|| ())).unwrap();
    rig.wait_for("the end of the engine", |state| state.journal.contains(&Note::Failed));
    assert!(!handle.has_failed_for_space());
    let _ = flusher.shutdown(TIMEOUT);
}

#[test]
fn flusher_waiting_for_disk_space_can_be_stopped() {
    let rig = Rig::default();
    let flusher = rig.start(lazy());
    rig.set(|state| state.full = true);
    put(&flusher.handle(), 1, 1, 0, "never");
    flusher.shutdown(TIMEOUT).unwrap();
    assert_eq!(rig.journal(), []);
}

#[test]
fn each_part_of_long_list_waits_for_disk_space() {
    let rig = Rig::default();
    let flusher = rig.start(lazy());
    let handle = flusher.handle();
    rig.set(|state| state.held = true);
    let large = "x".repeat(600 * 1024);
    let rows: Vec<_> = (0..3).map(|key| change(1, key, &large)).collect();
    handle.apply(space(1), Seq::new(1), rows).unwrap();
    rig.wait_for("the first part", |state| state.waiting);
    rig.set(|state| {
        state.full = true;
        state.held = false;
    });
    rig.wait_for("what was taken to be synced", |state| state.journal.contains(&Note::Sync));
    assert_eq!(rig.journal(), [Note::Write(1), Note::Sync]);
    // It counts as busy until the sync has returned.
    let idle = || check(handle.busy_for() == Duration::ZERO, || format!("busy for {:?}", handle.busy_for()));
    wait_for("the flusher to wait idle", TIMEOUT, idle);
    assert!(handle.is_disk_full());
    assert_eq!(rig.get(space(1), &[1, 2]).unwrap(), None, "the list is torn");
    rig.set(|state| state.full = false);
    rig.wait_for("the rest", |state| state.journal.contains(&Note::Written(1, 1)));
    assert_eq!(rig.journal()[2..], [Note::Write(1), Note::Write(1), Note::Written(1, 1)]);
    flusher.shutdown(TIMEOUT).unwrap();
}

#[test]
fn flusher_waiting_within_a_list_can_be_stopped() {
    let rig = Rig::default();
    let flusher = rig.start(lazy());
    rig.set(|state| state.held = true);
    let large = "x".repeat(600 * 1024);
    let rows: Vec<_> = (0..3).map(|key| change(1, key, &large)).collect();
    flusher.handle().apply(space(1), Seq::new(1), rows).unwrap();
    rig.wait_for("the first part", |state| state.waiting);
    rig.set(|state| {
        state.full = true;
        state.held = false;
    });
    rig.wait_for("what was taken to be synced", |state| state.journal.contains(&Note::Sync));
    flusher.shutdown(TIMEOUT).unwrap();
    assert_eq!(rig.journal(), [Note::Write(1), Note::Sync], "no position is told for what is torn");
}

#[test]
fn queue_drained_is_reported_after_lack_of_capacity() {
    let rig = Rig::default();
    let flusher = rig.start(FlusherConfig { queue_bytes_max: 2_000, write_bytes_max: 1, ..lazy() });
    let handle = flusher.handle();
    assert!(handle.has_capacity(5_000), "alone, if it is larger than the queue");
    rig.set(|state| state.held = true);
    put(&handle, 1, 1, 0, "a");
    rig.wait_for("the first write", |state| state.waiting);
    put(&handle, 1, 2, 0, &"x".repeat(1_500));
    assert!(handle.has_capacity(200) && !rig.journal().contains(&Note::QueueDrained));
    assert!(!handle.has_capacity(500));
    rig.set(|state| state.held = false);
    rig.wait_for("the word that the queue is drained", |state| state.journal.contains(&Note::QueueDrained));
    assert!(handle.has_capacity(500));
    flusher.shutdown(TIMEOUT).unwrap();
}

#[test]
fn flusher_panic_is_reported() {
    let rig = Rig::default();
    let flusher = rig.start(lazy());
    let handle = flusher.handle();
    rig.set(|state| state.panic = true);
    put(&handle, 1, 1, 0, "a");
    rig.wait_for("the word that it panicked", |state| state.journal.contains(&Note::Panicked));
    assert!(flusher.shutdown(TIMEOUT).is_err());
    assert_eq!(rig.journal(), [Note::Panicked]);
    // An orderly end does not report a panic.
    let rig = Rig::default();
    rig.start(lazy()).shutdown(TIMEOUT).unwrap();
    assert_eq!(rig.journal(), []);
}

#[test]
fn written_rows_are_synced_soon_on_request() {
    let rig = Rig::default();
    let flusher = rig.start(lazy());
    let handle = flusher.handle();
    put(&handle, 1, 1, 0, "a");
    rig.wait_for("the write", |state| state.journal.contains(&Note::Written(1, 1)));
    assert!(!rig.journal().contains(&Note::Sync), "{:?}", rig.journal());
    handle.sync_soon();
    rig.wait_for("the sync", |state| state.journal.contains(&Note::Synced(1, 1)));
    flusher.shutdown(TIMEOUT).unwrap();
}

#[test]
fn rows_are_synced_before_the_log_keeps_too_much_for_them() {
    let rig = Rig::default();
    let flusher = rig.start(FlusherConfig { sync_log_bytes: 100, ..lazy() });
    let handle = flusher.handle();
    let write = |seq| {
        put(&handle, 1, seq, 0, "a");
        rig.wait_for("the write", |state| state.journal.contains(&Note::Written(1, seq)));
    };
    let syncs = || rig.journal().iter().filter(|note| **note == Note::Sync).count();
    handle.add_unsynced_log(99);
    write(1);
    // The turn of the first one is over.
    write(2);
    assert_eq!(syncs(), 0);
    handle.add_unsynced_log(1);
    write(3);
    // With the turn of the third, or with that of the second if it was not quite over.
    rig.wait_for("the sync", |state| state.journal.iter().any(|note| matches!(note, Note::Synced(1, 2..=3))));
    handle.add_unsynced_log(99);
    write(4);
    write(5);
    assert_eq!(syncs(), 1);
    flusher.shutdown(TIMEOUT).unwrap();
}

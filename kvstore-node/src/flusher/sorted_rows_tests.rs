//! Tests of gathering rows of copies for an engine with bulk ingest.

use super::rig::{Note, Rig, TIMEOUT, change, lazy, put, space};
use super::*;
use crate::engine::Engine;
use archon_types::Seq;
use tokio::sync::oneshot;

fn rig() -> Rig {
    let rig = Rig::default();
    rig.set(|state| state.writes_tables = true);
    rig
}

fn page(number: u64, keys: std::ops::Range<u8>) -> FlushRows {
    let rows = keys.map(|key| change(number, key, "copied")).collect();
    FlushRows::Copied(CopiedPage { rows, gently: false, written: oneshot::channel().0 })
}

fn copy(handle: &FlusherHandle, number: u64, keys: std::ops::Range<u8>) {
    handle.apply(space(number), Seq::ZERO, page(number, keys)).unwrap();
}

/// Returns once everything queued so far is written and synced.
fn settle(handle: &FlusherHandle) {
    let (done, wait) = std::sync::mpsc::channel();
    handle.barrier(Box::new(move || done.send(()).unwrap_or_default())).unwrap();
    wait.recv_timeout(TIMEOUT).unwrap();
}

fn rows(rig: &Rig, number: u64) -> usize {
    (0..=u8::MAX).filter(|key| rig.get(space(number), &[1, *key]).unwrap().is_some()).count()
}

fn ingested(rig: &Rig) -> Vec<usize> {
    let many = |note| if let Note::Ingest(rows) = note { Some(rows) } else { None };
    rig.journal().into_iter().filter_map(many).collect()
}

#[test]
fn copied_pages_are_synced_often_on_node_in_use() {
    let rig = Rig::default();
    let flusher = rig.start(FlusherConfig { gentle_sync_bytes: 2_000, ..lazy() });
    let handle = flusher.handle();
    let written = |gently, key: u8| {
        let rows = vec![change(1, key, &"x".repeat(1_500))];
        let (written, mut wait) = oneshot::channel();
        handle.apply(space(1), Seq::ZERO, FlushRows::Copied(CopiedPage { rows, gently, written })).unwrap();
        let until = Instant::now() + TIMEOUT;
        while wait.try_recv().is_err() {
            assert!(Instant::now() < until, "the page was not written; the journal is {:?}", rig.journal());
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    written(false, 0);
    written(false, 1);
    written(true, 2);
    assert!(!rig.journal().contains(&Note::Sync), "{:?}", rig.journal());
    written(true, 3);
    rig.wait_for("the sync", |state| state.journal.contains(&Note::Sync));
    flusher.shutdown(TIMEOUT).unwrap();
}

#[test]
fn copied_pages_gather_and_barrier_makes_them_durable() {
    let rig = rig();
    let flusher = rig.start(lazy());
    let handle = flusher.handle();
    copy(&handle, 1, 0..50);
    copy(&handle, 2, 0..10);
    copy(&handle, 1, 50..100);
    put(&handle, 3, 1, 0, "written");
    rig.wait_for("another space's write", |state| state.journal.contains(&Note::Written(3, 1)));
    assert_eq!(ingested(&rig), [] as [usize; 0]);
    settle(&handle);
    assert_eq!((rows(&rig, 1), rows(&rig, 2)), (100, 10));
    assert_eq!(ingested(&rig), [100, 10], "the larger first, each at once");
    assert_eq!(rig.journal().last(), Some(&Note::Synced(3, 1)));
    flusher.shutdown(TIMEOUT).unwrap();
}

#[test]
fn gathered_pages_are_ingested_by_size_and_age() {
    let rig = rig();
    let flusher = rig.start(FlusherConfig { ingest_bytes: 400, ..lazy() });
    copy(&flusher.handle(), 1, 0..20);
    copy(&flusher.handle(), 1, 20..50);
    rig.wait_for("the first 400 bytes", |state| state.journal.contains(&Note::Ingest(50)));
    flusher.shutdown(TIMEOUT).unwrap();

    let rig = self::rig();
    let flusher =
        rig.start(FlusherConfig { sync_interval: Some(Duration::from_millis(10)), ..FlusherConfig::default() });
    copy(&flusher.handle(), 1, 0..20);
    rig.wait_for("the sync by time", |state| state.journal.ends_with(&[Note::Ingest(20), Note::Sync]));
    flusher.shutdown(TIMEOUT).unwrap();
}

#[test]
fn earlier_rows_of_same_space_are_written_first() {
    let rig = rig();
    let flusher = rig.start(lazy());
    let handle = flusher.handle();
    copy(&handle, 1, 0..50);
    put(&handle, 1, 9, 7, "of the log");
    // A restarted stream may bring rows again.
    copy(&handle, 1, 60..70);
    copy(&handle, 1, 65..80);
    settle(&handle);
    assert_eq!(rig.get(space(1), &[1, 7]).unwrap().unwrap(), "of the log");
    assert_eq!(rows(&rig, 1), 70);
    flusher.shutdown(TIMEOUT).unwrap();
}

#[test]
fn clear_drops_gathered_pages_of_its_space() {
    let rig = rig();
    let flusher = rig.start(lazy());
    let handle = flusher.handle();
    copy(&handle, 1, 0..50);
    let clear = handle.clear(space(1)).unwrap();
    rig.wait_for("the clearing", |state| state.journal.contains(&Note::Cleared(1, clear)));
    copy(&handle, 1, 100..110);
    settle(&handle);
    assert_eq!(rows(&rig, 1), 10);
    flusher.shutdown(TIMEOUT).unwrap();
}

#[test]
fn stop_writes_gathered_pages() {
    let rig = rig();
    let flusher = rig.start(lazy());
    copy(&flusher.handle(), 1, 0..50);
    flusher.shutdown(TIMEOUT).unwrap();
    assert_eq!(rows(&rig, 1), 50);
}

#[test]
fn engine_without_ingest_gets_pages_at_once() {
    let rig = Rig::default();
    let flusher = rig.start(lazy());
    copy(&flusher.handle(), 1, 0..50);
    rig.wait_for("the rows", |state| state.journal.contains(&Note::Write(50)));
    flusher.shutdown(TIMEOUT).unwrap();
}

//! Tests particular to one engine.

use super::conformance::{config, open, put, space, value};
use super::*;
use bytes::Bytes;
use std::path::Path;

fn open_sled(directory: &Path) -> SledEngine {
    super::open::prepare(directory, Some(EngineKind::Sled)).unwrap();
    SledEngine::open(directory, &config(EngineKind::Sled)).unwrap()
}

#[test]
fn sled_writes_no_unsynced_files() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("engine");
    let engine = open(EngineKind::Sled, &directory);
    let mut blobs = 0;
    for round in 0..3_u8 {
        for at in 0..40_u8 {
            let key = [&[1, at][..], &[b'k'; ENGINE_KEY_BYTES_MAX - 2]].concat();
            engine.write(&[put(1, &key, &value(super::sled::CHUNK_BYTES, round ^ at))]).unwrap();
        }
        engine.sync().unwrap();
        blobs += std::fs::read_dir(directory.join("blobs")).unwrap().count();
    }
    assert_eq!(blobs, 0);
}

#[test]
fn sled_syncs_reach_the_disk() {
    let root = tempfile::tempdir().unwrap();
    let engine = open(EngineKind::Sled, &root.path().join("engine"));
    let before = durable::syncs();
    engine.write(&[put(1, b"\x01a", b"1")]).unwrap();
    engine.sync().unwrap();
    assert!(!durable::is_needed() || durable::syncs() > before);
}

#[test]
fn torn_write_of_sled_keeps_previous_value() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("engine");
    let get = |engine: &SledEngine| engine.get(space(1), b"\x01a").unwrap().unwrap();
    let engine = open_sled(&directory);
    for seed in 0..4 {
        engine.write(&[put(1, b"\x01a", &value(200_000, seed))]).unwrap();
        engine.stage(space(1), b"\x01a", &value(300_000, 9)).unwrap();
        assert!(get(&engine) == value(200_000, seed), "the staged value shows");
    }
    engine.sync().unwrap();
    drop(engine);
    let engine = open_sled(&directory);
    assert!(get(&engine) == value(200_000, 3));
    engine.write(&[put(1, b"\x01a", &value(70_000, 5))]).unwrap();
    assert!(get(&engine) == value(70_000, 5));
}

#[test]
fn fjall_restarts_interrupted_creation() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("engine");
    super::open::prepare(&directory, Some(EngineKind::Fjall)).unwrap();
    // The state left by a process killed after the journal and before the version.
    std::fs::create_dir_all(directory.join("fjall.new/keyspaces")).unwrap();
    std::fs::write(directory.join("fjall.new/0.jnl"), b"").unwrap();
    let engine = open(EngineKind::Fjall, &directory);
    engine.write(&[put(1, b"\x01a", b"1")]).unwrap();
    engine.sync().unwrap();
    drop(engine);
    let engine = open(EngineKind::Fjall, &directory);
    assert_eq!(engine.get(space(1), b"\x01a").unwrap().unwrap(), "1");
    assert!(!directory.join("fjall.new").exists());
}

#[test]
fn fjall_clears_large_space_in_constant_steps() {
    let root = tempfile::tempdir().unwrap();
    let engine = open(EngineKind::Fjall, &root.path().join("engine"));
    let key = |at: u32| [&[1], &at.to_be_bytes()[..]].concat();
    for from in (0..20_000_u32).step_by(1_000) {
        let rows: Vec<_> = (from..from + 1_000).map(|at| put(7, &key(at), b"x")).collect();
        engine.write(&rows).unwrap();
    }
    let mut removed = 0;
    loop {
        let step = engine.clear(space(7), 64).unwrap();
        removed += step.removed;
        if step.done {
            break;
        }
    }
    assert_eq!(removed, 20_000);
    assert_eq!(engine.spaces().unwrap(), []);
    // The space may be used again from its beginning.
    engine.write(&[put(7, &key(0), b"again")]).unwrap();
    assert_eq!(engine.clear(space(7), 64).unwrap(), Cleared { removed: 1, done: true });
}

/// A power failure may leave the end of a batch that was never synced and not the middle, which fjall alone takes for
/// damage.
#[test]
fn fjall_opens_after_hole_in_unsynced_journal() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("engine");
    let engine = open(EngineKind::Fjall, &directory);
    engine.write(&[put(1, b"\x01synced", b"1")]).unwrap();
    engine.write(&[put(1, b"\x01removed", b"1")]).unwrap();
    engine.write(&[Change { space: space(1), key: Bytes::from_static(b"\x01removed"), value: None }]).unwrap();
    engine.sync().unwrap();
    engine.write(&[put(1, b"\x01torn", &[7; 40_000])]).unwrap();
    drop(engine);
    let journal = directory.join("fjall/0.jnl");
    let mut bytes = std::fs::read(&journal).unwrap();
    let hole = 16_384..20_480;
    assert!(bytes[hole.clone()].iter().all(|byte| *byte == 7), "the hole lies inside the last batch");
    bytes[hole].fill(0);
    std::fs::write(&journal, bytes).unwrap();
    for _ in 0..2 {
        let engine = open(EngineKind::Fjall, &directory);
        assert_eq!(engine.get(space(1), b"\x01synced").unwrap().unwrap(), "1");
        assert_eq!(engine.get(space(1), b"\x01removed").unwrap(), None);
        assert_eq!(engine.get(space(1), b"\x01torn").unwrap(), None);
    }
}

#[test]
fn whole_journal_of_fjall_is_not_cut() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("engine");
    for round in 0..3_u8 {
        let engine = open(EngineKind::Fjall, &directory);
        for at in 0..round {
            assert_eq!(engine.get(space(1), &[1, at]).unwrap().unwrap(), value(5_000, at));
        }
        engine.write(&[put(1, &[1, round], &value(5_000, round)), put(2, b"\x01empty", b"")]).unwrap();
        drop(engine);
        assert_eq!(super::journal::cut_torn_end(&directory.join("fjall")).unwrap(), 0, "round {round}");
    }
}

/// The same with sled: synced rows are there.
#[test]
fn sled_opens_after_hole_in_unsynced_log() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("engine");
    let engine = open(EngineKind::Sled, &directory);
    engine.write(&[put(1, b"\x01synced", b"1")]).unwrap();
    engine.sync().unwrap();
    engine.write(&[put(1, b"\x01torn", &[7; 40_000])]).unwrap();
    drop(engine);
    let log = directory.join("db");
    let mut bytes = std::fs::read(&log).unwrap();
    let run = bytes.windows(8_192).position(|window| window.iter().all(|byte| *byte == 7)).unwrap();
    let hole = run.next_multiple_of(4_096);
    bytes[hole..hole + 4_096].fill(0);
    std::fs::write(&log, bytes).unwrap();
    let engine = open(EngineKind::Sled, &directory);
    assert_eq!(engine.get(space(1), b"\x01synced").unwrap().unwrap(), "1");
}

//! Tests of the engine on sled that the conformance suite does not have.

use super::conformance::{config, open, put, space, value};
use super::*;
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

/// A power failure may leave the end of a batch that was never synced and not the middle.
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

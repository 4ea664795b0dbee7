//! Tests of the engine on an LSM tree that the conformance suite does not have.

use super::compactor::RUNS_LIMIT;
use super::compactor_tests::hooks;
use super::conformance::{ALL_KEYS, config, open, put, space, value};
use super::*;
use archon_testkit::{check, wait_for};
use archon_types::ScanOrder;
use lsm_tree::AbstractTree;
use lsm_tree::checksum::ChecksummedWriter;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(60);

fn open_lsm(directory: &Path, cache_bytes: u64) -> LsmEngine {
    super::open::prepare(directory, Some(EngineKind::Lsm)).unwrap();
    LsmEngine::open(directory, &EngineConfig { cache_bytes, ..config(EngineKind::Lsm) }).unwrap()
}

fn tables(directory: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(directory.join("tree/tables")).unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn interrupted_creation_is_started_over() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("engine");
    super::open::prepare(&directory, Some(EngineKind::Lsm)).unwrap();
    std::fs::create_dir_all(directory.join("tree.new/tables")).unwrap();
    std::fs::write(directory.join("tree.new/v0"), b"half of a list").unwrap();
    let engine = open(EngineKind::Lsm, &directory);
    engine.write(&[put(1, b"\x01a", b"1")]).unwrap();
    engine.sync().unwrap();
    drop(engine);
    let engine = open(EngineKind::Lsm, &directory);
    assert_eq!(engine.get(space(1), b"\x01a").unwrap().unwrap(), "1");
    assert!(!directory.join("tree.new").exists());
}

#[test]
fn large_space_is_cleared_in_constant_steps() {
    let root = tempfile::tempdir().unwrap();
    let engine = open(EngineKind::Lsm, &root.path().join("engine"));
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
    assert_eq!(engine.clear(space(7), 64).unwrap(), ClearStep { removed: 1, done: true });
}

#[test]
fn crash_keeps_synced_rows_and_removes_unfinished_tables() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("engine");
    let engine = open(EngineKind::Lsm, &directory);
    engine.write(&[put(1, b"\x01synced", b"1"), put(1, b"\x01both", b"1")]).unwrap();
    engine.sync().unwrap();
    engine.write(&[put(1, b"\x01lost", b"2"), put(1, b"\x01both", b"2")]).unwrap();
    drop(engine);
    let unfinished = directory.join("tree/tables/900");
    std::fs::write(&unfinished, b"the beginning of a table").unwrap();
    let engine = open(EngineKind::Lsm, &directory);
    assert_eq!(engine.get(space(1), b"\x01synced").unwrap().unwrap(), "1");
    assert_eq!(engine.get(space(1), b"\x01both").unwrap().unwrap(), "1");
    assert_eq!(engine.get(space(1), b"\x01lost").unwrap(), None);
    assert!(!unfinished.exists());
}

#[test]
fn rows_written_after_reopening_replace_earlier_ones() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("engine");
    for round in 0..4_u8 {
        let engine = open(EngineKind::Lsm, &directory);
        engine.write(&[put(1, b"\x01a", &[round])]).unwrap();
        engine.ingest(&[put(1, b"\x01b", &[round])]).unwrap();
        for key in [b"\x01a", b"\x01b"] {
            assert_eq!(engine.get(space(1), key).unwrap().unwrap(), [round][..], "round {round}");
        }
        engine.sync().unwrap();
    }
}

#[test]
fn missing_list_of_tables_is_damage() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("engine");
    let engine = open(EngineKind::Lsm, &directory);
    engine.write(&[put(1, b"\x01a", b"1")]).unwrap();
    engine.sync().unwrap();
    drop(engine);
    std::fs::remove_file(directory.join("tree/current")).unwrap();
    let (engine, aside) = open_or_quarantine(&directory, &config(EngineKind::Lsm)).unwrap();
    assert!(aside.is_some(), "an empty tree of {} spaces is served instead", engine.spaces().unwrap().len());
}

#[test]
fn full_memtable_is_written_to_a_table() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("engine");
    let engine = open_lsm(&directory, 1);
    for at in 0..80_u8 {
        engine.write(&[put(1, &[1, at], &value(60_000, at))]).unwrap();
        let tables = tables(&directory).len();
        assert!(at > 60 || tables == 0, "{at}: the memtable has less than 4 MiB, and there are {tables} tables");
    }
    assert_eq!(tables(&directory).len(), 1);
    for at in 0..80_u8 {
        assert_eq!(engine.get(space(1), &[1, at]).unwrap().unwrap(), value(60_000, at));
    }
}

#[test]
fn compactions_merge_tables_and_keep_rows() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("engine");
    let engine = open(EngineKind::Lsm, &directory);
    for round in 0..40_u8 {
        let rows: Vec<_> = (0..200_u8).map(|at| put(1, &[1, at], &[round, at])).collect();
        engine.write(&rows).unwrap();
        engine.sync().unwrap();
    }
    wait_for("few tables", TIMEOUT, || {
        let count = tables(&directory).len();
        check(count <= 4, || format!("{count} tables"))
    });
    for at in 0..200_u8 {
        assert_eq!(engine.get(space(1), &[1, at]).unwrap().unwrap(), [39, at][..]);
    }
}

/// Writes a table, 200 rows of 200 bytes.
fn add_table(engine: &dyn Engine, round: u8) -> Result<(), EngineError> {
    let rows: Vec<_> = (0..200_u8).map(|at| put(1, &[1, at], &value(200, round ^ at))).collect();
    engine.write(&rows)?;
    engine.sync()
}

/// Creates an engine of two tables, and lets `damage` change the bytes of each.
fn damaged(directory: &Path, damage: impl Fn(&mut Vec<u8>)) -> Arc<dyn Engine> {
    let engine = open(EngineKind::Lsm, directory);
    add_table(&*engine, 0).unwrap();
    add_table(&*engine, 1).unwrap();
    drop(engine);
    for path in tables(directory) {
        let mut bytes = std::fs::read(&path).unwrap();
        damage(&mut bytes);
        std::fs::write(&path, bytes).unwrap();
    }
    open(EngineKind::Lsm, directory)
}

fn checksum(bytes: &[u8]) -> [u8; 16] {
    let mut writer = ChecksummedWriter::new(std::io::sink());
    writer.write_all(bytes).unwrap();
    writer.checksum().into_u128().to_le_bytes()
}

/// Gives the first row of a table an unknown kind, on which the library panics. The checksums of the block match, as after
/// a flipped bit in memory.
fn make_unreadable(table: &mut [u8]) {
    const HEADER: usize = 33;
    let length = u32::from_le_bytes(table[21..25].try_into().unwrap()) as usize;
    table[HEADER] = 77;
    let sum = checksum(&table[HEADER..HEADER + length]);
    table[5..21].copy_from_slice(&sum);
    let sum = checksum(&table[..29]);
    table[29..HEADER].copy_from_slice(&sum[..4]);
}

/// Returns whether the next start sets the engine aside.
fn is_set_aside(directory: &Path) -> bool {
    let (engine, aside) = open_or_quarantine(directory, &config(EngineKind::Lsm)).unwrap();
    add_table(&*engine, 9).unwrap();
    aside.is_some()
}

/// A read of another row may never meet it, and the node would fail again after each start.
#[test]
fn damage_met_by_a_compaction_sets_the_engine_aside_at_the_next_start() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("engine");
    let engine = damaged(&directory, |table| table[100] ^= 1);
    wait_for("the damage", TIMEOUT, || match add_table(&*engine, 2) {
        Err(error) if error.is_damage() => Ok(()),
        other => Err(format!("{other:?}")),
    });
    let again = add_table(&*engine, 3);
    assert!(matches!(again, Err(EngineError::Io { .. })), "{again:?}");
    drop(engine);
    assert!(is_set_aside(&directory));
}

#[test]
fn table_on_which_a_compaction_panics_is_set_aside_at_next_start() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("engine");
    let engine = damaged(&directory, |table| make_unreadable(table));
    wait_for("the panic", TIMEOUT, || match add_table(&*engine, 2) {
        Err(error) if error.to_string().contains("panicked") => Ok(()),
        other => Err(format!("{other:?}")),
    });
    drop(engine);
    assert!(is_set_aside(&directory));
    assert!(!is_set_aside(&directory), "the note is gone with the tables");
}

#[test]
fn table_on_which_a_read_panics_is_set_aside_at_next_start() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("engine");
    let engine = damaged(&directory, |table| make_unreadable(table));
    let reader = Arc::clone(&engine);
    let read = std::thread::spawn(move || reader.page(space(1), ALL_KEYS, ScanOrder::Ascending, PageLimit::PAGE));
    assert!(read.join().is_err(), "the library does not panic any longer");
    drop(engine);
    assert!(is_set_aside(&directory));
}

/// The flusher goes on after damage that concerns one replica. A flush concerns the rows of all.
#[test]
fn failed_flush_ends_the_engine_and_keeps_its_rows_readable() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("engine");
    let engine = open(EngineKind::Lsm, &directory);
    let (folder, away) = (directory.join("tree/tables"), directory.join("tree/away"));
    engine.write(&[put(1, b"\x01flushed", b"1")]).unwrap();
    std::fs::rename(&folder, &away).unwrap();
    let failed = engine.sync();
    assert!(matches!(failed, Err(EngineError::Io { .. })), "{failed:?}");
    engine.write(&[put(1, b"\x01later", b"2")]).unwrap();
    assert_eq!(engine.get(space(1), b"\x01flushed").unwrap().unwrap(), "1");
    assert_eq!(engine.get(space(1), b"\x01later").unwrap().unwrap(), "2");
    std::fs::rename(&away, &folder).unwrap();
    drop(engine);
    assert!(is_set_aside(&directory));
}

/// A fault of the library must not cost data.
#[test]
fn panic_without_damage_keeps_the_engine() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("engine");
    drop(damaged(&directory, |_| ()));
    let note = directory.join("archon-panic");
    std::fs::write(&note, "compact its tables").unwrap();
    assert!(!is_set_aside(&directory));
    assert!(!note.exists());
}

/// The library writes down the number of runs in one byte.
#[test]
fn tree_without_compactions_refuses_tables_and_opens_again() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("engine");
    super::open::prepare(&directory, Some(EngineKind::Lsm)).unwrap();
    let has_space = Arc::new(AtomicBool::new(false));
    let engine = LsmEngine::open_with(&directory, &config(EngineKind::Lsm), hooks(&directory, &has_space)).unwrap();
    let write = |round: u16| {
        engine.write(&[put(1, b"\x01a", &round.to_be_bytes()), put(1, b"\x01b", b"b")])?;
        engine.sync()
    };
    let written = (0..300).take_while(|round| write(*round).is_ok()).count();
    assert_eq!(written, RUNS_LIMIT);
    assert!(engine.check_disk().is_err());
    drop(engine);
    let engine = open(EngineKind::Lsm, &directory);
    let last = u16::try_from(written - 1).unwrap();
    assert_eq!(engine.get(space(1), b"\x01a").unwrap().unwrap(), last.to_be_bytes()[..]);
}

/// A compaction syncs files while it holds this lock of the library, and a read on the thread of a shard would stop the
/// shard meanwhile.
#[test]
fn reads_do_not_wait_for_a_change_of_the_tables() {
    let root = tempfile::tempdir().unwrap();
    let engine = Arc::new(open_lsm(&root.path().join("engine"), 1));
    engine.write(&[put(1, b"\x01stored", b"1")]).unwrap();
    engine.sync().unwrap();
    engine.write(&[put(1, b"\x01recent", b"2")]).unwrap();
    let change = engine.tree().get_version_history_lock();
    let (sender, found) = std::sync::mpsc::channel();
    let reader = Arc::clone(&engine);
    std::thread::spawn(move || {
        let page = reader.page(space(1), ALL_KEYS, ScanOrder::Ascending, PageLimit::PAGE).unwrap();
        let got = [&b"\x01stored"[..], b"\x01recent"].map(|key| reader.get(space(1), key).unwrap().is_some());
        sender.send((page.rows.len(), got)).unwrap();
    });
    assert_eq!(found.recv_timeout(TIMEOUT), Ok((2, [true, true])));
    drop(change);
}

#[test]
fn reads_beside_flushes_and_compactions_find_latest_rows() {
    const ROUNDS: u32 = 400;
    let root = tempfile::tempdir().unwrap();
    let engine = Arc::new(open_lsm(&root.path().join("engine"), 1));
    let written = Arc::new(AtomicU32::new(0));
    let (reader, seen) = (Arc::clone(&engine), Arc::clone(&written));
    let reads = std::thread::spawn(move || {
        let mut reads = 0;
        while seen.load(Ordering::SeqCst) < ROUNDS {
            let at_least = seen.load(Ordering::SeqCst);
            let page = reader.page(space(1), ALL_KEYS, ScanOrder::Ascending, PageLimit::PAGE).unwrap();
            for row in page.rows {
                let got = reader.get(space(1), &row.key).unwrap().unwrap();
                for value in [row.value, got] {
                    let found = u32::from_be_bytes(value[..].try_into().unwrap());
                    assert!(found >= at_least, "{:?} is of round {found}, after round {at_least}", row.key);
                }
            }
            reads += 1;
        }
        reads
    });
    for round in 1..=ROUNDS {
        let rows: Vec<_> = (0..20_u8).map(|at| put(1, &[1, at], &round.to_be_bytes())).collect();
        match round % 3 {
            0 => engine.ingest(&rows).unwrap(),
            _ => engine.write(&rows).unwrap(),
        }
        if round % 4 == 0 {
            engine.sync().unwrap();
        }
        while !engine.has_room().unwrap() {
            std::thread::yield_now();
        }
        written.store(round, Ordering::SeqCst);
    }
    assert!(reads.join().unwrap() > 0);
}

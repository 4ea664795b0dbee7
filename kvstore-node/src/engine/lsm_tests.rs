//! Tests of the engine on an LSM tree that the conformance suite does not have.

use super::compactor::{Compactor, CompactorHooks, RUNS_LIMIT, StopFlag};
use super::conformance::{config, open, put, space, value};
use super::*;
use archon_testkit::{check, wait_for};
use lsm_tree::compaction::Leveled;
use lsm_tree::{AbstractTree, AnyTree, Config, SequenceNumberCounter};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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

/// A read of another row may never meet it, and the node would fail again after each start.
#[test]
fn damage_met_by_a_compaction_sets_the_engine_aside_at_the_next_start() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("engine");
    let fill = |engine: &dyn Engine, round: u8| {
        let rows: Vec<_> = (0..200_u8).map(|at| put(1, &[1, at], &value(200, round ^ at))).collect();
        engine.write(&rows)?;
        engine.sync()
    };
    let engine = open(EngineKind::Lsm, &directory);
    fill(&*engine, 0).unwrap();
    fill(&*engine, 1).unwrap();
    drop(engine);
    for path in tables(&directory) {
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[100] ^= 1;
        std::fs::write(&path, bytes).unwrap();
    }
    let engine = open(EngineKind::Lsm, &directory);
    wait_for("the damage", TIMEOUT, || match fill(&*engine, 2) {
        Err(error) if error.is_damage() => Ok(()),
        other => Err(format!("{other:?}")),
    });
    let again = fill(&*engine, 3);
    assert!(matches!(again, Err(EngineError::Io { .. })), "{again:?}");
    drop(engine);
    let (engine, aside) = open_or_quarantine(&directory, &config(EngineKind::Lsm)).unwrap();
    assert!(aside.is_some());
    fill(&*engine, 4).unwrap();
}

/// Adds a run of tables to the first level.
fn add_run(tree: &AnyTree, seqno: &SequenceNumberCounter) {
    for at in 0..10_u8 {
        tree.insert([at], [1], seqno.next());
    }
    tree.flush_active_memtable(seqno.get()).unwrap();
}

fn hooks(has_space: &Arc<AtomicBool>) -> CompactorHooks {
    let asked = Arc::clone(has_space);
    CompactorHooks {
        has_space: Box::new(move |_| asked.load(Ordering::SeqCst)),
        fail: Box::new(|error| panic!("{error}")),
    }
}

#[test]
fn compactions_wait_for_space_and_go_on() {
    let root = tempfile::tempdir().unwrap();
    let (seqno, visible) = (SequenceNumberCounter::new(1), SequenceNumberCounter::new(1));
    let tree = Config::new(root.path().join("tree"), seqno.clone(), visible).open().unwrap();
    let has_space = Arc::new(AtomicBool::new(false));
    let compactor = Compactor::start(&tree, &seqno, StopFlag::default(), hooks(&has_space)).unwrap();
    for runs in 0..40 {
        wait_for("room", TIMEOUT, || check(compactor.has_room().unwrap(), || "none".to_owned()));
        add_run(&tree, &seqno);
        compactor.wake();
        assert!(runs > 30 || compactor.lacks_bytes().is_none(), "{runs} runs");
    }
    assert_eq!(tree.l0_run_count(), 40);
    wait_for("lack of space", TIMEOUT, || check(compactor.lacks_bytes().is_some(), || "none".to_owned()));
    has_space.store(true, Ordering::SeqCst);
    wait_for("compactions", TIMEOUT, || {
        let runs = tree.l0_run_count();
        check(runs < 4 && compactor.lacks_bytes().is_none(), || format!("{runs} runs"))
    });
}

/// The library writes down the number of runs in one byte.
#[test]
fn tree_without_compactions_refuses_tables_and_opens_again() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("engine");
    super::open::prepare(&directory, Some(EngineKind::Lsm)).unwrap();
    let has_space = Arc::new(AtomicBool::new(false));
    let engine = LsmEngine::open_with(&directory, &config(EngineKind::Lsm), hooks(&has_space)).unwrap();
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

#[test]
fn interrupted_compaction_leaves_tables_as_they_are() {
    let root = tempfile::tempdir().unwrap();
    let (seqno, visible) = (SequenceNumberCounter::new(1), SequenceNumberCounter::new(1));
    let stop = StopFlag::default();
    let settings = Config::new(root.path().join("tree"), seqno.clone(), visible);
    let tree = stop.interrupts(settings).open().unwrap();
    (0..8).for_each(|_| add_run(&tree, &seqno));
    stop.set();
    let compacted = tree.compact(Arc::new(Leveled::default()), seqno.get());
    assert!(compacted.is_err(), "{compacted:?}");
    assert_eq!(tree.l0_run_count(), 8);
    assert!(tree.get([3], seqno.get()).unwrap().is_some());
}

//! Tests of the compactor on a tree without an engine.

use super::compactor::{Compactor, CompactorHooks, StopFlag};
use super::read_view::ReadView;
use archon_testkit::{check, wait_for};
use lsm_tree::compaction::filter::Context;
use lsm_tree::compaction::{CompactionFilter, Factory, ItemAccessor, Leveled, Verdict};
use lsm_tree::{AbstractTree, AnyTree, Config, SequenceNumberCounter, Table, TableId};
use std::collections::BTreeSet;
use std::io::{Error, ErrorKind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(60);

pub(super) fn hooks(directory: &Path, has_space: &Arc<AtomicBool>) -> CompactorHooks {
    let asked = Arc::clone(has_space);
    let spare_bytes = move || if asked.load(Ordering::SeqCst) { u64::MAX } else { 0 };
    CompactorHooks { directory: directory.to_owned(), spare_bytes: Box::new(spare_bytes) }
}

fn start(tree: &AnyTree, seqno: &SequenceNumberCounter, hooks: CompactorHooks) -> Compactor {
    Compactor::start(tree, seqno, &Arc::new(ReadView::new(tree)), StopFlag::default(), hooks).unwrap()
}

/// Adds a run of tables to the first level.
fn add_run(tree: &AnyTree, seqno: &SequenceNumberCounter) {
    for at in 0..10_u8 {
        tree.insert([at], [1], seqno.next());
    }
    tree.flush_active_memtable(seqno.get()).unwrap();
}

#[test]
fn compactions_wait_for_space_and_go_on() {
    let root = tempfile::tempdir().unwrap();
    let (seqno, visible) = (SequenceNumberCounter::new(1), SequenceNumberCounter::new(1));
    let tree = Config::new(root.path().join("tree"), seqno.clone(), visible).open().unwrap();
    let has_space = Arc::new(AtomicBool::new(false));
    let hooks = hooks(root.path(), &has_space);
    let compactor = start(&tree, &seqno, hooks);
    for runs in 0..40 {
        wait_for("room", TIMEOUT, || check(compactor.has_room(), || "none".to_owned()));
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

/// Lets compactions write some rows, and then refuses as a full disk does, or a broken one.
#[derive(Clone, Default)]
struct FullDisk {
    is_full: Arc<AtomicBool>,
    is_broken: Arc<AtomicBool>,
    refusals: Arc<AtomicUsize>,
    rows: usize,
}

impl Factory for FullDisk {
    fn name(&self) -> &'static str {
        "full disk"
    }

    fn make_filter(&self, _: &Context) -> Box<dyn CompactionFilter> {
        Box::new(self.clone())
    }
}

impl CompactionFilter for FullDisk {
    fn filter_item(&mut self, _: ItemAccessor<'_>, _: &Context) -> lsm_tree::Result<Verdict> {
        self.rows += 1;
        if self.rows > 5 && self.is_full.load(Ordering::SeqCst) {
            self.refusals.fetch_add(1, Ordering::SeqCst);
            let is_broken = self.is_broken.load(Ordering::SeqCst);
            return Err(Error::from(if is_broken { ErrorKind::TimedOut } else { ErrorKind::StorageFull }).into());
        }
        Ok(Verdict::Keep)
    }
}

/// Opens a tree with some runs, the compactions of which meet a full disk.
fn tree_on_full_disk(directory: &Path, runs: usize) -> (AnyTree, SequenceNumberCounter, FullDisk) {
    let (seqno, visible) = (SequenceNumberCounter::new(1), SequenceNumberCounter::new(1));
    let disk = FullDisk::default();
    disk.is_full.store(true, Ordering::SeqCst);
    let settings = Config::new(directory.join("tree"), seqno.clone(), visible);
    let tree = settings.with_compaction_filter_factory(Some(Arc::new(disk.clone()))).open().unwrap();
    (0..runs).for_each(|_| add_run(&tree, &seqno));
    (tree, seqno, disk)
}

/// Returns the tables on the disk that the tree does not use.
fn unused_tables(tree: &AnyTree) -> Vec<TableId> {
    let entries = std::fs::read_dir(tree.tree_config().path.join("tables")).unwrap();
    let ids: Vec<TableId> =
        entries.map(|entry| entry.unwrap().file_name().to_str().unwrap().parse().unwrap()).collect();
    let used: BTreeSet<TableId> = tree.current_version().iter_tables().map(Table::id).collect();
    ids.into_iter().filter(|id| !used.contains(id)).collect()
}

#[test]
fn compaction_that_meets_full_disk_is_tried_again() {
    let root = tempfile::tempdir().unwrap();
    let (tree, seqno, disk) = tree_on_full_disk(root.path(), 40);
    let hooks = hooks(root.path(), &Arc::new(AtomicBool::new(true)));
    let compactor = start(&tree, &seqno, hooks);
    // The second one comes after the first pause.
    wait_for("two refusals", TIMEOUT, || {
        compactor.check().map_err(|error| error.to_string())?;
        let refusals = disk.refusals.load(Ordering::SeqCst);
        check(refusals >= 2 && compactor.lacks_bytes().is_some(), || format!("{refusals} refusals"))
    });
    wait_for("unfinished tables to be removed", TIMEOUT, || {
        let unused = unused_tables(&tree);
        check(unused.is_empty(), || format!("{unused:?}"))
    });
    assert_eq!(tree.l0_run_count(), 40);
    disk.is_full.store(false, Ordering::SeqCst);
    wait_for("compactions", TIMEOUT, || {
        compactor.check().map_err(|error| error.to_string())?;
        let runs = tree.l0_run_count();
        check(runs < 4 && compactor.lacks_bytes().is_none(), || format!("{runs} runs"))
    });
    assert!(tree.get([3], seqno.get()).unwrap().is_some());
}

/// Otherwise it would last for minutes.
#[test]
fn returned_space_ends_the_pause_of_compactions() {
    let root = tempfile::tempdir().unwrap();
    let (tree, seqno, disk) = tree_on_full_disk(root.path(), 40);
    // Space returns between any two looks, and the limit that compactions meet is another one.
    let looks = AtomicU64::new(0);
    let spare_bytes = move || looks.fetch_add(1, Ordering::SeqCst) << 32;
    let hooks = CompactorHooks { directory: root.path().to_owned(), spare_bytes: Box::new(spare_bytes) };
    let _compactor = start(&tree, &seqno, hooks);
    wait_for("eight refusals", TIMEOUT, || {
        let refusals = disk.refusals.load(Ordering::SeqCst);
        check(refusals >= 8, || format!("{refusals} refusals"))
    });
}

/// The flusher waits while compactions lack space, and would never meet the error.
#[test]
fn failed_compactions_lack_no_space() {
    let root = tempfile::tempdir().unwrap();
    let (tree, seqno, disk) = tree_on_full_disk(root.path(), 40);
    let hooks = hooks(root.path(), &Arc::new(AtomicBool::new(true)));
    let compactor = start(&tree, &seqno, hooks);
    wait_for("lack of space", TIMEOUT, || check(compactor.lacks_bytes().is_some(), || "none".to_owned()));
    disk.is_broken.store(true, Ordering::SeqCst);
    wait_for("the end of compactions", TIMEOUT, || {
        check(compactor.check().is_err(), || format!("{} refusals", disk.refusals.load(Ordering::SeqCst)))
    });
    assert_eq!(compactor.lacks_bytes(), None);
}

/// The list of tables on the disk may name the tables of a compaction that failed afterwards.
#[test]
fn tables_on_an_unknown_list_are_kept() {
    let root = tempfile::tempdir().unwrap();
    let (tree, seqno, disk) = tree_on_full_disk(root.path(), 8);
    let later = tree.current_version().id() + 1;
    std::fs::write(root.path().join("tree/current"), later.to_le_bytes()).unwrap();
    let hooks = hooks(root.path(), &Arc::new(AtomicBool::new(true)));
    let compactor = start(&tree, &seqno, hooks);
    let (ended, _) = wait_for("the end of compactions", TIMEOUT, || {
        compactor.check().err().ok_or_else(|| format!("{} refusals", disk.refusals.load(Ordering::SeqCst)))
    });
    assert!(
        matches!(&ended, super::EngineError::Io { source, .. } if source.kind() == ErrorKind::StorageFull),
        "{ended}"
    );
    assert!(!unused_tables(&tree).is_empty());
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

/// The library asks about present rows only. The merge ends all the same.
#[test]
fn merge_of_removed_rows_ends_without_an_interruption() {
    let root = tempfile::tempdir().unwrap();
    let (seqno, visible) = (SequenceNumberCounter::new(1), SequenceNumberCounter::new(1));
    let stop = StopFlag::default();
    let tree = stop.interrupts(Config::new(root.path().join("tree"), seqno.clone(), visible)).open().unwrap();
    for _ in 0..8 {
        for at in 0..10_u8 {
            tree.remove([at], seqno.next());
        }
        tree.flush_active_memtable(seqno.get()).unwrap();
    }
    stop.set();
    tree.compact(Arc::new(Leveled::default()), seqno.get()).unwrap();
    assert_eq!(tree.l0_run_count(), 0);
}

/// Panics in a compaction as soon as it has to give way.
#[derive(Clone)]
struct LateFault {
    stop: StopFlag,
    is_reached: Arc<AtomicBool>,
}

impl Factory for LateFault {
    fn name(&self) -> &'static str {
        "late fault"
    }

    fn make_filter(&self, _: &Context) -> Box<dyn CompactionFilter> {
        Box::new(self.clone())
    }
}

impl CompactionFilter for LateFault {
    fn filter_item(&mut self, _: ItemAccessor<'_>, _: &Context) -> lsm_tree::Result<Verdict> {
        self.is_reached.store(true, Ordering::SeqCst);
        while !self.stop.gives_way() {
            std::thread::yield_now();
        }
        panic!("injected");
    }
}

#[test]
fn flush_goes_on_when_the_compaction_it_waits_for_panics() {
    let root = tempfile::tempdir().unwrap();
    let (seqno, visible) = (SequenceNumberCounter::new(1), SequenceNumberCounter::new(1));
    let fault = LateFault { stop: StopFlag::default(), is_reached: Arc::default() };
    let settings = Config::new(root.path().join("tree"), seqno.clone(), visible);
    let tree = settings.with_compaction_filter_factory(Some(Arc::new(fault.clone()))).open().unwrap();
    (0..8).for_each(|_| add_run(&tree, &seqno));
    let hooks = hooks(root.path(), &Arc::new(AtomicBool::new(true)));
    let view = Arc::new(ReadView::new(&tree));
    let compactor = Arc::new(Compactor::start(&tree, &seqno, &view, fault.stop.clone(), hooks).unwrap());
    let is_reached = || check(fault.is_reached.load(Ordering::SeqCst), || "none".to_owned());
    wait_for("a compaction", TIMEOUT, is_reached);
    let (asked, first_table) = (Arc::clone(&compactor), tree.next_table_id());
    let given = std::thread::spawn(move || asked.give_way(first_table));
    wait_for("the end of the wait", TIMEOUT, || check(given.is_finished(), || "it lasts".to_owned()));
    let ended = compactor.check().unwrap_err();
    assert!(ended.to_string().contains("panicked"), "{ended}");
    assert!(root.path().join("archon-panic").exists());
}

/// A flush that meets a full disk needs the space that compactions take.
#[test]
fn compactions_give_way_to_a_flush() {
    let root = tempfile::tempdir().unwrap();
    let (seqno, visible) = (SequenceNumberCounter::new(1), SequenceNumberCounter::new(1));
    let stop = StopFlag::default();
    let settings = stop.interrupts(Config::new(root.path().join("tree"), seqno.clone(), visible));
    let tree = settings.open().unwrap();
    (0..40).for_each(|_| add_run(&tree, &seqno));
    let view = Arc::new(ReadView::new(&tree));
    // The first compaction waits for it before readers see its tables.
    let writes = view.pause_writes();
    let hooks = hooks(root.path(), &Arc::new(AtomicBool::new(true)));
    let compactor = Arc::new(Compactor::start(&tree, &seqno, &view, stop.clone(), hooks).unwrap());
    wait_for("a compaction", TIMEOUT, || check(tree.l0_run_count() < 40, || "none".to_owned()));
    let (asked, unfinished) = (Arc::clone(&compactor), tree.get_next_table_id());
    std::fs::write(root.path().join(format!("tree/tables/{unfinished}")), b"half a table of the flush").unwrap();
    let given = std::thread::spawn(move || asked.give_way(unfinished));
    wait_for("the request", TIMEOUT, || check(stop.gives_way(), || "none".to_owned()));
    drop(writes);
    assert!(given.join().unwrap());
    // While compactions pause, the first level may grow beyond its usual bound.
    (0..20).for_each(|_| add_run(&tree, &seqno));
    compactor.wake();
    assert!(compactor.has_room(), "compactions do not pause");
    assert!(compactor.check().is_ok());
    assert!(unused_tables(&tree).is_empty());
}

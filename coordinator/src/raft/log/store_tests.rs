//! openraft's own storage suite, and tests of reopening, which it lacks.

use super::codec;
use super::log_space::{self, LogRefusal, LogSpace};
use super::store::{FACTS, LOG, LogStore, PURGED, VOTE};
use crate::raft::identity::protocol_support::ProtocolSupport;
use crate::raft::machine::checksums::Checksums;
use crate::raft::machine::{Machine, ReplicatedState};
use crate::raft::snapshot::SnapshotDir;
use crate::raft::types::{Entry, LogId, TypeConfig, Vote};
use archon_coordinator_core::{Actor, Command as CoreCommand, CommandBatch};
use archon_testkit::ScratchDirectory;
use archon_types::Millis;
use archon_wal::disk::{MemoryDisk, RealDisk};
use archon_wal::{Wal, WalBatch, WalConfig};
use openraft::entry::RaftEntry as _;
use openraft::storage::{IOFlushed, RaftLogReader as _, RaftLogStorage as _};
use openraft::testing::log::{StoreBuilder, Suite};
use openraft::type_config::TypeConfigExt as _;
use openraft::{EntryPayload, StorageError};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use uuid::Uuid;

struct Builder;

impl StoreBuilder<TypeConfig, LogStore, Machine, ScratchDirectory> for Builder {
    async fn build(&self) -> Result<(ScratchDirectory, LogStore, Machine), StorageError<TypeConfig>> {
        let dir = ScratchDirectory::in_memory().unwrap();
        let store = reopen(dir.path());
        let snapshots = SnapshotDir::open(&dir.path().join("snapshots"), Uuid::nil()).unwrap();
        Ok((dir, store, Machine::new(ReplicatedState::new(snapshots, ProtocolSupport::default()), Checksums::new(1))))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn openrafts_own_suite_passes() {
    Suite::test_all(Builder).await.unwrap();
}

fn id(term: u64, index: u64) -> LogId {
    LogId { leader_id: term.into(), index }
}

async fn append(store: &mut LogStore, entries: Vec<Entry>) {
    let (done, durable) = TypeConfig::oneshot();
    store.append(entries, IOFlushed::signal(done)).await.unwrap();
    durable.await.unwrap().unwrap();
}

fn blanks(term: u64, range: std::ops::Range<u64>) -> Vec<Entry> {
    range.map(|index| Entry::new_blank(id(term, index))).collect()
}

fn reopen(dir: &Path) -> LogStore {
    open(&dir.join("log"))
}

fn open(dir: &Path) -> LogStore {
    LogStore::open(Arc::new(RealDisk::open(dir).unwrap()), WalConfig::default(), || Ok(None)).unwrap()
}

fn close(store: LogStore) {
    store.wal().clone().close(std::time::Duration::from_secs(5)).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn log_size_is_known_after_each_operation() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = reopen(dir.path());
    assert_eq!(store.size().look(1_000), (0, 0, 0));
    append(&mut store, blanks(1, 0..10)).await;
    let (ten, ..) = store.size().look(0);
    let one = ten / 10;
    assert_eq!(store.size().look(0), (ten, 0, 9), "the newest one stays");
    assert_eq!(store.size().look(3 * one), (ten, 0, 7));
    store.truncate_after(Some(id(1, 7))).await.unwrap();
    assert_eq!(store.size().look(u64::MAX), (8 * one, 0, 0));
    store.purge(id(1, 4)).await.unwrap();
    assert_eq!(store.size().look(u64::MAX), (3 * one, 5, 5));
    close(store);
    assert_eq!(reopen(dir.path()).size().look(u64::MAX), (3 * one, 5, 5));
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_entries_survive_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = reopen(dir.path());
    assert!(store.is_empty());
    store.save_vote(&Vote::new(3, 1)).await.unwrap();
    append(&mut store, blanks(3, 0..10)).await;
    store.truncate_after(Some(id(3, 7))).await.unwrap();
    store.save_committed(Some(id(3, 6))).await.unwrap();
    append(&mut store, blanks(4, 8..12)).await;
    store.purge(id(3, 4)).await.unwrap();
    store.save_vote(&Vote::new(5, 2)).await.unwrap();
    close(store);

    let mut store = reopen(dir.path());
    assert!(!store.is_empty());
    assert_eq!(store.read_vote().await.unwrap(), Some(Vote::new(5, 2)));
    assert_eq!(store.read_committed().await.unwrap(), Some(id(3, 6)));
    let state = store.get_log_state().await.unwrap();
    assert_eq!((state.last_purged_log_id, state.last_log_id), (Some(id(3, 4)), Some(id(4, 11))));
    let found: Vec<LogId> = store.try_get_log_entries(..).await.unwrap().iter().map(|entry| entry.log_id).collect();
    let expected: Vec<LogId> = [id(3, 5), id(3, 6), id(3, 7), id(4, 8), id(4, 9), id(4, 10), id(4, 11)].into();
    assert_eq!(found, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn log_emptied_by_a_snapshot_starts_beyond_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = reopen(dir.path());
    append(&mut store, blanks(1, 0..3)).await;
    store.purge(id(2, 500)).await.unwrap();
    close(store);
    let mut store = reopen(dir.path());
    assert_eq!(store.get_log_state().await.unwrap().last_log_id, Some(id(2, 500)));
    append(&mut store, blanks(2, 501..504)).await;
    close(store);
    let mut store = reopen(dir.path());
    assert_eq!(store.try_get_log_entries(..).await.unwrap().len(), 3);
    assert_eq!(store.get_log_state().await.unwrap().last_log_id, Some(id(2, 503)));
}

#[tokio::test(flavor = "multi_thread")]
async fn emptied_log_starts_at_zero() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = reopen(dir.path());
    append(&mut store, blanks(1, 0..3)).await;
    store.truncate_after(None).await.unwrap();
    append(&mut store, blanks(2, 0..2)).await;
    close(store);
    let mut store = reopen(dir.path());
    assert_eq!(store.get_log_state().await.unwrap().last_log_id, Some(id(2, 1)));
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_by_size_are_never_empty() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = reopen(dir.path());
    append(&mut store, blanks(1, 0..5)).await;
    let found = store.limited_get_log_entries(2, 4).await.unwrap();
    assert_eq!(found.iter().map(|entry| entry.log_id.index).collect::<Vec<_>>(), [2, 3]);
}

/// Returns a batch of commands of `bytes` bytes: one command, or many that take a few bytes each.
fn batch_of(bytes: usize, tiny: bool) -> CommandBatch {
    let size = |batch: &CommandBatch| codec::size("log entry", batch).unwrap();
    let hold = || CoreCommand::HoldProtocol { held: true };
    let who = Actor::Newcomer("n".repeat(300));
    let mut batch = CommandBatch {
        request: None,
        at: Millis::new(u64::MAX),
        who,
        proposer: 9,
        term: u64::MAX,
        commands: vec![hold()],
    };
    if tiny {
        let one = codec::size("command", &hold()).unwrap();
        let count = (bytes - size(&batch)) / one - 1;
        batch.commands.extend(std::iter::repeat_with(hold).take(count));
    }
    let missing = bytes - size(&batch);
    batch.who = Actor::Newcomer("n".repeat(300 + missing));
    assert_eq!(size(&batch), bytes);
    batch
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_above_the_size_bound_are_refused() {
    let config = WalConfig { segment_bytes: 64 * 1024, ..WalConfig::default() };
    let disk = MemoryDisk::new();
    let open_on = || LogStore::open(Arc::new(disk.clone()), config.clone(), || Ok(None)).unwrap();
    let mut store = open_on();
    let space = LogSpace::new(store.wal().clone(), PathBuf::from("log"));
    let Err(LogRefusal::TooLarge { max, .. }) = space.check_size(usize::MAX) else { panic!("no bound") };
    let max = usize::try_from(max).unwrap();
    let mut expected = Vec::new();
    for tiny in [false, true] {
        for bytes in [max - 1, max, max + 1] {
            let batch = batch_of(bytes, tiny);
            assert_eq!(tiny, batch.commands.len() > 100);
            assert_eq!(space.check_size(bytes).is_ok(), bytes <= max, "{bytes} bytes");
            if bytes > max {
                continue;
            }
            let log_id = LogId { leader_id: u64::MAX.into(), index: expected.len() as u64 };
            let entry = Entry { log_id, payload: EntryPayload::Normal(Arc::new(batch)) };
            let mut written = WalBatch::new();
            written.put(LOG, u64::MAX - 1, codec::encode("log entry", &entry).unwrap());
            assert!(written.bytes() <= log_space::batch_bytes_max(store.wal()), "it is admitted as one batch");
            append(&mut store, vec![entry.clone()]).await;
            expected.push(entry);
        }
    }
    close(store);
    let encoded = |entries: &[Entry]| -> Vec<_> {
        entries.iter().map(|entry| codec::encode("log entry", entry).unwrap()).collect()
    };
    let read = open_on().try_get_log_entries(..).await.unwrap();
    assert!(encoded(&read) == encoded(&expected), "{} entries of {}", read.len(), expected.len());
}

/// Returns a log as earlier versions left it: trimmed up to here, with an older record of it.
fn trimmed_before_its_record(trimmed: u64) -> MemoryDisk {
    let disk = MemoryDisk::new();
    let (wal, _) = Wal::open_on(Arc::new(disk.clone()), WalConfig::default()).unwrap();
    let mut batch = WalBatch::new();
    batch.meta(FACTS, VOTE, codec::encode("vote", &Vote::new(4, 2)).unwrap());
    batch.meta(FACTS, PURGED, codec::encode("purged position", &id(1, 9)).unwrap());
    for entry in blanks(1, 0..100) {
        batch.put(LOG, entry.index() + 1, codec::encode("log entry", &entry).unwrap());
    }
    batch.trim(LOG, trimmed + 1);
    wal.append_wait(batch).unwrap();
    disk
}

#[tokio::test(flavor = "multi_thread")]
async fn log_without_beginning_requires_a_covering_snapshot() {
    let open_on = |disk: &MemoryDisk, snapshot: Option<LogId>| {
        LogStore::open(Arc::new(disk.clone()), WalConfig::default(), || Ok(snapshot))
    };
    for (trimmed, snapshot, first) in [(50, 50, 51), (50, 70, 71), (50, 99, 100), (99, 99, 100), (60, 150, 151)] {
        let mut disk = trimmed_before_its_record(trimmed);
        for start in ["first", "second"] {
            let mut store = open_on(&disk, (start == "first").then_some(id(1, snapshot))).unwrap();
            let case = format!("trimmed up to {trimmed}, snapshot at {snapshot}, {start} start");
            assert_eq!(store.read_vote().await.unwrap(), Some(Vote::new(4, 2)), "{case}");
            let state = store.get_log_state().await.unwrap();
            assert_eq!(state.last_purged_log_id, Some(id(1, snapshot)), "{case}");
            let found: Vec<LogId> = store.try_get_log_entries(..).await.unwrap().iter().map(|e| e.log_id).collect();
            assert_eq!(found, (first..100).map(|index| id(1, index)).collect::<Vec<_>>(), "{case}");
            disk = disk.power_loss(|| 0);
        }
    }
    let refusals = [(50, None), (50, Some(49)), (99, Some(98)), (99, None)];
    for (trimmed, snapshot) in refusals {
        let disk = trimmed_before_its_record(trimmed);
        let refused = open_on(&disk, snapshot.map(|index| id(1, index))).map(|_| ()).unwrap_err().to_string();
        assert!(refused.contains(&format!("entries 10 to {trimmed} are missing")), "{refused}");
    }
    let other = open_on(&trimmed_before_its_record(50), Some(id(2, 70))).map(|_| ()).unwrap_err().to_string();
    assert!(other.contains("where the snapshot ends"), "{other}");
}

const CHILD_DIR: &str = "ARCHON_STORE_TEST_DIR";

/// Killed with the end of the test, also after a panic.
struct ChildGuard(Child);

impl Drop for ChildGuard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Not a test of its own: the process that `writes_acknowledged_by_a_killed_process_survive` kills.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "run by writes_acknowledged_by_a_killed_process_survive"]
async fn child_that_writes_until_it_is_killed() {
    let Ok(dir) = std::env::var(CHILD_DIR) else { return };
    let mut store = open(Path::new(&dir));
    let mut index = store.get_log_state().await.unwrap().last_log_id.map_or(0, |last| last.index + 1);
    loop {
        let term = index / 10 + 1;
        if index % 10 == 0 {
            store.save_vote(&Vote::new(term, 1)).await.unwrap();
        }
        append(&mut store, blanks(term, index..index + 1)).await;
        if index % 50 == 49 {
            store.purge(id((index - 20) / 10 + 1, index - 20)).await.unwrap();
        }
        // Acknowledged: from here on it must survive.
        let mut out = std::io::stdout().lock();
        writeln!(out, "acknowledged {index}").unwrap();
        out.flush().unwrap();
        index += 1;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_acknowledged_by_a_killed_process_survive() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let mut acknowledged = 0;
    for kill_after in [3, 17, 60, 1, 90] {
        let child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "raft::log::store_tests::child_that_writes_until_it_is_killed",
                "--ignored",
                "--nocapture",
            ])
            .env(CHILD_DIR, &log)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut child = ChildGuard(child);
        let lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
        let indexes = lines.map_while(Result::ok).filter_map(|line| {
            line.split_once("acknowledged ").and_then(|(_, index)| index.trim().parse::<u64>().ok())
        });
        acknowledged = indexes.take(kill_after).last().expect("the child wrote nothing");
        drop(child);

        let mut store = open(&log);
        let state = store.get_log_state().await.unwrap();
        let last = state.last_log_id.expect("an empty log");
        assert!(last.index >= acknowledged, "{last:?} is below {acknowledged}");
        assert_eq!(last.leader_id.term, last.index / 10 + 1);
        let vote = store.read_vote().await.unwrap().expect("no vote");
        assert!(vote >= Vote::new(acknowledged / 10 + 1, 1), "{vote:?} at {acknowledged}");
        let purged = state.last_purged_log_id.map_or(0, |purged| purged.index + 1);
        let found = store.try_get_log_entries(..).await.unwrap();
        let indexes: Vec<u64> = found.iter().map(|entry| entry.log_id.index).collect();
        assert_eq!(indexes, (purged..=last.index).collect::<Vec<_>>());
        close(store);
    }
    assert!(acknowledged >= 170, "{acknowledged}");
}

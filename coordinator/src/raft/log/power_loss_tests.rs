//! Tests of a voter's storage on a disk that loses power at any moment: acknowledged writes survive, the log has no
//! gap, and openraft starts on it.

use super::codec;
use super::store::LogStore;
use crate::raft::identity::protocol_support::ProtocolSupport;
use crate::raft::machine::checksums::Checksums;
use crate::raft::machine::{Machine, ReplicatedState};
use crate::raft::snapshot::SnapshotDir;
use crate::raft::types::{Entry, LogId, SnapshotMeta, TypeConfig, Vote};
use archon_coordinator_core::ClusterState;
use archon_wal::WalConfig;
use archon_wal::disk::MemoryDisk;
use openraft::entry::RaftEntry as _;
use openraft::storage::{IOFlushed, RaftLogReader as _, RaftLogStorage as _, StorageHelper};
use openraft::type_config::TypeConfigExt as _;
use openraft::type_config::alias::OneshotReceiverOf;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use uuid::Uuid;

/// Pseudo-random numbers, reproducible by seed.
struct Numbers(u64);

impl Numbers {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Returns a number from `low` up to and including `high`, or `low` if that is more.
    fn between(&mut self, low: u64, high: u64) -> u64 {
        low + (self.next() >> 11) % (high.saturating_sub(low) + 1)
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn id(term: u64, index: u64) -> LogId {
    LogId { leader_id: term.into(), index }
}

fn config() -> WalConfig {
    WalConfig { segment_bytes: 4096, write_bytes_max: 4096, ..WalConfig::default() }
}

/// Content of a voter's log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct LogContent {
    vote: Option<Vote>,
    purged: Option<LogId>,
    entries: BTreeMap<u64, LogId>,
}

impl LogContent {
    fn last(&self) -> Option<LogId> {
        self.entries.values().next_back().copied().or(self.purged)
    }

    fn purge(&mut self, upto: LogId) {
        self.entries.retain(|index, _| *index > upto.index);
        self.purged = Some(upto);
    }
}

type FlushReceiver = OneshotReceiverOf<TypeConfig, Result<(), io::Error>>;

fn snapshots(disk: &MemoryDisk) -> SnapshotDir {
    SnapshotDir::open_on(Arc::new(disk.clone()), Path::new("snapshots"), Uuid::nil()).unwrap()
}

fn newest(snapshots: &SnapshotDir) -> io::Result<Option<LogId>> {
    Ok(snapshots.newest()?.and_then(|(meta, _)| meta.last_log_id))
}

fn open(disk: &MemoryDisk) -> Result<LogStore, crate::raft::StoreError> {
    let snapshots = snapshots(disk);
    LogStore::open(Arc::new(disk.clone()), config(), || newest(&snapshots))
}

/// One incarnation of a voter's storage, used as openraft uses it, and the acknowledgements it received.
struct Voter {
    disk: MemoryDisk,
    store: LogStore,
    snapshots: SnapshotDir,
    snapshot: Option<LogId>,
    committed: u64,
    /// Content of the log after each call; the first one is the initial content.
    history: Vec<LogContent>,
    /// Index of the newest content known to be durable; and appends without a known outcome.
    acknowledged: usize,
    waiting: Vec<(usize, FlushReceiver)>,
}

impl Voter {
    /// Starts on a disk as openraft does.
    async fn start(disk: &MemoryDisk) -> Result<Self, String> {
        let mut store = open(disk).map_err(|error| format!("the log: {error}"))?;
        let mut machine =
            Machine::new(ReplicatedState::new(snapshots(disk), ProtocolSupport::default()), Checksums::new(1));
        let mut helper = StorageHelper::new(&mut store, &mut machine).with_id(1);
        helper.get_initial_state().await.map_err(|error| format!("openraft: {error}"))?;
        let held = held(&mut store).await;
        let snapshots = snapshots(disk);
        let snapshot = newest(&snapshots).map_err(|error| format!("snapshots: {error}"))?;
        let committed = store.read_committed().await.unwrap().max(snapshot).map_or(0, |id| id.index);
        Ok(Self {
            disk: disk.clone(),
            store,
            snapshots,
            snapshot,
            committed,
            history: vec![held],
            acknowledged: 0,
            waiting: Vec::new(),
        })
    }

    fn now(&self) -> &LogContent {
        &self.history[self.history.len() - 1]
    }

    fn term(&self) -> u64 {
        self.now().vote.map_or(0, |vote| vote.leader_id.term)
    }

    fn expect(&mut self, change: impl FnOnce(&mut LogContent)) -> usize {
        let mut next = self.now().clone();
        change(&mut next);
        self.history.push(next);
        self.history.len() - 1
    }

    async fn vote(&mut self, vote: Vote) -> io::Result<()> {
        let at = self.expect(|held| held.vote = Some(vote));
        self.store.save_vote(&vote).await?;
        self.acknowledged = at;
        Ok(())
    }

    async fn append(&mut self, count: u64) -> io::Result<()> {
        let (term, first) = (self.term(), self.now().last().map_or(0, |last| last.index + 1));
        let ids: Vec<LogId> = (first..first + count).map(|index| id(term, index)).collect();
        let at = self.expect(|held| held.entries.extend(ids.iter().map(|id| (id.index, *id))));
        let (done, durable) = TypeConfig::oneshot();
        let entries: Vec<Entry> = ids.into_iter().map(Entry::new_blank).collect();
        self.store.append(entries, IOFlushed::signal(done)).await?;
        self.waiting.push((at, durable));
        Ok(())
    }

    async fn truncate(&mut self, last: Option<LogId>) -> io::Result<()> {
        self.expect(|held| held.entries.retain(|index, _| last.is_some_and(|last| *index <= last.index)));
        self.store.truncate_after(last).await
    }

    async fn purge(&mut self, upto: LogId) -> io::Result<()> {
        self.expect(|held| held.purge(upto));
        self.store.purge(upto).await
    }

    fn publish(&mut self, at: LogId) -> io::Result<()> {
        let meta = SnapshotMeta { last_log_id: Some(at), ..SnapshotMeta::default() };
        let body = codec::encode("snapshot", &ClusterState::default())?;
        self.snapshots.publish(&meta, &body)?;
        self.snapshot = Some(at);
        self.committed = self.committed.max(at.index);
        Ok(())
    }

    /// Makes one call, or a few that belong together; an error means that the power is off.
    async fn step(&mut self, numbers: &mut Numbers) -> io::Result<()> {
        let last = self.now().last().map_or(0, |last| last.index);
        let held = |this: &Self, index: u64| this.now().entries.get(&index).copied();
        match numbers.between(0, 19) {
            0 | 1 => {
                let vote = Vote::new(self.term() + numbers.between(1, 3), numbers.between(1, 3));
                self.vote(vote).await
            }
            // A new leader has other entries in place of uncommitted ones.
            2 => {
                self.vote(Vote::new(self.term() + 1, 2)).await?;
                let keep = numbers.between(self.committed, last);
                match held(self, keep) {
                    Some(keep) => self.truncate(Some(keep)).await,
                    None => Ok(()),
                }
            }
            3 | 4 => {
                self.committed = numbers.between(self.committed, last);
                let committed = held(self, self.committed);
                if committed.is_some() {
                    self.store.save_committed(committed).await?;
                }
                Ok(())
            }
            5 | 6 => match held(self, numbers.between(self.committed, last)) {
                Some(at) => self.publish(at),
                None => Ok(()),
            },
            7..=9 => {
                let upto = self.snapshot.map_or(0, |snapshot| numbers.between(0, snapshot.index));
                let covered = held(self, upto).filter(|_| self.snapshot.is_some());
                match covered {
                    Some(upto) => self.purge(upto).await,
                    None => Ok(()),
                }
            }
            // A snapshot of another leader, beyond the end or in place of uncommitted entries.
            10 => {
                self.vote(Vote::new(self.term() + 1, 3)).await?;
                let at = id(self.term(), numbers.between(self.committed + 1, last + 20));
                if held(self, at.index).is_some() {
                    let committed = held(self, self.committed).or(self.now().purged);
                    self.truncate(committed).await?;
                }
                self.publish(at)?;
                self.purge(at).await
            }
            _ => self.append(numbers.between(1, 6)).await,
        }
    }

    /// Cuts the power; returns the remaining disk, and the content it must have.
    async fn lose_power(self, numbers: &mut Numbers) -> (MemoryDisk, DurableContent) {
        let after = self.disk.power_loss(|| numbers.next() >> 9);
        drop(self.store);
        let mut acknowledged = self.acknowledged;
        for (at, durable) in self.waiting {
            if matches!(durable.await, Ok(Ok(()))) {
                acknowledged = acknowledged.max(at);
            }
        }
        (after, DurableContent { history: self.history, acknowledged, snapshot: self.snapshot })
    }
}

async fn held(store: &mut LogStore) -> LogContent {
    let state = store.get_log_state().await.unwrap();
    let entries = store.try_get_log_entries(..).await.unwrap();
    LogContent {
        vote: store.read_vote().await.unwrap(),
        purged: state.last_purged_log_id,
        entries: entries.iter().map(|entry| (entry.log_id.index, entry.log_id)).collect(),
    }
}

/// Content that a disk must hold after a power failure.
struct DurableContent {
    history: Vec<LogContent>,
    acknowledged: usize,
    snapshot: Option<LogId>,
}

impl DurableContent {
    /// Checks that the log equals the requested content as of some call, not before the last acknowledged one.
    async fn check(&self, disk: &MemoryDisk) -> Result<(), String> {
        let mut store = open(disk).map_err(|error| error.to_string())?;
        let found = held(&mut store).await;
        if !self.history[self.acknowledged..].contains(&found) {
            let least = &self.history[self.acknowledged];
            return Err(format!("acknowledged was {least:?}, and there is {found:?}"));
        }
        let snapshot = newest(&snapshots(disk)).map_err(|error| error.to_string())?;
        if snapshot < self.snapshot || snapshot < found.purged {
            return Err(format!("the snapshot is {snapshot:?}, not {:?}; purged {:?}", self.snapshot, found.purged));
        }
        Ok(())
    }

    fn acknowledges(&self, entry: LogId) -> bool {
        let least = &self.history[self.acknowledged];
        least.entries.get(&entry.index) == Some(&entry)
    }
}

/// Runs several incarnations of one voter, each ended by a power loss.
async fn lives(seed: u64, block_bytes: usize) -> Result<(), String> {
    let mut numbers = Numbers::new(seed);
    let mut disk = MemoryDisk::with_block_bytes(block_bytes);
    for life in 0..4 {
        let mut voter = Voter::start(&disk).await.map_err(|error| format!("life {life}: {error}"))?;
        let steps = numbers.between(5, 80);
        disk.fail_power_after(numbers.between(10, 250));
        for _ in 0..steps {
            if voter.step(&mut numbers).await.is_err() {
                break;
            }
        }
        let (after, promised) = voter.lose_power(&mut numbers).await;
        promised.check(&after).await.map_err(|error| format!("life {life}: {error}"))?;
        // The content reported at a start is durable: a power loss right after it removes nothing.
        let again = after.power_loss(|| numbers.next() >> 9);
        promised.check(&again).await.map_err(|error| format!("life {life}, once more: {error}"))?;
        disk = again;
    }
    Ok(())
}

#[test]
fn voter_starts_after_power_loss_during_purge() {
    let runs = std::env::var("RAFT_POWER_LOSS_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(150);
    let runtime = runtime();
    for seed in 1..=runs {
        for block_bytes in [1, 4096] {
            if let Err(what) = runtime.block_on(lives(seed, block_bytes)) {
                panic!("seed {seed}, blocks of {block_bytes}: {what}");
            }
        }
    }
}

/// The voters purge at nearly the same entry, so a fault that stops one stops all of them.
#[test]
fn acknowledged_majority_survives_common_power_loss() {
    for seed in 1..=60 {
        runtime().block_on(async {
            let mut numbers = Numbers::new(seed);
            let mut lost = Vec::new();
            let disks: Vec<_> =
                (0..3).map(|n| MemoryDisk::with_block_bytes([1, 4096][(seed + n) as usize % 2])).collect();
            for disk in &disks {
                let mut voter = Voter::start(disk).await.unwrap();
                voter.vote(Vote::new(1, 1)).await.unwrap();
                for _ in 0..20 {
                    voter.append(5).await.unwrap();
                }
                voter.publish(id(1, 80)).unwrap();
                disk.fail_power_after(numbers.between(0, 12));
                let _ = voter.append(20).await;
                let _ = voter.append(20).await;
                let _ = voter.purge(id(1, 70 + numbers.between(0, 3))).await;
                let _ = voter.append(5).await;
                let _ = voter.purge(id(1, 80)).await;
                lost.push(voter.lose_power(&mut numbers).await);
            }
            let mut stand = Vec::new();
            for (voter, (disk, promised)) in lost.iter().enumerate() {
                promised.check(disk).await.unwrap_or_else(|error| panic!("seed {seed}, voter {voter}: {error}"));
                stand.push(
                    Voter::start(disk).await.unwrap_or_else(|error| panic!("seed {seed}, voter {voter}: {error}")),
                );
            }
            for entry in (0..=145).map(|index| id(1, index)) {
                let acknowledged = lost.iter().filter(|(_, promised)| promised.acknowledges(entry)).count();
                let has = |voter: &&Voter| {
                    voter.now().entries.contains_key(&entry.index) || voter.now().purged >= Some(entry)
                };
                let found = stand.iter().filter(has).count();
                assert!(found >= acknowledged, "seed {seed}: {entry} was with {acknowledged} voters, is with {found}");
            }
        });
    }
}

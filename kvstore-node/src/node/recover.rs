//! Start-up recovery: from log and engine to replicas that may be opened.

use crate::engine::{Engine, EngineError, PageLimit};
use crate::flusher;
use crate::node::NodeError;
use crate::storage::store;
use archon_host::{HeldPlacement, HeldState, LogReplay, RecoveredCopy, UNKNOWN};
use archon_kv::{Effect, LogTime, MemtableBudget, ViewError, engine_position, row};
use archon_replica::{Position, RecoveredState as ReplicaState, Run};
use archon_types::{Epoch, PartitionId, PlacementId, ScanOrder, Seq};
use archon_wal::{RecoveredLog, StreamState, Wal, WalBatch, WalError};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Bound;

/// Bytes read from the log at once.
const READ_BYTES: usize = 4 * 1024 * 1024;

/// Result of the recovery.
pub(crate) struct Recovery {
    /// Placements that may be opened.
    pub(crate) found: BTreeMap<PlacementId, RecoveredCopy>,
    /// All placements, including damaged ones.
    pub(crate) held: BTreeMap<PlacementId, HeldPlacement>,
}

/// Reads every stream of the log. `engine_is_new` means that a damaged engine was set aside, so the present one is
/// empty.
pub(crate) fn recover(
    wal: &Wal,
    recovered: &RecoveredLog,
    engine: &dyn Engine,
    engine_is_new: bool,
    budget: &MemtableBudget,
) -> Result<Recovery, NodeError> {
    let mut recovery = Recovery { found: BTreeMap::new(), held: BTreeMap::new() };
    for (stream, state) in &recovered.streams {
        let placement = PlacementId::new(stream.0);
        let named = state.metas.get(&store::META_PARTITION).map(|value| store::read_partition(value));
        let Some(Ok(partition)) = named else {
            tracing::error!(%placement, "a stream of the log names no partition; its data is kept");
            // Listed all the same: if it were opened as new, the log would refuse it, and with it all the shard's other
            // writes.
            recovery.held.insert(placement, HeldPlacement { partition: UNKNOWN, state: HeldState::Damaged });
            continue;
        };
        let read = if state.damaged {
            Err(ReadFailure::Damaged("the log lost entries of this placement".to_owned()))
        } else {
            read_placement(wal, (placement, partition), state, engine, engine_is_new, budget)
        };
        let state = match read {
            Ok(found) => {
                recovery.found.insert(placement, found);
                HeldState::SetAside
            }
            // The disk refused: the copy's state is unknown, and it must not be discarded for that.
            Err(ReadFailure::Unread(error)) => return Err(*error),
            Err(ReadFailure::Damaged(why)) => {
                tracing::error!(%partition, %placement, why, "placement damaged; it will not be served");
                HeldState::Damaged
            }
        };
        recovery.held.insert(placement, HeldPlacement { partition, state });
    }
    // Data without a log may be anything: it is neither served nor opened as new, and, since no command names it, not
    // deleted either (PROTOCOL rule 22). An interrupted unload is finished when its duty is pushed again.
    let spaces = match engine.spaces() {
        // Affected copies were found above, or will be found when they are read.
        Err(error) if error.is_damage() => {
            tracing::error!(%error, "the engine cannot list its contents");
            Vec::new()
        }
        listed => listed?,
    };
    for placement in spaces {
        if let Entry::Vacant(unknown) = recovery.held.entry(placement) {
            tracing::warn!(%placement, "the engine holds data unknown to the log; it is kept until a duty names it");
            unknown.insert(HeldPlacement { partition: UNKNOWN, state: HeldState::Damaged });
        }
    }
    Ok(recovery)
}

/// Reason why a placement was not read.
enum ReadFailure {
    /// The stored data differs from what was written.
    Damaged(String),
    /// The disk refused to read.
    Unread(Box<NodeError>),
}

impl From<String> for ReadFailure {
    fn from(why: String) -> Self {
        Self::Damaged(why)
    }
}

impl From<EngineError> for ReadFailure {
    fn from(error: EngineError) -> Self {
        if error.is_damage() { Self::Damaged(error.to_string()) } else { Self::Unread(Box::new(error.into())) }
    }
}

impl From<ViewError> for ReadFailure {
    fn from(error: ViewError) -> Self {
        match error {
            ViewError::Engine(error) => error.into(),
            ViewError::Row(error) => Self::Damaged(error.to_string()),
        }
    }
}

impl From<WalError> for ReadFailure {
    fn from(error: WalError) -> Self {
        match error {
            WalError::Io { .. } => Self::Unread(Box::new(error.into())),
            other => Self::Damaged(other.to_string()),
        }
    }
}

fn read_placement(
    wal: &Wal,
    (placement, partition): (PlacementId, PartitionId),
    state: &StreamState,
    engine: &dyn Engine,
    engine_is_new: bool,
    budget: &MemtableBudget,
) -> Result<RecoveredCopy, ReadFailure> {
    let words = |error: store::StoreError| error.to_string();
    let position = |key| match state.metas.get(&key) {
        Some(value) => store::read_position(value).map_err(words),
        None => Ok(Position::ZERO),
    };
    let epoch = match state.metas.get(&store::META_EPOCH) {
        Some(value) => store::read_epoch(value).map_err(words)?,
        None => Epoch::ZERO,
    };
    let base = position(store::META_BASE)?;
    let mut complete = position(store::META_COMPLETE)?.max(base);
    let committed = position(store::META_COMMIT)?.max(complete);
    // An empty space is filled from the log if that reaches back to the beginning, even if an engine that was set aside
    // before had synced data: the log notes the new one's position only once it has synced.
    if engine_is_new || (base == Position::ZERO && is_empty(engine, placement)?) {
        if base.seq > Seq::ZERO {
            let why = "the engine was damaged and set aside, and the log does not reach back to the beginning";
            return Err(why.to_owned().into());
        }
        if complete.seq > Seq::ZERO {
            note_empty(wal, placement)?;
        }
        complete = Position::ZERO;
    }
    // The engine may be ahead of the log's notes, never behind: then it has lost synced data.
    let written = engine_position(engine, placement)?;
    if complete.seq > Seq::ZERO && written.is_none_or(|written| written < complete.seq) {
        let why = format!("the engine holds entries up to {written:?}, but had synced them up to {}", complete.seq);
        return Err(why.into());
    }
    let stamp = engine.get(placement, row::LOG_TIME_KEY)?;
    let stamp = stamp.map(|stamp| row::decode_millis(&stamp)).transpose().map_err(|error| error.to_string())?;
    let log_time = LogTime::starting_at(stamp.unwrap_or_default());
    let mut replay = LogReplay::new(complete, written, log_time, budget.clone());
    let mut runs: Vec<Run> = Vec::new();
    let mut last = base.seq;
    let end = state.bounds.map_or(0, |bounds| bounds.last);
    while last.get() < end {
        let from = last.next().ok_or_else(|| "the log has no room after its end".to_owned())?;
        let records = wal.read(store::stream(placement), from.get(), READ_BYTES)?;
        if records.is_empty() {
            return Err(format!("the log ends at {last}, before its recorded end {end}").into());
        }
        for record in records {
            let entry = store::read_entry(record.seq, &record.data).map_err(words)?;
            if runs.last().is_none_or(|run| run.epoch != entry.at.epoch) {
                runs.push(Run { epoch: entry.at.epoch, first: entry.at.seq });
            }
            last = entry.at.seq;
            // Copied: records are slices of reads of many records, of which some may be obsolete.
            let decode = || Effect::decode(&Bytes::copy_from_slice(&entry.bytes));
            replay.take_entry(entry.at.seq, decode).map_err(|error| error.to_string())?;
        }
        // The flusher does not run yet, and the node may have stopped with a longer backlog than memory can hold.
        if budget.is_half_full() && engine.check_disk().is_ok() {
            let memtable = replay.memtable_mut();
            memtable.commit(committed.seq);
            if let Some(frozen) = memtable.freeze() {
                flusher::write_frozen(engine, placement, &frozen)?;
                drop(memtable.flushed(frozen.upto));
            }
        }
    }
    // Everything up to the engine's complete position was committed; later entries are the replica's tail, applied only
    // once a leader has committed them again (PROTOCOL rule 20).
    let commit = replay.memtable_mut().committed();
    Ok(replay.end(partition, ReplicaState { epoch, base, runs, last, commit }))
}

/// Notes in the log that the engine holds nothing of a copy, before the engine is given anything. If this process ends
/// before its first sync, the next start finds rows without a position, which is then no damage.
fn note_empty(wal: &Wal, placement: PlacementId) -> Result<(), ReadFailure> {
    let mut batch = WalBatch::new();
    store::put_position(&mut batch, placement, store::META_COMPLETE, Position::ZERO);
    batch.urgent();
    wal.append_wait(batch).map_err(|error| ReadFailure::Unread(Box::new(error.into())))
}

fn is_empty(engine: &dyn Engine, placement: PlacementId) -> Result<bool, EngineError> {
    let first = PageLimit { rows_max: 1, bytes_max: usize::MAX };
    let page = engine.page(placement, (Bound::Unbounded, Bound::Unbounded), ScanOrder::Ascending, first)?;
    Ok(page.rows.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Change, ClearStep, KeyBounds, Page};
    use archon_kv::row::Outcome;
    use archon_kv::{Record, RowChange, Window};
    use archon_types::{ClientId, Millis, PartitionId, TableId};
    use archon_wal::WalConfig;
    use bytes::Bytes;
    use std::path::Path;
    use std::sync::mpsc;
    use std::time::Duration;

    /// An engine with a disk that refuses every read, or with damaged rows.
    struct FailingEngine {
        damaged: bool,
    }

    impl FailingEngine {
        fn error(&self) -> EngineError {
            let directory = "broken".into();
            if self.damaged {
                return EngineError::Damaged { directory, what: "injected".into() };
            }
            EngineError::Io { directory, what: "read a row", source: std::io::Error::other("injected") }
        }
    }

    impl Engine for FailingEngine {
        fn get(&self, _: PlacementId, _: &[u8]) -> Result<Option<Bytes>, EngineError> {
            Err(self.error())
        }
        fn page(&self, _: PlacementId, _: KeyBounds<'_>, _: ScanOrder, _: PageLimit) -> Result<Page, EngineError> {
            Err(self.error())
        }
        fn write(&self, _: &[Change]) -> Result<(), EngineError> {
            Err(self.error())
        }
        fn clear_range(&self, _: PlacementId, _: KeyBounds<'_>, _: usize) -> Result<ClearStep, EngineError> {
            Err(self.error())
        }
        fn spaces(&self) -> Result<Vec<PlacementId>, EngineError> {
            Err(self.error())
        }
        fn sync(&self) -> Result<(), EngineError> {
            Err(self.error())
        }
    }

    /// A log that names the partition of this placement and holds nothing else, as a start finds it.
    fn log_naming(directory: &Path, placement: PlacementId) -> (Wal, RecoveredLog) {
        let (wal, _) = Wal::open(directory, WalConfig::default()).unwrap();
        let mut batch = WalBatch::new();
        store::put_partition(&mut batch, placement, PartitionId::new(TableId::new(1), 0));
        let (done, wait) = mpsc::channel();
        wal.append(batch, Box::new(move |result| drop(done.send(result)))).unwrap();
        wait.recv().unwrap().unwrap();
        wal.close(Duration::from_secs(5)).unwrap();
        Wal::open(directory, WalConfig::default()).unwrap()
    }

    #[test]
    fn read_error_does_not_mark_copy_as_damaged() {
        let directory = tempfile::tempdir().unwrap();
        let placement = PlacementId::new(7);
        let (wal, recovered) = log_naming(directory.path(), placement);
        let budget = MemtableBudget::default();
        assert!(recover(&wal, &recovered, &FailingEngine { damaged: false }, false, &budget).is_err());
        let damaged = recover(&wal, &recovered, &FailingEngine { damaged: true }, false, &budget).unwrap();
        assert_eq!(damaged.held[&placement].state, HeldState::Damaged);
        assert!(damaged.found.is_empty());
    }

    #[test]
    fn forgetting_in_log_reaches_rows_of_interrupted_copy() {
        let directory = tempfile::tempdir().unwrap();
        let placement = PlacementId::new(7);
        let (wal, recovered) = log_naming(directory.path(), placement);
        // A page held a window begun at position 1, which the log has not brought yet.
        let engine = crate::engine::MemoryEngine::default();
        let client = ClientId::new(uuid::Uuid::from_u128(5));
        let record = Record { client, number: 1, done_below: 0, outcome: Outcome::NotANumber };
        let value = Some(Window::new(&record, Millis::new(1)).encode());
        engine.write(&[Change { space: placement, key: row::client_key(client), value }]).unwrap();
        let mut recovery = recover(&wal, &recovered, &engine, false, &MemtableBudget::default()).unwrap();
        let mut memtable = recovery.found.remove(&placement).unwrap().memtable;
        let recorded = Effect { record: Some(record), ..Effect::new(Millis::new(1), Vec::new()) };
        let forgotten = Effect { forget: vec![client], ..Effect::new(Millis::new(2), Vec::new()) };
        for (seq, effect) in (1..).zip([recorded, forgotten]) {
            memtable.push(Seq::new(seq), effect).unwrap();
            memtable.commit(Seq::new(seq));
        }
        let changes = memtable.freeze().unwrap().changes(&engine, placement);
        let changes = changes.collect::<Result<Vec<_>, _>>().unwrap();
        let removal = Change { space: placement, key: row::client_key(client), value: None };
        assert!(changes.contains(&removal), "the engine would hold it for ever");
    }

    #[test]
    fn replay_of_long_log_stays_within_memory() {
        const ENTRIES: u64 = 40;
        let directory = tempfile::tempdir().unwrap();
        let placement = PlacementId::new(7);
        let (wal, _) = log_naming(directory.path(), placement);
        let at = |seq| Position::new(Epoch::new(1), Seq::new(seq));
        let mut batch = WalBatch::new();
        store::put_epoch(&mut batch, placement, Epoch::new(1));
        for seq in 1..=ENTRIES {
            let value = Bytes::from(vec![7; 1024 * 1024]);
            let effect = Effect::new(Millis::new(seq), vec![RowChange::set(row::value_key(&[seq as u8]), value)]);
            store::put_entry(
                &mut batch,
                placement,
                archon_replica::Entry { at: at(seq), bytes: effect.encode().unwrap() },
            );
        }
        store::put_position(&mut batch, placement, store::META_COMMIT, at(ENTRIES - 2));
        let (done, wait) = mpsc::channel();
        wal.append(batch, Box::new(move |result| drop(done.send(result)))).unwrap();
        wait.recv().unwrap().unwrap();
        wal.close(Duration::from_secs(5)).unwrap();
        let (wal, recovered) = Wal::open(directory.path(), WalConfig::default()).unwrap();
        let engine = crate::engine::MemoryEngine::default();
        let budget = MemtableBudget::new(16 * 1024 * 1024);
        let recovery = recover(&wal, &recovered, &engine, false, &budget).unwrap();
        assert!(!budget.is_full(), "{} bytes", budget.bytes_used());
        let found = &recovery.found[&placement];
        assert_eq!((found.complete, found.memtable.last()), (Position::ZERO, Seq::new(ENTRIES)));
        assert_eq!(found.recovered.commit, found.memtable.committed());
        assert!(found.recovered.commit <= Seq::new(ENTRIES - 2), "the rest may be cut by a leader");
        let written = engine_position(&engine, placement).unwrap();
        assert_eq!(written, Some(found.memtable.committed()));
        // The same again, over the rows that the engine took.
        drop(recovery);
        let recovery = recover(&wal, &recovered, &engine, false, &budget).unwrap();
        assert_eq!(recovery.found[&placement].memtable.last(), Seq::new(ENTRIES));
    }

    #[test]
    fn empty_engine_is_filled_from_whole_log_at_every_start() {
        let directory = tempfile::tempdir().unwrap();
        let placement = PlacementId::new(7);
        let (wal, _) = log_naming(directory.path(), placement);
        let mut batch = WalBatch::new();
        let at = Position::new(Epoch::new(1), Seq::new(1));
        let effect = Effect::new(Millis::new(1), vec![RowChange::set(row::value_key(b"k"), Bytes::from_static(b"v"))]);
        store::put_epoch(&mut batch, placement, at.epoch);
        store::put_entry(&mut batch, placement, archon_replica::Entry { at, bytes: effect.encode().unwrap() });
        store::put_position(&mut batch, placement, store::META_COMPLETE, at);
        let (done, wait) = mpsc::channel();
        wal.append(batch, Box::new(move |result| drop(done.send(result)))).unwrap();
        wait.recv().unwrap().unwrap();
        wal.close(Duration::from_secs(5)).unwrap();
        let (wal, recovered) = Wal::open(directory.path(), WalConfig::default()).unwrap();
        // The first start set a damaged engine aside; the second one finds the new one, with nothing synced yet.
        for is_new in [true, false] {
            let engine = crate::engine::MemoryEngine::default();
            let recovery = recover(&wal, &recovered, &engine, is_new, &MemtableBudget::default()).unwrap();
            assert_eq!(recovery.held[&placement].state, HeldState::SetAside, "at a start with a new engine: {is_new}");
            let found = &recovery.found[&placement];
            assert_eq!((found.complete, found.memtable.last()), (Position::ZERO, at.seq));
        }
        // An engine that has rows but lacks synced ones is damaged.
        let engine = crate::engine::MemoryEngine::default();
        let (key, value) = (row::value_key(b"other"), Some(Bytes::from_static(b"v")));
        engine.write(&[Change { space: placement, key, value }]).unwrap();
        let recovery = recover(&wal, &recovered, &engine, false, &MemtableBudget::default()).unwrap();
        assert_eq!(recovery.held[&placement].state, HeldState::Damaged);
        // Unless it is new, as the log notes, and the process ended before its first sync.
        wal.close(Duration::from_secs(5)).unwrap();
        let (wal, recovered) = Wal::open(directory.path(), WalConfig::default()).unwrap();
        let recovery = recover(&wal, &recovered, &engine, false, &MemtableBudget::default()).unwrap();
        assert_eq!(recovery.held[&placement].state, HeldState::SetAside);
        let found = &recovery.found[&placement];
        assert_eq!((found.complete, found.memtable.last()), (Position::ZERO, at.seq));
    }

    #[test]
    fn copy_with_unreadable_entry_is_kept_as_held() {
        let directory = tempfile::tempdir().unwrap();
        let placement = PlacementId::new(7);
        let (wal, _) = log_naming(directory.path(), placement);
        let change = RowChange::set(row::value_key(b"key"), row::encode_value(archon_types::Revision::new(1), b"1"));
        let read = Effect::new(Millis::new(1), vec![change]).encode().unwrap();
        let newer = [&[u8::MAX][..], &read[1..]].concat().into();
        let mut batch = WalBatch::new();
        store::put_epoch(&mut batch, placement, Epoch::new(1));
        for (seq, bytes) in (1..).zip([read.clone(), newer, read]) {
            let at = Position::new(Epoch::new(1), Seq::new(seq));
            store::put_entry(&mut batch, placement, archon_replica::Entry { at, bytes });
        }
        let (done, wait) = mpsc::channel();
        wal.append(batch, Box::new(move |result| drop(done.send(result)))).unwrap();
        wait.recv().unwrap().unwrap();
        wal.close(Duration::from_secs(5)).unwrap();
        let (wal, recovered) = Wal::open(directory.path(), WalConfig::default()).unwrap();
        let engine = crate::engine::MemoryEngine::default();
        let recovery = recover(&wal, &recovered, &engine, false, &MemtableBudget::default()).unwrap();
        assert_eq!(recovery.held[&placement].state, HeldState::SetAside, "it is not given up");
        let found = &recovery.found[&placement];
        let why = found.unreadable.as_deref().unwrap_or_default();
        assert!(why.contains("entry 2") && why.contains("format 255"), "{why}");
        assert_eq!(found.recovered.last, Seq::new(3), "of the rest of the log the positions are known");
    }

    /// An entry with this many changes of a few bytes: more than this version writes or reads.
    fn unbounded_entry(changes: u32) -> Bytes {
        let number = [changes as u8 & 0x7F | 0x80, (changes >> 7) as u8 & 0x7F | 0x80, (changes >> 14) as u8];
        let mut entry = [&[5][..], &1_u64.to_be_bytes(), &[0], &number].concat();
        for change in 0..changes {
            let (key, value) = (tiny_key(change), row::encode_value(archon_types::Revision::new(1), b"1"));
            entry.extend([&[key.len() as u8][..], &key, &[value.len() as u8 + 1], &value].concat());
        }
        entry.into()
    }

    fn tiny_key(number: u32) -> Bytes {
        row::value_key(format!("n{number:06}").as_bytes())
    }

    #[test]
    fn replica_with_entry_beyond_bound_is_kept_and_not_served() {
        const CHANGES: u32 = 20_000;
        let directory = tempfile::tempdir().unwrap();
        let placement = PlacementId::new(7);
        let (wal, _) = log_naming(directory.path(), placement);
        let mut batch = WalBatch::new();
        store::put_epoch(&mut batch, placement, Epoch::new(1));
        let at = Position::new(Epoch::new(1), Seq::new(1));
        let bytes = unbounded_entry(CHANGES);
        store::put_entry(&mut batch, placement, archon_replica::Entry { at, bytes });
        let (done, wait) = mpsc::channel();
        wal.append(batch, Box::new(move |result| drop(done.send(result)))).unwrap();
        wait.recv().unwrap().unwrap();
        wal.close(Duration::from_secs(5)).unwrap();
        let (wal, recovered) = Wal::open(directory.path(), WalConfig::default()).unwrap();
        let engine = crate::engine::MemoryEngine::default();
        let recovery = recover(&wal, &recovered, &engine, false, &MemtableBudget::default()).unwrap();
        assert_eq!(recovery.held[&placement].state, HeldState::SetAside, "it is not given up");
        let found = &recovery.found[&placement];
        let why = found.unreadable.as_deref().unwrap_or_default();
        assert!(why.contains("entry 1") && why.contains("changes of 20000, the limit is 8192"), "{why}");
    }

    #[test]
    fn data_without_log_is_kept_and_not_served() {
        let directory = tempfile::tempdir().unwrap();
        let (wal, recovered) = Wal::open(directory.path(), WalConfig::default()).unwrap();
        let engine = crate::engine::MemoryEngine::default();
        let space = PlacementId::new(9);
        let (key, value) = (Bytes::from_static(b"key"), Some(Bytes::from_static(b"value")));
        engine.write(&[Change { space, key, value }]).unwrap();
        let recovery = recover(&wal, &recovered, &engine, false, &MemtableBudget::default()).unwrap();
        assert!(recovery.found.is_empty());
        assert_eq!(recovery.held[&space], HeldPlacement { partition: UNKNOWN, state: HeldState::Damaged });
        assert_eq!(engine.spaces().unwrap(), [space]);
    }
}

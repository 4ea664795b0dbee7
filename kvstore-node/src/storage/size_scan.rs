//! Size scan: counts stored data slowly in the background, for plans and for the progress of copies.
//!
//! It counts the rows that a reader would see, in a [walk](crate::storage::row_walk) over all of them. The shard's
//! memtable knows writes behind the walk, or beyond its end. A count from before a clear, as after a split, does not
//! apply to the remaining rows: such a placement counts as never counted.

use crate::engine::{Engine, PageLimit};
use crate::session::holdings::Holdings;
use crate::shard::{RowRun, ShardMessage, Shards};
use crate::statistics::load::LoadBoard;
use crate::storage::row_walk::{NewerRows, Pace, Rows, end_of_rows};
use archon_kv::Growth;
use archon_kv::row::{self, KIND_VALUE};
use archon_proto::convert::members::load::PlacementLoad;
use archon_types::{KeyRange, PartitionId, PlacementId};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// Costs about one percent of a core.
const PACE: Pace = Pace { page: PageLimit::bytes(1024 * 1024), rest_factor: 100 };
/// Costs about ten percent of a core: without a first count, growth has no meaning either.
const FIRST_PACE: Pace = Pace { rest_factor: 10, ..PACE };
const REST_AFTER_ROUND: Duration = Duration::from_secs(2);
/// Age at which the count of a placement without writes is repeated: a replica may have been loaded again meanwhile.
const UNCHANGED_AGAIN: Duration = Duration::from_secs(600);
/// Interval of looks for placements that were never counted.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// Interval of size reports between two counts.
const TELL_INTERVAL: Duration = Duration::from_millis(500);
/// Minimum growth, in bytes, for estimating the share of new rows.
const TELLING_BYTES: i64 = 64 * 1024;

/// Result of a placement's count.
#[derive(Clone, Copy, Debug)]
struct CountResult {
    load: PlacementLoad,
    at: Instant,
    /// Apparent growth since, as last reported by the shard.
    grown: Growth,
    /// Share of apparent growth before this count that was real, from 0 to 1: the rest replaced rows that had left the
    /// memtable.
    new_part: f64,
}

impl CountResult {
    /// Returns whether to count the placement again: it was written to, or the count is old.
    fn is_due(&self, now: Instant) -> bool {
        self.grown != Growth::default() || now.saturating_duration_since(self.at) >= UNCHANGED_AGAIN
    }

    /// Returns the estimated load of a placement that has grown by `grown` since.
    fn with(&self, grown: Growth) -> PlacementLoad {
        let grow = |counted: u64, grown: i64| {
            let grown = if grown > 0 { (grown as f64 * self.new_part) as i64 } else { grown };
            counted.saturating_add_signed(grown)
        };
        let PlacementLoad { placement, bytes, keys } = self.load;
        PlacementLoad { placement, bytes: grow(bytes, grown.bytes), keys: grow(keys, grown.keys) }
    }

    /// Returns the next count, which found `load` after apparent growth of `seemed`.
    fn next(before: Option<Self>, load: PlacementLoad, seemed: Growth) -> Self {
        let before_part = before.map_or(1.0, |before| before.new_part);
        let new_part = match before {
            Some(before) if seemed.bytes >= TELLING_BYTES => {
                let grown = load.bytes as f64 - before.load.bytes as f64;
                // After a large removal, the remaining size says nothing about writes.
                if grown < 0.0 { before_part } else { (grown / seemed.bytes as f64).min(1.0) }
            }
            _ => before_part,
        };
        Self { load, at: Instant::now(), grown: Growth::default(), new_part }
    }
}

/// Counts one placement after the other, new ones beside the others, and reports the growth of counted ones meanwhile,
/// until `stop` is cancelled.
pub(crate) async fn count(
    board: Arc<LoadBoard>,
    engine: Arc<dyn Engine>,
    holdings: Arc<Holdings>,
    shards: Shards,
    stop: CancellationToken,
) {
    let known: Mutex<BTreeMap<PlacementId, CountResult>> = Mutex::default();
    // Counts one placement.
    let count = async |placement: PlacementId, pace: Pace| {
        let Some(partition) = holdings.partition_of(placement) else { return };
        let memtable = ShardMemtable { shards: &shards, partition, placement };
        let rows = Rows { engine: &engine, placement, pace };
        let note = |Count { load, before, since, .. }| {
            if holdings.partition_of(placement).is_none() {
                known.lock().remove(&placement);
                return;
            }
            let counted = {
                let mut known = known.lock();
                // Growth that the count missed is in neither.
                let mut counted = CountResult::next(known.get(&placement).copied(), load, before.without(since));
                counted.grown = since;
                known.insert(placement, counted);
                counted
            };
            board.placement(counted.with(since));
        };
        count_and_rest(&rows, &memtable, note).await;
    };
    // The placement that is counted again. Two counts of one would spoil each other.
    let again_now: Mutex<Option<PlacementId>> = Mutex::default();
    let is_known = |placement: PlacementId| known.lock().contains_key(&placement);
    let first = async {
        loop {
            for placement in holdings.whole() {
                if !is_known(placement) && *again_now.lock() != Some(placement) {
                    count(placement, FIRST_PACE).await;
                }
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    };
    let again = async {
        loop {
            for placement in holdings.whole() {
                if known.lock().get(&placement).is_some_and(|counted| counted.is_due(Instant::now())) {
                    *again_now.lock() = Some(placement);
                    let forgotten = async {
                        while is_known(placement) {
                            tokio::time::sleep(LOOK_INTERVAL).await;
                        }
                    };
                    // One that became unknown is counted faster.
                    tokio::select! {
                        () = count(placement, PACE) => {}
                        () = forgotten => {}
                    }
                    *again_now.lock() = None;
                }
            }
            known.lock().retain(|placement, _| holdings.partition_of(*placement).is_some());
            tokio::time::sleep(REST_AFTER_ROUND).await;
        }
    };
    let telling = async {
        loop {
            tokio::time::sleep(TELL_INTERVAL).await;
            for (placement, grown) in shards.grown().await {
                let Some(grown) = grown else {
                    known.lock().remove(&placement);
                    board.uncounted(placement);
                    continue;
                };
                let counted = known.lock().get_mut(&placement).map(|counted| {
                    counted.grown = grown;
                    *counted
                });
                if let Some(counted) = counted
                    && holdings.partition_of(placement).is_some()
                {
                    board.placement(counted.with(grown));
                }
            }
        }
    };
    tokio::select! {
        () = first => {}
        () = again => {}
        () = telling => {}
        () = stop.cancelled() => {}
    }
}

/// The memtable over a placement's rows in the engine.
trait MemtableOverlay: NewerRows {
    /// Returns its last user row.
    async fn last(&self) -> Option<Bytes>;
    /// Begins the count. Returns the last user row to count, given that the last one was `known` before; `None` if no
    /// shard has the placement.
    async fn begun(&self, known: Option<Bytes>) -> Option<Option<Bytes>>;
    /// Ends the count. Returns the apparent growth since the previous count, and the growth since this one.
    async fn counted(&self) -> Option<(Growth, Growth)>;
}

struct ShardMemtable<'a> {
    shards: &'a Shards,
    partition: PartitionId,
    placement: PlacementId,
}

impl NewerRows for ShardMemtable<'_> {
    async fn gathered(&self, from: Bound<Bytes>) -> Option<RowRun> {
        self.shards.gathered(self.partition, self.placement, from).await
    }

    async fn reached(&self, key: Bytes) {
        // A shard that has ended has nothing to count.
        let _ =
            self.shards.of(self.partition).push(ShardMessage::CountReached { placement: self.placement, key }).await;
    }
}

impl MemtableOverlay for ShardMemtable<'_> {
    async fn last(&self) -> Option<Bytes> {
        self.shards.last_gathered(self.partition, self.placement, KeyRange::ALL).await
    }

    async fn begun(&self, known: Option<Bytes>) -> Option<Option<Bytes>> {
        let (answer, wait) = oneshot::channel();
        let ask = ShardMessage::CountBegun { placement: self.placement, known, answer };
        self.shards.of(self.partition).push(ask).await.ok()?;
        wait.await.ok()
    }

    async fn counted(&self) -> Option<(Growth, Growth)> {
        let (answer, wait) = oneshot::channel();
        let ask = ShardMessage::CountEnded { placement: self.placement, answer };
        self.shards.of(self.partition).push(ask).await.ok()?;
        wait.await.ok().flatten()
    }
}

/// A complete count of a placement.
struct Count {
    load: PlacementLoad,
    /// Apparent growth since the previous count.
    before: Growth,
    /// Growth since this one.
    since: Growth,
    /// Rest before the next count.
    rest: Duration,
}

/// Counts a placement, passes the count to `note`, and rests before the caller counts the next one: small placements
/// are read at once, and would follow each other without a pause.
async fn count_and_rest(rows: &Rows<'_>, memtable: &impl MemtableOverlay, note: impl FnOnce(Count)) {
    let Some(count) = count_placement(rows, memtable).await else { return };
    let rest = count.rest;
    note(count);
    tokio::time::sleep(rest).await;
}

async fn count_placement(rows: &Rows<'_>, memtable: &impl MemtableOverlay) -> Option<Count> {
    let mut load = PlacementLoad { placement: rows.placement, bytes: 0, keys: 0 };
    let mut show = |row: &Bytes, bytes: usize| {
        load.bytes += bytes as u64;
        load.keys += u64::from(row.first() == Some(&KIND_VALUE));
    };
    let (begin, end) = row::value_bounds(&KeyRange::ALL);
    let mut rest = Duration::ZERO;
    // The memtable first: rows that leave it meanwhile are in the engine by then.
    let gathered = memtable.last().await;
    let stored = rows.last_stored((begin.clone(), end.clone())).await?;
    if let Some(last) = memtable.begun(stored.max(gathered)).await? {
        rest += rows.walk((begin, row::just_after(&last)), memtable, &mut show).await?;
    }
    rest += rows.walk((end, end_of_rows()), memtable, &mut show).await?;
    let (before, since) = memtable.counted().await?;
    Some(Count { load, before, since, rest })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Change, ClearStep, EngineError, KeyBounds, MemoryEngine, Page};
    use archon_kv::row::{self, LOG_TIME_KEY, POSITION_KEY, value_key};
    use archon_kv::{Effect, Memtable, MemtableBudget, RowChange};
    use archon_types::{Millis, ScanOrder, Seq};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const SPACE: PlacementId = PlacementId::new(1);

    /// An overlay of a memtable without changes, read this many rows at a time.
    struct StaticOverlay<'a> {
        memtable: &'a Memtable,
        rows: usize,
        cleared: bool,
    }

    impl NewerRows for StaticOverlay<'_> {
        async fn gathered(&self, from: Bound<Bytes>) -> Option<RowRun> {
            Some(RowRun::of(self.memtable, from.as_ref().map(|key| &key[..]), self.rows))
        }
    }

    impl MemtableOverlay for StaticOverlay<'_> {
        async fn last(&self) -> Option<Bytes> {
            self.memtable.last_value(&KeyRange::ALL)
        }

        async fn begun(&self, known: Option<Bytes>) -> Option<Option<Bytes>> {
            Some(known.max(self.last().await))
        }

        async fn counted(&self) -> Option<(Growth, Growth)> {
            (!self.cleared).then(Default::default)
        }
    }

    #[test]
    fn estimate_separates_new_rows_from_replaced_ones() {
        let load = |bytes| PlacementLoad { placement: SPACE, bytes, keys: 10 };
        let grown = |bytes| Growth { bytes, keys: 5 };
        let first = CountResult::next(None, load(1_000_000), Growth::default());
        assert_eq!(first.with(grown(500_000)), PlacementLoad { placement: SPACE, bytes: 1_500_000, keys: 15 });
        // Half of it was new.
        let second = CountResult::next(Some(first), load(1_250_000), grown(500_000));
        assert_eq!(second.with(grown(100_000)).bytes, 1_300_000);
        // None of it was; removed bytes are subtracted all the same.
        let third = CountResult::next(Some(second), load(1_250_000), grown(100_000));
        assert_eq!((third.with(grown(100_000)).bytes, third.with(grown(-250_000)).bytes), (1_250_000, 1_000_000));
        // Neither does a count after a large removal, as by a split.
        let halved = CountResult::next(Some(second), load(500_000), grown(100_000));
        assert_eq!(halved.with(grown(100_000)).bytes, 550_000);
        // A little growth does not change the estimate.
        let fourth = CountResult::next(Some(second), load(1_250_010), grown(10));
        assert_eq!(fourth.with(grown(100_000)).bytes, 1_300_010);
        assert_eq!(fourth.with(grown(-2_000_000)).bytes, 0);
    }

    #[test]
    fn count_is_repeated_after_writes_or_ten_minutes() {
        let load = PlacementLoad { placement: SPACE, bytes: 1_000, keys: 10 };
        let counted = CountResult::next(None, load, Growth::default());
        assert!(!counted.is_due(counted.at + UNCHANGED_AGAIN / 2));
        assert!(counted.is_due(counted.at + UNCHANGED_AGAIN));
        let written = CountResult { grown: Growth { bytes: -5, keys: 0 }, ..counted };
        assert!(written.is_due(written.at));
    }

    fn write(engine: &dyn Engine, rows: &[RowChange]) {
        let change = |row: &RowChange| Change { space: SPACE, key: row.key.clone(), value: row.value.clone() };
        engine.write(&rows.iter().map(change).collect::<Vec<_>>()).unwrap();
    }

    #[tokio::test]
    async fn only_user_rows_count_as_keys() {
        let engine = MemoryEngine::default();
        let keys = [value_key(b"a"), value_key(b"b"), Bytes::from_static(LOG_TIME_KEY)];
        write(&engine, &keys.map(|key| RowChange::set(key, Bytes::from_static(b"value"))));
        let engine: Arc<dyn Engine> = Arc::new(engine);
        let memtable = Memtable::new(Seq::ZERO, MemtableBudget::default());
        let still = StaticOverlay { memtable: &memtable, rows: 1, cleared: false };
        let rows = Rows { engine: &engine, placement: SPACE, pace: Pace { rest_factor: 0, ..PACE } };
        let load = count_placement(&rows, &still).await.unwrap().load;
        assert_eq!((load.keys, load.bytes), (2, 3 * 2 + 3 * 5));
        let cleared = StaticOverlay { cleared: true, ..still };
        assert!(count_placement(&rows, &cleared).await.is_none(), "some of that has left meanwhile");
    }

    /// An engine that notes its reads of pages.
    #[derive(Default)]
    struct RecordingEngine {
        rows: MemoryEngine,
        reads: Arc<Mutex<Vec<(PlacementId, Instant)>>>,
    }

    impl Engine for RecordingEngine {
        fn get(&self, space: PlacementId, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
            self.rows.get(space, key)
        }
        fn page(
            &self,
            space: PlacementId,
            keys: KeyBounds<'_>,
            order: ScanOrder,
            limit: PageLimit,
        ) -> Result<Page, EngineError> {
            self.reads.lock().push((space, Instant::now()));
            self.rows.page(space, keys, order, limit)
        }
        fn write(&self, changes: &[Change]) -> Result<(), EngineError> {
            self.rows.write(changes)
        }
        fn clear_range(&self, space: PlacementId, keys: KeyBounds<'_>, most: usize) -> Result<ClearStep, EngineError> {
            self.rows.clear_range(space, keys, most)
        }
        fn spaces(&self) -> Result<Vec<PlacementId>, EngineError> {
            self.rows.spaces()
        }
        fn sync(&self) -> Result<(), EngineError> {
            self.rows.sync()
        }
    }

    /// Small placements were counted one after the other without a rest.
    #[tokio::test]
    async fn engine_is_not_read_during_rest_after_placement() {
        let noting = RecordingEngine::default();
        let reads = Arc::clone(&noting.reads);
        let engine: Arc<dyn Engine> = Arc::new(noting);
        let memtable = Memtable::new(Seq::ZERO, MemtableBudget::default());
        let still = StaticOverlay { memtable: &memtable, rows: 1, cleared: false };
        let pace = Pace { rest_factor: 1_000, ..PACE };
        let next = PlacementId::new(SPACE.get() + 1);
        let mut counted = Vec::new();
        for placement in [SPACE, next] {
            let rows = Rows { engine: &engine, placement, pace };
            count_and_rest(&rows, &still, |count| counted.push((Instant::now(), count.rest))).await;
        }
        let (at, rest) = counted[0];
        assert!(rest > Duration::ZERO);
        let reads = reads.lock();
        let later: Vec<_> = reads.iter().filter(|(_, read)| *read > at).collect();
        assert!(later.iter().all(|(space, read)| *space == next && *read >= at + rest), "{at:?} {rest:?} {later:?}");
        assert!(!later.is_empty() && reads.iter().any(|(space, _)| *space == SPACE), "{reads:?}");
    }

    /// A count soon after a split found everything that the partition had given away.
    #[tokio::test]
    async fn cleared_rows_still_in_engine_are_not_counted() {
        let engine = MemoryEngine::default();
        let keys = [value_key(b"a"), value_key(b"m"), value_key(b"z")];
        write(&engine, &keys.map(|key| RowChange::set(key, Bytes::from_static(b"value"))));
        let engine: Arc<dyn Engine> = Arc::new(engine);
        let mut memtable = Memtable::new(Seq::ZERO, MemtableBudget::default());
        let range = KeyRange { begin: Bytes::from_static(b"m"), end: None };
        let came = RowChange::set(value_key(b"n"), Bytes::from_static(b"value"));
        memtable.push(Seq::new(1), Effect { clear: Some(range), ..Effect::new(Millis::new(1), vec![came]) }).unwrap();
        memtable.commit(Seq::new(1));
        for frozen in [false, true] {
            if frozen {
                memtable.freeze();
            }
            let still = StaticOverlay { memtable: &memtable, rows: 10, cleared: false };
            let rows = Rows { engine: &engine, placement: SPACE, pace: Pace { rest_factor: 0, ..PACE } };
            let load = count_placement(&rows, &still).await.unwrap().load;
            assert_eq!(load.keys, 2, "frozen: {frozen}");
        }
    }

    proptest! {
        /// Gathered rows count once, whether they are new, replace a row of the engine or remove one, wherever the
        /// pages of both lists end.
        #[test]
        fn gathered_rows_count_as_if_in_engine(
            changes in proptest::collection::vec((0..30_u8, proptest::option::weighted(0.67, 0..20_usize)), 1..61),
            freeze_at in 0..60_u64,
            flush_at in 0..60_u64,
            memtable_rows in 1..8_usize,
            rows_max in 1..8_usize,
        ) {
            let engine = MemoryEngine::default();
            let mut memtable = Memtable::new(Seq::ZERO, MemtableBudget::default());
            let mut seen = BTreeMap::from([(Bytes::from_static(LOG_TIME_KEY), row::encode_millis(Millis::ZERO).len())]);
            for (seq, (number, length)) in (1..).zip(changes) {
                let key = value_key(format!("{number:02}").as_bytes());
                match length {
                    Some(length) => drop(seen.insert(key.clone(), length)),
                    None => drop(seen.remove(&key)),
                }
                let value = length.map(|length| Bytes::from(vec![7; length]));
                let effect = Effect::new(Millis::new(seq), vec![RowChange { key, value }]);
                memtable.push(Seq::new(seq), effect).unwrap();
                memtable.commit(Seq::new(seq));
                if seq == freeze_at || seq == flush_at {
                    memtable.freeze();
                    seen.insert(Bytes::from_static(POSITION_KEY), row::encode_position(Seq::ZERO).len());
                }
                if seq == flush_at {
                    let frozen = memtable.frozen().cloned().unwrap();
                    write(&engine, frozen.rows());
                    memtable.flushed(frozen.upto);
                }
            }
            let engine: Arc<dyn Engine> = Arc::new(engine);
            let pace = Pace { page: PageLimit { rows_max, bytes_max: usize::MAX }, rest_factor: 0 };
            let rows = Rows { engine: &engine, placement: SPACE, pace };
            let still = StaticOverlay { memtable: &memtable, rows: memtable_rows, cleared: false };
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let load = runtime.block_on(count_placement(&rows, &still)).unwrap().load;
            let bytes: usize = seen.iter().map(|(key, bytes)| key.len() + bytes).sum();
            let keys = seen.keys().filter(|key| key.first() == Some(&KIND_VALUE)).count() as u64;
            prop_assert_eq!((load.keys, load.bytes), (keys, bytes as u64));
        }
    }
}

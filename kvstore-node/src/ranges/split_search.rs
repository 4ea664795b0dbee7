//! Walks over partitions for split keys: total bytes, and the middle. One after the other, and slowly, on no shard's
//! thread.

use crate::engine::{Engine, PageLimit};
use crate::shard::{RowRun, ShardMessage, Shards};
use crate::storage::row_walk::{NewerRows, Pace, Rows};
use archon_host::{ByteHalves, SplitSearch};
use archon_kv::row;
use bytes::Bytes;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Most waiting walks: requests without room are repeated.
const WAITING_MAX: usize = 1_024;
/// A partition above its limit keeps growing: a fifth of a core.
const PACE: Pace = Pace { page: PageLimit::bytes(1024 * 1024), rest_factor: 4 };

/// Queue of requested walks.
#[derive(Clone, Debug)]
pub(crate) struct SplitSearches(mpsc::Sender<SplitSearch>);

impl SplitSearches {
    /// Creates the queue, and its receiver for [`run`].
    pub(crate) fn new() -> (Self, mpsc::Receiver<SplitSearch>) {
        let (ask, asked) = mpsc::channel(WAITING_MAX);
        (Self(ask), asked)
    }

    /// Requests a walk; the result goes to the partition's shard. Returns whether there was room.
    pub(crate) fn begin(&self, search: SplitSearch) -> bool {
        self.0.try_send(search).is_ok()
    }
}

struct InShard<'a> {
    shards: &'a Shards,
    search: &'a SplitSearch,
}

impl NewerRows for InShard<'_> {
    async fn gathered(&self, from: Bound<Bytes>) -> Option<RowRun> {
        self.shards.gathered(self.search.partition, self.search.placement, from).await
    }
}

/// Runs requested walks, until `stop` is cancelled.
pub(crate) async fn run(
    engine: Arc<dyn Engine>,
    shards: Shards,
    mut asked: mpsc::Receiver<SplitSearch>,
    stop: CancellationToken,
) {
    let work = async {
        while let Some(search) = asked.recv().await {
            let began = Instant::now();
            let above = InShard { shards: &shards, search: &search };
            let rows = Rows { engine: &engine, placement: search.placement, pace: PACE };
            let last = shards.last_gathered(search.partition, search.placement, search.range.clone()).await;
            let found = walk(&rows, &search, &above, last).await;
            let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
            shards.of(search.partition).complete(ShardMessage::SplitPoint { search, found, took_ms });
        }
    };
    tokio::select! {
        () = work => {}
        () = stop.cancelled() => {}
    }
}

/// Returns the distribution of user rows' bytes in a range; `None` if they cannot be read, or are no longer here.
async fn walk(
    rows: &Rows<'_>,
    search: &SplitSearch,
    above: &impl NewerRows,
    gathered_last: Option<Bytes>,
) -> Option<ByteHalves> {
    let (begin, end) = row::value_bounds(&search.range);
    let stored_last = rows.last_stored((begin.clone(), end)).await?;
    let mut halves = ByteHalves::default();
    let Some(last) = stored_last.max(gathered_last) else { return Some(halves) };
    let show = |row: &Bytes, bytes: usize| halves.add(row.get(1..).unwrap_or_default(), bytes as u64);
    rows.walk((begin, row::just_after(&last)), above, show).await?;
    Some(halves)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Change, MemoryEngine};
    use archon_kv::{Effect, Memtable, MemtableBudget, RowChange};
    use archon_types::{KeyRange, Millis, PartitionId, PlacementId, Seq, TableId};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const SPACE: PlacementId = PlacementId::new(1);

    /// A memtable without changes, read this many rows at a time.
    struct StaticMemtable {
        memtable: Memtable,
        rows: usize,
    }

    impl NewerRows for StaticMemtable {
        async fn gathered(&self, from: Bound<Bytes>) -> Option<RowRun> {
            Some(RowRun::of(&self.memtable, from.as_ref().map(|key| &key[..]), self.rows))
        }
    }

    /// A writer that adds a row beyond all others at each step of the walk.
    struct ChasedWriter<'a> {
        engine: &'a Arc<dyn Engine>,
        added: std::cell::Cell<u8>,
    }

    impl NewerRows for ChasedWriter<'_> {
        async fn gathered(&self, _: Bound<Bytes>) -> Option<RowRun> {
            let number = self.added.get() + 1;
            assert!(number < 100, "the walk follows the writer");
            self.added.set(number);
            let key = row::value_key(&key(number));
            self.engine.write(&[Change { space: SPACE, key, value: Some(Bytes::from_static(b"value")) }]).unwrap();
            Some(RowRun::default())
        }
    }

    #[tokio::test]
    async fn walk_ends_despite_append_only_writer() {
        let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::default());
        let chased = ChasedWriter { engine: &engine, added: std::cell::Cell::new(0) };
        for _ in 0..10 {
            chased.gathered(Bound::Unbounded).await;
        }
        let partition = PartitionId::new(TableId::new(1), 0);
        let search = SplitSearch { partition, placement: SPACE, range: KeyRange::ALL };
        let pace = Pace { page: PageLimit { rows_max: 1, bytes_max: usize::MAX }, rest_factor: 0 };
        let rows = Rows { engine: &engine, placement: SPACE, pace };
        let found = walk(&rows, &search, &chased, None).await.unwrap();
        assert_eq!((found.bytes(), found.middle()), (10 * 8, Some(key(6))));
    }

    fn key(number: u8) -> Bytes {
        Bytes::from(format!("{number:02}"))
    }

    proptest! {
        /// User rows of the range are found, wherever they are and wherever pages end, and no others.
        #[test]
        fn walk_finds_rows_in_engine_and_memtable(
            stored in proptest::collection::btree_map(0..40_u8, 0..50_usize, 0..40),
            over in proptest::collection::vec((0..40_u8, proptest::option::weighted(0.7, 0..50_usize)), 0..40),
            begin in 0..40_u8,
            end in proptest::option::of(0..40_u8),
            rows in 1..6_usize,
            rows_max in 1..6_usize,
        ) {
            let engine = MemoryEngine::default();
            let change = |key: Bytes, value: Vec<u8>| Change { space: SPACE, key, value: Some(value.into()) };
            let changes = stored.iter().map(|(number, length)| change(row::value_key(&key(*number)), vec![7; *length]));
            engine.write(&changes.collect::<Vec<_>>()).unwrap();
            engine.write(&[change(Bytes::from_static(row::LOG_TIME_KEY), vec![7; 500])]).unwrap();
            let mut memtable = Memtable::new(Seq::ZERO, MemtableBudget::default());
            let mut seen: BTreeMap<u8, usize> = stored;
            for (seq, (number, length)) in (1..).zip(over) {
                match length {
                    Some(length) => drop(seen.insert(number, length)),
                    None => drop(seen.remove(&number)),
                }
                let value = length.map(|length| Bytes::from(vec![7; length]));
                let change = RowChange { key: row::value_key(&key(number)), value };
                memtable.push(Seq::new(seq), Effect::new(Millis::new(seq), vec![change])).unwrap();
                memtable.commit(Seq::new(seq));
            }
            let range = KeyRange { begin: key(begin), end: end.map(key) };
            let mut expected = ByteHalves::default();
            for (number, length) in seen.into_iter().filter(|(number, _)| range.contains(&key(*number))) {
                expected.add(&key(number), 3 + length as u64);
            }
            let search = SplitSearch { partition: PartitionId::new(TableId::new(1), 0), placement: SPACE, range };
            let engine: Arc<dyn Engine> = Arc::new(engine);
            let last = memtable.last_value(&search.range);
            let still = StaticMemtable { memtable, rows };
            let pace = Pace { page: PageLimit { rows_max, bytes_max: usize::MAX }, rest_factor: 0 };
            let rows = Rows { engine: &engine, placement: SPACE, pace };
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let found = runtime.block_on(walk(&rows, &search, &still, last)).unwrap();
            prop_assert_eq!((found.bytes(), found.middle()), (expected.bytes(), expected.middle()));
        }
    }
}

//! Walks over the rows of partitions that should perhaps be split: how many bytes they are, and where the middle is. One after the
//! other, and slowly, on no shard's thread.
//!
//! Seen is what a reader would see, as in the [size scan](crate::size_scan).

use crate::engine::{Engine, PageLimit};
use crate::shard::{Gathered, ShardMessage, Shards};
use archon_host::{ByteHalves, SplitSearch};
use archon_kv::row;
use archon_types::ScanOrder;
use bytes::Bytes;
use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Most walks that wait: what does not fit is asked for again.
const WAITING_MAX: usize = 1_024;
/// Bytes read at once.
const PAGE_BYTES: usize = 1024 * 1024;
/// After each read a walk rests so many times as long as it took.
const REST_FACTOR: u32 = 4;
const REST_AFTER_PAGE_MAX: Duration = Duration::from_secs(1);

/// Where walks are asked for.
#[derive(Clone, Debug)]
pub(crate) struct SplitSearches(mpsc::Sender<SplitSearch>);

impl SplitSearches {
    /// With what [`run`] is to be given.
    pub(crate) fn new() -> (Self, mpsc::Receiver<SplitSearch>) {
        let (ask, asked) = mpsc::channel(WAITING_MAX);
        (Self(ask), asked)
    }

    /// Asks for a walk; the shard that has the partition is told what was found. Returns whether there was room.
    pub(crate) fn begin(&self, search: SplitSearch) -> bool {
        self.0.try_send(search).is_ok()
    }
}

/// What of a partition the engine may not have yet.
trait Above {
    /// What there is from `from` on; nothing if no shard has it, or the shard has ended.
    async fn gathered(&self, from: Bound<Bytes>) -> Option<Gathered>;
}

struct InShard<'a> {
    shards: &'a Shards,
    search: &'a SplitSearch,
}

impl Above for InShard<'_> {
    async fn gathered(&self, from: Bound<Bytes>) -> Option<Gathered> {
        self.shards.gathered(self.search.partition, self.search.placement, from).await
    }
}

/// Carries out what is asked for, until `stop` is cancelled.
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
            let found = walk(&engine, &search, PageLimit::bytes(PAGE_BYTES), REST_FACTOR, &above).await;
            let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
            shards.of(search.partition).complete(ShardMessage::SplitPoint { search, found, took_ms });
        }
    };
    tokio::select! {
        () = work => {}
        () = stop.cancelled() => {}
    }
}

/// What the rows of users in a range come to; `None` if they cannot be read, or are not here any more.
async fn walk(
    engine: &Arc<dyn Engine>,
    search: &SplitSearch,
    limit: PageLimit,
    rest_factor: u32,
    above: &impl Above,
) -> Option<ByteHalves> {
    let placement = search.placement;
    let (begin, end) = row::value_bounds(&search.range);
    let mut halves = ByteHalves::default();
    let mut from = Bound::Included(begin);
    loop {
        let began = Instant::now();
        let gathered = above.gathered(from.clone()).await?;
        let page = {
            let (engine, end) = (Arc::clone(engine), end.clone());
            tokio::task::spawn_blocking(move || {
                let keys = (from.as_ref().map(|key| &key[..]), Bound::Excluded(&end[..]));
                engine.page(placement, keys, ScanOrder::Ascending, limit)
            })
        };
        // Damage is for those to report who serve the placement.
        let page = page.await.ok()?.ok()?;
        let reached = gathered.over(&page, |row, bytes| {
            if *row < end {
                halves.add(row.get(1..).unwrap_or_default(), bytes as u64);
            }
        });
        let Some(reached) = reached.filter(|reached| *reached < end) else { return Some(halves) };
        tokio::time::sleep((began.elapsed() * rest_factor).min(REST_AFTER_PAGE_MAX)).await;
        from = Bound::Excluded(reached);
    }
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

    /// A memtable in which nothing happens meanwhile, told so many rows at a time.
    struct Still {
        memtable: Memtable,
        rows: usize,
    }

    impl Above for Still {
        async fn gathered(&self, from: Bound<Bytes>) -> Option<Gathered> {
            Some(Gathered::of(&self.memtable, from.as_ref().map(|key| &key[..]), self.rows))
        }
    }

    fn key(number: u8) -> Bytes {
        Bytes::from(format!("{number:02}"))
    }

    proptest! {
        /// Users' rows of the range, wherever they are and wherever pages end, and no others.
        #[test]
        fn rows_of_the_range_are_found_in_the_engine_and_over_it(
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
            let limit = PageLimit { rows_max, bytes_max: usize::MAX };
            let still = Still { memtable, rows };
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let found = runtime.block_on(walk(&engine, &search, limit, 0, &still)).unwrap();
            prop_assert_eq!((found.bytes(), found.middle()), (expected.bytes(), expected.middle()));
        }
    }
}

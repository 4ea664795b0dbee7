//! Counting what is stored, slowly and in the background: sizes for plans and for the progress of copies.
//!
//! Counted is what a reader would see: the engine's rows, under those that are committed but still gather in a shard's
//! window. Of each stretch of keys the window is asked first. A row that leaves it meanwhile is in the engine by then, so
//! that none is missed, and none counts twice.

use crate::engine::{Engine, Page, PageLimit};
use crate::holdings::Holdings;
use crate::shard::{Gathered, ShardMessage, Shards};
use crate::shared::Shared;
use archon_kv::row::KIND_VALUE;
use archon_proto::convert::load::PlacementLoad;
use archon_types::{PartitionId, PlacementId};
use bytes::Bytes;
use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// Bytes read at once.
const PAGE_BYTES: usize = 1024 * 1024;
/// After each read the census rests this many times as long as it took, so that it costs one part in a hundred.
const REST_FACTOR: u32 = 100;
const REST_AFTER_PAGE_MAX: Duration = Duration::from_secs(1);
const REST_AFTER_ROUND: Duration = Duration::from_secs(2);

/// Counts one placement after the other until `stop` is cancelled.
pub(crate) async fn count(
    shared: Arc<Shared>,
    engine: Arc<dyn Engine>,
    holdings: Arc<Holdings>,
    shards: Shards,
    stop: CancellationToken,
) {
    let counting = async {
        loop {
            for placement in holdings.whole() {
                let Some(partition) = holdings.partition_of(placement) else { continue };
                let gathered = |from| gathered(shards.clone(), partition, placement, from);
                let limit = PageLimit::bytes(PAGE_BYTES);
                if let Some(load) = count_placement(&engine, placement, limit, REST_FACTOR, gathered).await
                    && holdings.partition_of(placement).is_some()
                {
                    shared.load.placement(load);
                }
            }
            tokio::time::sleep(REST_AFTER_ROUND).await;
        }
    };
    tokio::select! {
        () = counting => {}
        () = stop.cancelled() => {}
    }
}

/// What the placement's window holds from `from` on; nothing if no shard has it, or the shard has ended.
async fn gathered(
    shards: Shards,
    partition: PartitionId,
    placement: PlacementId,
    from: Bound<Bytes>,
) -> Option<Gathered> {
    let (answer, wait) = oneshot::channel();
    shards.of(partition).push(ShardMessage::Gathered { placement, from, answer }).await.ok()?;
    wait.await.ok().flatten()
}

async fn count_placement<F: Future<Output = Option<Gathered>>>(
    engine: &Arc<dyn Engine>,
    placement: PlacementId,
    limit: PageLimit,
    rest_factor: u32,
    gathered: impl Fn(Bound<Bytes>) -> F,
) -> Option<PlacementLoad> {
    let mut load = PlacementLoad { placement, bytes: 0, keys: 0 };
    let mut from: Bound<Bytes> = Bound::Unbounded;
    loop {
        let engine = Arc::clone(engine);
        let began = Instant::now();
        let window = gathered(from.clone()).await?;
        let page = tokio::task::spawn_blocking(move || {
            engine.page(placement, (from.as_ref().map(|key| &key[..]), Bound::Unbounded), limit)
        });
        // Damage is for those to report who serve the placement.
        let page = page.await.ok()?.ok()?;
        let end = add(&mut load, &page, &window);
        tokio::time::sleep((began.elapsed() * rest_factor).min(REST_AFTER_PAGE_MAX)).await;
        match end {
            Some(end) => from = Bound::Excluded(end),
            None => return Some(load),
        }
    }
}

/// Counts the rows up to where both lists are whole; says where that is unless it is the end of the placement.
fn add(load: &mut PlacementLoad, page: &Page, window: &Gathered) -> Option<Bytes> {
    let page_end = page.rows.last().filter(|_| page.more).map(|row| &row.key);
    let window_end = window.rows.last().filter(|_| window.more).map(|(key, _)| key);
    let end = page_end.into_iter().chain(window_end).min();
    let within = |key: &Bytes| end.is_none_or(|end| key <= end);
    let mut count = |key: &Bytes, value_bytes: usize| {
        load.bytes += (key.len() + value_bytes) as u64;
        load.keys += u64::from(key.first() == Some(&KIND_VALUE));
    };
    let mut over = window.rows.iter().take_while(|(key, _)| within(key)).peekable();
    for row in page.rows.iter().take_while(|row| within(&row.key)) {
        while let Some((key, value_bytes)) = over.next_if(|(key, _)| *key < row.key) {
            value_bytes.iter().for_each(|bytes| count(key, *bytes));
        }
        match over.next_if(|(key, _)| *key == row.key) {
            Some((key, value_bytes)) => value_bytes.iter().for_each(|bytes| count(key, *bytes)),
            None => count(&row.key, row.value.len()),
        }
    }
    for (key, value_bytes) in over {
        value_bytes.iter().for_each(|bytes| count(key, *bytes));
    }
    end.cloned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Change, MemoryEngine};
    use archon_kv::row::{self, LOG_TIME_KEY, value_key};
    use archon_kv::{Effect, Recent, RecentBudget, RowChange};
    use archon_types::{Millis, Seq};
    use std::collections::BTreeMap;

    const SPACE: PlacementId = PlacementId::new(1);

    fn write(engine: &dyn Engine, rows: &[RowChange]) {
        let change = |row: &RowChange| Change { space: SPACE, key: row.key.clone(), value: row.value.clone() };
        engine.write(&rows.iter().map(change).collect::<Vec<_>>()).unwrap();
    }

    #[tokio::test]
    async fn keys_are_counted_and_other_rows_only_weigh() {
        let engine = MemoryEngine::default();
        let keys = [value_key(b"a"), value_key(b"b"), Bytes::from_static(LOG_TIME_KEY)];
        write(&engine, &keys.map(|key| RowChange::set(key, Bytes::from_static(b"value"))));
        let engine: Arc<dyn Engine> = Arc::new(engine);
        let nothing = |_| std::future::ready(Some(Gathered::default()));
        let load = count_placement(&engine, SPACE, PageLimit::bytes(PAGE_BYTES), 0, nothing).await.unwrap();
        assert_eq!((load.keys, load.bytes), (2, 3 * 2 + 3 * 5));
    }

    /// Rows that gather count once, whether they are new, replace a row of the engine or remove one, wherever the pages
    /// of both lists end.
    #[tokio::test]
    async fn rows_that_gather_count_as_if_the_engine_had_them() {
        for seed in 0..200u64 {
            let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
            let mut random = |below: u64| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state % below
            };
            let engine = MemoryEngine::default();
            let mut recent = Recent::new(Seq::ZERO, RecentBudget::default());
            let mut seen = BTreeMap::from([(Bytes::from_static(LOG_TIME_KEY), row::encode_millis(Millis::ZERO).len())]);
            let changes = 1 + random(60);
            let (freeze_at, flush_at) = (random(60), random(60));
            for seq in 1..=changes {
                let key = value_key(format!("{:02}", random(30)).as_bytes());
                let value = (random(3) > 0).then(|| Bytes::from(vec![7; random(20) as usize]));
                match &value {
                    Some(value) => drop(seen.insert(key.clone(), value.len())),
                    None => drop(seen.remove(&key)),
                }
                let effect = Effect { at: Millis::new(seq), changes: vec![RowChange { key, value }] };
                recent.push(Seq::new(seq), effect).unwrap();
                recent.commit(Seq::new(seq));
                if seq == freeze_at || seq == flush_at {
                    recent.freeze();
                }
                if seq == flush_at {
                    let frozen = recent.frozen().cloned().unwrap();
                    write(&engine, &frozen.rows);
                    recent.flushed(frozen.upto);
                }
            }
            let engine: Arc<dyn Engine> = Arc::new(engine);
            let window_rows = 1 + random(7) as usize;
            let limit = PageLimit { rows_max: 1 + random(7) as usize, bytes_max: usize::MAX };
            let window = |from: Bound<Bytes>| {
                std::future::ready(Some(Gathered::of(&recent, from.as_ref().map(|key| &key[..]), window_rows)))
            };
            let load = count_placement(&engine, SPACE, limit, 0, window).await.unwrap();
            let bytes: usize = seen.iter().map(|(key, bytes)| key.len() + bytes).sum();
            assert_eq!((load.keys, load.bytes), (seen.len() as u64 - 1, bytes as u64), "seed {seed}");
        }
    }
}

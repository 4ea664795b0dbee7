//! Counting what is stored, slowly and in the background: sizes for plans and for the progress of copies.

use crate::engine::{Engine, PageLimit};
use crate::holdings::Holdings;
use crate::shared::Shared;
use archon_kv::row::KIND_VALUE;
use archon_proto::convert::load::PlacementLoad;
use archon_types::PlacementId;
use bytes::Bytes;
use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, Instant};
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
    stop: CancellationToken,
) {
    let counting = async {
        loop {
            for placement in holdings.whole() {
                if let Some(load) = count_placement(&engine, placement).await
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

async fn count_placement(engine: &Arc<dyn Engine>, placement: PlacementId) -> Option<PlacementLoad> {
    let mut load = PlacementLoad { placement, bytes: 0, keys: 0 };
    let mut from: Bound<Bytes> = Bound::Unbounded;
    loop {
        let engine = Arc::clone(engine);
        let began = Instant::now();
        let page = tokio::task::spawn_blocking(move || {
            engine.page(placement, from.as_ref().map(|key| &key[..]), PageLimit::bytes(PAGE_BYTES))
        });
        // Damage is for those to report who serve the placement.
        let page = page.await.ok()?.ok()?;
        for row in &page.rows {
            load.bytes += (row.key.len() + row.value.len()) as u64;
            load.keys += u64::from(row.key.first() == Some(&KIND_VALUE));
        }
        tokio::time::sleep((began.elapsed() * REST_FACTOR).min(REST_AFTER_PAGE_MAX)).await;
        match page.rows.last() {
            Some(last) if page.more => from = Bound::Excluded(last.key.clone()),
            _ => return Some(load),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Change, MemoryEngine};
    use archon_kv::row::{LOG_TIME_KEY, value_key};

    #[tokio::test]
    async fn keys_are_counted_and_other_rows_only_weigh() {
        let engine = MemoryEngine::default();
        let space = PlacementId::new(1);
        let value = Some(Bytes::from_static(b"value"));
        let changes: Vec<Change> = [value_key(b"a"), value_key(b"b"), Bytes::from_static(LOG_TIME_KEY)]
            .into_iter()
            .map(|key| Change { space, key, value: value.clone() })
            .collect();
        engine.write(&changes).unwrap();
        let engine: Arc<dyn Engine> = Arc::new(engine);
        let load = count_placement(&engine, space).await.unwrap();
        assert_eq!((load.keys, load.bytes), (2, 3 * 2 + 3 * 5));
    }
}

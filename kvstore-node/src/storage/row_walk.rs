//! Walks over a placement's rows as a reader would see them, slowly and in the background: the engine's rows, under
//! committed ones that still gather in a shard's memtable.
//!
//! The memtable is asked first for each stretch of keys. A row that leaves it meanwhile is in the engine by then, so
//! none is missed, and none is seen twice. A walk ends at the last row present when it began: chasing a writer that
//! appends in key order, it would never end.

use crate::engine::{Engine, PageLimit};
use crate::shard::RowRun;
use archon_kv::row;
use archon_types::{PlacementId, ScanOrder};
use bytes::Bytes;
use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, Instant};

const REST_AFTER_PAGE_MAX: Duration = Duration::from_secs(1);

/// Rows of a placement that the engine may not have yet.
pub(crate) trait NewerRows {
    /// Returns the rows from `from` on; none if no shard has the placement, or the shard has ended.
    async fn gathered(&self, from: Bound<Bytes>) -> Option<RowRun>;

    /// Records that the walk includes rows up to this key.
    async fn reached(&self, key: Bytes) {
        let _ = key;
    }
}

/// Pace of reading rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Rows read at once.
    pub(crate) page: PageLimit,
    /// Rest after each read as a multiple of its duration, at most a second.
    pub(crate) rest_factor: u32,
}

/// The rows of a placement.
#[derive(Clone)]
pub(crate) struct Rows<'a> {
    pub(crate) engine: &'a Arc<dyn Engine>,
    pub(crate) placement: PlacementId,
    pub(crate) pace: Pace,
}

impl Rows<'_> {
    /// Passes every row from `begin` on and before `end` to `show`, with the bytes of its key and value. Returns the rest
    /// that the last page asks for, or `None` if rows cannot be read, or are no longer here: copies that are served
    /// report damage themselves.
    pub(crate) async fn walk(
        &self,
        (begin, end): (Bytes, Bytes),
        above: &impl NewerRows,
        mut show: impl FnMut(&Bytes, usize),
    ) -> Option<Duration> {
        let mut from = Bound::Included(begin);
        loop {
            let gathered = above.gathered(from.clone()).await?;
            // Time spent waiting for its turn measures the load of others, not its own.
            let began = Instant::now();
            let page = {
                let (engine, placement, limit) = (Arc::clone(self.engine), self.placement, self.pace.page);
                let end = end.clone();
                tokio::task::spawn_blocking(move || {
                    let keys = (from.as_ref().map(|key| &key[..]), Bound::Excluded(&end[..]));
                    engine.page(placement, keys, ScanOrder::Ascending, limit)
                })
            };
            let page = page.await.ok()?.ok()?;
            let reached = gathered.over(&page, |row, bytes| {
                if *row < end {
                    show(row, bytes);
                }
            });
            let rest = (began.elapsed() * self.pace.rest_factor).min(REST_AFTER_PAGE_MAX);
            let Some(reached) = reached.filter(|reached| *reached < end) else {
                above.reached(end).await;
                return Some(rest);
            };
            above.reached(reached.clone()).await;
            tokio::time::sleep(rest).await;
            from = Bound::Excluded(reached);
        }
    }

    /// Returns the engine's last user row from `begin` on and before `end`; `None` within if there is none.
    pub(crate) async fn last_stored(&self, (begin, end): (Bytes, Bytes)) -> Option<Option<Bytes>> {
        let (engine, placement) = (Arc::clone(self.engine), self.placement);
        let page = tokio::task::spawn_blocking(move || {
            let keys = (Bound::Included(&begin[..]), Bound::Excluded(&end[..]));
            engine.page(placement, keys, ScanOrder::Descending, PageLimit { rows_max: 1, bytes_max: usize::MAX })
        });
        Some(page.await.ok()?.ok()?.rows.into_iter().next().map(|row| row.key))
    }
}

/// Returns the end of the rows of every kind.
pub(crate) fn end_of_rows() -> Bytes {
    Bytes::from_static(&[row::KIND_META + 1])
}

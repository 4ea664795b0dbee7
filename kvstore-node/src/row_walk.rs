//! Walks over what a reader would see of the rows of a placement, slowly and in the background: the engine's rows, under those that
//! are committed but still gather in a shard's memtable.
//!
//! The memtable is asked first for each stretch of keys. A row that leaves it meanwhile is in the engine by then, so that none is missed,
//! and none is seen twice. A walk ends where the rows ended when it began: one that followed a writer who writes in order would not
//! come to its end.

use crate::engine::{Engine, PageLimit};
use crate::shard::Gathered;
use archon_kv::row;
use archon_types::{PlacementId, ScanOrder};
use bytes::Bytes;
use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, Instant};

const REST_AFTER_PAGE_MAX: Duration = Duration::from_secs(1);

/// What of a placement the engine may not have yet.
pub(crate) trait Above {
    /// What there is from `from` on; nothing if no shard has it, or the shard has ended.
    async fn gathered(&self, from: Bound<Bytes>) -> Option<Gathered>;

    /// The walk has come up to this key and includes it.
    async fn reached(&self, key: Bytes) {
        let _ = key;
    }
}

/// How rows are read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// How many at once.
    pub(crate) page: PageLimit,
    /// After each read a walk rests so many times as long as it took, a second at most.
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
    /// Shows every row from `begin` on and before `end`, with how many bytes its key and value are. `None` if they cannot be read, or
    /// are not here any more: damage is for those to report who serve the placement.
    pub(crate) async fn walk(
        &self,
        (begin, end): (Bytes, Bytes),
        above: &impl Above,
        mut show: impl FnMut(&Bytes, usize),
    ) -> Option<()> {
        let mut from = Bound::Included(begin);
        loop {
            let gathered = above.gathered(from.clone()).await?;
            // How long that waited for its turn says how busy others are, not how busy this is.
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
            let Some(reached) = reached.filter(|reached| *reached < end) else {
                above.reached(end).await;
                return Some(());
            };
            above.reached(reached.clone()).await;
            tokio::time::sleep((began.elapsed() * self.pace.rest_factor).min(REST_AFTER_PAGE_MAX)).await;
            from = Bound::Excluded(reached);
        }
    }

    /// The last of users' rows that the engine has from `begin` on and before `end`; `None` within if there is none.
    pub(crate) async fn last_stored(&self, (begin, end): (Bytes, Bytes)) -> Option<Option<Bytes>> {
        let (engine, placement) = (Arc::clone(self.engine), self.placement);
        let page = tokio::task::spawn_blocking(move || {
            let keys = (Bound::Included(&begin[..]), Bound::Excluded(&end[..]));
            engine.page(placement, keys, ScanOrder::Descending, PageLimit { rows_max: 1, bytes_max: usize::MAX })
        });
        Some(page.await.ok()?.ok()?.rows.into_iter().next().map(|row| row.key))
    }
}

/// Beyond the rows of every kind.
pub(crate) fn end_of_rows() -> Bytes {
    Bytes::from_static(&[row::KIND_META + 1])
}

//! Resources that all shards share.

use super::shards::Shards;
use crate::copies::copy::CopyRunner;
use crate::engine::Engine;
use crate::flusher::FlusherHandle;
use crate::forward::Forwards;
use crate::node::state::NodeState;
use crate::peers::peer::Peers;
use crate::ranges::split_search::SplitSearches;
use crate::session::holdings::Holdings;
use archon_kv::{DedupLimits, MemtableBudget};
use archon_wal::Wal;
use std::sync::Arc;

/// Shared resources of all shards.
pub(crate) struct Context {
    pub(crate) shared: Arc<NodeState>,
    pub(crate) wal: Wal,
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) flusher: FlusherHandle,
    pub(crate) holdings: Arc<Holdings>,
    pub(crate) peers: Arc<Peers>,
    pub(crate) forwards: Arc<Forwards>,
    pub(crate) copies: Arc<CopyRunner>,
    pub(crate) split_searches: SplitSearches,
    pub(crate) shards: Shards,
    pub(crate) budget: MemtableBudget,
    /// Bytes of cached engine rows, over all shards.
    pub(crate) row_cache_bytes: u64,
    /// Size of the disk of the data directory, which bounds the log kept for other copies.
    pub(crate) disk_bytes: u64,
    pub(crate) dedup: DedupLimits,
}

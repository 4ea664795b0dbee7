//! State that all connections of Redis clients share.

use super::cursors::Cursors;
use super::script_cache::Scripts;
use crate::node::config::RedisConfig;
use crate::service::kv::KvService;
use archon_frames::PartialBudget;
use archon_resp::Limits;
use archon_security::UnreadBudget;
use archon_types::limits::VALUE_BYTES_MAX;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

/// Most arguments of one request, with the name of the command.
const ARGUMENTS_MAX: usize = 1_024;
/// Bounds of one request: the largest value with its key, and some arguments.
pub(super) const LIMITS: Limits =
    Limits { arguments_max: ARGUMENTS_MAX, bulk_bytes_max: VALUE_BYTES_MAX, request_bytes_max: 2 * VALUE_BYTES_MAX };
/// Name of these connections in refusals.
pub(super) const CALL: &str = "use the Redis protocol";

/// The listener's service. Clones share everything.
#[derive(Clone)]
pub(crate) struct RedisService {
    pub(super) kv: KvService,
    pub(super) config: Arc<RedisConfig>,
    /// Address of this listener for clients.
    pub(super) advertised: Arc<str>,
    /// Number of the last connection.
    pub(super) connections: Arc<AtomicU64>,
    /// Requests that have not arrived whole, of all connections.
    pub(super) partial: PartialBudget,
    /// Replies that clients have not read.
    pub(super) unread: UnreadBudget,
    pub(super) scripts: Arc<Scripts>,
    pub(super) started: Instant,
    /// Positions of scans.
    pub(super) cursors: Arc<Cursors>,
}

impl RedisService {
    pub(crate) fn new(
        kv: KvService,
        config: RedisConfig,
        advertised: &str,
        partial: PartialBudget,
        unread: UnreadBudget,
    ) -> Self {
        Self {
            kv,
            config: Arc::new(config),
            advertised: advertised.into(),
            connections: Arc::default(),
            partial,
            unread,
            scripts: Arc::default(),
            started: Instant::now(),
            cursors: Arc::default(),
        }
    }
}

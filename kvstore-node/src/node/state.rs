//! Shared state of the parts of a running node.

use crate::copies::copy_rest::CopyRest;
use crate::node::config::NodeConfig;
use crate::node::lifecycle::Lifecycle;
use crate::node::membership::{CurrentRegistration, Membership};
use crate::node::memory::MemoryParts;
use crate::server::access::ClientAccess;
use crate::server::admit::NodeAdmission;
use crate::server::table_lookup::TableLookup;
use crate::session::peer_cache::PeerCache;
use crate::session::prober::SharedProber;
use crate::session::reports::ReportQueue;
use crate::statistics::load::LoadBoard;
use crate::statistics::metrics::Metrics;
use crate::statistics::slow::SlowOperations;
use crate::tables::Tables;
use archon_security::connection_limit::{ConnectionLimit, NODE_CONNECTIONS_MAX, connections_for};
use archon_session::{Clock, RelayStreams};
use archon_types::{ErrorDetail, ErrorKind, PushKey};
use rustix::process::{Resource, getrlimit};
use std::sync::Arc;

/// Handles to the shared state of a node. Everything in it is safe to use from any thread. A part that needs a few of
/// them takes those, not all.
pub(crate) struct NodeState {
    pub(crate) config: Arc<NodeConfig>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) wall: Arc<dyn Clock>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) slow: SlowOperations,
    /// Rest of copies from and to this node.
    pub(crate) copy_rest: Arc<CopyRest>,
    pub(crate) tables: Arc<Tables>,
    /// Questions to the coordinators about tables that are not in `tables`.
    pub(crate) lookup: TableLookup,
    /// Client permissions.
    pub(crate) access: ClientAccess,
    pub(crate) reports: Arc<ReportQueue>,
    pub(crate) load: Arc<LoadBoard>,
    pub(crate) admission: NodeAdmission,
    /// Division of the node's memory.
    pub(crate) memory: MemoryParts,
    /// Given to the coordinators that this node calls; pushes without it are not theirs.
    pub(crate) push_key: PushKey,
    /// Connection limit, as configured or as the available descriptors allow.
    pub(crate) connection_limit: Arc<ConnectionLimit>,
    pub(crate) membership: Arc<Membership>,
    pub(crate) lifecycle: Arc<Lifecycle>,
    /// Streams of members with heartbeats relayed by this node.
    pub(crate) relay_streams: RelayStreams,
    /// Results of probing other nodes.
    pub(crate) probing: SharedProber,
}

impl NodeState {
    pub(crate) fn new(config: NodeConfig, memory: MemoryParts, clock: Arc<dyn Clock>, wall: Arc<dyn Clock>) -> Self {
        let configured = config.connections_max.and_then(|most| usize::try_from(most).ok());
        let connection_limit = ConnectionLimit::new(
            configured.unwrap_or_else(|| connections_for(NODE_CONNECTIONS_MAX, getrlimit(Resource::Nofile).current)),
        );
        let remembered = PeerCache::read(&config.data_dir);
        let coordinators = remembered.first_asked(&config.coordinators);
        let config = Arc::new(config);
        let tables = Arc::new(Tables::new(coordinators, remembered.told));
        let (metrics, reports) = (Arc::new(Metrics::default()), Arc::new(ReportQueue::default()));
        let membership =
            Membership::new(Arc::clone(&config), Arc::clone(&tables), Arc::clone(&reports), Arc::clone(&metrics));
        let membership = Arc::new(membership);
        Self {
            tables,
            lookup: TableLookup::new(config.coordinators.clone(), config.transport.clone()),
            slow: SlowOperations::new(config.slow_operation),
            access: ClientAccess::default(),
            config,
            clock,
            wall,
            copy_rest: Arc::new(CopyRest::new(Arc::clone(&metrics))),
            metrics,
            reports,
            load: Arc::default(),
            admission: NodeAdmission::new(usize::try_from(memory.requests_bytes).unwrap_or(usize::MAX)),
            memory,
            push_key: PushKey::new(uuid::Uuid::new_v4()),
            connection_limit,
            lifecycle: Arc::new(Lifecycle::new(Arc::clone(&membership))),
            membership,
            relay_streams: RelayStreams::new(),
            probing: SharedProber::default(),
        }
    }

    /// Returns the present registration.
    pub(crate) fn life(&self) -> Option<Arc<CurrentRegistration>> {
        self.membership.life()
    }

    /// Refuses revoked certificates, for new connections and open ones.
    pub(crate) fn refuse_withdrawn(&self) {
        if let Some(tls) = self.config.transport.tls() {
            tls.withdraw(self.access.withdrawn());
        }
    }
}

/// Returns the refusal of a node that is stopping.
pub(crate) fn shutting_down() -> ErrorDetail {
    ErrorDetail::new(ErrorKind::ShuttingDown, "the node is stopping; its partitions move or come back with it")
}

//! State shared by all handles of a client.

use crate::error::{Error, Outcome};
use crate::kv::sequence::Sequences;
use crate::measure::ClientMeasures;
use crate::net::connection::Connections;
use crate::net::link::Links;
use crate::net::retry::Budget;
use crate::routing::forwarders::Forwarders;
use crate::routing::table::TableCache;
use arc_swap::ArcSwap;
use archon_proto::v1;
use archon_security::{ExpectedPeer, Transport};
use archon_types::{ClientId, ClusterId, ErrorDetail, ErrorKind, NodeId, PartitionId, TableContent, TableId, Version};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

/// Maximum number of tables per client; more is a defect of the caller.
const TABLES_MAX: usize = 1_024;

/// The state behind every handle of one client instance.
#[derive(Debug)]
pub(crate) struct ClientState {
    /// Configured addresses.
    pub(crate) endpoints: Vec<String>,
    /// Endpoints that forward everything, if this client does not route.
    pub(crate) via: Option<Forwarders>,
    /// Addresses of coordinators, as reported by servers.
    coordinators: ArcSwap<Vec<String>>,
    /// The cluster, once a server answered; later answers must come from the same one.
    cluster: OnceLock<ClusterId>,
    pub(crate) links: Links,
    pub(crate) connections: Connections,
    pub(crate) budget: Budget,
    pub(crate) sequences: Sequences,
    pub(crate) measures: ClientMeasures,
    /// Stops every background task.
    pub(crate) stop: CancellationToken,
    /// Every background task, so that closing can wait for them.
    pub(crate) tasks: TaskTracker,
    tables: Mutex<BTreeMap<String, Arc<TableCache>>>,
    /// Changes with every table, so that connections check for moved leaders.
    pub(crate) changes: watch::Sender<u64>,
}

impl ClientState {
    pub(crate) fn new(
        endpoints: Vec<String>,
        connect_timeout: Duration,
        transport: Transport,
        via: Option<Forwarders>,
    ) -> Self {
        Self {
            endpoints,
            via,
            coordinators: ArcSwap::default(),
            cluster: OnceLock::new(),
            links: Links::new(connect_timeout, transport),
            connections: Connections::default(),
            budget: Budget::default(),
            sequences: Sequences::new(ClientId::new(Uuid::new_v4())),
            measures: ClientMeasures::default(),
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
            tables: Mutex::new(BTreeMap::new()),
            changes: watch::Sender::new(0),
        }
    }

    /// Returns the cluster reference of requests; `None` while unknown.
    pub(crate) fn cluster_ref(&self) -> Option<v1::ClusterRef> {
        self.cluster.get().map(|id| (*id).into())
    }

    /// Returns the expected identity of a node's stream, if any table has its name.
    pub(crate) fn expected(&self, node: Option<NodeId>) -> ExpectedPeer {
        let tables = self.tables.lock();
        let name = |id| tables.values().find_map(|table| table.load().node(id).map(|row| row.name.clone()));
        node.and_then(name).map_or(ExpectedPeer::Servers, ExpectedPeer::Node)
    }

    /// Accepts the first cluster that answers, and rejects all others.
    pub(crate) fn check_cluster(&self, theirs: ClusterId) -> Result<(), ErrorDetail> {
        let ours = *self.cluster.get_or_init(|| theirs);
        if ours == theirs {
            return Ok(());
        }
        let message = format!("an endpoint belongs to cluster {theirs}, the others to {ours}; check the addresses");
        Err(ErrorDetail::new(ErrorKind::WrongCluster, message))
    }

    /// Returns the coordinators' addresses, as reported by servers.
    pub(crate) fn coordinators(&self) -> Arc<Vec<String>> {
        self.coordinators.load_full()
    }

    /// Remembers the coordinators' addresses if they are new.
    pub(crate) fn learn_coordinators(&self, addresses: Vec<String>) {
        if !addresses.is_empty() && **self.coordinators.load() != addresses {
            self.coordinators.store(Arc::new(addresses));
        }
    }

    /// As [`ClientState::table`], for a table with rows.
    pub(crate) async fn data_table(self: &Arc<Self>, name: &str, timeout: Duration) -> Result<Arc<TableCache>, Error> {
        let table = self.table(name, timeout).await?;
        match table.load().table().holds {
            TableContent::Data => {}
            TableContent::Lease => {
                let why = format!("table {name} holds no rows: its partitions are leases of other services");
                return Err(Error::invalid(why));
            }
        }
        Ok(table)
    }

    /// Returns the cache of the table `name`; fetches the table first if necessary.
    pub(crate) async fn table(self: &Arc<Self>, name: &str, timeout: Duration) -> Result<Arc<TableCache>, Error> {
        if let Some(table) = self.tables.lock().get(name).filter(|table| !table.is_dropped()) {
            return Ok(Arc::clone(table));
        }
        let deadline = Instant::now() + timeout;
        let mut last = None;
        let opened = timeout_at(deadline, TableCache::open(self, name, &mut last)).await;
        let opened = match opened {
            Ok(result) => Arc::new(result?),
            Err(_) => {
                let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
                return Err(Error::DeadlineExceeded { timeout_ms, outcome: Outcome::Read, last: last.map(Box::new) });
            }
        };
        let mut tables = self.tables.lock();
        if self.stop.is_cancelled() {
            return Err(Error::Closed);
        }
        if let Some(table) = tables.get(name).filter(|table| !table.is_dropped()) {
            return Ok(Arc::clone(table));
        }
        if tables.len() >= TABLES_MAX {
            return Err(Error::invalid(format!("this client holds {TABLES_MAX} tables already; build another one")));
        }
        tables.insert(name.to_owned(), Arc::clone(&opened));
        drop(tables);
        self.tasks.spawn(TableCache::keep_fresh(Arc::clone(&opened), Arc::clone(self)));
        Ok(opened)
    }

    /// Removes a dropped table from the cache, unless another one has its name already.
    pub(crate) fn forget_table(&self, name: &str, dropped: &TableCache) {
        let mut tables = self.tables.lock();
        if tables.get(name).is_some_and(|held| std::ptr::eq(&**held, dropped)) {
            tables.remove(name);
        }
    }

    /// Returns whether another node than `node` leads `partition` according to the cached table.
    pub(crate) fn led_elsewhere(&self, partition: PartitionId, node: NodeId) -> bool {
        let table = self.table_by_id(partition.table);
        let leader = table.and_then(|table| table.load().route_partition(partition).leader);
        leader.is_some_and(|leader| leader != node)
    }

    /// Returns the partition's name for people; its numbers if its table is not cached.
    pub(crate) fn partition_name(&self, partition: PartitionId) -> String {
        let table = self.table_by_id(partition.table);
        table.map_or_else(|| partition.to_string(), |table| table.load().partition_name(partition))
    }

    /// Passes the table version of a server to every table.
    pub(crate) fn hint(&self, version: Version) {
        if version != Version::ZERO {
            self.tables.lock().values().for_each(|table| table.hint(version));
        }
    }

    /// Returns the cached version of the table with this id; zero if it is not cached.
    pub(crate) fn table_version(&self, id: TableId) -> Version {
        self.table_by_id(id).map_or(Version::ZERO, |table| table.load().version())
    }

    fn table_by_id(&self, id: TableId) -> Option<Arc<TableCache>> {
        self.tables.lock().values().find(|table| table.load().table().id == id).cloned()
    }

    /// Stops every background task and waits for them.
    pub(crate) async fn close(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        self.tables.lock().clear();
    }
}

//! The connection of a console to the cluster.

use crate::feed::latest_state::Feed;
use archon_client::{Admin, Client, Error, Routes, Transport};
use archon_security::{CallQuota, Refusals};
use parking_lot::Mutex;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Time-out of calls to the cluster; shorter than people wait before they retry.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of watches of owners, and of those of one caller.
const WATCHES_MAX: usize = 64;
const CALLER_WATCHES_MAX: usize = 32;
/// Maximum number of open feeds of the page, and of those of one caller.
const FEEDS_MAX: usize = 64;
const CALLER_FEEDS_MAX: usize = 32;

/// Configuration of a console.
#[derive(Clone, Debug)]
pub struct ConsoleConfig {
    /// Address to listen on.
    pub listen: SocketAddr,
    /// Some of the coordinators, `host:port`, the preferred one first; they name the others.
    pub coordinators: Vec<String>,
    /// Transport to the cluster and from callers.
    pub transport: Transport,
    /// Records refusals.
    pub refusals: Arc<Refusals>,
}

/// The connection of a console to the cluster.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) config: ConsoleConfig,
    pub(crate) admin: Admin,
    /// As `admin`, with a shorter time-out, for current data.
    pub(crate) quick: Admin,
    pub(crate) feed: Feed,
    /// Client for rows, created on first use.
    rows: Mutex<Option<Client>>,
    /// Owners of one table, opened on first use; those of others share its state.
    routes: Mutex<Option<Routes>>,
    /// Places of watches of owners.
    pub(crate) watches: CallQuota,
    /// Places of feeds.
    pub(crate) feeds: CallQuota,
}

impl Cluster {
    pub(crate) fn new(config: ConsoleConfig) -> io::Result<Self> {
        let admin = Admin::with_transport(config.coordinators.clone(), TIMEOUT, config.transport.clone());
        let admin = admin.map_err(io::Error::other)?;
        let quick = quick(&config).map_err(io::Error::other)?;
        Ok(Self {
            admin,
            quick,
            feed: Feed::default(),
            rows: Mutex::default(),
            routes: Mutex::default(),
            watches: CallQuota::new("open watches of owners", WATCHES_MAX, CALLER_WATCHES_MAX),
            feeds: CallQuota::new("open feeds", FEEDS_MAX, CALLER_FEEDS_MAX),
            config,
        })
    }

    /// Returns a client of a table.
    pub(crate) async fn rows(&self, table: &str) -> Result<Client, Error> {
        let held = self.rows.lock().clone();
        if let Some(client) = held {
            return client.table(table).await;
        }
        let builder = Client::builder(self.config.coordinators.clone()).transport(self.config.transport.clone());
        let client = builder.timeout(TIMEOUT).table(table).build().await?;
        // A concurrent caller may have set it first, possibly for another table.
        let held = self.rows.lock().get_or_insert(client).clone();
        held.table(table).await
    }
}

impl Cluster {
    /// Returns the owners of a table's partitions.
    pub(crate) async fn routes(&self, table: &str) -> Result<Routes, Error> {
        let held = self.routes.lock().clone();
        if let Some(routes) = held {
            return routes.of_table(table, QUICK_TIMEOUT).await;
        }
        let builder = Client::builder(self.config.coordinators.clone()).transport(self.config.transport.clone());
        let opened = builder.timeout(QUICK_TIMEOUT).routes(table).await?;
        // A concurrent caller may have set it first, possibly for another table.
        let held = self.routes.lock().get_or_insert(opened).clone();
        held.of_table(table, QUICK_TIMEOUT).await
    }
}

/// Time-out of calls: the data must be current.
pub(crate) const QUICK_TIMEOUT: Duration = Duration::from_secs(3);

/// Creates a client with a short time-out, for current data.
///
/// # Errors
/// As [`Admin::with_transport`].
pub(crate) fn quick(cluster: &ConsoleConfig) -> Result<Admin, Error> {
    Admin::with_transport(cluster.coordinators.clone(), QUICK_TIMEOUT, cluster.transport.clone())
}

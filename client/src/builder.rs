//! Builder of clients.

use crate::error::Error;
use crate::kv::Client;
use crate::net::link::{beyond, check_endpoints};
use crate::routing::forwarders::Forwarders;
use crate::routing::routes::Routes;
use crate::state::ClientState;
use archon_security::{Tls, Transport};
use archon_types::DEFAULT_TABLE;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::DropGuard;

/// Configuration of a [`Client`], created by [`Client::builder`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct ClientBuilder {
    endpoints: Vec<String>,
    timeout: Duration,
    connect_timeout: Duration,
    table: String,
    transport: Transport,
    via_endpoints: bool,
}

impl ClientBuilder {
    pub(crate) fn new(endpoints: Vec<String>) -> Self {
        Self {
            transport: Transport::plaintext(beyond(&endpoints)),
            via_endpoints: false,
            endpoints,
            timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(1),
            table: DEFAULT_TABLE.to_owned(),
        }
    }

    /// Sets the time-out of each call including retries. Default 10 s, minimum 1 ms.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout.max(Duration::from_millis(1));
        self
    }

    /// Sets the time-out of a connection attempt. Default 1 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout.max(Duration::from_millis(1));
        self
    }

    /// Sets the table; default `default`.
    pub fn table(mut self, name: impl Into<String>) -> Self {
        self.table = name.into();
        self
    }

    /// Uses TLS with the credentials of a directory ([`Tls::open`]); plaintext connections are disabled then.
    pub fn tls(mut self, tls: Arc<Tls>) -> Self {
        self.transport = Transport::Tls(tls);
        self
    }

    /// Without [`ClientBuilder::tls`]: sets whether plaintext connections may leave this machine, to addresses
    /// reported by the cluster. By default, they may if a given endpoint is on another machine.
    pub fn insecure(mut self, insecure: bool) -> Self {
        if self.transport.tls().is_none() {
            self.transport = Transport::plaintext(insecure);
        }
        self
    }

    /// Sets the transport; instead of [`ClientBuilder::tls`] or [`ClientBuilder::insecure`].
    pub fn transport(mut self, transport: Transport) -> Self {
        self.transport = transport;
        self
    }

    /// Connects only to the endpoints, which must be nodes: to one of them, and to the next if it fails. It forwards
    /// operations on partitions of other nodes, which costs a hop. For clients that cannot reach all nodes; others
    /// should route directly.
    pub fn via_endpoints(mut self) -> Self {
        self.via_endpoints = true;
        self
    }

    /// Finds the cluster and fetches the partition table, within the time-out of a call.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an endpoint that is not `host:port` or a bad table name; `NotFound` for an
    /// unknown table; [`Error::DeadlineExceeded`] with the reason if there was no answer in time.
    pub async fn build(self) -> Result<Client, Error> {
        let (shared, guard) = self.begin()?;
        let table = shared.data_table(&self.table, self.timeout).await?;
        Ok(Client::new(shared, guard, table, self.timeout))
    }

    /// Finds the cluster and the owners of a table's partitions, without a client for rows: there may be no node.
    /// Otherwise as [`Client::routes`].
    ///
    /// # Errors
    /// As [`ClientBuilder::build`].
    pub async fn routes(self, table: &str) -> Result<Routes, Error> {
        let (shared, guard) = self.begin()?;
        Routes::open(shared, guard, table, self.timeout).await
    }

    fn begin(&self) -> Result<(Arc<ClientState>, Arc<DropGuard>), Error> {
        check_endpoints(&self.endpoints)?;
        let via = self.via_endpoints.then(|| Forwarders::new(self.endpoints.clone()));
        let shared =
            Arc::new(ClientState::new(self.endpoints.clone(), self.connect_timeout, self.transport.clone(), via));
        let guard = Arc::new(shared.stop.clone().drop_guard());
        Ok((shared, guard))
    }
}

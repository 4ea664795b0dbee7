//! Building a client.

use crate::error::Error;
use crate::kv::Client;
use crate::link::{beyond, check_endpoints};
use crate::routes::Routes;
use crate::shared::Shared;
use crate::via::Via;
use archon_security::{Tls, Transport};
use archon_types::DEFAULT_TABLE;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::DropGuard;

/// How a [`Client`] is to be; made by [`Client::builder`].
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

    /// How long each call may take, all its retries included. The default is 10 s; at least 1 ms.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout.max(Duration::from_millis(1));
        self
    }

    /// How long making one connection may take. The default is 1 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout.max(Duration::from_millis(1));
        self
    }

    /// The table the client works on; `default` unless said otherwise.
    pub fn table(mut self, name: impl Into<String>) -> Self {
        self.table = name.into();
        self
    }

    /// Talks to the cluster by TLS, with the credentials of a directory ([`Tls::open`]); plaintext goes nowhere then.
    pub fn tls(mut self, tls: Arc<Tls>) -> Self {
        self.transport = Transport::Tls(tls);
        self
    }

    /// Without [`ClientBuilder::tls`]: whether plaintext may go beyond this machine, to addresses that the cluster tells. Unless it is
    /// said, it may where an endpoint that was given is beyond it.
    pub fn insecure(mut self, insecure: bool) -> Self {
        if self.transport.tls().is_none() {
            self.transport = Transport::plaintext(insecure);
        }
        self
    }

    /// By TLS, or in plaintext, as somebody has decided already; instead of [`ClientBuilder::tls`] or [`ClientBuilder::insecure`].
    pub fn transport(mut self, transport: Transport) -> Self {
        self.transport = transport;
        self
    }

    /// Goes nowhere but to the endpoints, which must be nodes: to one of them, to the next once it fails. It passes on what other
    /// nodes lead, which costs a hop. For clients that cannot reach all nodes; all others route better themselves.
    pub fn via_endpoints(mut self) -> Self {
        self.via_endpoints = true;
        self
    }

    /// Finds the cluster and fetches the partition table, within the time-out of a call.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an endpoint that is not `host:port` or a bad table name; `NotFound` for a table
    /// that does not exist; [`Error::DeadlineExceeded`] with what stood in the way if nobody answered in time.
    pub async fn build(self) -> Result<Client, Error> {
        let (shared, guard) = self.begin()?;
        let table = shared.data_table(&self.table, self.timeout).await?;
        Ok(Client::new(shared, guard, table, self.timeout))
    }

    /// Finds the cluster and who owns which partition of a table, without a client that reads and writes: there may be no node. As
    /// [`Client::routes`] otherwise.
    ///
    /// # Errors
    /// As [`ClientBuilder::build`].
    pub async fn routes(self, table: &str) -> Result<Routes, Error> {
        let (shared, guard) = self.begin()?;
        Routes::open(shared, guard, table, self.timeout).await
    }

    fn begin(&self) -> Result<(Arc<Shared>, Arc<DropGuard>), Error> {
        check_endpoints(&self.endpoints)?;
        let via = self.via_endpoints.then(|| Via::new(self.endpoints.clone()));
        let shared = Arc::new(Shared::new(self.endpoints.clone(), self.connect_timeout, self.transport.clone(), via));
        let guard = Arc::new(shared.stop.clone().drop_guard());
        Ok((shared, guard))
    }
}

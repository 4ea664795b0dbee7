//! Owners of partitions, for callers of the service.

use crate::protocol::{ErrorBody, ErrorKind, TableOwners, Whereabouts};
use archon_client::{Client, Error, OwnersWatch, Transport};
use futures::FutureExt as _;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Maximum number of tables with cached owners beside those of the agent; others are opened again for each request.
const TABLES_MAX: usize = 16;
/// Time limit to open a table.
const OPEN_WITHIN: Duration = Duration::from_secs(3);

/// Owners by table, opened at the first request.
pub(crate) struct Routes {
    coordinators: Vec<String>,
    transport: Transport,
    /// Tables of the agent, which always have a place.
    served: BTreeSet<String>,
    open: Mutex<BTreeMap<String, archon_client::Routes>>,
}

impl Routes {
    pub(crate) fn new(coordinators: Vec<String>, transport: Transport, served: &[String]) -> Self {
        Self { coordinators, transport, served: served.iter().cloned().collect(), open: Mutex::default() }
    }

    /// Returns the owner of a key's partition.
    ///
    /// # Errors
    /// The table does not exist, the coordinators do not answer, or the owner is not known yet.
    pub(crate) async fn find(&self, table: &str, key: &[u8]) -> Result<Whereabouts, ErrorBody> {
        let routes = self.table(table).await.map_err(|error| refusal(&error))?;
        routes.whereabouts(key).map_err(|error| refusal(&error))
    }

    /// Returns the owners of a table's partitions.
    ///
    /// # Errors
    /// As [`Self::watch`]; an owner is not known yet.
    pub(crate) async fn list(&self, table: &str) -> Result<TableOwners, ErrorBody> {
        self.watch(table).await?.read_all().map_err(|error| refusal(&error))
    }

    /// Opens a watch of the owners of a table's partitions.
    ///
    /// # Errors
    /// The table does not exist or has rows, or the coordinators do not answer.
    pub(crate) async fn watch(&self, table: &str) -> Result<OwnersWatch, ErrorBody> {
        let routes = self.table(table).await.map_err(|error| refusal(&error))?;
        if !routes.is_lease() {
            let message = format!("table {table} has rows, and nodes lead its partitions; owners are of lease tables");
            return Err(ErrorBody::new(ErrorKind::Invalid, message));
        }
        Ok(routes.watch())
    }

    async fn table(&self, table: &str) -> Result<archon_client::Routes, Error> {
        if let Some(routes) = self.cached(table) {
            return Ok(routes);
        }
        // Without the lock: a table that cannot be opened delays no other one.
        let builder = Client::builder(self.coordinators.clone()).transport(self.transport.clone()).timeout(OPEN_WITHIN);
        let routes = builder.routes(table).await?;
        let mut open = self.open.lock();
        let others = open.keys().filter(|open| !self.served.contains(*open)).count();
        if self.served.contains(table) || others < TABLES_MAX {
            open.insert(table.to_owned(), routes.clone());
        }
        Ok(routes)
    }

    fn cached(&self, table: &str) -> Option<archon_client::Routes> {
        let mut open = self.open.lock();
        let mut routes = open.get(table)?.clone();
        let is_dropped = matches!(routes.changed().now_or_never(), Some(Err(_)));
        if is_dropped {
            open.remove(table);
            return None;
        }
        Some(routes)
    }
}

fn refusal(error: &Error) -> ErrorBody {
    let kind = match error.kind() {
        archon_client::ErrorKind::NotFound => ErrorKind::NotFound,
        archon_client::ErrorKind::InvalidArgument => ErrorKind::Invalid,
        archon_client::ErrorKind::Refused => ErrorKind::Forbidden,
        _ => ErrorKind::Unavailable,
    };
    ErrorBody::new(kind, error.to_string())
}

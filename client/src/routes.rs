//! Who owns which partition of a table, for services that are called by key.

use crate::error::Error;
use crate::kv::Client;
use crate::shared::Shared;
use crate::table::TableCache;
use archon_types::{
    Epoch, ErrorDetail, ErrorKind, NodeId, Partition, PartitionId, PartitionStatus, PartitionTable, Version,
};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::DropGuard;

/// The owner of a partition, as far as the coordinators have told. It may have changed since: who is called checks that it still
/// owns the partition, and [`Routes::wrong`] takes its refusal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Owner {
    /// The partition.
    pub partition: PartitionId,
    /// In which epoch it owns it.
    pub epoch: Epoch,
    /// Its number.
    pub member: NodeId,
    /// Its name.
    pub name: String,
    /// Where it is reached, as it said when it registered.
    pub address: String,
    /// It has said that it serves the partition; otherwise it may still be about to.
    pub serves: bool,
}

/// All owners of a table as of one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RouteMap {
    /// The version of the newest change in it.
    pub version: Version,
    /// The owner of each partition, by number; `None` of one that nobody owns.
    pub owners: Vec<Option<Owner>>,
}

/// The owners of a table's partitions, kept up to date in the background: of a lease table the participants, of a table with rows
/// the nodes that lead. Looking is a look into memory. Clones share what is held.
#[derive(Clone, Debug)]
pub struct Routes {
    shared: Arc<Shared>,
    _guard: Arc<DropGuard>,
    table: Arc<TableCache>,
    changes: watch::Receiver<Version>,
}

impl Client {
    /// Who owns which partition of a table.
    ///
    /// # Errors
    /// `NotFound` if there is no such table; otherwise as [`crate::ClientBuilder::build`].
    pub async fn routes(&self, table: &str) -> Result<Routes, Error> {
        let (shared, guard, timeout) = self.parts();
        Routes::open(shared, guard, table, timeout).await
    }
}

impl Routes {
    pub(crate) async fn open(
        shared: Arc<Shared>,
        guard: Arc<DropGuard>,
        table: &str,
        timeout: Duration,
    ) -> Result<Self, Error> {
        let table = shared.table(table, timeout).await.map_err(|error| with_advice(error, table))?;
        let changes = table.changes();
        Ok(Self { shared, _guard: guard, table, changes })
    }

    /// The owners of all partitions.
    pub fn map(&self) -> RouteMap {
        let table = self.table.load();
        let row = |index| table.partition(index).and_then(|row| owner(&table, row));
        RouteMap { version: table.version(), owners: (0..table.table().keys.numbers_end()).map(row).collect() }
    }

    /// The rows of all partitions, and the nodes that they name.
    pub fn table(&self) -> Arc<PartitionTable> {
        Arc::clone(&self.table.load())
    }

    /// The partition of a key.
    pub fn partition_of(&self, key: impl AsRef<[u8]>) -> PartitionId {
        self.table.load().partition_of(key.as_ref())
    }

    /// The owner of a partition, if it has one.
    pub fn owner(&self, partition: PartitionId) -> Option<Owner> {
        let table = self.table.load();
        if partition.table != table.table().id {
            return None;
        }
        owner(&table, table.partition(partition.index)?)
    }

    /// The owner of the partition of a key, if it has one.
    pub fn owner_of(&self, key: impl AsRef<[u8]>) -> Option<Owner> {
        self.owner(self.partition_of(key))
    }

    /// Whoever was called says that it does not own the partition; with the epoch of its present owner if it knows that. Has the
    /// owners fetched anew, without waiting for it, unless what is held is newer than that. Returns whether it is fetched:
    /// [`Routes::changed`] then tells of it.
    pub fn wrong(&self, partition: PartitionId, hint: Option<Epoch>) -> bool {
        let table = self.table.load();
        let held = table.partition(partition.index).map_or(Epoch::ZERO, |row| row.epoch);
        let wanted = partition.table == table.table().id && hint.is_none_or(|hint| hint > held);
        if wanted {
            self.table.want_refresh(); // One that is under way serves all who ask.
        }
        wanted
    }

    /// Waits for a change since the last call, or since [`Client::routes`]. Gives the version that is held then.
    ///
    /// # Errors
    /// `NotFound` if the table was dropped; [`Error::Closed`] if the client was closed.
    pub async fn changed(&mut self) -> Result<Version, Error> {
        if self.table.is_dropped() {
            return Err(self.table.dropped().into());
        }
        tokio::select! {
            changed = self.changes.changed() => changed.map_err(|_| Error::Closed)?,
            () = self.shared.stop.cancelled() => return Err(Error::Closed),
        }
        if self.table.is_dropped() {
            return Err(self.table.dropped().into());
        }
        Ok(*self.changes.borrow_and_update())
    }
}

/// Whoever looks for owners may not have made the table yet.
fn with_advice(error: Error, table: &str) -> Error {
    match error {
        Error::Server { detail } if detail.kind == ErrorKind::NotFound => {
            let message = format!("{}; make it: `archon table create {table} --lease`", detail.message);
            ErrorDetail { message, ..*detail }.into()
        }
        other => other,
    }
}

fn owner(table: &PartitionTable, row: &Partition) -> Option<Owner> {
    let member = table.node(row.leader_placement()?.node)?;
    Some(Owner {
        partition: row.id,
        epoch: row.epoch,
        member: member.id,
        name: member.name.clone(),
        address: member.address.clone(),
        serves: row.status == PartitionStatus::Online,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_is_not_there_was_not_said_how_to_be_made() {
        let error = |kind| Error::from(ErrorDetail::new(kind, "there is no table \"nosuch\""));
        assert_eq!(
            with_advice(error(ErrorKind::NotFound), "nosuch").to_string(),
            "NotFound: there is no table \"nosuch\"; make it: `archon table create nosuch --lease`"
        );
        assert_eq!(with_advice(error(ErrorKind::Unreachable), "nosuch"), error(ErrorKind::Unreachable));
    }
}

//! Owners of a table's partitions, for callers that route by key.

use crate::error::Error;
use crate::kv::Client;
use crate::routing::owners::OwnersWatch;
use crate::routing::table::TableCache;
use crate::state::ClientState;
use archon_types::{
    Epoch, ErrorDetail, ErrorKind, GenerationKey, NodeId, Partition, PartitionId, PartitionStatus, PartitionTable,
    TableContent, TableId, Version,
};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::DropGuard;

/// Pause before a caller asks again for an unknown owner, in milliseconds.
const RETRY_AFTER_MS: u64 = 50;

/// Owner of a partition, as reported by the coordinators. It may have changed since: the called service checks its
/// ownership, and [`Routes::wrong`] handles its refusal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Owner {
    /// The partition.
    pub partition: PartitionId,
    /// The epoch of the ownership.
    pub epoch: Epoch,
    /// Number of the owner.
    pub member: NodeId,
    /// Name of the owner.
    pub name: String,
    /// Address from its registration.
    pub address: String,
    /// Set once it reported that it serves the partition; before that, it may be acquiring it.
    pub serves: bool,
}

/// All owners of a table at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RouteMap {
    /// Version of the newest change in it.
    pub version: Version,
    /// Owner of each partition, by number; `None` without an owner.
    pub owners: Vec<Option<Owner>>,
}

/// Owners that have changed since a version of the table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RouteChanges {
    /// The table. A table of the same name that is created later has another number.
    pub table: TableId,
    /// Version of the newest change; [`Routes::changes_since`] it names the next ones.
    pub version: Version,
    /// Numbers of the changed partitions, in order, with their owners; `None` without an owner.
    pub owners: Vec<(u32, Option<Owner>)>,
}

/// Owners of a table's partitions, updated in the background: participants of a lease table, leading nodes of a table
/// with rows. Lookups only read memory. Clones share the cache.
#[derive(Clone, Debug)]
pub struct Routes {
    shared: Arc<ClientState>,
    _guard: Arc<DropGuard>,
    table: Arc<TableCache>,
    changes: watch::Receiver<Version>,
}

impl Client {
    /// Opens the owners of a table's partitions.
    ///
    /// # Errors
    /// `NotFound` for an unknown table; otherwise as [`crate::ClientBuilder::build`].
    pub async fn routes(&self, table: &str) -> Result<Routes, Error> {
        let (shared, guard, timeout) = self.parts();
        Routes::open(shared, guard, table, timeout).await
    }
}

impl Routes {
    pub(crate) async fn open(
        shared: Arc<ClientState>,
        guard: Arc<DropGuard>,
        table: &str,
        timeout: Duration,
    ) -> Result<Self, Error> {
        let table = shared.table(table, timeout).await.map_err(|error| with_advice(error, table))?;
        let changes = table.changes();
        Ok(Self { shared, _guard: guard, table, changes })
    }

    /// Returns the owners of another table, with shared state.
    ///
    /// # Errors
    /// As [`Client::routes`].
    pub async fn of_table(&self, table: &str, timeout: Duration) -> Result<Self, Error> {
        Self::open(Arc::clone(&self.shared), Arc::clone(&self._guard), table, timeout).await
    }

    /// Returns the owners of all partitions.
    pub fn map(&self) -> RouteMap {
        let table = self.table.load();
        let row = |index| table.partition(index).and_then(|row| owner(&table, row));
        RouteMap { version: table.version(), owners: (0..table.table().keys.numbers_end()).map(row).collect() }
    }

    /// Returns the owners that may have changed after this version, all for [`Version::ZERO`]. Several changes of a
    /// partition are one, so a caller that is slow needs no queue. A partition with an unknown owner is left out, and is
    /// a change once its row and the row of its owner have arrived. Versions from before a recovery of the coordinators
    /// may not compare with later ones; [`Self::watch`] handles that.
    pub fn changes_since(&self, version: Version) -> RouteChanges {
        known_changes(&self.table.load(), version)
    }

    /// Returns the owners of all partitions, as changes since [`Version::ZERO`].
    ///
    /// # Errors
    /// `Unavailable` while the owner of a partition is unknown.
    pub fn all_known(&self) -> Result<RouteChanges, Error> {
        Ok(all_known(&self.table.load())?)
    }

    /// Returns whether the owners are participants, not nodes with rows. Every certificate of the cluster may read
    /// the owners of leases.
    pub fn is_lease(&self) -> bool {
        self.table.load().table().holds == TableContent::Lease
    }

    /// Starts a watch that names the owners to other processes.
    pub fn watch(&self) -> OwnersWatch {
        OwnersWatch::new(self.clone())
    }

    /// Returns the cached rows, with the key of the history in which their versions compare.
    pub(super) fn cached(&self) -> (Arc<PartitionTable>, GenerationKey) {
        self.table.load_with_key()
    }

    pub(super) fn table_name(&self) -> String {
        self.table.load().table().name.clone()
    }

    /// Returns the rows of all partitions, and the nodes in them.
    pub fn table(&self) -> Arc<PartitionTable> {
        Arc::clone(&self.table.load())
    }

    /// Returns the partition of a key.
    pub fn partition_of(&self, key: impl AsRef<[u8]>) -> PartitionId {
        self.table.load().partition_of(key.as_ref())
    }

    /// Returns the owner of a partition, if it has one.
    pub fn owner(&self, partition: PartitionId) -> Option<Owner> {
        let table = self.table.load();
        if partition.table != table.table().id {
            return None;
        }
        owner(&table, table.partition(partition.index)?)
    }

    /// Returns a key's partition with its owner, if it has one.
    ///
    /// # Errors
    /// `Unavailable` while the owner is unknown: the row of the partition, or of its owner, has not arrived. Then
    /// [`Self::owner_of`] returns none.
    pub fn find(&self, key: impl AsRef<[u8]>) -> Result<(PartitionId, Option<Owner>), Error> {
        let table = self.table.load();
        let partition = table.partition_of(key.as_ref());
        let row = table.partition(partition.index).ok_or_else(|| unknown(&table, partition.index))?;
        Ok((partition, known_owner(&table, row)?))
    }

    /// Returns the owner of a key's partition, if it has one.
    pub fn owner_of(&self, key: impl AsRef<[u8]>) -> Option<Owner> {
        self.owner(self.partition_of(key))
    }

    /// Handles the refusal of a called service that does not own the partition; `hint` is the epoch of the present
    /// owner, if known. Fetches the owners again in the background, unless the cache is newer than the hint. Returns
    /// whether it does; [`Routes::changed`] then reports the result.
    pub fn wrong(&self, partition: PartitionId, hint: Option<Epoch>) -> bool {
        let table = self.table.load();
        let held = table.partition(partition.index).map_or(Epoch::ZERO, |row| row.epoch);
        let wanted = partition.table == table.table().id && hint.is_none_or(|hint| hint > held);
        if wanted {
            self.table.want_refresh(); // A fetch in progress serves all callers.
        }
        wanted
    }

    /// Waits for a change since the last call, or since [`Client::routes`]. Returns the version of the cache.
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

/// Adds advice for callers: the table may not have been created yet.
fn with_advice(error: Error, table: &str) -> Error {
    match error {
        Error::Server { detail } if detail.kind == ErrorKind::NotFound => {
            let message = format!("{}; make it: `archon table create {table} --lease`", detail.message);
            ErrorDetail { message, ..*detail }.into()
        }
        other => other,
    }
}

/// Returns the known owners that may have changed after this version.
pub(super) fn known_changes(table: &PartitionTable, version: Version) -> RouteChanges {
    let owners = changes_in(table, version).filter_map(|(index, owner)| Some((index, owner.ok()?))).collect();
    RouteChanges { table: table.table().id, version: table.version(), owners }
}

/// Returns all owners.
///
/// # Errors
/// `Unavailable` while the owner of a partition is unknown.
pub(super) fn all_known(table: &PartitionTable) -> Result<RouteChanges, ErrorDetail> {
    let owners = changes_in(table, Version::ZERO).map(|(index, owner)| Ok((index, owner?)));
    Ok(RouteChanges {
        table: table.table().id,
        version: table.version(),
        owners: owners.collect::<Result<_, ErrorDetail>>()?,
    })
}

/// Yields the numbers of the partitions that may have changed after this version, with their owners.
fn changes_in(
    table: &PartitionTable,
    version: Version,
) -> impl Iterator<Item = (u32, Result<Option<Owner>, ErrorDetail>)> {
    let change = move |index| {
        let Some(row) = table.partition(index) else {
            // In a table by ranges it was merged: its row is gone, and its version with it, so it is listed whenever the
            // table has changed.
            let owner = if table.table().keys.is_range() { Ok(None) } else { Err(unknown(table, index)) };
            return (version == Version::ZERO || table.version() > version).then_some((index, owner));
        };
        // Within a history no row arrives late with a lower version. A change gives its row the index of its log entry. A
        // server sends with a version every row up to it, of partitions and members. The cache takes that as a whole, and
        // only if it has everything before. Rows above the version may come along early, and are listed again.
        // The owner may have registered again, with another address.
        let member = row.leader_placement().and_then(|placement| table.node(placement.node));
        let is_new = row.version > version || member.is_some_and(|member| member.version > version);
        (is_new || version == Version::ZERO).then(|| (index, known_owner(table, row)))
    };
    (0..table.table().keys.numbers_end()).filter_map(change)
}

/// Returns the owner of a partition, if it has one.
///
/// # Errors
/// The row of the owner has not arrived.
fn known_owner(table: &PartitionTable, row: &Partition) -> Result<Option<Owner>, ErrorDetail> {
    match (row.leader_placement(), owner(table, row)) {
        (Some(_), None) => Err(unknown(table, row.id.index)),
        (_, owner) => Ok(owner),
    }
}

/// Returns the error for a missing row of a partition or of its owner.
fn unknown(table: &PartitionTable, index: u32) -> ErrorDetail {
    let name = &table.table().name;
    let message =
        format!("the owner of partition {index} of {name} is not known yet: the routes are incomplete; try again");
    ErrorDetail::new(ErrorKind::Unavailable, message).with_retry_after_ms(RETRY_AFTER_MS)
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
    fn missing_table_error_names_the_create_command() {
        let error = |kind| Error::from(ErrorDetail::new(kind, "table \"nosuch\" does not exist"));
        assert_eq!(
            with_advice(error(ErrorKind::NotFound), "nosuch").to_string(),
            "NotFound: table \"nosuch\" does not exist; make it: `archon table create nosuch --lease`"
        );
        assert_eq!(with_advice(error(ErrorKind::Unreachable), "nosuch"), error(ErrorKind::Unreachable));
    }
}

//! Watches of a table's owners, as documents for callers in other processes.

use super::routes::{Owner, RouteChanges, Routes, all_known, known_changes};
use crate::error::Error;
use archon_documents::{OwnerAddress, PartitionOwner, TableOwners, Whereabouts};
use archon_types::{GenerationKey, Version};
use std::fmt;
use std::str::FromStr;

/// A watch of a table's owners. It has no queue: a reader that is slow gets several changes as one.
#[derive(Clone, Debug)]
pub struct OwnersWatch {
    routes: Routes,
    /// Version of the newest change that was read.
    seen: Version,
    /// Key of the history of that version: versions of two histories do not compare.
    history: GenerationKey,
    /// [`Self::next`] has read once.
    is_open: bool,
}

impl OwnersWatch {
    pub(super) const fn new(routes: Routes) -> Self {
        Self { routes, seen: Version::ZERO, history: GenerationKey::NIL, is_open: false }
    }

    /// Continues after this position, which another watch of the cluster may have read. Without effect for one of
    /// another table, or of a version that has not arrived here: the next read then lists all partitions. A position
    /// from before a recovery of the coordinators may belong to a history that was abandoned.
    pub fn resume(&mut self, position: OwnersPosition) {
        let (table, history) = self.routes.cached();
        if position.table_id == table.table().id.get() && position.version <= table.version().get() {
            (self.seen, self.history) = (Version::new(position.version), history);
        }
    }

    /// Returns the owners of all partitions.
    ///
    /// # Errors
    /// As [`Routes::all_known`].
    pub fn read_all(&mut self) -> Result<TableOwners, Error> {
        let (table, history) = self.routes.cached();
        let changes = all_known(&table)?;
        (self.seen, self.history) = (Version::ZERO, history);
        Ok(self.document_of(changes))
    }

    /// Returns the owners that have changed since the last read, all at the first one; `None` if there are none.
    pub fn read_changes(&mut self) -> Option<TableOwners> {
        let owners = self.document();
        (owners.complete || !owners.partitions.is_empty()).then_some(owners)
    }

    /// Returns the owners that have changed since the last call, all at the first one; waits for a change if there are
    /// none. `None` if the table was dropped, or the client was closed. A call may be abandoned at any time.
    pub async fn next(&mut self) -> Option<TableOwners> {
        // Only the first read comes without a change: rows that are newer than their table would be read again and again.
        let is_first = !std::mem::replace(&mut self.is_open, true);
        if is_first && let Some(owners) = self.read_changes() {
            return Some(owners);
        }
        while self.changed().await {
            if let Some(owners) = self.read_changes() {
                return Some(owners);
            }
        }
        None
    }

    /// Waits for a change. Returns false if the table was dropped, or the client was closed.
    pub async fn changed(&mut self) -> bool {
        self.routes.changed().await.is_ok()
    }

    fn document(&mut self) -> TableOwners {
        let (table, history) = self.routes.cached();
        if history != self.history {
            // Earlier owners are void. The versions of this history may be above those that were read, and its rows below.
            (self.seen, self.history) = (Version::ZERO, history);
        }
        self.document_of(known_changes(&table, self.seen))
    }

    /// Returns the document of changes since the last read.
    fn document_of(&mut self, changes: RouteChanges) -> TableOwners {
        let complete = self.seen == Version::ZERO;
        self.seen = changes.version;
        let shown = |(partition, owner): (u32, Option<Owner>)| PartitionOwner { partition, owner: owner.map(address) };
        TableOwners {
            table: self.routes.table_name(),
            table_id: changes.table.get(),
            version: changes.version.get(),
            complete,
            partitions: changes.owners.into_iter().map(shown).collect(),
        }
    }
}

impl Routes {
    /// Returns the partition of a key with its owner, as a document for callers in other processes.
    ///
    /// # Errors
    /// As [`Self::find`].
    pub fn whereabouts(&self, key: impl AsRef<[u8]>) -> Result<Whereabouts, Error> {
        let (partition, owner) = self.find(key)?;
        Ok(Whereabouts { table: self.table_name(), partition: partition.index, owner: owner.map(address) })
    }
}

fn address(owner: Owner) -> OwnerAddress {
    OwnerAddress { participant: owner.name, address: owner.address, epoch: owner.epoch.get(), serves: owner.serves }
}

/// Position in the changes of a table's owners; its text is the id of a server-sent event, `TABLE-VERSION`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OwnersPosition {
    table_id: u64,
    version: u64,
}

impl From<&TableOwners> for OwnersPosition {
    fn from(owners: &TableOwners) -> Self {
        Self { table_id: owners.table_id, version: owners.version }
    }
}

impl fmt::Display for OwnersPosition {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}-{}", self.table_id, self.version)
    }
}

/// The text is no position.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0:?} is no id of an event of a watch of owners, such as 2-417; leave it out to get all owners")]
pub struct NoPosition(String);

impl FromStr for OwnersPosition {
    type Err = NoPosition;

    fn from_str(text: &str) -> Result<Self, NoPosition> {
        let numbers =
            text.split_once('-').and_then(|(table, version)| Some((table.parse().ok()?, version.parse().ok()?)));
        let (table_id, version) = numbers.ok_or_else(|| NoPosition(text.chars().take(64).collect()))?;
        Ok(Self { table_id, version })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_read_from_their_text() {
        let position = OwnersPosition { table_id: 2, version: 417 };
        assert_eq!(position.to_string().parse(), Ok(position));
        for wrong in ["", "2", "2-", "-4", "2-x", "2-4-5"] {
            assert!(wrong.parse::<OwnersPosition>().is_err(), "{wrong}");
        }
    }
}

//! Owners of a table as last known.

use crate::protocol::TableOwners;
use archon_client::{Error, OwnersWatch};

/// Owners of all partitions, as last known. A partition with an unknown owner keeps its entry, and delays no other one.
#[derive(Debug, Default)]
pub(super) struct KnownOwners(Option<TableOwners>);

impl KnownOwners {
    /// Reads what has changed, and returns all owners if anything has.
    ///
    /// # Errors
    /// `Unavailable` until every owner was known once: the file may hold owners of an earlier run.
    pub(super) fn read(&mut self, watch: &mut OwnersWatch) -> Result<Option<&TableOwners>, Error> {
        let changes = match &self.0 {
            None => Some(watch.read_all()?),
            Some(_) => watch.read_changes(),
        };
        Ok(changes.map(|changes| self.update(changes)))
    }

    /// Replaces the owners of the listed partitions.
    fn update(&mut self, changes: TableOwners) -> &TableOwners {
        let TableOwners { table, table_id, version, complete, partitions } = changes;
        let known = self.0.get_or_insert(TableOwners { table, table_id, version, complete, partitions: Vec::new() });
        known.version = version;
        for change in partitions {
            match known.partitions.binary_search_by_key(&change.partition, |known| known.partition) {
                Ok(at) => {
                    if let Some(known) = known.partitions.get_mut(at) {
                        *known = change;
                    }
                }
                Err(at) => known.partitions.insert(at, change),
            }
        }
        known
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map_file::rendered_map::fixtures::owners;
    use crate::protocol::PartitionOwner;

    #[test]
    fn partition_with_unknown_owner_keeps_its_entry() {
        let mut known = KnownOwners::default();
        let before = known.update(owners()).clone();
        let moved = PartitionOwner { partition: 1, ..before.partitions[0].clone() };
        for complete in [false, true] {
            let partitions = vec![moved.clone(), PartitionOwner { partition: 2, owner: None }];
            let changes = TableOwners { version: 18, complete, partitions, ..owners() };
            let now = known.update(changes).clone();
            assert_eq!((now.version, now.partitions.len()), (18, before.partitions.len()));
            assert_eq!((&now.partitions[0], &now.partitions[1]), (&before.partitions[0], &moved));
            assert_eq!(now.partitions[2].owner, None, "it has no owner, as far as is known");
        }
    }
}

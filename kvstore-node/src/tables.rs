//! The node's cache of the partition tables: routes, leader hints and the answers to `GetTable`.

use archon_types::{DEFAULT_TABLE, NodeId, PartitionId, PartitionTable, Table, TableDelta, TableId, Version};
use parking_lot::RwLock;
use std::collections::BTreeMap;
use tokio::sync::watch;

#[derive(Debug, Default)]
struct State {
    tables: BTreeMap<TableId, PartitionTable>,
    coordinators: Vec<String>,
}

/// Every table, as far as the coordinator has told. Newer is never replaced by older.
#[derive(Debug)]
pub(crate) struct Tables {
    state: RwLock<State>,
    version: watch::Sender<Version>,
}

impl Tables {
    /// No table yet; `coordinators` are the configured addresses.
    pub(crate) fn new(coordinators: Vec<String>) -> Self {
        Self {
            state: RwLock::new(State { tables: BTreeMap::new(), coordinators }),
            version: watch::Sender::new(Version::ZERO),
        }
    }

    /// Takes in the deltas of one push. Returns whether there was no gap; with a gap the whole tables are needed.
    pub(crate) fn merge(&self, deltas: Vec<TableDelta>, coordinators: Vec<String>) -> bool {
        let mut state = self.state.write();
        let mut whole = true;
        for delta in deltas {
            match state.tables.get_mut(&delta.table.id) {
                Some(table) => whole &= table.merge(delta),
                None => match PartitionTable::from_whole(delta) {
                    Some(table) => {
                        state.tables.insert(table.table().id, table);
                    }
                    None => whole = false,
                },
            }
        }
        if !coordinators.is_empty() {
            state.coordinators = coordinators;
        }
        let newest = state.tables.values().map(PartitionTable::version).max().unwrap_or_default();
        drop(state);
        self.version.send_if_modified(|version| {
            let newer = newest > *version;
            *version = newest.max(*version);
            newer
        });
        whole
    }

    /// The version of the newest row of any table.
    pub(crate) fn version(&self) -> Version {
        *self.version.borrow()
    }

    /// A watch of [`Tables::version`], for long polls.
    pub(crate) fn watch(&self) -> watch::Receiver<Version> {
        self.version.subscribe()
    }

    /// Addresses of the coordinators, as last told.
    pub(crate) fn coordinators(&self) -> Vec<String> {
        self.state.read().coordinators.clone()
    }

    /// The rows of the table with this name that are newer than `since`, or `None` if there is no such table.
    pub(crate) fn newer_than(&self, name: &str, since: Version) -> Option<TableDelta> {
        self.named(name, |table| table.newer_than(since))
    }

    /// The version of the table with this name.
    pub(crate) fn version_of(&self, name: &str) -> Option<Version> {
        self.named(name, PartitionTable::version)
    }

    /// The table with this name, with its number of partitions.
    pub(crate) fn table(&self, name: &str) -> Option<Table> {
        self.named(name, |table| table.table().clone())
    }

    /// The partition that `key` belongs to in a table, if the table is known.
    pub(crate) fn partition_of(&self, table: TableId, key: &[u8]) -> Option<PartitionId> {
        self.state.read().tables.get(&table).map(|table| table.partition_of(key))
    }

    /// A partition as people name it: `orders/7`; by its numbers while its table is not known here.
    pub(crate) fn partition_name(&self, id: PartitionId) -> String {
        let state = self.state.read();
        state.tables.get(&id.table).map_or_else(|| id.to_string(), |table| table.partition_name(id))
    }

    /// The address of the node that leads a partition, as far as is known.
    pub(crate) fn leader_address(&self, partition: PartitionId) -> Option<String> {
        let state = self.state.read();
        let table = state.tables.get(&partition.table)?;
        let leader = table.route_partition(partition).leader?;
        table.node(leader).map(|node| node.address.clone())
    }

    /// A node's address and incarnation: the newest row that any table brought.
    pub(crate) fn node(&self, id: NodeId) -> Option<archon_types::Node> {
        let state = self.state.read();
        state.tables.values().filter_map(|table| table.node(id)).max_by_key(|node| node.version).cloned()
    }

    fn named<T>(&self, name: &str, read: impl FnOnce(&PartitionTable) -> T) -> Option<T> {
        let name = if name.is_empty() { DEFAULT_TABLE } else { name };
        self.state.read().tables.values().find(|table| table.table().name == name).map(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    fn delta(since: u64, version: u64) -> TableDelta {
        TableDelta {
            table: Table {
                id: TableId::new(1),
                name: "default".into(),
                partitions: 4,
                replication: 1,
                version: Version::new(1),
            },
            since: Version::new(since),
            version: Version::new(version),
            partitions: vec![],
            nodes: vec![],
        }
    }

    #[test]
    fn an_empty_name_is_the_default_table() {
        let tables = Tables::new(vec![]);
        assert_eq!(tables.table(""), None);
        assert!(tables.merge(vec![delta(0, 5)], vec![]));
        assert_eq!(tables.table("").map(|table| table.name), Some("default".to_owned()));
        assert_eq!(tables.table(""), tables.table("default"));
        assert_eq!(tables.table("other"), None);
        assert_eq!(tables.partition_name(PartitionId::new(TableId::new(1), 3)), "default/3");
        assert_eq!(tables.partition_name(PartitionId::new(TableId::new(2), 3)), "2/3");
    }

    #[test]
    fn a_partial_delta_of_an_unknown_table_is_a_gap() {
        let tables = Tables::new(vec!["a:1".into()]);
        assert!(!tables.merge(vec![delta(3, 5)], vec![]));
        assert_eq!(tables.version(), Version::ZERO);
        assert!(tables.merge(vec![delta(0, 5)], vec!["b:1".into()]));
        assert!(!tables.merge(vec![delta(9, 12)], vec![]));
        assert_eq!((tables.version(), tables.coordinators()), (Version::new(5), vec!["b:1".to_owned()]));
    }
}

//! Display names of nodes and partitions.

use crate::state::ClusterState;
use crate::state::events::EventKind;
use archon_types::{NodeId, PartitionId, TableId};

/// Maximum number of partitions named in a sentence.
pub(crate) const NAMED_MAX: usize = 5;

impl ClusterState {
    /// Returns a node's name, or its number if it is unknown.
    pub fn node_name(&self, id: NodeId) -> String {
        self.node(id).map_or_else(|| format!("node {id}"), |row| row.node.name.clone())
    }

    /// Returns a table's name; for a dropped one its former name, as long as an event contains it.
    pub fn table_name(&self, id: TableId) -> Option<&str> {
        let had = || {
            self.events.iter().rev().find_map(|event| match &event.what {
                EventKind::TableCreated { table, name }
                | EventKind::TableAltered { table, name, .. }
                | EventKind::TableDropped { table, name, .. } => (*table == id).then_some(name.as_str()),
                _ => None,
            })
        };
        self.tables.get(&id).map(|table| table.name.as_str()).or_else(had)
    }

    /// Returns a partition's display name: `orders/7`.
    pub fn partition_name(&self, id: PartitionId) -> String {
        match self.table_name(id.table) {
            Some(table) => format!("{table}/{}", id.index),
            None => id.to_string(),
        }
    }

    /// Returns the display names of several partitions, the first few of many.
    pub fn partition_names(&self, ids: impl IntoIterator<Item = PartitionId>) -> String {
        let mut ids = ids.into_iter();
        let mut named: Vec<String> = ids.by_ref().take(NAMED_MAX).map(|id| self.partition_name(id)).collect();
        if ids.next().is_some() {
            named.push("…".to_owned());
        }
        named.join(", ")
    }
}

//! Display names of nodes and partitions, and subjects and causes of findings and events.

use crate::state::ClusterState;
use crate::state::actor::Actor;
use crate::state::controls::Bar;
use crate::state::events::EventKind;
use archon_types::subject::{Cause, Subject};
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

    /// Returns a node as a subject; a removed one by its number.
    pub fn node_subject(&self, id: NodeId) -> Subject {
        let node = self.node(id).map_or_else(|| id.to_string(), |row| row.node.name.clone());
        Subject::Node { node_id: id.get(), node }
    }

    /// Returns a table as a subject.
    pub fn table_subject(&self, id: TableId) -> Subject {
        Subject::Table { table_id: id.get(), table: self.table_text(id) }
    }

    /// Returns a partition as a subject.
    pub fn partition_subject(&self, id: PartitionId) -> Subject {
        let PartitionId { table, index } = id;
        Subject::Partition { table_id: table.get(), table: self.table_text(table), partition: index }
    }

    /// Returns the object of a bar.
    pub fn bar_subject(&self, bar: Bar) -> Subject {
        match bar {
            Bar::Table(table) => self.table_subject(table),
            Bar::Partition(partition) => self.partition_subject(partition),
        }
    }

    /// Returns the originator of a change.
    pub fn cause(&self, who: &Actor) -> Cause {
        match who {
            Actor::Coordinator(id) => Cause::Coordinator { coordinator_id: *id },
            Actor::Node(id) => Cause::Node { node_id: Some(id.get()), node: self.node_name(*id) },
            Actor::Newcomer(name) => Cause::Node { node_id: None, node: name.clone() },
            Actor::Admin { identity, from, via } => {
                Cause::Admin { admin: identity.clone(), from: *from, via: via.clone() }
            }
        }
    }

    /// Returns a table's name; its number if it was dropped and its events are no longer kept.
    pub fn table_text(&self, id: TableId) -> String {
        self.table_name(id).map_or_else(|| id.to_string(), str::to_owned)
    }
}

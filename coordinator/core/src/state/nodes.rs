//! Rows of nodes, with the indexes that keep ten thousand of them cheap: by name, address, data directory and version,
//! and those that are not simply alive and serving.

use crate::state::node_row::NodeRow;
use archon_types::{NodeGoal, NodeId, NodeStatus, StorageId, Version};
use serde::{Deserialize, Serialize, Serializer};
use std::collections::{BTreeMap, BTreeSet};

/// The rows of all nodes, including lost ones. Serialised as a plain map by number; reading rebuilds the indexes.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(from = "BTreeMap<NodeId, NodeRow>")]
pub struct Nodes {
    rows: BTreeMap<NodeId, NodeRow>,
    by_storage: BTreeSet<(StorageId, NodeId)>,
    by_name: BTreeMap<String, BTreeSet<NodeId>>,
    by_address: BTreeMap<String, BTreeSet<NodeId>>,
    by_version: BTreeSet<(Version, NodeId)>,
    /// Draining nodes.
    draining: BTreeSet<NodeId>,
    /// Nodes that give up their leaderships.
    handing_over: BTreeSet<NodeId>,
    /// Failed or lost.
    down: BTreeSet<NodeId>,
    /// Nodes that take placements.
    eligible: BTreeSet<NodeId>,
    /// Participants by the tables that they serve.
    serving: BTreeMap<String, BTreeSet<NodeId>>,
}

impl Nodes {
    /// Returns a node's row.
    pub fn get(&self, id: &NodeId) -> Option<&NodeRow> {
        self.rows.get(id)
    }

    /// Returns every row, in order of registration.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &NodeRow> + ExactSizeIterator + Clone {
        self.rows.values()
    }

    /// Returns every number, in order of registration.
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &NodeId> + ExactSizeIterator {
        self.rows.keys()
    }

    /// Returns every number with its row, in order of registration.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&NodeId, &NodeRow)> + ExactSizeIterator {
        self.rows.iter()
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns true if there is none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the first node with this data directory.
    pub fn with_storage(&self, storage: StorageId) -> Option<&NodeRow> {
        let (found, id) = self.by_storage.range((storage, NodeId::ZERO)..).next()?;
        if *found == storage { self.rows.get(id) } else { None }
    }

    /// Returns the nodes with this name, including lost ones, in order of registration.
    pub fn named(&self, name: &str) -> impl DoubleEndedIterator<Item = &NodeRow> {
        self.by_name.get(name).into_iter().flatten().filter_map(|id| self.rows.get(id))
    }

    /// Returns the nodes with this address, including lost ones, in order of registration.
    pub fn reached_at(&self, address: &str) -> impl DoubleEndedIterator<Item = &NodeRow> {
        self.by_address.get(address).into_iter().flatten().filter_map(|id| self.rows.get(id))
    }

    /// Returns the rows newer than `since`, oldest change first.
    pub fn newer_than(&self, since: Version) -> impl Iterator<Item = &NodeRow> {
        let after = (Version::new(since.get().saturating_add(1)), NodeId::ZERO);
        let changed = self.by_version.range(after..).filter(move |(version, _)| *version > since);
        changed.filter_map(|(_, id)| self.rows.get(id))
    }

    /// Returns the draining nodes, in order of registration.
    pub fn draining(&self) -> impl Iterator<Item = &NodeRow> {
        self.draining.iter().filter_map(|id| self.rows.get(id))
    }

    /// Returns the nodes that give up their leaderships, in order of registration.
    pub fn handing_over(&self) -> impl Iterator<Item = &NodeRow> {
        self.handing_over.iter().filter_map(|id| self.rows.get(id))
    }

    /// Returns the failed and lost nodes, in order of registration.
    pub fn down(&self) -> impl Iterator<Item = &NodeRow> {
        self.down.iter().filter_map(|id| self.rows.get(id))
    }

    /// Returns the nodes that take placements, in order of registration.
    pub fn eligible(&self) -> impl DoubleEndedIterator<Item = &NodeRow> + Clone {
        self.eligible.iter().filter_map(|id| self.rows.get(id))
    }

    /// Returns the number of nodes that take placements.
    pub fn eligible_count(&self) -> usize {
        self.eligible.len()
    }

    /// Returns the participants that serve the table of this name, down or not, in order of registration.
    pub fn serving(&self, table: &str) -> impl DoubleEndedIterator<Item = &NodeRow> {
        self.serving.get(table).into_iter().flatten().filter_map(|id| self.rows.get(id))
    }

    /// Adds or replaces a row.
    pub(crate) fn insert(&mut self, row: NodeRow) {
        let id = row.node.id;
        self.remove(id);
        self.by_storage.insert((row.storage, id));
        self.by_name.entry(row.node.name.clone()).or_default().insert(id);
        self.by_address.entry(row.node.address.clone()).or_default().insert(id);
        self.by_version.insert((row.node.version, id));
        if row.node.goal == NodeGoal::Drain {
            self.draining.insert(id);
        }
        if row.node.goal.gives_up_leaderships() {
            self.handing_over.insert(id);
        }
        if row.node.status != NodeStatus::Alive {
            self.down.insert(id);
        }
        if row.takes_placements() {
            self.eligible.insert(id);
        }
        for table in row.participant.iter().flat_map(|participant| &participant.tables) {
            self.serving.entry(table.clone()).or_default().insert(id);
        }
        self.rows.insert(id, row);
    }

    /// Changes a row. Returns true if there is one.
    pub(crate) fn update(&mut self, id: NodeId, change: impl FnOnce(&mut NodeRow)) -> bool {
        let Some(mut row) = self.remove(id) else { return false };
        change(&mut row);
        self.insert(row);
        true
    }

    /// Removes a row.
    pub(crate) fn remove(&mut self, id: NodeId) -> Option<NodeRow> {
        let row = self.rows.remove(&id)?;
        self.by_storage.remove(&(row.storage, id));
        leave(&mut self.by_name, &row.node.name, id);
        leave(&mut self.by_address, &row.node.address, id);
        self.by_version.remove(&(row.node.version, id));
        self.draining.remove(&id);
        self.handing_over.remove(&id);
        self.down.remove(&id);
        self.eligible.remove(&id);
        for table in row.participant.iter().flat_map(|participant| &participant.tables) {
            leave(&mut self.serving, table, id);
        }
        Some(row)
    }
}

fn leave(index: &mut BTreeMap<String, BTreeSet<NodeId>>, key: &str, id: NodeId) {
    if let Some(set) = index.get_mut(key) {
        set.remove(&id);
        if set.is_empty() {
            index.remove(key);
        }
    }
}

impl From<Vec<NodeRow>> for Nodes {
    fn from(rows: Vec<NodeRow>) -> Self {
        let mut nodes = Self::default();
        for row in rows {
            nodes.insert(row);
        }
        nodes
    }
}

impl From<BTreeMap<NodeId, NodeRow>> for Nodes {
    fn from(rows: BTreeMap<NodeId, NodeRow>) -> Self {
        rows.into_values().collect::<Vec<_>>().into()
    }
}

impl Serialize for Nodes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.rows.serialize(serializer)
    }
}

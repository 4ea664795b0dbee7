//! V, of dropped tables: nothing of them remains, and every client that used one is notified. A deleted copy is never
//! opened again.

use crate::check::checks::Checks;
use crate::check::violation::Violation;
use crate::host::disk::Disk;
use crate::world::World;
use archon_coordinator_core::ClusterState;
use archon_types::{NodeStatus, PartitionId, PlacementId, TableId};
use std::collections::BTreeSet;

impl Checks {
    /// Records that a table, present in `before`, was dropped.
    pub(crate) fn note_drop(&mut self, before: &ClusterState, table: TableId, truth: u64) {
        self.dropped.insert(table, truth);
        self.names_dropped.extend(before.tables.get(&table).map(|row| row.name.clone()));
        for copy in before.partitions.of_table(table).flat_map(|row| &row.placements) {
            let status = before.node(copy.node).map(|node| node.node.status);
            self.condemned.insert(copy.id, status != Some(NodeStatus::Alive));
        }
        self.leases_changed = true;
    }

    /// Checks that a node may open a copy it does not know yet.
    pub(crate) fn opens(&self, placement: PlacementId) -> Result<(), Violation> {
        match self.deleted.contains(&placement) {
            true => Err(Violation::Deleted { detail: format!("{placement} was deleted, and is opened again") }),
            false => Ok(()),
        }
    }

    /// Checks a client's notification that a table was dropped.
    pub(crate) fn heard_dropped(&self, state: &ClusterState, partition: PartitionId) -> Result<(), Violation> {
        match state.tables.contains_key(&partition.table) {
            true => {
                Err(Violation::Deleted { detail: format!("a client is told that the table of {partition} is dropped") })
            }
            false => Ok(()),
        }
    }

    /// Records a directory that was rolled back: it contains deleted copies again, which no duty will name.
    pub(crate) fn set_back(&mut self, older: &Disk) {
        let again = copies_on(older).into_iter().filter(|copy| self.deleted.contains(copy));
        self.restored.extend(again.collect::<Vec<_>>());
    }
}

/// Returns the copies with data on a disk, in its log or its engine.
fn copies_on(disk: &Disk) -> BTreeSet<PlacementId> {
    disk.readable().into_keys().chain(disk.engine.spaces_on_disk()).collect()
}

impl World {
    /// Returns the remains of dropped tables; `None` once there are none.
    pub(crate) fn left_over(&self) -> Option<String> {
        if let Some((node, copy, partition)) = self.quorum.state.condemned.iter().next() {
            return Some(format!("node {node} has not deleted {copy} of {partition}"));
        }
        for host in &self.hosts {
            let here =
                |copy: &PlacementId| self.checks.condemned.contains_key(copy) && !self.checks.restored.contains(copy);
            if let Some(copy) = copies_on(&host.disk).into_iter().find(here) {
                return Some(format!("host {} holds {copy} of a table that was dropped", host.number));
            }
        }
        None
    }

    /// Returns a client that uses a dropped table without knowing; `None` once all were notified.
    pub(crate) fn uninformed_client(&self) -> Option<String> {
        let tables = &self.quorum.state.tables;
        let mut all =
            self.clients.iter().enumerate().flat_map(|(number, client)| client.held.iter().map(move |id| (number, id)));
        let (client, partition) = all.find(|(_, held)| !tables.contains_key(&held.table))?;
        Some(format!("client {client} has not been told that the table of {partition} was dropped"))
    }
}

//! Lease tables by the participants that serve them.

use crate::state::ClusterState;
use archon_types::{NodeId, Table};

impl ClusterState {
    /// Returns the tables that this participant serves by name and that hold no leases or do not exist.
    pub fn tables_not_leased(&self, member: NodeId) -> impl Iterator<Item = &String> {
        let served = self.tables_served(member);
        served.iter().filter(|name| !self.lease_tables().any(|table| table.name == **name))
    }

    /// Returns the lease tables that this participant serves.
    pub fn tables_leased(&self, member: NodeId) -> impl Iterator<Item = &Table> {
        let served = self.tables_served(member);
        self.lease_tables().filter(|table| served.contains(&table.name))
    }

    /// Returns the lease tables that this participant serves and was not granted.
    pub fn tables_not_granted(&self, member: NodeId) -> impl Iterator<Item = &Table> {
        self.tables_leased(member).filter(move |table| self.lacks_grant(member, table.id))
    }

    fn tables_served(&self, member: NodeId) -> &[String] {
        let participant = self.participants.get(&member).and_then(|row| row.participant.as_ref());
        participant.map_or(&[], |participant| participant.tables.as_slice())
    }
}

/// Returns the number of participants that take partitions of this table.
pub(crate) fn eligible_count(state: &ClusterState, table: &Table) -> usize {
    state.participants.serving(&table.name).filter(|row| row.takes_placements()).count()
}

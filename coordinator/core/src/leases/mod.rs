//! Lease tables: partitions without data that only record their owner. A lease's only copy stands on its owner and is
//! Live from the start, since it holds nothing. Epochs, leases, withdrawal, former owners and hand-overs are those of
//! every partition (PROTOCOL rules 12 to 16). Differences:
//!
//! - Any participant that serves the table may own a partition next, not only one that has a copy ([`Owners`]).
//! - A move begins with the next owner's placement in the row, Live at once; then the present owner is ordered to hand
//!   over. The new leadership and the end of the old placement are one commit ([`take_over`]).
//! - Leaderships that operators end are requested first ([`hands_over`]), and withdrawn only if not released in time.
//! - A table keeps itself even, with few moves, as participants come and go ([`lease_moves`]).

mod churn;
mod lease_moves;
mod owners;
mod staying;

pub(crate) use churn::{Churn, Seen};
pub(crate) use lease_moves::lease_moves;
pub(crate) use owners::Owners;
pub(crate) use staying::Successors;
pub use staying::staying_leases;

use crate::command::edit::{Edit, Ending};
use crate::state::ClusterState;
use archon_types::{Incarnation, NodeId, Partition, PartitionStatus, Placement, PlacementId, ReplicaState, Table};

/// Next owner of a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NextOwner {
    /// Its placement: one of the row, or a new one.
    pub(crate) placement: Placement,
    /// The incarnation of its member.
    pub(crate) incarnation: Incarnation,
}

/// Returns the placement to which the owner of a lease must hand over, if one was added for that. If operators ordered
/// the end of the leadership, it is the owner's own: the owner must end its work, which it would not do after a
/// withdrawal.
pub(crate) fn hands_over(state: &ClusterState, row: &Partition, owner: &Placement) -> Option<PlacementId> {
    if state.is_offline(row.id) || state.is_bumped(row.id) {
        return Some(owner.id);
    }
    let able = |other: &&Placement| other.id != owner.id && state.is_active(other.node);
    row.live().find(able).map(|other| other.id)
}

/// Returns the edits that make `next` the only owner of a partition.
pub(crate) fn take_over(row: &Partition, next: NextOwner, ending: Ending) -> Vec<Edit> {
    let NextOwner { placement, incarnation } = next;
    if row.status == PartitionStatus::Unassigned {
        return vec![Edit::Assign(vec![placement])];
    }
    let mut edits = Vec::new();
    if row.placement(placement.id).is_none() {
        edits.push(Edit::Add(placement));
    }
    edits.push(Edit::Lead { placement: placement.id, incarnation, ending });
    edits.extend(row.placements.iter().filter(|other| other.id != placement.id).map(|other| Edit::Forget(other.id)));
    edits
}

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

const fn placed(id: PlacementId, node: NodeId) -> Placement {
    Placement { id, node, state: ReplicaState::Live }
}

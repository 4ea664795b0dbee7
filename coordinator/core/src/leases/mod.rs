//! Lease tables: partitions of which there is nothing but who owns each. A lease's only copy stands on its owner and is Live from
//! the start, for it holds nothing. Epochs, leases, withdrawal, former owners and hand-overs are those of every partition
//! (PROTOCOL rules 12 to 16). What differs is here:
//!
//! - Any participant that serves the table may own a partition next, not only one that has a copy ([`Owners`]).
//! - A move begins by adding the next owner's placement to the row, at once Live; the present owner is then told to hand over.
//!   The new leadership and the end of the old placement are one commit ([`take_over`]).
//! - What operators order to end is asked for first ([`hands_over`]), and withdrawn only if it is not released in time.
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

use crate::edit::{Edit, Ending};
use crate::state::ClusterState;
use archon_types::{Incarnation, NodeId, Partition, PartitionStatus, Placement, PlacementId, ReplicaState, Table};

/// Who owns a partition next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NextOwner {
    /// Its placement: one of the row, or a new one.
    pub(crate) placement: Placement,
    /// The life of its member.
    pub(crate) incarnation: Incarnation,
}

/// The placement to which the owner of a lease is to hand over, if one was added for that. Where operators have ordered that
/// the leadership ends, it is its own: what counts is that the owner ends its work, which it would not if that were withdrawn.
pub(crate) fn hands_over(state: &ClusterState, row: &Partition, owner: &Placement) -> Option<PlacementId> {
    if state.is_offline(row.id) || state.is_bumped(row.id) {
        return Some(owner.id);
    }
    let able = |other: &&Placement| other.id != owner.id && state.is_active(other.node);
    row.live().find(able).map(|other| other.id)
}

/// The edits by which a partition is owned from now on by `next`, and by nobody else.
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
    /// The tables that this participant serves and that hold no leases, or are not there, by name.
    pub fn tables_not_leased(&self, member: NodeId) -> impl Iterator<Item = &String> {
        let served = self.tables_served(member);
        served.iter().filter(|name| !self.lease_tables().any(|table| table.name == **name))
    }

    /// Returns the lease tables that this participant serves.
    pub fn tables_leased(&self, member: NodeId) -> impl Iterator<Item = &Table> {
        let served = self.tables_served(member);
        self.lease_tables().filter(|table| served.contains(&table.name))
    }

    fn tables_served(&self, member: NodeId) -> &[String] {
        let participant = self.participants.get(&member).and_then(|row| row.participant.as_ref());
        participant.map_or(&[], |participant| participant.tables.as_slice())
    }
}

/// How many participants take partitions of this table.
pub(crate) fn eligible_count(state: &ClusterState, table: &Table) -> usize {
    state.participants.serving(&table.name).filter(|row| row.takes_placements()).count()
}

const fn placed(id: PlacementId, node: NodeId) -> Placement {
    Placement { id, node, state: ReplicaState::Live }
}

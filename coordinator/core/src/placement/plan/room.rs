//! Room for missing copies: if every node that could take one is full, another copy moves from one of them to a node
//! with room.

use super::board::{Board, NeedyByZone, Role};
use crate::state::ClusterState;
use archon_types::{Partition, PartitionId, PartitionStatus, ReplicaState};
use std::collections::BTreeSet;

/// Most partitions with missing copies that one plan makes room for; the next plan continues from there.
const PARTITIONS_MAX: usize = 64;

impl<'a> Board<'a> {
    /// Makes room for missing copies, after the balancing of copies. Repair then makes the copies.
    pub(super) fn make_room(&mut self, state: &'a ClusterState) {
        for (partition, missing) in missing(state).take(PARTITIONS_MAX) {
            // Room reserved for one copy is not available to another.
            let mut kept = BTreeSet::new();
            for _ in 0..missing {
                let Some(slot) = self.room_for(partition, &kept).or_else(|| self.swap_for(partition, &kept)) else {
                    break;
                };
                kept.insert(slot);
                self.slots[slot].limit = self.slots[slot].limit.saturating_sub(1);
            }
        }
    }

    /// Returns true if a node with room could take a new copy of the partition.
    fn may_hold(&self, partition: PartitionId, slot: usize) -> bool {
        let (from, to) = self.siblings_of(partition);
        let holds = self.pieces[from..to].iter().any(|piece| piece.at == slot || piece.first == slot);
        self.slots[slot].role == Role::Eligible && !holds && !self.blocked.contains(&(partition, slot))
    }

    /// Returns a node with room that may hold a new copy.
    fn room_for(&self, partition: PartitionId, kept: &BTreeSet<usize>) -> Option<usize> {
        let free = |slot: &usize| !kept.contains(slot) && self.open(*slot).is_some();
        (0..self.slots.len()).filter(free).find(|slot| self.may_hold(partition, *slot))
    }

    /// Moves a copy away from a full node that may hold the new copy. Returns that node.
    fn swap_for(&mut self, partition: PartitionId, kept: &BTreeSet<usize>) -> Option<usize> {
        let mut open: NeedyByZone<'a> = NeedyByZone::new();
        for slot in 0..self.slots.len() {
            if let Some(need) = self.open(slot) {
                open.entry(self.slots[slot].zone).or_default().insert(need);
            }
        }
        if open.is_empty() {
            return None;
        }
        let full: Vec<usize> =
            (0..self.slots.len()).filter(|slot| !kept.contains(slot) && self.may_hold(partition, *slot)).collect();
        // Followers before leaders, across all nodes.
        for leads in [false, true] {
            for from in full.iter().copied() {
                let pieces = self.slots[from].pieces.iter().copied();
                let found = pieces.filter(|piece| self.pieces[*piece].leads == leads).find_map(|piece| {
                    let doubled = self.is_doubled(piece, from);
                    let good = |need: &crate::placement::score::Need| doubled || !self.is_doubled(piece, need.slot);
                    Some((piece, self.first_that(piece, &open, good)?.slot))
                });
                if let Some((piece, to)) = found {
                    self.shift(piece, to);
                    self.swapped.insert(piece);
                    // Its larger number is intended now.
                    self.slots[to].quota = self.slots[to].quota.max(self.slots[to].count);
                    return Some(from);
                }
            }
        }
        None
    }
}

/// Returns the partitions with fewer copies than wanted, each with the number of missing ones.
fn missing(state: &ClusterState) -> impl Iterator<Item = (PartitionId, usize)> {
    state.data_tables().flat_map(move |table| {
        let wanted = usize::from(table.replication);
        let lacks = move |row: &Partition| {
            let stay = |node| state.node(node).is_some_and(|row| !row.is_lost());
            let copies = row.placements.iter().filter(|copy| copy.state != ReplicaState::Unload && stay(copy.node));
            let assigned =
                row.status != PartitionStatus::Unassigned && !row.is_reshaped() && row.live().next().is_some();
            assigned.then(|| (row.id, wanted.saturating_sub(copies.count())))
        };
        state.partitions.of_table(table.id).filter_map(lacks).filter(|(_, missing)| *missing > 0)
    })
}

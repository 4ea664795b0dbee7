//! Edits of copies: adding, promoting, demoting, deleting and forgetting them.

use super::effect::CopyCondition;
use super::{StagedRows, in_state, not_leader, placement, set_state};
use crate::command::apply::min_in_sync;
use crate::command::refusals::{invalid, next_epoch, not_found, refused};
use crate::mutant::Mutant;
use crate::placement::out_of_sync;
use crate::state::events::EventKind;
use crate::state::out_of_sync_copy::Condition;
use archon_types::limits::REPLICAS_MAX;
use archon_types::{
    ErrorDetail, ErrorKind, Incarnation, NodeId, NodeStatus, Partition, PartitionStatus, Placement, PlacementId,
    ReplicaState,
};

impl StagedRows<'_> {
    /// Takes a copy out of sync. It is kept as it is, as Load and with its condition, until another copy may replace it
    /// (`repair`) or an operator makes it lead: at this moment it may be the last one.
    pub(crate) fn lose(
        &mut self,
        row: &mut Partition,
        id: PlacementId,
        condition: Condition,
        why: &str,
    ) -> Result<(), ErrorDetail> {
        let node = self.no_longer_counts(row, id, condition)?;
        let (partition, placement, why) = (row.id, id, why.to_owned());
        self.effect.events.push(EventKind::ReplicaLost { partition, placement, node, why });
        Ok(())
    }

    /// Records that an out-of-sync copy holds no more than this; if it is `lost`, it is not brought up to date. Returns
    /// its node.
    pub(crate) fn spoil(
        &mut self,
        row: &Partition,
        id: PlacementId,
        condition: Condition,
        lost: bool,
    ) -> Result<NodeId, ErrorDetail> {
        let node = placement(row, id)?.node;
        self.effect.spoiled.insert(id, CopyCondition { condition, lost });
        Ok(node)
    }

    pub(super) fn no_longer_counts(
        &mut self,
        row: &mut Partition,
        id: PlacementId,
        condition: Condition,
    ) -> Result<NodeId, ErrorDetail> {
        if row.leader == Some(id) {
            row.leader = None;
            row.epoch = next_epoch(row.epoch)?;
        }
        let partition = row.id;
        let Some(placement) = row.placements.iter_mut().find(|placement| placement.id == id) else {
            return Err(not_found(format!("partition {partition} has no placement {id}")));
        };
        placement.state = ReplicaState::Load;
        let node = placement.node;
        self.effect.spoiled.insert(id, CopyCondition { condition, lost: true });
        Ok(node)
    }

    pub(super) fn assign(&mut self, row: &mut Partition, placements: &[Placement]) -> Result<(), ErrorDetail> {
        let unused = row.placements.iter().all(|placement| placement.state == ReplicaState::Unload);
        if row.status != PartitionStatus::Unassigned || !unused {
            return Err(refused(format!("partition {} is assigned already", row.id)));
        }
        let Some(first) = placements.first() else {
            return Err(invalid(format!("the assignment of partition {} names no placement", row.id)));
        };
        let wanted = self.state.tables.get(&row.id.table).map_or(1, |table| usize::from(table.replication));
        if placements.len() != wanted {
            return Err(invalid(format!(
                "partition {} wants {wanted} placements, {} are named",
                row.id,
                placements.len()
            )));
        }
        for placement in placements {
            if placement.state != ReplicaState::Live {
                return Err(invalid(format!("placement {} of a first assignment must be Live", placement.id)));
            }
            self.place(row, *placement)?;
        }
        row.epoch = next_epoch(row.epoch)?;
        row.leader = Some(first.id);
        row.status = PartitionStatus::Assigned;
        self.requires(row);
        if !self.state.is_lease(row.id.table) {
            self.effect.untouched.insert(row.id, true);
        }
        Ok(())
    }

    pub(super) fn add(&mut self, row: &mut Partition, placement: Placement) -> Result<(), ErrorDetail> {
        if row.status == PartitionStatus::Unassigned {
            return Err(refused(format!("partition {} is not assigned yet", row.id)));
        }
        // A lease has no data to copy.
        let begins = if self.state.is_lease(row.id.table) { ReplicaState::Live } else { ReplicaState::Load };
        if placement.state != begins {
            return Err(invalid(format!("placement {} must be added as {begins}", placement.id)));
        }
        self.place(row, placement)
    }

    /// Puts a new placement into the row: it needs a fresh number and an active node without a copy of this row.
    fn place(&mut self, row: &mut Partition, placement: Placement) -> Result<(), ErrorDetail> {
        if placement.id <= self.effect.placement_last {
            return Err(ErrorDetail::new(
                ErrorKind::StaleVersion,
                format!("placement number {} is taken (the last one is {})", placement.id, self.effect.placement_last),
            ));
        }
        if !self.state.is_active(placement.node) {
            return Err(refused(format!("{} is not active", self.state.node_name(placement.node))));
        }
        if !self.state.serves(placement.node, row.id.table) {
            let (name, partition) = (self.state.node_name(placement.node), self.state.partition_name(row.id));
            return Err(refused(format!("{name} does not serve the table of partition {partition}")));
        }
        if let Some(other) = row.placement_on(placement.node) {
            return Err(refused(format!(
                "{} holds placement {} of partition {} already",
                self.state.node_name(placement.node),
                other.id,
                row.id
            )));
        }
        if row.placements.len() >= 2 * usize::from(REPLICAS_MAX) {
            return Err(refused(format!("partition {} has {} placements already", row.id, row.placements.len())));
        }
        self.effect.placement_last = placement.id;
        row.placements.push(placement);
        Ok(())
    }

    pub(super) fn promote(
        &mut self,
        row: &mut Partition,
        id: PlacementId,
        incarnation: Incarnation,
    ) -> Result<(), ErrorDetail> {
        let placement = in_state(row, id, ReplicaState::Load)?;
        if !self.state.breaks(Mutant::ExpandUnchecked) {
            self.acting(placement, incarnation)?; // rule 5
        }
        if row.leader.is_none() {
            return Err(refused(format!("partition {} has no leader that could ask for an addition", row.id)));
        }
        if out_of_sync::is_lost(self.state, id) {
            return Err(refused(format!("placement {id} of partition {} was lost; it is replaced", row.id)));
        }
        let of_migration = self.state.migrations.running(row.id).and_then(|running| running.stage.target()) == Some(id);
        if !of_migration && !self.state.departed.contains_key(&id) {
            let (partition, placement, node) = (row.id, id, placement.node);
            self.effect.events.push(EventKind::RepairDone { partition, placement, node });
        }
        set_state(row, id, ReplicaState::Live);
        self.requires(row);
        Ok(())
    }

    /// Recomputes `min_in_sync` after a copy became Live: the table may have been altered before.
    fn requires(&self, row: &mut Partition) {
        if let Some(table) = self.state.tables.get(&row.id.table) {
            row.min_in_sync = min_in_sync(row, table.replication);
        }
    }

    pub(super) fn demote(
        &mut self,
        row: &mut Partition,
        id: PlacementId,
        incarnation: Incarnation,
    ) -> Result<(), ErrorDetail> {
        let placement = in_state(row, id, ReplicaState::Live)?;
        let same_life = self.state.incarnation(placement.node) == Some(incarnation);
        if !same_life && !self.state.breaks(Mutant::DropUnchecked) {
            return Err(self.other_life(placement, incarnation)); // rule 5
        }
        not_leader(row, id)?;
        if self.state.is_lease(row.id.table) {
            return Err(refused(format!("partition {} is a lease: nothing of it is out of sync", row.id)));
        }
        let left = row.live().count() - 1;
        if left < usize::from(row.min_in_sync) && !self.state.breaks(Mutant::DropBelowMin) {
            return Err(ErrorDetail::new(
                ErrorKind::NotEnoughReplicas,
                format!("dropping placement {id} of partition {} would leave too few Live replicas", row.id),
            )
            .with_have_need(left as u64, u64::from(row.min_in_sync)));
        }
        set_state(row, id, ReplicaState::Load);
        Ok(())
    }

    pub(super) fn unload(&mut self, row: &mut Partition, id: PlacementId) -> Result<(), ErrorDetail> {
        if !self.state.breaks(Mutant::UndoAfterHandOver) {
            not_leader(row, id)?; // rule 7
        }
        if self.state.is_lease(row.id.table) {
            return Err(refused(format!("partition {} is a lease: nothing of it is to be deleted", row.id)));
        }
        let own = *placement(row, id)?;
        let guard = match own.state {
            // A copy that was never in sync holds nothing that others lack.
            ReplicaState::Load if !self.state.departed.contains_key(&id) => Ok(()),
            ReplicaState::Load => out_of_sync::may_go(self.state, row, id),
            ReplicaState::Live => {
                let left = row.live().filter(|other| other.id != id && self.state.is_alive(other.node)).count();
                let wanted = usize::from(row.min_in_sync).max(1);
                let enough = left >= wanted || self.state.breaks(Mutant::CleanupBelowMin);
                if enough { Ok(()) } else { Err((left, wanted)) }
            }
            ReplicaState::Unload
                if out_of_sync::delete_not_issued(self.state, &own) && self.state.is_alive(own.node) =>
            {
                match row.status {
                    PartitionStatus::Unassigned => Ok(()),
                    _ => out_of_sync::may_go(self.state, row, id),
                }
            }
            ReplicaState::Unload => {
                return Err(refused(format!("placement {id} of partition {} is unloading already", row.id)));
            }
        };
        guard.map_err(|(left, wanted)| {
            ErrorDetail::new(
                ErrorKind::NotEnoughReplicas,
                format!(
                    "without placement {id} partition {} has too few Live replicas on nodes that are alive",
                    row.id
                ),
            )
            .with_have_need(left as u64, wanted as u64)
        })?;
        self.dismiss(row, id);
        Ok(())
    }

    /// Marks the copy for deletion. A node that is not alive cannot receive the order: whether its copy may go is
    /// judged again when it is back.
    pub(super) fn dismiss(&mut self, row: &mut Partition, id: PlacementId) {
        if row.placement(id).is_some_and(|copy| self.state.is_alive(copy.node)) {
            self.effect.delete_issued.insert(id);
        }
        set_state(row, id, ReplicaState::Unload);
    }

    pub(super) fn forget(&mut self, row: &mut Partition, id: PlacementId) -> Result<(), ErrorDetail> {
        let placement = placement(row, id)?;
        if self.state.is_lease(row.id.table) {
            not_leader(row, id)?;
            row.placements.retain(|other| other.id != id);
            return Ok(());
        }
        let lost = self.state.node(placement.node).is_none_or(|row| row.node.status == NodeStatus::Lost);
        let deleted = placement.state == ReplicaState::Unload;
        let gone = placement.state == ReplicaState::Load && lost && out_of_sync::may_go(self.state, row, id).is_ok();
        if !deleted && !gone {
            return Err(refused(format!(
                "placement {id} of partition {} is {}; only a deleted one is forgotten",
                row.id, placement.state
            )));
        }
        row.placements.retain(|other| other.id != id);
        Ok(())
    }

    /// Checks that the placement's node acts in this incarnation.
    pub(super) fn acting(&self, placement: &Placement, incarnation: Incarnation) -> Result<(), ErrorDetail> {
        if self.state.incarnation(placement.node) != Some(incarnation) {
            return Err(self.other_life(placement, incarnation));
        }
        if !self.state.is_active(placement.node) {
            return Err(refused(format!("{} is not active", self.state.node_name(placement.node))));
        }
        Ok(())
    }

    fn other_life(&self, placement: &Placement, incarnation: Incarnation) -> ErrorDetail {
        let name = self.state.node_name(placement.node);
        // Not `StaleIncarnation`: the reporting node would take that for a fence of its own incarnation.
        refused(format!("{name} is no longer in incarnation {incarnation}"))
    }
}

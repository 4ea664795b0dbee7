//! What becomes of copies: made, counted, not counted any more, deleted, forgotten.

use super::{Staged, in_state, not_leader, placement, set_state};
use crate::apply::{invalid, next_epoch, not_found, refused};
use crate::events::EventKind;
use crate::left::Condition;
use crate::mutant::Mutant;
use archon_types::limits::REPLICAS_MAX;
use archon_types::{
    ErrorDetail, ErrorKind, Incarnation, NodeId, NodeStatus, Partition, PartitionStatus, Placement, PlacementId,
    ReplicaState,
};

impl Staged<'_> {
    /// A copy does not count any more. It is deleted only if another copy counts: the last one is kept, as Load, for
    /// an operator to look at, who is told of its condition.
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

    /// A copy that does not count holds no more than this. Returns its node.
    pub(crate) fn spoil(
        &mut self,
        row: &Partition,
        id: PlacementId,
        condition: Condition,
    ) -> Result<NodeId, ErrorDetail> {
        let node = placement(row, id)?.node;
        self.effect.spoiled.insert(id, condition);
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
        let others = row.live().any(|placement| placement.id != id);
        let partition = row.id;
        let Some(placement) = row.placements.iter_mut().find(|placement| placement.id == id) else {
            return Err(not_found(format!("partition {partition} has no placement {id}")));
        };
        placement.state = if others { ReplicaState::Unload } else { ReplicaState::Load };
        let node = placement.node;
        self.effect.spoiled.insert(id, condition);
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
        self.effect.untouched.insert(row.id, true);
        Ok(())
    }

    pub(super) fn add(&mut self, row: &mut Partition, placement: Placement) -> Result<(), ErrorDetail> {
        if row.status == PartitionStatus::Unassigned {
            return Err(refused(format!("partition {} is not assigned yet", row.id)));
        }
        if placement.state != ReplicaState::Load {
            return Err(invalid(format!("placement {} must be added as Load", placement.id)));
        }
        self.place(row, placement)
    }

    /// Puts a new placement into the row: fresh number, active node, none of the row's on it yet.
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
        let of_migration = self.state.migrations.running(row.id).and_then(|running| running.stage.target()) == Some(id);
        if !of_migration && !self.state.left.contains_key(&id) {
            let (partition, placement, node) = (row.id, id, placement.node);
            self.effect.events.push(EventKind::RepairDone { partition, placement, node });
        }
        set_state(row, id, ReplicaState::Live);
        Ok(())
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
        if !self.state.breaks(Mutant::UndoAfterHandOff) {
            not_leader(row, id)?; // rule 7
        }
        match placement(row, id)?.state {
            ReplicaState::Load => {}
            ReplicaState::Live => {
                let left = row.live().filter(|other| other.id != id && self.state.is_live(other.node)).count();
                if left < usize::from(row.min_in_sync) && !self.state.breaks(Mutant::CleanupBelowMin) {
                    return Err(ErrorDetail::new(
                        ErrorKind::NotEnoughReplicas,
                        format!("without placement {id} partition {} has too few Live replicas on live nodes", row.id),
                    )
                    .with_have_need(left as u64, u64::from(row.min_in_sync)));
                }
            }
            ReplicaState::Unload => {
                return Err(refused(format!("placement {id} of partition {} is unloading already", row.id)));
            }
        }
        set_state(row, id, ReplicaState::Unload);
        Ok(())
    }

    pub(super) fn forget(&mut self, row: &mut Partition, id: PlacementId) -> Result<(), ErrorDetail> {
        let placement = placement(row, id)?;
        let lost = self.state.node(placement.node).is_none_or(|row| row.node.status == NodeStatus::Lost);
        let deleted = placement.state == ReplicaState::Unload;
        let gone = placement.state == ReplicaState::Load && lost && row.live().next().is_some();
        if !deleted && !gone {
            return Err(refused(format!(
                "placement {id} of partition {} is {}; only a deleted one is forgotten",
                row.id, placement.state
            )));
        }
        row.placements.retain(|other| other.id != id);
        Ok(())
    }

    /// The placement's node acts in this life.
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
        ErrorDetail::new(ErrorKind::StaleIncarnation, format!("{name} is not in incarnation {incarnation} any more"))
    }
}

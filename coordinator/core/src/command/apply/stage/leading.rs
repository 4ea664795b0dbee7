//! Edits of leaderships: granting, ending and forcing them, and remembering former leaders that may not know of the
//! end.

use super::effect::FormerLeaderChange;
use super::{StagedRows, in_state, placement, set_state};
use crate::command::edit::LeadershipEnd;
use crate::command::refusals::{next_epoch, refused};
use crate::mutant::Mutant;
use crate::placement::out_of_sync::delete_not_issued;
use crate::state::events::EventKind;
use crate::state::former_leaders::FormerLeader;
use archon_types::{
    Epoch, ErrorDetail, ErrorKind, Incarnation, NodeStatus, Partition, PartitionId, PartitionStatus, Placement,
    PlacementId, ReplicaState,
};

impl StagedRows<'_> {
    /// Remembers a holder that may not know that its leadership ended.
    pub(crate) fn remember(&mut self, former: FormerLeader) {
        if !self.state.breaks(Mutant::FormerForgotten) {
            self.effect.former_leaders.push(FormerLeaderChange::Set(former)); // rule 16
        }
    }

    /// Forgets a former holder.
    pub(crate) fn forget_former(&mut self, partition: PartitionId, epoch: Epoch) {
        self.effect.former_leaders.push(FormerLeaderChange::Remove(partition, epoch));
    }

    /// Makes this copy Live and the leader by an operator's order; all other copies retire (PROTOCOL rule 23). Returns
    /// how many do.
    pub(crate) fn force(
        &mut self,
        row: &mut Partition,
        id: PlacementId,
        incarnation: Incarnation,
    ) -> Result<u32, ErrorDetail> {
        let chosen = placement(row, id)?;
        if chosen.state == ReplicaState::Unload && !delete_not_issued(self.state, chosen) {
            return Err(refused(format!("placement {id} of partition {} is being deleted", row.id)));
        }
        let retired = self.retire_all_but(row, Some(id));
        set_state(row, id, ReplicaState::Live);
        self.lead(row, id, incarnation, LeadershipEnd::Lapsed)?;
        Ok(retired)
    }

    /// Marks all copies but one for deletion; those on lost nodes are gone with them. Returns how many had data.
    pub(crate) fn retire_all_but(&mut self, row: &mut Partition, kept: Option<PlacementId>) -> u32 {
        let known = |node| self.state.node(node).is_some_and(|row| row.node.status != NodeStatus::Lost);
        let mut retired = 0;
        row.placements.retain(|placement| Some(placement.id) == kept || known(placement.node));
        let others: Vec<Placement> = row.placements.iter().filter(|copy| Some(copy.id) != kept).copied().collect();
        for placement in others.into_iter().filter(|placement| placement.state != ReplicaState::Unload) {
            retired += 1;
            if !self.state.breaks(Mutant::LossKeepsOthers) {
                self.dismiss(row, placement.id); // rule 23
            }
        }
        retired
    }

    pub(super) fn lead(
        &mut self,
        row: &mut Partition,
        id: PlacementId,
        incarnation: Incarnation,
        ending: LeadershipEnd,
    ) -> Result<(), ErrorDetail> {
        let anyone = self.state.breaks(Mutant::ElectAnyone); // rule 9
        let placement = if anyone { placement(row, id)? } else { in_state(row, id, ReplicaState::Live)? };
        self.acting(placement, incarnation)?;
        if self.state.is_offline(row.id) {
            let name = self.state.partition_name(row.id);
            return Err(refused(format!("partition {name} was taken offline; bring it online first")));
        }
        if row.leader.is_some() {
            self.remember_leader(row, ending);
        }
        // The proposer checked that all of these have ended. Incarnations that go on must still be notified.
        for former in self.state.former_leaders.of_partition(row.id).filter(|former| !former.lapsed) {
            if self.state.is_alive(former.node) && self.state.incarnation(former.node) == Some(former.incarnation) {
                self.effect.former_leaders.push(FormerLeaderChange::Set(FormerLeader { lapsed: true, ..*former }));
            } else {
                self.effect.former_leaders.push(FormerLeaderChange::Remove(former.partition, former.epoch));
            }
        }
        row.epoch = next_epoch(row.epoch)?;
        row.leader = Some(id);
        row.status = PartitionStatus::Assigned;
        Ok(())
    }

    pub(super) fn end_leadership(&mut self, row: &mut Partition, ending: LeadershipEnd) -> Result<(), ErrorDetail> {
        if row.leader.is_none() {
            return Err(refused(format!("partition {} has no leader", row.id)));
        }
        self.remember_leader(row, ending);
        row.leader = None;
        row.epoch = next_epoch(row.epoch)?;
        Ok(())
    }

    /// Raises the row to an epoch that a copy knows and no row granted, if elections can have reached it.
    pub(super) fn surpass(&mut self, row: &mut Partition, epoch: Epoch) -> Result<(), ErrorDetail> {
        let believed = row.may_reach(epoch) || self.state.breaks(Mutant::AnyEpochGranted);
        if epoch < row.epoch || !believed {
            let message = format!("partition {} is in epoch {}; epoch {epoch} is not to be passed", row.id, row.epoch);
            return Err(refused(message));
        }
        let (partition, granted) = (row.id, row.epoch);
        self.effect.events.push(EventKind::EpochSurpassed { partition, granted, known: epoch });
        self.effect.surpassed.insert(partition, Some(epoch));
        if !self.state.breaks(Mutant::GrantBelowKnown) {
            row.epoch = epoch; // rule 25
        }
        Ok(())
    }

    fn remember_leader(&mut self, row: &Partition, ending: LeadershipEnd) {
        if ending == LeadershipEnd::Lapsed
            && let Some(former) = FormerLeader::holding(self.state, row)
        {
            self.remember(FormerLeader { lapsed: true, ..former });
        }
    }

    pub(super) fn online(&mut self, row: &mut Partition, epoch: Epoch) -> Result<(), ErrorDetail> {
        if row.epoch != epoch || row.leader.is_none() {
            let message = format!("partition {} is in epoch {}, the report in {epoch}", row.id, row.epoch);
            return Err(ErrorDetail::new(ErrorKind::StaleEpoch, message));
        }
        row.status = PartitionStatus::Online;
        self.effect.untouched.insert(row.id, false);
        self.effect.surpassed.insert(row.id, None);
        Ok(())
    }
}

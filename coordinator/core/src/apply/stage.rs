//! Edits of partition rows, worked out beside the state and committed only when all of them hold.

use super::{Entry, invalid, next_epoch, not_found, refused};
use crate::command::{Edit, Ending, PartitionChange};
use crate::events::EventKind;
use crate::formers::Former;
use crate::mutant::Mutant;
use crate::state::ClusterState;
use archon_types::limits::REPLICAS_MAX;
use archon_types::{
    Epoch, ErrorDetail, ErrorKind, Incarnation, NodeGoal, NodeId, NodeStatus, Partition, PartitionId, PartitionStatus,
    Placement, PlacementId, ReplicaState,
};
use std::collections::{BTreeMap, BTreeSet};

/// Rows as they will be, with what else changes along with them.
pub(crate) struct Staged<'a> {
    state: &'a ClusterState,
    entry: Entry<'a>,
    effect: Effect,
}

/// What [`Staged`] came to: owns no borrow, so it can be committed to the state it was worked out from.
pub(crate) struct Effect {
    rows: BTreeMap<PartitionId, Partition>,
    formers: Vec<FormerChange>,
    placement_last: PlacementId,
    events: Vec<EventKind>,
    /// Partitions that were assigned just now, and those that were just reported Online.
    untouched: BTreeMap<PartitionId, bool>,
}

enum FormerChange {
    Set(Former),
    Remove(PartitionId, Epoch),
}

impl<'a> Staged<'a> {
    pub(crate) fn new(state: &'a ClusterState, entry: Entry<'a>) -> Self {
        let effect = Effect {
            rows: BTreeMap::new(),
            formers: Vec::new(),
            placement_last: state.placement_last,
            events: Vec::new(),
            untouched: BTreeMap::new(),
        };
        Self { state, entry, effect }
    }

    pub(crate) fn into_effect(self) -> Effect {
        self.effect
    }

    /// The row as staged so far.
    pub(crate) fn row(&self, id: PartitionId) -> Result<Partition, ErrorDetail> {
        let row = self.effect.rows.get(&id).or_else(|| self.state.partitions.get(id));
        row.cloned().ok_or_else(|| not_found(format!("there is no partition {id}")))
    }

    /// Stages a row under this entry's version.
    pub(crate) fn put(&mut self, mut row: Partition) {
        row.version = self.entry.version();
        if row.leader.is_none() && row.status != PartitionStatus::Unassigned {
            row.status = PartitionStatus::Unavailable;
        }
        row.placements.sort_by_key(|placement| placement.id);
        self.effect.rows.insert(row.id, row);
    }

    /// Remembers a holder that may not know that its leadership ended.
    pub(crate) fn remember(&mut self, former: Former) {
        if !self.state.breaks(Mutant::FormerForgotten) {
            self.effect.formers.push(FormerChange::Set(former)); // rule 16
        }
    }

    /// Forgets a former holder.
    pub(crate) fn forget_former(&mut self, partition: PartitionId, epoch: Epoch) {
        self.effect.formers.push(FormerChange::Remove(partition, epoch));
    }

    /// An operator's word: this copy counts and leads from now on, all others retire (PROTOCOL rule 23). Returns how
    /// many do.
    pub(crate) fn force(
        &mut self,
        row: &mut Partition,
        id: PlacementId,
        incarnation: Incarnation,
    ) -> Result<u32, ErrorDetail> {
        if placement(row, id)?.state == ReplicaState::Unload {
            return Err(refused(format!("placement {id} of partition {} is being deleted", row.id)));
        }
        let retired = self.retire_all_but(row, Some(id));
        set_state(row, id, ReplicaState::Live);
        self.lead(row, id, incarnation, Ending::Lapsed)?;
        Ok(retired)
    }

    /// All copies but one are to be deleted; those on lost nodes are gone with them. Returns how many had data.
    pub(crate) fn retire_all_but(&mut self, row: &mut Partition, kept: Option<PlacementId>) -> u32 {
        let known = |node| self.state.node(node).is_some_and(|row| row.node.status != NodeStatus::Lost);
        let mut retired = 0;
        row.placements.retain(|placement| Some(placement.id) == kept || known(placement.node));
        for placement in row.placements.iter_mut().filter(|placement| Some(placement.id) != kept) {
            retired += u32::from(placement.state != ReplicaState::Unload);
            if !self.state.breaks(Mutant::LossKeepsOthers) {
                placement.state = ReplicaState::Unload; // rule 23
            }
        }
        retired
    }

    /// A copy does not count any more. It is deleted only if another copy counts: the last one is kept, as Load, for
    /// an operator to look at.
    pub(crate) fn lose(&mut self, row: &mut Partition, id: PlacementId, why: &str) -> Result<(), ErrorDetail> {
        let node = self.no_longer_counts(row, id)?;
        let (partition, placement, why) = (row.id, id, why.to_owned());
        self.effect.events.push(EventKind::ReplicaLost { partition, placement, node, why });
        Ok(())
    }

    fn no_longer_counts(&mut self, row: &mut Partition, id: PlacementId) -> Result<NodeId, ErrorDetail> {
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
        Ok(placement.node)
    }

    /// Stages all edits of one row, or fails at the first that does not hold.
    pub(crate) fn change(&mut self, change: &PartitionChange) -> Result<(), ErrorDetail> {
        let mut row = self.row(change.partition)?;
        let elects = change.edits.iter().any(|edit| matches!(edit, Edit::Lead { .. }));
        let stale = elects && self.state.breaks(Mutant::ElectStale); // rule 16
        if row.version != change.if_version && !stale {
            let message = format!(
                "partition {} is at version {}, the change was made for {}",
                row.id, row.version, change.if_version
            );
            return Err(ErrorDetail::new(ErrorKind::StaleVersion, message)
                .with_have_need(row.version.get(), change.if_version.get()));
        }
        if change.edits.is_empty() {
            return Err(invalid(format!("the change of partition {} holds no edit", row.id)));
        }
        for edit in &change.edits {
            self.edit(&mut row, edit)?;
        }
        self.put(row);
        Ok(())
    }

    fn edit(&mut self, row: &mut Partition, edit: &Edit) -> Result<(), ErrorDetail> {
        match edit {
            Edit::Assign(placements) => self.assign(row, placements),
            Edit::Vacate(ending) => self.end_leadership(row, *ending),
            Edit::Lead { placement, incarnation, ending } => self.lead(row, *placement, *incarnation, *ending),
            Edit::Add(placement) => self.add(row, *placement),
            Edit::Repair(placement, why) => {
                self.add(row, *placement)?;
                let (partition, placement, node, why) = (row.id, placement.id, placement.node, why.clone());
                self.effect.events.push(EventKind::RepairStarted { partition, placement, node, why });
                Ok(())
            }
            Edit::Promote(id, incarnation) => self.promote(row, *id, *incarnation),
            Edit::Demote(id, incarnation) => self.demote(row, *id, *incarnation),
            Edit::Lose(id, why) => {
                in_state(row, *id, ReplicaState::Live)?;
                let node = self.no_longer_counts(row, *id)?;
                let (partition, placement, why) = (row.id, *id, why.clone());
                self.effect.events.push(EventKind::CopyDamaged { partition, placement, node, why });
                Ok(())
            }
            Edit::Unload(id) => self.unload(row, *id),
            Edit::Retire(id, why) => {
                self.unload(row, *id)?;
                let (partition, placement, node, why) = (row.id, *id, placement(row, *id)?.node, why.clone());
                self.effect.events.push(EventKind::CopyRetired { partition, placement, node, why });
                Ok(())
            }
            Edit::Forget(id) => self.forget(row, *id),
            Edit::Online(epoch) => {
                online(row, *epoch)?;
                self.effect.untouched.insert(row.id, false);
                Ok(())
            }
            Edit::Settle(epoch) => {
                if self.state.formers.get(row.id, *epoch).is_none() {
                    return Err(not_found(format!("nobody is remembered for epoch {epoch} of partition {}", row.id)));
                }
                self.forget_former(row.id, *epoch);
                Ok(())
            }
            Edit::Dispute { placement: id, leader, epoch, commit, agreed } => {
                let node = placement(row, *id)?.node;
                let leader_node = row.placement(*leader).map(|leader| leader.node);
                let (partition, placement, leader, epoch) = (row.id, *id, *leader, *epoch);
                let (commit, agreed) = (*commit, *agreed);
                self.effect.events.push(EventKind::DataDisputed {
                    partition,
                    placement,
                    node,
                    epoch,
                    leader,
                    leader_node,
                    commit,
                    agreed,
                });
                Ok(())
            }
            Edit::Refuse => Ok(()),
        }
    }

    fn assign(&mut self, row: &mut Partition, placements: &[Placement]) -> Result<(), ErrorDetail> {
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

    fn add(&mut self, row: &mut Partition, placement: Placement) -> Result<(), ErrorDetail> {
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

    fn lead(
        &mut self,
        row: &mut Partition,
        id: PlacementId,
        incarnation: Incarnation,
        ending: Ending,
    ) -> Result<(), ErrorDetail> {
        let anyone = self.state.breaks(Mutant::ElectAnyone); // rule 9
        let placement = if anyone { placement(row, id)? } else { in_state(row, id, ReplicaState::Live)? };
        self.acting(placement, incarnation)?;
        if row.leader.is_some() {
            self.remember_leader(row, ending);
        }
        // The proposer has seen that all of these are over. Lives that go on must keep hearing of it.
        for former in self.state.formers.of_partition(row.id).filter(|former| !former.lapsed) {
            if self.state.is_live(former.node) && self.state.incarnation(former.node) == Some(former.incarnation) {
                self.effect.formers.push(FormerChange::Set(Former { lapsed: true, ..*former }));
            } else {
                self.effect.formers.push(FormerChange::Remove(former.partition, former.epoch));
            }
        }
        row.epoch = next_epoch(row.epoch)?;
        row.leader = Some(id);
        row.status = PartitionStatus::Assigned;
        Ok(())
    }

    fn end_leadership(&mut self, row: &mut Partition, ending: Ending) -> Result<(), ErrorDetail> {
        if row.leader.is_none() {
            return Err(refused(format!("partition {} has no leader", row.id)));
        }
        self.remember_leader(row, ending);
        row.leader = None;
        row.epoch = next_epoch(row.epoch)?;
        Ok(())
    }

    fn remember_leader(&mut self, row: &Partition, ending: Ending) {
        if ending == Ending::Lapsed
            && let Some(leader) = row.leader_placement()
            && let Some(incarnation) = self.state.incarnation(leader.node)
        {
            self.remember(Former {
                partition: row.id,
                epoch: row.epoch,
                placement: leader.id,
                node: leader.node,
                incarnation,
                lapsed: true,
            });
        }
    }

    fn promote(&mut self, row: &mut Partition, id: PlacementId, incarnation: Incarnation) -> Result<(), ErrorDetail> {
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

    fn demote(&mut self, row: &mut Partition, id: PlacementId, incarnation: Incarnation) -> Result<(), ErrorDetail> {
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

    fn unload(&mut self, row: &mut Partition, id: PlacementId) -> Result<(), ErrorDetail> {
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

    fn forget(&mut self, row: &mut Partition, id: PlacementId) -> Result<(), ErrorDetail> {
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
    fn acting(&self, placement: &Placement, incarnation: Incarnation) -> Result<(), ErrorDetail> {
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

impl Effect {
    pub(crate) fn commit(self, state: &mut ClusterState, entry: Entry<'_>) {
        let mut vacated = BTreeSet::new();
        for row in self.rows.into_values() {
            debug_assert!(row.leader.is_none_or(|leader| row.live().any(|live| live.id == leader)), "{row:?}");
            let before = state.partitions.get(row.id).map(|row| row.placements.clone()).unwrap_or_default();
            for placement in before {
                match row.placement(placement.id).map(|now| now.state) {
                    Some(ReplicaState::Load) if placement.state == ReplicaState::Live => {
                        state.left.insert(placement.id, row.version);
                    }
                    Some(ReplicaState::Load) => {}
                    Some(ReplicaState::Live | ReplicaState::Unload) => {
                        state.left.remove(&placement.id);
                    }
                    None => {
                        state.left.remove(&placement.id);
                        vacated.insert(placement.node);
                    }
                }
            }
            state.partitions.insert(row);
        }
        for change in self.formers {
            match change {
                FormerChange::Set(former) => state.formers.insert(former),
                FormerChange::Remove(partition, epoch) => {
                    state.formers.remove(partition, epoch);
                }
            }
        }
        state.placement_last = self.placement_last;
        for (partition, untouched) in self.untouched {
            if untouched {
                state.untouched.insert(partition);
            } else {
                state.untouched.remove(&partition);
            }
        }
        for what in self.events {
            entry.note(state, what);
        }
        for node in vacated {
            let drained = state.node(node).is_some_and(|row| row.node.goal == NodeGoal::Drain);
            if drained && state.partitions.count_on(node) == 0 {
                entry.note(state, EventKind::NodeDrained { node });
            }
        }
    }
}

fn placement(row: &Partition, id: PlacementId) -> Result<&Placement, ErrorDetail> {
    row.placement(id).ok_or_else(|| not_found(format!("partition {} has no placement {id}", row.id)))
}

fn in_state(row: &Partition, id: PlacementId, state: ReplicaState) -> Result<&Placement, ErrorDetail> {
    let found = placement(row, id)?;
    if found.state != state {
        return Err(refused(format!("placement {id} of partition {} is {}, not {state}", row.id, found.state)));
    }
    Ok(found)
}

fn not_leader(row: &Partition, id: PlacementId) -> Result<(), ErrorDetail> {
    if row.leader == Some(id) {
        return Err(refused(format!("placement {id} leads partition {}", row.id)));
    }
    Ok(())
}

fn set_state(row: &mut Partition, id: PlacementId, state: ReplicaState) {
    for placement in &mut row.placements {
        if placement.id == id {
            placement.state = state;
        }
    }
}

fn online(row: &mut Partition, epoch: Epoch) -> Result<(), ErrorDetail> {
    if row.epoch != epoch || row.leader.is_none() {
        let message = format!("partition {} is in epoch {}, the report in {epoch}", row.id, row.epoch);
        return Err(ErrorDetail::new(ErrorKind::StaleEpoch, message));
    }
    row.status = PartitionStatus::Online;
    Ok(())
}

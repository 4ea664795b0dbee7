//! Edits of splits: beginning, forming, completing and abandoning them. One row holds all of a split, so that one guard
//! orders conflicting changes (PROTOCOL rule 34).

use super::{StagedRows, placement};
use crate::command::apply::may_hold;
use crate::command::edit::LeadershipEnd;
use crate::command::refusals::{invalid, refused};
use crate::mutant::Mutant;
use crate::state::events::EventKind;
use crate::state::{CONDEMNED_MAX, PARTITIONS_MAX};
use archon_types::{
    Epoch, ErrorDetail, ErrorKind, ExceededLimit, Incarnation, Keys, NodeId, Partition, PartitionId, Placement,
    PlacementId, Position, ReplicaState, RightCopy, RightStage, Split, Version, check_split_at,
};
use bytes::Bytes;

impl StagedRows<'_> {
    /// Records in the row that its keys from `at` on move to a new partition, of which a copy is formed beside each
    /// copy of this one. The copies get the next numbers: the proposer does not know them.
    pub(super) fn begin_split(
        &mut self,
        row: &mut Partition,
        at: &Bytes,
        right: u32,
        outgrown: Option<ExceededLimit>,
    ) -> Result<(), ErrorDetail> {
        let name = self.state.partition_name(row.id);
        if let Some(split) = &row.split {
            return Err(refused(format!("partition {name} is being split already, into {}", split.right_of(row.id))));
        }
        if row.merge.is_some() {
            return Err(refused(format!("partition {name} is being merged")));
        }
        let Some(table) = self.state.tables.get(&row.id.table).filter(|table| table.keys.is_range()) else {
            return Err(invalid(format!("the keys of partition {name} are hashed: only ranges of keys can be split")));
        };
        check_split_at(&row.range, at)?;
        if table.keys.numbers_end() != right {
            let message = format!("partition number {right} of table {} is not the next one", table.name);
            return Err(ErrorDetail::new(ErrorKind::StaleVersion, message));
        }
        if self.state.is_offline(row.id) {
            return Err(refused(format!("partition {name} is offline, as an operator ordered")));
        }
        // A copy that is to be deleted may wait for its node forever.
        let waits = |copy: &&Placement| copy.state == ReplicaState::Load || !self.state.is_active(copy.node);
        if let Some(copy) = row.placements.iter().filter(|copy| copy.state != ReplicaState::Unload).find(waits) {
            let node = self.state.node_name(copy.node);
            return Err(refused(format!(
                "the replica of partition {name} on {node} does not count, or its node is down"
            )));
        }
        if self.state.partitions.len() >= PARTITIONS_MAX || self.state.condemned.len() >= CONDEMNED_MAX {
            return Err(refused(format!("there are too many partitions, or replicas to delete, to split {name}")));
        }
        self.state.check_split_keys(at.len())?;
        let next = right.checked_add(1).ok_or_else(|| refused(format!("table {} has no more numbers", table.name)))?;
        let version = self.entry.version();
        let mut table = table.clone();
        if !self.state.breaks(Mutant::NumberReused) {
            (table.keys, table.version) = (Keys::Range { next, limits: table.keys.limits() }, version); // rule 34
        }
        let mut copies = Vec::with_capacity(row.placements.len());
        for left in row.live() {
            let id = PlacementId::new(self.effect.placement_last.get() + 1);
            self.effect.placement_last = id;
            copies.push(RightCopy { id, node: left.node, stage: RightStage::Copying });
        }
        let split = Split { attempt: version, at: at.clone(), right, copies, cut: false, position: None };
        let (partition, right) = (row.id, split.right_of(row.id));
        self.effect.events.push(EventKind::SplitBegun { partition, right, at: at.clone(), outgrown });
        self.effect.tables.insert(table.id, table);
        row.split = Some(Box::new(split));
        Ok(())
    }

    /// Records that a copy of right is whole as of this position of left's log, which is the same for all of them.
    pub(super) fn formed(
        &mut self,
        row: &mut Partition,
        attempt: Version,
        id: PlacementId,
        incarnation: Incarnation,
        position: Position,
    ) -> Result<(), ErrorDetail> {
        self.check_forms(row, attempt, id, incarnation)?;
        let Some(split) = row.split.as_deref_mut() else { return Err(no_split(row)) };
        if split.position.is_some_and(|formed| formed != position) {
            let message = format!("replica {id} was formed as of another position than the others, {position:?}");
            return Err(refused(message));
        }
        split.position = Some(position);
        advance(split, id, RightStage::Formed);
        Ok(())
    }

    /// Records that a copy of right has every key and receives all new writes.
    pub(super) fn mirroring(
        &mut self,
        row: &mut Partition,
        attempt: Version,
        id: PlacementId,
        incarnation: Incarnation,
    ) -> Result<(), ErrorDetail> {
        self.check_forms(row, attempt, id, incarnation)?;
        let Some(split) = row.split.as_deref_mut() else { return Err(no_split(row)) };
        advance(split, id, RightStage::Mirroring);
        Ok(())
    }

    /// Orders left's leader to give the keys up.
    pub(super) fn cut(&mut self, row: &mut Partition) -> Result<(), ErrorDetail> {
        let Some(split) = row.split.as_deref_mut() else { return Err(no_split(row)) };
        split.cut = true;
        self.effect.events.push(EventKind::SplitCut { partition: row.id, right: split.right_of(row.id) });
        Ok(())
    }

    /// Checks that a report about a copy of right concerns this attempt and comes from the present incarnation of its
    /// node.
    fn check_forms(
        &self,
        row: &Partition,
        attempt: Version,
        id: PlacementId,
        incarnation: Incarnation,
    ) -> Result<(), ErrorDetail> {
        let at = self.copy_to_form(row, attempt, id)?;
        let acts = self.state.is_active(at) && self.state.incarnation(at) == Some(incarnation);
        if acts || self.state.breaks(Mutant::FormedLost) {
            return Ok(()); // rule 39
        }
        let node = self.state.node_name(at);
        Err(refused(format!("{node} is no longer in incarnation {incarnation}")))
    }

    fn copy_to_form(&self, row: &Partition, attempt: Version, id: PlacementId) -> Result<NodeId, ErrorDetail> {
        let named = |split: &&Split| split.attempt == attempt || self.state.breaks(Mutant::FormedStale); // rule 39
        let split = row.split.as_deref().filter(named).ok_or_else(|| no_split(row))?;
        let copy = split.copies.iter().find(|copy| copy.id == id);
        copy.map(|copy| copy.node).ok_or_else(|| refused(format!("the split of {} has no replica {id}", row.id)))
    }

    /// Completes the split: left ends where right begins, and right becomes a partition, led by one of the formed
    /// copies.
    pub(super) fn part(
        &mut self,
        row: &mut Partition,
        leader: PlacementId,
        incarnation: Incarnation,
    ) -> Result<(), ErrorDetail> {
        let mut split = row.split.take().ok_or_else(|| no_split(row))?;
        let least = usize::from(row.min_in_sync).max(1);
        let formed = split.copies.iter().filter(|copy| copy.is_formed() && self.state.is_active(copy.node)).count();
        if formed < least && !self.state.breaks(Mutant::PartBelowMin) {
            let message =
                format!("of the partition split off {} too few replicas are formed on nodes that are there", row.id);
            return Err(
                ErrorDetail::new(ErrorKind::NotEnoughReplicas, message).with_have_need(formed as u64, least as u64)
            );
        }
        if self.state.breaks(Mutant::RightShort) {
            split.copies.iter_mut().for_each(|copy| copy.stage = RightStage::Formed); // rule 40
        }
        let mut right = split.right_row(row);
        if self.state.breaks(Mutant::RightEpochRestarts) {
            right.epoch = Epoch::ZERO; // rule 40
        }
        self.lead(&mut right, leader, incarnation, LeadershipEnd::Released)?;
        // The other copies are as of no known position: repair replaces them.
        for copy in split.copies.iter().filter(|copy| !copy.is_formed()) {
            self.condemn(copy.node, copy.id, right.id);
        }
        if !self.state.breaks(Mutant::GapAllowed) {
            row.range.end = Some(split.at.clone()); // rule 34
        }
        self.effect.parted.push((row.id, right.id));
        let node = placement(&right, leader)?.node;
        self.effect.events.push(EventKind::Parted { partition: row.id, right: right.id, at: split.at, leader: node });
        self.put(right);
        Ok(())
    }

    /// Abandons the split: left keeps its keys, and the copies of right are deleted.
    pub(crate) fn abandon_split(&mut self, row: &mut Partition, why: &str) -> Result<(), ErrorDetail> {
        let split = row.split.take().ok_or_else(|| no_split(row))?;
        let right = split.right_of(row.id);
        for copy in &split.copies {
            self.condemn(copy.node, copy.id, right);
        }
        self.effect.events.push(EventKind::SplitAbandoned { partition: row.id, right, why: why.to_owned() });
        Ok(())
    }

    /// Condemns copies of right whose copy of left is gone: each stands beside one.
    pub(super) fn keep_split_beside(&mut self, row: &mut Partition) {
        let Some(mut split) = row.split.take() else { return };
        let right = split.right_of(row.id);
        let (kept, gone) = split.copies.iter().partition(|copy| row.placement_on(copy.node).is_some());
        split.copies = kept;
        let gone: Vec<RightCopy> = gone;
        for copy in gone {
            self.condemn(copy.node, copy.id, right);
        }
        row.split = Some(split);
    }

    fn condemn(&mut self, node: NodeId, copy: PlacementId, partition: PartitionId) {
        if may_hold(self.state, node) {
            self.effect.condemned.push((node, copy, partition));
        }
    }
}

/// Advances a copy to this stage, unless it is past it.
fn advance(split: &mut Split, id: PlacementId, stage: RightStage) {
    for copy in split.copies.iter_mut().filter(|copy| copy.id == id) {
        copy.stage = copy.stage.max(stage);
    }
}

fn no_split(row: &Partition) -> ErrorDetail {
    refused(format!("partition {} is not being split by this attempt", row.id))
}

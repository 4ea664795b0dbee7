//! Edits of partition rows, computed beside the state and committed only if all of them pass.

mod copies;
mod effect;
mod leading;
mod merge;
mod split;

use crate::command::apply::entry::Entry;
use crate::command::edit::{Edit, PartitionChange};
use crate::command::refusals::{invalid, not_found, recovering, refused};
use crate::mutant::Mutant;
use crate::state::ClusterState;
use crate::state::events::EventKind;
use crate::state::out_of_sync_copy::Condition;
use archon_types::{
    ErrorDetail, ErrorKind, Partition, PartitionId, PartitionStatus, Placement, PlacementId, ReplicaState,
};
use effect::Effect;
use std::collections::{BTreeMap, BTreeSet};

/// Rows after the edits, with the other changes that come along.
pub(crate) struct StagedRows<'a> {
    state: &'a ClusterState,
    entry: Entry<'a>,
    effect: Effect,
}

impl<'a> StagedRows<'a> {
    pub(crate) fn new(state: &'a ClusterState, entry: Entry<'a>) -> Self {
        let effect = Effect {
            rows: BTreeMap::new(),
            former_leaders: Vec::new(),
            placement_last: state.placement_last,
            events: Vec::new(),
            untouched: BTreeMap::new(),
            spoiled: BTreeMap::new(),
            delete_issued: BTreeSet::new(),
            surpassed: BTreeMap::new(),
            tables: BTreeMap::new(),
            condemned: Vec::new(),
            parted: Vec::new(),
            merged_away: Vec::new(),
        };
        Self { state, entry, effect }
    }

    pub(crate) fn into_effect(self) -> Effect {
        self.effect
    }

    /// Records that a copy of the partition exists by now.
    pub(crate) fn touched(&mut self, partition: PartitionId) {
        self.effect.untouched.insert(partition, false);
    }

    /// Returns the row as staged so far.
    pub(crate) fn row(&self, id: PartitionId) -> Result<Partition, ErrorDetail> {
        let row = self.effect.rows.get(&id).or_else(|| self.state.partitions.get(id));
        row.cloned().ok_or_else(|| not_found(format!("there is no partition {id}")))
    }

    /// Stages a row under this entry's version.
    pub(crate) fn put(&mut self, mut row: Partition) {
        row.version = self.entry.version();
        if row.leader.is_none() && row.status != PartitionStatus::Unassigned {
            let offline = self.state.is_offline(row.id);
            row.status = if offline { PartitionStatus::Offline } else { PartitionStatus::Unavailable };
        }
        row.placements.sort_by_key(|placement| placement.id);
        self.keep_split_beside(&mut row);
        self.effect.rows.insert(row.id, row);
    }

    /// Stages all edits of one row, or fails at the first that does not pass.
    pub(crate) fn change(&mut self, change: &PartitionChange) -> Result<(), ErrorDetail> {
        if self.state.recovery.is_some() && !self.state.is_lease(change.partition.table) {
            return Err(recovering());
        }
        let mut row = self.row(change.partition)?;
        let elects = change.edits.iter().any(|edit| matches!(edit, Edit::Lead { .. }));
        let splits = |edit: &Edit| matches!(edit, Edit::Split { .. } | Edit::Part { .. } | Edit::AbandonSplit(_));
        let stale = (elects && self.state.breaks(Mutant::ElectStale)) // rule 16
            || (self.state.breaks(Mutant::PartUnguarded) && change.edits.iter().any(splits)); // rule 34
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
                let node = match placement(row, *id)?.state {
                    ReplicaState::Live => self.no_longer_counts(row, *id, Condition::Gone)?,
                    ReplicaState::Load => self.spoil(row, *id, Condition::Gone, true)?,
                    ReplicaState::Unload => {
                        return Err(refused(format!("placement {id} of partition {} is being deleted", row.id)));
                    }
                };
                let (partition, placement, why) = (row.id, *id, why.clone());
                self.effect.events.push(EventKind::CopyDamaged { partition, placement, node, why });
                Ok(())
            }
            Edit::Emptied(id) => {
                in_state(row, *id, ReplicaState::Load)?;
                self.spoil(row, *id, Condition::Gone, false).map(|_| ())
            }
            Edit::Unload(id) => self.unload(row, *id),
            Edit::Retire(id, why) => {
                self.unload(row, *id)?;
                let (partition, placement, node, why) = (row.id, *id, placement(row, *id)?.node, why.clone());
                self.effect.events.push(EventKind::CopyRetired { partition, placement, node, why });
                Ok(())
            }
            Edit::Forget(id) => self.forget(row, *id),
            Edit::Online(epoch) => self.online(row, *epoch),
            Edit::Settle(epoch) => {
                if self.state.former_leaders.get(row.id, *epoch).is_none() {
                    return Err(not_found(format!(
                        "no former leader is recorded for epoch {epoch} of partition {}",
                        row.id
                    )));
                }
                self.forget_former(row.id, *epoch);
                Ok(())
            }
            Edit::Surpass(epoch) => self.surpass(row, *epoch),
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
            Edit::Split { at, right, outgrown } => self.begin_split(row, at, *right, *outgrown),
            Edit::Mirroring { attempt, placement, incarnation } => {
                self.mirroring(row, *attempt, *placement, *incarnation)
            }
            Edit::Cut => self.cut(row),
            Edit::Formed { attempt, placement, incarnation, position } => {
                self.formed(row, *attempt, *placement, *incarnation, *position)
            }
            Edit::Part { leader, incarnation } => self.part(row, *leader, *incarnation),
            Edit::AbandonSplit(why) => self.abandon_split(row, why),
            Edit::Merge { right, right_version, undersized_bytes } => {
                self.begin_merge(row, *right, *right_version, *undersized_bytes)
            }
            Edit::Widen { attempt } => self.widen(row, *attempt),
            Edit::AbandonMerge(why) => self.abandon_merge(row, why),
            Edit::Refuse => Ok(()),
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

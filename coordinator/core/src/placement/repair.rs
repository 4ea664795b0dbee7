//! Replacement of copies that are missing, on nodes that failed long ago, or on draining nodes; and removal of surplus
//! copies. It keeps no memory: each step follows from the rows alone, so any coordinator continues where another one
//! stopped, and work undone by a fault restarts.
//!
//! | a row has | next step | guard |
//! |---|---|---|
//! | fewer remaining copies than wanted | `Repair`: one more, as Load, on the node that needs it most | a leader to copy from; both nodes below the copy limit; not for failed nodes while more than a third of those that hold copies or live are failed (`withheld_repair::withheld`) |
//! | a copy that was lost or damaged | `Retire`, one at a time | enough others are in sync on nodes that are alive (`out_of_sync_copy::may_go`): until then it is kept as it is |
//! | a copy to be deleted, with a node that was not alive to get the order | `Unload` again, when it is back | the same |
//! | as many Live copies on nodes that are alive as wanted | `Retire`: leaving, loading and surplus copies | never the leader; never below `min_in_sync` (PROTOCOL rule 7) |
//! | a half-made copy on a node that is not alive | `Retire` | – |
//! | a leader on a draining node | it is ordered to hand over ([`crate::placement::migrate::hands_over`]) | another Live copy on an active node |
//!
//! A copy leaves if its node is lost, drained, barred from it, or failed for `replace_after`. Copies on a node that is
//! down for maintenance stay, even if the others suffice without them. Failover never waits for any of this.

use crate::command::Command;
use crate::command::edit::{Edit, PartitionChange};
use crate::findings::leader_view::LeaderView;
use crate::liveness::Liveness;
use crate::mutant::Mutant;
use crate::placement::eligible_nodes::EligibleNodes;
use crate::placement::out_of_sync;
use crate::placement::score::Need;
use crate::placement::withheld_repair::{WithheldRepair, withheld};
use crate::state::ClusterState;
use crate::state::migration::{Migration, MoveKind};
use archon_types::{
    Millis, NodeId, NodeStatus, Partition, PartitionId, PartitionStatus, Placement, PlacementId, ReplicaState,
};
use std::collections::{BTreeMap, BTreeSet};

/// One turn's view of the copies of all partitions.
pub(crate) struct Repairs<'a> {
    state: &'a ClusterState,
    /// Nodes that must give up their copies.
    leaving: BTreeSet<NodeId>,
    /// Of these, the failed ones.
    failed: BTreeSet<NodeId>,
    /// Nodes that are being failed or about to exit: they could not finish a copy.
    excluded: BTreeSet<NodeId>,
    /// Nodes below the copy limit that may take a copy now; computed when the first copy is wanted.
    eligible: Option<EligibleNodes<'a>>,
    /// Set if too many nodes are failed, so that the copies of failed ones are not replaced.
    withheld: Option<WithheldRepair>,
    copies_max: u32,
}

/// Next step for one row.
pub(crate) enum Step {
    /// Commit this.
    Change(Command),
    /// Load a copy there, once there is a placement number for it.
    Load(NodeId, String),
    /// No step now.
    Nothing,
}

impl<'a> Repairs<'a> {
    /// Creates a view of the present state.
    pub(crate) fn new(state: &'a ClusterState, liveness: &Liveness, now: Millis) -> Self {
        Self::of(state, &LeaderView::of_copies(state, liveness, now))
    }

    /// Like [`Repairs::new`], with a snapshot of the memory.
    pub(crate) fn of(state: &'a ClusterState, remembered: &LeaderView) -> Self {
        let failed = remembered.failed.clone();
        let lost = state.nodes.down().filter(|row| row.node.status == NodeStatus::Lost);
        let mut leaving: BTreeSet<NodeId> = lost.map(|row| row.node.id).collect();
        leaving.extend(state.nodes.draining().map(|row| row.node.id));
        leaving.extend(&failed);
        Self {
            state,
            leaving,
            failed,
            excluded: remembered.excluded.clone(),
            eligible: None,
            withheld: withheld(state),
            copies_max: state.settings.copies_per_node_max,
        }
    }

    /// Returns the partitions that may need a step.
    pub(crate) fn candidates(&self) -> BTreeSet<PartitionId> {
        let partitions = &self.state.partitions;
        let mut found: BTreeSet<PartitionId> = partitions.unsettled().map(|row| row.id).collect();
        for table in self.state.data_tables() {
            let wanted = usize::from(table.replication);
            found.extend(partitions.with_copies_below(table.id, wanted).map(|row| row.id));
            found.extend(partitions.with_copies_above(table.id, wanted).map(|row| row.id));
        }
        let barred = self.state.controls.barred();
        let barred = barred.iter().flat_map(|node| partitions.on_node(*node).map(move |row| (node, row)));
        found.extend(barred.filter(|(node, row)| self.state.bars(row.id, **node)).map(|(_, row)| row.id));
        found.extend(self.leaving.iter().flat_map(|node| partitions.on_node(*node)).map(|row| row.id));
        found.retain(|id| !self.state.is_lease(id.table));
        found
    }

    /// Returns the failed nodes if copies of failed nodes are not replaced now.
    pub(crate) const fn withheld(&self) -> Option<WithheldRepair> {
        self.withheld
    }

    /// Returns true if the copies on this node must leave.
    pub(crate) fn is_leaving(&self, node: NodeId) -> bool {
        self.leaving.contains(&node)
    }

    /// Returns true if a copy of this row must leave that node.
    fn leaves(&self, row: &Partition, node: NodeId) -> bool {
        self.is_leaving(node) || self.state.bars(row.id, node)
    }

    /// Returns `Some` if this row should have one more copy: true if because a node failed.
    pub(crate) fn wants(&self, row: &Partition) -> Option<bool> {
        let wanted = usize::from(self.state.tables.get(&row.id.table)?.replication);
        if self.state.is_lease(row.id.table) {
            return None;
        }
        if row.status == PartitionStatus::Unassigned || row.live().next().is_none() {
            return None;
        }
        let view = View::new(self, row);
        (view.staying() < wanted).then(|| view.why(wanted).0)
    }

    /// Returns the next step for this row. `copies` are the copies in progress to and from each node.
    pub(crate) fn step(&mut self, row: &Partition, copies: &BTreeMap<NodeId, u32>) -> Step {
        // Splits and merges take seconds, and rest on the present copies.
        let merged = self.state.breaks(Mutant::RepairedWhileMerged) && row.split.is_none(); // rule 44
        let stays = !row.is_reshaped() || merged;
        let table = self.state.tables.get(&row.id.table).filter(|_| stays);
        let Some(table) = table else { return Step::Nothing };
        let change = |edits: Vec<Edit>| {
            let change = PartitionChange { partition: row.id, if_version: row.version, edits };
            Step::Change(Command::Change(vec![change]))
        };
        let may_go = |copy: &Placement| {
            row.status == PartitionStatus::Unassigned || out_of_sync::may_go(self.state, row, copy.id).is_ok()
        };
        let back =
            |copy: &&Placement| out_of_sync::delete_not_issued(self.state, copy) && self.state.is_active(copy.node);
        if let Some(copy) = row.placements.iter().filter(back).find(|copy| may_go(copy)) {
            return change(vec![Edit::Unload(copy.id)]);
        }
        if row.status == PartitionStatus::Unassigned || row.live().next().is_none() {
            return Step::Nothing;
        }
        let wanted = usize::from(table.replication);
        let view = View::new(self, row);
        let retired = view.retired(wanted);
        if !retired.is_empty() {
            return change(retired.into_iter().map(|(id, why)| Edit::Retire(id, why)).collect());
        }
        if view.staying() >= wanted {
            return Step::Nothing;
        }
        let (because_failed, why) = view.why(wanted);
        if because_failed && self.withheld.is_some() {
            return Step::Nothing;
        }
        // The leader is the source of the copy.
        let Some(source) = row.leader_placement().filter(|leader| self.state.is_active(leader.node)) else {
            return Step::Nothing;
        };
        let full = |node: NodeId| copies.get(&node).copied().unwrap_or(0) >= self.copies_max;
        if full(source.node) {
            return Step::Nothing;
        }
        let (state, excluded) = (self.state, &self.excluded);
        let eligible = self.eligible.get_or_insert_with(|| {
            let open = state.nodes.eligible().filter(|row| !excluded.contains(&row.node.id) && !full(row.node.id));
            EligibleNodes::new(open, |node| state.partitions.count_on(node))
        });
        match eligible.target(state, row, |node| self.leaving.contains(&node)) {
            Some(target) => Step::Load(target.node, why),
            None => Step::Nothing,
        }
    }

    /// Records that a copy is being loaded: counted in `copies`, both ends.
    pub(crate) fn note(&mut self, source: Option<NodeId>, target: NodeId, copies: &BTreeMap<NodeId, u32>) {
        let Some(eligible) = &mut self.eligible else { return };
        eligible.note(target);
        let full = |node: &NodeId| copies.get(node).copied().unwrap_or(0) >= self.copies_max;
        source.into_iter().chain([target]).filter(full).for_each(|node| eligible.remove(node));
    }
}

/// Returns the command that adds a copy.
pub(crate) fn load(row: &Partition, id: PlacementId, node: NodeId, why: String) -> Command {
    let placement = Placement { id, node, state: ReplicaState::Load };
    Command::Change(vec![PartitionChange::one(row.id, row.version, Edit::Repair(placement, why))])
}

/// One row with the plans for its copies.
struct View<'a> {
    repairs: &'a Repairs<'a>,
    row: &'a Partition,
    /// The copy that a migration is making.
    coming: Option<PlacementId>,
    /// The copy that a migration will remove.
    going: Option<PlacementId>,
}

impl<'a> View<'a> {
    fn new(repairs: &'a Repairs<'a>, row: &'a Partition) -> Self {
        let running = repairs.state.migrations.running(row.id).filter(|running| running.kind == MoveKind::Copy);
        let target = running.and_then(|running: &Migration| running.stage.target());
        let (coming, going) = match running {
            Some(running) if !running.cancel => (target, Some(running.source)),
            Some(_) => (None, target),
            None => (None, None),
        };
        Self { repairs, row, coming, going }
    }

    /// Returns true for a copy that was never whole, on a node that cannot go on making it.
    fn is_abandoned(&self, placement: &Placement) -> bool {
        placement.state == ReplicaState::Load
            && !self.repairs.state.departed.contains_key(&placement.id)
            && !self.repairs.state.is_alive(placement.node)
    }

    fn stays(&self, placement: &Placement) -> bool {
        placement.state != ReplicaState::Unload
            && Some(placement.id) != self.going
            && !self.repairs.leaves(self.row, placement.node)
            && !self.is_abandoned(placement)
            && !self.is_lost(placement)
    }

    fn is_lost(&self, placement: &Placement) -> bool {
        placement.state == ReplicaState::Load && out_of_sync::is_lost(self.repairs.state, placement.id)
    }

    /// Returns true for a whole copy on a node that is down for maintenance: it comes back, and is not surplus until
    /// then.
    fn is_awaited(&self, placement: &Placement) -> bool {
        let state = self.repairs.state;
        state.controls.maintenance_of(placement.node).is_some()
            && !state.is_alive(placement.node)
            && !self.repairs.leaves(self.row, placement.node)
    }

    /// Returns a copy that was lost or damaged and may be deleted now; none while another copy of the partition is
    /// being deleted.
    fn replaced(&self) -> Option<PlacementId> {
        let state = self.repairs.state;
        let goes = |copy: &&Placement| copy.state == ReplicaState::Unload && state.is_alive(copy.node);
        if self.row.placements.iter().any(|copy| goes(&copy)) {
            return None;
        }
        // A lost node cannot delete anything: its copy is forgotten.
        let gone = |node: NodeId| state.node(node).is_none_or(|row| row.node.status == NodeStatus::Lost);
        let lost = |copy: &&Placement| {
            self.is_lost(copy) && !gone(copy.node) && out_of_sync::may_go(state, self.row, copy.id).is_ok()
        };
        self.row.placements.iter().find(lost).map(|copy| copy.id)
    }

    fn staying(&self) -> usize {
        self.row.placements.iter().filter(|placement| self.stays(placement)).count()
    }

    /// Returns the copies to delete now, with reasons.
    fn retired(&self, wanted: usize) -> Vec<(PlacementId, String)> {
        let state = self.repairs.state;
        let name = |placement: &Placement| state.node_name(placement.node);
        // Migrations handle their own copies.
        let own = |placement: &&Placement| {
            placement.state != ReplicaState::Unload
                && Some(placement.id) != self.coming
                && Some(placement.id) != self.going
                && Some(placement.id) != self.row.leader
        };
        let mut retired: Vec<(PlacementId, String)> = Vec::new();
        for placement in self.row.placements.iter().filter(own).filter(|placement| self.is_abandoned(placement)) {
            retired.push((placement.id, format!("{} failed before the copy was complete", name(placement))));
        }
        let settled = |placement: &Placement| {
            placement.state == ReplicaState::Live && self.stays(placement) && state.is_alive(placement.node)
        };
        let mut enough = self.row.placements.iter().filter(|placement| settled(placement)).count();
        let replaced = self.replaced();
        retired.extend(replaced.map(|id| {
            (
                id,
                "its data was lost or damaged, and enough other replicas are in \
                                            sync"
                    .to_owned(),
            )
        }));
        if enough < wanted {
            return retired;
        }
        for placement in self.row.placements.iter().filter(own).filter(|placement| !settled(placement)) {
            if !self.is_abandoned(placement) && !self.is_lost(placement) && !self.is_awaited(placement) {
                let why = if !self.repairs.leaves(self.row, placement.node) {
                    format!("{wanted} other replicas are in sync")
                } else if self.repairs.failed.contains(&placement.node) {
                    format!("{} failed, and {wanted} other replicas are in sync", name(placement))
                } else if !self.repairs.is_leaving(placement.node) {
                    format!("{} is excluded from it, and {wanted} other replicas are in sync", name(placement))
                } else {
                    format!("{} is being drained, and {wanted} other replicas are in sync", name(placement))
                };
                retired.push((placement.id, why));
            }
        }
        let mut settled: Vec<&Placement> =
            self.row.placements.iter().filter(own).filter(|placement| settled(placement)).collect();
        // Copies that share a zone with another one go first, then those on nodes with the most for their weight, then
        // the newest.
        settled.sort_by_key(|placement| {
            let node = state.node(placement.node).map(|row| &row.node);
            let zone = node.and_then(|node| node.zone.as_ref());
            let doubled = zone.is_some_and(|zone| {
                self.row
                    .live()
                    .filter(|other| other.id != placement.id)
                    .any(|other| state.node(other.node).is_some_and(|other| other.node.zone.as_ref() == Some(zone)))
            });
            let need = Need {
                count: state.partitions.count_on(placement.node),
                weight: node.map_or(1, |node| node.weight.max(1)),
                slot: 0,
            };
            (doubled, need, placement.id)
        });
        while enough > wanted
            && let Some(placement) = settled.pop()
        {
            enough -= 1;
            retired.push((placement.id, format!("{wanted} other replicas are in sync")));
        }
        retired
    }

    /// Returns true if a copy is wanted because a node failed, and the reason for people.
    fn why(&self, wanted: usize) -> (bool, String) {
        let leaving = self.row.placements.iter().filter(|placement| placement.state != ReplicaState::Unload);
        let leaving = leaving.filter(|placement| self.repairs.leaves(self.row, placement.node));
        let (mut failed, mut why) = (false, None);
        for placement in leaving {
            let name = self.repairs.state.node_name(placement.node);
            if self.repairs.failed.contains(&placement.node) {
                failed = true;
                why = Some(format!("in place of the replica on {name}, which failed"));
            } else if !self.repairs.is_leaving(placement.node) {
                why.get_or_insert(format!("in place of the replica on {name}, which is excluded from it"));
            } else {
                why.get_or_insert(format!("in place of the replica on {name}, which is being drained"));
            }
        }
        (failed, why.unwrap_or_else(|| format!("{} of {wanted} replicas are left", self.staying())))
    }
}

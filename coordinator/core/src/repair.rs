//! Copies in place of those that are missing, on nodes that failed for long, or on nodes that are being emptied; and the
//! end of copies that are too many. Nothing is remembered: each step follows from the rows alone, so any coordinator
//! goes on where another stopped, and what a fault undid is begun again.
//!
//! | a row has | next step | guard |
//! |---|---|---|
//! | fewer copies than wanted that stay where they are | `Repair`: one more, as Load, on the node that needs it most | a leader to copy from; free lanes on both nodes; not for failed nodes while more than a third of all nodes are failed |
//! | as many Live copies on live nodes as wanted | `Retire`: what leaves, what is still loading, what is too many | never the leader; never below `min_in_sync` (PROTOCOL rule 7) |
//! | a half-made copy on a node that is not alive | `Retire` | – |
//! | a leader on a node that is being emptied | it is told to hand over ([`crate::migrate::hands_over`]) | another Live copy on an active node |
//!
//! A copy leaves when its node is lost, drained, or failed for `replace_after`. Failover never waits for any of this.

use crate::command::{Command, Edit, PartitionChange};
use crate::liveness::Liveness;
use crate::migration::{Migration, MoveKind};
use crate::score::Need;
use crate::state::{ClusterState, NodeRow};
use archon_types::{
    Millis, NodeGoal, NodeId, NodeStatus, Partition, PartitionId, PartitionStatus, Placement, PlacementId, ReplicaState,
};
use std::collections::{BTreeMap, BTreeSet};

/// Where a new copy should go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Target {
    pub(crate) node: NodeId,
    /// Another copy that stays stands in the same zone.
    pub(crate) zone_doubled: bool,
}

/// The node of `takers` that should take a copy of this partition: one that holds none of it, is below its limit, stands
/// in a zone without one if there is any such node, and has least for its weight. `counts` says how much each has; of
/// `leaving` nodes the copies do not matter.
pub(crate) fn target(
    state: &ClusterState,
    row: &Partition,
    takers: &[&NodeRow],
    counts: impl Fn(NodeId) -> u32,
    leaving: impl Fn(NodeId) -> bool,
) -> Option<Target> {
    let zone_of = |node: NodeId| state.node(node).and_then(|row| row.node.zone.as_deref());
    let zones: Vec<&str> = row
        .placements
        .iter()
        .filter(|placement| placement.state != ReplicaState::Unload && !leaving(placement.node))
        .filter_map(|placement| zone_of(placement.node))
        .collect();
    let able = takers.iter().enumerate().filter_map(|(slot, taker)| {
        let node = &taker.node;
        let count = counts(node.id);
        let full = node.partitions_max.is_some_and(|most| count >= most);
        let able = !full && row.placement_on(node.id).is_none() && !leaving(node.id);
        let zone_doubled = node.zone.as_deref().is_some_and(|zone| zones.contains(&zone));
        able.then_some((zone_doubled, Need { count, weight: node.weight.max(1), slot }, node.id))
    });
    let (zone_doubled, _, node) = able.min()?;
    Some(Target { node, zone_doubled })
}

/// Whether the copies on a node have to go, as far as the state says: it is lost, or is being emptied.
fn is_leaving(row: &NodeRow) -> bool {
    row.node.status == NodeStatus::Lost || row.node.goal == NodeGoal::Drain
}

/// One turn's look at the copies of all partitions.
pub(crate) struct Repairs<'a> {
    state: &'a ClusterState,
    /// Nodes whose copies have to go.
    leaving: BTreeSet<NodeId>,
    /// Of these, the failed ones.
    failed: BTreeSet<NodeId>,
    takers: Vec<&'a NodeRow>,
    /// Copies that each taker has, those of this turn included.
    counts: BTreeMap<NodeId, u32>,
    /// Few enough nodes are failed that replacing the copies of failed ones makes sense.
    calm: bool,
    copies_max: u32,
}

/// What to do about one row.
pub(crate) enum Step {
    /// Commit this.
    Change(Command),
    /// Load a copy there, once there is a placement number for it.
    Load(NodeId, String),
    /// Nothing now.
    Nothing,
}

impl<'a> Repairs<'a> {
    pub(crate) fn new(state: &'a ClusterState, liveness: &Liveness, now: Millis) -> Self {
        let replace_after_ms = state.settings.replace_after_ms;
        let known = || state.nodes.values().filter(|row| row.node.status != NodeStatus::Lost);
        let failed: BTreeSet<NodeId> = known()
            .map(|row| row.node.id)
            .filter(|node| liveness.failed_since(*node).is_some_and(|since| now.since(since) >= replace_after_ms))
            .collect();
        let mut leaving: BTreeSet<NodeId> =
            state.nodes.values().filter(|row| is_leaving(row)).map(|row| row.node.id).collect();
        leaving.extend(&failed);
        let down = known().filter(|row| row.node.status == NodeStatus::Failed).count();
        // One that is about to exit would not get far.
        let takes = |row: &&NodeRow| row.takes_placements() && liveness.may_lead(row.node.id);
        let takers: Vec<&NodeRow> = state.nodes.values().filter(takes).collect();
        Self {
            state,
            leaving,
            failed,
            counts: takers.iter().map(|row| (row.node.id, state.partitions.count_on(row.node.id))).collect(),
            takers,
            calm: 3 * down <= known().count(),
            copies_max: state.settings.copies_per_node_max,
        }
    }

    /// The partitions that may need something.
    pub(crate) fn candidates(&self) -> BTreeSet<PartitionId> {
        let partitions = &self.state.partitions;
        let mut found: BTreeSet<PartitionId> = partitions.restless().map(|row| row.id).collect();
        for table in self.state.tables.values() {
            let wanted = usize::from(table.replication);
            found.extend(partitions.with_copies_below(table.id, wanted).map(|row| row.id));
            found.extend(partitions.with_copies_above(table.id, wanted).map(|row| row.id));
        }
        found.extend(self.leaving.iter().flat_map(|node| partitions.on_node(*node)).map(|row| row.id));
        found
    }

    /// What to do about this row. `copies` are the copies under way to and from each node.
    pub(crate) fn step(&self, row: &Partition, copies: &BTreeMap<NodeId, u32>) -> Step {
        let Some(table) = self.state.tables.get(&row.id.table) else { return Step::Nothing };
        if row.status == PartitionStatus::Unassigned || row.live().next().is_none() {
            return Step::Nothing;
        }
        let wanted = usize::from(table.replication);
        let view = View::new(self, row);
        let retired = view.retired(wanted);
        if !retired.is_empty() {
            let edits = retired.into_iter().map(|(id, why)| Edit::Retire(id, why)).collect();
            let change = PartitionChange { partition: row.id, if_version: row.version, edits };
            return Step::Change(Command::Change(vec![change]));
        }
        if view.staying() >= wanted {
            return Step::Nothing;
        }
        let (because_failed, why) = view.why(wanted);
        if because_failed && !self.calm {
            return Step::Nothing;
        }
        // Whoever leads gives the copy.
        let Some(source) = row.leader_placement().filter(|leader| self.state.is_active(leader.node)) else {
            return Step::Nothing;
        };
        let full = |node: NodeId| copies.get(&node).copied().unwrap_or(0) >= self.copies_max;
        if full(source.node) {
            return Step::Nothing;
        }
        let counts = |node: NodeId| self.counts.get(&node).copied().unwrap_or(0);
        let open: Vec<&NodeRow> = self.takers.iter().copied().filter(|taker| !full(taker.node.id)).collect();
        match target(self.state, row, &open, counts, |node| self.leaving.contains(&node)) {
            Some(target) => Step::Load(target.node, why),
            None => Step::Nothing,
        }
    }

    /// Takes note that a copy goes to this node.
    pub(crate) fn note(&mut self, node: NodeId) {
        *self.counts.entry(node).or_default() += 1;
    }
}

/// The command that adds a copy.
pub(crate) fn load(row: &Partition, id: PlacementId, node: NodeId, why: String) -> Command {
    let placement = Placement { id, node, state: ReplicaState::Load };
    Command::Change(vec![PartitionChange::one(row.id, row.version, Edit::Repair(placement, why))])
}

/// One row with what becomes of its copies.
struct View<'a> {
    repairs: &'a Repairs<'a>,
    row: &'a Partition,
    /// The copy that a migration is making.
    coming: Option<PlacementId>,
    /// The copy that a migration will have removed.
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

    /// A copy that was never whole, on a node that cannot go on making it.
    fn is_abandoned(&self, placement: &Placement) -> bool {
        placement.state == ReplicaState::Load
            && !self.repairs.state.left.contains_key(&placement.id)
            && !self.repairs.state.is_live(placement.node)
    }

    fn stays(&self, placement: &Placement) -> bool {
        placement.state != ReplicaState::Unload
            && Some(placement.id) != self.going
            && !self.repairs.leaving.contains(&placement.node)
            && !self.is_abandoned(placement)
    }

    fn staying(&self) -> usize {
        self.row.placements.iter().filter(|placement| self.stays(placement)).count()
    }

    /// What is to be deleted now.
    fn retired(&self, wanted: usize) -> Vec<(PlacementId, String)> {
        let state = self.repairs.state;
        let name = |placement: &Placement| state.node_name(placement.node);
        // Those that a migration deals with are its own affair.
        let own = |placement: &&Placement| {
            placement.state != ReplicaState::Unload
                && Some(placement.id) != self.coming
                && Some(placement.id) != self.going
                && Some(placement.id) != self.row.leader
        };
        let mut retired: Vec<(PlacementId, String)> = Vec::new();
        for placement in self.row.placements.iter().filter(own).filter(|placement| self.is_abandoned(placement)) {
            retired.push((placement.id, format!("{} failed before it was whole", name(placement))));
        }
        let settled = |placement: &Placement| {
            placement.state == ReplicaState::Live && self.stays(placement) && state.is_live(placement.node)
        };
        let mut enough = self.row.placements.iter().filter(|placement| settled(placement)).count();
        if enough < wanted {
            return retired;
        }
        for placement in self.row.placements.iter().filter(own).filter(|placement| !settled(placement)) {
            if !self.is_abandoned(placement) {
                let why = if !self.repairs.leaving.contains(&placement.node) {
                    format!("{wanted} other copies count")
                } else if self.repairs.failed.contains(&placement.node) {
                    format!("{} failed, and {wanted} other copies count", name(placement))
                } else {
                    format!("{} is being emptied, and {wanted} other copies count", name(placement))
                };
                retired.push((placement.id, why));
            }
        }
        let mut settled: Vec<&Placement> =
            self.row.placements.iter().filter(own).filter(|placement| settled(placement)).collect();
        // First those in a zone with another copy, then those whose node has most for its weight, then the newest.
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
            retired.push((placement.id, format!("{wanted} other copies count")));
        }
        retired
    }

    /// Whether a copy is wanted because a node failed, and why, for people.
    fn why(&self, wanted: usize) -> (bool, String) {
        let leaving = self.row.placements.iter().filter(|placement| placement.state != ReplicaState::Unload);
        let leaving = leaving.filter(|placement| self.repairs.leaving.contains(&placement.node));
        let (mut failed, mut why) = (false, None);
        for placement in leaving {
            let name = self.repairs.state.node_name(placement.node);
            if self.repairs.failed.contains(&placement.node) {
                failed = true;
                why = Some(format!("in place of the copy on {name}, which failed"));
            } else {
                why.get_or_insert(format!("in place of the copy on {name}, which is being emptied"));
            }
        }
        (failed, why.unwrap_or_else(|| format!("{} of {wanted} copies are left", self.staying())))
    }
}

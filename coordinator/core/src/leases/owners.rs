//! Choice of next owners, one partition after another; the state does not contain the choices yet.

use crate::leases::hand_over::{NextOwner, placed};
use crate::liveness::Liveness;
use crate::placement::score::Need;
use crate::state::ClusterState;
use crate::state::node_row::NodeRow;
use archon_types::{NodeGoal, NodeId, Partition, Placement, PlacementId, Table, TableId};
use std::collections::{BTreeMap, BTreeSet};

/// The participants of each table, with their partitions including those given here. Creating one is free: most turns
/// need none.
pub(crate) struct Owners<'a> {
    state: &'a ClusterState,
    /// The participants that can take more, for each requested table.
    eligible: BTreeMap<TableId, BTreeSet<(Need, NodeId)>>,
    /// Number of partitions given here to each participant, over all tables.
    given: BTreeMap<NodeId, u32>,
    /// The last placement number assigned here; zero: none was.
    placement_last: u64,
}

impl<'a> Owners<'a> {
    pub(crate) const fn new(state: &'a ClusterState) -> Self {
        Self { state, eligible: BTreeMap::new(), given: BTreeMap::new(), placement_last: 0 }
    }

    /// Returns the last placement number assigned here, or before.
    pub(crate) fn placement_last(&self, liveness: &Liveness) -> u64 {
        self.placement_last.max(liveness.placement_last)
    }

    /// Returns true if some participant can take more of this table. Otherwise partitions without a placement stay
    /// unassigned.
    pub(crate) fn takes(&mut self, liveness: &Liveness, table: &Table) -> bool {
        let state = self.state;
        !self.eligible.entry(table.id).or_insert_with(|| eligible(state, table, liveness)).is_empty()
    }

    /// Returns the next owner of this partition. The target of a move is preferred, then the last owner: nothing moves
    /// without need. Else it is the participant with the least of the table for its weight that takes partitions and is
    /// below its limit.
    pub(crate) fn next(
        &mut self,
        liveness: &Liveness,
        row: &Partition,
        ruled_out: impl Fn(NodeId) -> bool,
    ) -> Option<NextOwner> {
        let state = self.state;
        let table = state.tables.get(&row.id.table)?;
        let barred = |node: NodeId| {
            ruled_out(node)
                || !liveness.may_lead(node)
                || liveness.churn.avoids(node, row.id)
                || state.bars(row.id, node)
        };
        let stays = |copy: &&Placement| {
            let goal = state.node(copy.node).map(|row| row.node.goal);
            state.is_active(copy.node)
                && state.serves(copy.node, table.id)
                && !goal.is_some_and(NodeGoal::gives_up_leaderships)
                && !barred(copy.node)
        };
        // The newest placement is the target of a move.
        if let Some(copy) = row.placements.iter().rev().find(stays) {
            return Some(NextOwner { placement: *copy, incarnation: state.incarnation(copy.node)? });
        }
        if !self.takes(liveness, table) {
            return None;
        }
        let given = |node: NodeId| self.given.get(&node).copied().unwrap_or(0);
        let room = |node: NodeId| state.node(node).map_or(0, |row| row.room(state).saturating_sub(given(node)));
        let able = |node: NodeId| !barred(node) && row.placement_on(node).is_none() && room(node) > 0;
        let eligible = self.eligible.get_mut(&table.id)?;
        let chosen = eligible.iter().find(|(_, node)| able(*node)).copied()?;
        eligible.remove(&chosen);
        let (need, node) = chosen;
        if room(node) > 1 {
            eligible.insert((Need { count: need.count + 1, ..need }, node));
        }
        *self.given.entry(node).or_default() += 1;
        let placement = self.place(liveness, node);
        Some(NextOwner { placement, incarnation: state.incarnation(node)? })
    }

    /// Creates a new placement on this participant.
    pub(crate) fn place(&mut self, liveness: &Liveness, node: NodeId) -> Placement {
        self.placement_last = self.placement_last(liveness).max(self.state.placement_last.get()) + 1;
        placed(PlacementId::new(self.placement_last), node)
    }
}

fn eligible(state: &ClusterState, table: &Table, liveness: &Liveness) -> BTreeSet<(Need, NodeId)> {
    let serving = state.participants.serving(&table.name).enumerate();
    let barred = |row: &NodeRow| !liveness.may_lead(row.node.id) || state.bars_all(table.id, row.node.id);
    let takes = |row: &NodeRow| row.takes_placements() && !barred(row) && row.room(state) > 0;
    let able = serving.filter(|(_, row)| takes(row));
    let needs = able.map(|(slot, row)| {
        let count = state.partitions.count_in(table.id, row.node.id);
        (Need { count, weight: state.weight_in(table.id, row), slot }, row.node.id)
    });
    needs.collect()
}

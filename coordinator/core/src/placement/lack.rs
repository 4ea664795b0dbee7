//! Reasons why wanted copies are not being made: decisions of repair, for people.

use crate::findings::remembered::Remembered;
use crate::placement::eligible_nodes::EligibleNodes;
use crate::placement::repair::Repairs;
use crate::state::ClusterState;
use archon_types::{NodeId, NodeStatus, Partition};
use serde::{Deserialize, Serialize};

/// So many nodes are failed that copies of failed nodes are not replaced: a cut-off of the coordinators or the loss of
/// a whole room is more likely than the death of so many machines. Copying would load the remaining nodes with data
/// that comes back by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Withheld {
    /// Failed nodes that hold copies, and are neither drained nor in maintenance.
    pub failed: u64,
    /// These and the live ones.
    pub of: u64,
}

/// Returns the failed nodes if copies of failed nodes are not replaced now. Nodes without copies, drained nodes and
/// nodes in maintenance are ignored: their stop indicates nothing about the others.
pub fn withheld(state: &ClusterState) -> Option<Withheld> {
    let mut live = state.nodes.len() as u64;
    let mut failed = 0;
    for row in state.nodes.down() {
        live -= 1;
        let counts = !row.node.goal.gives_up_leaderships() && state.partitions.held_on(row.node.id) > 0;
        failed += u64::from(row.node.status == NodeStatus::Failed && counts);
    }
    let of = live + failed;
    (3 * failed > of).then_some(Withheld { failed, of })
}

/// Reason why a wanted copy is not made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Lack {
    /// Too many nodes are failed.
    Withheld(Withheld),
    /// The nodes that could take it are at their limits.
    NodesAtLimit {
        /// Number of these nodes.
        full: u32,
        /// Other nodes have room: a plan may move a copy there and make room.
        plan: bool,
    },
    /// No other node takes copies.
    NoNode,
}

/// Decisions of repair about rows, ignoring the copy limit: nodes are below it again soon.
pub(crate) struct Lacks<'a> {
    state: &'a ClusterState,
    repairs: Repairs<'a>,
    eligible: EligibleNodes<'a>,
    full: Vec<NodeId>,
}

impl<'a> Lacks<'a> {
    /// Computes the decisions as of now.
    pub(crate) fn new(state: &'a ClusterState, remembered: &Remembered) -> Self {
        let repairs = Repairs::of(state, remembered);
        let open = state.nodes.eligible().filter(|row| !remembered.excluded.contains(&row.node.id));
        let eligible = EligibleNodes::new(open.clone(), |node| state.partitions.count_on(node));
        let full = open.filter(|row| row.room(state) == 0).map(|row| row.node.id).collect();
        Self { state, repairs, eligible, full }
    }

    /// Returns the rows that may lack something.
    pub(crate) fn candidates(&self) -> impl Iterator<Item = &'a Partition> {
        let state = self.state;
        self.repairs.candidates().into_iter().filter_map(|id| state.partitions.get(id))
    }

    /// Returns the reason why this row has fewer copies than wanted, if repair does nothing about it.
    pub(crate) fn of(&self, row: &Partition) -> Option<Lack> {
        let because_failed = self.repairs.wants(row)?;
        if let Some(withheld) = self.repairs.withheld().filter(|_| because_failed) {
            return Some(Lack::Withheld(withheld));
        }
        if self.eligible.target(self.state, row, |node| self.repairs.is_leaving(node)).is_some() {
            return None;
        }
        match self.full.iter().filter(|node| row.placement_on(**node).is_none()).count() {
            0 => Some(Lack::NoNode),
            full => {
                let full = u32::try_from(full).unwrap_or(u32::MAX);
                Some(Lack::NodesAtLimit { full, plan: !self.eligible.is_empty() })
            }
        }
    }
}

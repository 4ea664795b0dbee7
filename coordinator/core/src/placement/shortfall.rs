//! Reasons why wanted copies are not being made: decisions of repair, for people.

use crate::findings::leader_view::LeaderView;
use crate::placement::eligible_nodes::EligibleNodes;
use crate::placement::repair::Repairs;
use crate::placement::withheld_repair::WithheldRepair;
use crate::state::ClusterState;
use archon_types::{NodeId, Partition};

/// Reason why a wanted copy is not made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Shortfall {
    /// Too many nodes are failed.
    Withheld(WithheldRepair),
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
pub(crate) struct Shortfalls<'a> {
    state: &'a ClusterState,
    repairs: Repairs<'a>,
    eligible: EligibleNodes<'a>,
    full: Vec<NodeId>,
}

impl<'a> Shortfalls<'a> {
    /// Computes the decisions as of now.
    pub(crate) fn new(state: &'a ClusterState, remembered: &LeaderView) -> Self {
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
    pub(crate) fn of(&self, row: &Partition) -> Option<Shortfall> {
        let because_failed = self.repairs.wants(row)?;
        if let Some(withheld) = self.repairs.withheld().filter(|_| because_failed) {
            return Some(Shortfall::Withheld(withheld));
        }
        if self.eligible.target(self.state, row, |node| self.repairs.is_leaving(node)).is_some() {
            return None;
        }
        match self.full.iter().filter(|node| row.placement_on(**node).is_none()).count() {
            0 => Some(Shortfall::NoNode),
            full => {
                let full = u32::try_from(full).unwrap_or(u32::MAX);
                Some(Shortfall::NodesAtLimit { full, plan: !self.eligible.is_empty() })
            }
        }
    }
}

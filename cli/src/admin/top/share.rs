//! Fair share of the load for each node.

use crate::documents::Node;
use archon_client::{NodeGoal, NodeStatus};

/// Load of all nodes, and the weights for its distribution.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Shares {
    operations: u64,
    weights: u64,
}

impl Shares {
    /// Creates the shares of these nodes.
    pub(super) fn new(nodes: &[Node]) -> Self {
        let takes_part = || nodes.iter().filter(|node| takes_part(node));
        Self {
            operations: nodes.iter().filter_map(|node| node.operations_per_second).fold(0, u64::saturating_add),
            weights: takes_part().map(|node| u64::from(node.weight)).sum(),
        }
    }

    /// Returns the load of a node in percent of its fair share; `None` if it takes no part, or did not report its load.
    pub(super) fn percent(&self, node: &Node) -> Option<u64> {
        let rate = node.operations_per_second.filter(|_| takes_part(node))?;
        let (all, weights) = (u128::from(self.operations), u128::from(self.weights));
        let fair = all * u128::from(node.weight);
        let percent = (u128::from(rate) * weights * 100).checked_div(fair).unwrap_or(0);
        Some(u64::try_from(percent).unwrap_or(u64::MAX))
    }
}

/// Returns true if a node has a share: participants, absent nodes and nodes that give their partitions to others have
/// none.
fn takes_part(node: &Node) -> bool {
    let leaves = matches!(node.goal.known(), Some(NodeGoal::Drain | NodeGoal::Maintain));
    node.status == NodeStatus::Alive && !leaves && !node.is_participant()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::testing::node;

    fn rate(rate: u64, weight: u32) -> Node {
        Node { operations_per_second: Some(rate), weight, ..node(1, "athens", 1) }
    }

    #[test]
    fn share_is_fair_by_weight() {
        let nodes = [rate(300, 100), rate(300, 200)];
        let shares = Shares::new(&nodes);
        assert_eq!(nodes.each_ref().map(|node| shares.percent(node)), [Some(150), Some(75)]);
    }

    #[test]
    fn excluded_nodes_have_no_share_and_reduce_none() {
        let failed = Node { status: NodeStatus::Failed.into(), operations_per_second: None, ..rate(0, 100) };
        let drained = Node { goal: NodeGoal::Drain.into(), ..rate(0, 100) };
        let participant = Node { serves: vec!["jobs".into()], operations_per_second: None, ..rate(0, 100) };
        let nodes = [rate(100, 100), failed, drained, participant];
        let shares = Shares::new(&nodes);
        assert_eq!(nodes.each_ref().map(|node| shares.percent(node)), [Some(100), None, None, None]);
    }

    #[test]
    fn idle_cluster_and_extreme_numbers_are_handled() {
        let idle = [rate(0, 100), rate(0, 0)];
        assert_eq!(idle.each_ref().map(|node| Shares::new(&idle).percent(node)), [Some(0), Some(0)]);
        let absurd = [rate(u64::MAX, u32::MAX), rate(u64::MAX, 0), rate(u64::MAX, 1)];
        assert!(absurd.iter().all(|node| Shares::new(&absurd).percent(node).is_some()));
    }
}

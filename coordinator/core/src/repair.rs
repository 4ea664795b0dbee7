//! Copies in place of those that are missing, on nodes that failed for long, or on nodes that are being emptied.

use crate::score::Need;
use crate::state::{ClusterState, NodeRow};
use archon_types::{NodeId, Partition};

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
        .filter(|placement| !leaving(placement.node))
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

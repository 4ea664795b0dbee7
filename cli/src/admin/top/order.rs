//! Sort order of the nodes.

use crate::documents::Node;
use archon_client::NodeStatus;
use std::cmp::Reverse;

/// Sort order of the nodes. Numbers come largest first, unknown ones last; equal ones are in order of their names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Order {
    /// By name.
    #[default]
    Name,
    /// Unhealthy ones first.
    Status,
    /// By partitions led.
    Led,
    /// By replicas, or leases.
    Copies,
    /// By bytes stored.
    Data,
    /// By operations per second.
    Operations,
    /// By operations per second relative to weight: the highest load above the fair share first.
    Load,
}

impl Order {
    /// Returns the next order.
    pub(super) const fn next(self) -> Self {
        match self {
            Self::Name => Self::Status,
            Self::Status => Self::Led,
            Self::Led => Self::Copies,
            Self::Copies => Self::Data,
            Self::Data => Self::Operations,
            Self::Operations => Self::Load,
            Self::Load => Self::Name,
        }
    }

    /// Returns its name.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Status => "status",
            Self::Led => "partitions led",
            Self::Copies => "copies",
            Self::Data => "data",
            Self::Operations => "operations",
            Self::Load => "load",
        }
    }

    /// Sorts the nodes.
    pub(super) fn sort(self, nodes: &mut [Node]) {
        nodes.sort_by(|left, right| {
            let key = |node: &Node| (self.rank(node), Reverse(self.number(node)));
            key(left).cmp(&key(right)).then_with(|| (&left.name, left.id).cmp(&(&right.name, right.id)))
        });
    }

    /// Returns the rank that comes before any number.
    fn rank(self, node: &Node) -> u8 {
        match (self, node.status.known()) {
            (Self::Status, Some(NodeStatus::Failed)) => 0,
            (Self::Status, Some(NodeStatus::Lost)) => 1,
            (Self::Status, None) => 2,
            (Self::Status, Some(NodeStatus::Alive)) if node.disk_full => 3,
            (Self::Status, Some(NodeStatus::Alive)) if super::super::status::not_serving(node).is_some() => 4,
            (Self::Status, Some(NodeStatus::Alive)) => 5,
            _ => 0,
        }
    }

    fn number(self, node: &Node) -> Option<u64> {
        match self {
            Self::Name | Self::Status => None,
            Self::Led => Some(node.partitions_led.into()),
            Self::Copies => Some(node.copies_held.into()),
            Self::Data => node.bytes_stored,
            Self::Operations => node.operations_per_second,
            // The share is in proportion to the weight, for any sum; a weight is at most 10,000.
            Self::Load => {
                node.operations_per_second.map(|rate| rate.saturating_mul(10_000) / u64::from(node.weight.max(1)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::testing::node;
    use archon_client::NodeGoal;

    fn names(order: Order, mut nodes: Vec<Node>) -> Vec<String> {
        order.sort(&mut nodes);
        nodes.into_iter().map(|node| node.name).collect()
    }

    fn rate(name: &str, rate: Option<u64>, weight: u32) -> Node {
        Node { operations_per_second: rate, weight, ..node(1, name, 1) }
    }

    #[test]
    fn unhealthy_nodes_come_first_and_unknown_values_last() {
        let failed = Node { status: NodeStatus::Failed.into(), ..node(1, "delphi", 9) };
        let drained = Node { goal: NodeGoal::Drain.into(), ..node(2, "cyrene", 9) };
        let full = Node { disk_full: true, ..node(3, "ephesus", 9) };
        let nodes = vec![node(4, "athens", 1), drained, failed, full, node(5, "byzantium", 1)];
        assert_eq!(names(Order::Status, nodes), ["delphi", "ephesus", "cyrene", "athens", "byzantium"]);
        let nodes =
            vec![rate("a", None, 100), rate("b", Some(0), 100), rate("c", Some(7), 100), rate("aa", Some(7), 100)];
        assert_eq!(names(Order::Operations, nodes), ["aa", "c", "b", "a"]);
    }

    #[test]
    fn load_is_relative_to_weight() {
        let nodes = vec![rate("strong", Some(1_000), 200), rate("weak", Some(600), 100), rate("idle", Some(0), 1)];
        assert_eq!(names(Order::Load, nodes), ["weak", "strong", "idle"]);
    }

    #[test]
    fn order_cycles_through_all_values() {
        let mut order = Order::default();
        let mut words = Vec::new();
        while !words.contains(&order.word()) {
            words.push(order.word());
            order = order.next();
        }
        assert_eq!((words.len(), order), (7, Order::Name));
    }
}

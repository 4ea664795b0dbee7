//! Updates of nodes: the full list once, then changes. With a thousand nodes, counters of nearly all change between
//! polls but little else, so counters are sent separately.

use crate::feed::state_section::StateSection;
use archon_client::NodeSummary;
use serde_json::json;
use std::collections::BTreeMap;

/// The nodes and participants of a cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Members(Vec<NodeSummary>);

/// Frequently changing values: the number of the node, then the fields named by [`numbers`], in order.
type Numbers = (u64, u32, u32, Option<u64>, Option<u64>, Option<u64>, Option<u64>);

fn numbers(node: &NodeSummary) -> Numbers {
    (
        node.id,
        node.partitions_led,
        node.copies_held,
        node.bytes_stored,
        node.keys_stored,
        node.operations_per_second,
        node.silent_for_ms,
    )
}

/// Returns whether the nodes differ only in these numbers.
fn is_same(node: &NodeSummary, before: &NodeSummary) -> bool {
    let with_numbers = NodeSummary {
        partitions_led: before.partitions_led,
        copies_held: before.copies_held,
        bytes_stored: before.bytes_stored,
        keys_stored: before.keys_stored,
        operations_per_second: before.operations_per_second,
        silent_for_ms: before.silent_for_ms,
        ..node.clone()
    };
    with_numbers == *before
}

impl Members {
    /// Creates the list.
    pub(crate) const fn new(nodes: Vec<NodeSummary>) -> Self {
        Self(nodes)
    }

    /// Returns the full list.
    pub(crate) fn whole(&self) -> StateSection {
        StateSection::new("nodes", &self.0)
    }

    /// Returns the update for subscribers that have `before`; `None` if nothing changed.
    pub(crate) fn changes_since(&self, before: &Self) -> Option<StateSection> {
        let mut known: BTreeMap<u64, &NodeSummary> = before.0.iter().map(|node| (node.id, node)).collect();
        let (mut changed, mut counted) = (Vec::new(), Vec::new());
        for node in &self.0 {
            match known.remove(&node.id) {
                Some(before) if is_same(node, before) => {
                    counted.extend((numbers(node) != numbers(before)).then(|| numbers(node)));
                }
                _ => changed.push(node),
            }
        }
        let gone: Vec<u64> = known.into_keys().collect();
        let is_news = !(changed.is_empty() && counted.is_empty() && gone.is_empty());
        is_news
            .then(|| StateSection::new("nodes_change", &json!({ "nodes": changed, "numbers": counted, "gone": gone })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn node(id: u64, status: &str, rate: u64) -> NodeSummary {
        let document = json!({
            "node_id": id, "node": format!("node-{id}"), "address": "a:1", "status": status, "status_changed_at_ms": 1, "goal": "serve",
            "incarnation": 7, "copies_held": 3, "partitions_led": 2, "zone": null, "weight": 100, "partitions_max": null,
            "bytes_stored": 5, "keys_stored": null, "operations_per_second": rate, "silent_for_ms": 9, "via": null, "door": null,
            "disk_full": false, "stopped": false, "timing": null, "serves": [], "maintenance_ends_at_ms": null, "bars": [],
        });
        serde_json::from_value(document).unwrap()
    }

    fn told(news: Option<StateSection>) -> Value {
        serde_json::from_str(&news.unwrap().data).unwrap()
    }

    #[test]
    fn only_changed_nodes_and_counters_are_sent() {
        let before = Members::new(vec![node(1, "alive", 10), node(2, "alive", 10), node(3, "alive", 10)]);
        assert_eq!(before.changes_since(&before), None);
        let now = Members::new(vec![node(1, "alive", 11), node(2, "failed", 10), node(4, "alive", 10)]);
        let said = told(now.changes_since(&before));
        assert_eq!(said["numbers"], json!([[1, 2, 3, 5, null, 11, 9]]));
        let named: Vec<&Value> = said["nodes"].as_array().unwrap().iter().map(|node| &node["node_id"]).collect();
        assert_eq!((named, &said["gone"]), (vec![&json!(2), &json!(4)], &json!([3])));
    }
}

//! Resources that the nodes used during a measurement, from their counters.

use archon_client::{Admin, NodeStats, NodeStatus, NodeSummary};
use serde::Serialize;
use std::collections::BTreeMap;

/// Counters of all live nodes at one moment.
pub(super) struct NodeCounters(BTreeMap<String, NodeStats>);

/// Resources used by one node.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct NodeCost {
    node: String,
    log_syncs: u64,
    log_batches: u64,
    log_bytes: u64,
    engine_syncs: u64,
    cpu_ms: f64,
    /// Context switches: of a thread that waited, and of a preempted one.
    switches_voluntary: u64,
    switches_involuntary: u64,
    resident_bytes: u64,
}

/// Resources used by all nodes per operation.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Cost {
    /// Syncs of write-ahead logs per operation, sum of all nodes.
    pub(super) fsyncs_per_op: f64,
    /// Bytes written to write-ahead logs per operation, sum of all nodes.
    pub(super) log_bytes_per_op: f64,
    /// CPU time per operation, sum of all nodes, in microseconds.
    pub(super) node_cpu_us_per_op: f64,
    /// Context switches per operation, sum of all nodes: a thread waited, or was preempted.
    pub(super) switches_per_op: f64,
    /// Values of each node.
    pub(super) nodes: Vec<NodeCost>,
}

impl NodeCounters {
    /// Reads the counters of all live nodes. Participants serve no counters to Archon at their addresses.
    ///
    /// # Errors
    /// If a node does not answer.
    pub(super) async fn now(admin: &Admin) -> Result<Self, archon_client::Error> {
        let mut all = BTreeMap::new();
        let counted = |node: &NodeSummary| node.status == NodeStatus::Alive && !node.is_participant();
        for node in admin.list_nodes().await?.into_iter().filter(counted) {
            all.insert(node.name, admin.node_stats(&node.address).await?);
        }
        Ok(Self(all))
    }

    /// Returns the resources used since, over `operations` operations. A node that started in between counts from its
    /// start.
    pub(super) fn until(&self, later: &Self, operations: u64) -> Cost {
        let mut nodes = Vec::new();
        for (name, now) in &later.0 {
            let used = |counter: &str| {
                let before = self.0.get(name).map_or(0.0, |before| before.value(counter));
                let now = now.value(counter);
                if now < before { now } else { now - before }
            };
            let spent = |counter: &str| used(counter) as u64;
            nodes.push(NodeCost {
                node: name.clone(),
                log_syncs: spent("archon_wal_syncs_total"),
                log_batches: spent("archon_wal_batches_total"),
                log_bytes: spent("archon_wal_written_bytes_total"),
                engine_syncs: spent("archon_engine_syncs_total"),
                cpu_ms: used("archon_process_cpu_seconds_total") * 1e3,
                switches_voluntary: spent("archon_process_switches_voluntary_total"),
                switches_involuntary: spent("archon_process_switches_involuntary_total"),
                resident_bytes: now.get("archon_process_resident_bytes"),
            });
        }
        let per_op = |sum: f64| sum / operations.max(1) as f64;
        let sum = |of: fn(&NodeCost) -> u64| nodes.iter().map(of).sum::<u64>() as f64;
        Cost {
            fsyncs_per_op: per_op(sum(|node| node.log_syncs)),
            log_bytes_per_op: per_op(sum(|node| node.log_bytes)),
            node_cpu_us_per_op: per_op(nodes.iter().map(|node| node.cpu_ms * 1e3).sum()),
            switches_per_op: per_op(sum(|node| node.switches_voluntary + node.switches_involuntary)),
            nodes,
        }
    }
}

impl Cost {
    /// Formats the CPU time of each node, in per cent of one core.
    pub(super) fn cpu_percent(&self, seconds: f64) -> String {
        let text = |node: &NodeCost| format!("{} {:.0} %", node.node, node.cpu_ms / 10.0 / seconds.max(1e-9));
        self.nodes.iter().map(text).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(nodes: &[(&str, u64, u64)]) -> NodeCounters {
        let stats = |syncs: u64, cpu_us: u64| NodeStats {
            node: String::new(),
            values: [
                ("archon_wal_syncs_total", syncs as f64),
                ("archon_process_cpu_seconds_total", cpu_us as f64 / 1e6),
            ]
            .map(|(name, value)| (name.to_owned(), value))
            .into(),
        };
        NodeCounters(nodes.iter().map(|(name, syncs, cpu)| ((*name).to_owned(), stats(*syncs, *cpu))).collect())
    }

    #[test]
    fn costs_are_per_operation_and_restarted_nodes_start_at_zero() {
        let before = counted(&[("a", 100, 1_000), ("b", 500, 9_000), ("gone", 1, 1)]);
        let after = counted(&[("a", 150, 3_000), ("b", 20, 500), ("new", 30, 500)]);
        let cost = before.until(&after, 100);
        assert!((cost.fsyncs_per_op - 1.0).abs() < 1e-9, "{cost:?}");
        assert!((cost.node_cpu_us_per_op - 30.0).abs() < 1e-9, "{cost:?}");
        assert_eq!(cost.nodes.len(), 3);
    }
}

//! What the verbs show. The names of these fields are a contract with scripts: fields are only ever added.

pub(crate) use archon_client::{
    Migration, NodeSummary as Node, PartitionSummary as Partition, Plan, RebalanceStatus as Rebalance, Status,
};

use archon_client::{DrainCheck, LossCheck};
use serde::Serialize;

/// `archon node describe`
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct NodeDescription {
    #[serde(flatten)]
    pub(crate) node: Node,
    /// What draining it would come to, or why it cannot be drained.
    pub(crate) drain: DrainCheck,
    /// Why it cannot be removed; empty if it can.
    pub(crate) remove_obstacles: Vec<String>,
    /// Copies that would go with it if it were removed; none of them counts.
    pub(crate) remove_placements: u32,
    /// What declaring its data lost would come to, or why that cannot be done.
    pub(crate) loss: LossCheck,
    pub(crate) hosts: Vec<Hosted>,
}

/// A copy of a partition on a described node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Hosted {
    pub(crate) table: String,
    pub(crate) partition: u16,
    pub(crate) placement: u64,
    pub(crate) state: String,
    pub(crate) leads: bool,
}

/// `archon kv get -o json` and one element of `archon kv scan -o json`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Entry {
    pub(crate) key: String,
    /// The value, if it is UTF-8; else `value_hex` has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) value_hex: Option<String>,
    pub(crate) revision: u64,
}

/// Whether a move has ended, well or not.
pub(crate) fn is_over(migration: &Migration) -> bool {
    migration.phase == "Done" || is_undone(migration)
}

/// Whether a move ended without reaching its goal.
pub(crate) fn is_undone(migration: &Migration) -> bool {
    matches!(migration.phase.as_str(), "Cancelled" | "Failed") || is_superseded(migration)
}

/// Whether a move was given up because the cluster changed meanwhile and it had lost its point.
pub(crate) fn is_superseded(migration: &Migration) -> bool {
    migration.phase == "Superseded"
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_client::{CoordinatorStatus as Coordinator, Move, RebalanceSummary, ReplicaSummary, Unmet};
    use serde_json::{Value, json};

    fn keys(value: &Value) -> Vec<&str> {
        value.as_object().unwrap().keys().map(String::as_str).collect()
    }

    /// The fields that DESIGN.md promises to scripts.
    #[test]
    fn promised_fields_are_there() {
        let status = Status {
            cluster_id: "c".into(),
            leader: Some(1),
            term: 2,
            coordinators: vec![Coordinator {
                id: 1,
                address: "a".into(),
                role: "leader".into(),
                entries_behind: None,
                lack: None,
            }],
            table_version: 3,
            nodes_live: 4,
            nodes_failed: 0,
            nodes_min: 3,
            partitions: 9,
            partitions_online: 9,
            partitions_under_replicated: 0,
            copies_condemned: 0,
            migrations_running: 0,
            reasons: vec![],
        };
        let status = serde_json::to_value(status).unwrap();
        for field in [
            "cluster_id",
            "leader",
            "term",
            "coordinators",
            "table_version",
            "nodes_live",
            "nodes_failed",
            "partitions",
            "partitions_online",
            "partitions_under_replicated",
            "copies_condemned",
            "migrations_running",
        ] {
            assert!(keys(&status).contains(&field), "{field}");
        }
        assert_eq!(status["coordinators"][0]["role"], json!("leader"));
    }

    #[test]
    fn promised_fields_of_lists_are_there() {
        let partition = Partition {
            table: "default".into(),
            id: 4,
            epoch: 2,
            version: 40,
            status: "Online".into(),
            leader: Some("athens".into()),
            replicas: vec![ReplicaSummary { node: "athens".into(), placement: 9, state: "Live".into() }],
        };
        assert_eq!(
            serde_json::to_value(partition).unwrap(),
            json!({"table": "default", "id": 4, "epoch": 2, "version": 40, "status": "Online", "leader": "athens",
                   "replicas": [{"node": "athens", "placement": 9, "state": "Live"}]})
        );
        let migration = Migration {
            partition: 7,
            from: "athens".into(),
            to: "ephesus".into(),
            phase: "Copying".into(),
            percent: 40,
            why: String::new(),
            id: 1,
            table_id: 1,
            bytes_done: 4,
            bytes_total: 10,
            leadership: false,
        };
        let rebalance = serde_json::to_value(Rebalance {
            running: true,
            summary: RebalanceSummary::default(),
            migrations: vec![migration],
        })
        .unwrap();
        assert_eq!(rebalance["running"], json!(true));
        for field in ["partition", "from", "to", "phase", "percent", "why"] {
            assert!(keys(&rebalance["migrations"][0]).contains(&field), "{field}");
        }
    }

    #[test]
    fn a_plan_survives_its_file() {
        let plan = Plan {
            table_version: 41,
            moves_version: 40,
            moves: vec![Move {
                table_id: 1,
                from_id: 2,
                to_id: 5,
                leadership: false,
                partition: 7,
                from: "athens".into(),
                to: "ephesus".into(),
                bytes: 1024,
                reason: "athens has 3, the share is 2".into(),
            }],
            unmet: vec![Unmet { code: "Zones".into(), subject: "partition 1/2".into(), message: "one zone".into() }],
        };
        let text = serde_json::to_string(&plan).unwrap();
        assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), plan);
        assert_eq!(
            serde_json::to_value(&plan).unwrap()["moves"][0],
            json!({"partition": 7, "from": "athens", "to": "ephesus", "bytes": 1024,
                   "reason": "athens has 3, the share is 2", "table_id": 1, "from_id": 2, "to_id": 5, "leadership": false})
        );
    }

    #[test]
    fn a_described_node_is_flat() {
        let node = Node {
            id: 1,
            name: "athens".into(),
            address: "127.0.0.1:1".into(),
            status: "Live".into(),
            goal: "Serve".into(),
            incarnation: 5,
            partitions: 3,
            leaders: 3,
            zone: None,
            weight: 100,
            bytes_stored: Some(0),
            keys: Some(0),
            operations_per_second: Some(0),
            silent_ms: Some(0),
            disk_full: false,
            partitions_max: None,
            since_ms: 0,
        };
        let found = serde_json::to_value(NodeDescription {
            node,
            drain: DrainCheck::default(),
            remove_obstacles: vec![],
            remove_placements: 0,
            loss: LossCheck::default(),
            hosts: vec![],
        })
        .unwrap();
        for field in ["id", "name", "address", "status", "incarnation", "partitions", "leaders", "zone", "hosts"] {
            assert!(keys(&found).contains(&field), "{field}");
        }
    }
}

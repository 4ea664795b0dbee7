//! Subjects of reasons, events and unmet goals, and causes of changes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;

/// A node by number and name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, JsonSchema)]
pub struct NodeName {
    /// The node's number.
    pub node_id: u64,
    /// The node's name.
    pub node: String,
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.node)
    }
}

/// Object of a reason, an event or an order.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Subject {
    /// The cluster as a whole.
    Cluster,
    /// All coordinators together.
    Coordinators,
    /// Replicas of several partitions.
    Copies,
    /// The current or last rebalance.
    Rebalance,
    /// A coordinator.
    Coordinator {
        /// The coordinator's number.
        coordinator_id: u64,
    },
    /// A node.
    Node {
        /// The node's number.
        node_id: u64,
        /// The node's name.
        node: String,
    },
    /// A table.
    Table {
        /// The table's number.
        table_id: u64,
        /// The table's name.
        table: String,
    },
    /// A partition.
    Partition {
        /// The table's number.
        table_id: u64,
        /// The table's name.
        table: String,
        /// The partition's number within its table.
        partition: u32,
    },
    /// A kind of object that this program does not know, from a newer coordinator.
    #[serde(other)]
    Unknown,
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster => f.write_str("cluster"),
            Self::Coordinators => f.write_str("coordinators"),
            Self::Copies => f.write_str("replicas"),
            Self::Rebalance => f.write_str("rebalance"),
            Self::Coordinator { coordinator_id } => write!(f, "coordinator {coordinator_id}"),
            Self::Node { node, .. } => write!(f, "node {node}"),
            Self::Table { table, .. } => write!(f, "table {table}"),
            Self::Partition { table, partition, .. } => write!(f, "partition {table}/{partition}"),
            Self::Unknown => f.write_str("something newer than this program"),
        }
    }
}

/// Originator of a change.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Cause {
    /// A coordinator's own decision.
    Coordinator {
        /// The coordinator's number.
        coordinator_id: u64,
    },
    /// A node, by registering or reporting.
    Node {
        /// The node's number; null of one that registers for the first time.
        node_id: Option<u64>,
        /// The node's name.
        node: String,
    },
    /// A person or script.
    Admin {
        /// Who that is, as its certificate says: `admin/alice`; null without TLS, when nobody knows.
        admin: Option<String>,
        /// The IP address that it came from.
        from: IpAddr,
        /// The coordinator through which it asked, at a console: `coordinator/2`; absent if it asked the leading coordinator itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        via: Option<String>,
    },
    /// A kind of originator that this program does not know, from a newer coordinator.
    #[serde(other)]
    Unknown,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Coordinator { coordinator_id } => write!(f, "coordinator {coordinator_id}"),
            Self::Node { node, .. } => f.write_str(node),
            Self::Admin { admin: Some(admin), .. } => f.write_str(admin),
            Self::Admin { admin: None, from, .. } => write!(f, "operator at {from}"),
            Self::Unknown => f.write_str("?"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn subject_has_number_and_name() {
        let partition = Subject::Partition { table_id: 3, table: "orders".into(), partition: 7 };
        let written = json!({"kind": "partition", "table_id": 3, "table": "orders", "partition": 7});
        assert_eq!(serde_json::to_value(&partition).unwrap(), written);
        assert_eq!(serde_json::from_value::<Subject>(written).unwrap(), partition);
        assert_eq!(partition.to_string(), "partition orders/7");
    }

    #[test]
    fn caller_without_certificate_is_shown_by_address() {
        let admin = |admin: Option<&str>| Cause::Admin {
            admin: admin.map(str::to_owned),
            from: [10, 0, 0, 7].into(),
            via: None,
        };
        assert_eq!(admin(Some("admin/alice")).to_string(), "admin/alice");
        assert_eq!(admin(None).to_string(), "operator at 10.0.0.7");
        let written = json!({"kind": "admin", "admin": "admin/alice", "from": "10.0.0.7"});
        assert_eq!(serde_json::to_value(admin(Some("admin/alice"))).unwrap(), written);
    }

    #[test]
    fn subject_of_a_newer_program_is_accepted() {
        let newer = json!({"kind": "region", "region_id": 3});
        assert_eq!(serde_json::from_value::<Subject>(newer.clone()).unwrap(), Subject::Unknown);
        assert_eq!(serde_json::from_value::<Cause>(newer).unwrap(), Cause::Unknown);
    }
}

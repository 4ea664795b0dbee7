//! Orders about partitions and members, and the check of a whole cluster.

use crate::findings::Reason;
use crate::method::{Document, invalid};
use crate::partitions::PartitionName;
use archon_types::limits::{check_name, check_why};
use archon_types::subject::{Cause, Subject};
use archon_types::{DEFAULT_TABLE, ErrorDetail, OpenEnum, Severity};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;

/// Bounds of the duration of a maintenance, in milliseconds: 1 second to 30 days.
pub const MAINTENANCE_MS: RangeInclusive<u64> = 1_000..=30 * 24 * 3_600_000;
/// Default age, in milliseconds, from which an order may have been forgotten.
pub const HELD_FOR_MS: u64 = 24 * 60 * 60 * 1_000;

/// Conditions that need an operator's attention.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Check {
    /// Severity of the worst finding; `notice` if there is none.
    pub severity: OpenEnum<Severity>,
    /// The findings, the worst first.
    pub alerts: Vec<Reason>,
    /// True if the list was cut off.
    pub more: bool,
}

/// An exclusion in force.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct BarSummary {
    /// Number of the excluded member.
    pub node_id: u64,
    /// Name of the excluded member.
    pub node: String,
    /// Partition or table from which it is excluded.
    pub subject: Subject,
    /// The operator's reason; may be empty.
    pub why: String,
    /// The operator.
    pub by: Cause,
    /// Unix time in milliseconds.
    pub at_ms: u64,
}

impl Check {
    /// The worst of these, and all of them.
    pub fn of(alerts: Vec<Reason>, more: bool) -> Self {
        let worst = alerts.iter().map(|alert| alert.severity.known().unwrap_or(Severity::Alarm)).max();
        Self { severity: worst.unwrap_or(Severity::Notice).into(), alerts, more }
    }
}

/// Lists the conditions that need an operator's attention.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct CheckCluster {
    /// Alert on leases not extended for this many milliseconds, at least 1; absent: twice the failure time-out of each
    /// member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stale_after_ms: Option<u64>,
    /// Alert if fewer members take partitions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub members_min: Option<u32>,
    /// Counts the participants of this lease table; absent: nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub members_of: Option<String>,
    /// Warn about orders in force for this many milliseconds, at least 1.
    #[serde(default = "held_for_ms")]
    pub held_for_ms: u64,
}

const fn held_for_ms() -> u64 {
    HELD_FOR_MS
}

impl Default for CheckCluster {
    /// Leases by the timing of each member, any number of members, orders after a day.
    fn default() -> Self {
        Self { stale_after_ms: None, members_min: None, members_of: None, held_for_ms: HELD_FOR_MS }
    }
}

/// An order about a partition or a member.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct GiveOrder {
    /// The order.
    #[serde(flatten)]
    pub order: Order,
    /// The reason, for the events: up to 200 characters, or empty.
    #[serde(default)]
    pub why: String,
}

/// An order.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "order", rename_all = "snake_case")]
pub enum Order {
    /// Starts a new epoch with the same leader.
    Bump(PartitionName),
    /// Excludes a member from a partition or table.
    Bar(BarName),
    /// Lifts the exclusion instead.
    Unbar(BarName),
    /// Takes the partition offline: no leader; its replicas stay.
    Offline(PartitionName),
    /// Brings the partition back online.
    Online(PartitionName),
    /// Puts a member into maintenance: it leads nothing and keeps its replicas.
    Maintain {
        /// The member's name.
        node: String,
        /// Duration in milliseconds, from 1 second to 30 days.
        for_ms: u64,
    },
    /// The maintenance of a member ends.
    Resume {
        /// The member's name.
        node: String,
    },
}

/// A member, and the partition or table from which it is excluded.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct BarName {
    /// The member's name.
    pub node: String,
    /// The table's name.
    #[serde(default = "default_table")]
    pub table: String,
    /// The partition's number; absent: the whole table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<u32>,
}

/// The effect of an order.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct OrderGiven {
    /// False if the requested state was already in force.
    pub changed: bool,
    /// Number of partitions that a member in maintenance still leads, because no other member can take them.
    #[serde(default)]
    pub partitions_still_led: u32,
}

pub(crate) fn default_table() -> String {
    DEFAULT_TABLE.to_owned()
}

impl BarName {
    fn check(&self) -> Result<(), ErrorDetail> {
        check_name("node", &self.node)?;
        check_name("table", &self.table)
    }

    fn place_text(&self) -> String {
        let Self { table, partition, .. } = self;
        partition.map_or_else(|| format!("table {table}"), |index| format!("partition {table}/{index}"))
    }
}

impl Document for CheckCluster {
    fn check(&self) -> Result<(), ErrorDetail> {
        if self.held_for_ms == 0 {
            return Err(invalid("CheckCluster.held_for_ms", "0 ms; it must be at least 1"));
        }
        if self.stale_after_ms == Some(0) {
            return Err(invalid("CheckCluster.stale_after_ms", "0 ms; it must be at least 1, or absent"));
        }
        self.members_of.as_ref().map_or(Ok(()), |table| check_name("table", table))
    }
}

impl Document for GiveOrder {
    fn check(&self) -> Result<(), ErrorDetail> {
        check_why(&self.why)?;
        match &self.order {
            Order::Bump(name) | Order::Offline(name) | Order::Online(name) => name.check(),
            Order::Bar(name) | Order::Unbar(name) => name.check(),
            Order::Maintain { for_ms, .. } if !MAINTENANCE_MS.contains(for_ms) => {
                Err(invalid("GiveOrder.for_ms", format!("{for_ms} ms is not between 1 second and 30 days")))
            }
            Order::Maintain { node, .. } | Order::Resume { node } => check_name("node", node),
        }
    }

    fn subject(&self) -> String {
        match &self.order {
            Order::Bump(name) | Order::Offline(name) | Order::Online(name) => name.subject(),
            Order::Bar(BarName { node, .. })
            | Order::Unbar(BarName { node, .. })
            | Order::Maintain { node, .. }
            | Order::Resume { node } => format!("node {node}"),
        }
    }

    fn wanted(&self) -> Option<String> {
        let order = match &self.order {
            Order::Bump(_) => "bump".to_owned(),
            Order::Offline(_) => "offline".to_owned(),
            Order::Online(_) => "online".to_owned(),
            Order::Bar(name) => format!("bar from {}", name.place_text()),
            Order::Unbar(name) => format!("unbar from {}", name.place_text()),
            Order::Maintain { for_ms, .. } => format!("maintain for {for_ms} ms"),
            Order::Resume { .. } => "resume".to_owned(),
        };
        Some(if self.why.is_empty() { order } else { format!("{order}: {}", self.why) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(order: Order) -> GiveOrder {
        GiveOrder { order, why: "a bad disk".to_owned() }
    }

    #[test]
    fn orders_are_tagged_and_checked() {
        let read: GiveOrder = serde_json::from_str(r#"{"order": "bump", "partition": 3}"#).unwrap();
        assert_eq!(read.order, Order::Bump(PartitionName { table: DEFAULT_TABLE.to_owned(), partition: 3 }));
        assert_eq!(read.check(), Ok(()));
        assert!(GiveOrder { why: "x".repeat(201), ..read.clone() }.check().is_err());
        assert!(GiveOrder { why: "a\nb".into(), ..read }.check().is_err());
        assert!(with(Order::Resume { node: "a b".into() }).check().is_err());
        assert!(with(Order::Maintain { node: "athens".into(), for_ms: 999 }).check().is_err());
        assert!(with(Order::Maintain { node: "athens".into(), for_ms: 1_000 }).check().is_ok());
        let nobody = BarName { node: String::new(), table: "orders".into(), partition: None };
        assert!(with(Order::Bar(nobody)).check().is_err());
        assert!(serde_json::from_str::<GiveOrder>(r#"{"order": "melt", "node": "athens"}"#).is_err());
    }

    #[test]
    fn audit_names_the_member_and_the_bar() {
        let bar = with(Order::Bar(BarName { node: "athens".into(), table: "orders".into(), partition: Some(7) }));
        assert_eq!(bar.subject(), "node athens");
        assert_eq!(bar.wanted().as_deref(), Some("bar from partition orders/7: a bad disk"));
    }

    #[test]
    fn check_of_the_cluster_has_defaults_and_bounds() {
        let read: CheckCluster = serde_json::from_str("{}").unwrap();
        assert_eq!(read, CheckCluster::default());
        assert!(CheckCluster { held_for_ms: 0, ..read.clone() }.check().is_err());
        assert!(CheckCluster { stale_after_ms: Some(0), ..read.clone() }.check().is_err());
        assert!(CheckCluster { members_of: Some("a b".into()), ..read }.check().is_err());
    }
}

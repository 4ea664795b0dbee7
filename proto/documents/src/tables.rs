//! Tables: what they are, made, changed and dropped.

use crate::findings::Reason;
use crate::method::{Document, invalid, known, or_none};
use crate::partitions::RangeSummary;
use archon_types::limits::{MESSAGE_BYTES_MAX, REPLICAS_MAX, check_name};
use archon_types::subject::NodeName;
use archon_types::{
    ErrorDetail, KeyText, KeysBy, NodeStatus, OpenEnum, PartitionStatus, Partitioning, RangeLimits, Table, TableChange,
    TableContent,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One table.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct TableSummary {
    /// The table's number.
    #[serde(rename = "table_id")]
    pub id: u64,
    /// The table's name.
    #[serde(rename = "table")]
    pub name: String,
    /// Number of partitions.
    pub partitions_total: u32,
    /// Hashed keys or ranges.
    pub keys: OpenEnum<KeysBy>,
    /// Size of keys and values in bytes above which a partition is split automatically; null: never.
    pub split_above_bytes: Option<u64>,
    /// Operations per second above which a partition is split automatically; null: never.
    pub split_above_rate: Option<u64>,
    /// Total size in bytes up to which two neighbours are merged automatically; null: never.
    pub merge_below_bytes: Option<u64>,
    /// Number of replicas of each partition.
    pub replication: u32,
    /// Data or leases.
    pub holds: OpenEnum<TableContent>,
    /// Log index of its last change.
    pub version: u64,
}

/// Effect of dropping a table.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct TableCheck {
    /// The table.
    #[serde(flatten)]
    pub table: TableSummary,
    /// Number of replicas on all nodes.
    pub copies_deleted: u32,
    /// Bytes of all replicas, as reported by the nodes.
    pub bytes_deleted: u64,
    /// Number of nodes that hold replicas.
    pub nodes_holding: u32,
    /// Nodes among these that are not alive, at most 20: they delete their replicas when they return.
    pub nodes_away: Vec<NodeName>,
}

impl TableSummary {
    /// A table with the number of its partitions.
    pub fn new(table: &Table, partitions_total: u32) -> Self {
        let RangeLimits { split_above_bytes, split_above_rate, merge_below_bytes } = table.keys.limits();
        Self {
            id: table.id.get(),
            name: table.name.clone(),
            partitions_total,
            keys: table.keys.by().into(),
            split_above_bytes,
            split_above_rate,
            merge_below_bytes,
            replication: table.replication.into(),
            holds: table.holds.into(),
            version: table.version.get(),
        }
    }
}

/// Lists the tables.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct ListTables {}

/// Tables.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Tables {
    /// The tables.
    pub tables: Vec<TableSummary>,
}

/// Creates a table.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct CreateTable {
    /// Name.
    pub table: String,
    /// Number of hash partitions; absent for a range table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partitions: Option<u32>,
    /// The first key of each range but the first, in order of bytes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub split_at: Vec<KeyText>,
    /// Limits for automatic splits and merges of ranges.
    #[serde(default)]
    pub limits: RangeLimits,
    /// Number of replicas of each partition, 1 to 7; 1 for a lease table.
    pub replication: u8,
    /// Data or leases.
    pub holds: OpenEnum<TableContent>,
}

/// Changes a table; absent values stay as they are.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct AlterTable {
    /// Name.
    pub table: String,
    /// The change.
    #[serde(flatten)]
    pub change: TableChange,
}

/// A table after a change.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct TableAltered {
    /// The table as it is now.
    pub table: TableSummary,
    /// False if the requested state was already in force.
    pub changed: bool,
}

/// Computes the effect of dropping a table.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct CheckTable {
    /// Name.
    pub table: String,
}

/// Describes one table.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct DescribeTable {
    /// Name.
    pub table: String,
    /// Includes every partition.
    #[serde(default)]
    pub partitions: bool,
}

/// All details of one table.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct TableDescription {
    /// The table.
    #[serde(flatten)]
    pub table: TableSummary,
    /// Number of partitions with a serving leader or owner.
    pub partitions_online: u32,
    /// Number of partitions that have a leader or owner.
    pub partitions_led: u32,
    /// Number of partitions with fewer in-sync replicas than required; 0 for a lease table.
    pub partitions_under_replicated: u32,
    /// Number of replicas required for all partitions; 0 for a lease table.
    pub copies_wanted: u32,
    /// Number of replicas on nodes, in sync or not; 0 for a lease table.
    pub copies_held: u32,
    /// Number of in-sync replicas; 0 for a lease table.
    pub copies_in_sync: u32,
    /// Bytes of all leading replicas, as far as known: the size of the data.
    pub bytes_led: u64,
    /// Bytes of all replicas, as far as known.
    pub bytes_stored: u64,
    /// Number of running moves.
    pub moves_running: u32,
    /// Number of running splits and merges.
    pub reshapings_running: u32,
    /// Nodes with replicas, or participants that own partitions of a lease table; sorted by name.
    pub holders: Vec<TableHolder>,
    /// Conditions of the table, its partitions and its holders that need attention, worst first, at most 100.
    pub alerts: Vec<Reason>,
    /// True if there are more alerts than listed.
    #[serde(default)]
    pub alerts_more: bool,
    /// All partitions, if requested; sorted by number, or by key in a range table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partitions: Option<Vec<TablePartition>>,
}

/// The share of a node or participant in one table.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct TableHolder {
    /// The node's number.
    pub node_id: u64,
    /// The node's name.
    pub node: String,
    /// State of the node, as seen by the coordinators.
    pub node_status: OpenEnum<NodeStatus>,
    /// Number of partitions it leads, or owns in a lease table.
    pub partitions_led: u32,
    /// Number of replicas it holds; 0 in a lease table.
    pub copies_held: u32,
    /// Number of in-sync replicas among these.
    pub copies_in_sync: u32,
    /// Bytes of its replicas, as far as known.
    pub bytes_stored: u64,
}

/// A partition of a described table.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct TablePartition {
    /// The partition's number within its table.
    #[serde(rename = "partition")]
    pub id: u32,
    /// Range of its keys, in a range table.
    pub range: Option<RangeSummary>,
    /// Its status.
    pub status: OpenEnum<PartitionStatus>,
    /// Epoch of its leadership; rises with each one.
    pub epoch: u64,
    /// Number of the leader, or of the owner in a lease table, if there is one.
    pub leader_id: Option<u64>,
    /// Name of the leader, or of the owner in a lease table, if there is one.
    pub leader: Option<String>,
    /// Number of replicas on nodes, in sync or not; 0 for a lease table.
    pub copies_held: u32,
    /// Number of in-sync replicas; 0 for a lease table.
    pub copies_in_sync: u32,
    /// Bytes of the leading replica, as far as known.
    pub bytes_led: u64,
}

/// Drops a table with all its data.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct DropTable {
    /// Name.
    pub table: String,
    /// Its number, as it was checked: a later table of that name is not dropped.
    pub table_id: u64,
}

/// A table was dropped.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct TableDropped {
    /// Number of replicas that nodes delete.
    pub copies_deleted: u32,
}

impl CreateTable {
    /// A request for a table with these partitions.
    pub fn new(table: &str, partitioning: Partitioning, replication: u8, holds: TableContent) -> Self {
        let (partitions, split_at, limits) = match partitioning {
            Partitioning::Hash { partitions } => (Some(partitions), Vec::new(), RangeLimits::NONE),
            Partitioning::Range { split_at, limits } => (None, split_at.into_iter().map(KeyText).collect(), limits),
        };
        Self { table: table.to_owned(), partitions, split_at, limits, replication, holds: holds.into() }
    }

    /// The partitions that it begins with.
    pub fn partitioning(&self) -> Partitioning {
        match self.partitions {
            Some(partitions) => Partitioning::Hash { partitions },
            None => {
                let split_at = self.split_at.iter().map(|key| key.0.clone()).collect();
                Partitioning::Range { split_at, limits: self.limits }
            }
        }
    }

    /// Data or leases.
    ///
    /// # Errors
    /// `InvalidArgument`, if this version does not know it.
    pub fn holds(&self) -> Result<TableContent, ErrorDetail> {
        known(&self.holds, "CreateTable.holds")
    }
}

fn check_replication(field: &str, copies: u8) -> Result<(), ErrorDetail> {
    match copies {
        1..=REPLICAS_MAX => Ok(()),
        _ => Err(invalid(field, format!("a table has 1 to {REPLICAS_MAX} replicas, not {copies}"))),
    }
}

impl Document for ListTables {}

impl Document for CreateTable {
    /// Split keys take room.
    const BYTES_MAX: usize = MESSAGE_BYTES_MAX;

    fn check(&self) -> Result<(), ErrorDetail> {
        check_name("table", &self.table)?;
        if self.partitions.is_some() && (!self.split_at.is_empty() || self.limits.is_set()) {
            return Err(invalid("CreateTable.split_at", "only a table by ranges is split at keys"));
        }
        self.partitioning().check()?;
        check_replication("CreateTable.replication", self.replication)?;
        self.holds().map(drop)
    }

    fn subject(&self) -> String {
        subject(&self.table)
    }

    fn wanted(&self) -> Option<String> {
        let partitions = match self.partitions {
            Some(count) => format!("{count} partitions"),
            None => format!("{} ranges", self.split_at.len().saturating_add(1)),
        };
        Some(format!("{partitions}, {} replicas of each", self.replication))
    }
}

impl Document for AlterTable {
    fn check(&self) -> Result<(), ErrorDetail> {
        check_name("table", &self.table)?;
        self.change.replication.map_or(Ok(()), |copies| check_replication("AlterTable.replication", copies))?;
        self.change.limits().check()
    }

    fn subject(&self) -> String {
        subject(&self.table)
    }

    fn wanted(&self) -> Option<String> {
        let TableChange { replication, split_above_bytes, split_above_rate, merge_below_bytes } = self.change;
        let limits = [
            ("replication", replication.map(|copies| copies.to_string())),
            ("split_above_bytes", split_above_bytes.map(or_none)),
            ("split_above_rate", split_above_rate.map(or_none)),
            ("merge_below_bytes", merge_below_bytes.map(or_none)),
        ];
        let texts = limits.into_iter().filter_map(|(name, value)| Some(format!("{name}={}", value?)));
        Some(texts.collect::<Vec<_>>().join(" "))
    }
}

impl Document for CheckTable {
    fn check(&self) -> Result<(), ErrorDetail> {
        check_name("table", &self.table)
    }
}

impl Document for DescribeTable {
    fn check(&self) -> Result<(), ErrorDetail> {
        check_name("table", &self.table)
    }
}

impl Document for DropTable {
    fn check(&self) -> Result<(), ErrorDetail> {
        check_name("table", &self.table)?;
        match self.table_id {
            0 => Err(invalid("DropTable.table_id", "no table has the number 0; ask for the table's number first")),
            _ => Ok(()),
        }
    }

    fn subject(&self) -> String {
        subject(&self.table)
    }

    fn wanted(&self) -> Option<String> {
        Some(format!("number {}", self.table_id))
    }
}

fn subject(table: &str) -> String {
    format!("table {table}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn create_table_is_checked() {
        let hash = Partitioning::Hash { partitions: 16_384 };
        let good = CreateTable::new("orders", hash, 3, TableContent::Data);
        assert_eq!(good.check(), Ok(()));
        assert_eq!(good.wanted().as_deref(), Some("16384 partitions, 3 replicas of each"));
        let keys = |keys: &[&'static str]| keys.iter().map(|key| KeyText((*key).into())).collect::<Vec<_>>();
        let dust = RangeLimits { split_above_bytes: Some(1), ..RangeLimits::NONE };
        for wrong in [
            CreateTable { table: String::new(), ..good.clone() },
            CreateTable { partitions: Some(0), ..good.clone() },
            CreateTable { partitions: None, split_at: keys(&["b", "a"]), ..good.clone() },
            CreateTable { partitions: None, limits: dust, ..good.clone() },
            CreateTable { split_at: keys(&["m"]), ..good.clone() },
            CreateTable { replication: 8, ..good.clone() },
            CreateTable { holds: OpenEnum::read("dust"), ..good.clone() },
        ] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
        let ranges = Partitioning::Range { split_at: vec!["m".into()], limits: RangeLimits::NONE };
        let request = CreateTable::new("orders", ranges.clone(), 1, TableContent::Data);
        assert_eq!((request.check(), request.partitioning()), (Ok(()), ranges));
    }

    #[test]
    fn altered_limits_keep_absent_and_null_apart() {
        let read = |text: &str| serde_json::from_str::<AlterTable>(text).unwrap();
        let request = read(r#"{"table": "orders", "replication": 3, "split_above_rate": null}"#);
        let change = TableChange { replication: Some(3), split_above_rate: Some(None), ..TableChange::default() };
        assert_eq!((request.check(), request.change), (Ok(()), change));
        assert_eq!(request.wanted().as_deref(), Some("replication=3 split_above_rate=none"));
        assert!(read(r#"{"table": "orders", "replication": 8}"#).check().is_err());
        assert!(read(r#"{"table": "a b"}"#).check().is_err());
        assert!(DropTable { table: "orders".into(), table_id: 0 }.check().is_err());
    }
}

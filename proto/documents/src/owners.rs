//! Owners of partitions, for callers that route by key.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Owners of a table's partitions.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct TableOwners {
    /// Name of the table.
    pub table: String,
    /// Number of the table; a table of the same name that is created later has another one.
    pub table_id: u64,
    /// Version of the newest change in it. Versions of a table only rise.
    pub version: u64,
    /// Set if every partition is listed: earlier owners are void. Otherwise only those that may have changed.
    pub complete: bool,
    /// Partitions in the order of their numbers.
    pub partitions: Vec<PartitionOwner>,
}

/// A partition and its owner.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PartitionOwner {
    /// Number of the partition.
    pub partition: u32,
    /// Owner as reported by the coordinators; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<OwnerAddress>,
}

/// Owner of a key's partition.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Whereabouts {
    /// Name of the table.
    pub table: String,
    /// Number of the partition.
    pub partition: u32,
    /// Owner as reported by the coordinators; absent without one. It may have changed since: the called service checks
    /// its ownership.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<OwnerAddress>,
}

/// Owner of a partition, as reported by the coordinators. It may have changed since: the called service checks its
/// ownership.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct OwnerAddress {
    /// Name of the participant; of the leading node, in a table with rows.
    pub participant: String,
    /// Address of its service.
    pub address: String,
    /// Epoch of the ownership.
    pub epoch: u64,
    /// Set once it serves the partition; before that, it may be acquiring it.
    pub serves: bool,
}

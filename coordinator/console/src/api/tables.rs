//! Operations on tables.

use super::asker::Asker;
use super::extract::{Body, Path, Query};
use super::paths::TablePath;
use crate::error::ApiError;
use archon_client::documents::{TableDescription, TableDropped};
use archon_client::{ErrorKind, KeyText, RangeLimits, TableCheck, TableSummary};
use axum::Json;
use schemars::JsonSchema;
use serde::Deserialize;

/// Default number of copies of each partition.
const REPLICATION_DEFAULT: u8 = 3;

/// A table to create.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewTable {
    /// Name of the table.
    name: String,
    /// Kind of the table.
    kind: Kind,
    /// Number of partitions, 1 to 16,384; not for a range table.
    partitions: Option<u32>,
    /// Number of replicas of each partition, 1 to 7; default: 3. Not for a lease table.
    replication: Option<u8>,
    /// Initial split keys of a range table.
    #[serde(default)]
    split_at: Vec<KeyText>,
    /// Size in bytes above which a range is split automatically; at least 1 MiB.
    split_above_bytes: Option<u64>,
    /// Operations per second above which a range is split automatically; at least 100.
    split_above_rate: Option<u64>,
    /// Total size in bytes up to which two neighbouring ranges are merged automatically; at most 16 MiB.
    merge_below_bytes: Option<u64>,
}

/// Kind of a table.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Kind {
    /// Rows with hashed keys.
    Hash,
    /// Rows with ordered keys.
    Range,
    /// Leases for the partitions of a service.
    Lease,
}

impl NewTable {
    fn limits(&self) -> RangeLimits {
        RangeLimits {
            split_above_bytes: self.split_above_bytes,
            split_above_rate: self.split_above_rate,
            merge_below_bytes: self.merge_below_bytes,
        }
    }

    /// Rejects options that the kind of table does not support.
    fn check(&self) -> Result<(), ApiError> {
        let ranged = !self.split_at.is_empty() || self.limits().is_set();
        let wrong = match self.kind {
            Kind::Hash | Kind::Lease if ranged => "only a table of kind range has split keys and limits",
            Kind::Range if self.partitions.is_some() => "a range table has no number of partitions: give split_at",
            Kind::Lease if self.replication.is_some() => "a lease table has no replicas and no replication",
            Kind::Hash | Kind::Lease if self.partitions.is_none() => "give the number of partitions",
            _ => return Ok(()),
        };
        Err(ApiError::new(ErrorKind::InvalidArgument, wrong))
    }
}

/// Number of the table, because its name may belong to a newer table.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TableNumber {
    /// The table's number, as returned by `GET`.
    table_id: u64,
}

pub(crate) async fn list(asker: Asker) -> Result<Json<Vec<TableSummary>>, ApiError> {
    Ok(Json(asker.reader("ListTables")?.list_tables().await?))
}

pub(crate) async fn check(asker: Asker, Path(named): Path<TablePath>) -> Result<Json<TableCheck>, ApiError> {
    Ok(Json(asker.admin("CheckTable")?.check_table(&named.table).await?))
}

/// Parts of a table's description.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DescribedParts {
    /// Every partition; up to 16,384 of them, so absent means not.
    #[serde(default)]
    partitions: bool,
}

pub(crate) async fn describe(
    asker: Asker,
    Path(named): Path<TablePath>,
    Query(parts): Query<DescribedParts>,
) -> Result<Json<TableDescription>, ApiError> {
    Ok(Json(asker.reader("DescribeTable")?.describe_table(&named.table, parts.partitions).await?))
}

pub(crate) async fn create(asker: Asker, body: Body<NewTable>) -> Result<Json<TableSummary>, ApiError> {
    let (admin, table) = (asker.admin("CreateTable")?, body.read_large().await?);
    table.check()?;
    let (name, partitions) = (&table.name, table.partitions.unwrap_or_default());
    let replication = table.replication.unwrap_or(REPLICATION_DEFAULT);
    let made = match table.kind {
        Kind::Hash => admin.create_table(name, partitions, replication).await?,
        Kind::Range => {
            let split_at = table.split_at.iter().map(|key| key.0.clone()).collect();
            admin.create_range_table(name, split_at, table.limits(), replication).await?
        }
        Kind::Lease => admin.create_lease_table(name, partitions).await?,
    };
    Ok(Json(made))
}

pub(crate) async fn drop_table(
    asker: Asker,
    Path(named): Path<TablePath>,
    Query(meant): Query<TableNumber>,
) -> Result<Json<TableDropped>, ApiError> {
    let admin = asker.admin("DropTable")?;
    if meant.table_id == 0 {
        return Err(ApiError::new(ErrorKind::InvalidArgument, "no table has the number 0"));
    }
    Ok(Json(TableDropped { copies_deleted: admin.drop_table(&named.table, meant.table_id).await? }))
}

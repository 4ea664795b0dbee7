//! Operations on partitions.

use super::asker::Asker;
use super::extract::{Body, Path};
use super::nodes::EmptyObject;
use super::paths::{KeyPath, TablePath};
use crate::error::ApiError;
use archon_client::{
    ErrorKind, KeyLocation, KeyText, PartitionDescription, PartitionMerge, PartitionSplit, PartitionSummary,
};
use axum::Json;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Maximum time for which a caller waits for the search of a split key. The search continues, and a later call gets
/// its result.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(20);

/// Partition of the operation.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct PartitionPath {
    /// The table's name.
    table: String,
    /// The partition's number within its table.
    number: u32,
}

/// Reason for an order.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct OrderReason {
    /// Reason, shown in the events; up to 200 characters.
    #[serde(default)]
    why: String,
}

/// Split key.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SplitAt {
    /// First key of the new partition; default: the key that halves its bytes.
    at: Option<KeyText>,
    /// Only reports the effect.
    #[serde(default)]
    dry_run: bool,
}

/// Partition of the order.
#[derive(Serialize, JsonSchema)]
pub(crate) struct PartitionOrdered {
    /// The table's name.
    table: String,
    /// The partition's number within its table.
    partition: u32,
}

pub(crate) async fn list(asker: Asker, Path(named): Path<TablePath>) -> Result<Json<Vec<PartitionSummary>>, ApiError> {
    // Every client may read the owners.
    asker.may("/archon.v1.Admin/DescribePartition")?;
    Ok(Json(asker.shared().cluster.admin.table(&named.table).await?))
}

pub(crate) async fn describe(
    asker: Asker,
    Path(named): Path<PartitionPath>,
) -> Result<Json<PartitionDescription>, ApiError> {
    Ok(Json(asker.reader("DescribePartition")?.describe_partition(&named.table, named.number).await?))
}

pub(crate) async fn locate(asker: Asker, Path(keyed): Path<KeyPath>) -> Result<Json<KeyLocation>, ApiError> {
    asker.may("/archon.v1.Admin/DescribePartition")?;
    Ok(Json(asker.shared().cluster.admin.locate(&keyed.table, &keyed.key).await?))
}

pub(crate) async fn bump(
    asker: Asker,
    Path(named): Path<PartitionPath>,
    body: Body<OrderReason>,
) -> Result<Json<PartitionOrdered>, ApiError> {
    let (admin, reasoned) = (asker.admin("Order")?, body.read().await?);
    admin.bump(&named.table, named.number, &reasoned.why).await?;
    Ok(Json(PartitionOrdered { table: named.table, partition: named.number }))
}

pub(crate) async fn split(
    asker: Asker,
    Path(named): Path<PartitionPath>,
    body: Body<SplitAt>,
) -> Result<Json<PartitionSplit>, ApiError> {
    let (admin, split) = (asker.admin("SplitPartition")?, body.read().await?);
    let at = split.at.as_ref().map(AsRef::as_ref);
    let splitting = admin.split_partition(&named.table, named.number, at, split.dry_run);
    let searching = |_| {
        let why = "the search of the split key is still running; repeat the request, or give a key";
        ApiError::new(ErrorKind::Unavailable, why)
    };
    Ok(Json(tokio::time::timeout(SEARCH_TIMEOUT, splitting).await.map_err(searching)??))
}

pub(crate) async fn merge(
    asker: Asker,
    Path(named): Path<PartitionPath>,
    body: Body<EmptyObject>,
) -> Result<Json<PartitionMerge>, ApiError> {
    let (admin, EmptyObject {}) = (asker.admin("MergePartition")?, body.read().await?);
    Ok(Json(admin.merge_partition(&named.table, named.number, false).await?))
}

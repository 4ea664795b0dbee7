//! Owners of partitions, for callers of services that own them.

use super::asker::Asker;
use super::extract::Path;
use super::paths::{KeyPath, TablePath};
use crate::error::ApiError;
use archon_client::documents::{TableOwners, Whereabouts};
use archon_client::{ErrorKind, NoPosition, OwnersPosition, Routes};
use archon_types::limits::check_key;
use axum::Json;
use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures::Stream;
use std::convert::Infallible;
use std::time::Duration;

/// Interval of comments in a watch without changes, so that either side notices a dead connection.
const COMMENT_EVERY: Duration = Duration::from_secs(10);
/// Call with the same right: every certificate may read the owners of leases.
const CALL: &str = "/archon.v1.Table/GetTable";
/// Call of those who may know which tables exist.
const READERS_CALL: &str = "/archon.v1.Admin/DescribePartition";

/// Returns the owners of a lease table.
///
/// # Errors
/// The caller may not read them. A caller who may not list the tables gets the same error for a table with rows, and
/// for one that does not exist.
async fn routes(asker: &Asker, table: &str) -> Result<Routes, ApiError> {
    asker.may(CALL)?;
    let found = asker.shared().cluster.routes(table).await;
    match found {
        Ok(routes) if routes.is_lease() => Ok(routes),
        Ok(_) => {
            asker.may(READERS_CALL)?;
            let why = format!("table {table} has rows, and nodes lead its partitions: see /api/v1/partitions/{table}");
            Err(ApiError::new(ErrorKind::InvalidArgument, why))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            asker.may(READERS_CALL)?;
            Err(error.into())
        }
        Err(error) => Err(error.into()),
    }
}

pub(crate) async fn list(asker: Asker, Path(named): Path<TablePath>) -> Result<Json<TableOwners>, ApiError> {
    Ok(Json(routes(&asker, &named.table).await?.watch().read_all()?))
}

/// Returns the owner of a key's partition.
pub(crate) async fn find(asker: Asker, Path(keyed): Path<KeyPath>) -> Result<Json<Whereabouts>, ApiError> {
    let routes = routes(&asker, &keyed.table).await?;
    check_key(keyed.key.as_ref()).map_err(|detail| ApiError::new(detail.kind, detail.message))?;
    Ok(Json(routes.whereabouts(&keyed.key)?))
}

/// Streams the owners of a table: all of them, or those that have changed after the event in `Last-Event-ID`. Ends when
/// the table is dropped.
pub(crate) async fn watch(
    asker: Asker,
    Path(named): Path<TablePath>,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, ApiError> {
    let routes = routes(&asker, &named.table).await?;
    let cluster = &asker.shared().cluster;
    let place = cluster.watches.enter(asker.caller());
    let place =
        place.map_err(|detail| ApiError::overloaded(&detail, "use the console of another coordinator, or an agent"))?;
    let mut watch = routes.watch();
    if let Some(id) = headers.get("last-event-id") {
        let position = String::from_utf8_lossy(id.as_bytes()).parse().map_err(|error: NoPosition| {
            ApiError::new(ErrorKind::InvalidArgument, format!("the header Last-Event-ID: {error}"))
        })?;
        watch.resume(position);
    }
    let stop = asker.shared().stop.clone();
    let events = futures::stream::unfold((watch, place, stop), |(mut watch, place, stop)| async move {
        let owners = stop.run_until_cancelled(watch.next()).await??;
        let id = OwnersPosition::from(&owners).to_string();
        // The document holds text and numbers only, so it has a form in JSON, of one line.
        let data = serde_json::to_string(&owners).unwrap_or_default();
        Some((Ok(Event::default().id(id).event("owners").data(data)), (watch, place, stop)))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(COMMENT_EVERY)))
}

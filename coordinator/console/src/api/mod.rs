//! The HTTP interface: `GET` reads, `POST`, `PUT` and `DELETE` change. Answers have the format of `archon … -o json`.

mod access;
mod asker;
pub(crate) mod body_room;
mod cluster;
pub(crate) mod console_state;
mod extract;
mod key_path;
mod nodes;
mod operation;
mod operations;
mod owners;
mod partitions;
mod paths;
mod rebalance;
mod rows;
mod scan_query;
mod tables;

use crate::api::body_room::BodyRoom;
use crate::api::console_state::ConsoleState;
use crate::cluster::Cluster;
use crate::error::ApiError;
use crate::{feed, guard, page};
use archon_client::{ErrorKind, trace};
use axum::body::{Body, to_bytes};
use axum::extract::{MatchedPath, Request, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderName, HeaderValue, Method};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use extract::UnreadBody;
use operations::Operations;
pub(crate) use rebalance::MOVES_MAX;
use serde_json::Value;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Builds the router of a console.
pub(crate) fn router(cluster: Arc<Cluster>, stop: CancellationToken) -> Router {
    let shared = ConsoleState { cluster, stop, bodies: BodyRoom::default() };
    let (operations, description) = operations().into_parts();
    let described = move || async move { Json(description) };
    let api = operations
        .route("/api/v1/openapi.json", get(described))
        .route("/api/v1/feed", get(feed::serve))
        .route("/api/v1/owners/{table}/watch", get(owners::watch));
    let all = api.merge(page::router()).fallback(unknown).method_not_allowed_fallback(other_method);
    all.layer(from_fn_with_state(shared.clone(), check_origin))
        .layer(from_fn(end_line))
        .layer(from_fn(traced))
        .with_state(shared)
}

/// Returns the OpenAPI 3.1 description of the interface.
pub fn description() -> Value {
    operations().into_parts().1
}

fn operations() -> Operations {
    Operations::new()
        .get("/status", "Returns an overview of the cluster", cluster::status)
        .get("/quorum", "Returns the quorum as seen by each coordinator", cluster::quorum)
        .get("/events", "Lists the newest events, newest last", cluster::events)
        .get("/settings", "Returns the settings of the cluster", cluster::settings)
        .get("/access", "Lists rights and revoked certificates", access::list)
        .post("/access/grant", "Grants a right", access::grant)
        .post("/access/revoke", "Revokes a right", access::revoke)
        .get("/nodes", "Lists nodes and participants", nodes::list)
        .get("/nodes/{name}", "Returns a node and the effects of possible operations", nodes::check)
        .post("/nodes/{name}/{order}", "Drains, undrains, cordons or uncordons a node", nodes::order)
        .get("/tables", "Lists the tables", tables::list)
        .post("/tables", "Creates a table", tables::create)
        .get("/tables/{table}", "Returns a table and the effect of dropping it", tables::check)
        .get(
            "/tables/{table}/description",
            "Returns all details of a table; with `partitions=true` also its partitions",
            tables::describe,
        )
        .delete("/tables/{table}", "Drops a table with all its data", tables::drop_table)
        .get("/partitions/{table}", "Lists the partitions of a table", partitions::list)
        .get("/partitions/{table}/{number}", "Returns all details of a partition", partitions::describe)
        .post("/partitions/{table}/{number}/bump", "Starts a new epoch of a partition", partitions::bump)
        .post("/partitions/{table}/{number}/split", "Splits a partition", partitions::split)
        .post("/partitions/{table}/{number}/merge", "Merges a partition with its right neighbour", partitions::merge)
        .get("/locate/{table}/{key}", "Returns the partition of a key", partitions::locate)
        .get("/owners/{table}", "Returns the owners of a table's partitions", owners::list)
        .get("/owners/{table}/where/{key}", "Returns the owner of a key's partition", owners::find)
        .get("/rebalance", "Returns the current or last rebalance with its moves", rebalance::status)
        .get("/rebalance/plan", "Computes a plan; changes nothing", rebalance::plan)
        .post("/rebalance/apply", "Applies a plan", rebalance::apply)
        .post("/rebalance/cancel", "Cancels the running rebalance", rebalance::cancel)
        .get("/rows/{table}", "Lists rows in key order", rows::scan)
        .get("/rows/{table}/{key}", "Returns the value of a key, with its revision as the ETag", rows::get)
        .put("/rows/{table}/{key}", "Writes a key, on the condition in the headers", rows::put)
        .delete("/rows/{table}/{key}", "Deletes a key", rows::delete)
        .post("/rows/{table}/{key}/increment", "Adds to the integer of a key", rows::increment)
}

/// Continues the trace of the caller. The span has the pattern of the path, which contains no keys.
async fn traced(request: Request, next: Next) -> Response {
    let Some(caller) = trace::of_header(request.headers()) else { return next.run(request).await };
    let pattern = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str);
    let method = format!("{} {pattern}", request.method());
    trace::RequestSpan::begin(caller, "console", &method).finish(next.run(request)).await
}

/// Ends a JSON document with a line break, so that the prompt of a shell does not stick to it.
async fn end_line(request: Request, next: Next) -> Response {
    let is_head = request.method() == Method::HEAD;
    let response = next.run(request).await;
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    if is_head || !kind.is_some_and(|kind| kind.starts_with("application/json")) {
        return response;
    }
    let (mut head, body) = response.into_parts();
    // Documents are completely in memory already.
    match to_bytes(body, usize::MAX).await {
        Ok(document) => {
            head.headers.remove(CONTENT_LENGTH);
            Response::from_parts(head, Body::from([&document[..], b"\n"].concat()))
        }
        Err(error) => ApiError::new(ErrorKind::Internal, error.to_string()).into_response(),
    }
}

/// Checks the origin of every request first, and sets headers of every response.
async fn check_origin(State(shared): State<ConsoleState>, request: Request, next: Next) -> Response {
    let checked = guard::check_origin(request.method(), request.uri(), request.headers(), shared.is_encrypted());
    // Handlers read the body after they have authorized the caller; its room is held until they have answered.
    let (mut parts, body) = request.into_parts();
    let body = UnreadBody::new(body);
    let mut response = match checked {
        Ok(()) => {
            parts.extensions.insert(body.clone());
            next.run(Request::from_parts(parts, axum::body::Body::empty())).await
        }
        Err(error) => error.into_response(),
    };
    body.skip().await;
    // Responses are only for their caller: other sites must not load them, and they must not be cached or run as
    // scripts.
    for (name, value) in [
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (CACHE_CONTROL, "no-store"),
    ] {
        response.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}

async fn other_method(request: Request) -> ApiError {
    let why = format!("{} does not support {}; see /api/v1/openapi.json", request.uri().path(), request.method());
    ApiError::new(ErrorKind::InvalidArgument, why).with_status(axum::http::StatusCode::METHOD_NOT_ALLOWED)
}

async fn unknown(request: Request) -> ApiError {
    let why = format!("{} does not exist; see /api/v1/openapi.json", request.uri().path());
    ApiError::new(ErrorKind::NotFound, why)
}

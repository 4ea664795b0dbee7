//! Operations on nodes and participants.

use super::asker::Asker;
use super::extract::{Body, Path};
use crate::error::ApiError;
use archon_client::{ErrorKind, NodeCheck, NodeGoal, NodeSummary};
use axum::Json;
use schemars::JsonSchema;
use serde::Deserialize;

/// Node of the operation.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct NodePath {
    /// The node's name.
    name: String,
}

/// Node and order.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct NodeOrderPath {
    /// The node's name.
    name: String,
    /// The order.
    order: Order,
}

/// Orders for a node.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Order {
    /// Hand over all replicas.
    Drain,
    /// Cancel the drain.
    Undrain,
    /// Keep existing replicas, receive no new ones.
    Cordon,
    /// Receive replicas again.
    Uncordon,
}

/// An object without fields.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EmptyObject {}

pub(crate) async fn list(asker: Asker) -> Result<Json<Vec<NodeSummary>>, ApiError> {
    Ok(Json(asker.reader("ListNodes")?.list_nodes().await?))
}

pub(crate) async fn check(asker: Asker, Path(node): Path<NodePath>) -> Result<Json<NodeCheck>, ApiError> {
    Ok(Json(asker.admin("CheckNode")?.check_node(&node.name).await?))
}

pub(crate) async fn order(
    asker: Asker,
    Path(asked): Path<NodeOrderPath>,
    body: Body<EmptyObject>,
) -> Result<Json<NodeCheck>, ApiError> {
    let admin = asker.admin("SetNode")?;
    let EmptyObject {} = body.read().await?;
    let found = admin.check_node(&asked.name).await?;
    let obstacles = &found.drain.obstacles;
    if matches!(asked.order, Order::Drain) && found.node.goal != NodeGoal::Drain && !obstacles.is_empty() {
        let why = format!("{} cannot be drained: {}", asked.name, obstacles.join("; "));
        return Err(ApiError::new(ErrorKind::Refused, why));
    }
    let goal = match (asked.order, found.node.goal.known()) {
        (Order::Drain, _) => NodeGoal::Drain,
        (Order::Cordon, _) => NodeGoal::Cordon,
        // Undo operations do not affect other goals.
        (Order::Undrain, Some(NodeGoal::Drain)) | (Order::Uncordon, Some(NodeGoal::Cordon)) => NodeGoal::Serve,
        (Order::Undrain | Order::Uncordon, Some(NodeGoal::Serve)) => return Ok(Json(found)),
        (Order::Undrain | Order::Uncordon, _) => {
            let why =
                format!("the goal of node {} is {}, so there is nothing to undo", asked.name, found.node.goal.as_str());
            return Err(ApiError::new(ErrorKind::Refused, why));
        }
    };
    admin.set_node(&asked.name, goal).await?;
    // The order is done, even if the new state cannot be read.
    let done = NodeCheck { node: NodeSummary { goal: goal.into(), ..found.node.clone() }, ..found };
    Ok(Json(admin.check_node(&asked.name).await.unwrap_or(done)))
}

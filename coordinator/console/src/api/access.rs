//! Operations on the rights of clients and participants.

use super::asker::Asker;
use super::extract::{Body, Query};
use crate::error::ApiError;
use archon_client::{AccessChanged, AccessSummary, ErrorKind, OpenEnum, Right};
use axum::Json;
use schemars::JsonSchema;
use serde::Deserialize;

/// Filter of the listed rights.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AccessFilter {
    /// Lists only rights of this client.
    client: Option<String>,
    /// Lists only rights for this table.
    table: Option<String>,
}

/// A right to grant or to revoke.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RightChange {
    /// The right; `write` includes `read`. `own` is a right of a participant to one lease table.
    right: OpenEnum<Right>,
    /// The name in the certificate of the client; of the participant if the right is `own`.
    client: Option<String>,
    /// Every client instead of one; every participant if the right is `own`.
    #[serde(default)]
    every_client: bool,
    /// The table's name.
    table: Option<String>,
    /// Every table instead of one.
    #[serde(default)]
    all_tables: bool,
    /// Highest weight that the participant may have in the table, 1 to 10,000; only to grant `own`. Absent: without a
    /// limit.
    weight_max: Option<u32>,
}

impl RightChange {
    /// Rejects a change that does not state its holder and its table explicitly: a forgotten name must not mean all
    /// of them.
    fn check(&self, revokes: bool) -> Result<Right, ApiError> {
        let invalid = |why: String| ApiError::new(ErrorKind::InvalidArgument, why);
        if self.client.is_some() == self.every_client {
            return Err(invalid("give either client or every_client".to_owned()));
        }
        if self.table.is_some() == self.all_tables {
            return Err(invalid("give either table or all_tables".to_owned()));
        }
        let right = self.right.known();
        if self.weight_max.is_some() && (revokes || right != Some(Right::Own)) {
            return Err(invalid("weight_max belongs to a grant of own: omit it".to_owned()));
        }
        right.ok_or_else(|| {
            invalid(format!(
                "{:?} is not a right; use {}",
                self.right.as_str(),
                Right::WORDS.join(
                    " or \
                                            "
                )
            ))
        })
    }
}

pub(crate) async fn list(asker: Asker, Query(filter): Query<AccessFilter>) -> Result<Json<AccessSummary>, ApiError> {
    Ok(Json(asker.reader("ListAccess")?.access(filter.client.as_deref(), filter.table.as_deref()).await?))
}

pub(crate) async fn grant(asker: Asker, body: Body<RightChange>) -> Result<Json<AccessChanged>, ApiError> {
    let (admin, change) = (asker.admin("SetAccess")?, body.read().await?);
    let right = change.check(false)?;
    let (client, table) = (change.client.as_deref(), change.table.as_deref());
    Ok(Json(match (change.weight_max, table) {
        (Some(weight_max), Some(table)) => admin.grant_own(client, table, weight_max).await?,
        (_, table) => admin.grant(right, client, table).await?,
    }))
}

pub(crate) async fn revoke(asker: Asker, body: Body<RightChange>) -> Result<Json<AccessChanged>, ApiError> {
    let (admin, change) = (asker.admin("SetAccess")?, body.read().await?);
    let right = change.check(true)?;
    Ok(Json(admin.revoke(right, change.client.as_deref(), change.table.as_deref()).await?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_of_weight_is_refused_where_it_would_be_ignored() {
        let change = |right: &str| -> RightChange {
            let json = format!(r#"{{"right":"{right}","client":"w1","table":"jobs","weight_max":100}}"#);
            serde_json::from_str(&json).unwrap()
        };
        assert_eq!(change("own").check(false).ok(), Some(Right::Own));
        for (right, revokes) in [("own", true), ("write", false), ("read", true)] {
            let error = change(right).check(revokes).expect_err(right);
            assert!(error.message().contains("omit it"), "{right}: {}", error.message());
        }
    }
}

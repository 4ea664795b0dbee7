//! Rights of clients (list, grant, revoke), and revocation of certificates.

use super::tables::table_of;
use crate::clock::wall_now;
use crate::service::admins::{Admins, NAMED_MAX, Result};
use crate::service::call::Call;
use crate::service::documents::answers;
use crate::service::findings::certificates;
use archon_coordinator_core::{
    AccessChange, ClusterState, Liveness, RefusedCertificates, check_access, check_withdrawal,
};
use archon_documents::{
    AccessChanged, AccessRight, AccessSummary, CertificatesWithdrawn, ListAccess, RevokeCertificates, SetAccess,
    WithdrawnCertificates,
};
use archon_security::Identity;
use archon_types::{ErrorDetail, ErrorKind, Millis, NodeId, OpenEnum, Right, Scope, TableId, WHENEVER};
use std::time::Duration;

/// Maximum wait of a call until nodes apply its change.
const TAKEN_WITHIN: Duration = Duration::from_secs(2);

answers! {
    ListAccess: access,
    SetAccess: set_access_of,
    RevokeCertificates: withdrawn,
}

impl Admins {
    /// Returns the rights of clients: all of them, those of one client, or those to one table.
    pub(in crate::service) async fn access(&self, asked: ListAccess, call: &Call<'_>) -> Result<AccessSummary> {
        self.view(call, |_, state| {
            let asked = scope(state, asked.client, asked.table.as_deref())?;
            let covers = |scope: &Scope| {
                let of_client = asked.client.is_none() || scope.client.is_none() || scope.client == asked.client;
                of_client && (asked.table.is_none() || scope.table.is_none() || scope.table == asked.table)
            };
            let rights = state.access.all().filter(|(scope, _)| covers(scope)).map(|(scope, right)| AccessRight {
                weight_max: state.access.weight_max(&scope),
                client: scope.client,
                table_id: scope.table.map(TableId::get),
                table: scope.table.map(|id| state.table_text(id)),
                may: right.into(),
            });
            let all = asked.table.is_none().then(|| state.refused_certificates()).into_iter().flatten();
            let of_client = |identity: &str| {
                asked.client.as_deref().is_none_or(|name| identity.strip_prefix("client/") == Some(name))
            };
            let refused = all.filter(|(identity, _)| of_client(identity));
            Ok(AccessSummary {
                access_version: state.access_version.get(),
                rights: rights.collect(),
                may: right_of(state, &asked),
                withdrawn: refused.map(|(identity, of)| refused_of(identity, of)).collect(),
            })
        })
        .await
    }

    /// Grants or revokes a right, and waits briefly until nodes apply the change.
    pub(super) async fn set_access_of(&self, asked: SetAccess, call: &Call<'_>) -> Result<AccessChanged> {
        let right = asked.right()?;
        let change = match (asked.revoke, asked.weight_max) {
            (true, _) => AccessChange::Revoke(right),
            (false, Some(weight_max)) => AccessChange::GrantOwn { weight_max },
            (false, None) => AccessChange::Grant(right),
        };
        let named = |state: &ClusterState| scope(state, asked.client.clone(), asked.table.as_deref());
        let decide = |state: &ClusterState, _: &Liveness| Ok(check_access(state, &named(state)?, change)?.ok_or(()));
        let changed = self.commit_unless(call, decide).await?.is_ok();
        let session = self.context().confirmed(call.within).await?;
        // This also applies without a change: the caller may repeat the call to learn which nodes are behind.
        let behind = session.until_access_is_known(TAKEN_WITHIN.min(call.within / 2)).await;
        session.quorum().replicated().read(|state| {
            let scope = named(state)?;
            let (nodes_behind, nodes_behind_count) = names(state, &behind);
            Ok(AccessChanged {
                changed,
                granted: state.access.granted(&scope).map(Into::into),
                weight_max: state.access.weight_max(&scope),
                may: right_of(state, &scope),
                access_version: state.access_version.get(),
                nodes_behind,
                nodes_behind_count,
                client: asked.client.clone(),
                table: asked.table.clone(),
            })
        })
    }

    /// Revokes certificates or readmits them, and waits briefly until nodes apply the change.
    pub(in crate::service) async fn withdrawn(
        &self,
        asked: RevokeCertificates,
        call: &Call<'_>,
    ) -> Result<CertificatesWithdrawn> {
        let RevokeCertificates { identity, begins_before_at_ms, readmit, force } = asked;
        let whose: Identity = identity.parse().map_err(|error: archon_security::IdentityError| {
            ErrorDetail::new(ErrorKind::InvalidArgument, error.to_string())
        })?;
        let keeps = begins_before_at_ms.is_some();
        let begins_before = (!readmit).then(|| begins_before_at_ms.map_or_else(wall_now, Millis::new));
        let session = self.context().confirmed(call.within).await?;
        let shown = {
            let (view, loads) = (session.quorum().view(), session.loads().lock().clone());
            let own = (view.id, self.context().transport.certificate());
            session.quorum().replicated().read(|state| certificates::shown(state, &loads, own, &view.voters))
        };
        let decide = |state: &ClusterState, _: &Liveness| {
            if let Some(moment) = begins_before {
                certificates::check_moment(moment, wall_now())?;
                let (voters, withdrawn) = (state.coordinators.voters(), state.access.withdrawn());
                certificates::check_majority_left(&shown, &voters, withdrawn, (&whose, moment))?;
            }
            if let (Some(moment), true) = (begins_before, keeps) {
                let refused = state.refused_certificates().remove(&identity).unwrap_or_default();
                let withdrawn = if refused.removed { Some(WHENEVER) } else { refused.begins_before };
                certificates::check_kept(&whose, moment, withdrawn)?;
            }
            if let (Some(moment), false) = (begins_before, force) {
                certificates::check_not_in_use(&shown, &whose, moment)?;
            }
            Ok(check_withdrawal(state, &identity, begins_before)?.ok_or(()))
        };
        let changed = self.commit_unless(call, decide).await?.is_ok();
        let behind = session.until_access_is_known(TAKEN_WITHIN.min(call.within / 2)).await;
        session.quorum().replicated().read(|state| {
            let refused = state.refused_certificates().remove(&identity);
            let (nodes_behind, nodes_behind_count) = names(state, &behind);
            Ok(CertificatesWithdrawn {
                changed,
                withdrawn_now: refused.map(|of| refused_of(identity.clone(), of)),
                access_version: state.access_version.get(),
                nodes_behind,
                nodes_behind_count,
                identity,
            })
        })
    }
}

/// Returns the names of the first nodes, and the number of all.
fn names(state: &ClusterState, nodes: &[NodeId]) -> (Vec<String>, u32) {
    let names = nodes.iter().take(NAMED_MAX).map(|node| state.node_name(*node)).collect();
    (names, u32::try_from(nodes.len()).unwrap_or(u32::MAX))
}

fn refused_of(identity: String, of: RefusedCertificates) -> WithdrawnCertificates {
    let RefusedCertificates { begins_before, removed } = of;
    WithdrawnCertificates { identity, begins_before_at_ms: begins_before.map(Millis::get), removed }
}

fn scope(state: &ClusterState, client: Option<String>, table: Option<&str>) -> Result<Scope> {
    let table = table.map(|name| table_of(state, name)).transpose()?.map(|table| table.id);
    Ok(Scope { client, table })
}

/// Returns the effective right of a client to a table by all grants, if both are named.
fn right_of(state: &ClusterState, asked: &Scope) -> Option<OpenEnum<Right>> {
    let Scope { client: Some(client), table: Some(table) } = asked else { return None };
    state.access.right(client, *table).map(Into::into)
}

//! Rights of clients: looked at, granted and taken back. Certificates that are withdrawn.

use super::admin::{Admins, NAMED_MAX, Result};
use super::admin_tables::table_of;
use super::call::Call;
use super::certificates;
use super::subjects;
use crate::clock::wall_now;
use archon_coordinator_core::{
    AccessChange, ClusterState, Liveness, RefusedCertificates, check_access, check_withdrawal,
};
use archon_proto::convert::access::{SetAccess, Withdraw, Withdrawal, check_names};
use archon_proto::v1;
use archon_security::Identity;
use archon_types::access::WHENEVER;
use archon_types::{ErrorDetail, ErrorKind, Millis, Right, Scope};
use std::time::Duration;

/// How long a call waits for nodes to go by what it changed.
const TAKEN_WITHIN: Duration = Duration::from_secs(2);

impl Admins {
    /// What clients may do, or one of them, or to one table.
    pub(super) async fn access(
        &self,
        request: v1::ListAccessRequest,
        within: Duration,
    ) -> Result<v1::ListAccessResponse> {
        check_names(request.client.as_deref(), request.table.as_deref())?;
        self.look(request.cluster.as_ref(), within, |_, state| {
            let asked = scope(state, request.client, request.table.as_deref())?;
            let covers = |scope: &Scope| {
                let of_client = asked.client.is_none() || scope.client.is_none() || scope.client == asked.client;
                of_client && (asked.table.is_none() || scope.table.is_none() || scope.table == asked.table)
            };
            let rights = state.access.all().filter(|(scope, _)| covers(scope)).map(|(scope, right)| v1::AccessRight {
                client: scope.client,
                table: scope.table.map(|id| v1::TableName { id: id.get(), name: subjects::table_name(state, id) }),
                right: right.as_str().to_owned(),
            });
            let all = asked.table.is_none().then(|| state.refused_certificates()).into_iter().flatten();
            let of_client = |identity: &str| {
                asked.client.as_deref().is_none_or(|name| identity.strip_prefix("client/") == Some(name))
            };
            let refused = all.filter(|(identity, _)| of_client(identity));
            Ok(v1::ListAccessResponse {
                version: state.access_version.get(),
                rights: rights.collect(),
                right: right_of(state, &asked),
                withdrawn: refused.map(|(identity, of)| refused_of(identity, of)).collect(),
            })
        })
        .await
    }

    /// Grants a right or takes one back, and waits a moment for nodes to go by it.
    pub(super) async fn set_access_of(
        &self,
        request: v1::SetAccessRequest,
        call: &Call<'_>,
    ) -> Result<v1::SetAccessResponse> {
        let cluster = request.cluster.clone();
        let SetAccess { request, client, table, right, revoke } = SetAccess::try_from(request)?;
        let change = if revoke { AccessChange::Revoke(right) } else { AccessChange::Grant(right) };
        let named = |state: &ClusterState| scope(state, client.clone(), table.as_deref());
        let decide = |state: &ClusterState, _: &Liveness| Ok(check_access(state, &named(state)?, change)?.ok_or(()));
        let changed = self.change_unless(cluster.as_ref(), request, call, decide).await?.is_ok();
        let session = self.context().confirmed(call.within).await?;
        // Also where nothing changed: whoever asks once more wants to know.
        let behind = session.until_access_is_known(TAKEN_WITHIN.min(call.within / 2)).await;
        session.quorum().replicated().read(|state| {
            let asked = named(state)?;
            Ok(v1::SetAccessResponse {
                version: state.access_version.get(),
                changed,
                granted: state.access.granted(&asked).map(word),
                right: right_of(state, &asked),
                nodes_behind: behind.iter().take(NAMED_MAX).map(|node| subjects::node_name(state, *node)).collect(),
                nodes_behind_count: u32::try_from(behind.len()).unwrap_or(u32::MAX),
            })
        })
    }
}

impl Admins {
    /// Withdraws certificates or has them count again, and waits a moment for nodes to go by it.
    pub(super) async fn withdrawn(
        &self,
        request: v1::WithdrawRequest,
        call: &Call<'_>,
    ) -> Result<v1::WithdrawResponse> {
        let cluster = request.cluster.clone();
        let Withdraw { request, identity, change, force } = Withdraw::try_from(request)?;
        let whose: Identity = identity.parse().map_err(|error: archon_security::IdentityError| {
            ErrorDetail::new(ErrorKind::InvalidArgument, error.to_string())
        })?;
        let keeps = matches!(change, Withdrawal::Before(_));
        let begins_before = match change {
            Withdrawal::BeforeNow => Some(wall_now()),
            Withdrawal::Before(moment) => Some(moment),
            Withdrawal::Readmit => None,
        };
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
        let changed = self.change_unless(cluster.as_ref(), request, call, decide).await?.is_ok();
        let behind = session.until_access_is_known(TAKEN_WITHIN.min(call.within / 2)).await;
        session.quorum().replicated().read(|state| {
            let refused = state.refused_certificates().remove(&identity);
            Ok(v1::WithdrawResponse {
                version: state.access_version.get(),
                changed,
                withdrawn: refused.map(|of| refused_of(identity, of)),
                nodes_behind: behind.iter().take(NAMED_MAX).map(|node| subjects::node_name(state, *node)).collect(),
                nodes_behind_count: u32::try_from(behind.len()).unwrap_or(u32::MAX),
            })
        })
    }
}

fn refused_of(identity: String, of: RefusedCertificates) -> v1::WithdrawnCertificates {
    let RefusedCertificates { begins_before, removed } = of;
    v1::WithdrawnCertificates { identity, begins_before_ms: begins_before.map(Millis::get), removed }
}

fn scope(state: &ClusterState, client: Option<String>, table: Option<&str>) -> Result<Scope> {
    let table = table.map(|name| table_of(state, name)).transpose()?.map(|table| table.id);
    Ok(Scope { client, table })
}

/// What a client may do to a table by all that is granted, if both are named.
fn right_of(state: &ClusterState, asked: &Scope) -> Option<String> {
    let Scope { client: Some(client), table: Some(table) } = asked else { return None };
    state.access.right(client, *table).map(word)
}

fn word(right: Right) -> String {
    right.as_str().to_owned()
}

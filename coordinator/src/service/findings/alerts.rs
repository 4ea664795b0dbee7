//! Findings of the whole cluster: `archon check`, `archon status` and `archon table describe` report the same ones.

use super::voters::{differing, of_other_histories, unreachable, without_changes};
use crate::clock::boot_now;
use crate::leader::session::Session;
use crate::service::admins::{Admins, Result};
use crate::service::call::Call;
use crate::service::documents::answers;
use crate::service::findings::disks::disks;
use crate::service::operator::tables::table_of;
use archon_coordinator_core::{
    ClusterState, LeaderView, Thresholds, alerts, list_findings, not_served, quorum_waits, upgrade_waits, waits,
};
use archon_documents::{Check, CheckCluster};
use archon_types::{ErrorDetail, Finding};
use std::sync::Arc;

/// Maximum number of alerts in an answer.
const ALERTS_MAX: usize = 200;
/// Maximum number of waits considered for alerts.
pub(crate) const WAITS_MAX: usize = 2_000;

answers! {
    CheckCluster: looked_over,
}

impl Admins {
    /// Returns the alerts, the worst first.
    pub(super) async fn looked_over(&self, asked: CheckCluster, call: &Call<'_>) -> Result<Check> {
        let recovers = |_: &Arc<Session>, state: &ClusterState, _: &LeaderView| state.recovery.is_some();
        let (recovers, found) = self.found(call, (asked, WAITS_MAX), recovers).await?;
        let (findings, more) = list_findings(found, recovers, ALERTS_MAX);
        Ok(Check::of(findings.into_iter().map(Into::into).collect(), more))
    }

    /// Returns all findings, with the result of `with` on the same state; `most`: maximum number of waits.
    pub(in crate::service) async fn found<T>(
        &self,
        call: &Call<'_>,
        (look, most): (CheckCluster, usize),
        with: impl FnOnce(&Arc<Session>, &ClusterState, &LeaderView) -> T,
    ) -> Result<(T, Vec<Finding>)> {
        let looked = self.view_back(call, |session, state, remembered| {
            let view = session.quorum().view();
            let mut found = quorum_waits(state);
            found.extend(without_changes(view.id, &view.voters));
            found.extend(differing(session.quorum()));
            found.extend(of_other_histories(session, state));
            found.extend(unreachable(&view.voters));
            let most = most.saturating_sub(found.len());
            found.extend(waits(state, remembered, &disks(session), most));
            found.extend(upgrade_waits(state, &view.coordinators_speak()));
            found.extend(self.certificates(session, state, &view));
            // Partitions that are not served come first.
            let mut not_served = not_served(state, remembered, boot_now());
            not_served.append(&mut found);
            Ok((not_served, session.clone(), with(session, state, remembered)))
        });
        let (mut found, session, made) = looked.await?;
        // Heartbeats need the leader's view, so its lock is not held during all of this.
        let term = session.term().lock();
        let alerts = session.quorum().replicated().read(|state| {
            let thresholds = thresholds(state, look)?;
            Ok::<_, ErrorDetail>(alerts(state, term.liveness(), boot_now(), thresholds))
        })?;
        found.extend(alerts);
        Ok((made, found))
    }
}

/// Reads the thresholds of a request.
fn thresholds(state: &ClusterState, look: CheckCluster) -> Result<Thresholds> {
    let CheckCluster { stale_after_ms, members_min, members_of, held_for_ms } = look;
    let of_table = |(table, least): (Option<String>, u32)| {
        let table = table.map(|name| table_of(state, &name).map(|table| table.id)).transpose()?;
        Ok::<_, ErrorDetail>((table, least))
    };
    let members_min = members_min.map(|least| of_table((members_of, least))).transpose()?;
    Ok(Thresholds { stale_after_ms, members_min, held_for_ms })
}

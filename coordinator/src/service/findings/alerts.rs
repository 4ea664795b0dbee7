//! Alerts and reasons of waits: `archon check` and `archon status` report the same ones.

use super::alert_texts::text;
use super::describe::reasons;
use super::folded::folded;
use super::voters::{differing, of_other_histories, unreachable, unsettled, without_changes};
use crate::clock::boot_now;
use crate::leader::session::Session;
use crate::service::admins::{Admins, Result};
use crate::service::call::Call;
use crate::service::documents::answers;
use crate::service::findings::disks::disks;
use crate::service::findings::found::{Found, REASONS_MAX};
use crate::service::operator::tables::table_of;
use crate::service::operator::upgrade;
use archon_coordinator_core::{Alert, ClusterState, Liveness, Remembered, Thresholds, alerts, not_served};
use archon_documents::{Alert as Finding, Check, CheckCluster, Reason};
use archon_types::{ErrorDetail, NodeGoal, ReasonCode, Severity};
use std::cmp::Reverse;
use std::sync::Arc;

/// Maximum number of alerts in an answer.
const ALERTS_MAX: usize = 200;

impl From<Found> for Finding {
    fn from(found: Found) -> Self {
        Self { severity: found.severity.into(), reason: found.reason }
    }
}

answers! {
    CheckCluster: looked_over,
}

impl Admins {
    /// Returns the alerts, the worst first.
    pub(super) async fn looked_over(&self, asked: CheckCluster, call: &Call<'_>) -> Result<Check> {
        let recovers = |_: &Arc<Session>, state: &ClusterState, _: &Remembered| state.recovery.is_some();
        let (recovers, found, _) = self.found(call, (asked, REASONS_MAX), recovers).await?;
        let (alerts, more) = listed(found, recovers, ALERTS_MAX);
        Ok(Check::of(alerts, more))
    }

    /// Returns all alerts, with the result of `with` on the same state, and what is intended there; `most`: maximum number
    /// of reasons of waits.
    pub(in crate::service) async fn found<T>(
        &self,
        call: &Call<'_>,
        (look, most): (CheckCluster, usize),
        with: impl FnOnce(&Arc<Session>, &ClusterState, &Remembered) -> T,
    ) -> Result<(T, Vec<Found>, Meant)> {
        let looked = self.view_back(call, |session, state, remembered| {
            let view = session.quorum().view();
            let mut waits: Vec<Reason> = unsettled(state);
            waits.extend(without_changes(view.id, &view.voters));
            waits.extend(differing(session.quorum()));
            waits.extend(of_other_histories(session, state));
            waits.extend(unreachable(&view.voters));
            let most = most.saturating_sub(waits.len());
            waits.extend(reasons(state, remembered, &disks(session), most));
            // Partitions that are not served come first.
            waits.extend(upgrade::reason(state, &view));
            waits.extend(self.certificates(session, state, &view));
            let not_served = not_served(state, remembered, boot_now()).iter().map(|alert| text(state, alert)).collect();
            Ok((waits, not_served, session.clone(), with(session, state, remembered)))
        });
        let (waits, not_served, session, made): (_, Vec<Reason>, _, _) = looked.await?;
        // Heartbeats need the leader's view, so its lock is not held during all of this.
        let term = session.term().lock();
        let (alerts, meant) = session.quorum().replicated().read(|state| {
            let found = alerts_of(state, term.liveness(), look)?;
            let meant = Meant { maintained: all_down_are_maintained(state), few_voters: few_voters_are_meant(&found) };
            Ok::<_, ErrorDetail>((found.iter().map(|alert| text(state, alert)).collect::<Vec<_>>(), meant))
        })?;
        let found = |waits| move |reason| meant.found(waits, reason);
        let served = waits.into_iter().map(found(true)).chain(alerts.into_iter().map(found(false)));
        Ok((made, not_served.into_iter().map(found(false)).chain(served).collect(), meant))
    }
}

/// Returns up to `most` findings, folded and the worst first, and whether there are more.
pub(in crate::service) fn listed(found: Vec<Found>, recovers: bool, most: usize) -> (Vec<Finding>, bool) {
    let mut found = folded(found, recovers);
    found.sort_by_key(|found| Reverse(found.severity));
    let more = found.len() > most;
    found.truncate(most);
    (found.into_iter().map(Into::into).collect(), more)
}

/// Returns the alerts beside partitions that are not served.
fn alerts_of(state: &ClusterState, liveness: &Liveness, look: CheckCluster) -> Result<Vec<Alert>> {
    let CheckCluster { stale_after_ms, members_min, members_of, held_for_ms } = look;
    let of_table = |(table, least): (Option<String>, u32)| {
        let table = table.map(|name| table_of(state, &name).map(|table| table.id)).transpose()?;
        Ok::<_, ErrorDetail>((table, least))
    };
    let members_min = members_min.map(|least| of_table((members_of, least))).transpose()?;
    Ok(alerts(state, liveness, boot_now(), Thresholds { stale_after_ms, members_min, held_for_ms }))
}

/// Returns true if every node that is down is in maintenance.
fn all_down_are_maintained(state: &ClusterState) -> bool {
    state.nodes.down().all(|row| row.node.goal == NodeGoal::Maintain)
}

/// Returns true if the quorum never had more voters than now: then its size is intended.
fn few_voters_are_meant(alerts: &[Alert]) -> bool {
    alerts.iter().any(|alert| matches!(alert, Alert::TooFewVoters { had_more: false, .. }))
}

/// Intended states that would be alerts elsewhere.
#[derive(Clone, Copy, Default)]
pub(in crate::service) struct Meant {
    /// Every node that is down is in maintenance.
    maintained: bool,
    /// There were never more voters.
    few_voters: bool,
}

impl Meant {
    /// Returns a finding with its severity here.
    pub(in crate::service) fn found(self, waits: bool, reason: Reason) -> Found {
        Found { severity: severity(&reason, self), waits, reason }
    }
}

/// Returns the severity of a reason. Missing replicas are intended if only the maintenance of their nodes causes them.
fn severity(reason: &Reason, meant: Meant) -> Severity {
    match reason.code.known() {
        Some(ReasonCode::UnderReplicated) if meant.maintained => Severity::Notice,
        Some(ReasonCode::TooFewVoters) if meant.few_voters => Severity::Notice,
        Some(code) => code.severity(),
        None => Severity::Alarm,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::findings::reason::reason_now;
    use archon_types::subject::Subject;

    fn found(code: ReasonCode, partition: u32, meant: Meant) -> Found {
        let subject = Subject::Partition { table_id: 1, table: "orders".into(), partition };
        meant.found(true, reason_now(code, subject, "m".to_owned(), ""))
    }

    #[test]
    fn listed_findings_are_folded_and_name_a_rest() {
        let of = |codes: &[ReasonCode]| {
            codes.iter().enumerate().map(|(at, code)| found(*code, at as u32, Meant::default())).collect::<Vec<_>>()
        };
        let (same, more) = listed(of(&[ReasonCode::NoLiveReplica; 9]), false, 2);
        assert_eq!((same.len(), more), (1, false), "{same:?}");
        let several = [ReasonCode::UnderReplicated, ReasonCode::TooFewVoters, ReasonCode::LogPinned];
        let (cut, more) = listed(of(&several), false, 2);
        assert_eq!((cut.len(), more), (2, true));
    }

    #[test]
    fn intended_states_are_notices() {
        let maintained = Meant { maintained: true, few_voters: false };
        assert_eq!(found(ReasonCode::UnderReplicated, 0, maintained).severity, Severity::Notice);
        assert_ne!(found(ReasonCode::UnderReplicated, 0, Meant::default()).severity, Severity::Notice);
    }
}

//! Metrics of an agent: counters, and the readings of a scrape.

use crate::protocol::ErrorKind;
use archon_telemetry::{Definition, Label, LabelledValues, Metric, metrics};
use std::time::Duration;

const ENDS: Label =
    Label { name: "reason", values: &["service_gone", "service_stops", "agent_stops", "cluster_refuses"] };
const KINDS: Label = Label { name: "kind", values: &ErrorKind::WORDS };

metrics! {
    /// Readings of an agent at one moment.
    #[derive(Debug)]
    pub struct AgentReadings {
        service_connected: bool = Definition::gauge("archon_agent_service_connected", "1 while the service is connected, otherwise 0");
        registered: bool = Definition::gauge("archon_agent_registered", "1 while the participant of a session is registered, otherwise 0");
        partitions: u64 = Definition::gauge("archon_agent_partitions", "partitions that the service has acquired, including those that it is releasing");
        permission_left: Duration = Definition::gauge("archon_agent_permission_left_seconds", "time until the last permission of the service ends; 0 without one");
        events: u64 = Definition::counter("archon_agent_events_total", "events for the service");
        events_unconfirmed: u64 = Definition::gauge("archon_agent_events_unconfirmed", "events that the service has not confirmed");
        sessions: u64 = Definition::counter("archon_agent_sessions_total", "sessions that have begun");
        sessions_ended: LabelledValues<u64> = Definition::counter("archon_agent_sessions_ended_total", "sessions that have ended; service_gone: the service sent no heartbeats or was not connected").by(&[ENDS]);
        requests_refused: LabelledValues<u64> = Definition::counter("archon_agent_requests_refused_total", "refused requests, by kind of error").by(&[KINDS]);
    }
}

/// Reason for the end of a session, in the order of the label's values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EndReason {
    ServiceGone,
    ServiceStops,
    AgentStops,
    ClusterRefuses,
}

/// Counters of an agent.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) sessions: Metric,
    /// Events of sessions that have ended.
    pub(crate) past_events: Metric,
    sessions_ended: [Metric; ENDS.values.len()],
    requests_refused: [Metric; ErrorKind::WORDS.len()],
}

impl Counters {
    /// Counts the end of a session.
    pub(crate) fn session_ended(&self, reason: EndReason) {
        self.sessions_ended[reason as usize].add(1);
    }

    /// Counts a refused request.
    pub(crate) fn request_refused(&self, kind: ErrorKind) {
        if let Some(count) = self.requests_refused.get(kind as usize) {
            count.add(1);
        }
    }

    /// Returns the ends of sessions by reason.
    pub(crate) fn ends(&self) -> LabelledValues<u64> {
        labelled(&ENDS, &self.sessions_ended)
    }

    /// Returns the refused requests by kind.
    pub(crate) fn refusals(&self) -> LabelledValues<u64> {
        labelled(&KINDS, &self.requests_refused)
    }
}

fn labelled(label: &Label, counts: &[Metric]) -> LabelledValues<u64> {
    label.values.iter().copied().zip(counts.iter().map(Metric::get)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_telemetry::Reading as _;

    #[test]
    fn counts_are_labelled_by_reason_and_kind() {
        let counters = Counters::default();
        counters.session_ended(EndReason::ClusterRefuses);
        counters.request_refused(ErrorKind::Unavailable);
        let series = |labelled: LabelledValues<u64>| labelled.series().pop().map(|last| last.labels);
        assert_eq!(series(counters.ends()), Some(vec!["cluster_refuses"]));
        let refusals = counters.refusals().series();
        assert_eq!(refusals.last().map(|last| last.value), Some(archon_telemetry::Value::Whole(1)));
        assert_eq!(refusals.len(), ErrorKind::Unavailable as usize + 1);
        for kind in KINDS.values {
            let known: ErrorKind = serde_json::from_value((*kind).into()).unwrap();
            assert_eq!(refusals[known as usize].labels, [*kind], "the order of the variants");
        }
    }
}

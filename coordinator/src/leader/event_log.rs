//! Copies committed events about nodes and losses into the leader's log, so that they are readable when the events
//! themselves, which need a quorum, are not.

use crate::statistics::metrics::Metrics;
use archon_coordinator_core::{ClusterState, Event, EventKind, recorded_event};
use archon_telemetry::Metric;
use archon_types::{EventCode, Severity};

/// Maximum number of events logged per turn: a node's loss may concern every partition.
const AT_ONCE_MAX: usize = 32;

/// Log entry up to which events were logged.
pub(crate) struct EventLog {
    logged: u64,
}

impl EventLog {
    /// Logs events committed after the ones in `state`.
    pub(crate) const fn new(state: &ClusterState) -> Self {
        Self { logged: state.applied }
    }

    /// Logs and counts the events since the last call.
    pub(crate) fn log(&mut self, state: &ClusterState, metrics: &Metrics) {
        let news = self.news(state);
        news.iter().filter_map(|event| counter(metrics, &event.what)).for_each(|counter| counter.add(1));
        let events = news.into_iter().map(|event| recorded_event(state, event));
        let events = events.filter(|event| !is_routine(event.facts.code()));
        for (place, event) in events.enumerate() {
            if place == AT_ONCE_MAX {
                tracing::warn!("too many events at once to log; see `archon events`");
                break;
            }
            let attention = event.facts.code().severity() > Severity::Notice;
            let archon_documents::Event { subject, by, index, message, .. } = event.into();
            if attention {
                tracing::warn!(%subject, %by, index, "{message}");
            } else {
                tracing::info!(%subject, %by, index, "{message}");
            }
        }
        self.logged = state.applied;
    }

    fn news<'a>(&self, state: &'a ClusterState) -> Vec<&'a Event> {
        let mut news: Vec<&Event> = state.events.iter().rev().take_while(|event| event.index > self.logged).collect();
        news.reverse();
        news
    }
}

/// Returns the counter of an event, if any.
const fn counter<'a>(metrics: &'a Metrics, what: &EventKind) -> Option<&'a Metric> {
    match what {
        EventKind::NodeUnreached { .. } => Some(&metrics.nodes_unreached),
        EventKind::SplitBegun { outgrown: Some(_), .. } => Some(&metrics.splits_automatic),
        EventKind::Parted { .. } => Some(&metrics.splits_done),
        EventKind::SplitAbandoned { .. } => Some(&metrics.splits_given_up),
        EventKind::MergeBegun { undersized_bytes: Some(_), .. } => Some(&metrics.merges_automatic),
        EventKind::Merged { .. } => Some(&metrics.merges_done),
        EventKind::MergeAbandoned { .. } => Some(&metrics.merges_given_up),
        _ => None,
    }
}

/// Returns true for routine events of single replicas and moves, which would fill a log.
const fn is_routine(code: EventCode) -> bool {
    matches!(code, EventCode::RepairStarted | EventCode::RepairDone | EventCode::CopyRetired | EventCode::MoveOver)
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_coordinator_core::Actor;
    use archon_types::{ExceededLimit, Incarnation, Millis, NodeId, PartitionId, TableId};

    #[test]
    fn node_failure_is_logged() {
        let mut state = ClusterState::new();
        let failed = EventKind::NodeFailed {
            node: NodeId::new(1),
            incarnation: Incarnation::new(1),
            leaderships: 3,
            handed_on: 2,
        };
        let event = |index| Event { at: Millis::ZERO, index, who: Actor::Coordinator(1), what: failed.clone() };
        state.events.push_back(event(4));
        state.applied = 5;
        let mut event_log = EventLog::new(&state);
        assert!(event_log.news(&state).is_empty(), "events that another leader logged are not logged again");
        state.events.extend([event(6), event(7)]);
        state.applied = 9;
        let indexes: Vec<u64> = event_log.news(&state).iter().map(|event| event.index).collect();
        assert_eq!(indexes, [6, 7]);
        event_log.log(&state, &Metrics::default());
        assert!(event_log.news(&state).is_empty());
    }

    #[test]
    fn splits_and_merges_are_counted_by_begin_and_end() {
        let mut state = ClusterState::new();
        let mut event_log = EventLog::new(&state);
        let metrics = Metrics::default();
        let [partition, right] = [0, 1].map(|index| PartitionId::new(TableId::new(2), index));
        let at = bytes::Bytes::from_static(b"m");
        let begun = |outgrown| EventKind::SplitBegun { partition, right, at: at.clone(), outgrown };
        let parted = EventKind::Parted { partition, right, at: at.clone(), leader: NodeId::new(1) };
        let given_up = EventKind::SplitAbandoned { partition, right, why: String::new() };
        let merge = |undersized_bytes| EventKind::MergeBegun { partition, right, undersized_bytes };
        let merged = EventKind::Merged { partition, right, at: at.clone() };
        let not_merged = EventKind::MergeAbandoned { partition, right, why: String::new() };
        let splits = [begun(None), begun(Some(ExceededLimit::Bytes(9))), parted.clone(), parted, given_up];
        let merges = [merge(None), merge(Some(9)), merge(Some(9)), not_merged.clone(), not_merged, merged];
        let happened = splits.into_iter().chain(merges);
        for (index, what) in (1..).zip(happened) {
            state.events.push_back(Event { at: Millis::ZERO, index, who: Actor::Coordinator(1), what });
            state.applied = index;
            event_log.log(&state, &metrics);
        }
        let splits = [&metrics.splits_automatic, &metrics.splits_done, &metrics.splits_given_up];
        assert_eq!(splits.map(Metric::get), [1, 2, 1]);
        let merges = [&metrics.merges_automatic, &metrics.merges_done, &metrics.merges_given_up];
        assert_eq!(merges.map(Metric::get), [2, 1, 2]);
    }
}

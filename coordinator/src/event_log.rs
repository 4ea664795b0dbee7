//! Tells in the leader's log what the quorum committed about nodes and losses, so that it can be read where the events
//! themselves, which need a quorum, cannot.

use crate::service::events;
use archon_coordinator_core::{ClusterState, Event, EventKind};
use archon_proto::convert::subject::{cause_of, subject_of};

/// Most events told of one turn: a node's loss may concern every partition.
const AT_ONCE_MAX: usize = 32;

/// Up to which log entry events were told.
pub(crate) struct EventLog {
    logged: u64,
}

/// How loudly an event is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Weight {
    /// Somebody should look.
    Alarm,
    /// Somebody may want to know.
    News,
}

impl EventLog {
    /// Tells what is committed after what `state` holds.
    pub(crate) const fn new(state: &ClusterState) -> Self {
        Self { logged: state.applied }
    }

    /// Tells what happened since.
    pub(crate) fn log(&mut self, state: &ClusterState) {
        let news = self.news(state).into_iter().filter_map(|event| Some((event, weight(&event.what)?)));
        for (place, (event, weight)) in news.enumerate() {
            if place == AT_ONCE_MAX {
                tracing::warn!("more happened at once than is told here; see `archon events`");
                break;
            }
            let said = events::event(state, event);
            let (subject, by, index, message) = (subject_of(said.subject), cause_of(said.by), said.index, said.message);
            match weight {
                Weight::Alarm => tracing::warn!(%subject, %by, index, "{message}"),
                Weight::News => tracing::info!(%subject, %by, index, "{message}"),
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

/// Events of nodes, losses and what an operator asked for; what happens to single partitions all day long is not told.
const fn weight(what: &EventKind) -> Option<Weight> {
    match what {
        EventKind::NodeFailed { .. }
        | EventKind::NodeLost { .. }
        | EventKind::NodeDeclaredLost { .. }
        | EventKind::CopyDamaged { .. }
        | EventKind::DataDisputed { .. }
        | EventKind::EpochSurpassed { .. }
        | EventKind::ReplicaLost { .. }
        | EventKind::TableDropped { .. }
        | EventKind::DataLossAccepted { .. } => Some(Weight::Alarm),
        EventKind::Bootstrapped
        | EventKind::NodeRegistered { .. }
        | EventKind::NodeReturned { .. }
        | EventKind::NodeRemoved { .. }
        | EventKind::NodeDraining { .. }
        | EventKind::NodeDrained { .. }
        | EventKind::GoalChanged { .. }
        | EventKind::TableCreated { .. }
        | EventKind::PlanStarted { .. }
        | EventKind::NodeAltered { .. }
        | EventKind::TableAltered { .. }
        | EventKind::SplitBegun { .. }
        | EventKind::SplitCut { .. }
        | EventKind::Parted { .. }
        | EventKind::SplitAbandoned { .. }
        | EventKind::SettingsChanged { .. }
        | EventKind::LeadershipBumped { .. }
        | EventKind::MemberBarred { .. }
        | EventKind::BarLifted { .. }
        | EventKind::PartitionOffline { .. }
        | EventKind::PartitionOnline { .. }
        | EventKind::MaintenanceBegun { .. }
        | EventKind::MaintenanceOver { .. }
        | EventKind::PlanCancelled { .. } => Some(Weight::News),
        EventKind::RepairStarted { .. }
        | EventKind::RepairDone { .. }
        | EventKind::CopyRetired { .. }
        | EventKind::MigrationOver { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_coordinator_core::Actor;
    use archon_types::{Incarnation, Millis, NodeId};

    #[test]
    fn a_nodes_failure_stood_only_in_the_events() {
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
        assert!(event_log.news(&state).is_empty(), "what another leader told is not told again");
        state.events.extend([event(6), event(7)]);
        state.applied = 9;
        let indexes: Vec<u64> = event_log.news(&state).iter().map(|event| event.index).collect();
        assert_eq!(indexes, [6, 7]);
        event_log.log(&state);
        assert!(event_log.news(&state).is_empty());
        assert_eq!(weight(&failed), Some(Weight::Alarm));
    }
}

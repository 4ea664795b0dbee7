//! Events as facts: code, cause, subject, and names in place of numbers.

use crate::state::ClusterState;
use crate::state::actor::Actor;
use crate::state::events::{Event, EventKind};
use archon_types::subject::Subject;
use archon_types::{EventFacts, ExceededLimit, KeyText, NodeId, PartitionId, RecordedEvent, TableId};

/// Returns an event with its facts. Names are those of `state`, unless the event has them.
pub fn recorded_event(state: &ClusterState, event: &Event) -> RecordedEvent {
    RecordedEvent {
        index: event.index,
        at: event.at,
        by: state.cause(&event.who),
        subject: subject(state, &event.what),
        facts: facts(state, event),
    }
}

/// Returns the object of an event. A removed node or dropped table has the name in the event.
fn subject(state: &ClusterState, kind: &EventKind) -> Subject {
    let named_node = |id: NodeId, name: &str| Subject::Node { node_id: id.get(), node: name.to_owned() };
    let named_table = |id: TableId, name: &str| Subject::Table { table_id: id.get(), table: name.to_owned() };
    match kind {
        EventKind::NodeRegistered { node, name, .. }
        | EventKind::NodeReturned { node, name, .. }
        | EventKind::NodeRemoved { node, name, .. } => named_node(*node, name),
        EventKind::NodeFailed { node, .. }
        | EventKind::NodeUnreached { node, .. }
        | EventKind::NodeReached { node, .. }
        | EventKind::NodeLost { node, .. }
        | EventKind::NodeDeclaredLost { node, .. }
        | EventKind::NodeDraining { node, .. }
        | EventKind::NodeDrained { node }
        | EventKind::GoalChanged { node, .. }
        | EventKind::NodeAltered { node, .. }
        | EventKind::MaintenanceBegun { member: node, .. }
        | EventKind::MaintenanceOver { member: node } => state.node_subject(*node),
        EventKind::CopyDamaged { partition, .. }
        | EventKind::DataDisputed { partition, .. }
        | EventKind::EpochSurpassed { partition, .. }
        | EventKind::ReplicaLost { partition, .. }
        | EventKind::RepairStarted { partition, .. }
        | EventKind::RepairDone { partition, .. }
        | EventKind::CopyRetired { partition, .. }
        | EventKind::LeadershipBumped { partition, .. }
        | EventKind::PartitionOffline { partition, .. }
        | EventKind::PartitionOnline { partition }
        | EventKind::SplitBegun { partition, .. }
        | EventKind::SplitCut { partition, .. }
        | EventKind::Parted { partition, .. }
        | EventKind::SplitAbandoned { partition, .. }
        | EventKind::MergeBegun { partition, .. }
        | EventKind::Merged { partition, .. }
        | EventKind::MergeAbandoned { partition, .. }
        | EventKind::MigrationOver { partition, .. }
        | EventKind::DataLossAccepted { partition, .. } => state.partition_subject(*partition),
        EventKind::MemberBarred { bar, .. } | EventKind::BarLifted { bar, .. } => state.bar_subject(*bar),
        EventKind::TableCreated { table, name }
        | EventKind::TableAltered { table, name, .. }
        | EventKind::TableDropped { table, name, .. }
        | EventKind::AccessChanged { table: Some((table, name)), .. } => named_table(*table, name),
        EventKind::Bootstrapped
        | EventKind::SettingsChanged { .. }
        | EventKind::AccessChanged { table: None, .. }
        | EventKind::CertificatesWithdrawn { .. }
        | EventKind::ProtocolRaised { .. }
        | EventKind::ProtocolHeld { .. } => Subject::Cluster,
        EventKind::QuorumChangeBegun { .. }
        | EventKind::QuorumChanged { .. }
        | EventKind::QuorumChangeCancelled { .. }
        | EventKind::RecoveryBegun { .. }
        | EventKind::RecoveryTookOver { .. }
        | EventKind::RecoverySettled { .. } => Subject::Coordinators,
        EventKind::PlanStarted { .. } | EventKind::PlanCancelled { .. } => Subject::Rebalance,
    }
}

/// Returns the code and the facts of an event.
fn facts(state: &ClusterState, event: &Event) -> EventFacts {
    let name = |id: &NodeId| state.node_name(*id);
    let number = |right: &PartitionId| right.index;
    match &event.what {
        EventKind::Bootstrapped => EventFacts::Bootstrapped {},
        EventKind::NodeRegistered { incarnation, .. } => EventFacts::NodeRegistered { incarnation: incarnation.get() },
        EventKind::NodeReturned { incarnation, .. } => EventFacts::NodeReturned { incarnation: incarnation.get() },
        EventKind::NodeFailed { node, incarnation, leaderships, handed_on } => EventFacts::NodeFailed {
            incarnation: incarnation.get(),
            // A stopping node reports that itself; a coordinator fails a silent one.
            stopped: event.who == Actor::Node(*node),
            leaderships_ended: *leaderships,
            leaderships_handed_on: *handed_on,
        },
        EventKind::NodeUnreached { by, since_ms, .. } => {
            EventFacts::NodeUnreached { shut_to: by.iter().map(name).collect(), unreached_for_ms: *since_ms }
        }
        EventKind::NodeReached { after_ms, .. } => EventFacts::NodeReached { unreached_for_ms: *after_ms },
        EventKind::NodeLost { .. } => EventFacts::NodeLost {},
        EventKind::NodeDeclaredLost { placements, last_copies, .. } => {
            EventFacts::NodeDeclaredLost { copies_discarded: *placements, partitions_lost: *last_copies }
        }
        EventKind::NodeRemoved { placements, .. } => EventFacts::NodeRemoved { copies_discarded: *placements },
        EventKind::NodeDraining { placements, .. } => EventFacts::NodeDraining { copies_held: *placements },
        EventKind::NodeDrained { .. } => EventFacts::NodeDrained {},
        EventKind::CopyDamaged { placement, node, why, .. } => {
            EventFacts::CopyDamaged { placement_id: placement.get(), node: name(node), why: why.clone() }
        }
        EventKind::DataDisputed { placement, node, epoch, leader, leader_node, commit, agreed, .. } => {
            EventFacts::DataDisputed {
                placement_id: placement.get(),
                node: name(node),
                committed: commit.get(),
                epoch: epoch.get(),
                leader_placement_id: leader.get(),
                leader: leader_node.as_ref().map(name),
                agreed: agreed.get(),
            }
        }
        EventKind::EpochSurpassed { granted, known, .. } => {
            EventFacts::EpochSurpassed { epoch: known.get(), epoch_granted: granted.get() }
        }
        EventKind::ReplicaLost { placement, node, why, .. } => {
            EventFacts::ReplicaLost { placement_id: placement.get(), node: name(node), why: why.clone() }
        }
        EventKind::RepairStarted { placement, node, why, .. } => {
            EventFacts::RepairStarted { placement_id: placement.get(), node: name(node), why: why.clone() }
        }
        EventKind::RepairDone { placement, node, .. } => {
            EventFacts::RepairDone { placement_id: placement.get(), node: name(node) }
        }
        EventKind::CopyRetired { placement, node, why, .. } => {
            EventFacts::CopyRetired { placement_id: placement.get(), node: name(node), why: why.clone() }
        }
        EventKind::GoalChanged { goal, .. } => EventFacts::GoalChanged { goal: (*goal).into() },
        EventKind::NodeAltered { before, after, .. } => {
            EventFacts::NodeAltered { before: before.clone(), after: after.clone() }
        }
        EventKind::LeadershipBumped { epoch, why, .. } => {
            EventFacts::LeadershipBumped { epoch: epoch.get(), why: why.clone() }
        }
        EventKind::MemberBarred { member, why, .. } => {
            EventFacts::MemberBarred { excluded: name(member), why: why.clone() }
        }
        EventKind::BarLifted { member, .. } => EventFacts::BarLifted { excluded: name(member) },
        EventKind::PartitionOffline { why, .. } => EventFacts::PartitionOffline { why: why.clone() },
        EventKind::PartitionOnline { .. } => EventFacts::PartitionOnline {},
        EventKind::MaintenanceBegun { until, why, .. } => {
            EventFacts::MaintenanceBegun { ends_at_ms: until.get(), why: why.clone() }
        }
        EventKind::MaintenanceOver { .. } => EventFacts::MaintenanceOver {},
        EventKind::TableCreated { .. } => EventFacts::TableCreated {},
        EventKind::TableAltered { before, after, .. } => EventFacts::TableAltered { before: *before, after: *after },
        EventKind::TableDropped { partitions, copies, moves, .. } => EventFacts::TableDropped {
            partitions_total: *partitions,
            copies_condemned: *copies,
            moves_abandoned: *moves,
        },
        EventKind::SplitBegun { right, at, outgrown, .. } => {
            let (outgrown_bytes, outgrown_rate) = match outgrown {
                Some(ExceededLimit::Bytes(bytes)) => (Some(*bytes), None),
                Some(ExceededLimit::Rate(rate)) => (None, Some(*rate)),
                None => (None, None),
            };
            EventFacts::SplitBegun { right: number(right), at: KeyText(at.clone()), outgrown_bytes, outgrown_rate }
        }
        EventKind::SplitCut { right, .. } => EventFacts::SplitCut { right: number(right) },
        EventKind::Parted { right, at, leader, .. } => {
            EventFacts::Parted { right: number(right), at: KeyText(at.clone()), leader: name(leader) }
        }
        EventKind::SplitAbandoned { right, why, .. } => {
            EventFacts::SplitAbandoned { right: number(right), why: why.clone() }
        }
        EventKind::MergeBegun { right, undersized_bytes, .. } => {
            EventFacts::MergeBegun { right: number(right), undersized_bytes: *undersized_bytes }
        }
        EventKind::Merged { right, at, .. } => EventFacts::Merged { right: number(right), at: KeyText(at.clone()) },
        EventKind::MergeAbandoned { right, why, .. } => {
            EventFacts::MergeAbandoned { right: number(right), why: why.clone() }
        }
        EventKind::SettingsChanged { changes } => {
            EventFacts::SettingsChanged { changes: changes.iter().map(|step| (*step).into()).collect() }
        }
        EventKind::AccessChanged { client, before, after, weight_max, .. } => EventFacts::AccessChanged {
            client: client.clone(),
            before: before.map(Into::into),
            after: after.map(Into::into),
            weight_max: *weight_max,
        },
        EventKind::CertificatesWithdrawn { identity, after, .. } => EventFacts::CertificatesWithdrawn {
            identity: identity.clone(),
            begin_before_at_ms: after.map(|after| after.get()),
        },
        EventKind::QuorumChangeBegun { wish } => EventFacts::QuorumChangeBegun { change: wish.to_string() },
        EventKind::QuorumChanged { wish, voters } => {
            EventFacts::QuorumChanged { change: wish.to_string(), voters: voters.iter().copied().collect() }
        }
        EventKind::QuorumChangeCancelled { wish } => EventFacts::QuorumChangeCancelled { change: wish.to_string() },
        EventKind::RecoveryBegun { generation, base } => {
            EventFacts::RecoveryBegun { generation: *generation, base_index: base.get() }
        }
        EventKind::RecoveryTookOver { generation, ordered } => {
            EventFacts::RecoveryTookOver { generation: *generation, ordered: *ordered }
        }
        EventKind::RecoverySettled { generation, behind } => {
            EventFacts::RecoverySettled { generation: *generation, changes_lost: *behind }
        }
        EventKind::ProtocolRaised { before, after } => EventFacts::ProtocolRaised { before: *before, after: *after },
        EventKind::ProtocolHeld { held } => EventFacts::ProtocolHeld { held: *held },
        EventKind::PlanStarted { moves } => EventFacts::PlanStarted { moves_total: *moves },
        EventKind::PlanCancelled { moves_left } => EventFacts::PlanCancelled { moves_left: *moves_left },
        EventKind::MigrationOver { migration, outcome, .. } => {
            EventFacts::MoveOver { move_id: migration.get(), outcome: outcome.clone() }
        }
        EventKind::DataLossAccepted { leader, retired, .. } => {
            EventFacts::DataLossAccepted { leader: leader.as_ref().map(name), copies_retired: *retired }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_types::subject::Cause;
    use archon_types::{Incarnation, Millis};

    fn event(who: Actor, what: EventKind) -> Event {
        Event { at: Millis::new(0), index: 1, who, what }
    }

    #[test]
    fn event_of_a_dropped_table_has_its_name() {
        let mut state = ClusterState::new();
        let table = TableId::new(14);
        let what = EventKind::TableDropped { table, name: "orders".to_owned(), partitions: 1, copies: 0, moves: 0 };
        let dropped = event(Actor::Coordinator(1), what);
        assert_eq!(recorded_event(&state, &dropped).subject.to_string(), "table orders");
        state.events.push_back(dropped);
        assert_eq!(state.partition_subject(PartitionId::new(table, 7)).to_string(), "partition orders/7");
        assert_eq!(state.partition_name(PartitionId::new(TableId::new(13), 7)), "13/7");
    }

    #[test]
    fn failure_reported_by_the_node_itself_is_a_stop() {
        let node = NodeId::new(5);
        let failed = EventKind::NodeFailed { node, incarnation: Incarnation::new(1), leaderships: 3, handed_on: 2 };
        for (who, by_itself) in [(Actor::Node(node), true), (Actor::Coordinator(1), false)] {
            let recorded = recorded_event(&ClusterState::new(), &event(who, failed.clone()));
            let EventFacts::NodeFailed { stopped, .. } = recorded.facts else { panic!("{recorded:?}") };
            assert_eq!(stopped, by_itself);
        }
    }

    #[test]
    fn removed_node_as_a_cause_is_its_number() {
        let cause: Cause = ClusterState::new().cause(&Actor::Node(NodeId::new(5)));
        assert_eq!(cause.to_string(), "node 5");
    }
}

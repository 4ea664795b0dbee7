//! Events for people and programs: code, cause and subject.

use crate::service::findings::bars;
use crate::service::findings::words::{because, numbers};
use archon_coordinator_core::{Actor, ClusterState, Event, EventKind};
use archon_documents::Event as Summary;
use archon_types::subject::{Cause, Subject};
use archon_types::{
    EventCode, NodeGoal, NodeId, PartitionId, Right, SettingStep, TableTraits, bytes_text, grantee_text, shown_key,
    weight_limit_text,
};

/// Returns the cause of an event.
pub(in crate::service) fn cause(state: &ClusterState, who: &Actor) -> Cause {
    match who {
        Actor::Coordinator(id) => Cause::Coordinator { coordinator_id: *id },
        Actor::Node(id) => Cause::Node { node_id: Some(id.get()), node: state.node_name(*id) },
        Actor::Newcomer(name) => Cause::Node { node_id: None, node: name.clone() },
        Actor::Admin { identity, from, via } => Cause::Admin { admin: identity.clone(), from: *from, via: via.clone() },
    }
}

/// Returns an event for people.
pub(crate) fn event(state: &ClusterState, event: &Event) -> Summary {
    let by = cause(state, &event.who);
    // Uses the name at that time: the state may no longer contain it.
    let named = |id: &NodeId, name: &str| Subject::Node { node_id: id.get(), node: name.to_owned() };
    let node = |id: &NodeId| state.node_subject(*id);
    let of = |partition: &PartitionId| state.partition_subject(*partition);
    let (message, subject) = match &event.what {
        EventKind::Bootstrapped => ("bootstrapped".to_owned(), Subject::Cluster),
        EventKind::NodeRegistered { node: id, name, incarnation } => {
            (format!("registered in incarnation {incarnation}"), named(id, name))
        }
        EventKind::NodeReturned { node: id, name, incarnation } => {
            (format!("returned in incarnation {incarnation}"), named(id, name))
        }
        EventKind::NodeFailed { node: id, incarnation, leaderships, handed_on } => (
            format!(
                "{} in incarnation {incarnation}; {leaderships} leaderships ended, {handed_on} handed on",
                // A stopping node reports that itself; a coordinator fails a silent one.
                if event.who == Actor::Node(*id) { "stopped" } else { "failed" }
            ),
            node(id),
        ),
        EventKind::NodeUnreached { node: id, by, since_ms } => {
            let by: Vec<String> = by.iter().map(|keeper| state.node_name(*keeper)).collect();
            let what = format!(
                "sends heartbeats, but was unreachable to {1} for {0}; other nodes took over its leaderships",
                lasts_text(*since_ms),
                by.join(" and ")
            );
            (what, node(id))
        }
        EventKind::NodeReached { node: id, after_ms } => {
            (format!("is reachable again, after {}", lasts_text(*after_ms)), node(id))
        }
        EventKind::NodeLost { node: id, by: _ } => {
            ("lost its data: a new data directory took over its name".to_owned(), node(id))
        }
        EventKind::NodeDeclaredLost { node: id, placements, last_copies } => (
            format!("declared lost; {placements} copies discarded, {last_copies} of them the last of their partition"),
            node(id),
        ),
        EventKind::NodeRemoved { node: id, name, placements: 0 } => ("removed".to_owned(), named(id, name)),
        EventKind::NodeRemoved { node: id, name, placements } => {
            (format!("removed with {placements} copies that were not in sync"), named(id, name))
        }
        EventKind::NodeDraining { node: id, placements } => {
            (format!("is being drained of {placements} copies"), node(id))
        }
        EventKind::NodeDrained { node: id } => ("drained: it holds no copies".to_owned(), node(id)),
        EventKind::CopyDamaged { partition, placement, node, why } => (
            format!("placement {placement} on {} is damaged and left the in-sync set: {why}", state.node_name(*node)),
            of(partition),
        ),
        EventKind::DataDisputed { partition, placement, node, epoch, leader, leader_node, commit, agreed } => {
            let on = leader_node.map_or_else(String::new, |id| format!(" on {}", state.node_name(id)));
            let text = format!(
                "placement {placement} on {} knows entry {commit} as committed, which placement {leader}{on}, leader \
                 of epoch {epoch}, lacks (they agree up to {agreed} at most): one of them lost data; keep both data \
                 directories and compare them",
                state.node_name(*node)
            );
            (text, of(partition))
        }
        EventKind::EpochSurpassed { partition, granted, known } => (
            format!(
                "a copy knew epoch {known}, but only {granted} had been granted; the next leader uses a higher one"
            ),
            of(partition),
        ),
        EventKind::ReplicaLost { partition, placement, node, why } => (
            format!("placement {placement} on {} is lost and left the in-sync set: {why}", state.node_name(*node)),
            of(partition),
        ),
        EventKind::RepairStarted { partition, placement, node, why } => {
            (format!("placement {placement} is being loaded on {}: {why}", state.node_name(*node)), of(partition))
        }
        EventKind::RepairDone { partition, placement, node } => {
            (format!("placement {placement} on {} is in sync", state.node_name(*node)), of(partition))
        }
        EventKind::CopyRetired { partition, placement, node, why } => {
            (format!("placement {placement} on {} is to be deleted: {why}", state.node_name(*node)), of(partition))
        }
        EventKind::GoalChanged { node: id, goal } => {
            let goal = match goal {
                NodeGoal::Serve => "serves again",
                NodeGoal::Cordon => "cordoned: it receives no new copies",
                NodeGoal::Drain => "drain started",
                NodeGoal::Maintain => "in maintenance",
            };
            (goal.to_owned(), node(id))
        }
        EventKind::NodeAltered { node: id, before, after } => (format!("changed from {before} to {after}"), node(id)),
        EventKind::LeadershipBumped { partition, epoch, why } => {
            (format!("a new epoch after {epoch} was requested{}", because(why)), of(partition))
        }
        EventKind::MemberBarred { member, bar, why } => {
            (format!("{} is excluded from it{}", state.node_name(*member), because(why)), bars::subject(state, *bar))
        }
        EventKind::BarLifted { member, bar } => {
            (format!("{} is no longer excluded from it", state.node_name(*member)), bars::subject(state, *bar))
        }
        EventKind::PartitionOffline { partition, why } => (format!("taken offline{}", because(why)), of(partition)),
        EventKind::PartitionOnline { partition } => ("brought online".to_owned(), of(partition)),
        EventKind::MaintenanceBegun { member, until, why } => {
            let lasts = lasts_text(until.since(event.at));
            (format!("in maintenance for {lasts} at most{}", because(why)), node(member))
        }
        EventKind::MaintenanceOver { member } => ("maintenance ended".to_owned(), node(member)),
        EventKind::TableCreated { table, name } => {
            ("created".to_owned(), Subject::Table { table_id: table.get(), table: name.clone() })
        }
        EventKind::TableAltered { table, name, before, after } => {
            (altered(*before, *after), Subject::Table { table_id: table.get(), table: name.clone() })
        }
        EventKind::TableDropped { table, name, partitions, copies, moves } => {
            let moves = if *moves > 0 { format!("; {moves} moves are abandoned") } else { String::new() };
            let what = format!("dropped with its {partitions} partitions; {copies} copies are to be deleted{moves}");
            (what, Subject::Table { table_id: table.get(), table: name.clone() })
        }
        EventKind::SplitBegun { partition, right, at, outgrown } => {
            let (right, at) = (state.partition_name(*right), shown_key(at));
            let why = outgrown.map_or_else(String::new, |by| format!("automatically, since {by}, "));
            (format!("is being split {why}at {at}: keys from there on move to {right}"), of(partition))
        }
        EventKind::SplitCut { partition, right } => {
            let right = state.partition_name(*right);
            (format!("gives up the keys of {right}, whose copies hold them"), of(partition))
        }
        EventKind::Parted { partition, right, at, leader } => {
            let (right, leader) = (state.partition_name(*right), state.node_name(*leader));
            (format!("is split: {right} has the keys from {} on, and {leader} leads it", shown_key(at)), of(partition))
        }
        EventKind::SplitAbandoned { partition, right, why } => {
            let right = state.partition_name(*right);
            (format!("keeps its keys: the split into {right} was abandoned{}", because(why)), of(partition))
        }
        EventKind::MergeBegun { partition, right, undersized_bytes } => {
            let together = |bytes: u64| format!(" automatically, since the two hold {} together", bytes_text(bytes));
            let why = undersized_bytes.map_or_else(String::new, together);
            let right = state.partition_name(*right);
            (format!("is being merged{why} with {right}, whose keys it receives"), of(partition))
        }
        EventKind::Merged { partition, right, at } => {
            let (right, at) = (state.partition_name(*right), shown_key(at));
            (format!("is merged: it has the keys of {right}, from {at} on, and {right} is deleted"), of(partition))
        }
        EventKind::MergeAbandoned { partition, right, why } => {
            let right = state.partition_name(*right);
            (
                format!("is not merged with {right}, which keeps its keys: the merge was abandoned{}", because(why)),
                of(partition),
            )
        }
        EventKind::SettingsChanged { changes } => {
            let text = |step: &SettingStep| format!("{} from {} to {}", step.setting.as_str(), step.from, step.to);
            (format!("settings changed: {}", changes.iter().map(text).collect::<Vec<_>>().join(", ")), Subject::Cluster)
        }
        EventKind::AccessChanged { client, table, before, after, weight_max } => {
            let whose = grantee_text(client.as_deref(), (*after).or(*before));
            let subject = match table {
                Some((id, name)) => Subject::Table { table_id: id.get(), table: name.clone() },
                None => Subject::Cluster,
            };
            let tables = if table.is_some() { "it" } else { "every table" };
            let limit = weight_limit_text(*weight_max);
            (format!("{whose} {}{limit}", access_text(*before, *after, tables)), subject)
        }
        EventKind::CertificatesWithdrawn { identity, after, .. } => {
            let text = match after {
                Some(moment) => format!(
                    "certificates of {identity} that begin before {} are revoked",
                    archon_security::date(std::time::UNIX_EPOCH + std::time::Duration::from_millis(moment.get()))
                ),
                None => format!("all certificates of {identity} are accepted again"),
            };
            (text, Subject::Cluster)
        }
        EventKind::QuorumChangeBegun { wish } => {
            (format!("a change of the quorum started: {wish}"), Subject::Coordinators)
        }
        EventKind::QuorumChanged { wish, voters } => {
            (format!("the quorum is changed: {wish}; the voters are {}", numbers(voters)), Subject::Coordinators)
        }
        EventKind::QuorumChangeCancelled { wish } => {
            (format!("the change of the quorum is cancelled: {wish}"), Subject::Coordinators)
        }
        EventKind::RecoveryBegun { generation, base } => {
            let what = format!(
                "the quorum was recovered from less than a majority: generation {generation} continues from entry \
                 {base} and waits for the reports of all nodes"
            );
            (what, Subject::Coordinators)
        }
        EventKind::RecoveryTookOver { generation, ordered } => {
            let why = match ordered {
                true => ", as ordered by an operator although they still worked",
                false => ", which have no majority",
            };
            let what = format!("generation {generation} replaces the former coordinators{why}");
            (what, Subject::Coordinators)
        }
        EventKind::RecoverySettled { generation, behind } => {
            let lost = if *behind { ", although changes known to nodes were lost" } else { "" };
            let what =
                format!("the quorum is recovered: generation {generation} continues with the data of the nodes{lost}");
            (what, Subject::Coordinators)
        }
        EventKind::ProtocolRaised { before, after } => {
            let what = format!("protocol raised from {before} to {after}; members of older versions are refused");
            (what, Subject::Cluster)
        }
        EventKind::ProtocolHeld { held: true } => {
            ("protocol held: it does not rise until it is finalized or released".to_owned(), Subject::Cluster)
        }
        EventKind::ProtocolHeld { held: false } => {
            ("protocol released: it rises once every member supports the next one".to_owned(), Subject::Cluster)
        }
        EventKind::PlanStarted { moves } => (format!("started, {moves} moves"), Subject::Rebalance),
        EventKind::PlanCancelled { moves_left } => (format!("cancelled, {moves_left} moves left"), Subject::Rebalance),
        EventKind::MigrationOver { migration, partition, outcome } => {
            (format!("move {migration} ended: {outcome}"), of(partition))
        }
        EventKind::DataLossAccepted { partition, leader, retired } => {
            let then =
                leader.map_or_else(|| "it starts empty".to_owned(), |id| format!("{} leads", state.node_name(id)));
            (format!("data loss accepted; {then}, {retired} other copies retired"), of(partition))
        }
    };
    Summary { index: event.index, at_ms: event.at.get(), by, code: code(&event.what).into(), subject, message }
}

/// Formats a duration in its two largest units: `10 min`, `1 h 30 min`, `1 d`. The time between order and commit is
/// rounded away.
fn lasts_text(millis: u64) -> String {
    let mut seconds = (millis + 500) / 1_000;
    let mut parts = Vec::new();
    for (unit, length) in [("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)] {
        if seconds >= length && parts.len() < 2 {
            parts.push(format!("{} {unit}", seconds / length));
            seconds %= length;
        }
    }
    if parts.is_empty() { "0 s".to_owned() } else { parts.join(" ") }
}

const fn code(kind: &EventKind) -> EventCode {
    match kind {
        EventKind::Bootstrapped => EventCode::Bootstrapped,
        EventKind::NodeRegistered { .. } => EventCode::NodeRegistered,
        EventKind::NodeReturned { .. } => EventCode::NodeReturned,
        EventKind::NodeFailed { .. } => EventCode::NodeFailed,
        EventKind::NodeLost { .. } => EventCode::NodeLost,
        EventKind::NodeUnreached { .. } => EventCode::NodeUnreached,
        EventKind::NodeReached { .. } => EventCode::NodeReached,
        EventKind::NodeDeclaredLost { .. } => EventCode::NodeDeclaredLost,
        EventKind::NodeRemoved { .. } => EventCode::NodeRemoved,
        EventKind::NodeDraining { .. } => EventCode::NodeDraining,
        EventKind::NodeDrained { .. } => EventCode::NodeDrained,
        EventKind::GoalChanged { .. } => EventCode::GoalChanged,
        EventKind::CopyDamaged { .. } => EventCode::CopyDamaged,
        EventKind::DataDisputed { .. } => EventCode::DataDisputed,
        EventKind::EpochSurpassed { .. } => EventCode::EpochSurpassed,
        EventKind::ReplicaLost { .. } => EventCode::ReplicaLost,
        EventKind::RepairStarted { .. } => EventCode::RepairStarted,
        EventKind::RepairDone { .. } => EventCode::RepairDone,
        EventKind::CopyRetired { .. } => EventCode::CopyRetired,
        EventKind::NodeAltered { .. } => EventCode::NodeAltered,
        EventKind::LeadershipBumped { .. } => EventCode::LeadershipBumped,
        EventKind::MemberBarred { .. } => EventCode::MemberBarred,
        EventKind::BarLifted { .. } => EventCode::BarLifted,
        EventKind::PartitionOffline { .. } => EventCode::PartitionOffline,
        EventKind::PartitionOnline { .. } => EventCode::PartitionOnline,
        EventKind::MaintenanceBegun { .. } => EventCode::MaintenanceBegun,
        EventKind::MaintenanceOver { .. } => EventCode::MaintenanceOver,
        EventKind::TableCreated { .. } => EventCode::TableCreated,
        EventKind::TableAltered { .. } => EventCode::TableAltered,
        EventKind::TableDropped { .. } => EventCode::TableDropped,
        EventKind::SplitBegun { .. } => EventCode::SplitBegun,
        EventKind::SplitCut { .. } => EventCode::SplitCut,
        EventKind::Parted { .. } => EventCode::Parted,
        EventKind::SplitAbandoned { .. } => EventCode::SplitAbandoned,
        EventKind::MergeBegun { .. } => EventCode::MergeBegun,
        EventKind::Merged { .. } => EventCode::Merged,
        EventKind::MergeAbandoned { .. } => EventCode::MergeAbandoned,
        EventKind::SettingsChanged { .. } => EventCode::SettingsChanged,
        EventKind::AccessChanged { .. } => EventCode::AccessChanged,
        EventKind::CertificatesWithdrawn { .. } => EventCode::CertificatesWithdrawn,
        EventKind::QuorumChangeBegun { .. } => EventCode::QuorumChangeBegun,
        EventKind::QuorumChanged { .. } => EventCode::QuorumChanged,
        EventKind::QuorumChangeCancelled { .. } => EventCode::QuorumChangeCancelled,
        EventKind::RecoveryBegun { .. } => EventCode::RecoveryBegun,
        EventKind::RecoveryTookOver { .. } => EventCode::RecoveryTookOver,
        EventKind::RecoverySettled { .. } => EventCode::RecoverySettled,
        EventKind::ProtocolRaised { .. } => EventCode::ProtocolRaised,
        EventKind::ProtocolHeld { .. } => EventCode::ProtocolHeld,
        EventKind::PlanStarted { .. } => EventCode::PlanStarted,
        EventKind::PlanCancelled { .. } => EventCode::PlanCancelled,
        EventKind::MigrationOver { .. } => EventCode::MoveOver,
        EventKind::DataLossAccepted { .. } => EventCode::DataLossAccepted,
    }
}

/// Describes the new permissions of a client, from grants to exactly these tables.
fn access_text(before: Option<Right>, after: Option<Right>, tables: &str) -> String {
    match (before, after) {
        (None, None) => format!("has no right to {tables}"),
        (_, Some(right)) if after > before || right == Right::Own => format!("may {} {tables}", right.verb()),
        (_, Some(right)) => format!("may {} {tables} only", right.verb()),
        (Some(_), None) => format!("has no right to {tables} any longer"),
    }
}

/// Describes the new traits of a table.
fn altered(before: TableTraits, after: TableTraits) -> String {
    let mut wants = Vec::new();
    if before.replication != after.replication {
        wants.push(format!("replication changed to {}, was {}", after.replication, before.replication));
    }
    let (was, is) = (before.limits, after.limits);
    let rate_text = |rate| format!("{rate} operations per second");
    let split = "its partitions are split automatically";
    wants.extend(limit_changed(&format!("{split} above"), was.split_above_bytes, is.split_above_bytes, bytes_text));
    wants.extend(limit_changed(&format!("{split} above"), was.split_above_rate, is.split_above_rate, rate_text));
    let merged = "its partitions are merged automatically below";
    wants.extend(limit_changed(merged, was.merge_below_bytes, is.merge_below_bytes, bytes_text));
    wants.join("; ")
}

/// Describes the change of one limit.
fn limit_changed(does: &str, before: Option<u64>, after: Option<u64>, text: impl Fn(u64) -> String) -> Option<String> {
    if before == after {
        return None;
    }
    let was = before.map(&text);
    Some(match (after.map(&text), was) {
        (Some(is), Some(was)) => format!("{does} {is} now, {was} before"),
        (Some(is), None) => format!("{does} {is} now, no limit before"),
        (None, was) => format!("{does} no limit now, {} before", was.unwrap_or_default()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_types::{Millis, RangeLimits, TableId};

    #[test]
    fn event_reports_a_removed_limit() {
        let limits = |split: Option<u64>, merge: Option<u64>| TableTraits {
            replication: 3,
            limits: RangeLimits { split_above_bytes: split, split_above_rate: None, merge_below_bytes: merge },
        };
        let text = altered(limits(Some(1 << 30), Some(1 << 20)), limits(Some(1 << 30), None));
        assert_eq!(text, "its partitions are merged automatically below no limit now, 1.0 MiB before");
        let text = altered(limits(None, None), limits(Some(1 << 30), None));
        assert_eq!(text, "its partitions are split automatically above 1.0 GiB now, no limit before");
    }

    #[test]
    fn event_of_a_dropped_table_has_its_name() {
        let mut state = ClusterState::new();
        let what = EventKind::TableDropped {
            table: TableId::new(14),
            name: "orders".to_owned(),
            partitions: 1,
            copies: 0,
            moves: 0,
        };
        state.events.push_back(Event { at: Millis::new(0), index: 1, who: Actor::Coordinator(1), what });
        let of = PartitionId::new(TableId::new(14), 7);
        assert_eq!(state.partition_subject(of).to_string(), "partition orders/7");
        assert_eq!(state.partition_name(PartitionId::new(TableId::new(13), 7)), "13/7");
    }

    #[test]
    fn removed_node_as_a_cause_is_its_number() {
        assert_eq!(cause(&ClusterState::new(), &Actor::Node(NodeId::new(5))).to_string(), "node 5");
    }

    #[test]
    fn durations_are_formatted_in_their_two_largest_units() {
        let times = [1_000, 999, 599_998, 5_400_000, 86_400_000, 90_061_000, 0].map(lasts_text);
        assert_eq!(times, ["1 s", "1 s", "10 min", "1 h 30 min", "1 d", "1 d 1 h", "0 s"]);
    }
}

//! Events for people: the document of an event, with its sentence.

use super::phrases::{because, coordinators, lasts, name, partition_name};
use crate::status::Event;
use archon_types::subject::Subject;
use archon_types::{
    EventFacts, ExceededLimit, Millis, NodeGoal, OpenEnum, RecordedEvent, Right, SettingChanged, TableTraits,
    bytes_text, grantee_text, weight_limit_text,
};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc2822;

impl From<RecordedEvent> for Event {
    fn from(event: RecordedEvent) -> Self {
        let code = event.facts.code();
        Self {
            index: event.index,
            at_ms: event.at.get(),
            code: code.into(),
            severity: code.severity().into(),
            by: event.by,
            message: text(&event.subject, event.at, &event.facts),
            facts: event.facts.to_object().into_iter().collect(),
            subject: event.subject,
        }
    }
}

/// Returns the sentence of an event that happened `at`. It follows the name of its subject.
fn text(subject: &Subject, at: Millis, facts: &EventFacts) -> String {
    let table = || name(subject);
    match facts {
        EventFacts::Bootstrapped {} => "bootstrapped".to_owned(),
        EventFacts::NodeRegistered { incarnation } => format!("registered in incarnation {incarnation}"),
        EventFacts::NodeReturned { incarnation } => format!("returned in incarnation {incarnation}"),
        EventFacts::NodeFailed { incarnation, stopped, leaderships_ended: ended, leaderships_handed_on: handed_on } => {
            let verb = if *stopped { "stopped" } else { "failed" };
            format!("{verb} in incarnation {incarnation}; {ended} leaderships ended, {handed_on} handed on")
        }
        EventFacts::NodeUnreached { shut_to, unreached_for_ms } => format!(
            "sends heartbeats, but was unreachable to {} for {}; other nodes took over its leaderships",
            shut_to.join(" and "),
            lasts(*unreached_for_ms)
        ),
        EventFacts::NodeReached { unreached_for_ms } => {
            format!("is reachable again, after {}", lasts(*unreached_for_ms))
        }
        EventFacts::NodeLost {} => "lost its data: a new data directory took over its name".to_owned(),
        EventFacts::NodeDeclaredLost { copies_discarded: copies, partitions_lost: lost } => {
            format!("declared lost; {copies} replicas discarded, {lost} of them the last of their partition")
        }
        EventFacts::NodeRemoved { copies_discarded: 0 } => "removed".to_owned(),
        EventFacts::NodeRemoved { copies_discarded: copies } => {
            format!("removed with {copies} replicas that were not in sync")
        }
        EventFacts::NodeDraining { copies_held } => format!("is being drained of {copies_held} replicas"),
        EventFacts::NodeDrained {} => "drained: it holds no replicas".to_owned(),
        EventFacts::CopyDamaged { placement_id, node, why } => {
            format!("placement {placement_id} on {node} is damaged and left the in-sync set: {why}")
        }
        EventFacts::DataDisputed { placement_id, node, committed, epoch, leader_placement_id, leader, agreed } => {
            let on = leader.as_ref().map_or_else(String::new, |leader| format!(" on {leader}"));
            format!(
                "placement {placement_id} on {node} knows entry {committed} as committed, which placement \
                 {leader_placement_id}{on}, leader of epoch {epoch}, lacks (they agree up to {agreed} at most): one of \
                 them lost data; keep both data directories and compare them"
            )
        }
        EventFacts::EpochSurpassed { epoch, epoch_granted } => format!(
            "a replica knew epoch {epoch}, but only {epoch_granted} had been granted; the next leader uses a higher one"
        ),
        EventFacts::ReplicaLost { placement_id, node, why } => {
            format!("placement {placement_id} on {node} is lost and left the in-sync set: {why}")
        }
        EventFacts::RepairStarted { placement_id, node, why } => {
            format!("placement {placement_id} is being loaded on {node}: {why}")
        }
        EventFacts::RepairDone { placement_id, node } => format!("placement {placement_id} on {node} is in sync"),
        EventFacts::CopyRetired { placement_id, node, why } => {
            format!("placement {placement_id} on {node} is to be deleted: {why}")
        }
        EventFacts::GoalChanged { goal } => match goal {
            OpenEnum::Known(NodeGoal::Serve) => "serves again".to_owned(),
            OpenEnum::Known(NodeGoal::Cordon) => "cordoned: it receives no new replicas".to_owned(),
            OpenEnum::Known(NodeGoal::Drain) => "drain started".to_owned(),
            OpenEnum::Known(NodeGoal::Maintain) => "in maintenance".to_owned(),
            OpenEnum::Unknown(goal) => goal.clone(),
        },
        EventFacts::NodeAltered { before, after } => format!("changed from {before} to {after}"),
        EventFacts::LeadershipBumped { epoch, why } => {
            format!("a new epoch after {epoch} was requested{}", because(why))
        }
        EventFacts::MemberBarred { excluded, why } => format!("{excluded} is excluded from it{}", because(why)),
        EventFacts::BarLifted { excluded } => format!("{excluded} is no longer excluded from it"),
        EventFacts::PartitionOffline { why } => format!("taken offline{}", because(why)),
        EventFacts::PartitionOnline {} => "brought online".to_owned(),
        EventFacts::MaintenanceBegun { ends_at_ms, why } => {
            let lasts = lasts(Millis::new(*ends_at_ms).since(at));
            format!("in maintenance for {lasts} at most{}", because(why))
        }
        EventFacts::MaintenanceOver {} => "maintenance ended".to_owned(),
        EventFacts::TableCreated {} => "created".to_owned(),
        EventFacts::TableAltered { before, after } => altered(*before, *after),
        EventFacts::TableDropped { partitions_total: partitions, copies_condemned: copies, moves_abandoned } => {
            let moves = match moves_abandoned {
                0 => String::new(),
                moves => format!("; {moves} moves are abandoned"),
            };
            format!("dropped with its {partitions} partitions; {copies} replicas are to be deleted{moves}")
        }
        EventFacts::SplitBegun { right, at, outgrown_bytes, outgrown_rate } => {
            let right = partition_name(&table(), *right);
            let outgrown = outgrown_bytes.map(ExceededLimit::Bytes).or(outgrown_rate.map(ExceededLimit::Rate));
            let why = outgrown.map_or_else(String::new, |by| format!("automatically, since {by}, "));
            format!("is being split {why}at {at}: keys from there on move to {right}")
        }
        EventFacts::SplitCut { right } => {
            format!("gives up the keys of {}, whose replicas hold them", partition_name(&table(), *right))
        }
        EventFacts::Parted { right, at, leader } => {
            let right = partition_name(&table(), *right);
            format!("is split: {right} has the keys from {at} on, and {leader} leads it")
        }
        EventFacts::SplitAbandoned { right, why } => {
            let right = partition_name(&table(), *right);
            format!("keeps its keys: the split into {right} was abandoned{}", because(why))
        }
        EventFacts::MergeBegun { right, undersized_bytes } => {
            let together = |bytes: u64| format!(" automatically, since the two hold {} together", bytes_text(bytes));
            let why = undersized_bytes.map_or_else(String::new, together);
            format!("is being merged{why} with {}, whose keys it receives", partition_name(&table(), *right))
        }
        EventFacts::Merged { right, at } => {
            let right = partition_name(&table(), *right);
            format!("is merged: it has the keys of {right}, from {at} on, and {right} is deleted")
        }
        EventFacts::MergeAbandoned { right, why } => {
            let (right, why) = (partition_name(&table(), *right), because(why));
            format!("is not merged with {right}, which keeps its keys: the merge was abandoned{why}")
        }
        EventFacts::SettingsChanged { changes } => {
            let step = |SettingChanged { setting, before, after }: &SettingChanged| {
                format!("{} from {before} to {after}", setting.as_str())
            };
            format!("settings changed: {}", changes.iter().map(step).collect::<Vec<_>>().join(", "))
        }
        EventFacts::AccessChanged { client, before, after, weight_max } => {
            let right = |right: &Option<OpenEnum<Right>>| right.as_ref().and_then(OpenEnum::known);
            let (before, after) = (right(before), right(after));
            let grantee = grantee_text(client.as_deref(), after.or(before));
            let tables = if matches!(subject, Subject::Table { .. }) { "it" } else { "every table" };
            format!("{grantee} {}{}", access(before, after, tables), weight_limit_text(*weight_max))
        }
        EventFacts::CertificatesWithdrawn { identity, begin_before_at_ms: Some(at) } => {
            format!("certificates of {identity} that begin before {} are revoked", date(*at))
        }
        EventFacts::CertificatesWithdrawn { identity, begin_before_at_ms: None } => {
            format!("all certificates of {identity} are accepted again")
        }
        EventFacts::QuorumChangeBegun { change } => format!("a change of the quorum started: {change}"),
        EventFacts::QuorumChanged { change, voters } => {
            format!("the quorum is changed: {change}; the voters are {}", coordinators(voters))
        }
        EventFacts::QuorumChangeCancelled { change } => format!("the change of the quorum is cancelled: {change}"),
        EventFacts::RecoveryBegun { generation, base_index } => format!(
            "the quorum was recovered from less than a majority: generation {generation} continues from entry \
             {base_index} and waits for the reports of all nodes"
        ),
        EventFacts::RecoveryTookOver { generation, ordered } => {
            let why = match ordered {
                true => ", as ordered by an operator although they still worked",
                false => ", which have no majority",
            };
            format!("generation {generation} replaces the former coordinators{why}")
        }
        EventFacts::RecoverySettled { generation, changes_lost } => {
            let lost = if *changes_lost { ", although changes known to nodes were lost" } else { "" };
            format!("the quorum is recovered: generation {generation} continues with the data of the nodes{lost}")
        }
        EventFacts::ProtocolRaised { before, after } => {
            format!("protocol raised from {before} to {after}; members of older versions are refused")
        }
        EventFacts::ProtocolHeld { held: true } => {
            "protocol held: it does not rise until it is finalized or released".to_owned()
        }
        EventFacts::ProtocolHeld { held: false } => {
            "protocol released: it rises once every member supports the next one".to_owned()
        }
        EventFacts::PlanStarted { moves_total } => format!("started, {moves_total} moves"),
        EventFacts::PlanCancelled { moves_left } => format!("cancelled, {moves_left} moves left"),
        EventFacts::MoveOver { move_id, outcome } => format!("move {move_id} ended: {outcome}"),
        EventFacts::DataLossAccepted { leader, copies_retired } => {
            let then = leader.as_ref().map_or_else(|| "it starts empty".to_owned(), |node| format!("{node} leads"));
            format!("data loss accepted; {then}, {copies_retired} other replicas retired")
        }
    }
}

/// Formats an instant: `Mon, 22 Feb 2027 13:45:00 +0000`.
fn date(at_ms: u64) -> String {
    let seconds = at_ms / 1_000;
    let time = i64::try_from(seconds).ok().and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds).ok());
    time.and_then(|time| time.format(&Rfc2822).ok()).unwrap_or_else(|| format!("{seconds} s after 1970"))
}

/// Describes the new permissions of a client, from grants to exactly these tables.
fn access(before: Option<Right>, after: Option<Right>, tables: &str) -> String {
    match (before, after) {
        (None, None) => format!("has no right to {tables}"),
        (_, Some(right)) if after > before || right == Right::Own => format!("may {} {tables}", right.verb()),
        (_, Some(right)) => format!("may {} {tables} only", right.verb()),
        (Some(_), None) => format!("has no right to {tables} any longer"),
    }
}

/// Describes the new traits of a table.
fn altered(before: TableTraits, after: TableTraits) -> String {
    let mut changes = Vec::new();
    if before.replication != after.replication {
        changes.push(format!("replication changed to {}, was {}", after.replication, before.replication));
    }
    let (was, is) = (before.limits, after.limits);
    let rate_text = |rate| format!("{rate} operations per second");
    let split = "its partitions are split automatically above";
    changes.extend(limit_changed(split, was.split_above_bytes, is.split_above_bytes, bytes_text));
    changes.extend(limit_changed(split, was.split_above_rate, is.split_above_rate, rate_text));
    let merged = "its partitions are merged automatically below";
    changes.extend(limit_changed(merged, was.merge_below_bytes, is.merge_below_bytes, bytes_text));
    changes.join("; ")
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
    use archon_types::RangeLimits;

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
    fn impossible_date_is_shown_in_seconds() {
        assert_eq!(date(u64::MAX), "18446744073709551 s after 1970");
    }
}

//! Partitions in words, for every listing that names them.

use crate::admin::{short_time, since};
use crate::documents::{Node, Partition};
use crate::output::Output;
use archon_client::{
    BarSummary, CopySummary as Copy, KeyText, MemberTiming, NodeStatus, OpenEnum, PartitionDescription,
    PartitionStatus, RangeChangeKind, RangeChangeStatus, RangeSummary,
};
use archon_types::bare_key;
use std::time::Duration;

/// Describes the keys of a range.
pub(crate) fn keys_text(range: &RangeSummary) -> String {
    let RangeSummary { begin, end } = range;
    let begin = if begin.0.is_empty() { "the first key".to_owned() } else { begin.to_string() };
    match end {
        Some(end) => format!("from {begin} up to, not including, {end}"),
        None => format!("from {begin} on"),
    }
}

/// Formats a bound of a range of keys; `-` if there is none.
pub(crate) fn bound_text(bound: Option<&KeyText>) -> String {
    bound.filter(|bound| !bound.0.is_empty()).map_or_else(|| "-".to_owned(), |bound| bare_key(&bound.0))
}

/// Formats a replica: `athens:Live`; if its node is not alive, nothing is read, written or copied there:
/// `athens:Load(failed)`.
pub(crate) fn copy_text(copy: &Copy) -> String {
    match copy.node_status == NodeStatus::Alive {
        true => format!("{}:{}", copy.node, copy.state),
        false => format!("{}:{}({})", copy.node, copy.state, copy.node_status.as_str()),
    }
}

/// Formats the status, with the split or merge in progress.
pub(crate) fn listed_status(partition: &Partition, output: &Output) -> String {
    let status = status_text(&partition.status, output);
    match (partition.splits_into, partition.merges_with) {
        (Some(right), _) => format!("{status}, splitting into {right}"),
        (None, Some(neighbour)) => format!("{status}, merging with {neighbour}"),
        (None, None) => status,
    }
}

pub(crate) fn status_text(status: &OpenEnum<PartitionStatus>, output: &Output) -> String {
    let text = status.to_string();
    if *status == PartitionStatus::Online { output.good(&text) } else { output.bad(&text) }
}

/// Describes the progress of a partition's split or merge.
pub(crate) fn reshaping_text(partition: &PartitionDescription, reshaping: &RangeChangeStatus) -> String {
    let RangeChangeStatus { partition: left, right, reshaping_phase, copies_ready, copies_total, message, .. } =
        reshaping;
    if reshaping.kind == RangeChangeKind::Merge {
        return match *left == partition.id {
            true => format!("merging    receives all keys of {right}; {message}"),
            false => format!("merging    gives all its keys to {left} and is then deleted; {message}"),
        };
    }
    let at = &reshaping.at;
    format!("splitting  at {at} into {right}; {reshaping_phase}, {copies_ready} of {copies_total} replicas; {message}")
}

/// Describes the owner of a lease: its address, and the time until the lease would be lost.
pub(crate) fn owner_lines(partition: &PartitionDescription, nodes: &[Node]) -> Vec<String> {
    let Some(name) = &partition.leader else { return vec!["owner      none".to_owned()] };
    let Some(owner) = nodes.iter().find(|node| Some(node.id) == partition.leader_id) else {
        return vec![format!("owner      {name}")];
    };
    let mut lines = vec![format!("owner      {name} ({})", owner.address)];
    lines.extend(timing_text(owner).map(|timing| format!("timing     {timing}")));
    let heard = owner.silent_for_ms.map(|silent| short_time(Duration::from_millis(silent)));
    lines.extend(heard.map(|time| format!("heard      {time} ago")));
    lines
}

/// Describes the timing of a member's leases.
pub(crate) fn timing_text(member: &Node) -> Option<String> {
    let MemberTiming { heartbeat_for_ms, lease_for_ms, failure_timeout_for_ms } = member.timing?;
    Some(format!(
        "heartbeat {}, lease {}, failure time-out {}",
        exact_time(heartbeat_for_ms),
        exact_time(lease_for_ms),
        exact_time(failure_timeout_for_ms)
    ))
}

/// Formats a duration exactly: `200 ms`, `1.25 s`.
fn exact_time(millis: u64) -> String {
    if millis < 1_000 { format!("{millis} ms") } else { format!("{} s", millis as f64 / 1_000.0) }
}

/// Describes an exclusion with its subject, age and reason.
pub(crate) fn bar_text(what: &str, bar: &BarSummary) -> String {
    let since = since(bar.at_ms).map_or_else(String::new, |time| format!(", for {}", short_time(time)));
    let why = if bar.why.is_empty() { String::new() } else { format!(": {}", bar.why) };
    format!("{what}{since}{why}")
}

/// Returns the partition as commands accept it: `7`, or `7 --table orders`.
pub(crate) fn operand(id: u32, table: &str) -> String {
    if table == "default" { id.to_string() } else { format!("{id} --table {table}") }
}

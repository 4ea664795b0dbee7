//! Phrases of findings and events.

use archon_types::subject::Subject;
use archon_types::{DEFAULT_TABLE, DiskLimit};

/// Ways to give members more room.
pub(super) const ROOM_REMEDY: &str = "start more, or raise limits: `archon node set NAME --partitions-max N`";
/// Ways to release a lease that no other participant may own.
pub(super) const STAYS_REMEDY: &str =
    "start other participants, end a cordon, drain or maintenance, raise a limit, or lift an exclusion (`unbar`)";
/// Remedy while replicas of failed nodes are not replaced.
pub(super) const WITHHELD_REMEDY: &str =
    "start the failed nodes again; for a node that will never return: `archon node lost NAME`";

/// Returns an operator's reason as the end of a sentence.
pub(super) fn because(why: &str) -> String {
    if why.is_empty() { String::new() } else { format!(": {why}") }
}

/// Returns the name of a subject in a sentence.
pub(super) fn name(subject: &Subject) -> String {
    match subject {
        Subject::Node { node, .. } => node.clone(),
        Subject::Table { table, .. } | Subject::Partition { table, .. } => table.clone(),
        _ => subject.to_string(),
    }
}

/// Returns a coordinator with its address.
pub(super) fn coordinator(subject: &Subject, address: &str) -> String {
    format!("{subject} at {address}")
}

/// Returns a partition as the command line accepts it: `7`, or `7 --table orders`; of a table, the first one.
pub(super) fn operand(subject: &Subject) -> String {
    match subject {
        Subject::Partition { table, partition, .. } => partition_of(table, *partition),
        Subject::Table { table, .. } => partition_of(table, 0),
        _ => subject.to_string(),
    }
}

/// Returns a partition of a table as the command line accepts it.
pub(super) fn partition_of(table: &str, partition: u32) -> String {
    if table == DEFAULT_TABLE { partition.to_string() } else { format!("{partition} --table {table}") }
}

/// Returns the members that take partitions, and their object: of a lease table, or of all tables that hold data.
pub(super) fn members(subject: &Subject) -> (String, &'static str) {
    match subject {
        Subject::Table { table, .. } => (format!("participants of table {table}"), "partitions"),
        _ => ("nodes".to_owned(), "replicas"),
    }
}

/// Returns the remedy for members at their limits. The built-in limit cannot be raised.
pub(super) fn limit_remedy(plan: bool, raisable: bool) -> String {
    let more = match raisable {
        true => "add a node, or start nodes with a larger --partitions-max",
        false => "add a node: no node takes more than the built-in limit",
    };
    if plan { format!("free capacity: `archon rebalance plan`; or {more}") } else { more.to_owned() }
}

/// Returns how space is made on the disk of a member, up to its name.
pub(super) const fn space_freed(limit: DiskLimit) -> &'static str {
    match limit {
        DiskLimit::Bytes => "free disk space on",
        DiskLimit::Inodes => "remove files (there are too many) on the disk of",
        DiskLimit::Quota => "raise the quota of the user or directory of",
    }
}

/// Returns the display name of a partition: `orders/7`.
pub(super) fn partition_name(table: &str, partition: u32) -> String {
    format!("{table}/{partition}")
}

/// Formats the numbers of coordinators.
pub fn coordinators<'a>(ids: impl IntoIterator<Item = &'a u64>) -> String {
    let numbers: Vec<String> = ids.into_iter().map(u64::to_string).collect();
    format!("coordinator{} {}", if numbers.len() == 1 { "" } else { "s" }, numbers.join(", "))
}

/// Formats a duration in its two largest units: `10 min`, `1 h 30 min`, `1 d`. The time between order and commit is
/// rounded away.
pub(super) fn lasts(millis: u64) -> String {
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

/// Formats milliseconds in seconds.
pub(super) fn seconds(millis: u64) -> String {
    format!("{:.1} s", millis as f64 / 1_000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_formatted_in_their_two_largest_units() {
        let times = [1_000, 999, 599_998, 5_400_000, 86_400_000, 90_061_000, 0].map(lasts);
        assert_eq!(times, ["1 s", "1 s", "10 min", "1 h 30 min", "1 d", "1 d 1 h", "0 s"]);
    }
}

//! Texts about nodes and participants, their replicas, and certificates.

use super::phrases::{because, name, operand, space_freed};
use archon_types::subject::Subject;
use archon_types::{AuthorityUse, CondemnedCopies, DiskFull, StandingOrder, Supply};

const MS_PER_HOUR: u64 = 60 * 60 * 1_000;

/// Describes a node that is not alive.
pub(super) fn down(
    subject: &Subject,
    address: &str,
    stopped: bool,
    drained: bool,
    lack: Option<&DiskFull>,
) -> (String, String) {
    let node = name(subject);
    match lack {
        Some(lack) => (
            format!("{node} at {address} waits for disk space before it starts: {lack}"),
            format!("{} {node}; it then starts by itself", space_freed(lack.limit)),
        ),
        None if drained => {
            (format!("{node} was drained and has stopped"), format!("remove it: `archon node remove {node}`"))
        }
        None => (
            match stopped {
                true => format!("{node} at {address} has stopped"),
                false => format!("{node} at {address} was silent for the failure time-out"),
            },
            format!("start {node} again with its data directory"),
        ),
    }
}

/// Describes a node in maintenance that is not alive. `down` is its description as a failed node.
pub(super) fn maintained((message, remedy): (String, String), why: &str) -> (String, String) {
    (format!("{message}; it is in maintenance{}", because(why)), remedy)
}

/// Describes a node that clients cannot reach.
pub(super) fn unreached(subject: &Subject, address: &str, shut_to: &[String], led: u32) -> (String, String) {
    let (node, by) = (name(subject), shut_to.join(" and "));
    let left = match led {
        0 => "other nodes have taken over its leaderships".to_owned(),
        left => format!("it still leads {left} partitions that no other replica can lead"),
    };
    (
        format!(
            "{node} sends heartbeats, but {by} cannot reach it at {address} as a client; it keeps its replicas, and {left}"
        ),
        format!(
            "check the network to {address} and the log of {node}; restart it if it hangs. It leads again automatically \
             once it is reachable; if the probes are wrong, disable them: `archon config set door_every_ms=0`"
        ),
    )
}

/// Describes a member without disk space. A coordinator does not append to its log, a node refuses writes.
pub(super) fn disk_full(subject: &Subject, address: &str, lack: &DiskFull) -> (String, String) {
    if let Subject::Coordinator { .. } = subject {
        return (
            format!("{subject} at {address} appends nothing to its log, its disk is full: {lack}"),
            format!("free disk space for {subject}; it then resumes automatically"),
        );
    }
    let node = name(subject);
    (
        format!("{node} refuses writes (`ReadOnly`), because its disk is full: {lack}"),
        format!("{} {node}; writes then resume automatically; reads still work", space_freed(lack.limit)),
    )
}

/// Describes a replica that pins the log of its node.
pub(super) fn log_pinned(subject: &Subject, replica: u64, of: Option<&str>, bytes: u64) -> (String, String) {
    let node = name(subject);
    let (copy, remedy) = match of {
        Some(partition) => (
            format!("replica {replica} of partition {partition}"),
            format!("see `archon partition describe` and the log of {node} for the reason"),
        ),
        None => (
            format!("replica {replica}, which no partition names"),
            format!("see the log of {node} for that replica; a drained node can be started with an empty directory"),
        ),
    };
    (format!("old entries of {copy} pin {} MiB of the log of {node}", bytes >> 20), remedy)
}

/// Describes missing replicas. `supply`: about all tables together.
pub(super) fn under_replicated(subject: &Subject, missing: u64, of: u64, supply: Option<&Supply>) -> (String, String) {
    if let Subject::Partition { .. } = subject {
        let message = format!("{} of {of} replicas are in sync", of.saturating_sub(missing));
        return (message, "add nodes or start failed ones".to_owned());
    }
    let message = format!("{missing} of {of} partitions are under-replicated");
    (message, supply.map(supply_remedy).unwrap_or_default())
}

fn supply_remedy(supply: &Supply) -> String {
    match (supply.nodes_failed, supply.nodes_missing) {
        (_, 0) if supply.withheld => "start the failed nodes again".to_owned(),
        (0, 0) if supply.no_node => "add a node, or uncordon one".to_owned(),
        (0, 0) => String::new(),
        (0, 1) => "add a node, or uncordon one".to_owned(),
        (0, missing) => format!("add {missing} nodes"),
        (_, 0) if supply.at_limit => "start the failed nodes again, or add capacity elsewhere".to_owned(),
        (_, 0) => {
            let minutes = supply.replaced_after_for_ms as f64 / 60_000.0;
            format!(
                "start the failed nodes again; otherwise replicas are rebuilt on other nodes after {minutes:.1} minutes"
            )
        }
        (_, _) => "start the failed nodes again, or add others".to_owned(),
    }
}

/// Describes replicas of deleted partitions.
pub(super) fn condemned(copies: u64, holders: &[CondemnedCopies], others: u64, away: bool) -> (String, String) {
    let holder = |holder: &CondemnedCopies| {
        let away = if holder.alive { "" } else { ", which is not alive" };
        format!("{} on {}{away}", holder.copies_condemned, holder.node)
    };
    let named: Vec<String> = holders.iter().map(holder).collect();
    let others = match others {
        0 => String::new(),
        others => format!("; the others on {others} more nodes"),
    };
    let remedy = match away {
        true => "start the nodes that are not alive; for a node that will never return: `archon node remove NAME`",
        false => "",
    };
    let message = format!(
        "{copies} replicas of deleted partitions (dropped, merged, abandoned splits) are not deleted yet: {}{others}",
        named.join("; ")
    );
    (message, remedy.to_owned())
}

/// Describes a table without participants.
pub(super) fn no_participant(
    table: &str,
    drained: Option<&str>,
    cordoned: Option<&str>,
    maintained: Option<&str>,
) -> (String, String) {
    let mut remedy = format!("start one that serves {table}");
    for (node, verb) in [(drained, "undrain"), (cordoned, "uncordon"), (maintained, "resume")] {
        if let Some(node) = node {
            remedy.push_str(&format!(", or `archon node {verb} {node}`"));
        }
    }
    (format!("no participant takes partitions of table {table}"), remedy)
}

/// Describes an order in force.
pub(super) fn order(subject: &Subject, order: StandingOrder, excluded: Option<&str>) -> (String, String) {
    let (member, node) = (excluded.unwrap_or_default(), name(subject));
    let (message, command) = match (order, subject) {
        (StandingOrder::Exclusion, Subject::Partition { table, partition, .. }) => (
            format!("{member} is excluded from it"),
            format!("archon partition unbar {partition} --table {table} --node {member}"),
        ),
        (StandingOrder::Exclusion, _) => {
            (format!("{member} is excluded from it"), format!("archon node unbar {member} --table {node}"))
        }
        (StandingOrder::Offline, _) => ("it is offline".to_owned(), online(subject)),
        (StandingOrder::GoingOffline, _) => ("it is going offline: its leader releases it".to_owned(), online(subject)),
        (StandingOrder::Cordon, _) => ("it is cordoned".to_owned(), format!("archon node uncordon {node}")),
        (StandingOrder::Drain, _) => ("it is to be drained".to_owned(), format!("archon node undrain {node}")),
        (StandingOrder::Maintenance, _) => ("it is in maintenance".to_owned(), format!("archon node resume {node}")),
    };
    (message, format!("if it is no longer needed: `{command}`"))
}

/// Returns the command that brings a partition online.
pub(super) fn online(subject: &Subject) -> String {
    format!("archon partition online {}", operand(subject))
}

/// Describes members with ending certificates.
pub(super) fn ending_certificates(members: &[String], total: u64, first: &str, left_for_ms: i64) -> (String, String) {
    let message = format!("the certificate of {first} {}", until_text(left_for_ms));
    let remedy =
        "issue a new one with `archon cert … --force`; the member loads it from its --tls-dir within 15 seconds";
    (of_many(members, total, message), remedy.to_owned())
}

/// Describes members that cannot use their new certificates.
pub(super) fn unused_certificates(members: &[String], total: u64, first: &str) -> (String, String) {
    let message = format!("{first} cannot use the new certificate in its directory and keeps the old one");
    (of_many(members, total, message), "see its log, and run `archon cert check DIR` there".to_owned())
}

fn of_many(members: &[String], total: u64, message: String) -> String {
    if total <= 1 { message } else { format!("of {total} members ({}, …): {message}", members.join(", ")) }
}

/// Describes members with certificates of different authorities.
pub(super) fn authorities(authorities: &[AuthorityUse]) -> (String, String) {
    let text = |one: &AuthorityUse| {
        let more = if one.members_more > 0 { format!(" and {} more", one.members_more) } else { String::new() };
        format!("{} that of {}{more}", one.authority, one.members.join(", "))
    };
    let texts: Vec<String> = authorities.iter().map(text).collect();
    let message = format!("members use certificates of {} authorities: {}", texts.len(), texts.join("; "));
    let remedy = "if the authority is being changed, continue: docs/operate/certificates.md, Changing the authority; \
                  otherwise issue new certificates for members with the wrong one (`archon cert members` lists them)";
    (message, remedy.to_owned())
}

/// Formats the time until the end, or since.
fn until_text(left_for_ms: i64) -> String {
    let text = |millis: u64| match millis / MS_PER_HOUR {
        0 => "less than an hour".to_owned(),
        1 => "an hour".to_owned(),
        hours @ 2..48 => format!("{hours} hours"),
        hours => format!("{} days", hours / 24),
    };
    match left_for_ms > 0 {
        true => format!("expires in {}", text(left_for_ms.unsigned_abs())),
        false => format!("expired {} ago", text(left_for_ms.unsigned_abs())),
    }
}

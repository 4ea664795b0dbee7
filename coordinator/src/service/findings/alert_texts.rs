//! Texts of alerts.

use super::describe::operand;
use super::subjects;
use crate::service::findings::bars::subject;
use crate::service::findings::reason::reason_now;
use archon_coordinator_core::{Alert, Bar, ClusterState, Held};
use archon_documents::Reason;
use archon_types::subject::Subject;
use archon_types::{NodeGoal, NodeId, PartitionStatus, ReasonCode, TableId};

/// Returns an alert as a reason.
pub(in crate::service) fn text(state: &ClusterState, alert: &Alert) -> Reason {
    let members = |table: Option<TableId>| match table.filter(|table| state.is_lease(*table)) {
        Some(table) => {
            (format!("participants of table {}", subjects::table_name(state, table)), subjects::table(state, table))
        }
        None => ("nodes".to_owned(), Subject::Cluster),
    };
    let things = |table: &Option<TableId>| if table.is_some() { "partitions" } else { "copies" };
    match alert {
        Alert::NotServed { table, partitions, longest, since } => {
            let of = state.partitions.count_of(*table);
            let name = subjects::table_name(state, *table);
            let message = format!(
                "{partitions} of {of} partitions of table {name} have been unavailable for longer than a failover \
                 takes; partition {} for longest",
                longest.index
            );
            let remedy = format!("see the reason: `archon partition describe {}`", operand(state, *longest));
            let reason = reason_now(ReasonCode::NotServed, subjects::table(state, *table), message, remedy);
            Reason { began_at_ms: Some(since.get()), ..reason }
        }
        Alert::TooLittleRoom { table, have, need } => {
            let (who, subject) = members(*table);
            let message = format!("the {who} together can take {have} {}, but there are {need}", things(table));
            reason_now(ReasonCode::TooLittleRoom, subject, message, ROOM_REMEDY)
        }
        Alert::NoSpareRoom { table, without, have, need } => {
            let (who, subject) = members(*table);
            let (without, things) = (state.node_name(*without), things(table));
            let message = format!(
                "without {without} the {who} together can take {have} {things}, but there are \
                                   {need}"
            );
            reason_now(ReasonCode::NoSpareRoom, subject, message, ROOM_REMEDY)
        }
        Alert::TooFewMembers { table, have, need } => {
            let (who, subject) = members(*table);
            let message = format!("{have} {who} take partitions, fewer than the required {need}");
            reason_now(ReasonCode::TooFewMembers, subject, message, "start more, or uncordon or undrain existing ones")
        }
        Alert::TooFewVoters { voters, had_more } => {
            let message = match (voters, had_more) {
                (1, true) => {
                    "only one voter is left: without it the cluster cannot decide anything, and its state is on one \
                     disk only"
                }
                (1, false) => {
                    "there is only one coordinator: without it the cluster cannot decide anything, and its state is on \
                     one disk only"
                }
                _ => {
                    "there are only two voters, and neither may fail: without one of them the cluster cannot decide \
                      anything"
                }
            };
            let remedy = "add coordinators until there are three voters: `archon coordinator --id N --join H:P \
                          --data-dir DIR`; or promote an existing learner: `archon quorum promote N`";
            reason_now(ReasonCode::TooFewVoters, Subject::Coordinators, message.to_owned(), remedy)
        }
        Alert::LeaseStale { member, for_ms } => {
            let message = format!("its lease was not extended for {:.1} s", *for_ms as f64 / 1_000.0);
            let remedy = "check that it reaches the coordinators, and that these have a majority";
            reason_now(ReasonCode::LeaseStale, subjects::node(state, *member), message, remedy)
        }
        Alert::HeartbeatsOverdue { member, for_ms, left_ms } => {
            let seconds = |ms: u64| ms as f64 / 1_000.0;
            let (silent, left) = (seconds(*for_ms), seconds(*left_ms));
            let message = format!("its lease was not extended for {silent:.1} s; it is failed after {left:.1} s more");
            let remedy = "check that it is running and reaches the coordinators";
            reason_now(ReasonCode::HeartbeatsOverdue, subjects::node(state, *member), message, remedy)
        }
        Alert::NoLeaseTable { member, table } => {
            let (name, there) = (state.node_name(*member), state.table_by_name(table).is_some());
            let what = if there { "holds data, not leases" } else { "does not exist" };
            let message = format!("{name} serves table {table}, which {what}");
            let remedy = match there {
                true => "start it with the name of a lease table: `archon table list`".to_owned(),
                false => format!("`archon table create {table} --lease`, or start it with the name of another table"),
            };
            reason_now(ReasonCode::NoLeaseTable, subjects::node(state, *member), message, remedy)
        }
        Alert::TableNotGranted { member, table } => {
            let (name, table) = (state.node_name(*member), subjects::table_name(state, *table));
            let message = format!(
                "{name} serves lease table {table} without the right `own`: it gets no partition of \
                                   it"
            );
            let remedy = format!(
                "`archon access grant own --participant {name} --table {table}`, or start it without that table"
            );
            reason_now(ReasonCode::TableNotGranted, subjects::node(state, *member), message, remedy)
        }
        Alert::OnlyInMaintenance { table, partitions, first, member } => {
            let name = state.node_name(*member);
            let others = match partitions {
                1 => String::new(),
                more => format!(", and {} more like it", more - 1),
            };
            let message = format!(
                "{name} is in maintenance and still leads its partition {}{others}, because no other node can take it: \
                 it becomes unavailable when {name} stops",
                first.index
            );
            let remedy = format!("end a maintenance: `archon node resume {name}`; or start other nodes");
            let began = state.controls.maintenance_of(*member).map(|maintenance| maintenance.note.at.get());
            let reason = reason_now(ReasonCode::OnlyInMaintenance, subjects::table(state, *table), message, remedy);
            Reason { began_at_ms: began.filter(|at| *at > 0), ..reason }
        }
        Alert::Held { held, since, long } => {
            let (subject, message, remedy) = held_text(state, *held);
            let code = if *long { ReasonCode::HeldTooLong } else { ReasonCode::OrderStands };
            let reason = reason_now(code, subject, message, remedy);
            Reason { began_at_ms: Some(since.get()).filter(|at| *at > 0), ..reason }
        }
    }
}

const ROOM_REMEDY: &str = "start more, or raise limits: `archon node set NAME --partitions-max N`";

fn held_text(state: &ClusterState, held: Held) -> (Subject, String, String) {
    let named = |node: NodeId| state.node_name(node);
    match held {
        Held::Bar(member, bar) => {
            let (verb, what) = match bar {
                Bar::Table(table) => {
                    ("node", format!("{} --table {}", named(member), subjects::table_name(state, table)))
                }
                Bar::Partition(partition) => (
                    "partition",
                    format!(
                        "{} --table {} --node {}",
                        partition.index,
                        subjects::table_name(state, partition.table),
                        named(member)
                    ),
                ),
            };
            let remedy = format!("if it is no longer needed: `archon {verb} unbar {what}`");
            (subject(state, bar), format!("{} is excluded from it", named(member)), remedy)
        }
        Held::Offline(partition) => {
            let table = subjects::table_name(state, partition.table);
            let remedy =
                format!("if it is no longer needed: `archon partition online {} --table {table}`", partition.index);
            let is_offline = state.partitions.get(partition).is_some_and(|row| row.status == PartitionStatus::Offline);
            let what = if is_offline { "it is offline" } else { "it is going offline: its leader releases it" };
            (subjects::partition(state, partition), what.to_owned(), remedy)
        }
        Held::Goal(member, goal) => {
            let (what, verb) = match goal {
                NodeGoal::Cordon => ("cordoned", "uncordon"),
                NodeGoal::Drain => ("to be drained", "undrain"),
                NodeGoal::Maintain => ("in maintenance", "resume"),
                NodeGoal::Serve => ("to serve", "uncordon"),
            };
            let remedy = format!("if it is no longer needed: `archon node {verb} {}`", named(member));
            (subjects::node(state, member), format!("it is {what}"), remedy)
        }
    }
}

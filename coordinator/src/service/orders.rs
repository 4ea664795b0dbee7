//! Orders of operators about partitions and members, and what should be looked at.

use super::admin::{Admins, Result};
use super::admin_tables::table_of;
use super::call::Call;
use super::describe::{operand, reason_now, reasons};
use super::folded::folded;
use super::operate::{node_of, partition_of, settable};
use super::voters::{differing, of_other_histories, unreachable, unsettled, without_changes};
use super::{events, subjects, upgrade};
use crate::clock::{boot_now, wall_now};
use archon_coordinator_core::{
    Alert, Bar, ClusterState, Held, Liveness, Note, Order, Thresholds, alerts, check_order, not_served, refusal,
    still_led,
};
use archon_proto::convert::operate::PartitionName;
use archon_proto::convert::order::{BarName, LookOver, Order as Asked, Ordered};
use archon_proto::v1;
use archon_types::subject::Subject;
use archon_types::{ErrorDetail, NodeGoal, NodeId, ReasonCode, Severity, TableId};
use std::cmp::Reverse;
use std::time::Duration;

/// Most alerts in an answer.
const ALERTS_MAX: usize = 200;
/// Most reasons that are looked at for alerts.
const REASONS_MAX: usize = 2_000;

impl Admins {
    /// Takes an order in, or finds that it holds already.
    pub(super) async fn ordered(&self, request: v1::OrderRequest, call: &Call<'_>) -> Result<v1::OrderResponse> {
        let cluster = request.cluster.clone();
        let Ordered { request, order, why } = Ordered::try_from(request)?;
        let decide = |state: &ClusterState, _: &Liveness| {
            let order = order_of(state, &order)?;
            Ok(check_order(state, order, &why).map_err(|obstacles| refusal(&obstacles))?.ok_or(()))
        };
        let changed = self.change_unless(cluster.as_ref(), request, call, decide).await?.is_ok();
        let Asked::Maintain { node, .. } = &order else { return Ok(v1::OrderResponse { changed, still_led: 0 }) };
        self.look(cluster.as_ref(), call.within, |_, state| {
            let still_led = u32::try_from(still_led(state, settable(state, node)?).count()).unwrap_or(u32::MAX);
            Ok(v1::OrderResponse { changed, still_led })
        })
        .await
    }

    /// What should be looked at, the worst first.
    pub(super) async fn looked_over(&self, request: v1::CheckRequest, within: Duration) -> Result<v1::CheckResponse> {
        let cluster = request.cluster.clone();
        let LookOver { stale_after_ms, members_min, held_for_ms } = LookOver::try_from(request)?;
        let found = self.look_back(cluster.as_ref(), within, |session, state, remembered| {
            let view = session.quorum().view();
            let mut found = unsettled(state);
            found.extend(without_changes(view.id, &view.voters));
            found.extend(differing(session.quorum()));
            found.extend(of_other_histories(session, state));
            found.extend(unreachable(&view.voters));
            found.extend(upgrade::reason(state, &view));
            found.extend(self.certificates(session, state, &view));
            let full: Vec<_> = session.loads().lock().full_disks().collect();
            found.extend(not_served(state, remembered, boot_now()).iter().map(|alert| text(state, alert)));
            found.extend(reasons(state, remembered, &full, REASONS_MAX));
            Ok((found, session.clone()))
        });
        let (mut found, session) = found.await?;
        let term = session.term().lock();
        let meant = session.quorum().replicated().read(|state| {
            let of_table = |(table, least): (Option<String>, u32)| {
                let table = table.map(|name| table_of(state, &name).map(|table| table.id)).transpose()?;
                Ok::<_, ErrorDetail>((table, least))
            };
            let members_min = members_min.map(of_table).transpose()?;
            let thresholds = Thresholds { stale_after_ms, members_min, held_for_ms };
            let alerts = alerts(state, term.liveness(), boot_now(), thresholds);
            found.extend(alerts.iter().map(|alert| text(state, alert)));
            let maintained = all_down_are_maintained(state);
            Ok::<_, ErrorDetail>(Meant { maintained, few_voters: few_voters_are_meant(&alerts) })
        })?;
        let mut alerts: Vec<(Reverse<Severity>, v1::Reason)> =
            folded(found).into_iter().map(|reason| (Reverse(severity(&reason, meant)), reason)).collect();
        alerts.sort_by_key(|(severity, _)| *severity);
        let more = alerts.len() > ALERTS_MAX;
        alerts.truncate(ALERTS_MAX);
        let alerts = alerts.into_iter().map(|(Reverse(severity), reason)| v1::Alert {
            severity: severity.as_str().to_owned(),
            reason: Some(reason),
        });
        Ok(v1::CheckResponse { alerts: alerts.collect(), more })
    }
}

/// Whether every node that is down is so because somebody works on it.
fn all_down_are_maintained(state: &ClusterState) -> bool {
    state.nodes.down().all(|row| row.node.goal == NodeGoal::Maintain)
}

/// Whether the quorum never had more voters than it has: whoever runs it so knows.
fn few_voters_are_meant(alerts: &[Alert]) -> bool {
    alerts.iter().any(|alert| matches!(alert, Alert::TooFewVoters { had_more: false, .. }))
}

/// What is as somebody wants it, though it would be worth a look elsewhere.
#[derive(Clone, Copy, Default)]
struct Meant {
    /// Every node that is down is in maintenance.
    maintained: bool,
    /// There were never more voters.
    few_voters: bool,
}

/// How much a reason matters. That copies are missing is meant so, if it is only for the maintenance of their nodes.
fn severity(reason: &v1::Reason, meant: Meant) -> Severity {
    match reason.code.parse() {
        Ok(ReasonCode::UnderReplicated) if meant.maintained => Severity::Notice,
        Ok(ReasonCode::TooFewVoters) if meant.few_voters => Severity::Notice,
        Ok(code) => code.severity(),
        Err(_) => Severity::Alarm,
    }
}

/// The order by the numbers of what it names.
fn order_of(state: &ClusterState, asked: &Asked) -> Result<Order> {
    Ok(match asked {
        Asked::Bump(name) => {
            let partition = partition_of(state, name)?;
            let epoch = state.partition(partition).map(|row| row.epoch).unwrap_or_default();
            Order::Bump { partition, epoch }
        }
        Asked::Bar(name) => Order::Bar { bar: bar_of(state, name)?, member: settable(state, &name.node)? },
        Asked::Unbar(name) => Order::Unbar { bar: bar_of(state, name)?, member: node_of(state, &name.node)? },
        Asked::Offline(name) => Order::Offline { partition: partition_of(state, name)? },
        Asked::Online(name) => Order::Online { partition: partition_of(state, name)? },
        Asked::Maintain { node, for_ms } => {
            Order::Maintain { member: settable(state, node)?, until: wall_now().plus(*for_ms) }
        }
        Asked::Resume { node } => Order::Resume { member: settable(state, node)? },
    })
}

fn bar_of(state: &ClusterState, name: &BarName) -> Result<Bar> {
    match name.partition {
        Some(index) => {
            let name = PartitionName { table: name.table.clone(), index };
            Ok(Bar::Partition(partition_of(state, &name)?))
        }
        None => Ok(Bar::Table(table_of(state, &name.table)?.id)),
    }
}

/// What a bar is about.
pub(super) fn subject(state: &ClusterState, bar: Bar) -> Subject {
    match bar {
        Bar::Table(table) => subjects::table(state, table),
        Bar::Partition(partition) => subjects::partition(state, partition),
    }
}

/// A bar that stands, for people.
pub(super) fn bar(state: &ClusterState, (member, bar, note): (NodeId, Bar, &Note)) -> v1::Bar {
    v1::Bar {
        member: Some(subjects::node_name(state, member)),
        subject: Some(subject(state, bar).into()),
        why: note.why.clone(),
        by: Some(events::cause(state, &note.who).into()),
        at_ms: note.at.get(),
    }
}

/// An alert as a reason.
fn text(state: &ClusterState, alert: &Alert) -> v1::Reason {
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
            let message = format!(
                "{partitions} of its {of} partitions are not served, and it does not pass; partition {} for longest",
                longest.index
            );
            let remedy = format!("see why: `archon partition describe {}`", operand(state, *longest));
            let reason = reason_now(ReasonCode::NotServed, subjects::table(state, *table), message, remedy);
            v1::Reason { began_at_ms: Some(since.get()), ..reason }
        }
        Alert::TooLittleRoom { table, have, need } => {
            let (who, subject) = members(*table);
            let message = format!("the {who} take {have} {} together, and there are {need}", things(table));
            reason_now(ReasonCode::TooLittleRoom, subject, message, ROOM_REMEDY)
        }
        Alert::NoSpareRoom { table, without, have, need } => {
            let (who, subject) = members(*table);
            let (without, things) = (state.node_name(*without), things(table));
            let message = format!("without {without} the {who} take {have} {things} together, and there are {need}");
            reason_now(ReasonCode::NoSpareRoom, subject, message, ROOM_REMEDY)
        }
        Alert::TooFewMembers { table, have, need } => {
            let (who, subject) = members(*table);
            let message = format!("{have} {who} take partitions, and at least {need} should");
            reason_now(
                ReasonCode::TooFewMembers,
                subject,
                message,
                "start more, or let those serve that are cordoned or drained",
            )
        }
        Alert::TooFewVoters { voters, had_more } => {
            let message = match (voters, had_more) {
                (1, true) => {
                    "only one coordinator is left that votes: nothing is decided while it is down, and what it knows is on one disk"
                }
                (1, false) => {
                    "there is one coordinator: nothing is decided while it is down, and what it knows is on one disk"
                }
                _ => "two coordinators vote, and none of them may fail: nothing is decided while either is down",
            };
            let remedy = "have others join until three vote: `archon coordinator --id N --join H:P --data-dir DIR`; a learner that is \
                          there already: `archon quorum promote N`";
            reason_now(ReasonCode::TooFewVoters, Subject::Coordinators, message.to_owned(), remedy)
        }
        Alert::LeaseStale { member, for_ms } => {
            let message = format!("its lease was not extended for {:.1} s", *for_ms as f64 / 1_000.0);
            let remedy = "see whether it reaches the coordinators, and they a majority of themselves";
            reason_now(ReasonCode::LeaseStale, subjects::node(state, *member), message, remedy)
        }
        Alert::HeartbeatsOverdue { member, for_ms, left_ms } => {
            let seconds = |ms: u64| ms as f64 / 1_000.0;
            let (silent, left) = (seconds(*for_ms), seconds(*left_ms));
            let message = format!("its lease was not extended for {silent:.1} s; it is failed after {left:.1} s more");
            let remedy = "see whether it lives and reaches the coordinators";
            reason_now(ReasonCode::HeartbeatsOverdue, subjects::node(state, *member), message, remedy)
        }
        Alert::NoLeaseTable { member, table } => {
            let (name, there) = (state.node_name(*member), state.table_by_name(table).is_some());
            let what = if there { "holds data, not leases" } else { "is not there" };
            let message = format!("{name} serves table {table}, which {what}");
            let remedy = match there {
                true => "start it with the name of a lease table: `archon table list`".to_owned(),
                false => format!("`archon table create {table} --lease`, or start it with the name of another table"),
            };
            reason_now(ReasonCode::NoLeaseTable, subjects::node(state, *member), message, remedy)
        }
        Alert::OnlyInMaintenance { table, partitions, first, member } => {
            let name = state.node_name(*member);
            let others = match partitions {
                1 => String::new(),
                more => format!(", and {} more like it", more - 1),
            };
            let message = format!(
                "{name} is in maintenance and leads its partition {}{others}: nobody else takes it, and nobody serves it once \
                 {name} stops",
                first.index
            );
            let remedy = format!("end one of the maintenances: `archon node resume {name}`; or start others");
            let began = state.controls.maintenance_of(*member).map(|maintenance| maintenance.note.at.get());
            let reason = reason_now(ReasonCode::OnlyInMaintenance, subjects::table(state, *table), message, remedy);
            v1::Reason { began_at_ms: began.filter(|at| *at > 0), ..reason }
        }
        Alert::Held { held, since, long } => {
            let (subject, message, remedy) = held_text(state, *held);
            let code = if *long { ReasonCode::HeldTooLong } else { ReasonCode::OrderStands };
            let reason = reason_now(code, subject, message, remedy);
            v1::Reason { began_at_ms: Some(since.get()).filter(|at| *at > 0), ..reason }
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
            let remedy = format!("if it is over: `archon {verb} unbar {what}`");
            (subject(state, bar), format!("{} is barred from it", named(member)), remedy)
        }
        Held::Offline(partition) => {
            let table = subjects::table_name(state, partition.table);
            let remedy = format!("if it is over: `archon partition online {} --table {table}`", partition.index);
            (subjects::partition(state, partition), "it is offline".to_owned(), remedy)
        }
        Held::Goal(member, goal) => {
            let (what, verb) = match goal {
                NodeGoal::Cordon => ("cordoned", "uncordon"),
                NodeGoal::Drain => ("to be drained", "undrain"),
                NodeGoal::Maintain => ("in maintenance", "resume"),
                NodeGoal::Serve => ("to serve", "uncordon"),
            };
            let remedy = format!("if it is over: `archon node {verb} {}`", named(member));
            (subjects::node(state, member), format!("it is {what}"), remedy)
        }
    }
}

//! Alerts: conditions that need attention before or while everything is served, such as too few members, too little
//! capacity, stale leases and orders that may be forgotten. `findings::explain` gives the reasons for
//! unavailable partitions; an alert reports that they stay unavailable.

use crate::findings::intent::with_intent;
use crate::findings::leader_view::LeaderView;
use crate::leases::served_tables;
use crate::liveness::Liveness;
use crate::operator::still_led;
use crate::state::ClusterState;
use crate::state::coordinators::majority;
use crate::state::node_row::NodeRow;
use archon_types::subject::Subject;
use archon_types::{
    Facts, Finding, Millis, NodeGoal, NodeId, NodeStatus, Partition, PartitionId, PartitionStatus, ReasonCode,
    StandingOrder, Table, TableId,
};
use std::collections::{BTreeMap, BTreeSet};

/// Number of missed heartbeats that raises an alert.
const HEARTBEATS_OVERDUE: u64 = 3;
/// Minimum silence that raises an alert, in milliseconds: a busy machine is late by less.
const OVERDUE_MS_MIN: u64 = 1_000;

/// Thresholds of alerts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Thresholds {
    /// Time without a lease extension, in milliseconds; `None`: twice the failure time-out of the member.
    pub stale_after_ms: Option<u64>,
    /// Minimum number of members that take partitions: participants of one table, or nodes.
    pub members_min: Option<(Option<TableId>, u32)>,
    /// Age from which an order may have been forgotten, in milliseconds.
    pub held_for_ms: u64,
}

/// Returns all alerts.
pub fn alerts(state: &ClusterState, liveness: &Liveness, now: Millis, thresholds: Thresholds) -> Vec<Finding> {
    let mut alerts = Vec::new();
    alerts.extend(too_few_members(state, thresholds));
    alerts.extend(too_few_voters(state));
    alerts.extend(room(state, None, state.nodes.eligible(), copies_wanted(state)));
    for table in state.lease_tables() {
        let members = state.participants.serving(&table.name).filter(|row| row.takes_placements());
        alerts.extend(room(state, Some(table), members, u64::from(state.partitions.count_of(table.id))));
    }
    for row in state.members().filter(|row| state.partitions.leaders_on(row.node.id) > 0) {
        let member = row.node.id;
        // A member that this coordinator never answered counts as silent since this coordinator leads.
        let silent_for_ms = now.since(liveness.extended(member).unwrap_or(liveness.became_leader_at()));
        let timing = state.timing_of(member);
        let subject = state.node_subject(member);
        if silent_for_ms >= thresholds.stale_after_ms.unwrap_or(timing.failure_timeout_ms.saturating_mul(2)) {
            alerts.push(Finding::new(subject, Facts::LeaseStale { silent_for_ms }));
        } else if silent_for_ms >= timing.heartbeat_ms.saturating_mul(HEARTBEATS_OVERDUE).max(OVERDUE_MS_MIN) {
            let left_for_ms = timing.failure_timeout_ms.saturating_sub(silent_for_ms);
            alerts.push(Finding::new(subject, Facts::HeartbeatsOverdue { silent_for_ms, left_for_ms }));
        }
    }
    for row in state.participants.values().filter(|row| row.node.status == NodeStatus::Alive) {
        let (member, subject) = (row.node.id, state.node_subject(row.node.id));
        let not_leased = state
            .tables_not_leased(member)
            .map(|table| Facts::NoLeaseTable { exists: state.table_by_name(table).is_some(), table: table.clone() });
        let not_granted =
            state.tables_not_granted(member).map(|table| Facts::TableNotGranted { table: table.name.clone() });
        alerts.extend(not_leased.chain(not_granted).map(|facts| Finding::new(subject.clone(), facts)));
    }
    alerts.extend(only_in_maintenance(state));
    alerts.extend(orders(state, liveness.wall(now), thresholds.held_for_ms));
    alerts.into_iter().map(|alert| with_intent(state, alert.alert())).collect()
}

/// Returns one alert per table that loses service once the nodes in maintenance stop. For leases
/// [`Facts::OwnerStays`] covers this.
fn only_in_maintenance(state: &ClusterState) -> impl Iterator<Item = Finding> {
    let mut tables: BTreeMap<TableId, (u32, PartitionId, NodeId)> = BTreeMap::new();
    for (member, _) in state.controls.maintenance() {
        for first in still_led(state, member).filter(|partition| !state.is_lease(partition.table)) {
            tables.entry(first.table).or_insert((0, first, member)).0 += 1;
        }
    }
    tables.into_iter().map(move |(table, (partitions, first, member))| {
        let began = state.controls.maintenance_of(member).map(|maintenance| maintenance.note.at);
        let facts = Facts::OnlyInMaintenance {
            node: state.node_name(member),
            partitions_led: partitions,
            partition: first.index,
        };
        Finding::new(state.table_subject(table), facts).since(began.unwrap_or_default())
    })
}

/// Returns one alert per table with partitions unserved for longer than a failover takes. A lease table without
/// participants has an alarm of its own, which names the cause.
pub fn not_served(state: &ClusterState, remembered: &LeaderView, now: Millis) -> Vec<Finding> {
    let mut tables: BTreeMap<TableId, (u32, Millis, PartitionId)> = BTreeMap::new();
    let without_participants: BTreeSet<TableId> = state
        .lease_tables()
        .filter(|table| served_tables::eligible_count(state, table) == 0)
        .map(|table| table.id)
        .collect();
    for (row, since) in remembered.overdue(state, now) {
        if row.leader.is_none() && without_participants.contains(&row.id.table) {
            continue;
        }
        let (count, first, longest) = tables.entry(row.id.table).or_insert((0, since, row.id));
        *count += 1;
        (*first, *longest) = (*first, *longest).min((since, row.id));
    }
    let alert = |(table, (partitions, since, longest)): (TableId, (u32, Millis, PartitionId))| {
        let facts = Facts::NotServed {
            partitions_unserved: partitions,
            partitions_total: state.partitions.count_of(table),
            longest: longest.index,
        };
        Finding::new(state.table_subject(table), facts).since(since).alert()
    };
    tables.into_iter().map(alert).collect()
}

/// Returns every order in force. One that is old may have been forgotten.
fn orders(state: &ClusterState, wall: Millis, held_for_ms: u64) -> impl Iterator<Item = Finding> {
    let order = move |subject: Subject, order: StandingOrder, excluded: Option<String>, since: Millis| {
        let is_long = wall.since(since) >= held_for_ms;
        let facts = match is_long {
            true => Facts::HeldTooLong { order, excluded },
            false => Facts::OrderStands { order, excluded },
        };
        Finding::new(subject, facts).since(since)
    };
    let bars = state.controls.bars().map(move |(member, bar, note)| {
        order(state.bar_subject(bar), StandingOrder::Exclusion, Some(state.node_name(member)), note.at)
    });
    let offline = state.controls.offline().filter_map(move |(partition, note)| {
        let row = state.partitions.get(partition);
        // An offline partition has its own finding, but only once its leader has released it.
        let is_reported = row.is_none_or(is_offline);
        let kind = if row.is_some_and(is_offline) { StandingOrder::Offline } else { StandingOrder::GoingOffline };
        let finding = order(state.partition_subject(partition), kind, None, note.at);
        (!is_reported || finding.code() == ReasonCode::HeldTooLong).then_some(finding)
    });
    let goals = state.members().filter(|row| !row.is_lost()).filter_map(move |row| {
        let kind = match row.node.goal {
            NodeGoal::Serve => return None,
            NodeGoal::Cordon => StandingOrder::Cordon,
            NodeGoal::Drain => StandingOrder::Drain,
            NodeGoal::Maintain => StandingOrder::Maintenance,
        };
        Some(order(state.node_subject(row.node.id), kind, None, row.goal_since))
    });
    bars.chain(offline).chain(goals)
}

fn is_offline(row: &Partition) -> bool {
    row.status == PartitionStatus::Offline
}

fn too_few_members(state: &ClusterState, thresholds: Thresholds) -> Option<Finding> {
    let (table, need) = thresholds.members_min?;
    let of_leases = table.and_then(|table| state.tables.get(&table)).filter(|table| state.is_lease(table.id));
    let (have, subject) = match of_leases {
        Some(table) => (served_tables::eligible_count(state, table), state.table_subject(table.id)),
        None => (state.nodes.eligible_count(), Subject::Cluster),
    };
    let (have, need) = (have as u64, u64::from(need));
    (have < need).then(|| Finding::new(subject, Facts::TooFewMembers { have, need }))
}

/// Returns an alert if the failure of any one voter would end the quorum. Voters that do not answer have alerts of
/// their own.
fn too_few_voters(state: &ClusterState) -> Option<Finding> {
    let count = state.coordinators.voters().len();
    let had_more = state.generation > 1 || !state.coordinators.retired.is_empty();
    let voters = u32::try_from(count).unwrap_or(u32::MAX);
    let facts = Facts::TooFewVoters { voters_total: voters, had_more };
    (count > 0 && majority(count) == count).then(|| Finding::new(Subject::Coordinators, facts))
}

/// Returns the number of copies that all tables that hold data want.
fn copies_wanted(state: &ClusterState) -> u64 {
    let copies = |table: &Table| u64::from(state.partitions.count_of(table.id)) * u64::from(table.replication);
    state.data_tables().map(copies).sum()
}

/// Compares the limits of the members with the need, with and without the largest limit. A single member has no spare
/// by design, so it raises no alert.
fn room<'a>(
    state: &ClusterState,
    table: Option<&Table>,
    members: impl Iterator<Item = &'a NodeRow>,
    need: u64,
) -> Option<Finding> {
    let members: Vec<&NodeRow> = members.collect();
    if members.is_empty() || need == 0 {
        return None;
    }
    let limits: Vec<(u64, NodeId)> = members.iter().map(|row| (u64::from(row.assigned_max()), row.node.id)).collect();
    let have: u64 = limits.iter().map(|(limit, _)| limit).sum();
    let subject = || table.map_or(Subject::Cluster, |table| state.table_subject(table.id));
    if have < need {
        return Some(Finding::new(subject(), Facts::TooLittleRoom { have, need }));
    }
    let (largest, without) = limits.iter().max().copied().filter(|_| limits.len() > 1)?;
    let (have, without) = (have - largest, state.node_name(without));
    (have < need).then(|| Finding::new(subject(), Facts::NoSpareRoom { without, have, need }))
}

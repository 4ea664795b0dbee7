//! Alerts: conditions that need attention before or while everything is served, such as too few members, too little
//! capacity, stale leases and orders that may be forgotten. `findings::explain` gives the reasons for
//! unavailable partitions; an alert reports that they stay unavailable.

use crate::findings::remembered::Remembered;
use crate::leases::served_tables;
use crate::liveness::Liveness;
use crate::operator::still_led;
use crate::state::ClusterState;
use crate::state::controls::Bar;
use crate::state::coordinators::majority;
use crate::state::node_row::NodeRow;
use archon_types::{Millis, NodeGoal, NodeId, NodeStatus, Partition, PartitionId, PartitionStatus, Table, TableId};
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

/// A standing order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Held {
    /// A member is barred from partitions.
    Bar(NodeId, Bar),
    /// A partition is offline.
    Offline(PartitionId),
    /// A member is cordoned, being drained, or in maintenance.
    Goal(NodeId, NodeGoal),
}

/// A condition that needs attention.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Alert {
    /// Partitions that should be served have been unavailable for longer than a failover takes, for any reason.
    NotServed {
        /// The table.
        table: TableId,
        /// Number of its partitions.
        partitions: u32,
        /// The partition that is unavailable for longest.
        longest: PartitionId,
        /// Start of that unavailability, on the wall clock.
        since: Millis,
    },
    /// The limits of all members together are below the number of partitions or copies. `None`: of all tables that hold
    /// data.
    TooLittleRoom {
        /// The lease table.
        table: Option<TableId>,
        /// Sum of the limits.
        have: u64,
        /// Number of partitions or copies.
        need: u64,
    },
    /// Capacity suffices, but not without the member with the highest limit.
    NoSpareRoom {
        /// The lease table; `None`: all tables that hold data.
        table: Option<TableId>,
        /// The member with the highest limit.
        without: NodeId,
        /// Sum of the limits of the others.
        have: u64,
        /// Number of partitions or copies.
        need: u64,
    },
    /// Fewer members take partitions than required.
    TooFewMembers {
        /// The table; `None`: nodes.
        table: Option<TableId>,
        /// Number of members that do.
        have: u32,
        /// Required number.
        need: u32,
    },
    /// The failure of any one voter ends the quorum, even while all voters answer.
    TooFewVoters {
        /// Number of voters.
        voters: u32,
        /// True if there were more voters before: the quorum was recovered, or some have left.
        had_more: bool,
    },
    /// A member owns partitions and its lease has not been extended for long.
    LeaseStale {
        /// The member.
        member: NodeId,
        /// Time since the last extension, in milliseconds.
        for_ms: u64,
    },
    /// A member owns partitions and missed some heartbeats: it may be dead, although its failure time-out has not
    /// passed.
    HeartbeatsOverdue {
        /// The member.
        member: NodeId,
        /// Time since its lease was extended, in milliseconds.
        for_ms: u64,
        /// Silence left until it is failed, in milliseconds.
        left_ms: u64,
    },
    /// A participant serves a table that does not exist or that holds data.
    NoLeaseTable {
        /// The participant.
        member: NodeId,
        /// Name of the table.
        table: String,
    },
    /// A participant serves a lease table that it was not granted.
    TableNotGranted {
        /// The participant.
        member: NodeId,
        /// Number of the table.
        table: TableId,
    },
    /// Nodes in maintenance lead partitions of a table, since no other node takes them. For leases
    /// [`crate::Why::OwnerStays`] covers this.
    OnlyInMaintenance {
        /// The table.
        table: TableId,
        /// Number of its partitions.
        partitions: u32,
        /// First of these partitions.
        first: PartitionId,
        /// Its leader.
        member: NodeId,
    },
    /// An order stands.
    Held {
        /// The order.
        held: Held,
        /// Start of the order, on the wall clock.
        since: Millis,
        /// True if the order is old enough to be forgotten.
        long: bool,
    },
}

/// Returns all alerts.
pub fn alerts(state: &ClusterState, liveness: &Liveness, now: Millis, thresholds: Thresholds) -> Vec<Alert> {
    let mut alerts = Vec::new();
    alerts.extend(too_few_members(state, thresholds));
    alerts.extend(too_few_voters(state));
    alerts.extend(room(None, state.nodes.eligible(), copies_wanted(state)));
    for table in state.lease_tables() {
        let members = state.participants.serving(&table.name).filter(|row| row.takes_placements());
        alerts.extend(room(Some(table), members, u64::from(state.partitions.count_of(table.id))));
    }
    for row in state.members().filter(|row| state.partitions.leaders_on(row.node.id) > 0) {
        let member = row.node.id;
        // A member that this coordinator never answered counts as silent since this coordinator leads.
        let for_ms = now.since(liveness.extended(member).unwrap_or(liveness.became_leader_at()));
        let timing = state.timing_of(member);
        if for_ms >= thresholds.stale_after_ms.unwrap_or(timing.failure_timeout_ms.saturating_mul(2)) {
            alerts.push(Alert::LeaseStale { member, for_ms });
        } else if for_ms >= timing.heartbeat_ms.saturating_mul(HEARTBEATS_OVERDUE).max(OVERDUE_MS_MIN) {
            let left_ms = timing.failure_timeout_ms.saturating_sub(for_ms);
            alerts.push(Alert::HeartbeatsOverdue { member, for_ms, left_ms });
        }
    }
    for row in state.participants.values().filter(|row| row.node.status == NodeStatus::Alive) {
        let member = row.node.id;
        alerts
            .extend(state.tables_not_leased(member).map(|table| Alert::NoLeaseTable { member, table: table.clone() }));
        let not_granted = state.tables_not_granted(member).map(|table| table.id);
        alerts.extend(not_granted.map(|table| Alert::TableNotGranted { member, table }));
    }
    alerts.extend(only_in_maintenance(state));
    let wall = liveness.wall(now);
    alerts.extend(held(state).filter_map(|(held, since)| {
        let long = wall.since(since) >= thresholds.held_for_ms;
        // An offline partition has its own reason, but only once its leader has released it.
        let is_told =
            matches!(held, Held::Offline(partition) if state.partitions.get(partition).is_none_or(is_offline));
        (long || !is_told).then_some(Alert::Held { held, since, long })
    }));
    alerts
}

fn is_offline(row: &Partition) -> bool {
    row.status == PartitionStatus::Offline
}

/// Returns one alert per table that loses service once the nodes in maintenance stop.
fn only_in_maintenance(state: &ClusterState) -> impl Iterator<Item = Alert> {
    let mut tables: BTreeMap<TableId, (u32, PartitionId, NodeId)> = BTreeMap::new();
    for (member, _) in state.controls.maintenance() {
        for first in still_led(state, member).filter(|partition| !state.is_lease(partition.table)) {
            tables.entry(first.table).or_insert((0, first, member)).0 += 1;
        }
    }
    let alert = |(table, (partitions, first, member))| Alert::OnlyInMaintenance { table, partitions, first, member };
    tables.into_iter().map(alert)
}

/// Returns one alert per table with partitions unserved for longer than a failover takes. A lease table without
/// participants has an alarm of its own, which names the cause.
pub fn not_served(state: &ClusterState, remembered: &Remembered, now: Millis) -> Vec<Alert> {
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
    let alert = |(table, (partitions, since, longest))| Alert::NotServed { table, partitions, longest, since };
    tables.into_iter().map(alert).collect()
}

/// Returns every standing order with its start time.
fn held(state: &ClusterState) -> impl Iterator<Item = (Held, Millis)> {
    let bars = state.controls.bars().map(|(member, bar, note)| (Held::Bar(member, bar), note.at));
    let offline = state.controls.offline().map(|(partition, note)| (Held::Offline(partition), note.at));
    let goals = state.members().filter(|row| row.node.goal != NodeGoal::Serve && !row.is_lost());
    bars.chain(offline).chain(goals.map(|row| (Held::Goal(row.node.id, row.node.goal), row.goal_since)))
}

fn too_few_members(state: &ClusterState, thresholds: Thresholds) -> Option<Alert> {
    let (table, need) = thresholds.members_min?;
    let of_leases = table.and_then(|table| state.tables.get(&table)).filter(|table| state.is_lease(table.id));
    let have = match of_leases {
        Some(table) => served_tables::eligible_count(state, table),
        None => state.nodes.eligible_count(),
    };
    let have = u32::try_from(have).unwrap_or(u32::MAX);
    (have < need).then_some(Alert::TooFewMembers { table, have, need })
}

/// Returns an alert if the failure of any one voter would end the quorum. Voters that do not answer have alerts of
/// their own.
fn too_few_voters(state: &ClusterState) -> Option<Alert> {
    let voters = state.coordinators.voters().len();
    let had_more = state.generation > 1 || !state.coordinators.retired.is_empty();
    let voters_u32 = u32::try_from(voters).unwrap_or(u32::MAX);
    (voters > 0 && majority(voters) == voters).then_some(Alert::TooFewVoters { voters: voters_u32, had_more })
}

/// Returns the number of copies that all tables that hold data want.
fn copies_wanted(state: &ClusterState) -> u64 {
    let copies = |table: &Table| u64::from(state.partitions.count_of(table.id)) * u64::from(table.replication);
    state.data_tables().map(copies).sum()
}

/// Compares the limits of the members with the need, with and without the largest limit. A single member has no spare
/// by design, so it raises no alert.
fn room<'a>(table: Option<&Table>, members: impl Iterator<Item = &'a NodeRow>, need: u64) -> Option<Alert> {
    let members: Vec<&NodeRow> = members.collect();
    if members.is_empty() || need == 0 {
        return None;
    }
    let limits: Vec<(u64, NodeId)> = members.iter().map(|row| (u64::from(row.assigned_max()), row.node.id)).collect();
    let have: u64 = limits.iter().map(|(limit, _)| limit).sum();
    let id = table.map(|table| table.id);
    if have < need {
        return Some(Alert::TooLittleRoom { table: id, have, need });
    }
    let (largest, without) = limits.iter().max().copied().filter(|_| limits.len() > 1)?;
    let have = have - largest;
    (have < need).then_some(Alert::NoSpareRoom { table: id, without, have, need })
}

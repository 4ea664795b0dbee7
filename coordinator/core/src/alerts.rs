//! What should be looked at although everything is served, or before it is not: too few members, too little room, leases
//! that nobody extends, orders that somebody may have forgotten. What is not served has its reasons in [`crate::explain`]; that
//! it stays so is said here.

use crate::controls::Bar;
use crate::coordinators::majority;
use crate::leases;
use crate::liveness::Liveness;
use crate::node_row::NodeRow;
use crate::operate::still_led;
use crate::remembered::Remembered;
use crate::state::ClusterState;
use archon_types::{Millis, NodeGoal, NodeId, NodeStatus, Partition, PartitionId, PartitionStatus, Table, TableId};
use std::collections::{BTreeMap, BTreeSet};

/// So many heartbeats that did not come are worth a look.
const HEARTBEATS_OVERDUE: u64 = 3;
/// But less time than this is not: a busy machine is late by so much, in milliseconds.
const OVERDUE_MS_MIN: u64 = 1_000;

/// From when on something is worth a look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Thresholds {
    /// A lease that was not extended for so long, in milliseconds; `None`: for twice the failure time-out of its member.
    pub stale_after_ms: Option<u64>,
    /// Fewer members than this that take partitions: of one table, or nodes.
    pub members_min: Option<(Option<TableId>, u32)>,
    /// An order that stands for so long, in milliseconds, may have been forgotten.
    pub held_for_ms: u64,
}

/// An order that stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Held {
    /// A member is barred from partitions.
    Bar(NodeId, Bar),
    /// A partition is offline.
    Offline(PartitionId),
    /// A member is cordoned, being drained, or in maintenance.
    Goal(NodeId, NodeGoal),
}

/// Something to be looked at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Alert {
    /// Partitions that ought to be served are not, for longer than a failover takes, whatever the reason.
    NotServed {
        /// The table.
        table: TableId,
        /// How many of it.
        partitions: u32,
        /// The one of which that holds for longest.
        longest: PartitionId,
        /// Since when, on the wall clock.
        since: Millis,
    },
    /// All members together take fewer partitions, or copies, than there are. `None`: of all tables that hold data.
    TooLittleRoom {
        /// The lease table.
        table: Option<TableId>,
        /// How many they take.
        have: u64,
        /// How many there are.
        need: u64,
    },
    /// There is room, but not without the member that takes most.
    NoSpareRoom {
        /// As above.
        table: Option<TableId>,
        /// Without whom there is too little.
        without: NodeId,
        /// How many the others take.
        have: u64,
        /// How many there are.
        need: u64,
    },
    /// Fewer members take partitions than should.
    TooFewMembers {
        /// The table; `None`: nodes.
        table: Option<TableId>,
        /// How many do.
        have: u32,
        /// How many should.
        need: u32,
    },
    /// So few coordinators vote that none of them may fail, also while all of them answer.
    TooFewVoters {
        /// How many vote.
        voters: u32,
        /// Whether there were others before: the quorum was recovered, or some have left.
        had_more: bool,
    },
    /// A member owns partitions, and its lease was not extended for long.
    LeaseStale {
        /// Which member.
        member: NodeId,
        /// For how long, in milliseconds.
        for_ms: u64,
    },
    /// A member owns partitions, and some of its heartbeats did not come: it may be dead, long before it is failed.
    HeartbeatsOverdue {
        /// Which member.
        member: NodeId,
        /// For how long its lease was not extended, in milliseconds.
        for_ms: u64,
        /// After how much more silence it is failed, in milliseconds.
        left_ms: u64,
    },
    /// A participant serves a table that is not there, or holds data.
    NoLeaseTable {
        /// Which participant.
        member: NodeId,
        /// The name of the table.
        table: String,
    },
    /// Nodes in maintenance lead partitions of a table, since nobody else takes them. Of leases [`crate::Why::OwnerStays`] says
    /// it.
    OnlyInMaintenance {
        /// The table.
        table: TableId,
        /// How many of it.
        partitions: u32,
        /// One of them.
        first: PartitionId,
        /// Who leads that one.
        member: NodeId,
    },
    /// An order stands.
    Held {
        /// Which one.
        held: Held,
        /// Since when, on the wall clock.
        since: Millis,
        /// For so long that somebody may have forgotten it.
        long: bool,
    },
}

/// Everything that should be looked at.
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
        // One that was never answered by this coordinator was not heard for as long as that leads.
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
    }
    alerts.extend(only_in_maintenance(state));
    let wall = liveness.wall(now);
    alerts.extend(held(state).filter_map(|(held, since)| {
        let long = wall.since(since) >= thresholds.held_for_ms;
        // A partition that is offline has a reason of its own, but not before its leader has released it.
        let is_told =
            matches!(held, Held::Offline(partition) if state.partitions.get(partition).is_none_or(is_offline));
        (long || !is_told).then_some(Alert::Held { held, since, long })
    }));
    alerts
}

fn is_offline(row: &Partition) -> bool {
    row.status == PartitionStatus::Offline
}

/// What ceases to be served once those nodes stop that are in maintenance: one for each table.
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

/// Returns one alert per table with partitions unserved for longer than a failover takes. A lease table without participants has
/// an alarm of its own, which names the cause.
pub fn not_served(state: &ClusterState, remembered: &Remembered, now: Millis) -> Vec<Alert> {
    let mut tables: BTreeMap<TableId, (u32, Millis, PartitionId)> = BTreeMap::new();
    let without_participants: BTreeSet<TableId> =
        state.lease_tables().filter(|table| leases::eligible_count(state, table) == 0).map(|table| table.id).collect();
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

/// Every order that stands, with the time since when.
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
        Some(table) => leases::eligible_count(state, table),
        None => state.nodes.eligible_count(),
    };
    let have = u32::try_from(have).unwrap_or(u32::MAX);
    (have < need).then_some(Alert::TooFewMembers { table, have, need })
}

/// Whether one voter's failure ends the quorum however the others are. That one of more does not answer is said of that one.
fn too_few_voters(state: &ClusterState) -> Option<Alert> {
    let voters = state.coordinators.voters().len();
    let had_more = state.generation > 1 || !state.coordinators.retired.is_empty();
    let voters_u32 = u32::try_from(voters).unwrap_or(u32::MAX);
    (voters > 0 && majority(voters) == voters).then_some(Alert::TooFewVoters { voters: voters_u32, had_more })
}

/// Copies of all tables that hold data.
fn copies_wanted(state: &ClusterState) -> u64 {
    let copies = |table: &Table| u64::from(state.partitions.count_of(table.id)) * u64::from(table.replication);
    state.data_tables().map(copies).sum()
}

/// Whether members that have limits take so many together, also without the largest of them. One member alone has no spare:
/// whoever runs it so knows.
fn room<'a>(table: Option<&Table>, members: impl Iterator<Item = &'a NodeRow>, need: u64) -> Option<Alert> {
    let members: Vec<&NodeRow> = members.collect();
    let limits: Option<Vec<(u64, NodeId)>> =
        members.iter().map(|row| Some((u64::from(row.node.partitions_max?), row.node.id))).collect();
    let limits = limits.filter(|limits| !limits.is_empty() && need > 0)?;
    let have: u64 = limits.iter().map(|(limit, _)| limit).sum();
    let id = table.map(|table| table.id);
    if have < need {
        return Some(Alert::TooLittleRoom { table: id, have, need });
    }
    let (largest, without) = limits.iter().max().copied().filter(|_| limits.len() > 1)?;
    let have = have - largest;
    (have < need).then_some(Alert::NoSpareRoom { table: id, without, have, need })
}

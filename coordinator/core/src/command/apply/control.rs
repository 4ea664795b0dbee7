//! Application of operators' orders. The control turn carries them out.

use super::node::want;
use super::stage::StagedRows;
use crate::command::apply::entry::Entry;
use crate::command::refusals::{not_found, refused, stale};
use crate::state::ClusterState;
use crate::state::controls::{Bar, CONTROLS_MAX, Maintenance, Note, Order};
use crate::state::events::EventKind;
use crate::state::response::Response;
use archon_types::limits::check_why;
use archon_types::{
    ErrorDetail, Millis, NodeGoal, NodeId, NodeStatus, Partition, PartitionId, PartitionStatus, Version,
};

/// Applies one order; an order that holds already changes nothing.
pub(super) fn control(
    state: &mut ClusterState,
    entry: Entry<'_>,
    if_controls: Version,
    order: Order,
    why: &str,
) -> Result<Response, ErrorDetail> {
    if state.controls_version != if_controls {
        return Err(stale("what operators have ordered", state.controls_version, if_controls));
    }
    check_why(why)?;
    let note = || Note { why: why.to_owned(), who: entry.who.clone(), at: entry.at };
    let changed = match order {
        Order::Bump { partition, epoch } => {
            let row = row(state, partition)?;
            if row.epoch != epoch || row.leader.is_none() {
                return Err(stale(&format!("partition {}", state.partition_name(partition)), row.version, if_controls));
            }
            state.controls.insert_bumped(partition, epoch);
            Some(EventKind::LeadershipBumped { partition, epoch, why: why.to_owned() })
        }
        Order::Bar { bar, member } => {
            exists(state, bar)?;
            known(state, member)?;
            has_space(state)?;
            let news = !state.controls.has_bar(member, bar);
            state.controls.insert_bar(member, bar, note());
            news.then(|| EventKind::MemberBarred { member, bar, why: why.to_owned() })
        }
        Order::Unbar { bar, member } => {
            let news = state.controls.has_bar(member, bar);
            state.controls.remove_bar(member, bar);
            news.then_some(EventKind::BarLifted { member, bar })
        }
        Order::Offline { partition } => {
            row(state, partition)?;
            has_space(state)?;
            let news = !state.is_offline(partition);
            end_reshape(state, entry, partition)?;
            state.controls.insert_offline(partition, note());
            set_status(state, entry, partition, PartitionStatus::Unavailable, PartitionStatus::Offline);
            news.then(|| EventKind::PartitionOffline { partition, why: why.to_owned() })
        }
        Order::Online { partition } => {
            row(state, partition)?;
            let news = state.is_offline(partition);
            state.controls.remove_offline(partition);
            set_status(state, entry, partition, PartitionStatus::Offline, PartitionStatus::Unavailable);
            news.then_some(EventKind::PartitionOnline { partition })
        }
        Order::Maintain { member, until } => Some(maintain(state, entry, member, until, note())?),
        Order::Resume { member } => resume(state, entry, member),
    };
    if let Some(event) = changed {
        entry.note(state, event);
    }
    state.controls_version = entry.version();
    entry.done()
}

fn maintain(
    state: &mut ClusterState,
    entry: Entry<'_>,
    member: NodeId,
    until: Millis,
    note: Note,
) -> Result<EventKind, ErrorDetail> {
    let goal = known(state, member)?;
    if goal == NodeGoal::Drain {
        return Err(refused(format!("{} is being drained; cancel the drain first", state.node_name(member))));
    }
    let before = state.controls.maintenance_of(member).map_or(goal, |earlier| earlier.before);
    let why = note.why.clone();
    state.controls.insert_maintenance(member, Maintenance { until, before, note, left_ms: None });
    want(state, entry, member, NodeGoal::Maintain);
    Ok(EventKind::MaintenanceBegun { member, until, why })
}

/// Records the remaining time of a maintenance. Operators do not base decisions on it, so the version of all orders
/// stays.
pub(super) fn record_maintenance(
    state: &mut ClusterState,
    entry: Entry<'_>,
    member: NodeId,
    until: Millis,
    left_ms: u64,
) -> Result<Response, ErrorDetail> {
    if !state.controls.record_left(member, until, left_ms) {
        return Err(not_found(format!("{} is not in that maintenance", state.node_name(member))));
    }
    entry.done()
}

/// Ends the maintenance of a member, if it is in one.
fn resume(state: &mut ClusterState, entry: Entry<'_>, member: NodeId) -> Option<EventKind> {
    let before = state.controls.remove_maintenance(member)?.before;
    want(state, entry, member, before);
    Some(EventKind::MaintenanceOver { member })
}

/// Abandons the split or merge by which this partition gives keys away: an offline partition serves no keys.
fn end_reshape(state: &mut ClusterState, entry: Entry<'_>, partition: PartitionId) -> Result<(), ErrorDetail> {
    let mut staged = StagedRows::new(state, entry);
    let mut row = staged.row(partition)?;
    let why = "an operator took the partition offline";
    match (&row.split, &row.merge) {
        (Some(_), _) => staged.abandon_split(&mut row, why)?,
        (None, Some(_)) => staged.abandon_merge(&mut row, why)?,
        (None, None) => return Ok(()),
    }
    staged.put(row);
    staged.into_effect().commit(state, entry);
    Ok(())
}

/// Changes the status of a row from `from` to `to`, so that a row without a leader shows whether an operator wants
/// that.
fn set_status(
    state: &mut ClusterState,
    entry: Entry<'_>,
    partition: PartitionId,
    from: PartitionStatus,
    to: PartitionStatus,
) {
    if let Some(row) = state.partitions.get(partition).filter(|row| row.status == from).cloned() {
        state.partitions.insert(Partition { status: to, version: entry.version(), ..row });
    }
}

fn row(state: &ClusterState, partition: PartitionId) -> Result<&Partition, ErrorDetail> {
    state.partitions.get(partition).ok_or_else(|| not_found(format!("partition {partition} does not exist")))
}

fn exists(state: &ClusterState, bar: Bar) -> Result<(), ErrorDetail> {
    match bar {
        Bar::Partition(partition) => row(state, partition).map(|_| ()),
        Bar::Table(table) if state.tables.contains_key(&table) => Ok(()),
        Bar::Table(table) => Err(not_found(format!("table number {table} does not exist"))),
    }
}

/// Returns the goal of a member that is not lost.
fn known(state: &ClusterState, member: NodeId) -> Result<NodeGoal, ErrorDetail> {
    let row = state.node(member).filter(|row| row.node.status != NodeStatus::Lost);
    row.map(|row| row.node.goal).ok_or_else(|| not_found(format!("node {member} does not exist")))
}

fn has_space(state: &ClusterState) -> Result<(), ErrorDetail> {
    if state.controls.is_full() {
        return Err(refused(format!("there are {CONTROLS_MAX} bars and partitions offline already")));
    }
    Ok(())
}

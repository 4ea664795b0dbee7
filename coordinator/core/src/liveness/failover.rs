//! Elections of leaders: after a node failed, and for any partition without one.

use crate::command::edit::{Edit, LeadershipEnd, PartitionChange};
use crate::command::{Command, Successor};
use crate::leases::{Owners, hand_over};
use crate::liveness::Liveness;
use crate::placement::next_leader::next_leader;
use crate::state::ClusterState;
use archon_types::{Incarnation, Millis, NodeId, Partition, TableId};
use std::collections::{BTreeMap, BTreeSet};

/// Returns one command that fails a node and names every successor.
pub(crate) fn node_failed(
    state: &ClusterState,
    liveness: &Liveness,
    node: NodeId,
    incarnation: Incarnation,
) -> Command {
    let mut extra = BTreeMap::new();
    let excluded = |other| other == node || !liveness.may_lead(other);
    let spared = |other| liveness.doors.spares(other);
    let successors = state
        .partitions
        .on_node(node)
        // The next owner of a lease is elected in the next turn, among all participants.
        .filter(|row| !state.is_lease(row.id.table) && !state.is_offline(row.id))
        .filter(|row| row.leader_placement().is_some_and(|leader| leader.node == node))
        .filter_map(|row| {
            let (placement, incarnation) = next_leader(state, row, &mut extra, excluded, spared)?;
            Some(Successor { partition: row.id, if_version: row.version, placement, incarnation })
        })
        .collect();
    Command::NodeFailed { node, incarnation, successors }
}

/// Returns commands for the nodes that were silent for too long, with successors. Their heartbeats are
/// no longer answered.
pub(crate) fn failures(state: &ClusterState, liveness: &mut Liveness, now: Millis) -> Vec<Command> {
    let silent = liveness.silent(state, now);
    // All of them stop being answered before any successor is chosen: none of them may become one.
    let due: Vec<(NodeId, Incarnation)> =
        silent.into_iter().filter(|(node, _)| liveness.stop_answering(*node, now)).collect();
    due.into_iter().map(|(node, incarnation)| node_failed(state, liveness, node, incarnation)).collect()
}

/// The outcome of an election.
pub(crate) enum Election {
    /// Commit this command.
    Elect(Command),
    /// The lease of the former leader may run until this time.
    Wait(Millis),
    /// No member can lead, or no election is due.
    Nothing,
}

/// Returns the partitions without a leader that have a possible one: a node with a replica, or for a lease table a
/// participant with room. All others wait for a new member, which changes the state, and are not scanned until then.
pub(crate) fn electable<'a>(
    state: &'a ClusterState,
    liveness: &Liveness,
    owners: &mut Owners<'_>,
) -> impl Iterator<Item = &'a Partition> + use<'a> {
    let taken = state.lease_tables().filter(|table| owners.takes(liveness, table)).map(|table| table.id);
    let taken: BTreeSet<TableId> = taken.collect();
    let mut held = state.partitions.leaderless_on(|node| state.is_active(node) && liveness.may_lead(node));
    held.retain(|id| !taken.contains(&id.table));
    let held = held.into_iter().filter_map(|id| state.partitions.get(id));
    held.chain(taken.into_iter().flat_map(|table| state.partitions.leaderless_in(table)))
}

/// Elects a leader if there is none, or if the present leadership was withdrawn and its lease has ended.
pub(crate) fn elect(
    state: &ClusterState,
    liveness: &Liveness,
    now: Millis,
    row: &Partition,
    extra: &mut BTreeMap<NodeId, u32>,
    owners: &mut Owners<'_>,
) -> Election {
    let mut over_at = Millis::ZERO;
    if row.leader.is_some() {
        match liveness.withdrawn_over_at(state, row.id) {
            Some(at) => over_at = at,
            None => return Election::Nothing,
        }
    }
    for former in state.former_leaders.of_partition(row.id) {
        over_at = over_at.max(liveness.former_over_at(state, former));
    }
    // A lease needs no copy: its last owner may have been removed.
    if row.live().next().is_none() && !state.is_lease(row.id.table) {
        return Election::Nothing;
    }
    if now < over_at {
        return Election::Wait(over_at);
    }
    if state.is_offline(row.id) {
        let vacate = || PartitionChange::one(row.id, row.version, Edit::Vacate(LeadershipEnd::Lapsed));
        return row.leader.map_or(Election::Nothing, |_| Election::Elect(Command::Change(vec![vacate()])));
    }
    if state.is_lease(row.id.table) {
        let Some(next) = owners.next(liveness, row, |_| false) else { return Election::Nothing };
        let edits = hand_over::take_over(row, next, LeadershipEnd::Lapsed);
        let change = PartitionChange { partition: row.id, if_version: row.version, edits };
        return Election::Elect(Command::Change(vec![change]));
    }
    let only = liveness.isolated.successor(row, now, |node| state.is_active(node) && liveness.may_lead(node));
    let excluded = |node| !liveness.may_lead(node) || only.is_some_and(|only| only != node);
    let Some((placement, incarnation)) = next_leader(state, row, extra, excluded, |node| liveness.doors.spares(node))
    else {
        return Election::Nothing;
    };
    let edit = Edit::Lead { placement, incarnation, ending: LeadershipEnd::Lapsed };
    Election::Elect(Command::Change(vec![PartitionChange::one(row.id, row.version, edit)]))
}

//! Reasons for the states of partitions and nodes, by code and subject.

use super::subjects;
use crate::leader::load::SpaceWait;
use crate::service::findings::disks::Disks;
use crate::service::findings::reason::{at, reason, reason_now};
use crate::service::findings::words::because;
use archon_coordinator_core::{
    ClusterState, DoorView, EventKind, Explainer, NodeRow, Remembered, Why, Withheld, counts, staying_leases,
};
use archon_documents::Reason;
use archon_types::subject::Subject;
use archon_types::{
    DEFAULT_TABLE, DiskFull, DiskLimit, Holds, LogPin, NodeGoal, NodeId, NodeStatus, PartitionId, PartitionStatus,
    ReasonCode, Table, TableId,
};
use std::collections::BTreeSet;

/// Maximum number of nodes named in the reason about tombstoned replicas.
const CONDEMNED_NAMED_MAX: usize = 5;

/// Returns the reasons: failed nodes first, then nodes that refuse writes, then partitions that are not served, then
/// moves that wait.
pub(in crate::service) fn reasons(
    state: &ClusterState,
    remembered: &Remembered,
    disks: &Disks,
    most: usize,
) -> Vec<Reason> {
    let explainer = Explainer::new(state, remembered);
    let mut reasons = Vec::new();
    for row in state.nodes.values().filter(|row| row.node.status == NodeStatus::Failed) {
        let node = &row.node;
        if reasons.len() >= most {
            return reasons;
        }
        let drained = node.goal == NodeGoal::Drain && state.partitions.count_on(node.id) == 0;
        let wait = disks.waits.iter().find(|(waiting, _)| *waiting == node.id).map(|(_, wait)| wait);
        let (message, remedy) = match (wait, drained) {
            (Some(SpaceWait { lack, .. }), _) => (
                format!("{} at {} waits for disk space before it starts: {lack}", node.name, node.address),
                format!("{} {}; it then starts by itself", space_freed(lack.limit), node.name),
            ),
            (None, true) => (
                format!("{} was drained and has stopped", node.name),
                format!("remove it: `archon node remove {}`", node.name),
            ),
            (None, false) => (
                match row.stopped {
                    true => format!("{} at {} has stopped", node.name, node.address),
                    false => format!("{} at {} was silent for the failure time-out", node.name, node.address),
                },
                format!("start {} again with its data directory", node.name),
            ),
        };
        let (code, message) = match state.controls.maintenance_of(node.id) {
            Some(maintenance) => (
                ReasonCode::InMaintenance,
                format!("{message}; it is in maintenance{}", because(&maintenance.note.why)),
            ),
            None => (ReasonCode::NodeFailed, message),
        };
        let failed = reason_now(code, subjects::node(state, node.id), message, remedy);
        let began = wait.map_or(node.since, |wait| wait.began);
        reasons.push(Reason { began_at_ms: at(began), ..failed });
    }
    let unreached = remembered.unreached().map(|(node, view)| unreached(state, node, view));
    reasons.extend(unreached.take(most - reasons.len()));
    let full = disks.full.iter().filter_map(|(node, lack)| disk_full(state, *node, *lack));
    reasons.extend(full.take(most - reasons.len()));
    let pins = disks.log_pins.iter().filter_map(|(node, pin)| log_pinned(state, *node, *pin));
    reasons.extend(pins.take(most - reasons.len()));
    if reasons.len() >= most {
        return reasons;
    }
    let waiting = state.tables.values().filter_map(|table| waits_for_members(state, remembered, &explainer, table));
    reasons.extend(waiting.take(most - reasons.len()));
    let isolated: BTreeSet<PartitionId> = explainer.isolated().collect();
    let restless = state.partitions.iter().filter(|row| {
        row.status != PartitionStatus::Unassigned
            && (row.status != PartitionStatus::Online
                || state.running_migration(row.id).is_some()
                || isolated.contains(&row.id))
    });
    for row in restless {
        // Missing replicas, and their cause, are reported once for all partitions.
        let of_copies = |why: &Why| {
            matches!(why, Why::UnderReplicated { .. } | Why::NodesAtLimit { .. } | Why::RepairWithheld { .. })
        };
        let said = |why: &Why| of_copies(why) || matches!(why, Why::NoParticipant { .. } | Why::OwnerStays { .. });
        let whys = explainer.explain(row.id).unwrap_or_default();
        for why in whys.into_iter().filter(|why| !said(why)) {
            if reasons.len() >= most {
                return reasons;
            }
            reasons.push(reason(state, remembered, row.id, &why));
        }
    }
    let staying = staying_leases(state).into_iter().map(|(owner, leases)| owner_stays(state, owner, &leases));
    reasons.extend(staying.take(most - reasons.len()));
    let left = most.saturating_sub(reasons.len());
    if left > 0 {
        reasons.extend(misses_copies(state, &explainer).into_iter().take(left));
    }
    if reasons.len() < most {
        reasons.extend(condemned(state));
    }
    reasons
}

/// Reports a node that is alive but that clients do not reach.
fn unreached(state: &ClusterState, node: NodeId, view: &DoorView) -> Reason {
    let (name, by) = (state.node_name(node), names(state, &view.by));
    let address = state.node(node).map_or_else(String::new, |row| row.node.address.clone());
    let left = match state.partitions.leaders_on(node) {
        0 => "other nodes have taken over its leaderships".to_owned(),
        left => format!("it still leads {left} partitions that no other copy can lead"),
    };
    let message = format!(
        "{name} sends heartbeats, but {by} cannot reach it at {address} as a client; it keeps its copies, and {left}"
    );
    let remedy = format!(
        "check the network to {address} and the log of {name}; restart it if it hangs. It leads again automatically \
         once it is reachable; if the probes are wrong, disable them: `archon config set door_every_ms=0`"
    );
    reason_now(ReasonCode::NodeUnreached, subjects::node(state, node), message, remedy)
}

fn names(state: &ClusterState, nodes: &[NodeId]) -> String {
    nodes.iter().map(|node| state.node_name(*node)).collect::<Vec<_>>().join(" and ")
}

/// Returns one reason for all leases that a participant is to give up and that no other participant may own.
fn owner_stays(state: &ClusterState, owner: NodeId, leases: &[PartitionId]) -> Reason {
    let (name, count) = (state.node_name(owner), leases.len());
    let named = state.partition_names(leases.iter().copied());
    let leases = if count == 1 { "1 lease".to_owned() } else { format!("{count} leases") };
    let message = format!(
        "{name} should give up {leases} and keeps them, because no other participant may own them \
                           ({named})"
    );
    reason_now(ReasonCode::OwnerStays, subjects::node(state, owner), message, STAYS_REMEDY)
}

/// Ways to release a lease that no other participant may own.
pub(crate) const STAYS_REMEDY: &str =
    "start other participants, end a cordon, drain or maintenance, raise a limit, or lift an exclusion (`unbar`)";

/// Returns one reason for all replicas that are tombstoned and not deleted yet.
fn condemned(state: &ClusterState) -> Option<Reason> {
    let copies = state.condemned.len();
    let on_node = |(node, copies): (NodeId, usize)| {
        let away = if state.is_alive(node) { "" } else { ", which is not alive" };
        format!("{copies} on {}{away}", state.node_name(node))
    };
    let named = state.condemned.nodes().take(CONDEMNED_NAMED_MAX).map(on_node).collect::<Vec<_>>();
    let nodes = state.condemned.nodes().count();
    let others = match nodes - named.len() {
        0 => String::new(),
        others => format!("; the others on {others} more nodes"),
    };
    let away = state.condemned.nodes().any(|(node, _)| !state.is_alive(node));
    let remedy = match away {
        true => "start the nodes that are not alive; for a node that will never return: `archon node remove NAME`",
        false => "",
    };
    let message = format!(
        "{copies} copies of deleted partitions (dropped, merged, abandoned splits) are not deleted yet: {}{others}",
        named.join("; ")
    );
    (copies > 0).then(|| reason_now(ReasonCode::CopiesCondemned, Subject::Copies, message, remedy))
}

/// Returns how space is made on the disk of a node, up to its name.
const fn space_freed(limit: DiskLimit) -> &'static str {
    match limit {
        DiskLimit::Bytes => "free disk space on",
        DiskLimit::Inodes => "remove files (there are too many) on the disk of",
        DiskLimit::Quota => "raise the quota of the user or directory of",
    }
}

/// Reports an alive node that refuses writes because its disk is full: the partitions it leads are read-only.
pub(in crate::service) fn disk_full(state: &ClusterState, node: NodeId, lack: DiskFull) -> Option<Reason> {
    let row = state.node(node).filter(|row| row.node.status == NodeStatus::Alive)?;
    let name = &row.node.name;
    let message = format!("{name} refuses writes (`ReadOnly`), because its disk is full: {lack}");
    let free = space_freed(lack.limit);
    let remedy = format!("{free} {name}; writes then resume automatically; reads still work");
    Some(reason_now(ReasonCode::DiskFull, subjects::node(state, node), message, remedy))
}

/// Reports a node on which a replica retains much of the log.
fn log_pinned(state: &ClusterState, node: NodeId, pin: LogPin) -> Option<Reason> {
    let row = state.node(node).filter(|row| row.node.status == NodeStatus::Alive)?;
    let name = &row.node.name;
    let partition = state.partitions.iter().find(|row| row.placement(pin.placement).is_some()).map(|row| row.id);
    let copy = match partition {
        Some(partition) => format!("copy {} of partition {}", pin.placement, state.partition_name(partition)),
        None => format!("copy {}, which no partition names", pin.placement),
    };
    let message = format!("old entries of {copy} pin {} MiB of the log of {name}", pin.bytes >> 20);
    let remedy = match partition {
        Some(_) => format!("see `archon partition describe` and the log of {name} for the reason"),
        None => format!("see the log of {name} for that copy; a drained node can be started with an empty directory"),
    };
    Some(reason_now(ReasonCode::LogPinned, subjects::node(state, node), message, remedy))
}

/// Returns one reason for all partitions with too few replicas, one for those for which no node is below its limit, one
/// for those without replacement for the replicas of failed nodes.
fn misses_copies(state: &ClusterState, explainer: &Explainer<'_>) -> Vec<Reason> {
    let (counts, shortage) = (counts(state), explainer.shortage());
    let of_copies =
        |code: ReasonCode, message: String, remedy: String| reason_now(code, Subject::Copies, message, remedy);
    let mut reasons = Vec::new();
    if shortage.nodes_at_limit > 0 {
        let message =
            format!("{} partitions lack a copy, and all nodes that could take it are full", shortage.nodes_at_limit);
        reasons.push(of_copies(ReasonCode::NodesAtLimit, message, limit_remedy(state, shortage.plan)));
    }
    if let Some((partitions, Withheld { failed, of })) = shortage.withheld {
        let message = format!(
            "{partitions} partitions lack a copy on a failed node, and are not repaired, because more than a third of \
             the nodes are failed ({failed} of {of})"
        );
        reasons.push(of_copies(ReasonCode::RepairWithheld, message, withheld_remedy()));
    }
    if counts.partitions_under_replicated == 0 {
        return reasons;
    }
    let eligible = state.nodes.values().filter(|row| row.takes_placements()).count();
    let wanted = state.tables.values().map(|table| usize::from(table.replication)).max().unwrap_or(1);
    let remedy = match (counts.nodes_failed, wanted.saturating_sub(eligible)) {
        (_, 0) if shortage.withheld.is_some() => "start the failed nodes again".to_owned(),
        (0, 0) if shortage.no_node > 0 => "add a node, or uncordon one".to_owned(),
        (0, 0) => String::new(),
        (0, 1) => "add a node, or uncordon one".to_owned(),
        (0, missing) => format!("add {missing} nodes"),
        (_, 0) if shortage.nodes_at_limit > 0 => "start the failed nodes again, or add capacity elsewhere".to_owned(),
        (_, 0) => {
            let minutes = state.settings.replace_after_ms as f64 / 60_000.0;
            format!(
                "start the failed nodes again; otherwise copies are rebuilt on other nodes after {minutes:.1} \
                     minutes"
            )
        }
        (_, _) => "start the failed nodes again, or add others".to_owned(),
    };
    let (short, all) = (counts.partitions_under_replicated, counts.partitions);
    let message = format!("{short} of {all} partitions are under-replicated");
    reasons.push(of_copies(ReasonCode::UnderReplicated, message, remedy));
    reasons
}

/// Returns the remedy for a table without participants.
pub(crate) fn no_participant_remedy(state: &ClusterState, table: &str) -> String {
    let mut remedy = format!("start one that serves {table}");
    let idle: Vec<&NodeRow> = state.participants.serving(table).filter(|row| row.is_active()).collect();
    for (goal, verb) in [(NodeGoal::Drain, "undrain"), (NodeGoal::Cordon, "uncordon"), (NodeGoal::Maintain, "resume")] {
        if let Some(row) = idle.iter().find(|row| row.node.goal == goal) {
            remedy.push_str(&format!(", or `archon node {verb} {}`", row.node.name));
        }
    }
    remedy
}

/// Returns the remedy for members at their limits. The built-in limit cannot be raised.
pub(crate) fn limit_remedy(state: &ClusterState, plan: bool) -> String {
    let mut members = state.nodes.values().chain(state.participants.values());
    let more = match members.any(|row| row.is_at_own_limit(state)) {
        true => "add a node, or start nodes with a larger --partitions-max",
        false => "add a node: no node takes more than the built-in limit",
    };
    if plan { format!("free capacity: `archon rebalance plan`; or {more}") } else { more.to_owned() }
}

pub(crate) fn withheld_remedy() -> String {
    "start the failed nodes again; for a node that will never return: `archon node lost NAME`".to_owned()
}

/// Returns one reason for all partitions of a table that were never assigned, and one for all leases of a table without
/// participants.
fn waits_for_members(
    state: &ClusterState,
    remembered: &Remembered,
    explainer: &Explainer<'_>,
    table: &Table,
) -> Option<Reason> {
    // While all of it is owned, nothing waits.
    let unowned = || state.partitions.of_table(table.id).any(|row| row.leader.is_none());
    let nobody = || !state.participants.serving(&table.name).any(NodeRow::takes_placements);
    if table.holds == Holds::Lease && nobody() && unowned() {
        let why = Why::NoParticipant { table: table.name.clone() };
        let subject = subjects::table(state, table.id);
        let found = reason(state, remembered, PartitionId::new(table.id, 0), &why);
        // A new leader does not know since when leases are free, but the table's creation is in the state.
        let began_at_ms = match awaits_first_participant(state, table.id) {
            true => made_at_ms(state, table.id).or(found.began_at_ms),
            false => found.began_at_ms,
        };
        return Some(Reason { subject, began_at_ms, ..found });
    }
    let row = state.partitions.unassigned_in(table.id).next()?;
    let why = explainer.explain(row.id)?.into_iter().next()?;
    let made = state.events.iter().rev().find(|event| match &event.what {
        EventKind::TableCreated { table: id, .. } => *id == table.id,
        EventKind::DataLossAccepted { partition, .. } => *partition == row.id,
        _ => false,
    });
    let made_at_ms = made.and_then(|event| at(event.at));
    // After an accepted loss a single partition waits.
    let waits = |row: &&archon_types::Partition| row.status == PartitionStatus::Unassigned;
    let whole =
        state.partitions.of_table(table.id).filter(waits).count() == state.partitions.count_of(table.id) as usize;
    let single = reason(state, remembered, row.id, &why);
    let subject = if whole { subjects::table(state, table.id) } else { single.subject.clone() };
    Some(Reason { subject, began_at_ms: made_at_ms.or(single.began_at_ms), ..single })
}

/// Returns true if no participant has registered for the lease table yet. A lease that was released or lost never
/// becomes unassigned again.
pub(crate) fn awaits_first_participant(state: &ClusterState, table: TableId) -> bool {
    let unserved = |table: &Table| state.participants.serving(&table.name).next().is_none();
    state.tables.get(&table).is_some_and(unserved)
        && state.partitions.unassigned_in(table).count() == state.partitions.count_of(table) as usize
}

/// Returns the creation time of a table, unless that event is too old to be kept.
fn made_at_ms(state: &ClusterState, table: TableId) -> Option<u64> {
    let made = state.events.iter().rev().find(|event| match &event.what {
        EventKind::TableCreated { table: id, .. } => *id == table,
        _ => false,
    });
    made.and_then(|event| at(event.at))
}

/// Returns the partition as the command line accepts it: `7`, or `7 --table orders`.
pub(super) fn operand(state: &ClusterState, partition: PartitionId) -> String {
    match state.tables.get(&partition.table) {
        Some(table) if table.name != DEFAULT_TABLE => format!("{} --table {}", partition.index, table.name),
        _ => partition.index.to_string(),
    }
}

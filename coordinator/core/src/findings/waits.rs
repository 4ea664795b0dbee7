//! Findings that something waits for: nodes, then partitions that are not served, then moves, then missing copies.

use crate::findings::counts::counts;
use crate::findings::explain::Explainer;
use crate::findings::intent::with_intent;
use crate::findings::leader_view::LeaderView;
use crate::leases::staying_leases;
use crate::liveness::reachability::DoorView;
use crate::placement::withheld_repair::WithheldRepair;
use crate::quorum::recovery::reports::unheard;
use crate::state::ClusterState;
use crate::state::events::EventKind;
use crate::state::node_row::NodeRow;
use archon_types::subject::Subject;
use archon_types::{
    CondemnedCopies, DiskFull, Facts, Finding, LogPin, Millis, NodeGoal, NodeId, NodeStatus, Partition, PartitionId,
    PartitionStatus, ReasonCode, Supply, Table, TableContent, TableId,
};
use std::collections::BTreeSet;

/// Maximum number of nodes named in the finding about tombstoned replicas.
const CONDEMNED_NAMED_MAX: usize = 5;

/// Disk reports of the nodes, which are not part of the state.
#[derive(Clone, Debug, Default)]
pub struct Disks {
    /// Nodes that refuse writes because their disks are full.
    pub full: Vec<(NodeId, DiskFull)>,
    /// Nodes that wait for disk space before they register, since this moment.
    pub waits: Vec<(NodeId, DiskFull, Millis)>,
    /// Nodes on which a replica retains much of the log.
    pub log_pins: Vec<(NodeId, LogPin)>,
}

/// Returns the findings about a temporary state of the quorum: a recovery first, and a change of its members.
pub fn quorum_waits(state: &ClusterState) -> Vec<Finding> {
    let recovery = state.recovery.as_deref().map(|recovery| {
        let nodes_unheard = unheard(state, recovery).count() as u64;
        Finding::new(Subject::Coordinators, Facts::BeingRecovered { nodes_unheard })
    });
    let pending =
        state.coordinators.pending.as_ref().map(|pending| {
            Finding::new(Subject::Coordinators, Facts::QuorumChanging { change: pending.wish.to_string() })
        });
    recovery.into_iter().chain(pending).collect()
}

/// Returns up to `most` findings, most urgent first.
pub fn waits(state: &ClusterState, remembered: &LeaderView, disks: &Disks, most: usize) -> Vec<Finding> {
    let explainer = Explainer::new(state, remembered);
    let mut found: Vec<Finding> = Vec::new();
    let mut add = |more: &mut dyn Iterator<Item = Finding>| {
        let left = most.saturating_sub(found.len());
        found.extend(more.take(left).map(|finding| with_intent(state, finding)));
    };
    let failed = state.nodes.values().filter(|row| row.node.status == NodeStatus::Failed);
    add(&mut failed.map(|row| node_failed(state, disks, row)));
    add(&mut remembered.unreached().map(|(node, view)| unreached(state, node, view)));
    add(&mut disks.full.iter().filter_map(|(node, lack)| disk_full(state, *node, *lack)));
    add(&mut disks.log_pins.iter().filter_map(|(node, pin)| log_pinned(state, *node, *pin)));
    add(&mut state.tables.values().filter_map(|table| waits_for_members(state, &explainer, table)));
    add(&mut restless(state, &explainer));
    add(&mut staying_leases(state).into_iter().map(|(owner, leases)| owner_stays(state, owner, &leases)));
    add(&mut std::iter::once_with(|| missing_copies(state, &explainer)).flatten());
    add(&mut std::iter::once_with(|| condemned(state)).flatten());
    found
}

/// Reports a failed node, or one that waits for disk space.
fn node_failed(state: &ClusterState, disks: &Disks, row: &NodeRow) -> Finding {
    let node = &row.node;
    let wait = disks.waits.iter().find(|(waiting, ..)| *waiting == node.id);
    let drained = node.goal == NodeGoal::Drain && state.partitions.count_on(node.id) == 0;
    let (address, stopped, lack) = (node.address.clone(), row.stopped, wait.map(|(_, lack, _)| *lack));
    let facts = match state.controls.maintenance_of(node.id) {
        Some(maintenance) => {
            Facts::InMaintenance { address, stopped, drained, lack, why: maintenance.note.why.clone() }
        }
        None => Facts::NodeFailed { address, stopped, drained, lack },
    };
    Finding::new(state.node_subject(node.id), facts).since(wait.map_or(node.since, |(.., began)| *began))
}

/// Reports a node that is alive but that clients do not reach.
fn unreached(state: &ClusterState, node: NodeId, view: &DoorView) -> Finding {
    let facts = Facts::NodeUnreached {
        address: state.node(node).map_or_else(String::new, |row| row.node.address.clone()),
        shut_to: view.by.iter().map(|prober| state.node_name(*prober)).collect(),
        partitions_led: state.partitions.leaders_on(node),
    };
    Finding::new(state.node_subject(node), facts)
}

/// Reports an alive node that refuses writes because its disk is full: the partitions it leads are read-only.
pub fn disk_full(state: &ClusterState, node: NodeId, lack: DiskFull) -> Option<Finding> {
    let row = state.node(node).filter(|row| row.node.status == NodeStatus::Alive)?;
    let facts = Facts::DiskFull { address: row.node.address.clone(), lack };
    Some(Finding::new(state.node_subject(node), facts))
}

/// Reports a node on which a replica retains much of the log.
fn log_pinned(state: &ClusterState, node: NodeId, pin: LogPin) -> Option<Finding> {
    state.node(node).filter(|row| row.node.status == NodeStatus::Alive)?;
    let partition = state.partitions.iter().find(|row| row.placement(pin.placement).is_some());
    let replica_of = partition.map(|row| state.partition_name(row.id));
    let facts = Facts::LogPinned { placement_id: pin.placement.get(), replica_of, bytes_pinned: pin.bytes };
    Some(Finding::new(state.node_subject(node), facts))
}

/// Returns the findings about partitions that are not served, are moved, or admit no write.
fn restless(state: &ClusterState, explainer: &Explainer<'_>) -> impl Iterator<Item = Finding> {
    let isolated: BTreeSet<PartitionId> = explainer.isolated().collect();
    let restless = state.partitions.iter().filter(move |row| {
        row.status != PartitionStatus::Unassigned
            && (row.status != PartitionStatus::Online
                || state.running_migration(row.id).is_some()
                || isolated.contains(&row.id))
    });
    let findings = restless.flat_map(move |row| explainer.explain(row.id).unwrap_or_default());
    // These are reported once for all partitions, for a table, or for an owner.
    findings.filter(|finding| {
        !matches!(
            finding.code(),
            ReasonCode::UnderReplicated
                | ReasonCode::NodesAtLimit
                | ReasonCode::RepairWithheld
                | ReasonCode::NoParticipant
                | ReasonCode::AwaitsFirstParticipant
                | ReasonCode::OwnerStays
        )
    })
}

/// Returns one finding for all leases that a participant is to give up and that no other participant may own.
fn owner_stays(state: &ClusterState, owner: NodeId, leases: &[PartitionId]) -> Finding {
    let facts = Facts::OwnerStays {
        node: state.node_name(owner),
        leases_kept: Some(leases.len() as u64),
        named: state.partition_names(leases.iter().copied()),
    };
    Finding::new(state.node_subject(owner), facts)
}

/// Returns one finding for all replicas that are tombstoned and not deleted yet.
fn condemned(state: &ClusterState) -> Option<Finding> {
    let copies = state.condemned.len() as u64;
    let on_node = |(node, copies): (NodeId, usize)| CondemnedCopies {
        node: state.node_name(node),
        copies_condemned: copies as u64,
        alive: state.is_alive(node),
    };
    let holders: Vec<CondemnedCopies> = state.condemned.nodes().take(CONDEMNED_NAMED_MAX).map(on_node).collect();
    let others = (state.condemned.nodes().count() - holders.len()) as u64;
    let away = state.condemned.nodes().any(|(node, _)| !state.is_alive(node));
    let facts = Facts::CopiesCondemned { copies_condemned: copies, holders, nodes_more: others, away };
    (copies > 0).then(|| Finding::new(Subject::Copies, facts))
}

/// Returns one finding for all partitions for which no node is below its limit, one for those without replacement for
/// the replicas of failed nodes, and one for all with too few replicas.
fn missing_copies(state: &ClusterState, explainer: &Explainer<'_>) -> Vec<Finding> {
    let (counts, shortage) = (counts(state), explainer.shortage());
    let mut found = Vec::new();
    let mut add = |facts| found.push(Finding::new(Subject::Copies, facts));
    if shortage.nodes_at_limit > 0 {
        let full = state.nodes.eligible().filter(|row| row.room(state) == 0).count();
        add(Facts::NodesAtLimit {
            partitions_short: Some(shortage.nodes_at_limit),
            nodes_full: u32::try_from(full).unwrap_or(u32::MAX),
            plan: shortage.plan,
            raisable: explainer.raisable(),
        });
    }
    if let Some((partitions, WithheldRepair { failed, of })) = shortage.withheld {
        add(Facts::RepairWithheld { partitions_short: Some(partitions), nodes_failed: failed, nodes_total: of });
    }
    if counts.partitions_under_replicated > 0 {
        let eligible = state.nodes.values().filter(|row| row.takes_placements()).count();
        let wanted = state.tables.values().map(|table| usize::from(table.replication)).max().unwrap_or(1);
        let supply = Supply {
            nodes_failed: counts.nodes_failed,
            nodes_missing: wanted.saturating_sub(eligible) as u64,
            no_node: shortage.no_node > 0,
            at_limit: shortage.nodes_at_limit > 0,
            withheld: shortage.withheld.is_some(),
            replaced_after_for_ms: state.settings.replace_after_ms,
        };
        add(Facts::UnderReplicated {
            missing: u64::from(counts.partitions_under_replicated),
            of: u64::from(counts.partitions),
            supply: Some(supply),
        });
    }
    found
}

/// Returns one finding for all partitions of a table that were never assigned, and one for all leases of a table without
/// participants.
fn waits_for_members(state: &ClusterState, explainer: &Explainer<'_>, table: &Table) -> Option<Finding> {
    // While all of it is owned, nothing waits.
    let unowned = || state.partitions.of_table(table.id).any(|row| row.leader.is_none());
    let unserved = || !state.participants.serving(&table.name).any(NodeRow::takes_placements);
    if table.holds == TableContent::Lease && unserved() && unowned() {
        let finding = Finding::new(state.table_subject(table.id), explainer.no_participant(table));
        let free = explainer.unserved_since(PartitionId::new(table.id, 0)).unwrap_or_default();
        // A new leader does not know since when leases are free, but the table's creation is in the state.
        let created = (finding.code() == ReasonCode::AwaitsFirstParticipant).then(|| created_at(state, table.id));
        return Some(finding.since(created.flatten().unwrap_or(free)));
    }
    let row = state.partitions.unassigned_in(table.id).next()?;
    let single = explainer.explain(row.id)?.into_iter().next()?;
    let made = state.events.iter().rev().find(|event| match &event.what {
        EventKind::TableCreated { table: id, .. } => *id == table.id,
        EventKind::DataLossAccepted { partition, .. } => *partition == row.id,
        _ => false,
    });
    let made = made.map(|event| event.at).filter(|at| *at > Millis::ZERO);
    // After an accepted loss a single partition waits.
    let waits = |row: &&Partition| row.status == PartitionStatus::Unassigned;
    let whole =
        state.partitions.of_table(table.id).filter(waits).count() == state.partitions.count_of(table.id) as usize;
    let subject = if whole { state.table_subject(table.id) } else { single.subject.clone() };
    let since = made.unwrap_or(single.since);
    Some(Finding { subject, since, ..single })
}

/// Returns the creation time of a table, unless that event is too old to be kept.
fn created_at(state: &ClusterState, table: TableId) -> Option<Millis> {
    let created = state.events.iter().rev().find(|event| match &event.what {
        EventKind::TableCreated { table: id, .. } => *id == table,
        _ => false,
    });
    created.map(|event| event.at).filter(|at| *at > Millis::ZERO)
}

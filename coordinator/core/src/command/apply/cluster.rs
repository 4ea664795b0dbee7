//! Commands about the cluster itself: bootstrap, creation of tables, accepted data loss.

use super::stage::StagedRows;
use crate::command::LossOutcome;
use crate::command::apply::entry::Entry;
use crate::command::refusals::{invalid, next_epoch, recovering, refused};
use crate::state::events::EventKind;
use crate::state::protocols::WRITTEN_BOUNDS_SINCE;
use crate::state::response::Response;
use crate::state::{ClusterState, PARTITIONS_MAX};
use archon_types::limits::{REPLICAS_MAX, TABLES_MAX, check_name};
use archon_types::{
    ClusterId, DEFAULT_TABLE, Epoch, ErrorDetail, ErrorKind, PROTOCOL_FIRST, Partition, PartitionId, PartitionStatus,
    Partitioning, Settings, Table, TableContent, TableId, Version, min_in_sync_default,
};

pub(super) fn bootstrap(
    state: &mut ClusterState,
    entry: Entry<'_>,
    cluster: ClusterId,
    settings: &Settings,
) -> Result<Response, ErrorDetail> {
    if state.is_bootstrapped() {
        if state.cluster == cluster {
            return entry.done();
        }
        let message = format!("this cluster exists already, as {}", state.cluster);
        return Err(ErrorDetail::new(ErrorKind::AlreadyExists, message));
    }
    if cluster.is_nil() {
        return Err(invalid("the cluster id is nil; mint a random one"));
    }
    check_settings(settings)?;
    state.cluster = cluster;
    state.settings = settings.clone();
    state.settings_version = entry.version();
    state.protocol = PROTOCOL_FIRST;
    entry.note(state, EventKind::Bootstrapped);
    let partitioning = Partitioning::Hash { partitions: settings.partitions };
    create_table(state, entry, DEFAULT_TABLE, &partitioning, settings.replication, TableContent::Data)
}

pub(super) fn create_table(
    state: &mut ClusterState,
    entry: Entry<'_>,
    name: &str,
    partitioning: &Partitioning,
    replication: u8,
    holds: TableContent,
) -> Result<Response, ErrorDetail> {
    check_name("table", name)?;
    partitioning.check()?;
    check_replication(replication)?;
    if holds == TableContent::Lease && partitioning.keys().is_range() {
        return Err(invalid("the partitions of a lease table are numbers; only data can be kept in ranges of keys"));
    }
    if holds == TableContent::Lease && replication != 1 {
        return Err(invalid(format!(
            "a lease has one owner and no replicas, so its replication is 1, not {replication}"
        )));
    }
    if state.table_by_name(name).is_some() {
        return Err(ErrorDetail::new(ErrorKind::AlreadyExists, format!("there is a table {name:?} already")));
    }
    let ranges = partitioning.ranges();
    let after = state.partitions.len() + ranges.len();
    if after > PARTITIONS_MAX {
        return Err(refused(format!("the tables would have {after} partitions; the limit is {PARTITIONS_MAX}")));
    }
    if state.protocol >= WRITTEN_BOUNDS_SINCE && state.tables.len() >= TABLES_MAX {
        let message = format!("there are {} tables; the limit is {TABLES_MAX}; drop one first", state.tables.len());
        return Err(refused(message));
    }
    state.check_split_keys(ranges.iter().map(|range| range.begin.len()).sum())?;
    let id = TableId::new(state.table_last.get() + 1);
    state.table_last = id;
    let version = entry.version();
    state
        .tables
        .insert(id, Table { id, name: name.to_owned(), keys: partitioning.keys(), replication, holds, version });
    // The fencing tokens of a table that reuses the name of a dropped table exceed all tokens of that one: each of
    // those was a log index.
    let epoch = if holds == TableContent::Lease { Epoch::new(entry.index) } else { Epoch::ZERO };
    for (index, range) in (0..).zip(ranges) {
        state.partitions.insert(Partition {
            id: PartitionId::new(id, index),
            epoch,
            version,
            leader: None,
            placements: Vec::new(),
            status: PartitionStatus::Unassigned,
            min_in_sync: min_in_sync_default(replication),
            range,
            split: None,
            merge: None,
            absorbed: Version::ZERO,
        });
    }
    entry.note(state, EventKind::TableCreated { table: id, name: name.to_owned() });
    Ok(Response::TableCreated { table: id })
}

pub(super) fn accept_loss(
    state: &mut ClusterState,
    entry: Entry<'_>,
    partition: PartitionId,
    if_version: Version,
    outcome: LossOutcome,
) -> Result<Response, ErrorDetail> {
    if state.recovery.is_some() {
        return Err(recovering());
    }
    let name = state.partition_name(partition);
    let mut staged = StagedRows::new(state, entry);
    let mut row = staged.row(partition)?;
    if state.is_lease(partition.table) {
        return Err(refused(format!("partition {name} is a lease: it holds no data that could be lost")));
    }
    if row.version != if_version {
        let message = format!("partition {name} changed meanwhile; look again before accepting a loss");
        return Err(
            ErrorDetail::new(ErrorKind::StaleVersion, message).with_have_need(row.version.get(), if_version.get())
        );
    }
    if row.status == PartitionStatus::Unassigned {
        return Err(refused(format!("partition {name} was never assigned: there is nothing to lose")));
    }
    if let Some(live) = row.live().find(|live| state.is_alive(live.node)) {
        let node = state.node_name(live.node);
        return Err(refused(format!("{node} is alive and holds a replica of partition {name} that counts")));
    }
    if row.split.is_some() {
        staged.abandon_split(&mut row, "an operator accepted the loss of its data")?;
    }
    if row.merge.is_some() {
        staged.abandon_merge(&mut row, "an operator accepted the loss of its data")?;
    }
    // The next leader need not have the data of a merge.
    row.absorbed = Version::ZERO;
    let (leader, retired) = match outcome {
        LossOutcome::Lead { placement, incarnation } => {
            let retired = staged.force(&mut row, placement, incarnation)?;
            (row.placement(placement).map(|placement| placement.node), retired)
        }
        LossOutcome::Empty => {
            let retired = staged.retire_all_but(&mut row, None);
            row.leader = None;
            row.epoch = next_epoch(row.epoch)?;
            row.status = PartitionStatus::Unassigned;
            (None, retired)
        }
    };
    staged.put(row);
    staged.into_effect().commit(state, entry);
    entry.note(state, EventKind::DataLossAccepted { partition, leader, retired });
    entry.done()
}

fn check_settings(settings: &Settings) -> Result<(), ErrorDetail> {
    settings.timing.check().map_err(|error| invalid(error.to_string()))?;
    Partitioning::Hash { partitions: settings.partitions }.check()?;
    check_replication(settings.replication)?;
    if settings.nodes_min == 0 || settings.copies_per_node_max == 0 {
        return Err(invalid("nodes_min and copies_per_node_max must be at least 1"));
    }
    Ok(())
}

pub(super) fn check_replication(replication: u8) -> Result<(), ErrorDetail> {
    if !(1..=REPLICAS_MAX).contains(&replication) {
        return Err(invalid(format!("a partition has 1 to {REPLICAS_MAX} replicas, not {replication}")));
    }
    Ok(())
}

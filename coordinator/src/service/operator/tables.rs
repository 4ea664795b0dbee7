//! Tables: listed, described, created, changed and dropped.

use crate::leader::session::Session;
use crate::service::admins::{Admins, NAMED_MAX, Result, unexpected};
use crate::service::call::Call;
use crate::service::documents::answers;
use crate::service::findings::alerts::WAITS_MAX;
use crate::service::findings::subjects;
use archon_coordinator_core::{
    ClusterState, Command, LeaderView, Liveness, Response as Answer, check_alter_table, check_nodes_for, list_findings,
    with_intent,
};
use archon_documents::{
    AlterTable, CheckCluster, CheckTable, CreateTable, DescribeTable, DropTable, ListTables, TableAltered, TableCheck,
    TableDescription, TableDropped, TableHolder, TablePartition, TableSummary, Tables,
};
use archon_types::subject::Subject;
use archon_types::{
    ErrorDetail, ErrorKind, Facts, Finding, NodeId, NodeStatus, Partition, PartitionId, PartitionStatus, PlacementId,
    Table, TableContent, TableId,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Maximum number of findings in the description of a table.
const FINDINGS_MAX: usize = 100;

/// Returns a table with the number of its partitions.
pub(in crate::service) fn summary(state: &ClusterState, table: &Table) -> TableSummary {
    TableSummary::new(table, state.partitions.count_of(table.id))
}

answers! {
    ListTables: tables,
    CreateTable: create,
    AlterTable: alter,
    CheckTable: checked_table,
    DescribeTable: described_table,
    DropTable: drop_table_of,
}

impl Admins {
    /// Returns every table.
    pub(in crate::service) async fn tables(&self, _: ListTables, call: &Call<'_>) -> Result<Tables> {
        let tables = |state: &ClusterState| state.tables.values().map(|table| summary(state, table)).collect();
        self.view(call, |_, state| Ok(Tables { tables: tables(state) })).await
    }

    /// Creates a table.
    pub(in crate::service) async fn create(&self, asked: CreateTable, call: &Call<'_>) -> Result<TableSummary> {
        let (partitioning, holds) = (asked.partitioning(), asked.holds()?);
        let CreateTable { table: name, replication, .. } = asked;
        let decide = |state: &ClusterState, _: &Liveness| {
            if holds == TableContent::Data {
                check_nodes_for(state, &name, replication)?;
            }
            Ok(Command::CreateTable { name: name.clone(), partitioning: partitioning.clone(), replication, holds })
        };
        match self.commit(call, decide).await? {
            (session, Answer::TableCreated { table }) => session.quorum().replicated().read(|state| {
                let gone = || {
                    ErrorDetail::new(
                        ErrorKind::NotFound,
                        "the table was created, and has been dropped \
                                                                     since",
                    )
                };
                state.tables.get(&table).map(|table| summary(state, table)).ok_or_else(gone)
            }),
            (_, other) => Err(unexpected(&other)),
        }
    }

    /// Changes the number of replicas of a table, or the limits of its ranges.
    pub(super) async fn alter(&self, asked: AlterTable, call: &Call<'_>) -> Result<TableAltered> {
        let AlterTable { table: name, change } = asked;
        let decide = |state: &ClusterState, _: &Liveness| {
            Ok(check_alter_table(state, table_of(state, &name)?, &change)?.ok_or(()))
        };
        let changed = self.commit_unless(call, decide).await?.is_ok();
        self.view(call, |_, state| Ok(TableAltered { table: summary(state, table_of(state, &name)?), changed })).await
    }

    /// Returns the effect of dropping a table.
    pub(super) async fn checked_table(&self, asked: CheckTable, call: &Call<'_>) -> Result<TableCheck> {
        self.view(call, |session, state| {
            let table = table_of(state, &asked.table)?;
            // Locked for one copy at a time: heartbeats wait for this lock.
            let bytes = |node, copy| session.loads().lock().bytes(node, copy);
            let copies = || state.partitions.of_table(table.id).flat_map(|row| &row.placements);
            let nodes: BTreeSet<NodeId> = copies().map(|copy| copy.node).collect();
            // The owner of a lease has nothing to delete.
            let is_lease = table.holds == TableContent::Lease;
            let away = nodes.iter().filter(|node| !is_lease && !state.is_alive(**node)).take(NAMED_MAX);
            Ok(TableCheck {
                table: summary(state, table),
                copies_deleted: if is_lease { 0 } else { u32::try_from(copies().count()).unwrap_or(u32::MAX) },
                bytes_deleted: copies().map(|copy| bytes(copy.node, copy.id)).sum(),
                nodes_away: away.map(|node| subjects::node_name(state, *node)).collect(),
                nodes_holding: u32::try_from(nodes.len()).unwrap_or(u32::MAX),
            })
        })
        .await
    }

    /// Returns a complete description of one table, with those findings of `archon check` that are about it.
    pub(super) async fn described_table(&self, asked: DescribeTable, call: &Call<'_>) -> Result<TableDescription> {
        let describe = |session: &Arc<Session>, state: &ClusterState, _: &LeaderView| {
            let bytes = |node, copy| session.loads().lock().bytes(node, copy);
            let described = describe(state, &bytes, table_of(state, &asked.table)?, asked.partitions);
            let short = under_replicated(&described).map(|finding| with_intent(state, finding));
            Ok::<_, ErrorDetail>((described, short, state.recovery.is_some()))
        };
        let look = (CheckCluster::default(), WAITS_MAX);
        let (described, found) = self.found(call, look, describe).await?;
        let (mut described, short, recovers) = described?;
        let is_holder = |node| described.holders.iter().any(|holder| holder.node_id == node);
        let is_about_it = |finding: &Finding| match &finding.subject {
            Subject::Table { table_id, .. } | Subject::Partition { table_id, .. } => *table_id == described.table.id,
            Subject::Node { node_id, .. } => is_holder(*node_id),
            _ => false,
        };
        let found = found.into_iter().filter(is_about_it).chain(short).collect();
        let (found, more) = list_findings(found, recovers, FINDINGS_MAX);
        described.alerts = found.into_iter().map(Into::into).collect();
        described.alerts_more = more;
        Ok(described)
    }

    /// Drops a table, if it is still the one that was checked.
    pub(super) async fn drop_table_of(&self, asked: DropTable, call: &Call<'_>) -> Result<TableDropped> {
        let (name, table) = (asked.table, TableId::new(asked.table_id));
        let decide = |state: &ClusterState, _: &Liveness| {
            let now = table_of(state, &name)?.id;
            if now != table {
                let message = format!("table {name} is another one by now (number {now}, not {table}); look again");
                return Err(ErrorDetail::new(ErrorKind::StaleVersion, message).with_have_need(now.get(), table.get()));
            }
            Ok(Command::DropTable { table })
        };
        match self.commit(call, decide).await?.1 {
            Answer::TableDropped { copies, .. } => Ok(TableDropped { copies_deleted: copies }),
            other => Err(unexpected(&other)),
        }
    }
}

/// Returns the bytes of a copy at a node, as the node reported them.
type Bytes<'a> = dyn Fn(NodeId, PlacementId) -> u64 + 'a;

/// Describes a table without findings.
fn describe(state: &ClusterState, bytes: &Bytes<'_>, table: &Table, with_partitions: bool) -> TableDescription {
    let is_lease = table.holds == TableContent::Lease;
    let mut holders: BTreeMap<NodeId, TableHolder> = BTreeMap::new();
    let mut partitions = Vec::new();
    let mut under_replicated = 0;
    let mut rows: Vec<&Partition> = state.partitions.of_table(table.id).collect();
    if table.keys.is_range() {
        rows.sort_by(|one, other| one.range.begin.cmp(&other.range.begin));
    }
    for row in rows {
        let described = describe_partition(state, bytes, table, row);
        let is_short = described.copies_in_sync < u32::from(table.replication);
        under_replicated += u32::from(!is_lease && is_short && row.status != PartitionStatus::Unassigned);
        // The next owner of a lease holds nothing yet.
        for copy in row.placements.iter().filter(|copy| !is_lease || row.leader == Some(copy.id)) {
            let holder = holders.entry(copy.node).or_insert_with(|| no_share(state, copy.node));
            holder.partitions_led += u32::from(row.leader == Some(copy.id));
            if !is_lease {
                holder.copies_held += 1;
                holder.copies_in_sync += u32::from(row.live().any(|live| live.id == copy.id));
                holder.bytes_stored = holder.bytes_stored.saturating_add(bytes(copy.node, copy.id));
            }
        }
        partitions.push(described);
    }
    let running = partitions
        .iter()
        .filter(|partition| state.running_migration(PartitionId { table: table.id, index: partition.id }).is_some());
    let reshaped =
        state.partitions.splitting().chain(state.partitions.merging()).filter(|row| row.id.table == table.id);
    let sum = |of: fn(&TableHolder) -> u32| holders.values().map(of).sum::<u32>();
    let wanted = u32::try_from(partitions.len()).unwrap_or(u32::MAX).saturating_mul(table.replication.into());
    let mut by_name: Vec<TableHolder> = holders.values().cloned().collect();
    by_name.sort_by(|one, other| one.node.cmp(&other.node));
    TableDescription {
        table: summary(state, table),
        partitions_online: number(partitions.iter().filter(|row| row.status == PartitionStatus::Online).count()),
        partitions_led: number(partitions.iter().filter(|row| row.leader_id.is_some()).count()),
        partitions_under_replicated: under_replicated,
        copies_wanted: if is_lease { 0 } else { wanted },
        copies_held: sum(|holder| holder.copies_held),
        copies_in_sync: sum(|holder| holder.copies_in_sync),
        bytes_led: partitions.iter().map(|row| row.bytes_led).fold(0, u64::saturating_add),
        bytes_stored: holders.values().map(|holder| holder.bytes_stored).fold(0, u64::saturating_add),
        moves_running: number(running.count()),
        reshapings_running: number(reshaped.count()),
        holders: by_name,
        alerts: Vec::new(),
        alerts_more: false,
        partitions: with_partitions.then_some(partitions),
    }
}

fn describe_partition(state: &ClusterState, bytes: &Bytes<'_>, table: &Table, row: &Partition) -> TablePartition {
    let is_lease = table.holds == TableContent::Lease;
    let copies = |count: usize| if is_lease { 0 } else { number(count) };
    let leader = row.leader_placement();
    TablePartition {
        id: row.id.index,
        range: table.keys.is_range().then(|| (&row.range).into()),
        status: row.status.into(),
        epoch: row.epoch.get(),
        leader_id: leader.map(|copy| copy.node.get()),
        leader: leader.map(|copy| state.node_name(copy.node)),
        copies_held: copies(row.placements.len()),
        copies_in_sync: copies(row.live().count()),
        bytes_led: leader.map_or(0, |copy| bytes(copy.node, copy.id)),
    }
}

/// Reports missing copies of a table. The findings of the cluster count those of all tables together.
fn under_replicated(described: &TableDescription) -> Option<Finding> {
    let TableDescription { table, partitions_under_replicated: missing, .. } = described;
    let (missing, of) = (u64::from(*missing), u64::from(table.partitions_total));
    let subject = Subject::Table { table_id: table.id, table: table.name.clone() };
    (missing > 0).then(|| Finding::new(subject, Facts::UnderReplicated { missing, of, supply: None }))
}

/// Returns a node without any share.
fn no_share(state: &ClusterState, node: NodeId) -> TableHolder {
    TableHolder {
        node_id: node.get(),
        node: state.node_name(node),
        // A removed node is assumed to have lost its data.
        node_status: state.node(node).map_or(NodeStatus::Lost, |row| row.node.status).into(),
        partitions_led: 0,
        copies_held: 0,
        copies_in_sync: 0,
        bytes_stored: 0,
    }
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Returns the table of this name.
pub(in crate::service) fn table_of<'a>(state: &'a ClusterState, name: &str) -> Result<&'a Table> {
    state.table_by_name(name).ok_or_else(|| {
        let names: Vec<&str> = state.tables.values().take(NAMED_MAX).map(|table| table.name.as_str()).collect();
        let more = if state.tables.len() > names.len() { ", …" } else { "" };
        let known = match names.is_empty() {
            true => "there is none at all".to_owned(),
            false => format!("the tables are: {}{more}", names.join(", ")),
        };
        ErrorDetail::new(ErrorKind::NotFound, format!("table {name:?} does not exist; {known}"))
    })
}

//! Creation, change and drop of tables.

use super::admin::{Admins, NAMED_MAX, Result, unexpected};
use super::call::Call;
use super::subjects;
use archon_coordinator_core::{
    ClusterState, Command, Liveness, Response as Answer, check_alter_table, check_nodes_for,
};
use archon_documents::{
    AlterTable, CheckTable, CreateTable, DropTable, ListTables, TableAltered, TableCheck, TableDropped, TableSummary,
    Tables,
};
use archon_types::{ErrorDetail, ErrorKind, Holds, NodeId, Table, TableId};
use std::collections::BTreeSet;

/// Returns a table with the number of its partitions.
pub(super) fn summary(state: &ClusterState, table: &Table) -> TableSummary {
    TableSummary::new(table, state.partitions.count_of(table.id))
}

impl Admins {
    /// Returns every table.
    pub(super) async fn tables(&self, _: ListTables, call: &Call<'_>) -> Result<Tables> {
        let tables = |state: &ClusterState| state.tables.values().map(|table| summary(state, table)).collect();
        self.view(call, |_, state| Ok(Tables { tables: tables(state) })).await
    }

    /// Creates a table.
    pub(super) async fn create(&self, asked: CreateTable, call: &Call<'_>) -> Result<TableSummary> {
        let (partitioning, holds) = (asked.partitioning(), asked.holds()?);
        let CreateTable { table: name, replication, .. } = asked;
        let decide = |state: &ClusterState, _: &Liveness| {
            if holds == Holds::Data {
                check_nodes_for(state, &name, replication)?;
            }
            Ok(Command::CreateTable { name, partitioning, replication, holds })
        };
        match self.commit(call, decide).await? {
            (session, Answer::TableCreated { table }) => session.quorum().replicated().read(|state| {
                let gone = || ErrorDetail::new(ErrorKind::NotFound, "the table was made, and has been dropped since");
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
            let loads = session.loads().lock();
            let copies = || state.partitions.of_table(table.id).flat_map(|row| &row.placements);
            let nodes: BTreeSet<NodeId> = copies().map(|copy| copy.node).collect();
            // The owner of a lease has nothing to delete.
            let is_lease = table.holds == Holds::Lease;
            let away = nodes.iter().filter(|node| !is_lease && !state.is_alive(**node)).take(NAMED_MAX);
            Ok(TableCheck {
                table: summary(state, table),
                copies_deleted: if is_lease { 0 } else { u32::try_from(copies().count()).unwrap_or(u32::MAX) },
                bytes_deleted: copies().map(|copy| loads.bytes(copy.node, copy.id)).sum(),
                nodes_away: away.map(|node| subjects::node_name(state, *node)).collect(),
                nodes_holding: u32::try_from(nodes.len()).unwrap_or(u32::MAX),
            })
        })
        .await
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

/// Returns the table of this name.
pub(super) fn table_of<'a>(state: &'a ClusterState, name: &str) -> Result<&'a Table> {
    state.table_by_name(name).ok_or_else(|| {
        let names: Vec<&str> = state.tables.values().take(NAMED_MAX).map(|table| table.name.as_str()).collect();
        let more = if state.tables.len() > names.len() { ", …" } else { "" };
        let known = match names.is_empty() {
            true => "there is none at all".to_owned(),
            false => format!("the tables are: {}{more}", names.join(", ")),
        };
        ErrorDetail::new(ErrorKind::NotFound, format!("there is no table {name:?}; {known}"))
    })
}

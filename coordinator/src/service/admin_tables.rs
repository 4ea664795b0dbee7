//! Tables made, changed and dropped.

use super::admin::{Admins, NAMED_MAX, Result, unexpected};
use super::call::Call;
use super::subjects;
use archon_coordinator_core::{
    ClusterState, Command, Liveness, Response as Answer, check_alter_table, check_nodes_for,
};
use archon_proto::convert::admin::{CreateTable, DropTable};
use archon_proto::convert::alter::AlterTable;
use archon_proto::v1;
use archon_types::{ErrorDetail, ErrorKind, Holds, NodeId, Table};
use std::collections::BTreeSet;
use std::time::Duration;

/// A table as operators see it, with the number of its partitions.
pub(super) fn table_info(state: &ClusterState, table: &Table) -> v1::TableInfo {
    v1::TableInfo { partitions: state.partitions.count_of(table.id), ..table.clone().into() }
}

impl Admins {
    /// Makes a table.
    pub(super) async fn create(
        &self,
        request: v1::CreateTableRequest,
        call: &Call<'_>,
    ) -> Result<v1::CreateTableResponse> {
        let cluster = request.cluster.clone();
        let CreateTable { request, name, partitioning, replication, holds } = CreateTable::try_from(request)?;
        let decide = |state: &ClusterState, _: &Liveness| {
            if holds == Holds::Data {
                check_nodes_for(state, &name, replication)?;
            }
            Ok(Command::CreateTable { name, partitioning, replication, holds })
        };
        match self.change(cluster.as_ref(), request, call, decide).await? {
            (session, Answer::TableCreated { table }) => {
                let row = session
                    .quorum()
                    .replicated()
                    .read(|state| state.tables.get(&table).map(|table| table_info(state, table)));
                Ok(v1::CreateTableResponse { table: row })
            }
            (_, other) => Err(unexpected(&other)),
        }
    }

    /// Wants another number of copies of each partition, or other limits above which they are split.
    pub(super) async fn alter(
        &self,
        request: v1::AlterTableRequest,
        call: &Call<'_>,
    ) -> Result<v1::AlterTableResponse> {
        let cluster = request.cluster.clone();
        let AlterTable { request, name, change } = AlterTable::try_from(request)?;
        let decide = |state: &ClusterState, _: &Liveness| {
            Ok(check_alter_table(state, table_of(state, &name)?, &change)?.ok_or(()))
        };
        let changed = self.change_unless(cluster.as_ref(), request, call, decide).await?.is_ok();
        self.look(cluster.as_ref(), call.within, |_, state| {
            Ok(v1::AlterTableResponse { table: Some(table_info(state, table_of(state, &name)?)), changed })
        })
        .await
    }

    /// What dropping a table would delete.
    pub(super) async fn checked_table(
        &self,
        request: &v1::CheckTableRequest,
        within: Duration,
    ) -> Result<v1::CheckTableResponse> {
        self.look(request.cluster.as_ref(), within, |session, state| {
            let table = table_of(state, &request.name)?;
            let loads = session.loads().lock();
            let copies = || state.partitions.of_table(table.id).flat_map(|row| &row.placements);
            let nodes: BTreeSet<NodeId> = copies().map(|copy| copy.node).collect();
            // Who owns a lease has nothing to delete.
            let is_lease = table.holds == Holds::Lease;
            let away = nodes.iter().filter(|node| !is_lease && !state.is_alive(**node)).take(NAMED_MAX);
            Ok(v1::CheckTableResponse {
                table: Some(table_info(state, table)),
                copies: if is_lease { 0 } else { u32::try_from(copies().count()).unwrap_or(u32::MAX) },
                bytes: copies().map(|copy| loads.bytes(copy.node, copy.id)).sum(),
                nodes_away: away.map(|node| subjects::node_name(state, *node)).collect(),
                nodes: u32::try_from(nodes.len()).unwrap_or(u32::MAX),
            })
        })
        .await
    }

    /// Drops a table, if it is still the one that was looked at.
    pub(super) async fn drop_table_of(
        &self,
        request: v1::DropTableRequest,
        call: &Call<'_>,
    ) -> Result<v1::DropTableResponse> {
        let cluster = request.cluster.clone();
        let DropTable { request, name, table } = DropTable::try_from(request)?;
        let decide = |state: &ClusterState, _: &Liveness| {
            let now = table_of(state, &name)?.id;
            if now != table {
                let message = format!("table {name} is another one by now (number {now}, not {table}); look again");
                return Err(ErrorDetail::new(ErrorKind::StaleVersion, message).with_have_need(now.get(), table.get()));
            }
            Ok(Command::DropTable { table })
        };
        match self.change(cluster.as_ref(), request, call, decide).await?.1 {
            Answer::TableDropped { copies, .. } => Ok(v1::DropTableResponse { copies }),
            other => Err(unexpected(&other)),
        }
    }
}

/// The table of this name.
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

//! Administration of tables: replication and limits, checks before a drop, and dropping.

use crate::admin::{Admin, client, incomplete, request_id};
use crate::admin_call::Effect;
use crate::admin_types::TableSummary;
use crate::error::Error;
use crate::operate_types::TableCheck;
use archon_proto::convert::admin::DropTable;
use archon_proto::convert::alter::AlterTable;
use archon_proto::v1;
use archon_types::limits::{REPLICAS_MAX, check_name};
use archon_types::{TableChange, TableId};

impl Admin {
    /// Returns the data that dropping a table would delete, without any change.
    ///
    /// # Errors
    /// `NotFound` if there is no such table; otherwise see [`Error`].
    pub async fn check_table(&self, name: &str) -> Result<TableCheck, Error> {
        check_name("table", name)?;
        let request = v1::CheckTableRequest { cluster: None, name: name.to_owned() };
        let call = |channel, request| async move { client(channel).check_table(request).await };
        let wire: v1::CheckTableResponse = self.coordinator_client().call(Effect::Reads, request, call).await?;
        Ok(TableCheck {
            table: wire.table.ok_or_else(|| incomplete("CheckTableResponse.table"))?.into(),
            copies_deleted: wire.copies,
            bytes_deleted: wire.bytes,
            nodes_holding: wire.nodes,
            nodes_away: wire.nodes_away.into_iter().map(Into::into).collect(),
        })
    }

    /// Changes the number of copies (1 to 7) of each partition, which are then created or discarded; and for a table
    /// by ranges the limits of automatic splits and merges. Returns the resulting table, and whether anything
    /// changed.
    ///
    /// # Errors
    /// `NotFound` if there is no such table, `Refused` if there are fewer nodes than copies, `InvalidArgument` for limits that
    /// are out of bounds or of a table whose keys are hashed; otherwise see [`Error`].
    pub async fn alter_table(&self, name: &str, change: &TableChange) -> Result<(TableSummary, bool), Error> {
        check_name("table", name)?;
        if let Some(replication) = change.replication.filter(|copies| !(1..=REPLICAS_MAX).contains(copies)) {
            return Err(Error::invalid(format!("a table has 1 to {REPLICAS_MAX} copies, not {replication}")));
        }
        change.limits().check()?;
        let alter = AlterTable { request: request_id(), name: name.to_owned(), change: *change };
        let call = |channel, request| async move { client(channel).alter_table(request).await };
        let request = v1::AlterTableRequest::from(alter);
        let wire: v1::AlterTableResponse = self.coordinator_client().call(Effect::Writes, request, call).await?;
        Ok((wire.table.ok_or_else(|| incomplete("AlterTableResponse.table"))?.into(), wire.changed))
    }

    /// Drops the table with this name and number and all its data, irrevocably. The name is free at once. Nodes
    /// delete their copies, absent ones when they return; returns the number of copies.
    ///
    /// # Errors
    /// `NotFound` for an unknown table, `StaleVersion` if the name belongs to another table; otherwise see [`Error`].
    pub async fn drop_table(&self, name: &str, id: u64) -> Result<u32, Error> {
        check_name("table", name)?;
        if id == 0 {
            return Err(Error::invalid("no table has the number 0; ask for the table's number first (check_table)"));
        }
        let drop = DropTable { request: request_id(), name: name.to_owned(), table: TableId::new(id) };
        let call = |channel, request| async move { client(channel).drop_table(request).await };
        let request = v1::DropTableRequest::from(drop);
        let wire: v1::DropTableResponse = self.coordinator_client().call(Effect::Writes, request, call).await?;
        Ok(wire.copies)
    }
}

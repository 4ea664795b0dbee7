//! Administration of tables: what dropping one would delete, and dropping it.

use crate::admin::{Admin, client, incomplete, request_id};
use crate::admin_call::Effect;
use crate::error::Error;
use crate::operate_types::TableCheck;
use archon_proto::convert::admin::DropTable;
use archon_proto::v1;
use archon_types::TableId;
use archon_types::limits::check_name;

impl Admin {
    /// What dropping a table would delete. Changes nothing.
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

    /// Drops the table of this name and number, with everything in it: nothing brings it back. Its name is free at once. Its
    /// nodes delete their copies, those that are away when they return; returns how many copies there are.
    ///
    /// # Errors
    /// `NotFound` if there is no such table, `StaleVersion` if another one goes by the name; otherwise see [`Error`].
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

//! Administration of tables: replication and limits, checks before a drop, and dropping.

use crate::admin::Admin;
use crate::error::Error;
use archon_documents::{AlterTable, CheckTable, DescribeTable, DropTable, TableCheck, TableDescription, TableSummary};
use archon_types::TableChange;

impl Admin {
    /// Returns the data that dropping a table would delete, without any change.
    ///
    /// # Errors
    /// `NotFound` if there is no such table; otherwise see [`Error`].
    pub async fn check_table(&self, name: &str) -> Result<TableCheck, Error> {
        self.ask(&CheckTable { table: name.to_owned() }).await
    }

    /// Returns everything about one table: partitions and copies by state, the share of each node, problems; with
    /// `partitions` also each partition.
    ///
    /// # Errors
    /// `NotFound` if there is no such table; otherwise see [`Error`].
    pub async fn describe_table(&self, name: &str, partitions: bool) -> Result<TableDescription, Error> {
        self.ask(&DescribeTable { table: name.to_owned(), partitions }).await
    }

    /// Changes the number of copies (1 to 7) of each partition, which are then created or discarded; and for a table
    /// by ranges the limits of automatic splits and merges. Returns the resulting table, and whether anything
    /// changed.
    ///
    /// # Errors
    /// `NotFound` if there is no such table, `Refused` if there are fewer nodes than copies, `InvalidArgument` for limits that
    /// are out of bounds or of a table whose keys are hashed; otherwise see [`Error`].
    pub async fn alter_table(&self, name: &str, change: &TableChange) -> Result<(TableSummary, bool), Error> {
        let altered = self.ask(&AlterTable { table: name.to_owned(), change: *change }).await?;
        Ok((altered.table, altered.changed))
    }

    /// Drops the table with this name and number and all its data, irrevocably. The name is free at once. Nodes
    /// delete their copies, absent ones when they return; returns the number of copies.
    ///
    /// # Errors
    /// `NotFound` for an unknown table, `StaleVersion` if the name belongs to another table; otherwise see [`Error`].
    pub async fn drop_table(&self, name: &str, id: u64) -> Result<u32, Error> {
        Ok(self.ask(&DropTable { table: name.to_owned(), table_id: id }).await?.copies_deleted)
    }
}

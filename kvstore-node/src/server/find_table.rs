//! Tables by name, for calls that name one: found, waited for, or reported as missing.

use crate::node::state::NodeState;
use archon_security::Caller;
use archon_types::{DEFAULT_TABLE, ErrorDetail, ErrorKind, Right, Table, Version};
use std::time::Duration;
use tokio::time::{Instant, timeout, timeout_at};

/// Longest wait for a table unknown to this node: pushes bring a new one within milliseconds.
const CREATED_WITHIN: Duration = Duration::from_secs(1);
/// Time of one question to the coordinators. Calls that wait for the next one have time for that, too.
const ANSWERED_WITHIN: Duration = Duration::from_millis(500);

impl NodeState {
    /// Returns the table with this name. Waits a moment for an unknown name, as the table may have been created just
    /// now.
    ///
    /// # Errors
    /// `Refused` for a client without `right` to every table, as for a table that it has no right to; `NotFound` if
    /// there is no such table according to the coordinators; `Unavailable` if they do not answer, or the table is not
    /// known here yet.
    pub(crate) async fn find_table(
        &self,
        name: &str,
        caller: &Caller,
        call: &str,
        right: Right,
    ) -> Result<Table, ErrorDetail> {
        // Before the first look, so that no table is missed between the two.
        let mut changes = self.tables.watch();
        if let Some(table) = self.tables.table(name) {
            return Ok(table);
        }
        let name = if name.is_empty() { DEFAULT_TABLE } else { name };
        self.access.of(caller, call).check_unknown(name, right)?;
        let Some(life) = self.membership.life().filter(|_| self.knows_tables()) else {
            return Err(self.unknown_table(name));
        };
        let until = Instant::now() + CREATED_WITHIN;
        let created = async {
            while changes.changed().await.is_ok() {
                if let Some(table) = self.tables.table(name) {
                    return Some(table);
                }
            }
            None
        };
        let exists = timeout(
            CREATED_WITHIN,
            self.lookup.exists(life.member.cluster, name, self.tables.coordinators(), ANSWERED_WITHIN),
        );
        tokio::pin!(created);
        let why = tokio::select! {
            table = &mut created => return table.ok_or_else(|| self.unknown_table(name)),
            exists = exists => match exists {
                Ok(Ok(false)) => return Err(self.unknown_table(name)),
                Ok(Ok(true)) => match timeout_at(until, created).await {
                    Ok(Some(table)) => return Ok(table),
                    _ => "has not received it yet".to_owned(),
                },
                Ok(Err(detail)) => format!("cannot ask whether it exists: {}", detail.message),
                Err(_) => "cannot ask whether it exists: no coordinator answered in time".to_owned(),
            },
        };
        let why = format!("node {} knows no table {name:?}, and {why}", self.config.name);
        Err(ErrorDetail::new(ErrorKind::Unavailable, why).with_retry_after_ms(100))
    }

    /// Returns the error of a call about a table that is not known here.
    pub(crate) fn unknown_table(&self, name: &str) -> ErrorDetail {
        let node = &self.config.name;
        if !self.knows_tables() {
            let why = format!(
                "node {node} knows no table {name:?}, and no coordinator keeps it up to date; ask another node"
            );
            return ErrorDetail::new(ErrorKind::Unavailable, why).with_retry_after_ms(100);
        }
        self.tables.dropped_name(name).unwrap_or_else(|| {
            let why = format!("node {node} knows no table {name:?}; `archon table list` shows the tables");
            ErrorDetail::new(ErrorKind::NotFound, why).with_table_version(self.tables.complete())
        })
    }

    /// Returns whether every table that has existed for a moment is known here: the node was sent all of them, and
    /// holds a lease.
    fn knows_tables(&self) -> bool {
        self.tables.complete() > Version::ZERO && self.membership.grants().is_valid(self.clock.now())
    }
}

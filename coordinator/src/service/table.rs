//! The partition table, from any coordinator: a cache for clients, so it is served from the applied state, also without
//! a leader. The owner checks every request that is based on it.

use super::{Context, check_named, refuse};
use crate::raft::TableVersions;
use archon_coordinator_core::{table_piece, table_ready};
use archon_proto::convert::ids::key_bytes;
use archon_proto::v1;
use archon_proto::v1::table_server::Table;
use archon_security::Caller;
use archon_types::{DEFAULT_TABLE, ErrorDetail, ErrorKind, Right, TableId, Version};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use tonic::{Request, Response, Status};

const CALL: &str = "/archon.v1.Table/GetTable";
/// Maximum wait of a poll.
const WAIT_MAX_MS: u32 = 30_000;

/// Changes for which a long poll waits.
enum Changes {
    /// Changes of a table that exists.
    OfTable(watch::Receiver<TableVersions>),
    /// Any entry: the table does not exist yet, or the cluster has not begun.
    Any(watch::Receiver<u64>),
}

impl Changes {
    /// Returns the versions before the state is read.
    fn versions(&mut self) -> Option<TableVersions> {
        match self {
            Self::OfTable(versions) => Some(*versions.borrow_and_update()),
            Self::Any(applied) => {
                applied.borrow_and_update();
                None
            }
        }
    }

    /// Waits until the answer may differ from the one at `before`. A poll that waits for a `newer` version than `since`
    /// ignores older ones. Returns true if the state ends.
    async fn wait(&mut self, before: Option<TableVersions>, since: Version, newer: bool) -> bool {
        match self {
            Self::OfTable(versions) => {
                let differs = |now: &TableVersions| {
                    let before = before.unwrap_or(*now);
                    let settles = !newer || now.access != before.access || now.table.is_none_or(|table| table > since);
                    *now != before && settles
                };
                versions.wait_for(differs).await.is_err()
            }
            Self::Any(applied) => applied.changed().await.is_err(),
        }
    }
}

/// The service.
pub(crate) struct Tables {
    context: Context,
}

impl Tables {
    /// A service over `context`.
    pub(crate) const fn new(context: Context) -> Self {
        Self { context }
    }

    async fn get(&self, request: v1::GetTableRequest, caller: &Caller) -> Result<v1::GetTableResponse, ErrorDetail> {
        if request.wait_ms > WAIT_MAX_MS {
            let message = format!("wait_ms is {}; the limit is {WAIT_MAX_MS}", request.wait_ms);
            return Err(ErrorDetail::new(ErrorKind::InvalidArgument, message));
        }
        let quorum = self.context.quorum()?;
        let deadline = Instant::now() + Duration::from_millis(request.wait_ms.into());
        let since = Version::new(request.since);
        let name = if request.table.is_empty() { DEFAULT_TABLE } else { &request.table };
        let replicated = quorum.replicated();
        loop {
            if replicated.read(archon_coordinator_core::ClusterState::stands_by) {
                // Clients would mistake rows of this generation for newer ones than those of the coordinators that
                // work.
                return Err(quorum.not_leading());
            }
            // Resolved each time: a table of this name may be created, or dropped and created again.
            let table = replicated.read(|state| state.table_by_name(name).map(|table| table.id));
            let mut changes = match table {
                Some(table) => Changes::OfTable(replicated.table_versions(table)),
                None => Changes::Any(replicated.applied()),
            };
            let before = changes.versions();
            let found = self.look(&request, since, caller);
            let settled = match &found {
                // A client that has the first pieces needs the others at once.
                Ok(_) if request.from > 0 => true,
                Ok(answer) => answer.delta.as_ref().is_some_and(|delta| delta.version > request.since),
                Err(error) => !error.kind.is_retryable(),
            };
            if settled || Instant::now() >= deadline {
                return found;
            }
            tokio::select! {
                () = self.context.stop.cancelled() => return found,
                () = tokio::time::sleep_until(deadline) => {}
                ended = changes.wait(before, since, found.is_ok()) => if ended { return found },
            }
        }
    }

    fn look(
        &self,
        request: &v1::GetTableRequest,
        since: Version,
        caller: &Caller,
    ) -> Result<v1::GetTableResponse, ErrorDetail> {
        let quorum = self.context.quorum()?;
        quorum.replicated().read(|state| {
            if !state.is_bootstrapped() {
                return Err(quorum.not_leading());
            }
            check_named(request.cluster.as_ref(), state)?;
            let name = if request.table.is_empty() { DEFAULT_TABLE } else { &request.table };
            let table = state.table_by_name(name).map(|table| table.id);
            let check_right = |table: Option<TableId>| {
                let has = caller.client().and_then(|client| match table {
                    Some(table) => state.access.right(client, table),
                    // A client that may not read every table does not learn which exist.
                    None => state.access.right_to_every_table(client),
                });
                if caller.client().is_some() && has.is_none() && quorum.leading_term().is_none() {
                    // The right may have just been granted.
                    return Err(quorum.not_leading());
                }
                caller.check_right(has, Right::Read, name, CALL)
            };
            if table.is_none() && since == Version::ZERO {
                check_right(None)?;
            }
            // A client that holds an older version of the table learns by this error that it was dropped.
            let table = table.ok_or_else(|| {
                ErrorDetail::new(ErrorKind::NotFound, format!("table {name:?} does not exist"))
                    .with_table_version(state.table_version())
            })?;
            if !state.is_lease(table) {
                // Boundaries of ranges reveal rows. Owners of leases are public.
                caller.check_routes(name, CALL)?;
                check_right(Some(table))?;
            }
            if !request.unassigned {
                table_ready(state, table)?;
            }
            let piece = table_piece(state, table, since, request.from);
            Ok(v1::GetTableResponse {
                cluster: Some(state.cluster.into()),
                delta: piece.map(Into::into),
                coordinators: quorum.coordinators(),
                generation_key: key_bytes(state.generation_key(state.generation)),
            })
        })
    }
}

#[tonic::async_trait]
impl Table for Tables {
    async fn get_table(&self, request: Request<v1::GetTableRequest>) -> Result<Response<v1::GetTableResponse>, Status> {
        let caller = Caller::of(&request);
        self.get(request.into_inner(), &caller).await.map(Response::new).map_err(refuse)
    }
}

//! The partition table, from any coordinator: a cache for clients, so it is served from what is applied here, also
//! while there is no leader. Whoever acts on it is checked by the owner.

use super::{Context, check_named, refuse};
use archon_coordinator_core::{table_piece, table_ready};
use archon_proto::convert::ids::key_bytes;
use archon_proto::v1;
use archon_proto::v1::table_server::Table;
use archon_security::Caller;
use archon_types::{DEFAULT_TABLE, ErrorDetail, ErrorKind, Right, TableId, Version};
use std::time::Duration;
use tokio::time::Instant;
use tonic::{Request, Response, Status};

const CALL: &str = "/archon.v1.Table/GetTable";
/// Longest poll.
const WAIT_MAX_MS: u32 = 30_000;

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
        let mut applied = quorum.replicated().applied();
        let since = Version::new(request.since);
        loop {
            applied.borrow_and_update();
            let found = self.look(&request, since, caller);
            let settled = match &found {
                // Whoever has the first pieces wants the others at once.
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
                changed = applied.changed() => if changed.is_err() { return found },
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
                    // Which tables there are is told to nobody who may not read them all.
                    None => state.access.right_to_every_table(client),
                });
                if caller.client().is_some() && has.is_none() && quorum.leading_term().is_none() {
                    // It may have been granted just now.
                    return Err(quorum.not_leading());
                }
                caller.check_right(has, Right::Read, name, CALL)
            };
            if table.is_none() && since == Version::ZERO {
                check_right(None)?;
            }
            // Whoever held the table as of an older version learns by this one that it was dropped.
            let table = table.ok_or_else(|| {
                ErrorDetail::new(ErrorKind::NotFound, format!("there is no table {name:?}"))
                    .with_table_version(state.table_version())
            })?;
            if !state.is_lease(table) {
                // Where ranges begin is a matter of rows. Who owns a lease everybody may know.
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

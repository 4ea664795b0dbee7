//! The partition table, from any coordinator: a cache for clients, so it is served from the applied state, also without
//! a leader. The owner checks every request that is based on it. Only a leader confirmed by a quorum answers that a table
//! does not exist or may not be read: the state of every other coordinator may lack what was just created or granted.

use super::{Context, check_named, refuse};
use crate::raft::{Quorum, TableVersions};
use archon_coordinator_core::{ClusterState, table_piece, table_ready};
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
/// Maximum wait for the quorum round that confirms a negative answer.
const CONFIRM_WITHIN: Duration = Duration::from_secs(1);

/// Reason why the applied state gives no table.
enum NoTable {
    /// This answer, valid from every coordinator.
    Answer(ErrorDetail),
    /// The table or the right to it is missing in this state, which may be old.
    Unconfirmed,
}

impl From<ErrorDetail> for NoTable {
    fn from(detail: ErrorDetail) -> Self {
        Self::Answer(detail)
    }
}

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
            if replicated.read(ClusterState::stands_by) {
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
            let found = match self.look(&request, since, caller, false) {
                Err(NoTable::Unconfirmed) => self.look_confirmed(quorum, &request, since, caller).await,
                Err(NoTable::Answer(detail)) => Err(detail),
                Ok(answer) => Ok(answer),
            };
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

    /// Looks again once a quorum has confirmed that this coordinator leads: its state then holds every change that was
    /// answered before this call.
    async fn look_confirmed(
        &self,
        quorum: &Quorum,
        request: &v1::GetTableRequest,
        since: Version,
        caller: &Caller,
    ) -> Result<v1::GetTableResponse, ErrorDetail> {
        if quorum.leading_term().is_none() {
            return Err(quorum.not_leading());
        }
        quorum.confirm(CONFIRM_WITHIN).await?;
        self.look(request, since, caller, true).map_err(|none| match none {
            NoTable::Answer(detail) => detail,
            NoTable::Unconfirmed => quorum.not_leading(),
        })
    }

    /// Answers from the applied state; negatively only if it is `confirmed` to be the newest one, or new enough.
    fn look(
        &self,
        request: &v1::GetTableRequest,
        since: Version,
        caller: &Caller,
        confirmed: bool,
    ) -> Result<v1::GetTableResponse, NoTable> {
        let quorum = self.context.quorum()?;
        quorum.replicated().read(|state| table_in(state, quorum, request, since, caller, confirmed))
    }
}

/// Returns the table as of this state.
fn table_in(
    state: &ClusterState,
    quorum: &Quorum,
    request: &v1::GetTableRequest,
    since: Version,
    caller: &Caller,
    confirmed: bool,
) -> Result<v1::GetTableResponse, NoTable> {
    if !state.is_bootstrapped() {
        return Err(quorum.not_leading().into());
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
        if caller.client().is_some() && has < Some(Right::Read) && !confirmed {
            return Err(NoTable::Unconfirmed);
        }
        caller.check_right(has, Right::Read, name, CALL).map_err(NoTable::from)
    };
    if table.is_none() && since == Version::ZERO {
        check_right(None)?;
    }
    // A client that holds an older version of the table learns by this error that it was dropped: it existed at that
    // version, so any later state without it is proof.
    let dropped = since > Version::ZERO && since <= state.table_version();
    let Some(table) = table else {
        if !confirmed && !dropped {
            return Err(NoTable::Unconfirmed);
        }
        let missing = ErrorDetail::new(ErrorKind::NotFound, format!("table {name:?} does not exist"));
        return Err(missing.with_table_version(state.table_version()).into());
    };
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
}

#[tonic::async_trait]
impl Table for Tables {
    async fn get_table(&self, request: Request<v1::GetTableRequest>) -> Result<Response<v1::GetTableResponse>, Status> {
        let caller = Caller::of(&request);
        self.get(request.into_inner(), &caller).await.map(Response::new).map_err(refuse)
    }
}

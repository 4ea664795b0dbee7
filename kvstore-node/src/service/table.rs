//! `Table`: the partition table from the node's cache, so that clients need to reach only one member.

use super::refuse;
use crate::node::state::NodeState;
use archon_proto::convert::ids;
use archon_proto::v1::table_server::Table;
use archon_proto::v1::{GetTableRequest, GetTableResponse};
use archon_security::Caller;
use archon_types::{DEFAULT_TABLE, ErrorDetail, ErrorKind, Right, TableId, Version};
use std::sync::Arc;
use std::time::Duration;
use tonic::{Request, Response, Status};

const CALL: &str = "/archon.v1.Table/GetTable";
/// Longest long poll.
const WAIT_MS_MAX: u32 = 30_000;

/// The service.
pub(crate) struct TableService {
    pub(crate) shared: Arc<NodeState>,
    pub(crate) stop: tokio_util::sync::CancellationToken,
}

#[tonic::async_trait]
impl Table for TableService {
    async fn get_table(&self, request: Request<GetTableRequest>) -> Result<Response<GetTableResponse>, Status> {
        let caller = Caller::of(&request);
        let request = request.into_inner();
        let shared = &self.shared;
        let Some(life) = shared.life() else {
            let why = format!("node {} is not registered yet, so it knows no table", shared.config.name);
            return Err(refuse(ErrorDetail::new(ErrorKind::Unavailable, why).with_retry_after_ms(100)));
        };
        ids::check_cluster_if_named(request.cluster.as_ref(), life.member.cluster).map_err(refuse)?;
        let name = if request.table.is_empty() { DEFAULT_TABLE } else { &request.table };
        // Range boundaries reveal row keys. Checked again after the wait: the table and the rights may have changed.
        let check = |table: TableId| {
            caller.check_routes(name, CALL)?;
            shared.access.of(&caller, CALL).check(&shared.tables, table, Right::Read)
        };
        let since = Version::new(request.since);
        match shared.tables.table(name) {
            Some(table) => check(table.id).map_err(refuse)?,
            None if since == Version::ZERO => {
                let table = shared.find_table(name, &caller, CALL, Right::Read).await.map_err(refuse)?;
                check(table.id).map_err(refuse)?;
            }
            // It held a table of this name: the caller may know whether one was dropped.
            None if shared.tables.dropped_name(name).is_some() => {}
            None => shared.access.of(&caller, CALL).check_unknown(name, Right::Read).map_err(refuse)?,
        }
        let mut watch = shared.tables.watch();
        let timeout = Duration::from_millis(u64::from(request.wait_ms.min(WAIT_MS_MAX)));
        let newer = async {
            // Without such a table: until it is known that there is none.
            while shared.tables.version_of(name).unwrap_or(shared.tables.complete()) <= since {
                if watch.changed().await.is_err() {
                    break;
                }
            }
        };
        if since > Version::ZERO && request.from == 0 {
            tokio::select! {
                _ = tokio::time::timeout(timeout, newer) => {}
                () = self.stop.cancelled() => {}
            }
        }
        let complete = shared.tables.complete();
        let delta = match shared.tables.newer_than(name, since, request.from) {
            Some(delta) => delta,
            None if since > Version::ZERO && complete >= since => {
                let why = format!("table {name:?} was dropped");
                return Err(refuse(ErrorDetail::new(ErrorKind::NotFound, why).with_table_version(complete)));
            }
            None => {
                // This node may not have received the table yet.
                shared.find_table(name, &caller, CALL, Right::Read).await.map_err(refuse)?;
                let delta = shared.tables.newer_than(name, since, request.from);
                delta.ok_or_else(|| refuse(shared.unknown_table(name)))?
            }
        };
        check(delta.delta.table.id).map_err(refuse)?;
        Ok(Response::new(GetTableResponse {
            cluster: Some(life.member.cluster.into()),
            delta: Some(delta.into()),
            coordinators: shared.tables.coordinators(),
            generation_key: ids::key_bytes(life.generation_key),
        }))
    }
}

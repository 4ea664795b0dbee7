//! Administration: calls to the coordinators for people and scripts.

use crate::admin_call::{CoordinatorClient, Effect};
use crate::admin_types::{
    Event, Located, NodeSummary, PartitionSummary, Reason, Status, TableSummary, partition_summary,
};
use crate::error::Error;
use crate::link::{beyond, check_endpoints};
use crate::quorum_types::Quorum;
use crate::rebalance_types::{Cancelled, MoveStatus, RebalanceStatus, Reshaping};
use crate::table::PIECES_MAX;
use archon_proto::convert::admin::{ApplyPlan, CreateTable, SetNode, check_kinds};
use archon_proto::convert::ids::{cluster_id, generation_key};
use archon_proto::convert::words::enum_word;
use archon_proto::trace::TracedChannel;
use archon_proto::v1::{self, admin_client::AdminClient, table_client::TableClient};
use archon_security::{Caller, Transport};
use archon_types::limits::{MESSAGE_BYTES_MAX, REPLICAS_MAX, check_key, check_name};
use archon_types::plan::Plan;
use archon_types::subject::NodeName;
use archon_types::text::into_plain;
use archon_types::{
    Assembled, Assembly, ErrorDetail, ErrorKind, Holds, NodeGoal, NodeStatus, PartitionTable, Partitioning,
    RangeLimits, RequestId, TablePiece, Word, slot_of,
};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// Maximum answer size: whole tables, plans and lists of nodes are larger than ordinary messages.
const ANSWER_BYTES_MAX: usize = 8 * MESSAGE_BYTES_MAX;
/// Moves per request.
const MOVES_PER_ANSWER: u32 = 1_024;

/// A client of the coordinators of a cluster. Clones are cheap and share connections.
///
/// Every call finds the leading coordinator, survives a fail-over within the time-out, and has one effect even if it
/// is sent more than once. Without an answer in time the error is [`Error::DeadlineExceeded`]; its [`Error::kind`] is
/// the reason: `Unreachable`, `NoQuorum` …
#[derive(Clone, Debug)]
pub struct Admin(Arc<CoordinatorClient>);

impl Admin {
    /// Creates a client for the cluster of these endpoints (`host:port` of coordinators or nodes). `timeout` limits
    /// each call including retries. Sends nothing yet.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an endpoint that is not `host:port`, or if there is none.
    pub fn new<E: Into<String>>(endpoints: impl IntoIterator<Item = E>, timeout: Duration) -> Result<Self, Error> {
        let endpoints: Vec<String> = endpoints.into_iter().map(Into::into).collect();
        let transport = Transport::plaintext(beyond(&endpoints));
        Self::with_transport(endpoints, timeout, transport)
    }

    /// As [`Admin::new`], with TLS, or with an explicit choice whether plaintext connections may leave this machine,
    /// to addresses reported by the cluster. `new` allows that if a given endpoint is on another machine.
    ///
    /// # Errors
    /// As [`Admin::new`].
    pub fn with_transport(endpoints: Vec<String>, timeout: Duration, transport: Transport) -> Result<Self, Error> {
        check_endpoints(&endpoints)?;
        Ok(Self(Arc::new(CoordinatorClient::new(endpoints, timeout.max(Duration::from_millis(1)), transport))))
    }

    /// Creates a client for another endpoint reported by the cluster, with the same transport.
    ///
    /// # Errors
    /// As [`Admin::new`].
    pub fn at_endpoint(&self, endpoint: String, timeout: Duration) -> Result<Self, Error> {
        Self::with_transport(vec![endpoint], timeout, self.0.links().transport().clone())
    }

    /// Returns a client that calls on behalf of `caller`: changes are made in that caller's name and with its rights.
    /// Only coordinators may do so, for callers of their consoles; without TLS callers are not authenticated.
    #[must_use]
    pub fn on_behalf_of(&self, caller: &Caller) -> Self {
        Self(Arc::new(self.0.on_behalf_of(caller)))
    }

    /// Returns a client with a function that is called once per call that no coordinator has answered for a second,
    /// with the reason and the remaining time. For interactive programs.
    #[must_use]
    pub fn on_unanswered(&self, report: impl Fn(&ErrorDetail, Duration) + Send + Sync + 'static) -> Self {
        Self(Arc::new(self.0.on_unanswered(report)))
    }

    /// Returns the client of the coordinators.
    pub(crate) fn coordinator_client(&self) -> &CoordinatorClient {
        &self.0
    }

    /// Returns an overview of the cluster.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn status(&self) -> Result<Status, Error> {
        let request = v1::StatusRequest::default();
        let call = |channel, request| async move { client(channel).status(request).await };
        let wire: v1::StatusResponse = self.0.call(Effect::Reads, request, call).await?;
        Ok(Status {
            cluster_id: cluster_text(wire.cluster.as_ref())?,
            leader_id: wire.leader,
            term: wire.term,
            coordinators: wire.coordinators.into_iter().map(Into::into).collect(),
            transport: Word::read(&wire.transport),
            table_version: wire.table_version,
            nodes_alive: wire.nodes_alive,
            nodes_failed: wire.nodes_failed,
            nodes_unreached: wire.nodes_unreached,
            partitions_total: wire.partitions,
            partitions_online: wire.partitions_online,
            partitions_under_replicated: wire.partitions_under_replicated,
            copies_condemned: wire.copies_condemned,
            moves_running: wire.moves_running,
            reshapings_running: wire.reshapings_running,
            nodes_min: wire.nodes_min,
            reasons: wire.reasons.into_iter().map(Into::into).collect(),
        })
    }

    /// Returns all nodes, including lost ones until another node takes their name.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn list_nodes(&self) -> Result<Vec<NodeSummary>, Error> {
        let request = v1::ListNodesRequest::default();
        let call = |channel, request| async move { client(channel).list_nodes(request).await };
        let wire: v1::ListNodesResponse = self.0.call(Effect::Reads, request, call).await?;
        let nodes = wire.nodes.into_iter().map(node_summary).collect::<Result<Vec<NodeSummary>, Error>>()?;
        let alive = nodes.iter().filter(|node| node.status == NodeStatus::Alive && !node.is_participant());
        self.0.note_nodes(alive.map(|node| node.address.as_str()));
        Ok(nodes)
    }

    /// Sets the goal of a node: to serve, to get no new copies, or to be drained.
    ///
    /// # Errors
    /// `NotFound` for an unknown node; `Refused` with every reason if it cannot be drained; otherwise see [`Error`].
    pub async fn set_node(&self, name: &str, goal: NodeGoal) -> Result<(), Error> {
        check_name("node", name)?;
        let request = v1::SetNodeRequest::from(SetNode { request: request_id(), name: name.to_owned(), goal });
        let call = |channel, request| async move { client(channel).set_node(request).await };
        let _: v1::SetNodeResponse = self.0.call(Effect::Writes, request, call).await?;
        Ok(())
    }

    /// Returns all tables.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn list_tables(&self) -> Result<Vec<TableSummary>, Error> {
        let request = v1::ListTablesRequest::default();
        let call = |channel, request| async move { client(channel).list_tables(request).await };
        let wire: v1::ListTablesResponse = self.0.call(Effect::Reads, request, call).await?;
        Ok(wire.tables.into_iter().map(Into::into).collect())
    }

    /// Creates a table of `partitions` (1 to 16,384) partitions with `replication` (1 to 7) copies each.
    ///
    /// # Errors
    /// `AlreadyExists` if the name is taken, `Refused` if there are fewer nodes than copies; otherwise see [`Error`].
    pub async fn create_table(&self, name: &str, partitions: u32, replication: u8) -> Result<TableSummary, Error> {
        self.create(name, Partitioning::Hash { partitions }, replication, Holds::Data).await
    }

    /// Creates a table with ordered keys, in ranges, with `replication` (1 to 7) copies of each. It starts with one
    /// partition, or split at the given keys: at most 1,023, in byte order. `limits` set when partitions are split
    /// and merged automatically; without them only operators do so.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn create_range_table(
        &self,
        name: &str,
        split_at: Vec<Bytes>,
        limits: RangeLimits,
        replication: u8,
    ) -> Result<TableSummary, Error> {
        self.create(name, Partitioning::Range { split_at, limits }, replication, Holds::Data).await
    }

    /// Creates a table of `partitions` (1 to 16,384) leases: partitions without rows, each owned by one participant
    /// of another service.
    ///
    /// # Errors
    /// `AlreadyExists` if the name is taken; otherwise see [`Error`].
    pub async fn create_lease_table(&self, name: &str, partitions: u32) -> Result<TableSummary, Error> {
        self.create(name, Partitioning::Hash { partitions }, 1, Holds::Lease).await
    }

    async fn create(
        &self,
        name: &str,
        partitioning: Partitioning,
        replication: u8,
        holds: Holds,
    ) -> Result<TableSummary, Error> {
        check_name("table", name)?;
        partitioning.check()?;
        if !(1..=REPLICAS_MAX).contains(&replication) {
            return Err(Error::invalid(format!("a table has 1 to {REPLICAS_MAX} copies, not {replication}")));
        }
        let create = CreateTable { request: request_id(), name: name.to_owned(), partitioning, replication, holds };
        let request = v1::CreateTableRequest::from(create);
        let call = |channel, request| async move { client(channel).create_table(request).await };
        let wire: v1::CreateTableResponse = self.0.call(Effect::Writes, request, call).await?;
        Ok(wire.table.ok_or_else(|| incomplete("CreateTableResponse.table"))?.into())
    }

    /// Returns the moves of a rebalance with reasons, without any change.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn plan(&self) -> Result<Plan, Error> {
        let request = v1::PlanRebalanceRequest::default();
        let call = |channel, request| async move { client(channel).plan_rebalance(request).await };
        let wire: v1::PlanRebalanceResponse = self.0.call(Effect::Reads, request, call).await?;
        let plan = wire.plan.ok_or_else(|| incomplete("PlanRebalanceResponse.plan"))?;
        Plan::try_from(plan).map_err(|error| incomplete(&error.to_string()))
    }

    /// Executes exactly this plan, and returns the number of started moves.
    ///
    /// # Errors
    /// `StalePlan` if the table moved on since it was made (`have` and `need` are the two versions),
    /// `AssignmentInProgress` while another one runs; otherwise see [`Error`].
    pub async fn apply(&self, plan: &Plan) -> Result<u32, Error> {
        // The same checks as on the server, so that a damaged plan file is rejected before anything is sent.
        let plan = Plan::try_from(v1::Plan::from(plan.clone()))
            .and_then(|plan| check_kinds(&plan).map(|()| plan))
            .map_err(|error| Error::invalid(format!("the plan cannot be used ({error}); make a new one")))?;
        let request = v1::ApplyPlanRequest::from(ApplyPlan { request: request_id(), plan });
        let call = |channel, request| async move { client(channel).apply_plan(request).await };
        let wire: v1::ApplyPlanResponse = self.0.call(Effect::Writes, request, call).await?;
        Ok(wire.moves)
    }

    /// Returns the state of the current or last rebalance with all moves, which can be many. Use
    /// [`Admin::rebalance_progress`] for frequent polls.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn rebalance_status(&self) -> Result<RebalanceStatus, Error> {
        let mut held: Vec<MoveStatus> = Vec::new();
        let mut plan = None;
        loop {
            let after = held.last().map_or(0, |last| last.id);
            let (page, more) = self.rebalance_page(MOVES_PER_ANSWER, after).await?;
            // Another plan has started since the previous page: discard the moves of the old one.
            if plan.is_some_and(|plan| plan != page.summary.plan_id) {
                (held, plan) = (Vec::new(), None);
                continue;
            }
            plan = Some(page.summary.plan_id);
            let ended = !more || page.moves.is_empty();
            held.extend(page.moves);
            if ended {
                return Ok(RebalanceStatus { moves: held, ..page });
            }
        }
    }

    /// Returns the summary of the current or last rebalance, and its first moves: at most `most`, and at most 1,024.
    /// With zero, the coordinator examines only running moves.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn rebalance_progress(&self, most: u32) -> Result<RebalanceStatus, Error> {
        self.rebalance_progress_after(most, 0).await
    }

    /// As [`Admin::rebalance_progress`], for moves with numbers above `after`.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn rebalance_progress_after(&self, most: u32, after: u64) -> Result<RebalanceStatus, Error> {
        Ok(self.rebalance_page(most, after).await?.0)
    }

    /// Returns moves with numbers above `after`, and whether there are more.
    async fn rebalance_page(&self, most: u32, after: u64) -> Result<(RebalanceStatus, bool), Error> {
        let request = v1::RebalanceStatusRequest { cluster: None, most, after };
        let call = |channel, request| async move { client(channel).rebalance_status(request).await };
        let wire: v1::RebalanceStatusResponse = self.0.call(Effect::Reads, request, call).await?;
        let moves: Vec<MoveStatus> = wire.moves.into_iter().map(MoveStatus::try_from).collect::<Result<_, _>>()?;
        if moves.first().is_some_and(|first| first.id <= after) {
            return Err(incomplete("RebalanceStatusResponse.moves repeats what was given"));
        }
        let summary = wire.summary.ok_or_else(|| incomplete("RebalanceStatusResponse.summary"))?.into();
        let reshapings = wire.reshapings.into_iter().map(Reshaping::try_from).collect::<Result<_, _>>()?;
        let reshapings_total = wire.reshapings_total;
        Ok((RebalanceStatus { running: wire.running, summary, moves, reshapings, reshapings_total }, wire.more))
    }

    /// Cancels the running rebalance and undoes moves that are not past the point of no return.
    ///
    /// # Errors
    /// `NothingRunning` if none runs; otherwise see [`Error`].
    pub async fn cancel(&self) -> Result<Cancelled, Error> {
        let request_id = archon_proto::convert::ids::uuid_bytes(request_id().get());
        let request = v1::CancelRebalanceRequest { cluster: None, request_id };
        let call = |channel, request| async move { client(channel).cancel_rebalance(request).await };
        let wire: v1::CancelRebalanceResponse = self.0.call(Effect::Writes, request, call).await?;
        Ok(Cancelled { moves_cancelled: wire.cancelled, moves_too_late: wire.too_late })
    }

    /// Returns reasons for the state of partitions and nodes, at most `most`, most urgent first.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn explain(&self, most: u32) -> Result<Vec<Reason>, Error> {
        let request = v1::ExplainRequest { cluster: None, most };
        let call = |channel, request| async move { client(channel).explain(request).await };
        let wire: v1::ExplainResponse = self.0.call(Effect::Reads, request, call).await?;
        Ok(wire.reasons.into_iter().map(Into::into).collect())
    }

    /// Returns the Raft quorum as seen by the first coordinator that answers, with or without a leader.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn quorum(&self) -> Result<Quorum, Error> {
        let request = v1::QuorumRequest::default();
        let call = |channel, request| async move { client(channel).quorum(request).await };
        let wire: v1::QuorumResponse = self.0.call(Effect::Reads, request, call).await?;
        Ok(Quorum {
            id: wire.id,
            role: Word::read(&wire.role),
            leader_id: wire.leader,
            leader_address: wire.leader_address,
            term: wire.term,
            last_log_index: wire.last_log_index,
            applied_index: wire.applied_index,
            coordinators: wire.voters.into_iter().map(Into::into).collect(),
            spare_voters: wire.spare,
            pending: wire.pending.map(Into::into),
            retired_ids: wire.retired,
            generation: wire.generation,
            generation_key: key_text(&wire.generation_key)?,
            recovery: wire.recovery.map(Into::into),
            cluster_id: cluster_text(wire.cluster.as_ref())?,
        })
    }

    /// Returns the last `most` events, newest last.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn events(&self, most: u32) -> Result<Vec<Event>, Error> {
        let request = v1::EventsRequest { cluster: None, most };
        let call = |channel, request| async move { client(channel).events(request).await };
        let wire: v1::EventsResponse = self.0.call(Effect::Reads, request, call).await?;
        Ok(wire.events.into_iter().map(Into::into).collect())
    }

    /// Returns every partition of a table, by number, including unassigned ones.
    ///
    /// # Errors
    /// `NotFound` if there is no such table; otherwise see [`Error`].
    pub async fn table(&self, name: &str) -> Result<Vec<PartitionSummary>, Error> {
        let table = self.fetch(name).await?;
        Ok(table.partitions().map(|row| partition_summary(&table, row)).collect())
    }

    /// Returns the location of a key.
    ///
    /// # Errors
    /// As [`Admin::table`], and [`Error::InvalidArgument`] for a key that cannot be stored.
    pub async fn locate(&self, table: &str, key: &str) -> Result<Located, Error> {
        check_key(key.as_bytes())?;
        let table = self.fetch(table).await?;
        let id = table.partition_of(key.as_bytes());
        let row = table.partition(id.index).ok_or_else(|| incomplete("the table lacks the key's partition"))?;
        let leader = row.leader_placement().and_then(|placement| table.node(placement.node));
        Ok(Located {
            key: key.to_owned(),
            slot: (!table.table().keys.is_range()).then(|| slot_of(key.as_bytes())),
            partition: partition_summary(&table, row),
            leader_address: leader.map(|node| node.address.clone()),
        })
    }

    pub(crate) async fn fetch(&self, name: &str) -> Result<PartitionTable, Error> {
        check_name("table", name)?;
        let call = |channel: TracedChannel, request| async move { TableClient::new(channel).get_table(request).await };
        let (mut held, mut from) = (None, 0);
        for _ in 0..PIECES_MAX {
            let request = v1::GetTableRequest { table: name.to_owned(), from, unassigned: true, ..Default::default() };
            let wire: v1::GetTableResponse = self.0.call(Effect::Reads, request, call).await?;
            let piece = wire.delta.ok_or_else(|| incomplete("GetTableResponse.delta"))?;
            let piece = TablePiece::try_from(piece).map_err(|error| incomplete(&error.to_string()))?;
            match Assembly::take(&mut held, piece) {
                Assembled::More(next) => from = next,
                Assembled::Gap => break,
                Assembled::Whole(delta) => {
                    return PartitionTable::from_whole(delta)
                        .ok_or_else(|| incomplete("asked for a whole table, got a part"));
                }
            }
        }
        Err(incomplete("the pieces of a table do not go together"))
    }
}

pub(crate) fn client(channel: TracedChannel) -> AdminClient<TracedChannel> {
    AdminClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX).max_encoding_message_size(ANSWER_BYTES_MAX)
}

/// Returns a unique id for one request, so that repeated sends have one effect.
pub(crate) fn request_id() -> RequestId {
    RequestId::new(Uuid::new_v4())
}

pub(crate) fn incomplete(what: &str) -> Error {
    let message = format!("a coordinator's answer cannot be read: {what}; do the versions fit?");
    Error::from(ErrorDetail::new(ErrorKind::Internal, message))
}

fn key_text(bytes: &[u8]) -> Result<Option<String>, Error> {
    let key = generation_key(bytes, "QuorumResponse.generation_key").map_err(|error| incomplete(&error.to_string()))?;
    Ok(Some(key).filter(|key| !key.is_nil()).map(|key| key.to_string()))
}

fn cluster_text(cluster: Option<&v1::ClusterRef>) -> Result<String, Error> {
    let id = cluster_id(cluster).map_err(|error| incomplete(&error.to_string()))?;
    Ok(id.map(|id| id.to_string()).unwrap_or_default())
}

pub(crate) fn node_summary(wire: v1::NodeSummary) -> Result<NodeSummary, Error> {
    let node = wire.node.ok_or_else(|| incomplete("NodeSummary.node"))?;
    Ok(NodeSummary {
        id: node.id,
        name: node.name,
        address: node.address,
        status: enum_word::<v1::NodeStatus, _>(node.status),
        status_changed_at_ms: node.since_ms,
        incarnation: node.incarnation,
        copies_held: wire.copies,
        partitions_led: wire.leaderships,
        zone: node.zone,
        goal: enum_word::<v1::NodeGoal, _>(node.goal),
        weight: node.weight,
        partitions_max: node.partitions_max,
        bytes_stored: wire.bytes_stored,
        keys_stored: wire.keys,
        operations_per_second: wire.operations_per_second,
        silent_for_ms: wire.silent_for_ms,
        door: wire.door.map(Into::into),
        via: wire.via.map(|relay| NodeName::from(relay).node),
        disk_full: wire.disk_full.is_some(),
        stopped: wire.stopped,
        timing: wire.timing.map(Into::into),
        serves: wire.serves.into_iter().map(into_plain).collect(),
        maintenance_ends_at_ms: wire.maintenance_ends_at_ms,
        bars: wire.bars.into_iter().map(Into::into).collect(),
    })
}

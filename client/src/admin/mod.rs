//! Administration: calls to the coordinators for people and scripts.

mod access;
pub(crate) mod call;
mod config;
mod each;
mod operate;
pub(crate) mod order_types;
mod orders;
pub(crate) mod quorum;
mod tables;
mod upgrade;

use crate::admin::call::{CoordinatorClient, Effect};
use crate::error::Error;
use crate::net::link::{beyond, check_endpoints};
use crate::routing::table::PIECES_MAX;
use archon_documents::{
    ApplyPlan, CancelRebalance, CreateTable, Document as _, Event, Explain, KeyLocation, ListEvents, ListNodes,
    ListTables, MethodCall, MoveStatus, NodeSummary, PartitionSummary, PlanRebalance, Quorum, Reason,
    RebalanceCancellation, RebalanceStatus, SetNode, ShowQuorum, ShowRebalance, ShowStatus, Status, TableSummary,
    read_answer, write,
};
use archon_proto::convert::ids::uuid_bytes;
use archon_proto::documents::ANSWER_BYTES_MAX;
use archon_proto::trace::TracedChannel;
use archon_proto::v1::{self, admin_client::AdminClient, table_client::TableClient};
use archon_security::{Caller, Transport};
use archon_types::limits::{check_key, check_name};
use archon_types::plan::Plan;
use archon_types::{
    Assembly, AssemblyResult, ErrorDetail, ErrorKind, KeyText, NodeGoal, NodeStatus, PartitionTable, Partitioning,
    RangeLimits, RequestId, TableContent, TablePiece, slot_of,
};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// Maximum number of moves requested at once.
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

    /// Asks the leading coordinator: sends a document, and returns the answer's.
    pub(crate) async fn ask<T: MethodCall>(&self, request: &T) -> Result<T::Answer, Error> {
        request.check()?;
        let document = write(request)?.into();
        let message = v1::AdminRequest { cluster: None, request_id: uuid_bytes(request_id().get()), document };
        let answer = self.0.exchange(T::METHOD, request.effect(), message).await?;
        Ok(read_answer(&answer.document)?)
    }

    /// Returns an overview of the cluster.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn status(&self) -> Result<Status, Error> {
        self.ask(&ShowStatus {}).await
    }

    /// Returns all nodes, including lost ones until another node takes their name.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn list_nodes(&self) -> Result<Vec<NodeSummary>, Error> {
        let nodes = self.ask(&ListNodes {}).await?.nodes;
        let alive = nodes.iter().filter(|node| node.status == NodeStatus::Alive && !node.is_participant());
        self.0.note_nodes(alive.map(|node| node.address.as_str()));
        Ok(nodes)
    }

    /// Sets the goal of a node: to serve, to get no new copies, or to be drained.
    ///
    /// # Errors
    /// `NotFound` for an unknown node; `Refused` with every reason if it cannot be drained; otherwise see [`Error`].
    pub async fn set_node(&self, name: &str, goal: NodeGoal) -> Result<(), Error> {
        self.ask(&SetNode { node: name.to_owned(), goal: goal.into() }).await.map(drop)
    }

    /// Returns all tables.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn list_tables(&self) -> Result<Vec<TableSummary>, Error> {
        Ok(self.ask(&ListTables {}).await?.tables)
    }

    /// Creates a table of `partitions` (1 to 16,384) partitions with `replication` (1 to 7) copies each.
    ///
    /// # Errors
    /// `AlreadyExists` if the name is taken, `Refused` if there are fewer nodes than copies; otherwise see [`Error`].
    pub async fn create_table(&self, name: &str, partitions: u32, replication: u8) -> Result<TableSummary, Error> {
        let request = CreateTable::new(name, Partitioning::Hash { partitions }, replication, TableContent::Data);
        self.ask(&request).await
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
        self.ask(&CreateTable::new(name, Partitioning::Range { split_at, limits }, replication, TableContent::Data))
            .await
    }

    /// Creates a table of `partitions` (1 to 16,384) leases: partitions without rows, each owned by one participant
    /// of another service.
    ///
    /// # Errors
    /// `AlreadyExists` if the name is taken; otherwise see [`Error`].
    pub async fn create_lease_table(&self, name: &str, partitions: u32) -> Result<TableSummary, Error> {
        self.ask(&CreateTable::new(name, Partitioning::Hash { partitions }, 1, TableContent::Lease)).await
    }

    /// Returns the moves of a rebalance with reasons, without any change.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn plan(&self) -> Result<Plan, Error> {
        self.ask(&PlanRebalance {}).await
    }

    /// Executes exactly this plan, and returns the number of started moves.
    ///
    /// # Errors
    /// `StalePlan` if the table moved on since it was made (`have` and `need` are the two versions),
    /// `AssignmentInProgress` while another one runs; otherwise see [`Error`].
    pub async fn apply(&self, plan: &Plan) -> Result<u32, Error> {
        let request = ApplyPlan { plan: plan.clone() };
        // The same checks as on the server, so that a damaged plan file is rejected before anything is sent.
        request
            .check()
            .map_err(|error| Error::invalid(format!("the plan cannot be used ({}); make a new one", error.message)))?;
        Ok(self.ask(&request).await?.moves_started)
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
        let page = self.ask(&ShowRebalance { most, after }).await?;
        if page.status.moves.first().is_some_and(|first| first.id <= after) {
            return Err(incomplete("RebalancePage.moves repeats earlier moves"));
        }
        Ok((page.status, page.more))
    }

    /// Cancels the running rebalance and undoes moves that are not past the point of no return.
    ///
    /// # Errors
    /// `NothingRunning` if none runs; otherwise see [`Error`].
    pub async fn cancel(&self) -> Result<RebalanceCancellation, Error> {
        self.ask(&CancelRebalance {}).await
    }

    /// Returns reasons for the state of partitions and nodes, at most `most`, most urgent first.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn explain(&self, most: u32) -> Result<Vec<Reason>, Error> {
        Ok(self.ask(&Explain { most }).await?.reasons)
    }

    /// Returns the Raft quorum as seen by the first coordinator that answers, with or without a leader.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn quorum(&self) -> Result<Quorum, Error> {
        self.ask(&ShowQuorum {}).await
    }

    /// Returns the last `most` events, newest last.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn events(&self, most: u32) -> Result<Vec<Event>, Error> {
        Ok(self.ask(&ListEvents { most }).await?.events)
    }

    /// Returns every partition of a table, by number, including unassigned ones.
    ///
    /// # Errors
    /// `NotFound` if there is no such table; otherwise see [`Error`].
    pub async fn table(&self, name: &str) -> Result<Vec<PartitionSummary>, Error> {
        let table = self.fetch(name).await?;
        Ok(table.partitions().map(|row| PartitionSummary::of(&table, row)).collect())
    }

    /// Returns the location of a key.
    ///
    /// # Errors
    /// As [`Admin::table`], and [`Error::InvalidArgument`] for a key that cannot be stored.
    pub async fn locate(&self, table: &str, key: impl AsRef<[u8]>) -> Result<KeyLocation, Error> {
        let key = key.as_ref();
        check_key(key)?;
        let table = self.fetch(table).await?;
        let id = table.partition_of(key);
        let row = table.partition(id.index).ok_or_else(|| incomplete("the table lacks the key's partition"))?;
        let leader = row.leader_placement().and_then(|placement| table.node(placement.node));
        Ok(KeyLocation {
            key: KeyText::new(key),
            slot: (!table.table().keys.is_range()).then(|| slot_of(key)),
            partition: PartitionSummary::of(&table, row),
            leader_address: leader.map(|node| node.address.clone()),
            leader_redis_address: leader.and_then(|node| node.redis.clone()),
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
                AssemblyResult::More(next) => from = next,
                AssemblyResult::Gap => break,
                AssemblyResult::Whole(delta) => {
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

//! Execution of one operation: routing, redirects and retries, within a deadline.

use crate::error::{Error, Outcome};
use crate::kv::divided;
use crate::kv::sequence::Ticket;
use crate::measure::Redirect;
use crate::net::connection::{Attempt, Connection};
use crate::net::retry::Backoff;
use crate::routing::table::TableCache;
use crate::state::ClientState;
use archon_types::{
    Answer, ErrorDetail, ErrorKind, KeyRange, Millis, Node, NodeStatus, Op, PartitionId, PartitionStatus, Version,
};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout_at};

/// Hints followed in a row before the table is refreshed: two nodes may each name the other as the leader.
const HOPS_MAX: u32 = 3;
/// Pause in milliseconds for a newer table after a key has moved; a change of the row ends it at once.
const MOVED_PAUSE_MS: u64 = 20;
/// Restamps of a refused write.
const RESTAMPS_MAX: u32 = 3;

/// An operation in progress.
pub(crate) struct Call<'a> {
    shared: &'a Arc<ClientState>,
    table: &'a TableCache,
    partition: PartitionId,
    op: Op,
    /// A write with a pending attempt.
    under_way: bool,
    /// A write with an attempt that may have reached a node and got no conclusive answer. Without such an attempt,
    /// the write was not executed and may be restamped.
    lost: bool,
    /// The last obstacle.
    last: Option<ErrorDetail>,
    /// Id of a write that its caller has named; it is not stamped again.
    name: Option<Ticket>,
    /// The newest log time of a partition in a reply.
    log_time: Millis,
}

/// Next step after an attempt.
enum CallStep {
    Done(Result<Answer, Error>),
    /// At once, at the node named by a hint.
    Follow(Arc<Connection>),
    /// At once, at the same node, with a new stamp.
    Again,
    /// At the partition that has the key now, with a new write id: with the old one, the write was not and will not
    /// be executed.
    Elsewhere,
    /// After a pause.
    Wait {
        asked_ms: Option<u64>,
    },
}

impl<'a> Call<'a> {
    pub(crate) fn new(shared: &'a Arc<ClientState>, table: &'a TableCache, partition: PartitionId, op: Op) -> Self {
        Self {
            shared,
            table,
            partition,
            op,
            under_way: false,
            lost: false,
            last: None,
            name: None,
            log_time: Millis::ZERO,
        }
    }

    /// Runs the write under this name.
    pub(crate) fn named(self, name: Ticket) -> Self {
        Self { name: Some(name), ..self }
    }

    /// Returns the log time of the partition in the last reply; zero without one.
    pub(crate) const fn log_time(&self) -> Millis {
        self.log_time
    }

    /// Runs the operation until it is answered or `timeout` has passed.
    pub(crate) async fn run(&mut self, timeout: Duration) -> Result<Answer, Error> {
        let deadline = Instant::now() + timeout;
        let read = self.op.is_read();
        match timeout_at(deadline, self.attempts()).await {
            Ok(result) => result,
            Err(_) => Err(Error::DeadlineExceeded {
                timeout_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
                outcome: if read { Outcome::Read } else { Outcome::of_write(self.lost || self.under_way) },
                last: self.last.take().map(Box::new),
            }),
        }
    }

    async fn attempts(&mut self) -> Result<Answer, Error> {
        // A named write is not stamped again: its next attempt carries the same stamp.
        let mut restamps = if self.name.is_some() { RESTAMPS_MAX } else { 0 };
        let mut ticket = match self.name.take() {
            None if !self.op.is_read() => Some(self.shared.sequences.begin(self.partition).await),
            name => name,
        };
        let mut backoff = Backoff::default();
        let mut followed: Option<Arc<Connection>> = None;
        let mut hops = 0;
        loop {
            if self.shared.stop.is_cancelled() {
                let unknown = self.last.take().filter(|_| self.lost);
                return Err(unknown.map_or(Error::Closed, |detail| Error::MaybeApplied { detail: Box::new(detail) }));
            }
            if self.table.is_dropped() {
                return Err(self.fail(self.table.dropped()));
            }
            if self.is_merged_away() {
                if let Some(done) = self.after_merge() {
                    return done;
                }
                if !self.op.is_read() {
                    // No attempt is pending, so with the old id the write was not and will not be executed.
                    ticket = Some(self.shared.sequences.begin(self.partition).await);
                    restamps = 0;
                }
                followed = None;
            }
            let (connection, row_version) = match followed.take() {
                Some(connection) => (Some(connection), self.row_version()),
                None => self.route(),
            };
            let Some(connection) = connection else {
                self.last = Some(ErrorDetail::new(ErrorKind::Unavailable, self.without_leader()));
                self.shared.measures.retried(ErrorKind::Unavailable);
                self.pause(&mut backoff, None, row_version).await;
                continue;
            };
            self.under_way = !self.op.is_read();
            let attempt = connection.attempt(self.partition, ticket.as_ref().map(Ticket::id), self.op.clone()).await;
            self.under_way = false;
            match self.judge(attempt, &connection, ticket.as_mut(), &mut hops, &mut restamps) {
                CallStep::Done(result) => return result,
                CallStep::Follow(hinted) => {
                    self.shared.measures.redirected(Redirect::Leader);
                    followed = Some(hinted);
                }
                CallStep::Again => followed = Some(connection),
                CallStep::Elsewhere => {
                    self.shared.measures.redirected(Redirect::Partition);
                    self.pause(&mut backoff, Some(MOVED_PAUSE_MS), row_version).await;
                    if self.reroute() && !self.op.is_read() {
                        ticket = Some(self.shared.sequences.begin(self.partition).await);
                        (self.lost, restamps) = (false, 0);
                    }
                    // Under its id it was not and will not be executed.
                    if self.is_divided() {
                        return Err(divided());
                    }
                    hops = 0;
                }
                CallStep::Wait { asked_ms } => {
                    if let Some(detail) = &self.last {
                        self.shared.measures.retried(detail.kind);
                    }
                    // A node that answers with a delay regulates its callers itself. The budget protects nodes that
                    // cannot.
                    if asked_ms.is_none() {
                        self.shared.budget.failure();
                    }
                    self.pause(&mut backoff, asked_ms, row_version).await;
                    // A write keeps its id, and so its partition, until that partition confirms that it was not
                    // executed there.
                    if self.op.is_read() {
                        self.reroute();
                        if self.is_divided() {
                            return Err(divided());
                        }
                    }
                    hops = 0;
                }
            }
        }
    }

    /// Returns the connection to the leader in the cached table, or to an endpoint that finds it, and the version of
    /// the partition's row.
    fn route(&self) -> (Option<Arc<Connection>>, Version) {
        if let Some(via) = &self.shared.via {
            return (Some(self.shared.connections.to_endpoint(self.shared, via.current())), self.row_version());
        }
        let table = self.table.load();
        let leader = table.route_partition(self.partition).leader.and_then(|id| table.node(id));
        let connection = leader.map(|node| self.shared.connections.to(self.shared, node));
        (connection, table.partition(self.partition.index).map_or(Version::ZERO, |row| row.version))
    }

    /// Switches to the partition that has the key according to the table. Returns whether it is another one.
    fn reroute(&mut self) -> bool {
        let Some(partition) = self.op.key().map(|key| self.table.load().partition_of(key)) else { return false };
        std::mem::replace(&mut self.partition, partition) != partition
    }

    /// Returns whether the keys of the operation are in several partitions according to the table.
    fn is_divided(&self) -> bool {
        let table = self.table.load();
        self.op.any_key(|key| table.partition_of(key) != self.partition)
    }

    /// Returns whether the partition no longer exists according to the table: its left neighbour has its keys.
    fn is_merged_away(&self) -> bool {
        let table = self.table.load();
        table.table().keys.is_range() && table.partition(self.partition.index).is_none()
    }

    /// Switches to the partition that took over the keys after a merge; returns the final result if that is
    /// impossible.
    fn after_merge(&mut self) -> Option<Result<Answer, Error>> {
        self.shared.sequences.forget(self.partition);
        if self.lost {
            // The write may have been executed there, and its id is no longer remembered.
            let name = self.partition_name();
            let why = format!("partition {name} was merged into its neighbour while a write to it was open");
            let detail = self.last.take().unwrap_or_else(|| ErrorDetail::new(ErrorKind::MaybeApplied, why));
            return Some(Err(Error::MaybeApplied { detail: Box::new(detail) }));
        }
        if self.op.key().is_none() {
            // A scan continues by keys: this partition has none of them.
            let range = KeyRange { begin: Bytes::new(), end: Some(Bytes::new()) };
            return Some(Ok(Answer::Page { entries: Vec::new(), more: false, range }));
        }
        self.reroute();
        None
    }

    fn without_leader(&self) -> String {
        let (table, name) = (self.table.load(), self.partition_name());
        match table.partition(self.partition.index).map(|row| row.status) {
            Some(PartitionStatus::Offline) => {
                format!("partition {name} was taken offline by an operator; see `archon partition describe`")
            }
            _ => format!("partition {name} has no leader now; see `archon status`"),
        }
    }

    fn partition_name(&self) -> String {
        self.table.load().partition_name(self.partition)
    }

    fn row_version(&self) -> Version {
        self.table.load().partition(self.partition.index).map_or(Version::ZERO, |row| row.version)
    }

    fn judge(
        &mut self,
        attempt: Attempt,
        connection: &Connection,
        ticket: Option<&mut Ticket>,
        hops: &mut u32,
        restamps: &mut u32,
    ) -> CallStep {
        let detail = match attempt {
            Attempt::Answered(reply) => {
                self.log_time = reply.log_time;
                if let Some(ticket) = ticket {
                    ticket.observe(reply.log_time);
                    let refused = matches!(&reply.outcome, Err(detail) if detail.kind == ErrorKind::MaybeApplied);
                    // All attempts were refused, so the write had no effect and will have none.
                    if refused && !self.lost && *restamps < RESTAMPS_MAX && ticket.restamp() {
                        *restamps += 1;
                        return CallStep::Again;
                    }
                }
                match reply.outcome {
                    Ok(answer) => {
                        self.shared.budget.success();
                        return CallStep::Done(Ok(answer));
                    }
                    Err(detail) => detail,
                }
            }
            Attempt::Lost { sent, detail } => {
                // An unauthorized caller was refused before any operation of the stream was executed.
                let refused = detail.kind == ErrorKind::Refused;
                self.lost |= sent && !refused && !self.op.is_read();
                self.leave(connection);
                let asked_ms = detail.retry_after_ms;
                // The stream broke, but the operation was not refused: retry it with the same id.
                if refused || (!sent && !may_pass(detail.kind)) {
                    return CallStep::Done(Err(self.fail(detail)));
                }
                self.last = Some(detail);
                return CallStep::Wait { asked_ms };
            }
        };
        if let Some(version) = detail.table_version {
            self.table.hint(version);
        }
        // The node's deadline passed; the outcome of a started write is unknown.
        self.lost |= detail.kind == ErrorKind::DeadlineExceeded && !self.op.is_read();
        if detail.kind == ErrorKind::ShuttingDown {
            self.leave(connection);
        }
        if detail.kind == ErrorKind::NotPartitionLeader && *hops < HOPS_MAX && self.shared.via.is_none() {
            let hinted = detail.leader.as_ref().filter(|address| **address != connection.address);
            let table = self.table.load();
            if let Some(node) = hinted.and_then(|address| reached_at(table.nodes(), address)) {
                *hops += 1;
                self.last = Some(detail);
                return CallStep::Follow(self.shared.connections.to(self.shared, node));
            }
        }
        if detail.kind == ErrorKind::NotFound {
            self.table.note_dropped(self.shared);
            return CallStep::Done(Err(self.fail(self.table.dropped())));
        }
        if detail.kind == ErrorKind::Moved {
            self.last = Some(detail);
            return CallStep::Elsewhere;
        }
        if !may_pass(detail.kind) {
            return CallStep::Done(Err(self.fail(detail)));
        }
        let asked_ms = detail.retry_after_ms;
        self.last = Some(detail);
        CallStep::Wait { asked_ms }
    }

    /// Switches to another endpoint if the client uses endpoints only.
    fn leave(&self, connection: &Connection) {
        if let Some(via) = &self.shared.via {
            via.failed(&connection.address);
        }
    }

    /// Returns the error for the caller. A later refusal does not undo an earlier attempt.
    fn fail(&self, detail: ErrorDetail) -> Error {
        let open = self.lost || (detail.kind == ErrorKind::Internal && !self.op.is_read());
        if open { Error::MaybeApplied { detail: Box::new(detail) } } else { detail.into() }
    }

    /// Requests a newer table and pauses, at most until the partition's row changes.
    async fn pause(&self, backoff: &mut Backoff, asked_ms: Option<u64>, row_version: Version) {
        let quick = asked_ms.is_some() || self.shared.budget.allows_quick();
        let pause = backoff.pause(quick, asked_ms);
        let mut changes = self.table.changes();
        self.table.want_refresh();
        tokio::select! {
            () = sleep(pause) => {}
            () = self.shared.stop.cancelled() => {}
            _ = changes.wait_for(|_| self.row_version() > row_version || self.table.is_dropped()) => {}
        }
    }
}

/// Returns the node at an address. After a replaced disk, the previous node has the same address: prefers a live
/// node, then the newest.
fn reached_at<'a>(nodes: impl Iterator<Item = &'a Node>, address: &str) -> Option<&'a Node> {
    nodes.filter(|node| node.address == address).max_by_key(|node| (node.status == NodeStatus::Alive, node.id))
}

/// Returns whether waiting or another node may help.
fn may_pass(kind: ErrorKind) -> bool {
    // A node with another identity or incarnation than expected indicates an outdated table.
    kind.is_retryable()
        || matches!(kind, ErrorKind::WrongNode | ErrorKind::StaleIncarnation | ErrorKind::DeadlineExceeded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_types::NodeId;

    #[test]
    fn redirect_prefers_live_node_at_the_address() {
        let node = |id: u64, address: &str, status| Node { status, ..Node::new(NodeId::new(id), "athens", address) };
        let lost = node(1, "a:1", NodeStatus::Lost);
        let nodes = [lost.clone(), node(2, "b:1", NodeStatus::Alive), node(4, "a:1", NodeStatus::Alive)];
        assert_eq!(reached_at(nodes.iter(), "a:1").map(|node| node.id.get()), Some(4));
        let dead = [lost, node(3, "a:1", NodeStatus::Failed)];
        assert_eq!(reached_at(dead.iter(), "a:1").map(|node| node.id.get()), Some(3), "who was there last");
        assert_eq!(reached_at(dead.iter(), "c:1"), None);
    }
}

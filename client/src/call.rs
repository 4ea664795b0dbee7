//! One operation, from its first attempt to its answer: routed, redirected, retried, within a deadline.

use crate::connection::{Attempt, Connection};
use crate::error::{Error, Outcome};
use crate::measure::Redirect;
use crate::retry::Backoff;
use crate::sequence::Ticket;
use crate::shared::Shared;
use crate::table::TableCache;
use archon_types::{
    Answer, ErrorDetail, ErrorKind, KeyRange, Node, NodeStatus, Op, PartitionId, PartitionStatus, Version,
};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout_at};

/// Hints followed one after the other before the table is refreshed: two nodes may each believe that the other leads.
const HOPS_MAX: u32 = 3;
/// How long to wait, in milliseconds, for a table in which a key has moved: the row's change ends it at once.
const MOVED_PAUSE_MS: u64 = 20;
/// How often a write may be stamped anew after it was refused.
const RESTAMPS_MAX: u32 = 3;

/// An operation under way.
pub(crate) struct Call<'a> {
    shared: &'a Arc<Shared>,
    table: &'a TableCache,
    partition: PartitionId,
    op: Op,
    /// A write whose answer is awaited right now.
    under_way: bool,
    /// A write one of whose attempts may have reached a node and was not answered, or not in a way that says what becomes of
    /// it. One that never had such an attempt was not done, and may be stamped anew.
    lost: bool,
    /// What last stood in the way.
    last: Option<ErrorDetail>,
}

/// What to do after an attempt.
enum Next {
    Done(Result<Answer, Error>),
    /// At once, at the node a hint named.
    Follow(Arc<Connection>),
    /// At once, at the same node, with a new stamp.
    Again,
    /// At the partition that has the key now, under another name: under this one it was not done, and will not be.
    Elsewhere,
    /// After a pause.
    Wait {
        asked_ms: Option<u64>,
    },
}

impl<'a> Call<'a> {
    pub(crate) fn new(shared: &'a Arc<Shared>, table: &'a TableCache, partition: PartitionId, op: Op) -> Self {
        Self { shared, table, partition, op, under_way: false, lost: false, last: None }
    }

    /// Runs the operation until it is answered or `timeout` has passed.
    pub(crate) async fn run(mut self, timeout: Duration) -> Result<Answer, Error> {
        let deadline = Instant::now() + timeout;
        let read = self.op.is_read();
        match timeout_at(deadline, self.attempts()).await {
            Ok(result) => result,
            Err(_) => Err(Error::DeadlineExceeded {
                timeout_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
                outcome: if read { Outcome::Read } else { Outcome::of_write(self.lost || self.under_way) },
                last: self.last.map(Box::new),
            }),
        }
    }

    async fn attempts(&mut self) -> Result<Answer, Error> {
        let mut ticket = match self.op.is_read() {
            true => None,
            false => Some(self.shared.sequences.begin(self.partition).await),
        };
        let mut backoff = Backoff::default();
        let mut followed: Option<Arc<Connection>> = None;
        let (mut hops, mut restamps) = (0, 0);
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
                    // None of its attempts is open, so that under the old name it was not done, and will not be.
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
                Next::Done(result) => return result,
                Next::Follow(hinted) => {
                    self.shared.measures.redirected(Redirect::Leader);
                    followed = Some(hinted);
                }
                Next::Again => followed = Some(connection),
                Next::Elsewhere => {
                    self.shared.measures.redirected(Redirect::Partition);
                    self.pause(&mut backoff, Some(MOVED_PAUSE_MS), row_version).await;
                    if self.reroute() && !self.op.is_read() {
                        ticket = Some(self.shared.sequences.begin(self.partition).await);
                        (self.lost, restamps) = (false, 0);
                    }
                    hops = 0;
                }
                Next::Wait { asked_ms } => {
                    if let Some(detail) = &self.last {
                        self.shared.measures.retried(detail.kind);
                    }
                    // A node that answers and says when to come back holds its callers off itself. The budget is for
                    // those that cannot.
                    if asked_ms.is_none() {
                        self.shared.budget.failure();
                    }
                    self.pause(&mut backoff, asked_ms, row_version).await;
                    // A write keeps its name, and so its partition, until that one says that it is not done there.
                    if self.op.is_read() {
                        self.reroute();
                    }
                    hops = 0;
                }
            }
        }
    }

    /// The connection to the leader that the cached table names, or to an endpoint that finds it, and the version of the
    /// partition's row there.
    fn route(&self) -> (Option<Arc<Connection>>, Version) {
        if let Some(via) = &self.shared.via {
            return (Some(self.shared.connections.to_endpoint(self.shared, via.current())), self.row_version());
        }
        let table = self.table.load();
        let leader = table.route_partition(self.partition).leader.and_then(|id| table.node(id));
        let connection = leader.map(|node| self.shared.connections.to(self.shared, node));
        (connection, table.partition(self.partition.index).map_or(Version::ZERO, |row| row.version))
    }

    /// Goes to the partition that has the key as far as the table says now. Returns whether that is another one.
    fn reroute(&mut self) -> bool {
        let Some(partition) = self.op.key().map(|key| self.table.load().partition_of(key)) else { return false };
        std::mem::replace(&mut self.partition, partition) != partition
    }

    /// Whether the partition is none any more, as far as the table says: its keys are its left neighbour's.
    fn is_merged_away(&self) -> bool {
        let table = self.table.load();
        table.table().keys.is_range() && table.partition(self.partition.index).is_none()
    }

    /// Goes on where the keys of a partition are that is none any more; gives how the operation ends if it cannot.
    fn after_merge(&mut self) -> Option<Result<Answer, Error>> {
        self.shared.sequences.forget(self.partition);
        if self.lost {
            // What it may have done there nobody remembers by its name.
            let name = self.partition_name();
            let why = format!("partition {name} was merged into its neighbour while a write to it was open");
            let detail = self.last.take().unwrap_or_else(|| ErrorDetail::new(ErrorKind::MaybeApplied, why));
            return Some(Err(Error::MaybeApplied { detail: Box::new(detail) }));
        }
        if self.op.key().is_none() {
            // A scan goes on by keys: this partition has none of them.
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
                format!("partition {name} was taken offline by an operator; `partition describe` says why")
            }
            _ => format!("partition {name} has no leader now; `status` says why"),
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
    ) -> Next {
        let detail = match attempt {
            Attempt::Answered(reply) => {
                if let Some(ticket) = ticket {
                    ticket.observe(reply.log_time);
                    let refused = matches!(&reply.outcome, Err(detail) if detail.kind == ErrorKind::MaybeApplied);
                    // All that was ever sent was refused, so that it had no effect, nor will have.
                    if refused && !self.lost && *restamps < RESTAMPS_MAX && ticket.restamp() {
                        *restamps += 1;
                        return Next::Again;
                    }
                }
                match reply.outcome {
                    Ok(answer) => {
                        self.shared.budget.success();
                        return Next::Done(Ok(answer));
                    }
                    Err(detail) => detail,
                }
            }
            Attempt::Lost { sent, detail } => {
                // Whoever may not send operations there was refused before any of the stream was done.
                let refused = detail.kind == ErrorKind::Refused;
                self.lost |= sent && !refused && !self.op.is_read();
                self.leave(connection);
                let asked_ms = detail.retry_after_ms;
                // Whatever else broke the stream, this operation was not refused: it is tried again with the same name.
                if refused || (!sent && !may_pass(detail.kind)) {
                    return Next::Done(Err(self.fail(detail)));
                }
                self.last = Some(detail);
                return Next::Wait { asked_ms };
            }
        };
        if let Some(version) = detail.table_version {
            self.table.hint(version);
        }
        // The node gave up waiting; what becomes of a write it has begun is open.
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
                return Next::Follow(self.shared.connections.to(self.shared, node));
            }
        }
        if detail.kind == ErrorKind::NotFound {
            self.table.note_dropped(self.shared);
            return Next::Done(Err(self.fail(self.table.dropped())));
        }
        if detail.kind == ErrorKind::Moved {
            self.last = Some(detail);
            return Next::Elsewhere;
        }
        if !may_pass(detail.kind) {
            return Next::Done(Err(self.fail(detail)));
        }
        let asked_ms = detail.retry_after_ms;
        self.last = Some(detail);
        Next::Wait { asked_ms }
    }

    /// A client that goes through endpoints goes through another one.
    fn leave(&self, connection: &Connection) {
        if let Some(via) = &self.shared.via {
            via.failed(&connection.address);
        }
    }

    /// The error for the caller. What an earlier attempt did is not undone by a later refusal.
    fn fail(&self, detail: ErrorDetail) -> Error {
        let open = self.lost || (detail.kind == ErrorKind::Internal && !self.op.is_read());
        if open { Error::MaybeApplied { detail: Box::new(detail) } } else { detail.into() }
    }

    /// Asks for a newer table and waits, but no longer than until the partition's row changes.
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

/// The node at an address. Where a disk was replaced, the node that was there before still goes by it: whoever is alive is
/// meant, and of several the newest.
fn reached_at<'a>(nodes: impl Iterator<Item = &'a Node>, address: &str) -> Option<&'a Node> {
    nodes.filter(|node| node.address == address).max_by_key(|node| (node.status == NodeStatus::Alive, node.id))
}

/// Whether waiting or going elsewhere may help.
fn may_pass(kind: ErrorKind) -> bool {
    // A node that is not who the table says it is, or whose life changed, is a matter of an old table.
    kind.is_retryable()
        || matches!(kind, ErrorKind::WrongNode | ErrorKind::StaleIncarnation | ErrorKind::DeadlineExceeded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_types::NodeId;

    #[test]
    fn a_redirect_went_to_the_node_whose_disk_was_replaced_at_that_address() {
        let node = |id: u64, address: &str, status| Node { status, ..Node::new(NodeId::new(id), "athens", address) };
        let lost = node(1, "a:1", NodeStatus::Lost);
        let nodes = [lost.clone(), node(2, "b:1", NodeStatus::Alive), node(4, "a:1", NodeStatus::Alive)];
        assert_eq!(reached_at(nodes.iter(), "a:1").map(|node| node.id.get()), Some(4));
        let dead = [lost, node(3, "a:1", NodeStatus::Failed)];
        assert_eq!(reached_at(dead.iter(), "a:1").map(|node| node.id.get()), Some(3), "who was there last");
        assert_eq!(reached_at(dead.iter(), "c:1"), None);
    }
}

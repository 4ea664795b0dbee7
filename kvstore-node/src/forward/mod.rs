//! Forwarding of operations to the nodes that lead: per peer one bounded queue, one task and one stream, opened on
//! demand. `kvstore-node/host` decides which operations go where; this module carries them there, and the answers back.

mod link;
mod room;
mod stream;

use crate::node::state::NodeState;
use crate::service::reply::{Replies, Timing};
use crate::shard::OpRequest;
use archon_types::{ErrorDetail, ErrorKind, Millis, NodeId, PartitionId};
use link::Link;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Retry delay for a caller without room, in milliseconds.
const RETRY_AFTER_MS: u64 = 20;

/// Links to all nodes that lead a partition.
pub(crate) struct Forwards {
    shared: Arc<NodeState>,
    /// The timing of operations answered by other nodes.
    timing: Timing,
    /// The runtimes of the shards' threads: a peer's task lives on one of them.
    runtimes: Vec<Handle>,
    links: Mutex<BTreeMap<NodeId, Arc<Link>>>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Forwards {
    pub(crate) fn new(shared: Arc<NodeState>, runtimes: Vec<Handle>) -> Self {
        let links = Mutex::default();
        let timing = Timing::new(&shared, true);
        Self { shared, timing, runtimes, links, stop: CancellationToken::new(), tasks: TaskTracker::new() }
    }

    /// Forwards an operation, or refuses it at once if there is no room. Called from shards' threads.
    pub(crate) fn forward(self: &Arc<Self>, to: NodeId, request: OpRequest) {
        let refused = if self.stop.is_cancelled() {
            Some((request.reply, crate::node::state::shutting_down()))
        } else {
            self.link(to).push(request)
        };
        let Some((reply, detail)) = refused else { return };
        let mut replies = Replies::timed(self.timing.clone());
        replies.add(reply, Millis::ZERO, Err(detail));
        self.shared.metrics.operations_refused.add(replies.send());
    }

    fn link(self: &Arc<Self>, to: NodeId) -> Arc<Link> {
        let mut links = self.links.lock();
        if let Some(link) = links.get(&to).filter(|link| !link.is_ended()) {
            return Arc::clone(link);
        }
        let link = Arc::new(Link::new());
        let (forwards, task) = (Arc::clone(self), Arc::clone(&link));
        let mine = usize::try_from(to.get()).unwrap_or(0) % self.runtimes.len().max(1);
        if let Some(runtime) = self.runtimes.get(mine) {
            self.tasks.spawn_on(async move { forwards.run(to, &task).await }, runtime);
        }
        links.insert(to, Arc::clone(&link));
        link
    }

    /// Ends every task; waiting callers get an error.
    pub(crate) async fn stop(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Returns the error for an operation that the leader's node at `address` did not answer.
    fn lost(&self, address: &str, partition: PartitionId, kind: ErrorKind, cause: &str) -> ErrorDetail {
        let partition = self.shared.tables.partition_name(partition);
        let what = match kind {
            ErrorKind::Unreachable => "gave no answer to what was passed on to it",
            _ => "gave no answer to what was passed on to it, so the outcome is unknown",
        };
        let why = format!("the leader of partition {partition}, the node at {address}, {what}: {cause}");
        ErrorDetail::new(kind, why).with_leader(Some(address.to_owned()))
    }
}

//! Copy pulls: one task per loader, which requests pages from the leader and passes them to the loader's shard.

use crate::copies::copy_rest::CopyRest;
use crate::copies::pages;
use crate::engine::Change;
use crate::flusher::{CopiedPage, FlusherHandle};
use crate::node::config::NodeConfig;
use crate::node::membership::Membership;
use crate::node::state::NodeState;
use crate::peers::wire;
use crate::shard::{ShardMessage, Shards};
use crate::statistics::load::LoadBoard;
use crate::statistics::metrics::Metrics;
use crate::tables::Tables;
use archon_host::{CopyJob, CopyPage};
use archon_proto::convert::error::detail_of;
use archon_proto::convert::members::load::CopyProgress;
use archon_proto::v1;
use archon_proto::v1::replication_client::ReplicationClient;
use archon_replica::Position;
use archon_security::ExpectedPeer;
use archon_session::connect;
use archon_types::limits::MESSAGE_BYTES_MAX;
use archon_types::{Backoff, ErrorDetail, ErrorKind, NodeId, PlacementId, Version};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::transport::Channel;

/// Pages of one copy on their way to the engine, when it need not rest.
const PAGES_UNDER_WAY: usize = 4;
/// Time-out of a page.
const PAGE_TIMEOUT: Duration = Duration::from_secs(10);

/// Parts of the node that copies use.
pub(crate) struct CopyHandles {
    pub(crate) config: Arc<NodeConfig>,
    pub(crate) membership: Arc<Membership>,
    pub(crate) tables: Arc<Tables>,
    pub(crate) rest: Arc<CopyRest>,
    pub(crate) load: Arc<LoadBoard>,
    pub(crate) metrics: Arc<Metrics>,
}

impl CopyHandles {
    /// Takes the parts from a node's handles.
    pub(crate) fn of(shared: &NodeState) -> Self {
        Self {
            config: Arc::clone(&shared.config),
            membership: Arc::clone(&shared.membership),
            tables: Arc::clone(&shared.tables),
            rest: Arc::clone(&shared.copy_rest),
            load: Arc::clone(&shared.load),
            metrics: Arc::clone(&shared.metrics),
        }
    }
}

/// Runs copies.
pub(crate) struct CopyRunner {
    pub(crate) node: CopyHandles,
    pub(crate) runtime: Handle,
    pub(crate) shards: Shards,
    flusher: FlusherHandle,
    running: Mutex<BTreeMap<PlacementId, CancellationToken>>,
    /// Copies that restarted because their leader's log had grown too long: they do not rest, or they would never end.
    hurried: Mutex<BTreeSet<PlacementId>>,
    pub(crate) stop: CancellationToken,
    pub(crate) tasks: TaskTracker,
}

/// Progress of a copy, to resume from on another stream.
struct Progress {
    start: Option<Position>,
    last_key: Bytes,
    bytes_done: u64,
    /// The number of the present stream.
    stream: u64,
}

/// A page on its way to the engine.
struct PageInFlight {
    /// Resolved once the engine has its rows.
    written: oneshot::Receiver<()>,
    last_key: Bytes,
}

enum PullOutcome {
    /// All pages have arrived, served under this version of the row.
    Whole(Position, Version),
    /// The leader no longer keeps the log from where this copy began.
    Again,
}

impl CopyRunner {
    pub(crate) fn new(node: CopyHandles, runtime: Handle, shards: Shards, flusher: FlusherHandle) -> Self {
        Self {
            node,
            runtime,
            shards,
            flusher,
            running: Mutex::default(),
            hurried: Mutex::default(),
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
        }
    }

    /// Starts pulling, in place of any other copy to the same placement.
    pub(crate) fn start(self: &Arc<Self>, job: CopyJob) {
        let token = self.stop.child_token();
        if let Some(former) = self.running.lock().insert(job.placement, token.clone()) {
            former.cancel();
        }
        let runner = Arc::clone(self);
        let task = async move {
            tokio::select! {
                () = runner.run(job) => {}
                () = token.cancelled() => {}
            }
            // A task that stopped it has replaced or removed its entry.
            let mut running = runner.running.lock();
            if !token.is_cancelled() {
                running.remove(&job.placement);
            }
        };
        self.tasks.spawn_on(task, &self.runtime);
    }

    /// Stops the copy to a placement, if there is one.
    pub(crate) fn stop(&self, placement: PlacementId) {
        self.hurried.lock().remove(&placement);
        if let Some(token) = self.running.lock().remove(&placement) {
            token.cancel();
        }
    }

    /// Ends every task.
    pub(crate) async fn stop_all(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    async fn run(&self, job: CopyJob) {
        let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(2));
        let mut progress = Progress { start: None, last_key: Bytes::new(), bytes_done: 0, stream: 0 };
        let inbox = self.shards.of(job.partition);
        let CopyJob { partition, placement, attempt, .. } = job;
        loop {
            progress.stream += 1;
            let before = progress.bytes_done;
            match self.pull(job, &mut progress).await {
                Ok(PullOutcome::Whole(at, version)) => {
                    // The rows must be on disk before the log may claim to begin after them.
                    let (done, synced) = oneshot::channel();
                    let barrier = self.flusher.barrier(Box::new(move || done.send(()).unwrap_or_default()));
                    if barrier.is_ok() && synced.await.is_ok() {
                        self.hurried.lock().remove(&placement);
                        let _ = inbox.push(ShardMessage::CopyDone { placement, attempt, at, version }).await;
                    }
                    return;
                }
                Ok(PullOutcome::Again) => {
                    self.hurried.lock().insert(placement);
                    let _ = inbox.push(ShardMessage::CopyAgain { placement, attempt }).await;
                    return;
                }
                Err(detail) => {
                    tracing::debug!(%partition, %placement, kind = %detail.kind, message = %detail.message, "copy interrupted");
                }
            }
            if progress.bytes_done > before {
                backoff.reset();
            }
            tokio::time::sleep(backoff.next(rand::random())).await;
        }
    }

    /// Connects to the replication service of a node.
    pub(crate) async fn client_of(&self, node: NodeId) -> Result<ReplicationClient<Channel>, ErrorDetail> {
        let unknown = || ErrorDetail::new(ErrorKind::Unreachable, format!("the address of node {node} is not known"));
        let peer = self.node.tables.node(node).ok_or_else(unknown)?;
        let expected = ExpectedPeer::Node(peer.name.clone());
        let channel = connect(&self.node.config.transport, &peer.address, expected).await?;
        Ok(ReplicationClient::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX))
    }

    /// Pulls pages over one stream.
    async fn pull(&self, job: CopyJob, progress: &mut Progress) -> Result<PullOutcome, ErrorDetail> {
        let unreachable = |why: String| ErrorDetail::new(ErrorKind::Unreachable, why);
        let hurried = self.hurried.lock().contains(&job.placement);
        let rate = rate_of(self.node.config.copy_bytes_per_second, hurried);
        let life = self.node.membership.life().ok_or_else(|| unreachable("this node is not registered".into()))?;
        let node = job.leader.node;
        let mut client = self.client_of(node).await?;
        let request = v1::CopyRequest {
            cluster: Some(life.member.cluster.into()),
            sender: Some(v1::Sender { id: life.member.node.get(), incarnation: life.member.incarnation.get() }),
            receiver: node.get(),
            partition: Some(job.partition.into()),
            epoch: job.epoch.get(),
            placement: job.placement.get(),
            source: job.leader.placement.get(),
            after: progress.last_key.clone(),
            start_seq: progress.start.map_or(0, |start| start.seq.get()),
            bytes_per_second: match rate {
                None => 0,
                Some(0) => u64::MAX,
                Some(rate) => rate,
            },
        };
        let mut pages = client.copy(request).await.map_err(|status| detail_of(&status))?.into_inner();
        let mut under_way: VecDeque<PageInFlight> = VecDeque::new();
        let gone = || unreachable("the loader no longer needs these rows".into());
        loop {
            let rests = rate.is_none() && self.node.rest.rest().await;
            let page = tokio::time::timeout(PAGE_TIMEOUT, pages.message()).await;
            let page = page.map_err(|_| unreachable(format!("no page within {} s", PAGE_TIMEOUT.as_secs())))?;
            let page = page.map_err(|status| detail_of(&status))?;
            let page = page.ok_or_else(|| unreachable("the copy ended before its last page".into()))?;
            let start = wire::read_position(page.start, "CopyPage.start").map_err(ErrorDetail::from)?;
            match progress.start {
                Some(known) if known != start => return Ok(PullOutcome::Again),
                _ => progress.start = Some(start),
            }
            let rows = pages::decode(&page.rows, page.crc32c).map_err(|error| unreachable(error.to_string()))?;
            progress.bytes_done += page.rows.len() as u64;
            self.node.metrics.copy_bytes_in.add(page.rows.len() as u64);
            self.node.load.copy(
                job.placement,
                Some(CopyProgress {
                    placement: job.placement,
                    bytes_done: progress.bytes_done,
                    bytes_total: page.bytes_total.max(progress.bytes_done),
                }),
            );
            if !rows.is_empty() {
                let (written, wait) = oneshot::channel();
                let CopyJob { partition, placement, attempt, .. } = job;
                let change = |(key, value)| Change { space: placement, key, value: Some(value) };
                let content = CopiedPage { rows: rows.into_iter().map(change).collect(), gently: rests, written };
                let rows = CopyPage { placement, attempt, stream: progress.stream, content };
                let pushed = self.shards.of(partition).push(ShardMessage::CopyRows(rows)).await;
                pushed.map_err(|_| gone())?;
                under_way.push_back(PageInFlight { written: wait, last_key: page.last_key });
            }
            // The next page is read and sent meanwhile. Written pages need not be sent again.
            let left = if page.last || rests { 0 } else { PAGES_UNDER_WAY - 1 };
            while under_way.len() > left
                && let Some(first) = under_way.pop_front()
            {
                first.written.await.map_err(|_| gone())?;
                progress.last_key = first.last_key;
            }
            self.node.rest.worked(self.flusher.take_copied_for());
            if page.last {
                return Ok(PullOutcome::Whole(start, Version::new(page.version)));
            }
        }
    }
}

/// Returns the rate at which a copy is pulled, zero for no limit; `None` for one that rests while clients use the
/// nodes.
fn rate_of(configured: Option<u64>, hurried: bool) -> Option<u64> {
    configured.or(hurried.then_some(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restarted_copy_respects_configured_rate() {
        assert_eq!([rate_of(None, false), rate_of(None, true)], [None, Some(0)]);
        assert_eq!([rate_of(Some(70_000), false), rate_of(Some(70_000), true)], [Some(70_000); 2]);
    }
}

//! Messages to other nodes: per peer one bounded queue, one task and one stream. Lost messages are not resent; replicas
//! ask again for what they miss.

use crate::node::membership::Membership;
use crate::peers::wire::{BATCH_BYTES_MAX, Part};
use crate::statistics::metrics::Metrics;
use crate::tables::Tables;
use archon_frames::{FrameError, FrameReader, FrameWriter, Keepalive, StreamKind, connect};
use archon_proto::convert::members::session::Member;
use archon_proto::v1;
use archon_security::{CONNECT_TIMEOUT, ExpectedPeer, Transport};
use archon_types::limits::MESSAGE_BYTES_MAX;
use archon_types::{Backoff, ErrorDetail, ErrorKind, FencingProof, NodeId};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Bytes that may wait for one peer.
const QUEUE_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Longest pause before an unreachable peer is tried again: entries it missed meanwhile delay writes.
const BACKOFF_MAX: Duration = Duration::from_millis(250);
/// Minimum duration of a stream that is reopened at once.
const STEADY: Duration = Duration::from_secs(1);

#[derive(Default)]
struct Queue {
    parts: VecDeque<Part>,
    bytes: usize,
    /// No more messages are accepted.
    ended: bool,
}

/// Queue for one peer.
struct Link {
    queue: Mutex<Queue>,
    filled: Notify,
}

/// Links to all peers.
pub(crate) struct Peers {
    membership: Arc<Membership>,
    tables: Arc<Tables>,
    metrics: Arc<Metrics>,
    transport: Transport,
    /// The runtimes of the shards' threads: a peer's task lives on one of them.
    runtimes: Vec<Handle>,
    links: Mutex<BTreeMap<NodeId, Arc<Link>>>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Peers {
    pub(crate) fn new(
        membership: Arc<Membership>,
        tables: Arc<Tables>,
        metrics: Arc<Metrics>,
        transport: Transport,
        runtimes: Vec<Handle>,
    ) -> Self {
        Self {
            membership,
            tables,
            metrics,
            transport,
            runtimes,
            links: Mutex::new(BTreeMap::new()),
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
        }
    }

    /// Queues messages for a peer, or drops them when too many wait for it. Called from shard threads.
    pub(crate) fn send(self: &Arc<Self>, node: NodeId, parts: Vec<Part>) {
        if self.stop.is_cancelled() {
            return;
        }
        let link = Arc::clone(self.links.lock().entry(node).or_insert_with(|| {
            let link = Arc::new(Link { queue: Mutex::default(), filled: Notify::new() });
            let (peers, task) = (Arc::clone(self), Arc::clone(&link));
            let mine = usize::try_from(node.get()).unwrap_or(0) % self.runtimes.len().max(1);
            if let Some(runtime) = self.runtimes.get(mine) {
                let run = async move {
                    // Created by the task itself: `spawn_on` drops a task of an ended runtime here, while the links are
                    // locked.
                    let guard = LinkGuard { peers, node, link: task };
                    guard.peers.run(node, &guard.link).await;
                };
                self.tasks.spawn_on(run, runtime);
            }
            link
        }));
        let metrics = &self.metrics;
        let mut queue = link.queue.lock();
        for part in parts {
            let bytes = part.bytes.len();
            if queue.ended || (queue.bytes + bytes > QUEUE_BYTES_MAX && queue.bytes > 0) {
                metrics.peer_dropped.add(part.messages);
                continue;
            }
            queue.bytes += bytes;
            metrics.peer_bytes.add(bytes as u64);
            queue.parts.push_back(part);
        }
        drop(queue);
        link.filled.notify_one();
    }

    /// Ends every task.
    pub(crate) async fn stop(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Runs until the node is removed from the cluster: its number is not assigned again.
    async fn run(&self, node: NodeId, link: &Link) {
        let mut removals = self.tables.removals();
        let mut backoff = Backoff::new(Duration::from_millis(20), BACKOFF_MAX);
        loop {
            tokio::select! {
                () = link.wait() => {}
                Ok(_) = removals.changed() => {}
                () = self.stop.cancelled() => return,
            }
            if self.tables.is_removed(node) {
                return;
            }
            if link.queue.lock().parts.is_empty() {
                continue;
            }
            let ended = tokio::select! {
                ended = self.stream(node, link, &mut backoff) => ended,
                Ok(_) = removals.wait_for(|_| self.tables.is_removed(node)) => continue,
                () = self.stop.cancelled() => return,
            };
            if let Err(detail) = ended {
                match detail.kind {
                    // Only a change of the configuration helps.
                    ErrorKind::Refused => {
                        tracing::warn!(peer = %node, message = %detail.message, "no stream to a peer")
                    }
                    kind => tracing::debug!(peer = %node, %kind, message = %detail.message, "stream to peer ended"),
                }
            }
            // Waiting messages are stale by the time the peer is reached again.
            self.drop_queued(link);
            tokio::select! {
                () = tokio::time::sleep(backoff.next(rand::random())) => {}
                () = self.stop.cancelled() => return,
            }
        }
    }

    /// Runs one stream, until it breaks or this node's registration changes.
    async fn stream(&self, node: NodeId, link: &Link, backoff: &mut Backoff) -> Result<(), ErrorDetail> {
        let Some(life) = self.membership.life() else { return Ok(()) };
        let unknown = || ErrorDetail::new(ErrorKind::Unreachable, format!("the address of node {node} is not known"));
        let peer = self.tables.node(node).ok_or_else(unknown)?;
        let transport = &self.transport;
        transport.check(&peer.address)?;
        let expected = ExpectedPeer::Node(peer.name.clone());
        let (kind, address) = (StreamKind::Replicate, &peer.address);
        let connected = connect(transport, address, &expected, kind, MESSAGE_BYTES_MAX, CONNECT_TIMEOUT).await;
        let (mut reader, mut writer) = connected.map_err(FrameError::into_detail)?;
        writer.push(&v1::ReplicationBatch {
            cluster: Some(life.member.cluster.into()),
            sender: Some(v1::Sender { id: life.member.node.get(), incarnation: life.member.incarnation.get() }),
            receiver: node.get(),
            receiver_incarnation: peer.incarnation.get(),
            ..Default::default()
        });
        let began = Instant::now();
        let carried = self.carry(link, &life.member, &peer.name, &mut reader, &mut writer).await;
        // A stream that held for a while proves a healthy peer; one that ends at once does not.
        if began.elapsed() > STEADY {
            backoff.reset();
        }
        carried.map_err(FrameError::into_detail)
    }

    /// Carries queued messages, until the stream breaks or this node's registration is no longer `member`.
    async fn carry(
        &self,
        link: &Link,
        member: &Member,
        peer: &str,
        reader: &mut FrameReader,
        writer: &mut FrameWriter,
    ) -> Result<(), FrameError> {
        let mut keepalive = Keepalive::default();
        loop {
            let waits = !writer.is_empty();
            tokio::select! {
                // While a message is sent, the next one gathers.
                flushed = writer.flush(), if waits => flushed?,
                () = link.wait(), if !waits => {
                    if self.membership.life().is_none_or(|now| now.member != *member) {
                        return Ok(());
                    }
                    writer.push(&v1::ReplicationBatch { parts: link.take(&self.metrics), ..Default::default() });
                }
                // The peer answers over its own stream to us; this one only carries keepalives, the end, or a report
                // that we are fenced.
                said = reader.next::<v1::ReplicationBatch>() => if let Some(over) = said?.over {
                    let over = FencingProof::try_from(over).map_err(|error| FrameError::Unreadable(error.to_string()))?;
                    self.membership.told_over(peer, over);
                },
                () = keepalive.tick() => keepalive.mark(reader, writer)?,
            }
        }
    }

    fn drop_queued(&self, link: &Link) {
        let mut queue = link.queue.lock();
        let metrics = &self.metrics;
        metrics.peer_bytes.subtract(std::mem::take(&mut queue.bytes) as u64);
        metrics.peer_dropped.add(queue.parts.drain(..).map(|part| part.messages).sum());
    }
}

/// Removes a link together with its task, also on a panic: the next message starts another one.
struct LinkGuard {
    peers: Arc<Peers>,
    node: NodeId,
    link: Arc<Link>,
}

impl Drop for LinkGuard {
    fn drop(&mut self) {
        self.peers.links.lock().remove(&self.node);
        // First: a message queued after this would have no task to send it.
        self.link.queue.lock().ended = true;
        self.peers.drop_queued(&self.link);
        if std::thread::panicking() {
            tracing::error!(peer = %self.node, "the task of a stream to a peer has panicked; the next message starts another one");
        }
    }
}

impl Link {
    /// Waits until something is queued.
    async fn wait(&self) {
        loop {
            let filled = self.filled.notified();
            if !self.queue.lock().parts.is_empty() {
                return;
            }
            filled.await;
        }
    }

    fn take(&self, metrics: &Metrics) -> Vec<Bytes> {
        let mut queue = self.queue.lock();
        let (mut taken, mut bytes) = (Vec::new(), 0);
        while bytes < BATCH_BYTES_MAX {
            let Some(part) = queue.parts.pop_front() else { break };
            bytes += part.bytes.len();
            taken.push(part.bytes);
        }
        queue.bytes = queue.bytes.saturating_sub(bytes);
        metrics.peer_bytes.subtract(bytes as u64);
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::config::NodeConfig;
    use archon_types::Version;

    const PEER: NodeId = NodeId::new(2);

    #[test]
    fn link_is_removed_with_its_task() {
        let config = NodeConfig::new("athens", "127.0.0.1:0", vec!["127.0.0.1:1".into()], "unused".into());
        let (tables, metrics) = (Arc::new(Tables::new(Vec::new(), Version::ZERO)), Arc::new(Metrics::default()));
        let membership = Membership::new(Arc::new(config), Arc::clone(&tables), Arc::default(), Arc::clone(&metrics));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let runtimes = vec![runtime.handle().clone()];
        let peers = Arc::new(Peers::new(Arc::new(membership), tables, metrics, Transport::default(), runtimes));
        peers.send(PEER, vec![Part { bytes: Bytes::from_static(b"message"), messages: 1 }]);
        let first = peers.links.lock().get(&PEER).cloned().unwrap();
        runtime.block_on(async {
            // The task has begun once it took the message that no stream carries.
            while peers.metrics.peer_dropped.get() == 0 {
                tokio::task::yield_now().await;
            }
        });
        // As after a panic, the task is dropped in the middle of its work.
        drop(runtime);
        assert!(peers.links.lock().is_empty(), "messages would wait for a task that is gone");
        assert!(first.queue.lock().ended);
    }
}

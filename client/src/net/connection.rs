//! Connection to a node: one `Exchange` stream. Concurrent operations share messages, without timers: the next
//! message gathers while one is being sent, and an idle connection sends at once.

use crate::net::retry::Backoff;
use crate::state::ClientState;
use archon_frames::{FrameError, FrameReader, FrameWriter, Keepalive, StreamKind, connect_and_greet};
use archon_proto::convert::kv::TaggedReply;
use archon_proto::convert::kv::packed::{OpPacker, unpack_replies};
use archon_proto::v1;
use archon_security::is_refused_for_good;
use archon_types::limits::{BATCH_BYTES_MAX, BATCH_OPS_MAX, MESSAGE_BYTES_MAX};
use archon_types::{ErrorDetail, ErrorKind, Node, NodeId, Op, OpId, PartitionId, RemovedNodes, Version};
use parking_lot::RwLock;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

/// Maximum bytes of pending operations per connection, as nodes count them. Half of a node's limit per stream, so
/// that operations wait here, in order, instead of being refused there.
const CONNECTION_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Minimum cost of an operation, so that at most 4,096 are pending.
const OP_BYTES_MIN: usize = CONNECTION_BYTES_MAX / CONNECTION_OPS_MAX;
/// Maximum number of pending operations per connection.
const CONNECTION_OPS_MAX: usize = 4_096;
/// Operations that await answers from which on the next message waits for one turn of the runtime: their callers may
/// be about to send their next ones.
const COLLECT_MIN: usize = 64;
/// Interval of the search for operations without a caller.
const SWEEP: Duration = Duration::from_secs(1);

/// Outcome of one attempt.
#[derive(Debug)]
pub(crate) enum Attempt {
    /// The node answered.
    Answered(TaggedReply),
    /// The stream broke or could not be opened, or the leader changed.
    Lost {
        /// Set if the operation may have reached the node.
        sent: bool,
        /// The reason.
        detail: ErrorDetail,
    },
}

/// An operation to send. Its permit is held until it is answered or abandoned.
#[derive(Debug)]
struct QueuedOperation {
    partition: PartitionId,
    id: Option<OpId>,
    op: Op,
    answer: oneshot::Sender<Attempt>,
    permit: OwnedSemaphorePermit,
}

/// An operation that waits for its answer.
#[derive(Debug)]
struct WaitingOperation {
    partition: PartitionId,
    answer: oneshot::Sender<Attempt>,
    _permit: OwnedSemaphorePermit,
}

/// Connections of a client, one per node that it routes to, or one per endpoint.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    nodes: RwLock<HashMap<NodeId, Arc<Connection>>>,
    endpoints: RwLock<HashMap<String, Arc<Connection>>>,
}

impl Connections {
    /// Returns the connection to `node`. Creates a new one after a change of address or a failure of the connection's
    /// task.
    pub(crate) fn to(&self, shared: &Arc<ClientState>, node: &Node) -> Arc<Connection> {
        let usable =
            |connection: &&Arc<Connection>| connection.address == node.address && !connection.queue.is_closed();
        if let Some(connection) = self.nodes.read().get(&node.id).filter(usable) {
            return Arc::clone(connection);
        }
        let mut connections = self.nodes.write();
        if let Some(connection) = connections.get(&node.id).filter(usable) {
            return Arc::clone(connection);
        }
        let connection = Arc::new(Connection::start(shared, Some(node.id), &node.address));
        // The replaced connection ends when its last caller drops it.
        connections.insert(node.id, Arc::clone(&connection));
        connection
    }

    /// Returns the connection to an endpoint, which may be any node; it forwards operations on partitions of others.
    pub(crate) fn to_endpoint(&self, shared: &Arc<ClientState>, address: &str) -> Arc<Connection> {
        let usable = |connection: &&Arc<Connection>| !connection.queue.is_closed();
        if let Some(connection) = self.endpoints.read().get(address).filter(usable) {
            return Arc::clone(connection);
        }
        let mut connections = self.endpoints.write();
        if let Some(connection) = connections.get(address).filter(usable) {
            return Arc::clone(connection);
        }
        let connection = Arc::new(Connection::start(shared, None, address));
        connections.insert(address.to_owned(), Arc::clone(&connection));
        connection
    }

    /// Drops the connections to nodes that were removed from the cluster; each ends with its last caller.
    pub(crate) fn forget(&self, removed: &RemovedNodes) {
        self.nodes.write().retain(|node, _| !removed.contains(*node));
    }
}

/// Connection to one node: a stream that is opened on demand, and again after it broke.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) address: String,
    /// Bounded by the permits: each queued operation holds one.
    queue: mpsc::UnboundedSender<QueuedOperation>,
    permits: Arc<Semaphore>,
}

impl Connection {
    fn start(shared: &Arc<ClientState>, node: Option<NodeId>, address: &str) -> Self {
        let (queue, incoming) = mpsc::unbounded_channel();
        let task = Task {
            shared: Arc::clone(shared),
            node,
            address: address.to_owned(),
            incoming,
            queued: VecDeque::new(),
            waiting: HashMap::default(),
            next_tag: 1,
        };
        shared.tasks.spawn(task.run());
        let permits = Arc::new(Semaphore::new(CONNECTION_BYTES_MAX));
        Self { address: address.to_owned(), queue, permits }
    }

    /// Sends an operation and waits for its outcome. Waits for room in the connection first.
    pub(crate) async fn attempt(&self, partition: PartitionId, id: Option<OpId>, op: Op) -> Attempt {
        let cost = op.cost().clamp(OP_BYTES_MIN, CONNECTION_BYTES_MAX) as u32;
        // Room is the usual case, and an asynchronous acquire is more expensive even without waiting.
        let permit = match Arc::clone(&self.permits).try_acquire_many_owned(cost) {
            Ok(permit) => permit,
            Err(_) => match Arc::clone(&self.permits).acquire_many_owned(cost).await {
                Ok(permit) => permit,
                Err(_) => return closed(false),
            },
        };
        let (answer, answered) = oneshot::channel();
        if self.queue.send(QueuedOperation { partition, id, op, answer, permit }).is_err() {
            return closed(false);
        }
        // The task answers every operation it takes, unless it was stopped.
        answered.await.unwrap_or_else(|_| closed(true))
    }
}

fn closed(sent: bool) -> Attempt {
    Attempt::Lost { sent, detail: ErrorDetail::new(ErrorKind::ShuttingDown, "the client is closing") }
}

/// Hash of tags, which are sequential numbers of this client.
#[derive(Debug, Default)]
struct TagHasher(u64);

impl Hasher for TagHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(self.0 << 8 | u64::from(*byte)));
    }

    fn write_u64(&mut self, tag: u64) {
        self.0 = tag.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

/// Background task of a connection: opens the stream on demand, and again after it broke. Ends when the client stops
/// or the connection is replaced.
struct Task {
    shared: Arc<ClientState>,
    /// The expected node, which must lead the partitions; `None` for an endpoint, which forwards operations.
    node: Option<NodeId>,
    address: String,
    incoming: mpsc::UnboundedReceiver<QueuedOperation>,
    queued: VecDeque<QueuedOperation>,
    waiting: HashMap<u64, WaitingOperation, BuildHasherDefault<TagHasher>>,
    next_tag: u64,
}

/// An open stream: both directions.
type Stream = (FrameReader, FrameWriter);

/// Reason why a stream ended.
enum End {
    /// The connection is no longer needed.
    Done,
    /// It broke.
    Broken(ErrorDetail),
}

impl Task {
    async fn run(mut self) {
        let stop = self.shared.stop.clone();
        let _counted = self.shared.measures.connection();
        // Dropping the channels notifies the callers.
        stop.run_until_cancelled(self.serve()).await;
    }

    async fn serve(&mut self) {
        let mut backoff = Backoff::default();
        let mut not_before = Instant::now();
        loop {
            match self.incoming.recv().await {
                Some(first) => self.queued.push_back(first),
                None => return,
            }
            sleep_until(not_before).await;
            match self.opened().await {
                Ok(stream) => {
                    let began = Instant::now();
                    let end = self.exchange(stream).await;
                    let End::Broken(detail) = end else { return };
                    tracing::debug!(node = self.node.map(NodeId::get), address = self.address, %detail, "stream to node broke");
                    self.fail_all(detail);
                    // A stream that lasted a while indicates a healthy node; one that breaks at once does not.
                    if began.elapsed() > Duration::from_secs(1) {
                        backoff.reset();
                    }
                }
                Err(detail) => self.fail_all(detail),
            }
            not_before = Instant::now() + backoff.next(true, None, rand::random::<f64>()) / 2;
        }
    }

    /// Opens the stream, and meanwhile abandons operations on partitions that another node leads now: a silent node
    /// times out slowly.
    async fn opened(&mut self) -> Result<Stream, ErrorDetail> {
        let mut changes = self.shared.changes.subscribe();
        let shared = Arc::clone(&self.shared);
        let open = Self::open(Arc::clone(&shared), self.node, self.address.clone());
        let open = shared.measures.opening(open);
        tokio::pin!(open);
        loop {
            tokio::select! {
                opened = &mut open => return opened,
                _ = changes.changed() => self.give_up_moved(),
            }
        }
    }

    /// Opens the stream. Operations are sent only after the node accepted it, so a refusal is known to have had no
    /// effect.
    async fn open(shared: Arc<ClientState>, node: Option<NodeId>, address: String) -> Result<Stream, ErrorDetail> {
        let transport = shared.links.transport();
        transport.check(&address)?;
        let hello = v1::OpBatch {
            cluster: shared.cluster_ref(),
            node: node.map_or(0, NodeId::get),
            pass_on: node.is_none(),
            ..v1::OpBatch::default()
        };
        let (kind, expected) = ((StreamKind::Exchange, MESSAGE_BYTES_MAX), shared.expected(node));
        let connect_timeout = shared.links.connect_timeout();
        let greet = |mut reader: FrameReader, mut writer: FrameWriter| {
            writer.push(&hello);
            async move {
                writer.flush().await?;
                let accepted: v1::ReplyBatch = reader.next().await?;
                Ok((reader, writer, Version::new(accepted.table_version)))
            }
        };
        let opened = connect_and_greet(transport, &address, &expected, kind, connect_timeout, greet).await;
        let (reader, writer, version) = opened.map_err(|error| {
            // A peer with another protocol is not the node: the node moved, or is gone.
            let foreign = matches!(error, FrameError::Unreadable(_));
            let mut detail = of_node(&address, error);
            if foreign {
                detail.kind = ErrorKind::Unreachable;
            } else if is_refused_for_good(&detail.message) {
                detail.kind = ErrorKind::Refused;
            }
            detail
        })?;
        shared.hint(version);
        Ok((reader, writer))
    }

    /// Exchanges operations and answers until the stream ends. Reads answers while a message waits to be sent, to
    /// avoid a deadlock of two full buffers.
    async fn exchange(&mut self, (mut reader, mut writer): Stream) -> End {
        let _open = self.shared.measures.stream();
        match self.carry(&mut reader, &mut writer).await {
            Ok(()) => End::Done,
            Err(error) => {
                self.shared.measures.stream_broke();
                End::Broken(of_node(&self.address, error))
            }
        }
    }

    async fn carry(&mut self, reader: &mut FrameReader, writer: &mut FrameWriter) -> Result<(), FrameError> {
        let mut taken = Vec::new();
        let mut changes: watch::Receiver<u64> = self.shared.changes.subscribe();
        let mut sweep = interval(SWEEP);
        sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut keepalive = Keepalive::default();
        loop {
            if writer.is_empty() && !self.queued.is_empty() && self.waiting.len() >= COLLECT_MIN {
                tokio::task::yield_now().await;
            }
            while let Ok(more) = self.incoming.try_recv() {
                self.queued.push_back(more);
            }
            if writer.is_empty() && !self.queued.is_empty() {
                writer.push(&self.batch());
            }
            let leaves = !writer.is_empty();
            tokio::select! {
                flushed = writer.flush(), if leaves => flushed?,
                count = self.incoming.recv_many(&mut taken, CONNECTION_OPS_MAX) => {
                    if count == 0 {
                        return Ok(());
                    }
                    self.queued.extend(taken.drain(..));
                }
                batch = reader.next::<v1::ReplyBatch>() => self.take(batch?)?,
                _ = changes.changed() => self.give_up_moved(),
                _ = sweep.tick() => self.waiting.retain(|_, waiting| !waiting.answer.is_closed()),
                () = keepalive.tick() => keepalive.mark(reader, writer)?,
            }
        }
    }

    /// Returns the next message: as many queued operations of one client as fit.
    fn batch(&mut self) -> v1::OpBatch {
        // Callers name some writes themselves, in the name of other clients.
        let named = self.queued.iter().take(BATCH_OPS_MAX).find_map(|pending| pending.id);
        let client = named.map_or_else(|| self.shared.sequences.client(), |id| id.client);
        let mut ops = OpPacker::new(client);
        let (mut count, mut bytes) = (0, 0);
        let mut table_version = Version::ZERO;
        while count < BATCH_OPS_MAX
            && let Some(next) = self.queued.front()
        {
            bytes += next.op.bytes();
            let is_of_another = next.id.is_some_and(|id| id.client != client);
            if is_of_another || (count > 0 && bytes > BATCH_BYTES_MAX) {
                break;
            }
            let Some(pending) = self.queued.pop_front() else { break };
            if pending.answer.is_closed() {
                continue;
            }
            if table_version == Version::ZERO {
                table_version = self.shared.table_version(pending.partition.table);
            }
            let tag = self.next_tag;
            self.next_tag = self.next_tag.wrapping_add(1);
            ops.push(tag, pending.partition, pending.id.as_ref(), &pending.op);
            count += 1;
            let waiting =
                WaitingOperation { partition: pending.partition, answer: pending.answer, _permit: pending.permit };
            self.waiting.insert(tag, waiting);
        }
        v1::OpBatch { ops: ops.finish(), table_version: table_version.get(), ..v1::OpBatch::default() }
    }

    /// Passes answers to the waiting callers.
    ///
    /// # Errors
    /// Unreadable content: the affected answers are unknown, and the stream is unusable.
    fn take(&mut self, batch: v1::ReplyBatch) -> Result<(), FrameError> {
        self.shared.hint(Version::new(batch.table_version));
        for reply in unpack_replies(batch.replies) {
            let reply = reply.map_err(|error| FrameError::Unreadable(error.to_string()))?;
            let Some(waiting) = self.waiting.remove(&reply.tag) else { continue };
            // The caller may be gone.
            let _ = waiting.answer.send(Attempt::Answered(reply));
        }
        Ok(())
    }

    /// Abandons operations on partitions that another node leads now: the old leader may never answer.
    fn give_up_moved(&mut self) {
        while let Ok(more) = self.incoming.try_recv() {
            self.queued.push_back(more);
        }
        // An endpoint follows the leader itself.
        let (shared, Some(node)) = (&self.shared, self.node) else { return };
        let mut verdicts: HashMap<PartitionId, bool> = HashMap::new();
        let mut moved = |partition: PartitionId| {
            *verdicts.entry(partition).or_insert_with(|| shared.led_elsewhere(partition, node))
        };
        let lost = |partition: PartitionId, sent: bool| {
            let message = format!("another node leads partition {} by now", shared.partition_name(partition));
            Attempt::Lost { sent, detail: ErrorDetail::new(ErrorKind::NotPartitionLeader, message) }
        };
        for (_, waiting) in self.waiting.extract_if(|_, waiting| moved(waiting.partition)) {
            let _ = waiting.answer.send(lost(waiting.partition, true));
        }
        let (gone, kept): (VecDeque<_>, VecDeque<_>) =
            self.queued.drain(..).partition(|pending| moved(pending.partition));
        self.queued = kept;
        for pending in gone {
            let _ = pending.answer.send(lost(pending.partition, false));
        }
    }

    /// Notifies all callers that the stream is gone.
    fn fail_all(&mut self, detail: ErrorDetail) {
        while let Ok(more) = self.incoming.try_recv() {
            self.queued.push_back(more);
        }
        for pending in self.queued.drain(..) {
            let _ = pending.answer.send(Attempt::Lost { sent: false, detail: detail.clone() });
        }
        for (_, waiting) in self.waiting.drain() {
            let _ = waiting.answer.send(Attempt::Lost { sent: true, detail: detail.clone() });
        }
    }
}

/// Returns the error of a stream to the node at `address`.
fn of_node(address: &str, error: FrameError) -> ErrorDetail {
    let mut detail = error.into_detail();
    detail.message = format!("the node at {address}: {}", detail.message);
    detail
}

//! An in-memory cluster: real servers on free ports, each of which ends as abruptly as a killed process.
#![allow(dead_code)]

mod store;
mod table;

pub(crate) use store::Store;
pub(crate) use table::delta;

use archon_frames::testing::FakeServer;
use archon_frames::{FrameReader, FrameWriter, Keepalive, StreamKind};
use archon_proto::convert::error::status_of;
use archon_proto::convert::ids::key_bytes;
use archon_proto::convert::kv::packed::{ReplyPacker, unpack_ops};
use archon_proto::convert::kv::{TaggedOp, TaggedReply};
use archon_proto::v1::{self, table_server};
use archon_testkit::wait_for_async;
use archon_types::{
    Answer, ClusterId, ErrorDetail, ErrorKind, GenerationKey, Millis, NodeId, PartitionTable, TableDelta, TablePiece,
    Version,
};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;
use tonic::service::Routes;
use tonic::{Request, Response, Status};
use uuid::Uuid;

pub(crate) const CLUSTER: ClusterId = ClusterId::new(Uuid::from_u128(0xA1));

/// Behaviour of a node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Behaviour {
    /// Serves everything.
    Serve,
    /// Answers with the leader, if there is one.
    Redirect(Option<String>),
    /// Accepts operations but neither applies nor answers them.
    Silent,
    /// Applies the next message, breaks the stream instead of answering, and serves from then on.
    ApplyThenBreak,
    /// Answers every operation with this error.
    Refuse(ErrorDetail),
    /// Rejects operations stamped before this with `MaybeApplied`.
    Forgotten(Millis),
}

/// Counters and settings of one node.
pub(crate) struct NodeState {
    pub(crate) id: NodeId,
    pub(crate) cluster: ClusterId,
    pub(crate) behaviour: Mutex<Behaviour>,
    pub(crate) table: watch::Sender<TableDelta>,
    pub(crate) store: Arc<Mutex<Store>>,
    /// Number of messages with operations.
    pub(crate) messages: AtomicUsize,
    pub(crate) ops: AtomicUsize,
    /// Partition index and number of every write requested, answered or not.
    pub(crate) asked: Mutex<Vec<(u32, Option<u64>)>>,
    pub(crate) streams: AtomicUsize,
    /// Number of table requests that did not wait.
    pub(crate) fetches: AtomicUsize,
    pub(crate) polls: AtomicUsize,
    /// Sent in every reply batch.
    pub(crate) hint: AtomicU64,
    pub(crate) log_time: AtomicU64,
    pub(crate) coordinators: Mutex<Vec<String>>,
    /// Key of the node's generation.
    pub(crate) generation_key: Mutex<GenerationKey>,
    /// Set to send the whole table for every version of the client, as a faulty server might.
    pub(crate) whole: AtomicBool,
    /// Version by which the table was dropped; zero while it exists.
    pub(crate) dropped: AtomicU64,
    /// Error of every table request, if set.
    pub(crate) no_table: Mutex<Option<ErrorDetail>>,
    /// Set to fail once instead of sending a table's second piece.
    pub(crate) cuts: AtomicBool,
}

impl NodeState {
    pub(crate) fn set(&self, behaviour: Behaviour) {
        *self.behaviour.lock().unwrap() = behaviour;
    }

    /// Returns `true` once if the stream is to break instead of answering.
    fn breaks_now(&self) -> bool {
        let mut behaviour = self.behaviour.lock().unwrap();
        let breaks = *behaviour == Behaviour::ApplyThenBreak;
        if breaks {
            *behaviour = Behaviour::Serve;
        }
        breaks
    }

    fn answer(&self, op: &TaggedOp) -> Option<Result<Answer, ErrorDetail>> {
        if !op.op.is_read() {
            self.asked.lock().unwrap().push((op.partition.index, op.id.map(|id| id.number)));
        }
        let behaviour = self.behaviour.lock().unwrap().clone();
        Some(match behaviour {
            Behaviour::Silent => return None,
            Behaviour::Redirect(leader) => {
                Err(ErrorDetail::new(ErrorKind::NotPartitionLeader, "not here").with_leader(leader))
            }
            Behaviour::Refuse(detail) => Err(detail),
            Behaviour::Forgotten(until) if op.id.is_some_and(|id| id.stamp < until) => {
                Err(ErrorDetail::new(ErrorKind::MaybeApplied, "older than what is kept"))
            }
            Behaviour::Serve | Behaviour::ApplyThenBreak | Behaviour::Forgotten(_) => {
                Ok(self.store.lock().unwrap().run(op))
            }
        })
    }
}

/// A server that ends with its runtime.
pub(crate) struct FakeNode {
    pub(crate) state: Arc<NodeState>,
    pub(crate) address: String,
    server: Option<FakeServer>,
}

impl FakeNode {
    fn start(state: Arc<NodeState>) -> Self {
        let server = serve(&state, "127.0.0.1:0").unwrap();
        Self { state, address: server.address(), server: Some(server) }
    }

    /// Simulates the end of the process: connections break immediately.
    pub(crate) fn kill(&mut self) {
        self.server = None;
    }

    /// Starts it again at the same address.
    pub(crate) async fn restart(&mut self) {
        self.kill();
        // A port just released may still be in use for a moment.
        let start = async || serve(&self.state, &self.address);
        self.server = Some(wait_for_async("its address to be free", Duration::from_secs(60), start).await);
    }
}

fn serve(state: &Arc<NodeState>, address: &str) -> std::io::Result<FakeServer> {
    let routes = Routes::new(table_server::TableServer::new(Service(Arc::clone(state))));
    let state = Arc::clone(state);
    let streams = move |kind, reader, writer| exchange(Arc::clone(&state), kind, reader, writer);
    FakeServer::start(address, routes, streams)
}

/// Nodes 1, 2, …; partition p of the table is led by node 1 + p mod n.
pub(crate) struct FakeCluster {
    pub(crate) nodes: Vec<FakeNode>,
    pub(crate) partitions: u32,
}

impl FakeCluster {
    pub(crate) async fn start(nodes: u64, partitions: u32) -> Self {
        Self::start_as(CLUSTER, nodes, partitions).await
    }

    pub(crate) async fn start_as(id: ClusterId, nodes: u64, partitions: u32) -> Self {
        let cluster = id;
        let store = Arc::new(Mutex::new(Store::default()));
        let mut started = Vec::new();
        for id in 1..=nodes {
            let state = Arc::new(NodeState {
                id: NodeId::new(id),
                cluster,
                behaviour: Mutex::new(Behaviour::Serve),
                table: watch::Sender::new(delta(1, partitions, &[], |_| None)),
                store: Arc::clone(&store),
                messages: AtomicUsize::new(0),
                ops: AtomicUsize::new(0),
                asked: Mutex::new(Vec::new()),
                streams: AtomicUsize::new(0),
                fetches: AtomicUsize::new(0),
                polls: AtomicUsize::new(0),
                hint: AtomicU64::new(0),
                log_time: AtomicU64::new(0),
                coordinators: Mutex::new(Vec::new()),
                generation_key: Mutex::new(GenerationKey::NIL),
                whole: AtomicBool::new(false),
                dropped: AtomicU64::new(0),
                no_table: Mutex::new(None),
                cuts: AtomicBool::new(false),
            });
            started.push(FakeNode::start(state));
        }
        let cluster = Self { nodes: started, partitions };
        cluster.set_table(5, |partition| Some(1 + u64::from(partition) % nodes));
        cluster
    }

    /// Gives every node the table of this version.
    pub(crate) fn set_table(&self, version: u64, leader: impl Fn(u32) -> Option<u64>) {
        let delta = self.table(version, leader);
        for node in &self.nodes {
            node.state.table.send_replace(delta.clone());
        }
    }

    pub(crate) fn table(&self, version: u64, leader: impl Fn(u32) -> Option<u64>) -> TableDelta {
        let addresses: Vec<String> = self.nodes.iter().map(|node| node.address.clone()).collect();
        delta(version, self.partitions, &addresses, leader)
    }

    pub(crate) fn addresses(&self) -> Vec<String> {
        self.nodes.iter().map(|node| node.address.clone()).collect()
    }

    pub(crate) fn count(&self, of: impl Fn(&NodeState) -> &AtomicUsize) -> usize {
        self.nodes.iter().map(|node| of(&node.state).load(Ordering::SeqCst)).sum()
    }
}

/// gRPC services of a node.
struct Service(Arc<NodeState>);

#[tonic::async_trait]
impl table_server::Table for Service {
    async fn get_table(&self, request: Request<v1::GetTableRequest>) -> Result<Response<v1::GetTableResponse>, Status> {
        let request = request.into_inner();
        if request.table != "default" {
            return Err(status_of(&ErrorDetail::new(ErrorKind::NotFound, "no such table")));
        }
        let counter = if request.wait_ms == 0 { &self.0.fetches } else { &self.0.polls };
        counter.fetch_add(1, Ordering::SeqCst);
        if let Some(detail) = &*self.0.no_table.lock().unwrap() {
            return Err(status_of(detail));
        }
        let mut table = self.0.table.subscribe();
        let wait = Duration::from_millis(u64::from(request.wait_ms));
        let dropped = || self.0.dropped.load(Ordering::SeqCst);
        let news = |delta: &TableDelta| delta.version.get() > request.since || dropped() > 0;
        let _ = tokio::time::timeout(wait, table.wait_for(news)).await;
        if dropped() > 0 {
            let detail = ErrorDetail::new(ErrorKind::NotFound, "no such table");
            return Err(status_of(&detail.with_table_version(Version::new(dropped()))));
        }
        let whole = PartitionTable::from_whole(self.0.table.borrow().clone()).unwrap();
        let since = match self.0.whole.load(Ordering::SeqCst) {
            true => Version::ZERO,
            false => Version::new(request.since),
        };
        if request.from > 0 && self.0.cuts.swap(false, Ordering::SeqCst) {
            return Err(Status::unavailable("the connection was cut"));
        }
        let rows = whole.partitions().filter(|row| row.version > since);
        let nodes = whole.nodes().filter(|node| node.version > since);
        let table = whole.table().clone();
        let piece = TablePiece::cut(table, since, whole.version(), rows, nodes, None, request.from);
        Ok(Response::new(v1::GetTableResponse {
            cluster: Some(self.0.cluster.into()),
            delta: Some(piece.into()),
            coordinators: self.0.coordinators.lock().unwrap().clone(),
            generation_key: key_bytes(*self.0.generation_key.lock().unwrap()),
        }))
    }
}

/// Serves a stream of operations.
async fn exchange(state: Arc<NodeState>, kind: StreamKind, mut reader: FrameReader, mut writer: FrameWriter) {
    reader.known(8 << 20);
    assert_eq!(kind, StreamKind::Exchange);
    state.streams.fetch_add(1, Ordering::SeqCst);
    let Ok(hello) = reader.next::<v1::OpBatch>().await else { return };
    if hello.node != state.id.get() || hello.cluster != Some(state.cluster.into()) {
        writer.refuse(ErrorDetail::new(ErrorKind::WrongNode, "not me"));
        let _ = writer.flush().await;
        return;
    }
    writer.push(&v1::ReplyBatch::default());
    let mut keepalive = Keepalive::default();
    while writer.flush().await.is_ok() {
        let batch = tokio::select! {
            batch = reader.next::<v1::OpBatch>() => batch,
            () = keepalive.tick() => {
                keepalive.speak(&mut writer);
                continue;
            }
        };
        let Ok(batch) = batch else { return };
        state.messages.fetch_add(1, Ordering::SeqCst);
        let ops = unpack_ops(batch.ops).unwrap();
        let mut answers = ReplyPacker::default();
        for op in ops.into_iter().map(|op| op.op.unwrap()) {
            let answer = state.answer(&op);
            // A test that has read the count and then changes the behaviour affects later operations only.
            state.ops.fetch_add(1, Ordering::SeqCst);
            let Some(outcome) = answer else { continue };
            let log_time = Millis::new(state.log_time.load(Ordering::SeqCst));
            answers.push(&TaggedReply { tag: op.tag, log_time, outcome });
        }
        if state.breaks_now() {
            return;
        }
        writer.push(&v1::ReplyBatch {
            replies: answers.finish(),
            table_version: state.hint.load(Ordering::SeqCst),
            pong: 0,
        });
    }
}

//! An in-memory cluster: real servers on free ports, each on its own runtime, so that dropping one is as abrupt as
//! killing a process.
#![allow(dead_code)]

use archon_frames::{Keepalive, Opening, PartialBudget, StreamKind, accept};
use archon_proto::convert::error::status_of;
use archon_proto::convert::ids::key_bytes;
use archon_proto::convert::kv::packed::{ReplyPacker, unpack_ops};
use archon_proto::convert::kv::{TaggedOp, TaggedReply};
use archon_proto::v1::{self, table_server};
use archon_types::op::Entry;
use archon_types::{
    Answer, Change, Check, ClientId, ClusterId, Epoch, ErrorDetail, ErrorKind, GenerationKey, Holds, KeyRange, Keys,
    Millis, Node, NodeId, Op, OpId, Partition, PartitionId, PartitionStatus, PartitionTable, Placement, PlacementId,
    ReplicaState, Revision, ScanOrder, Stored, Table, TableDelta, TableId, TablePiece, Version, Write,
};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;
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

/// Expired rows after which a scan without entries ends.
const PASSED_MAX: usize = 2;

/// State shared by all nodes of a fake cluster, as if it were replicated.
#[derive(Default)]
pub(crate) struct Store {
    pub(crate) rows: BTreeMap<Bytes, (Bytes, Revision)>,
    pub(crate) partitions: HashMap<Bytes, PartitionId>,
    pub(crate) answers: HashMap<(PartitionId, ClientId, u64), Answer>,
    pub(crate) ids: Vec<OpId>,
    /// Keys of rows that have expired: scans pass over a few of them, and end then.
    pub(crate) expired: BTreeSet<Bytes>,
    revision: u64,
}

impl Store {
    fn run(&mut self, tagged: &TaggedOp) -> Answer {
        let Some(id) = tagged.id else { return self.apply(&tagged.op, tagged.partition) };
        self.ids.push(id);
        let name = (tagged.partition, id.client, id.number);
        if let Some(answer) = self.answers.get(&name) {
            return answer.clone();
        }
        let answer = self.apply(&tagged.op, tagged.partition);
        self.answers.insert(name, answer.clone());
        answer
    }

    fn write(&mut self, key: &Bytes, value: Bytes, partition: PartitionId) -> Revision {
        self.revision += 1;
        self.partitions.insert(key.clone(), partition);
        self.rows.insert(key.clone(), (value, Revision::new(self.revision)));
        Revision::new(self.revision)
    }

    fn apply(&mut self, op: &Op, partition: PartitionId) -> Answer {
        match op {
            Op::Get { key } => {
                Answer::Value(self.rows.get(key).map(|(value, revision)| Stored::new(value.clone(), *revision)))
            }
            Op::Put { key, value } => Answer::Written { revision: self.write(key, value.clone(), partition) },
            Op::Delete { key } => Answer::Deleted { existed: self.rows.remove(key).is_some() },
            // It keeps no time: nothing expires.
            Op::PutExpiring { key, value, expected: None, .. } => {
                Answer::Written { revision: self.write(key, value.clone(), partition) }
            }
            Op::CompareAndSet { key, expected, value }
            | Op::PutExpiring { key, expected: Some(expected), value, .. } => {
                let revision = self.rows.get(key).map_or(Revision::ZERO, |(_, revision)| *revision);
                if revision == *expected {
                    Answer::Written { revision: self.write(key, value.clone(), partition) }
                } else {
                    Answer::ConditionFailed { revision }
                }
            }
            Op::Increment { key, by } => {
                let held = self.rows.get(key).map_or(Ok(0), |(value, _)| {
                    std::str::from_utf8(value).map_err(|_| ()).and_then(|text| text.parse::<i64>().map_err(|_| ()))
                });
                match held.ok().and_then(|held| held.checked_add(*by)) {
                    Some(value) => {
                        Answer::Counter { value, revision: self.write(key, value.to_string().into(), partition) }
                    }
                    None => Answer::NotANumber,
                }
            }
            Op::GetMany(many) => {
                let stored = |(value, revision): &(Bytes, Revision)| Stored::new(value.clone(), *revision);
                Answer::Values(many.keys().iter().map(|key| self.rows.get(key).map(stored)).collect())
            }
            Op::Transaction(transaction) => {
                for (check, Check { key, expected }) in (0..).zip(transaction.checks()) {
                    let revision = self.rows.get(key).map_or(Revision::ZERO, |(_, revision)| *revision);
                    if revision != *expected {
                        return Answer::CheckFailed { check, revision };
                    }
                }
                let (mut removed, mut revision) = (0, Revision::ZERO);
                for Write { key, change } in transaction.writes() {
                    match change {
                        Change::Put { value, .. } => revision = self.write(key, value.clone(), partition),
                        Change::Delete => removed += u32::from(self.rows.remove(key).is_some()),
                    }
                }
                Answer::Applied { revision, removed }
            }
            Op::Scan { keys, order, limit } => {
                let mut rows: Vec<_> = self.rows.iter().collect();
                if *order == ScanOrder::Descending {
                    rows.reverse();
                }
                rows.retain(|(key, _)| self.partitions.get(*key) == Some(&partition) && keys.contains(key));
                let passed = rows.iter().take_while(|(key, _)| self.expired.contains(*key)).count();
                if passed > PASSED_MAX && passed < rows.len() {
                    let last = rows[PASSED_MAX].0;
                    let range = match order {
                        ScanOrder::Ascending => KeyRange::ALL.before([last, &[0][..]].concat().into()),
                        ScanOrder::Descending => KeyRange { begin: last.clone(), end: None },
                    };
                    return Answer::Page { entries: Vec::new(), more: true, range };
                }
                let found: Vec<Entry> = rows
                    .into_iter()
                    .filter(|(key, _)| !self.expired.contains(*key))
                    .take(*limit as usize + 1)
                    .map(|(key, (value, revision))| Entry {
                        key: key.clone(),
                        value: value.clone(),
                        revision: *revision,
                        expires: None,
                    })
                    .collect();
                let more = found.len() > *limit as usize;
                Answer::Page { entries: found.into_iter().take(*limit as usize).collect(), more, range: KeyRange::ALL }
            }
        }
    }
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
    runtime: Option<Runtime>,
}

impl FakeNode {
    /// Simulates the end of the process: connections break immediately.
    pub(crate) fn kill(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }

    /// Starts it again at the same address.
    pub(crate) async fn restart(&mut self) {
        self.kill();
        let address = self.address.clone();
        let (runtime, _) = serve(Arc::clone(&self.state), &address).await;
        self.runtime = Some(runtime);
    }
}

impl Drop for FakeNode {
    fn drop(&mut self) {
        self.kill();
    }
}

pub(crate) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

async fn serve(state: Arc<NodeState>, address: &str) -> (Runtime, String) {
    let runtime = runtime();
    // A port just released may still be in use for a moment.
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    let listener = loop {
        match std::net::TcpListener::bind(address) {
            Ok(listener) => break listener,
            Err(error) => assert!(std::time::Instant::now() < deadline, "cannot bind {address}: {error}"),
        }
        tokio::task::yield_now().await;
    };
    listener.set_nonblocking(true).unwrap();
    let bound = listener.local_addr().unwrap().to_string();
    runtime.spawn(async move {
        let listener = TcpListener::from_std(listener).unwrap();
        let (grpc, incoming) = mpsc::channel(16);
        let server = Server::builder().add_service(table_server::TableServer::new(Service(Arc::clone(&state))));
        tokio::spawn(server.serve_with_incoming(ReceiverStream::new(incoming)));
        while let Ok((connection, _)) = listener.accept().await {
            let (state, grpc) = (Arc::clone(&state), grpc.clone());
            tokio::spawn(async move {
                match Opening::of(&connection).await {
                    Ok(Opening::Frames) => exchange(&state, connection).await,
                    _ => drop(grpc.send(Ok::<_, std::io::Error>(connection)).await),
                }
            });
        }
    });
    (runtime, bound)
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
            let (runtime, address) = serve(Arc::clone(&state), "127.0.0.1:0").await;
            started.push(FakeNode { state, address, runtime: Some(runtime) });
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

pub(crate) fn delta(
    version: u64,
    partitions: u32,
    addresses: &[String],
    leader: impl Fn(u32) -> Option<u64>,
) -> TableDelta {
    let table = TableId::new(1);
    let version = Version::new(version);
    let row = |index: u32| {
        let node = leader(index);
        Partition {
            id: PartitionId::new(table, index),
            epoch: Epoch::new(version.get()),
            version,
            leader: node.map(|_| PlacementId::new(u64::from(index) + 1)),
            placements: node
                .map(|node| Placement {
                    id: PlacementId::new(u64::from(index) + 1),
                    node: NodeId::new(node),
                    state: ReplicaState::Live,
                })
                .into_iter()
                .collect(),
            status: if node.is_some() { PartitionStatus::Online } else { PartitionStatus::Unavailable },
            min_in_sync: 1,
            range: KeyRange::ALL,
            split: None,
            merge: None,
            absorbed: Version::ZERO,
        }
    };
    let node = |(index, address): (usize, &String)| {
        Node::new(NodeId::new(index as u64 + 1), format!("node-{}", index + 1), address)
    };
    TableDelta {
        table: Table {
            id: table,
            name: "default".into(),
            keys: Keys::Hash { partitions },
            replication: 1,
            holds: Holds::Data,
            version: Version::new(1),
        },
        since: Version::ZERO,
        version,
        partitions: (0..partitions).map(row).collect(),
        nodes: addresses.iter().enumerate().map(node).collect(),
        removed: None,
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
async fn exchange(state: &NodeState, connection: TcpStream) {
    let (kind, mut reader, mut writer) = accept(connection.into(), |_| PartialBudget::new(64 << 20)).await.unwrap();
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

//! Tests of a loader that pulls a copy. The test plays the leader, which serves the copy, and the coordinator.

use crate::support::packed::{LEADER, LEADER_LIFE, LEADER_NODE, LeaderMessage, batch, hint};
use crate::support::stream::{read, replicate};
use crate::support::{Fake, RegisteredNode, metric, row, seconds};
use archon_frames::testing::FakeServer;
use archon_kv::row as rows;
use archon_proto::v1;
use archon_proto::v1::replication_server::{Replication, ReplicationServer};
use archon_testkit::{ScratchDirectory, wait_for_state};
use archon_types::{BootId, ErrorKind, Fact, Incarnation, Partition, ReplicaState, Revision};
use bytes::{BufMut, Bytes, BytesMut};
use futures::FutureExt;
use futures::stream::{self, BoxStream, StreamExt};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use tonic::service::Routes;
use tonic::{Request, Response, Status};

const LIVE: ReplicaState = ReplicaState::Live;
const LOAD: ReplicaState = ReplicaState::Load;

/// Pages of each stream, in order.
type Script = Arc<Mutex<VecDeque<Vec<Result<v1::CopyPage, Status>>>>>;

/// Serves copies from the script of the test.
#[derive(Clone, Default)]
struct Source {
    script: Script,
    /// Rates that the loader asked for.
    rates: Arc<Mutex<Vec<u64>>>,
    /// Positions at which the loader continues.
    hints: Arc<Mutex<Vec<u64>>>,
}

#[tonic::async_trait]
impl Replication for Source {
    type CopyStream = BoxStream<'static, Result<v1::CopyPage, Status>>;

    async fn r#yield(&self, _: Request<v1::YieldRequest>) -> Result<Response<v1::YieldPage>, Status> {
        Err(Status::unimplemented("nobody merges here"))
    }

    async fn copy(&self, request: Request<v1::CopyRequest>) -> Result<Response<Self::CopyStream>, Status> {
        let pages = self.script.lock().pop_front().ok_or_else(|| Status::unavailable("as the test wants it"))?;
        self.rates.lock().push(request.into_inner().bytes_per_second);
        Ok(Response::new(stream::iter(pages).boxed()))
    }
}

/// Returns a page with one row, of a copy that begins at `start`.
fn page(start: u64, key: &str, last: bool) -> Result<v1::CopyPage, Status> {
    page_of(start, key, b"value", last)
}

fn page_of(start: u64, key: &str, value: &[u8], last: bool) -> Result<v1::CopyPage, Status> {
    let (key, value) = (rows::value_key(key.as_bytes()), rows::encode_value(Revision::new(1), value));
    let mut row = BytesMut::new();
    row.put_u32(u32::try_from(key.len()).unwrap());
    row.put_u32(u32::try_from(value.len()).unwrap());
    row.put_slice(&key);
    row.put_slice(&value);
    let rows: Bytes = row.freeze();
    Ok(v1::CopyPage {
        start_seq: start,
        crc32c: crc32c::crc32c(&rows),
        rows,
        last_key: key,
        last,
        bytes_total: 100,
        start: Some(v1::Position { epoch: 1, seq: start }),
        version: 1,
    })
}

/// Starts the leader and adds its address to the nodes that the coordinators name. It ends when the server is dropped.
fn leader(fake: &Fake) -> (Source, FakeServer) {
    let source = Source::default();
    let hints = Arc::clone(&source.hints);
    let heard = move |batch: v1::ReplicationBatch| hints.lock().extend(batch.parts.into_iter().filter_map(hint));
    let streams = move |_, reader, writer| read(reader, writer, heard.clone()).map(drop);
    let routes = Routes::new(ReplicationServer::new(source.clone()));
    let server = FakeServer::start("127.0.0.1:0", routes, streams).unwrap();
    let known = RegisteredNode {
        id: LEADER_NODE,
        incarnation: Incarnation::new(LEADER_LIFE),
        address: server.address(),
        boot: BootId::new(uuid::Uuid::new_v4()),
        held: Vec::new(),
        redis: None,
        expects: None,
    };
    fake.state.lock().nodes.insert("thebes".into(), known);
    (source, server)
}

/// Sends athens the leader's message that its log does not reach back far enough.
async fn push_behind(fake: &Fake) {
    let known = fake.known("athens").unwrap();
    let behind = batch(fake, 1, &[LeaderMessage::Behind { base: (1, 10) }]);
    let stream = replicate(&known.address).await;
    stream.send(behind).await.unwrap();
    // Keeps the stream open until the test ends.
    tokio::spawn(async move { stream.closed().await });
}

fn led(fake: &Fake, state: ReplicaState) -> Partition {
    row(1, 1, LEADER, &[(1, fake.id("athens"), state), (LEADER, LEADER_NODE, LIVE)])
}

/// The rows of a failed attempt are discarded, because the next attempt does not list the rows that were deleted since.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarted_copy_keeps_no_row_of_previous_attempt() {
    let directory = ScratchDirectory::in_memory().unwrap();
    let fake = Fake::start().await;
    let node = fake.node("athens", directory.path()).await;
    let (source, _server) = leader(&fake);
    *source.script.lock() = VecDeque::from([
        // Two rows, one of which is deleted afterwards; then the stream breaks.
        vec![page(10, "deleted", false), page(10, "kept", false), Err(Status::unavailable("as the test wants it"))],
        // The leader has trimmed its log beyond that position, so the pulled rows are useless.
        vec![page(20, "kept", true)],
        // The copy starts again from the beginning, with an interruption in between.
        vec![page(20, "first", false), Err(Status::unavailable("as the test wants it"))],
        vec![page(20, "kept", true)],
    ]);
    fake.host("athens", &led(&fake, LOAD)).await;
    push_behind(&fake).await;
    wait_for_state("everything is pulled", || source.script.lock().len(), |left| *left == 0).await;

    // The complete copy, which its leader counts, leads.
    wait_for_state("the log is followed", || source.hints.lock().clone(), |hints| hints.contains(&20)).await;
    assert_eq!(metric(&node, "copies_restarted_total"), 1);
    assert_eq!(*source.rates.lock(), [0, 0, u64::MAX, u64::MAX], "what took too long once does not rest");
    fake.host("athens", &row(2, 2, 1, &[(1, fake.id("athens"), LIVE)])).await;
    let mut kv = fake.kv("athens").await;
    kv.put_when_served("written", "here").await;
    for (key, expected) in [("deleted", None), ("first", Some("value")), ("kept", Some("value"))] {
        assert_eq!(kv.get(key).await.unwrap().as_deref(), expected, "{key}");
    }
    node.stop().await.unwrap();
}

/// An operator named the copy as leader after it was emptied to be copied again, and before the coordinators learned of
/// that. Its rows are incomplete, and it is not empty.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn incomplete_copy_is_not_served_by_leader() {
    let directory = ScratchDirectory::in_memory().unwrap();
    let fake = Fake::start().await;
    let node = fake.node("athens", directory.path()).await;
    let (source, _server) = leader(&fake);
    let broken = Err(Status::unavailable("as the test wants it"));
    *source.script.lock() = VecDeque::from([vec![page(10, "first", false), broken]]);
    fake.host("athens", &led(&fake, LOAD)).await;
    push_behind(&fake).await;
    wait_for_state("a page is pulled", || source.script.lock().len(), |left| *left == 0).await;
    fake.host("athens", &row(2, 2, 1, &[(1, fake.id("athens"), LIVE)])).await;
    fake.reported("that the copy is no whole one", |report| matches!(report.fact, Fact::Damaged { .. })).await;
    let refusal = fake.kv("athens").await.get("first").await.unwrap_err();
    assert_eq!(refusal.kind, ErrorKind::NotPartitionLeader, "{refusal:?}");
    node.stop().await.unwrap();
}

/// The loading node paces its own engine writes; the source does not know their load.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loader_pauses_engine_writes_while_clients_use_node() {
    let directory = ScratchDirectory::in_memory().unwrap();
    let fake = Fake::start().await;
    let node = fake.node("athens", directory.path()).await;
    let (source, _server) = leader(&fake);
    let value = vec![b'v'; 200 * 1024];
    // More than the flusher gathers before the engine writes it.
    let pages = (0..120).map(|number| page_of(10, &format!("key-{number:03}"), &value, number == 119)).collect();
    *source.script.lock() = VecDeque::from([pages]);
    let mut kv = fake.kv("athens").await;
    fake.host("athens", &led(&fake, LOAD)).await;
    let asked = metric(&node, "node_operations_total");
    let reads = tokio::spawn(async move {
        loop {
            // The node does not lead, so it refuses the operation; refusals count as client use too.
            let _ = kv.get("key-000").await;
        }
    });
    wait_for_state("it is used", || metric(&node, "node_operations_total"), |operations| *operations > asked).await;
    push_behind(&fake).await;
    wait_for_state("everything is pulled", || source.hints.lock().clone(), |hints| hints.contains(&10)).await;
    reads.abort();
    assert!(seconds(&node, "copy_rest_seconds_total") > 0.0);
    node.stop().await.unwrap();
}

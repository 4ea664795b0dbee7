//! Tests of a node whose table is dropped. The test plays the coordinator.

use crate::support::stream::exchange;
use crate::support::{Fake, PARTITION, metric, row};
use archon_kvstore_node::Node;
use archon_proto::convert::kv::packed::{OpPacker, unpack_replies};
use archon_proto::convert::members::control::Push;
use archon_proto::v1;
use archon_testkit::{ScratchDirectory, wait_for_state};
use archon_types::{
    ClientId, Duty, ErrorDetail, ErrorKind, Fact, Op, Partition, PlacementId, ReplicaState, Report, TableId, TableList,
    Version,
};

const COPY: PlacementId = PlacementId::new(1);

fn only(fake: &Fake) -> Partition {
    row(1, 1, 1, &[(1, fake.id("athens"), ReplicaState::Live)])
}

/// Pushes the duties and the information that table 1 was dropped.
async fn push_dropped(fake: &Fake, duties: Vec<Duty>) {
    let version = Version::new(1_002);
    let tables = Some(TableList { version, last: TableId::new(1), tables: Vec::new() });
    let push = fake.duties("athens", &only(fake), duties);
    let push = Push { tables, version, complete: Some(version), deltas: Vec::new(), ..push };
    let pushed = fake.send("athens", push).await.unwrap();
    assert!(pushed.refused.is_empty() && !pushed.gap, "{pushed:?}");
}

/// Sends an operation as a client that still holds the table, and returns the error.
async fn ask(fake: &Fake, op: Op) -> ErrorDetail {
    let mut ops = OpPacker::new(ClientId::NIL);
    ops.push(1, PARTITION, None, &op);
    let batch = v1::OpBatch {
        cluster: Some(fake.cluster.into()),
        node: fake.id("athens").get(),
        ops: ops.finish(),
        ..Default::default()
    };
    let mut answers = exchange(&fake.known("athens").unwrap().address, &batch).await;
    loop {
        let batch: v1::ReplyBatch = answers.next().await.unwrap();
        if let Some(reply) = unpack_replies(batch.replies).next() {
            return reply.unwrap().outcome.expect_err("the table was dropped");
        }
    }
}

async fn serving(fake: &Fake, directory: &std::path::Path) -> Node {
    let node = fake.node("athens", directory).await;
    fake.host("athens", &only(fake)).await;
    let mut kv = fake.kv("athens").await;
    for number in 0..20 {
        kv.put_when_served(&format!("key-{number}"), "value").await;
    }
    node
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copy_of_dropped_table_is_deleted_and_not_found() {
    let directory = ScratchDirectory::in_memory().unwrap();
    let fake = Fake::start().await;
    let node = serving(&fake, directory.path()).await;
    push_dropped(&fake, vec![Duty::Unload { partition: PARTITION, placement: COPY }]).await;
    for op in [Op::Get { key: "key-1".into() }, Op::Put { key: "key-1".into(), value: "late".into() }] {
        let why = ask(&fake, op).await;
        assert_eq!((why.kind, why.table_version), (ErrorKind::NotFound, Some(Version::new(1_002))), "{why}");
    }
    // Calls that name the table get the same final error.
    let (cluster, key) = (Some(fake.cluster.into()), bytes::Bytes::from("key-1"));
    let address = format!("http://{}", fake.known("athens").unwrap().address);
    let mut plain = v1::kv_client::KvClient::connect(address).await.unwrap();
    let request = v1::GetRequest { cluster, key, ..v1::GetRequest::default() };
    let why = archon_proto::convert::error::detail_of(&plain.get(request.clone()).await.unwrap_err());
    assert_eq!((why.kind, why.table_version), (ErrorKind::NotFound, Some(Version::new(1_002))), "{why}");
    let other = v1::GetRequest { table: "orders".into(), ..request };
    let why = archon_proto::convert::error::detail_of(&plain.get(other).await.unwrap_err());
    assert_eq!(why.kind, ErrorKind::NotFound, "{why}");
    let unloaded = |report: &Report| report.fact == Fact::Unloaded && report.placement == COPY;
    fake.reported("the copy is deleted", unloaded).await;
    // The copy stays deleted when a table of the same name exists and a row of the former one arrives late.
    fake.host("athens", &only(&fake)).await;
    assert_eq!(ask(&fake, Op::Get { key: "key-1".into() }).await.kind, ErrorKind::NotFound);
    node.stop().await.unwrap();
    // The disk holds nothing of it either.
    let node = fake.node("athens", directory.path()).await;
    assert_eq!(fake.known("athens").unwrap().held, []);
    node.stop().await.unwrap();
}

/// Deletions are ordered in portions; no duty names a copy that waits for its turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_table_is_not_served_before_its_deletion() {
    let directory = ScratchDirectory::in_memory().unwrap();
    let fake = Fake::start().await;
    let node = serving(&fake, directory.path()).await;
    push_dropped(&fake, Vec::new()).await;
    assert_eq!(ask(&fake, Op::Get { key: "key-1".into() }).await.kind, ErrorKind::NotFound);
    let stored = || fake.state.lock().loads.get(&COPY).copied();
    wait_for_state("its size is known", stored, Option::is_some).await;
    assert_eq!(metric(&node, "archon_node_placements"), 1, "it is kept until it is ordered deleted");
    node.stop().await.unwrap();
    let node = fake.node("athens", directory.path()).await;
    assert_eq!(fake.known("athens").unwrap().held, [COPY]);
    node.stop().await.unwrap();
}

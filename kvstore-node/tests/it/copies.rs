//! Tests of the copies that a node serves to loaders. The test plays the loader and the coordinator.

use crate::support::{Fake, PARTITION, row, seconds};
use archon_kv::row as rows;
use archon_proto::convert::error::detail_of;
use archon_proto::v1;
use archon_proto::v1::replication_client::ReplicationClient;
use archon_testkit::ScratchDirectory;
use archon_types::{
    Duty, Epoch, ErrorDetail, ErrorKind, Fact, NodeId, Partition, PlacementId, ReplicaState, Report, Seq,
};
use std::time::{Duration, Instant};
use tonic::Streaming;

const LIVE: ReplicaState = ReplicaState::Live;
const LOAD: ReplicaState = ReplicaState::Load;
/// Values of 8 MiB: so many bytes go to the engine at once, and fewer would gather for up to 15 s.
const KEYS: usize = 41;
/// Placement and node of the loader, which the test plays.
const LOADER: u64 = 2;
const LOADER_NODE: u64 = 99;
const OTHER: NodeId = NodeId::new(98);
/// Rate at which one page takes seconds, so that an event falls between two pages.
const SLOW: u64 = 64 * 1024;

async fn copy(fake: &Fake, epoch: u64, bytes_per_second: u64) -> Result<Streaming<v1::CopyPage>, ErrorDetail> {
    let known = fake.known("athens").unwrap();
    let client = ReplicationClient::connect(format!("http://{}", known.address)).await.unwrap();
    let request = v1::CopyRequest {
        cluster: Some(fake.cluster.into()),
        sender: Some(v1::Sender { id: LOADER_NODE, incarnation: 1_000_000 }),
        receiver: known.id.get(),
        partition: Some(PARTITION.into()),
        epoch,
        placement: LOADER,
        source: 1,
        bytes_per_second,
        ..Default::default()
    };
    let pages = client.max_decoding_message_size(1 << 24).copy(request).await;
    Ok(pages.map_err(|status| detail_of(&status))?.into_inner())
}

/// Reads pages to the end; returns the bytes of rows that came, if the last page was among them, and the error.
async fn read_on(pages: &mut Streaming<v1::CopyPage>) -> (usize, bool, Option<ErrorDetail>) {
    let mut bytes = 0;
    loop {
        let page = tokio::time::timeout(Duration::from_secs(60), pages.message()).await.expect("a page, or the end");
        match page {
            Ok(Some(page)) => {
                bytes += page.rows.len();
                if page.last {
                    return (bytes, true, None);
                }
            }
            Ok(None) => return (bytes, false, None),
            Err(status) => return (bytes, false, Some(detail_of(&status))),
        }
    }
}

fn loading(fake: &Fake) -> Partition {
    row(1, 2, 1, &[(1, fake.id("athens"), LIVE), (LOADER, NodeId::new(LOADER_NODE), LOAD), (3, OTHER, LOAD)])
}

/// Starts node athens as the leader of a partition of several pages, which placement 2 may copy.
async fn source(fake: &Fake, directory: &std::path::Path) -> archon_kvstore_node::Node {
    let node = fake.node("athens", directory).await;
    fake.played("thebes", NodeId::new(LOADER_NODE), 1);
    fake.host("athens", &row(1, 1, 1, &[(1, fake.id("athens"), LIVE)])).await;
    let mut kv = fake.kv("athens").await;
    let value = "v".repeat(200 * 1024);
    for number in 0..KEYS {
        kv.put_when_served(&format!("key-{number}"), &value).await;
    }
    fake.host("athens", &loading(fake)).await;
    // Committed entries reach the engine a moment later.
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let (bytes, last, _) = read_on(&mut copy(fake, 1, 0).await.unwrap()).await;
        if last && bytes > KEYS * value.len() {
            return node;
        }
        assert!(Instant::now() < until, "only {bytes} bytes of {KEYS} values can be copied");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Starts a slow copy, runs `happens`, and reads the remaining pages.
async fn spoilt(fake: &Fake, happens: impl AsyncFnOnce()) -> Option<ErrorDetail> {
    let mut pages = copy(fake, 1, SLOW).await.unwrap();
    let first = pages.message().await.unwrap().unwrap();
    assert!(!first.last && !first.rows.is_empty());
    happens().await;
    let (_, last, why) = read_on(&mut pages).await;
    assert!(!last, "the copy ended as whole although its source can no longer vouch for it");
    why
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copy_from_emptied_source_does_not_complete() {
    let directory = ScratchDirectory::in_memory().unwrap();
    let fake = Fake::start().await;
    let node = source(&fake, directory.path()).await;
    let why = spoilt(&fake, async || {
        let moved = row(
            2,
            3,
            3,
            &[(1, fake.id("athens"), ReplicaState::Unload), (LOADER, NodeId::new(LOADER_NODE), LOAD), (3, OTHER, LIVE)],
        );
        let unload = Duty::Unload { partition: PARTITION, placement: PlacementId::new(1) };
        fake.send("athens", fake.duties("athens", &moved, vec![unload])).await.unwrap();
        fake.reported("the source is emptied", |report| report.fact == Fact::Unloaded).await;
    })
    .await;
    assert_eq!(why.map(|why| why.kind), Some(ErrorKind::NotPartitionLeader));
    node.stop().await.unwrap();
}

/// A loader is complete only once its log reaches that position (PROTOCOL rule 27).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn last_page_names_highest_position_of_copied_rows() {
    let directory = ScratchDirectory::in_memory().unwrap();
    let fake = Fake::start().await;
    let node = source(&fake, directory.path()).await;
    let mut pages = copy(&fake, 1, 0).await.unwrap();
    let last = loop {
        let page = pages.message().await.unwrap().unwrap();
        if page.last {
            break page;
        }
    };
    let committed = rows::encode_position(Seq::new(KEYS as u64));
    let noted = [rows::POSITION_KEY, &committed].map(|part| last.rows.windows(part.len()).any(|found| found == part));
    assert_eq!(noted, [true, true]);
    node.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copy_ends_with_leadership_of_its_epoch() {
    let directory = ScratchDirectory::in_memory().unwrap();
    let fake = Fake::start().await;
    let node = source(&fake, directory.path()).await;
    let placements = [(1, fake.id("athens"), LIVE), (LOADER, NodeId::new(LOADER_NODE), LOAD), (3, OTHER, LIVE)];
    let why = spoilt(&fake, async || fake.host("athens", &row(2, 3, 3, &placements)).await).await;
    assert_eq!(why.map(|why| why.kind), Some(ErrorKind::NotPartitionLeader));
    // The node is no longer the leader, for any epoch in the request.
    for epoch in [1, 2] {
        assert_eq!(copy(&fake, epoch, 0).await.unwrap_err().kind, ErrorKind::NotPartitionLeader);
    }
    let alone = row(3, 4, 1, &[placements[0], placements[1]]);
    fake.host("athens", &alone).await;
    assert_eq!(copy(&fake, 1, 0).await.unwrap_err().kind, ErrorKind::NotPartitionLeader, "it leads another epoch");
    assert!(read_on(&mut copy(&fake, 3, 0).await.unwrap()).await.1);
    node.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copy_ends_when_replaced_or_source_set_aside() {
    let directory = ScratchDirectory::in_memory().unwrap();
    let fake = Fake::start().await;
    let node = source(&fake, directory.path()).await;
    // The same loader asks again, as it does after a broken connection: the former stream has no reader.
    let later = std::cell::RefCell::new(None);
    spoilt(&fake, async || *later.borrow_mut() = Some(copy(&fake, 1, SLOW).await.unwrap())).await;
    assert!(later.take().unwrap().message().await.unwrap().is_some_and(|page| !page.last));
    spoilt(&fake, async || {
        let gone = row(2, 3, 3, &[(LOADER, NodeId::new(LOADER_NODE), LOAD), (3, OTHER, LIVE)]);
        fake.send("athens", fake.duties("athens", &gone, vec![])).await.unwrap();
    })
    .await;
    // The leadership, which no longer answers requests, is released too.
    let released = |report: &Report| report.fact == Fact::Released && report.epoch == Epoch::new(1);
    fake.reported("what is set aside is released", released).await;
    node.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopping_node_ends_copies_it_serves() {
    let directory = ScratchDirectory::in_memory().unwrap();
    let fake = Fake::start().await;
    let node = source(&fake, directory.path()).await;
    let mut pages = copy(&fake, 1, SLOW).await.unwrap();
    assert!(!pages.message().await.unwrap().unwrap().last);
    let stopping = tokio::spawn(node.stop());
    assert!(!read_on(&mut pages).await.1);
    stopping.await.unwrap().unwrap();
}

/// The node ended after it emptied the copy and before it reported that; the coordinators must not count the copy as
/// complete.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn empty_copy_is_reported_after_restart() {
    let directory = ScratchDirectory::in_memory().unwrap();
    let fake = Fake::start().await;
    let node = fake.node("athens", directory.path()).await;
    fake.host("athens", &row(1, 1, 3, &[(1, fake.id("athens"), LOAD), (3, OTHER, LIVE)])).await;
    node.stop().await.unwrap();
    let node = fake.node("athens", directory.path()).await;
    fake.host("athens", &row(1, 2, 3, &[(1, fake.id("athens"), LOAD), (3, OTHER, LIVE)])).await;
    let emptied = |report: &Report| report.fact == Fact::Emptied;
    let report = fake.reported("the copy is empty", emptied).await;
    assert_eq!(report.placement, PlacementId::new(1));
    node.stop().await.unwrap();
}

/// Copies share the disk and CPU with client operations, so the source pauses between pages while clients use the node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copy_pauses_while_clients_use_source() {
    let directory = ScratchDirectory::in_memory().unwrap();
    let fake = Fake::start().await;
    let node = source(&fake, directory.path()).await;
    let rested = || seconds(&node, "copy_rest_seconds_total");
    let copied = async |bytes_per_second| {
        let before = rested();
        let (_, last, _) = read_on(&mut copy(&fake, 1, bytes_per_second).await.unwrap()).await;
        assert!(last);
        rested() - before
    };
    let mut kv = fake.kv("athens").await;
    let reads = tokio::spawn(async move {
        loop {
            kv.get("key-0").await.unwrap();
        }
    });
    // The first copy starts the measurement of client use.
    copied(0).await;
    assert!(copied(0).await > 0.0, "clients use the node");
    assert_eq!(copied(u64::MAX).await, 0.0, "the loader wants it without limit");
    reads.abort();
    let until = Instant::now() + Duration::from_secs(60);
    while copied(0).await > 0.0 {
        assert!(Instant::now() < until, "nobody uses the node any more");
    }
    node.stop().await.unwrap();
}

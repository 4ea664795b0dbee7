//! Tests of pings, as the processes that watch a node's reachability send them.

use crate::support::Fake;
use crate::support::stream::exchange;
use archon_proto::v1;
use archon_testkit::ScratchDirectory;
use archon_types::{ErrorKind, NodeId};
use std::time::{Duration, Instant};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ping_is_answered_and_ping_for_another_node_refused() {
    let directory = ScratchDirectory::in_memory().unwrap();
    let fake = Fake::start().await;
    let node = fake.node("athens", directory.path()).await;
    let (address, own) = (fake.known("athens").unwrap().address, fake.id("athens"));
    let ping = |node: NodeId, ping| v1::OpBatch {
        cluster: Some(fake.cluster.into()),
        node: node.get(),
        ping,
        ..Default::default()
    };
    let until = Instant::now() + Duration::from_secs(60);
    let (mut answers, accepted) = loop {
        let mut answers = exchange(&address, &ping(own, 7)).await;
        match answers.next::<v1::ReplyBatch>().await {
            Ok(accepted) => break (answers, accepted),
            Err(refused) => {
                // The node may not have processed its registration yet.
                let why = refused.into_detail();
                assert!(why.kind == ErrorKind::Unavailable && Instant::now() < until, "{why:?}");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    };
    let ponged = match accepted.pong {
        0 => answers.next::<v1::ReplyBatch>().await.unwrap(),
        _ => accepted,
    };
    assert_eq!((ponged.pong, ponged.replies.len()), (7, 0));
    let mut refused = exchange(&address, &ping(NodeId::new(own.get() + 1), 7)).await;
    let why = refused.next::<v1::ReplyBatch>().await.unwrap_err().into_detail();
    assert_eq!(why.kind, ErrorKind::WrongNode);
    let with_operations = v1::OpBatch { ops: vec![1].into(), ..ping(own, 7) };
    let mut refused = exchange(&address, &with_operations).await;
    let mut said = refused.next::<v1::ReplyBatch>().await;
    if said.is_ok() {
        said = refused.next::<v1::ReplyBatch>().await;
    }
    assert_eq!(said.unwrap_err().into_detail().kind, ErrorKind::InvalidArgument);
    node.stop().await.unwrap();
}

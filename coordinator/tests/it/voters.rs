//! Coordinators that are no voters of this quorum, or no longer the former ones.

use crate::common::{self, Quorum, ask_within, request_id, status};
use crate::{SOON, settings};
use archon_coordinator::{Coordinator, CoordinatorError};
use archon_documents::ShowStatus;
use archon_proto::v1;
use archon_testkit::{ScratchDirectory, wait_for_async};
use std::time::Duration;
use tokio::net::TcpListener;

#[tokio::test(flavor = "multi_thread")]
async fn wiped_voter_is_refused() {
    let mut quorum = Quorum::start(3, settings(1, 4)).await;
    let leader = quorum.leader().await;
    let victim = quorum.peers.keys().copied().find(|id| *id != leader).unwrap();
    let gone = quorum.running.remove(&victim).unwrap();
    gone.stop().await;

    quorum.dirs.insert(victim, ScratchDirectory::in_memory().unwrap());
    quorum.restart(victim).await;
    let wiped = quorum.running.remove(&victim).unwrap();
    tokio::time::timeout(SOON, wiped.failed()).await.expect("the wiped voter was not refused");
    let cause = wiped.shutdown().await.expect("there must be a cause");
    assert!(matches!(cause, CoordinatorError::WipedVoter { id, .. } if id == victim), "{cause}");
    // The other two continue.
    quorum.status().await;
    quorum.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn voter_without_identity_and_incomplete_start_are_refused() {
    let mut quorum = Quorum::start(3, settings(1, 4)).await;
    let leader = quorum.leader().await;
    let victim = quorum.peers.keys().copied().find(|id| *id != leader).unwrap();
    quorum.running.remove(&victim).unwrap().stop().await;
    std::fs::remove_file(quorum.dirs[&victim].path().join("identity.json")).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let refused = Coordinator::start(listener, quorum.config(victim)).await.err().expect("it got a new identity");
    assert!(refused.to_string().contains("restore that file"), "{refused}");
    quorum.stop_all().await;

    // At the first start all of them must run; an absent one is named.
    let mut quorum = Quorum::start(2, settings(1, 4)).await;
    let absent = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string();
    for id in [1, 2] {
        quorum.running.remove(&id).unwrap().stop().await;
        quorum.dirs.insert(id, ScratchDirectory::in_memory().unwrap());
    }
    quorum.peers.insert(3, absent.clone());
    quorum.dirs.insert(3, ScratchDirectory::in_memory().unwrap());
    quorum.restart(1).await;
    quorum.restart(2).await;
    let one = quorum.peers[&1].clone();
    let expected = format!("and coordinator 3 at {absent} does not answer");
    wait_for_async("the missing one to be named", SOON, || async {
        let refused = ask_within(&one, &ShowStatus {}, Duration::from_millis(100)).await.unwrap_err();
        if refused.message.ends_with(&expected) { Ok(()) } else { Err(refused.to_string()) }
    })
    .await;
    for (_, coordinator) in quorum.running {
        coordinator.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn coordinators_of_another_quorum_are_not_heard() {
    let quorum = Quorum::start(1, settings(1, 4)).await;
    let leader = quorum.leader_address().await;
    let mut client = v1::raft_client::RaftClient::new(common::channel(&leader));
    let uuid = request_id;
    let hello =
        v1::HelloRequest { cluster_id: uuid(), sender: 2, target: 1, sender_storage: uuid(), ..Default::default() };
    let refused = client.hello(hello).await.unwrap_err();
    assert!(refused.message().contains("differ from its founders"), "{refused}");
    // A body that does not decode is an error as well, and the coordinator goes on.
    for body in [&b""[..], b"\xc1", b"\xff\xff\xff\xff", b"\x93\x01\x02\x03"] {
        let message = v1::RaftMessage {
            cluster_id: uuid(),
            sender: 2,
            target: 1,
            protocol_min: 1,
            protocol_max: 2,
            format: 1,
            body: bytes::Bytes::copy_from_slice(body),
            sender_storage: uuid(),
            lack: None,
            snapshot_waits: false,
            certificate: None,
            ..Default::default()
        };
        assert!(client.vote(message.clone()).await.is_err());
        assert!(client.pre_vote(message.clone()).await.is_err());
        assert!(client.transfer(message.clone()).await.is_err());
        let mut answers = client.append(tokio_stream::iter([message])).await.unwrap().into_inner();
        assert!(answers.message().await.is_err());
    }
    status(&leader).await.unwrap();
    quorum.stop_all().await;
}

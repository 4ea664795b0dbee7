//! Elections, and decisions that need a majority.

use crate::common::{FakeNode, Quorum, ask, ask_as, ask_within, channel, hashed, kind, request_id, status, table};
use crate::{LONG_LEASES, SOON, serves, settings, settle};
use archon_documents::{ShowQuorum, ShowStatus};
use archon_proto::v1;
use archon_proto::v1::table_client::TableClient;
use archon_testkit::wait_for_async;
use archon_types::ErrorKind;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn coordinator_without_leader_is_not_ready() {
    let mut quorum = Quorum::start(3, settings(1, 4)).await;
    let left = quorum.leader().await;
    let others: Vec<u64> = quorum.peers.keys().copied().filter(|id| *id != left).collect();
    let address = quorum.peers[&left].clone();
    assert!(serves(&address, "").await);
    for id in others {
        quorum.running.remove(&id).unwrap().stop().await;
    }
    wait_for_async("the one that is left to see that nobody follows it", SOON, || async {
        if serves(&address, "").await { Err("it says that it serves".to_owned()) } else { Ok(()) }
    })
    .await;
    assert!(!serves(&address, "archon.v1.Admin").await);
    quorum.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn leader_is_elected_and_succeeded() {
    let mut quorum = Quorum::start(3, settings(2, 9)).await;
    let leader = quorum.leader_address().await;
    let waiting = table(&leader, 0).await.unwrap_err();
    assert_eq!((waiting.kind, waiting.have, waiting.need), (ErrorKind::NotEnoughNodes, Some(0), Some(2)));
    let as_it_is = v1::GetTableRequest { unassigned: true, ..v1::GetTableRequest::default() };
    let shown = TableClient::new(channel(&leader)).get_table(as_it_is).await.unwrap().into_inner().delta.unwrap();
    let unassigned = |row: &v1::Partition| row.status() == v1::PartitionStatus::Unassigned && row.placements.is_empty();
    assert!(shown.partitions.len() == 9 && shown.partitions.iter().all(unassigned), "{shown:?}");

    let mut nodes = vec![FakeNode::new("athens").await, FakeNode::new("byzantium").await];
    for node in &mut nodes {
        node.register(&leader).await.unwrap();
        let answer = node.heartbeat(&leader).await.unwrap();
        assert_eq!((answer.lease_ms, answer.withdrawn), (LONG_LEASES.lease_ms, vec![]));
    }
    settle(&quorum, &mut nodes, 9).await;
    let found = status(&leader).await.unwrap();
    assert_eq!((found.nodes_alive, found.partitions_total, found.partitions_online), (2, 9, 9));
    assert_eq!(found.coordinators.len(), 3);
    for address in quorum.peers.values() {
        assert!(serves(address, "").await && serves(address, "archon.v1.Session").await, "{address} knows a leader");
    }
    assert_eq!(nodes[0].duties().len() + nodes[1].duties().len(), 9);
    let delta = table(&leader, 0).await.unwrap().delta.unwrap();
    assert_eq!(delta.partitions.len(), 9);

    // Any other coordinator names the leader and serves the table.
    let id = quorum.leader().await;
    let other = quorum.peers.iter().find(|(other, _)| **other != id).map(|(_, address)| address.clone()).unwrap();
    let refused = status(&other).await.unwrap_err();
    assert_eq!((refused.kind, refused.leader.as_deref()), (ErrorKind::NotCoordinatorLeader, Some(leader.as_str())));
    wait_for_async("the table at a follower", SOON, || async {
        table(&other, 500).await.map_err(|error| error.to_string())
    })
    .await;

    // It stops without a handover, as in a crash.
    let cluster = found.cluster_id.clone();
    let gone = quorum.running.remove(&id).unwrap();
    assert!(gone.stop().await.is_none());
    let successor = quorum.leader_address().await;
    let after = wait_for_async("status from another coordinator", SOON, || async {
        status(&successor).await.map_err(|error| error.to_string())
    })
    .await;
    assert_eq!((after.cluster_id.clone(), after.partitions_total), (cluster, 9));
    assert!(after.term > found.term);
    for node in &mut nodes {
        node.heartbeat(&successor).await.unwrap();
    }

    // The stopped one comes back and catches up.
    quorum.restart(id).await;
    let address = quorum.peers[&id].clone();
    wait_for_async("the restarted one to have it all", SOON, || async {
        let view = ask(&address, &ShowQuorum {}).await.map_err(|error| error.to_string())?;
        if view.leader_id.is_some() && view.cluster_id == after.cluster_id { Ok(()) } else { Err(format!("{view:?}")) }
    })
    .await;
    quorum.stop_all().await;
}

/// A deposed coordinator without that knowledge refused a report that had become true since, and the node forgot it.
#[tokio::test(flavor = "multi_thread")]
async fn report_is_answered_only_by_proven_leader() {
    let mut quorum = Quorum::start(3, settings(1, 4)).await;
    let id = quorum.leader().await;
    let leader = quorum.leader_address().await;
    let mut nodes = vec![FakeNode::new("athens").await];
    nodes[0].register(&leader).await.unwrap();
    settle(&quorum, &mut nodes, 4).await;
    // A known fact is answered without a commit.
    let answered = nodes[0].report_online(&leader).await.unwrap();
    assert_eq!(answered.outcomes.len(), 4, "{answered:?}");
    for other in quorum.peers.keys().copied().filter(|other| *other != id).collect::<Vec<_>>() {
        quorum.running.remove(&other).unwrap().stop().await;
    }
    // In either case the report is not answered.
    let refused = nodes[0].report_online(&leader).await.unwrap_err();
    assert!(refused.kind.is_retryable(), "{refused:?}");
    quorum.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_quorum_nothing_is_granted() {
    let mut quorum = Quorum::start(3, settings(1, 4)).await;
    let leader = quorum.leader().await;
    let address = quorum.peers[&leader].clone();
    let mut athens = FakeNode::new("athens").await;
    athens.register(&address).await.unwrap();
    athens.heartbeat(&address).await.unwrap();
    let others: Vec<u64> = quorum.running.keys().copied().filter(|id| *id != leader).collect();
    for id in others {
        let gone = quorum.running.remove(&id).unwrap();
        assert!(gone.stop().await.is_none());
    }
    // It may also have been silent for too long while the others stopped.
    let refused = kind(athens.heartbeat(&address).await);
    let expected = [ErrorKind::NoQuorum, ErrorKind::NotCoordinatorLeader, ErrorKind::StaleIncarnation];
    assert!(expected.contains(&refused), "{refused}");
    let refused = ask_within(&address, &ShowStatus {}, Duration::from_millis(800)).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::NoQuorum, "{refused:?}");
    // Requests without need of a quorum are still answered.
    ask(&address, &ShowQuorum {}).await.unwrap();
    quorum.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn state_survives_a_restart_of_the_whole_quorum() {
    let mut quorum = Quorum::start(3, settings(1, 4)).await;
    let cluster = quorum.cluster().await;
    let leader = quorum.leader_address().await;
    let id = request_id();
    let created = ask_as(&leader, &hashed("orders", 7), &id).await.unwrap();
    // A repetition under the same id is the same request.
    assert_eq!(ask_as(&leader, &hashed("orders", 7), &id).await.unwrap(), created);
    let ids: Vec<u64> = quorum.running.keys().copied().collect();
    for id in &ids {
        let gone = quorum.running.remove(id).unwrap();
        gone.stop().await;
    }
    for id in ids {
        quorum.restart(id).await;
    }
    let found = quorum.status().await;
    assert_eq!((quorum.cluster().await, found.partitions_total), (cluster, 11));
    quorum.stop_all().await;
}

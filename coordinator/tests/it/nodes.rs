//! Nodes: incarnations, impostors, and reports about them.

use crate::common::{self, FakeNode, Quorum, ask, ask_of, kind, request_id, status, table};
use crate::{SOON, settings, settle, short_leases};
use archon_documents::{DescribePartition, ListEvents, ListNodes, PartitionCopy, PartitionName, Reason, ShowStatus};
use archon_proto::convert::error::detail_of;
use archon_proto::v1;
use archon_testkit::wait_for_async;
use archon_types::{ErrorKind, ReasonCode};
use prost::Message as _;
use std::time::{SystemTime, UNIX_EPOCH};

/// Registers a node in a new incarnation, with the copies that it had.
async fn return_with_copies(node: &mut FakeNode, leader: &str) {
    let before = node.incarnation;
    node.boot = request_id();
    let mut again = node.registration();
    again.held = node
        .duties()
        .iter()
        .filter_map(|duty| match duty.duty.as_ref()? {
            v1::duty::Duty::Host(host) => Some(host.placement),
            _ => None,
        })
        .collect();
    let mut client = v1::session_client::SessionClient::new(common::channel(leader));
    let answer = client.register(again).await.unwrap().into_inner();
    assert!(answer.incarnation > before && answer.node == node.id);
    node.incarnation = answer.incarnation;
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_node_is_failed_and_returns() {
    let quorum = Quorum::start(1, short_leases(1, 4)).await;
    let leader = quorum.leader_address().await;
    let mut nodes = vec![FakeNode::new("athens").await];
    nodes[0].register(&leader).await.unwrap();
    settle(&quorum, &mut nodes, 4).await;
    wait_for_async("the node to be failed", SOON, || async {
        let found = status(&leader).await.map_err(|error| error.to_string())?;
        if found.nodes_failed == 1 && found.partitions_online == 0 { Ok(()) } else { Err(format!("{found:?}")) }
    })
    .await;
    assert_eq!(kind(nodes[0].heartbeat(&leader).await), ErrorKind::StaleIncarnation);
    return_with_copies(&mut nodes[0], &leader).await;
    settle(&quorum, &mut nodes, 4).await;
    quorum.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_and_impostors_are_refused() {
    let quorum = Quorum::start(1, settings(1, 4)).await;
    let leader = quorum.leader_address().await;
    let mut athens = FakeNode::new("athens").await;
    athens.register(&leader).await.unwrap();
    athens.heartbeat(&leader).await.unwrap();

    // The name of an alive node, from another disk.
    let mut impostor = FakeNode::new("athens").await;
    assert_eq!(kind(impostor.register(&leader).await), ErrorKind::NameTaken);
    // A node of another cluster.
    let mut stranger = FakeNode::new("sparta").await;
    stranger.cluster = Some(v1::ClusterRef { cluster_id: request_id() });
    assert_eq!(kind(stranger.register(&leader).await), ErrorKind::WrongCluster);
    // A heartbeat, a report and a status for another cluster.
    let own = std::mem::replace(&mut athens.cluster, stranger.cluster.clone());
    assert_eq!(kind(athens.heartbeat(&leader).await), ErrorKind::WrongCluster);
    assert_eq!(kind(athens.report_online(&leader).await), ErrorKind::WrongCluster);
    let wrong = ask_of(&leader, &ShowStatus {}, stranger.cluster.clone()).await.unwrap_err();
    assert_eq!(wrong.kind, ErrorKind::WrongCluster);
    athens.cluster = own;
    // An older and an unknown incarnation.
    athens.incarnation -= 1;
    assert_eq!(kind(athens.heartbeat(&leader).await), ErrorKind::StaleIncarnation);
    athens.incarnation += 1;
    athens.heartbeat(&leader).await.unwrap();
    quorum.stop_all().await;
}

/// A process that knew a data directory's id could fence its node and have all its copies given up, and the id was
/// public.
#[tokio::test(flavor = "multi_thread")]
async fn stranger_cannot_fence_live_node_by_registering() {
    let quorum = Quorum::start(1, short_leases(1, 4)).await;
    let leader = quorum.leader_address().await;
    let mut nodes = vec![FakeNode::new("athens").await];
    nodes[0].register(&leader).await.unwrap();
    settle(&quorum, &mut nodes, 4).await;
    let life = nodes[0].incarnation;

    // It knows everything but the answer of the process at the node's address.
    let mut stolen = nodes[0].registration();
    stolen.boot_id = request_id();
    let mut session = v1::session_client::SessionClient::new(common::channel(&leader));
    let refused = detail_of(&session.register(stolen.clone()).await.unwrap_err());
    assert_eq!(refused.kind, ErrorKind::NameTaken, "{refused}");
    nodes[0].heartbeat(&leader).await.unwrap();
    assert_eq!(status(&leader).await.unwrap().partitions_online, 4);

    // That process was started again, and its new incarnation is accepted at once.
    nodes[0].boot = request_id();
    nodes[0].register(&leader).await.unwrap();
    assert!(nodes[0].incarnation > life);
    nodes[0].heartbeat(&leader).await.unwrap();

    // No process answers: the registration is accepted once the recorded incarnation is failed.
    nodes[0].hang_up();
    stolen = nodes[0].registration();
    stolen.boot_id = request_id();
    let refused = detail_of(&session.register(stolen.clone()).await.unwrap_err());
    assert_eq!(refused.kind, ErrorKind::Unavailable, "{refused}");
    wait_for_async("the silent node's name to be free", SOON, || {
        let (mut session, stolen) = (session.clone(), stolen.clone());
        async move { session.register(stolen).await.map(|_| ()).map_err(|status| status.to_string()) }
    })
    .await;
    quorum.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ids_of_data_directories_stay_secret() {
    let quorum = Quorum::start(1, settings(1, 4)).await;
    let leader = quorum.leader_address().await;
    let mut nodes = vec![FakeNode::new("athens").await];
    nodes[0].register(&leader).await.unwrap();
    settle(&quorum, &mut nodes, 4).await;
    wait_for_async("the nodes to be pushed", SOON, || async {
        if nodes[0].pushed.tables.lock().unwrap().nodes > 0 { Ok(()) } else { Err("none yet".to_owned()) }
    })
    .await;
    let table = table(&leader, 0).await.unwrap();
    let listed = ask(&leader, &ListNodes {}).await.unwrap();
    assert_eq!(table.delta.as_ref().map(|delta| delta.nodes.len()), Some(1));
    assert_eq!(listed.nodes.len(), 1);
    let pushed = nodes[0].pushed.tables.lock().unwrap().nodes_encoded.clone();
    for told in [table.encode_to_vec(), pushed] {
        assert!(told.len() > nodes[0].storage.len());
        assert!(!told.windows(16).any(|bytes| bytes == nodes[0].storage), "{told:?}");
    }
    let storage = uuid::Uuid::from_slice(&nodes[0].storage).unwrap();
    let named = |text: String| text.contains(&storage.to_string()) || text.contains(&storage.simple().to_string());
    assert!(!named(serde_json::to_string(&listed).unwrap()), "{listed:?}");
    // The log's events do not name it either.
    let events = ask(&leader, &ListEvents::default()).await.unwrap();
    assert!(!named(serde_json::to_string(&events).unwrap()), "{events:?}");
    quorum.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn full_disk_is_reported_and_unheard_node_has_no_silence() {
    let mut quorum = Quorum::start(1, settings(2, 4)).await;
    let leader = quorum.leader_address().await;
    let mut athens = FakeNode::new("athens").await;
    let mut corinth = FakeNode::new("corinth").await;
    for node in [&mut athens, &mut corinth] {
        node.register(&leader).await.unwrap();
        node.heartbeat(&leader).await.unwrap();
    }
    let assigned = || async { table(&leader, 0).await.map_err(|error| error.to_string()) };
    wait_for_async("the first assignment", SOON, assigned).await;
    let disk_full = Some(v1::DiskFull { free_bytes: 5 << 20, needed_bytes: 64 << 20, limit: 0 });
    let placements = vec![v1::PlacementLoad { placement: 1, bytes: 7, keys: 3 }];
    let full =
        v1::NodeLoad { disk_full, bytes_stored: 7, operations_per_second: 9, placements, ..v1::NodeLoad::default() };
    athens.heartbeat_saying(&leader, Some(full)).await.unwrap();
    let reasons = status(&leader).await.unwrap().reasons;
    let reason = reasons.iter().find(|reason| reason.code == ReasonCode::DiskFull).expect("a reason");
    assert_eq!(reason.subject.to_string(), "node athens");
    assert!(reason.message.contains("5 MiB are free, 64 MiB are needed"), "{reason:?}");
    let mut on_athens = 0;
    for partition in 0..4 {
        let request = DescribePartition { partition: PartitionName::new("default", partition) };
        let described = ask(&leader, &request).await.unwrap();
        let name = |copy: &PartitionCopy| copy.node == "athens";
        let told = described.reasons.first().is_some_and(|reason| {
            reason.code == ReasonCode::DiskFull
                && reason.remedy.as_ref().is_some_and(|remedy| remedy.contains("free disk space on athens"))
        });
        assert_eq!(told, described.copies.iter().any(name), "{described:?}");
        on_athens += u32::from(told);
    }
    assert!(on_athens > 0, "it holds no copy");
    let listed = ask(&leader, &ListNodes {}).await.unwrap().nodes;
    assert_eq!((listed[0].disk_full, listed[0].bytes_stored), (true, Some(7)));
    assert_eq!((listed[0].keys_stored, listed[0].operations_per_second), (Some(3), Some(9)));
    assert!(listed[0].silent_for_ms.is_some() && !listed[1].disk_full);
    // There is space again: the reason disappears with the next report of its load.
    athens.heartbeat(&leader).await.unwrap();
    let reasons = status(&leader).await.unwrap().reasons;
    assert!(
        reasons.iter().any(|reason| reason.code == ReasonCode::DiskFull),
        "who says nothing of it says what it said: {reasons:?}"
    );
    athens.heartbeat_saying(&leader, Some(v1::NodeLoad::default())).await.unwrap();
    let reasons = status(&leader).await.unwrap().reasons;
    assert!(reasons.iter().all(|reason| reason.code != ReasonCode::DiskFull), "{reasons:?}");

    // A coordinator without a heartbeat of a node does not report a recent one.
    let id = quorum.leader().await;
    quorum.running.remove(&id).unwrap().stop().await;
    quorum.restart(id).await;
    let leader = quorum.leader_address().await;
    let listed = ask(&leader, &ListNodes {}).await.unwrap().nodes;
    assert!(
        listed
            .iter()
            .all(|node| node.silent_for_ms.is_none() && node.bytes_stored.is_none() && node.keys_stored.is_none()),
        "{listed:?}"
    );
    quorum.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pinned_log_is_reported_with_node_and_partition() {
    let quorum = Quorum::start(1, settings(1, 4)).await;
    let leader = quorum.leader_address().await;
    let mut athens = FakeNode::new("athens").await;
    athens.register(&leader).await.unwrap();
    athens.heartbeat(&leader).await.unwrap();
    let assigned = || async { table(&leader, 0).await.map_err(|error| error.to_string()) };
    wait_for_async("the first assignment", SOON, assigned).await;
    let pinned =
        |placement| v1::NodeLoad { log_pin: Some(v1::LogPin { placement, bytes: 3 << 30 }), ..v1::NodeLoad::default() };
    athens.heartbeat_saying(&leader, Some(pinned(1))).await.unwrap();
    let found = |reasons: Vec<Reason>| reasons.into_iter().find(|reason| reason.code == ReasonCode::LogPinned);
    let reason = found(status(&leader).await.unwrap().reasons).expect("a reason");
    assert_eq!(reason.subject.to_string(), "node athens");
    assert!(reason.message.contains("3072 MiB of the log of athens"), "{reason:?}");
    assert!(reason.message.contains("replica 1 of partition "), "{reason:?}");
    athens.heartbeat_saying(&leader, Some(pinned(77))).await.unwrap();
    let reason = found(status(&leader).await.unwrap().reasons).expect("a reason");
    assert!(reason.message.contains("replica 77, which no partition names"), "{reason:?}");
    athens.heartbeat_saying(&leader, Some(v1::NodeLoad::default())).await.unwrap();
    assert_eq!(found(status(&leader).await.unwrap().reasons), None);
    quorum.stop_all().await;
}

/// It was shown as failed, and only the log on its machine named the cause.
#[tokio::test(flavor = "multi_thread")]
async fn node_that_waits_for_disk_space_is_named_and_stays_failed() {
    let quorum = Quorum::start(1, short_leases(1, 4)).await;
    let leader = quorum.leader_address().await;
    let mut nodes = vec![FakeNode::new("athens").await];
    nodes[0].register(&leader).await.unwrap();
    settle(&quorum, &mut nodes, 4).await;
    let report = |node: &FakeNode| v1::WaitForSpaceRequest {
        cluster: node.cluster.clone(),
        name: "athens".to_owned(),
        storage_id: node.storage.clone(),
        disk_full: Some(v1::DiskFull { free_bytes: 3 << 20, needed_bytes: 48 << 20, limit: 0 }),
        waited_ms: 60_000,
    };
    let send = async |request| {
        let mut session = v1::session_client::SessionClient::new(common::channel(&leader));
        session.wait_for_space(request).await.map(|_| ()).map_err(|status| detail_of(&status))
    };
    let failed = async || {
        let found = status(&leader).await.map_err(|error| error.to_string())?;
        let reason = found.reasons.iter().find(|reason| reason.code == ReasonCode::NodeFailed).cloned();
        reason.ok_or_else(|| format!("{found:?}"))
    };
    // A report of a node that still counts as alive is not shown.
    send(report(&nodes[0])).await.unwrap();
    wait_for_async("the node to be failed", SOON, &failed).await;
    send(report(&nodes[0])).await.unwrap();
    let reason = failed().await.unwrap();
    assert!(reason.message.starts_with("athens at ") && reason.message.contains("waits for disk space"), "{reason:?}");
    assert!(reason.message.contains("3 MiB are free, 48 MiB are needed"), "{reason:?}");
    assert!(reason.remedy.as_deref() == Some("free disk space on athens; it then starts by itself"), "{reason:?}");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
    let waited_ms = now - u128::from(reason.began_at_ms.unwrap());
    assert!(waited_ms >= 60_000, "the wait began a minute ago: {reason:?}");
    // It is no sign of life: the old incarnation stays fenced, nothing is led, and the copies are where they were.
    assert_eq!(kind(nodes[0].heartbeat(&leader).await), ErrorKind::StaleIncarnation);
    let found = status(&leader).await.unwrap();
    assert_eq!((found.nodes_failed, found.partitions_online), (1, 0), "{found:?}");
    // Reports of another directory are ignored, and those of another cluster refused.
    let stranger = FakeNode::new("athens").await;
    send(v1::WaitForSpaceRequest { cluster: nodes[0].cluster.clone(), ..report(&stranger) }).await.unwrap();
    let wrong =
        v1::WaitForSpaceRequest { cluster: Some(v1::ClusterRef { cluster_id: request_id() }), ..report(&nodes[0]) };
    assert_eq!(send(wrong).await.unwrap_err().kind, ErrorKind::WrongCluster);
    // It returns with its copies, which are in sync as before.
    return_with_copies(&mut nodes[0], &leader).await;
    settle(&quorum, &mut nodes, 4).await;
    quorum.stop_all().await;
}

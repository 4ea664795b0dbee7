//! Three coordinators in one process: election, registration, heartbeats, fail-over, and everything that is refused.

#![allow(clippy::unwrap_used)]

mod common;

use archon_coordinator::{Coordinator, CoordinatorError};
use archon_proto::convert::error::detail_of;
use archon_proto::v1;
use archon_proto::v1::session_client::SessionClient;
use archon_types::{ErrorKind, Settings};
use common::{FakeNode, Quorum, admin, kind, request_id, status, table, wait_for};
use prost::Message as _;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

const SOON: Duration = Duration::from_secs(10);

fn settings(nodes_min: u32, partitions: u16) -> Settings {
    Settings { nodes_min, partitions, ..Settings::default() }
}

/// Keeps the nodes alive and their partitions served until the table is online.
async fn settle(quorum: &Quorum, nodes: &mut [FakeNode], partitions: u32) {
    let begun = Instant::now();
    loop {
        let leader = quorum.leader_address().await;
        for node in nodes.iter_mut() {
            let _ = node.heartbeat(&leader).await;
            let _ = node.report_online(&leader).await;
        }
        let last = status(&leader).await;
        if last.as_ref().is_ok_and(|status| status.partitions_online == partitions) {
            return;
        }
        assert!(begun.elapsed() < SOON, "not all online; last: {last:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// What a coordinator's health says of a service, or of all of it (the empty name).
async fn serves(address: &str, service: &str) -> bool {
    let mut client = HealthClient::new(common::channel(address));
    let answer = client.check(HealthCheckRequest { service: service.to_owned() }).await.unwrap().into_inner();
    answer.status() == ServingStatus::Serving
}

#[tokio::test(flavor = "multi_thread")]
async fn a_coordinator_without_a_leader_said_that_it_serves() {
    let mut quorum = Quorum::start(3, settings(1, 4)).await;
    let left = quorum.leader().await;
    let others: Vec<u64> = quorum.peers.keys().copied().filter(|id| *id != left).collect();
    let address = quorum.peers[&left].clone();
    assert!(serves(&address, "").await);
    for id in others {
        quorum.running.remove(&id).unwrap().stop().await;
    }
    wait_for("the one that is left to see that nobody follows it", SOON, || async {
        if serves(&address, "").await { Err("it says that it serves".to_owned()) } else { Ok(()) }
    })
    .await;
    assert!(!serves(&address, "archon.v1.Admin").await);
    quorum.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_is_elected_nodes_join_and_another_takes_over() {
    let mut quorum = Quorum::start(3, settings(2, 9)).await;
    let leader = quorum.leader_address().await;
    let waiting = table(&leader, 0).await.unwrap_err();
    assert_eq!((waiting.kind, waiting.have, waiting.need), (ErrorKind::NotEnoughNodes, Some(0), Some(2)));

    let mut nodes = vec![FakeNode::new("athens").await, FakeNode::new("byzantium").await];
    for node in &mut nodes {
        node.register(&leader).await.unwrap();
        let answer = node.heartbeat(&leader).await.unwrap();
        assert_eq!((answer.number, answer.incarnation, answer.lease_ms), (1, node.incarnation, 1_000));
    }
    settle(&quorum, &mut nodes, 9).await;
    let found = status(&leader).await.unwrap();
    assert_eq!((found.nodes_live, found.partitions, found.partitions_online), (2, 9, 9));
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
    wait_for("the table at a follower", SOON, || async { table(&other, 500).await.map_err(|error| error.to_string()) })
        .await;

    // Without a word, as in a crash.
    let cluster = found.cluster.clone();
    let gone = quorum.running.remove(&id).unwrap();
    let begun = Instant::now();
    assert!(gone.stop().await.is_none());
    let successor = quorum.leader_address().await;
    let after = wait_for("status from another coordinator", SOON, || async {
        status(&successor).await.map_err(|error| error.to_string())
    })
    .await;
    assert!(begun.elapsed() < Duration::from_secs(5), "took {:?}", begun.elapsed());
    assert_eq!((after.cluster.clone(), after.partitions), (cluster, 9));
    assert!(after.term > found.term);
    for node in &mut nodes {
        node.heartbeat(&successor).await.unwrap();
    }

    // The one that was gone comes back and catches up.
    quorum.restart(id).await;
    let address = quorum.peers[&id].clone();
    wait_for("the restarted one to have it all", SOON, || async {
        let view = admin(&address).quorum(v1::QuorumRequest::default()).await;
        let view = view.map_err(|error| error.to_string())?.into_inner();
        if view.leader.is_some() && view.cluster == after.cluster { Ok(()) } else { Err(format!("{view:?}")) }
    })
    .await;
    quorum.stop_all().await;
}

/// A coordinator that was succeeded without noticing refused what had become true since, and the node forgot it.
#[tokio::test(flavor = "multi_thread")]
async fn a_report_is_answered_only_by_a_coordinator_that_proves_to_lead() {
    let mut quorum = Quorum::start(3, settings(1, 4)).await;
    let id = quorum.leader().await;
    let leader = quorum.leader_address().await;
    let mut nodes = vec![FakeNode::new("athens").await];
    nodes[0].register(&leader).await.unwrap();
    settle(&quorum, &mut nodes, 4).await;
    // What is known already is answered without a commit.
    let answered = nodes[0].report_online(&leader).await.unwrap();
    assert_eq!(answered.outcomes.len(), 4, "{answered:?}");
    for other in quorum.peers.keys().copied().filter(|other| *other != id).collect::<Vec<_>>() {
        quorum.running.remove(&other).unwrap().stop().await;
    }
    // It has not noticed yet, or it has: the report is not answered either way.
    let refused = nodes[0].report_online(&leader).await.unwrap_err();
    assert!(refused.kind.is_retryable(), "{refused:?}");
    quorum.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_node_is_failed_and_returns_in_a_new_life() {
    let quorum = Quorum::start(1, settings(1, 4)).await;
    let leader = quorum.leader_address().await;
    let mut nodes = vec![FakeNode::new("athens").await];
    nodes[0].register(&leader).await.unwrap();
    settle(&quorum, &mut nodes, 4).await;
    wait_for("the node to be failed", SOON, || async {
        let found = status(&leader).await.map_err(|error| error.to_string())?;
        if found.nodes_failed == 1 && found.partitions_online == 0 { Ok(()) } else { Err(format!("{found:?}")) }
    })
    .await;
    let before = nodes[0].incarnation;
    assert_eq!(kind(nodes[0].heartbeat(&leader).await), ErrorKind::StaleIncarnation);
    nodes[0].boot = request_id();
    let mut again = nodes[0].registration();
    again.held = nodes[0]
        .duties()
        .iter()
        .filter_map(|duty| match duty.duty.as_ref()? {
            v1::duty::Duty::Host(host) => Some(host.placement),
            _ => None,
        })
        .collect();
    let mut client = v1::session_client::SessionClient::new(common::channel(&leader));
    let answer = client.register(again).await.unwrap().into_inner();
    assert!(answer.incarnation > before && answer.node == nodes[0].id);
    nodes[0].incarnation = answer.incarnation;
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

    // The name of a live node, from another disk.
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
    let wrong = admin(&leader).status(v1::StatusRequest { cluster: stranger.cluster.clone() }).await.unwrap_err();
    assert_eq!(detail_of(&wrong).kind, ErrorKind::WrongCluster);
    athens.cluster = own;
    // An older and an unknown life.
    athens.incarnation -= 1;
    assert_eq!(kind(athens.heartbeat(&leader).await), ErrorKind::StaleIncarnation);
    athens.incarnation += 1;
    athens.heartbeat(&leader).await.unwrap();
    quorum.stop_all().await;
}

/// Whoever knew a data directory's id could end its node's life and have all its copies given up, and everybody was told.
#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_ended_a_live_nodes_life_by_registering_in_its_name() {
    let quorum = Quorum::start(1, settings(1, 4)).await;
    let leader = quorum.leader_address().await;
    let mut nodes = vec![FakeNode::new("athens").await];
    nodes[0].register(&leader).await.unwrap();
    settle(&quorum, &mut nodes, 4).await;
    let life = nodes[0].incarnation;

    // It knows everything but what the process at the node's address says.
    let mut stolen = nodes[0].registration();
    stolen.boot_id = request_id();
    let mut session = v1::session_client::SessionClient::new(common::channel(&leader));
    let refused = detail_of(&session.register(stolen.clone()).await.unwrap_err());
    assert_eq!(refused.kind, ErrorKind::NameTaken, "{refused}");
    nodes[0].heartbeat(&leader).await.unwrap();
    assert_eq!(status(&leader).await.unwrap().partitions_online, 4);

    // That process was started again, and its new life counts at once.
    nodes[0].boot = request_id();
    nodes[0].register(&leader).await.unwrap();
    assert!(nodes[0].incarnation > life);
    nodes[0].heartbeat(&leader).await.unwrap();

    // Nobody is there: the registration counts once the life on record was failed.
    nodes[0].hang_up();
    stolen = nodes[0].registration();
    stolen.boot_id = request_id();
    let refused = detail_of(&session.register(stolen.clone()).await.unwrap_err());
    assert_eq!(refused.kind, ErrorKind::Unavailable, "{refused}");
    wait_for("the silent node's name to be free", SOON, || {
        let (mut session, stolen) = (session.clone(), stolen.clone());
        async move { session.register(stolen).await.map(|_| ()).map_err(|status| status.to_string()) }
    })
    .await;
    quorum.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ids_of_data_directories_were_told_to_everybody() {
    let quorum = Quorum::start(1, settings(1, 4)).await;
    let leader = quorum.leader_address().await;
    let mut nodes = vec![FakeNode::new("athens").await];
    nodes[0].register(&leader).await.unwrap();
    settle(&quorum, &mut nodes, 4).await;
    wait_for("the nodes to be pushed", SOON, || async {
        if nodes[0].pushed.tables.lock().unwrap().nodes > 0 { Ok(()) } else { Err("none yet".to_owned()) }
    })
    .await;
    let table = table(&leader, 0).await.unwrap();
    let listed = admin(&leader).list_nodes(v1::ListNodesRequest::default()).await.unwrap().into_inner();
    assert_eq!(table.delta.as_ref().map(|delta| delta.nodes.len()), Some(1));
    assert_eq!(listed.nodes.len(), 1);
    let pushed = nodes[0].pushed.tables.lock().unwrap().nodes_encoded.clone();
    for told in [table.encode_to_vec(), listed.encode_to_vec(), pushed] {
        assert!(told.len() > nodes[0].storage.len());
        assert!(!told.windows(16).any(|bytes| bytes == nodes[0].storage), "{told:?}");
    }
    // What is said in the log's events.
    let events = admin(&leader).events(v1::EventsRequest::default()).await.unwrap().into_inner();
    assert!(!events.encode_to_vec().windows(16).any(|bytes| bytes == nodes[0].storage));
    quorum.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_plan_runs_at_a_time_and_a_stale_one_is_refused() {
    let quorum = Quorum::start(1, settings(1, 9)).await;
    let leader = quorum.leader_address().await;
    let mut nodes = vec![FakeNode::new("athens").await];
    nodes[0].register(&leader).await.unwrap();
    settle(&quorum, &mut nodes, 9).await;
    let early = admin(&leader).plan_rebalance(v1::PlanRebalanceRequest::default()).await.unwrap().into_inner();
    let mut second = FakeNode::new("byzantium").await;
    second.register(&leader).await.unwrap();
    second.heartbeat(&leader).await.unwrap();
    nodes.push(second);
    let plan = wait_for("a plan with moves", SOON, || async {
        let plan = admin(&leader).plan_rebalance(v1::PlanRebalanceRequest::default()).await;
        let plan = plan.map_err(|error| error.to_string())?.into_inner().plan.unwrap();
        if plan.moves.len() == 4 { Ok(plan) } else { Err(format!("{plan:?}")) }
    })
    .await;
    let apply = |plan: v1::Plan, id: bytes::Bytes| {
        let request = v1::ApplyPlanRequest { cluster: None, request_id: id, plan: Some(plan) };
        let mut client = admin(&leader);
        async move { client.apply_plan(request).await.map_err(|status| detail_of(&status)) }
    };
    let stale = apply(early.plan.unwrap(), request_id()).await.unwrap_err();
    assert_eq!(stale.kind, ErrorKind::StalePlan);
    assert!(stale.have > stale.need, "{stale:?}");
    let id = request_id();
    assert_eq!(apply(plan.clone(), id.clone()).await.unwrap().into_inner().migrations, 4);
    // The same request again has the same answer and no second effect; another one is refused.
    assert_eq!(apply(plan.clone(), id).await.unwrap().into_inner().migrations, 4);
    assert_eq!(kind(apply(plan, request_id()).await), ErrorKind::AssignmentInProgress);
    let page = async |most, after| {
        let request = v1::RebalanceStatusRequest { cluster: None, most, after };
        admin(&leader).rebalance_status(request).await.unwrap().into_inner()
    };
    let first = page(3, 0).await;
    assert!(first.running && first.more && first.migrations.len() == 3, "{first:?}");
    let second = page(3, first.migrations[2].id).await;
    assert!(second.running && !second.more && second.migrations.len() == 1, "{second:?}");
    let (alone, summary) = (page(0, 0).await, first.summary.unwrap());
    assert!(alone.migrations.is_empty() && summary.moves == 4, "{alone:?}");
    assert_eq!((summary.queued + summary.copying, summary.done, summary.percent), (4, 0, 0));
    let cancel = v1::CancelRebalanceRequest { cluster: None, request_id: request_id() };
    let cancelled = admin(&leader).cancel_rebalance(cancel.clone()).await.unwrap().into_inner();
    assert_eq!((cancelled.cancelled, cancelled.too_late), (4, 0));
    // Whoever repeats it because the answer was lost reads the same.
    let repeated = admin(&leader).cancel_rebalance(cancel).await.unwrap().into_inner();
    assert_eq!(repeated, cancelled, "a repeated cancellation answered 0 and 0");
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
    let mut request = tonic::Request::new(v1::StatusRequest::default());
    request.set_timeout(Duration::from_millis(800));
    let refused = detail_of(&admin(&address).status(request).await.unwrap_err());
    assert_eq!(refused.kind, ErrorKind::NoQuorum, "{refused:?}");
    // What needs no quorum is still answered.
    admin(&address).quorum(v1::QuorumRequest::default()).await.unwrap();
    quorum.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wiped_voter_and_a_changed_peer_list_are_refused() {
    let mut quorum = Quorum::start(3, settings(1, 4)).await;
    let leader = quorum.leader().await;
    let victim = quorum.peers.keys().copied().find(|id| *id != leader).unwrap();
    let gone = quorum.running.remove(&victim).unwrap();
    gone.stop().await;

    let mut changed = quorum.config(victim);
    changed.peers.insert(4, "127.0.0.1:1".to_owned());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let refused = Coordinator::start(listener, changed).await.err().expect("a changed peer list was accepted");
    assert!(matches!(&refused, CoordinatorError::Identity(_)), "{refused}");
    assert!(refused.to_string().contains("4=127.0.0.1:1"), "{refused}");

    quorum.dirs.insert(victim, tempfile::tempdir().unwrap());
    quorum.restart(victim).await;
    let wiped = quorum.running.remove(&victim).unwrap();
    tokio::time::timeout(SOON, wiped.failed()).await.expect("the wiped voter was not refused");
    let cause = wiped.shutdown().await.expect("there must be a cause");
    assert!(matches!(cause, CoordinatorError::WipedVoter { id, .. } if id == victim), "{cause}");
    // The other two go on.
    status(&quorum.leader_address().await).await.unwrap();
    quorum.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_started_voter_without_its_identity_is_refused_as_are_two_of_three_by_name() {
    let mut quorum = Quorum::start(3, settings(1, 4)).await;
    let leader = quorum.leader().await;
    let victim = quorum.peers.keys().copied().find(|id| *id != leader).unwrap();
    quorum.running.remove(&victim).unwrap().stop().await;
    std::fs::remove_file(quorum.dirs[&victim].path().join("identity.json")).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let refused = Coordinator::start(listener, quorum.config(victim)).await.err().expect("it got a new identity");
    assert!(refused.to_string().contains("restore that file"), "{refused}");
    quorum.stop_all().await;

    // At the first start all of them must run; whoever does not is named.
    let mut quorum = Quorum::start(2, settings(1, 4)).await;
    let absent = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string();
    for id in [1, 2] {
        quorum.running.remove(&id).unwrap().stop().await;
        quorum.dirs.insert(id, tempfile::tempdir().unwrap());
    }
    quorum.peers.insert(3, absent.clone());
    quorum.dirs.insert(3, tempfile::tempdir().unwrap());
    quorum.restart(1).await;
    quorum.restart(2).await;
    let one = quorum.peers[&1].clone();
    let expected = format!("and coordinator 3 at {absent} does not answer");
    wait_for("the missing one to be named", SOON, || async {
        let mut request = tonic::Request::new(v1::StatusRequest::default());
        request.set_timeout(Duration::from_millis(100));
        let refused = detail_of(&admin(&one).status(request).await.unwrap_err());
        if refused.message.ends_with(&expected) { Ok(()) } else { Err(refused.to_string()) }
    })
    .await;
    for (_, coordinator) in quorum.running {
        coordinator.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_with_a_full_disk_was_invisible_and_one_not_heard_was_heard_just_now() {
    let mut quorum = Quorum::start(1, settings(2, 4)).await;
    let leader = quorum.leader_address().await;
    let mut athens = FakeNode::new("athens").await;
    let mut corinth = FakeNode::new("corinth").await;
    for node in [&mut athens, &mut corinth] {
        node.register(&leader).await.unwrap();
        node.heartbeat(&leader).await.unwrap();
    }
    let no_room = Some(v1::NoRoom { free_bytes: 5 << 20, needed_bytes: 64 << 20 });
    let placements = vec![v1::PlacementLoad { placement: 1, bytes: 7, keys: 3 }];
    let full =
        v1::NodeLoad { no_room, bytes_stored: 7, operations_per_second: 9, placements, ..v1::NodeLoad::default() };
    athens.heartbeat_saying(&leader, Some(full)).await.unwrap();
    let reasons = status(&leader).await.unwrap().reasons;
    let reason = reasons.iter().find(|reason| reason.code == "DiskFull").expect("a reason");
    assert_eq!(reason.subject, "node athens");
    assert!(reason.message.contains("5 MiB are free, 64 MiB are needed"), "{reason:?}");
    let listed = admin(&leader).list_nodes(v1::ListNodesRequest::default()).await.unwrap().into_inner().nodes;
    assert_eq!((listed[0].no_room, listed[0].bytes_stored), (no_room, Some(7)));
    assert_eq!((listed[0].keys, listed[0].operations_per_second), (Some(3), Some(9)));
    assert!(listed[0].silent_ms.is_some() && listed[1].no_room.is_none());
    // Room again: nothing is left to say.
    athens.heartbeat(&leader).await.unwrap();
    let reasons = status(&leader).await.unwrap().reasons;
    assert!(reasons.iter().all(|reason| reason.code != "DiskFull"), "{reasons:?}");

    // A coordinator that never heard a node does not say that it heard it just now.
    let id = quorum.leader().await;
    quorum.running.remove(&id).unwrap().stop().await;
    quorum.restart(id).await;
    let leader = quorum.leader_address().await;
    let listed = admin(&leader).list_nodes(v1::ListNodesRequest::default()).await.unwrap().into_inner().nodes;
    assert!(
        listed.iter().all(|node| node.silent_ms.is_none() && node.bytes_stored.is_none() && node.keys.is_none()),
        "{listed:?}"
    );
    quorum.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn coordinators_of_another_quorum_are_not_heard() {
    let quorum = Quorum::start(1, settings(1, 4)).await;
    let leader = quorum.leader_address().await;
    let mut client = v1::raft_client::RaftClient::new(common::channel(&leader));
    let uuid = request_id;
    let hello = v1::HelloRequest { cluster_id: uuid(), sender: 2, target: 1, sender_storage: uuid() };
    let refused = client.hello(hello).await.unwrap_err();
    assert!(refused.message().contains("another peer list"), "{refused}");
    // Nor is anything that does not decode; it is an error, and the coordinator lives.
    for body in [&b""[..], b"\xc1", b"\xff\xff\xff\xff", b"\x93\x01\x02\x03"] {
        let message = v1::RaftMessage {
            cluster_id: uuid(),
            sender: 2,
            target: 1,
            format: 1,
            body: bytes::Bytes::copy_from_slice(body),
            sender_storage: uuid(),
            lack: None,
            snapshot_waits: false,
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

#[tokio::test(flavor = "multi_thread")]
async fn state_survives_a_restart_of_the_whole_quorum() {
    let mut quorum = Quorum::start(3, settings(1, 4)).await;
    let cluster = quorum.cluster().await;
    let leader = quorum.leader_address().await;
    let create = v1::CreateTableRequest {
        cluster: None,
        request_id: request_id(),
        name: "orders".to_owned(),
        partitions: 7,
        replication: 1,
    };
    admin(&leader).create_table(create.clone()).await.unwrap();
    // A repetition under the same id is the same request.
    admin(&leader).create_table(create).await.unwrap();
    let ids: Vec<u64> = quorum.running.keys().copied().collect();
    for id in &ids {
        let gone = quorum.running.remove(id).unwrap();
        gone.stop().await;
    }
    for id in ids {
        quorum.restart(id).await;
    }
    let leader = quorum.leader_address().await;
    let found = status(&leader).await.unwrap();
    assert_eq!((found.cluster, found.partitions), (Some(cluster), 11));
    quorum.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_drop_takes_no_later_table_of_the_name_with_it() {
    let quorum = Quorum::start(3, settings(1, 4)).await;
    let leader = quorum.leader_address().await;
    let create = || v1::CreateTableRequest {
        request_id: request_id(),
        name: "orders".to_owned(),
        partitions: 7,
        replication: 1,
        ..Default::default()
    };
    let check = async || {
        let name = "orders".to_owned();
        let checked = admin(&leader).check_table(v1::CheckTableRequest { cluster: None, name }).await;
        checked.map(|answer| answer.into_inner().table.unwrap().id).map_err(|status| detail_of(&status))
    };
    let missing = check().await.unwrap_err();
    assert_eq!(missing.kind, ErrorKind::NotFound);
    assert!(missing.message.contains("the tables are: default"), "{missing}");
    admin(&leader).create_table(create()).await.unwrap();
    let table = check().await.unwrap();
    let drop = |request_id| v1::DropTableRequest { cluster: None, request_id, name: "orders".to_owned(), table };
    let first = drop(request_id());
    admin(&leader).drop_table(first.clone()).await.unwrap();
    admin(&leader).create_table(create()).await.unwrap();
    let again = check().await.unwrap();
    assert!(again > table);
    // The same request is answered as before; another one for the table that was shown is refused.
    admin(&leader).drop_table(first).await.unwrap();
    let refused = detail_of(&admin(&leader).drop_table(drop(request_id())).await.unwrap_err());
    assert_eq!((refused.kind, refused.have, refused.need), (ErrorKind::StaleVersion, Some(again), Some(table)));
    assert_eq!(check().await, Ok(again));
    // With the last of them gone there is nothing wrong either.
    for name in ["orders", "default"] {
        let request = v1::CheckTableRequest { cluster: None, name: name.to_owned() };
        let table = admin(&leader).check_table(request).await.unwrap().into_inner().table.unwrap().id;
        let request = v1::DropTableRequest { request_id: request_id(), name: name.to_owned(), table, cluster: None };
        admin(&leader).drop_table(request).await.unwrap();
    }
    let missing = check().await.unwrap_err();
    assert!(missing.message.contains("there is none at all"), "{missing}");
    assert_eq!(status(&leader).await.unwrap().partitions, 0);
    quorum.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_told_that_a_table_is_gone_and_to_delete_its_copies_until_it_has() {
    let quorum = Quorum::start(1, Settings { replication: 1, ..settings(1, 4) }).await;
    let leader = quorum.leader_address().await;
    let mut nodes = vec![FakeNode::new("athens").await];
    nodes[0].register(&leader).await.unwrap();
    settle(&quorum, &mut nodes, 4).await;
    let node = &mut nodes[0];
    let drop = v1::DropTableRequest { cluster: None, request_id: request_id(), name: "default".to_owned(), table: 1 };
    assert_eq!(admin(&leader).drop_table(drop).await.unwrap().into_inner().copies, 4);
    assert_eq!(node.heartbeat(&leader).await.unwrap().withdrawn.len(), 4, "no lease covers what it led");
    let unloads = |node: &FakeNode| -> Vec<v1::DutyUnload> {
        let unload = |duty: v1::Duty| match duty.duty {
            Some(v1::duty::Duty::Unload(unload)) => Some(unload),
            _ => None,
        };
        node.duties().into_iter().filter_map(unload).collect()
    };
    wait_for("the node to be told", SOON, || async {
        let (lists, duties) = (node.pushed.tables.lock().unwrap().lists.clone(), node.duties());
        let version = status(&leader).await.map_err(|error| error.to_string())?.table_version;
        let gone = lists.last() == Some(&v1::TableList { version, last: 1, tables: Vec::new() });
        let told = gone && duties.len() == 4 && unloads(node).len() == 4;
        if told { Ok(()) } else { Err(format!("{lists:?}, {duties:?}")) }
    })
    .await;
    let waits = status(&leader).await.unwrap();
    assert_eq!((waits.copies_condemned, waits.partitions), (4, 0));
    assert!(waits.reasons.iter().any(|reason| reason.code == "CopiesCondemned" && reason.message.contains("athens")));
    let report = |unload: v1::DutyUnload| v1::ReplicaReport {
        partition: unload.partition,
        placement: unload.placement,
        fact: Some(v1::replica_report::Fact::Unloaded(v1::FactUnloaded {})),
        ..Default::default()
    };
    let reports = unloads(node).into_iter().map(report).collect();
    let request = v1::ReportRequest { cluster: node.cluster.clone(), sender: node.sender(), reports };
    let answer = SessionClient::new(common::channel(&leader)).report(request).await.unwrap().into_inner();
    assert!(answer.outcomes.iter().all(|outcome| outcome.error.is_none()), "{answer:?}");
    assert_eq!(status(&leader).await.unwrap().copies_condemned, 0);
    assert_eq!(node.heartbeat(&leader).await.unwrap().withdrawn, []);
    quorum.stop_all().await;
}

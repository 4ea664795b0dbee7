//! TLS clusters: authentication, authorization by role, and the answers to refused callers.

use crate::EXE;
use archon_client::{Role, Tls, Transport};
use archon_frames::{StreamKind, connect};
use archon_integration_tests::ports::free_addresses;
use archon_integration_tests::{Cluster, Options, Process, ProcessExt, Scene, WorkloadOptions};
use archon_local_cluster::Issuer;
use archon_proto::v1;
use archon_security::{ExpectedPeer, Protocol, rights};
use prost::Message;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tonic::transport::{Channel, Endpoint};

const TIMEOUT: Duration = Duration::from_secs(60);

fn options() -> Options {
    Options { tls: true, replication: 3, ..Options::default() }
}

/// Returns options for tests that need no quorum of several.
fn one_coordinator() -> Options {
    Options { coordinators: 1, ..options() }
}

/// Returns a gRPC channel to the process at an address.
fn channel(transport: &Transport, address: &str) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address").timeout(TIMEOUT);
    transport.channel(&endpoint, address, ExpectedPeer::Servers, TIMEOUT)
}

/// Runs the command line with credentials other than the administrator's, or none. Returns its exit code and output.
fn archon_as(cluster: &Cluster, credentials: Option<&Path>, arguments: &[&str]) -> (Option<i32>, String) {
    let ran = cluster.archon_as(credentials, arguments);
    (Some(ran.code), ran.stdout + &ran.stderr)
}

#[test]
fn tls_histories_are_linearizable_through_kills() {
    let load = WorkloadOptions { seed: 91, ..WorkloadOptions::default() };
    Scene::play(EXE, "tls", &options(), &load, |scene| {
        scene.cluster.take_node("athens").kill();
        scene.everyone_is_served();
        scene.progress(100);
        scene.heal();
        let (leader, _) = scene.cluster.wait_leader();
        scene.cluster.take_coordinator(leader).kill();
        scene.progress(100);
        scene.heal();
    });
}

#[test]
fn foreign_certificate_is_refused_with_the_reason() {
    let cluster = Cluster::start(EXE, &one_coordinator());
    for arguments in [&["status", "--timeout", "2s"][..], &["kv", "get", "a", "--timeout", "2s"]] {
        let (code, said) = archon_as(&cluster, None, arguments);
        assert!(code == Some(4) && said.contains("this member requires TLS"), "{code:?}: {said}");
    }
    // A certificate of another cluster, with the same names.
    let directory = tempfile::tempdir().expect("a directory");
    let foreign = Issuer::new(directory.path()).and_then(|issuer| issuer.credentials(Role::Admin, "you", []));
    let foreign = foreign.expect("another authority");
    let (code, said) = archon_as(&cluster, Some(&foreign), &["status", "--timeout", "2s"]);
    assert!(code == Some(4) && said.contains("is it of another cluster?"), "{code:?}: {said}");
}

#[test]
fn forbidden_calls_name_the_role_and_change_nothing() {
    let cluster = Cluster::start(EXE, &one_coordinator());
    let run =
        |role: Role, arguments: &[&str]| archon_as(&cluster, Some(&cluster.credentials(role, "somebody")), arguments);
    // A client works with keys, and neither inspects nor changes the cluster.
    assert_eq!(run(Role::Client, &["kv", "put", "a", "1"]).0, Some(0));
    let (code, said) = run(Role::Client, &["status"]);
    assert!(code == Some(4) && said.contains("client/somebody may not") && said.contains("operator, admin"), "{said}");
    // An operator inspects, and does neither.
    assert_eq!(run(Role::Operator, &["status"]).0, Some(0));
    assert_eq!(run(Role::Operator, &["rebalance", "plan"]).0, Some(0));
    let (code, said) =
        run(Role::Operator, &["table", "create", "forbidden", "--partitions", "3", "--replication", "1"]);
    assert!(code == Some(4) && said.contains("that is for admin"), "{code:?}: {said}");
    let (code, said) = run(Role::Operator, &["kv", "get", "a"]);
    assert!(code == Some(4) && said.contains("operator/somebody may not"), "{code:?}: {said}");
    // A member does only members' work.
    let (code, said) = run(Role::Node, &["kv", "delete", "a"]);
    assert_eq!(cluster.archon(&["kv", "get", "a"]).stdout.trim(), "1", "{code:?}: {said}");
    let (code, said) = run(Role::Node, &["node", "drain", "athens"]);
    assert!(code == Some(4) && said.contains("node/somebody may not"), "{code:?}: {said}");
    let tables = cluster.archon(&["table", "list"]);
    assert!(!tables.stdout.contains("forbidden"), "an operator has made a table: {}", tables.stdout);
}

/// Messages in another member's name, and messages that a role may not send: refused before any other check.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_cannot_impersonate_each_other() {
    let cluster = Cluster::start(EXE, &one_coordinator());
    let status = cluster.json(&["status"]).expect("status");
    let id: uuid::Uuid = status["cluster_id"].as_str().and_then(|id| id.parse().ok()).expect("a cluster id");
    let named = Some(v1::ClusterRef { cluster_id: id.as_bytes().to_vec().into() });
    let leader = cluster.coordinator_addresses()[cluster.wait_leader().0].clone();
    let delphi = Tls::open(&cluster.credentials(Role::Node, "delphi")).map(Transport::Tls).expect("credentials");
    let in_the_name = |refused: tonic::Status| {
        let said = refused.message().to_owned();
        assert!(said.contains("node/delphi speaks in the name of node/"), "{said}");
    };
    let mut session = v1::session_client::SessionClient::new(channel(&delphi, &leader));
    in_the_name(session.register(registration("athens")).await.expect_err("delphi is not athens"));
    let sender = Some(v1::Sender { id: 1, incarnation: 1 });
    let leave = v1::LeaveRequest { cluster: named.clone(), sender };
    in_the_name(session.leave(leave).await.expect_err("delphi is not the first node"));
    let report = v1::ReportRequest { cluster: named, sender, ..Default::default() };
    in_the_name(session.report(report).await.expect_err("delphi is not the first node"));
    // A node among coordinators, and a node that gives others orders.
    let mut raft = v1::raft_client::RaftClient::new(channel(&delphi, &leader));
    let refused = raft.vote(v1::RaftMessage::default()).await.expect_err("a node does not vote");
    assert!(refused.message().contains("that is for coordinator"), "{refused}");
    let mut control = v1::control_client::ControlClient::new(channel(&delphi, cluster.node_address("athens")));
    let refused = control.push(v1::PushRequest::default()).await.expect_err("a node gives no orders");
    assert!(refused.message().contains("that is for coordinator"), "{refused}");
    // Coordinators do not act for each other either.
    let second = Tls::open(&cluster.credentials(Role::Coordinator, "9")).map(Transport::Tls).expect("credentials");
    let mut raft = v1::raft_client::RaftClient::new(channel(&second, &leader));
    let vote = v1::RaftMessage { sender: 1, ..Default::default() };
    let refused = raft.vote(vote).await.expect_err("the ninth is not the first");
    assert!(refused.message().contains("coordinator/9 speaks in the name of coordinator/1"), "{refused}");
    // Nor in orders to nodes.
    let mut control = v1::control_client::ControlClient::new(channel(&second, cluster.node_address("athens")));
    let asked = v1::ConfirmBootRequest { boot_id: vec![1; 16].into(), ..Default::default() };
    control.confirm_boot(asked).await.expect("any coordinator may ask");
}

/// Returns the answer to a stream that begins with this message.
async fn told<M: Message>(transport: &Transport, address: &str, kind: StreamKind, first: &M) -> String {
    let connected = connect(transport, address, &ExpectedPeer::Servers, kind, 1 << 20, TIMEOUT).await;
    let (mut reader, mut writer) = connected.expect("the server is there");
    writer.push(first);
    writer.flush().await.expect("the server listens");
    loop {
        match reader.next::<v1::ReplyBatch>().await {
            Ok(_) => {}
            Err(ended) => return ended.into_detail().message,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_are_bound_to_their_identity() {
    let cluster = Cluster::start(EXE, &one_coordinator());
    let leader = cluster.coordinator_addresses()[cluster.wait_leader().0].clone();
    let athens = cluster.node_address("athens").to_owned();
    let status = cluster.json(&["status"]).expect("status");
    let id: uuid::Uuid = status["cluster_id"].as_str().and_then(|id| id.parse().ok()).expect("a cluster id");
    let named = Some(v1::ClusterRef { cluster_id: id.as_bytes().to_vec().into() });
    let open = |role, name| Tls::open(&cluster.credentials(role, name)).map(Transport::Tls).expect("credentials");
    let (delphi, client) = (open(Role::Node, "delphi"), open(Role::Client, "somebody"));
    // Regression: a heartbeat in another member's name replaced that member's stream before it was refused.
    let push_key = vec![1; 16].into();
    let beat = v1::Beat { node: 1, incarnation: 1, number: 1, push_key, ..Default::default() };
    let beats = v1::Beats { cluster: named.clone(), batch: 1, beats: vec![beat], relay: None };
    let said = told(&delphi, &leader, StreamKind::Beats, &beats).await;
    assert!(said.contains("node/delphi speaks in the name of node/"), "{said}");
    let said = told(&client, &leader, StreamKind::Beats, &beats).await;
    assert!(said.contains("client/somebody may not call a stream of heartbeats"), "{said}");
    // A member cannot claim that another node carries its messages, and a relay cannot report an incarnation without
    // its proof.
    let known = cluster.json(&["node", "list"]).expect("nodes");
    let of = |name: &str| {
        let node = known.as_array().into_iter().flatten().find(|node| node["node"] == name).expect("a node");
        (node["node_id"].as_u64().expect("its number"), node["incarnation"].as_u64().expect("its life"))
    };
    let ((relay, life), (other, other_life)) = (of("athens"), of("byzantium"));
    let forged = v1::Beat {
        node: other,
        incarnation: other_life,
        number: 1 << 40,
        push_key: vec![1; 16].into(),
        ..Default::default()
    };
    let carried = v1::Beats {
        cluster: named.clone(),
        batch: 1,
        beats: vec![forged],
        relay: Some(v1::Relay { node: relay, incarnation: life }),
    };
    let said = told(&delphi, &leader, StreamKind::Beats, &carried).await;
    assert!(said.contains("node/delphi speaks in the name of node/athens"), "{said}");
    let itself = open(Role::Node, "athens");
    let connected = connect(&itself, &leader, &ExpectedPeer::Servers, StreamKind::Beats, 1 << 20, TIMEOUT).await;
    let (mut reader, mut writer) = connected.expect("the coordinator is there");
    writer.push(&carried);
    writer.flush().await.expect("it listens");
    let answers: v1::BeatAnswers = reader.next().await.expect("an answer");
    let refused = answers.answers.first().and_then(|answer| answer.refused.clone()).expect("it is refused");
    assert!(refused.message.contains("did not prove it"), "{refused:?}");
    cluster.wait_node("byzantium", "alive");
    // A node forwards and does not ask; a client asks and does not forward.
    let ops = |hops| v1::OpBatch { cluster: named.clone(), hops, ..Default::default() };
    let said = told(&delphi, &athens, StreamKind::Exchange, &ops(0)).await;
    assert!(said.contains("node/delphi asks for keys"), "{said}");
    let said = told(&client, &athens, StreamKind::Exchange, &ops(1)).await;
    assert!(said.contains("client/somebody passes operations on"), "{said}");
    let said = told(&client, &athens, StreamKind::Replicate, &v1::ReplicationBatch::default()).await;
    assert!(said.contains("client/somebody may not call a stream of messages between replicas"), "{said}");
}

/// Each starts a handshake and stops. Regression: they occupied all handshake slots.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unfinished_handshakes_do_not_block_members() {
    let cluster = Cluster::start(EXE, &options());
    let address = cluster.node_address("athens").to_owned();
    let mut half = Vec::new();
    for _ in 0..300 {
        let mut stranger = tokio::net::TcpStream::connect(&address).await.expect("a connection");
        stranger.write_all(&[0x16]).await.expect("a byte");
        half.push(stranger);
    }
    let transport = cluster.transport(Role::Client);
    let within = Duration::from_secs(2);
    let met = transport.connect(&address, &ExpectedPeer::Node("athens".into()), Protocol::Frames, within).await;
    met.expect("a client with a certificate is let in meanwhile");
}

fn registration(name: &str) -> v1::RegisterRequest {
    let bytes = |number: u128| uuid::Uuid::from_u128(number).as_bytes().to_vec().into();
    v1::RegisterRequest {
        name: name.into(),
        address: "127.0.0.1:1".into(),
        storage_id: bytes(7),
        boot_id: bytes(8),
        weight: 100,
        protocol_min: 1,
        protocol_max: archon_types::PROTOCOL_NEWEST,
        ..Default::default()
    }
}

/// Each call of each service to each kind of server by each role: those in the table of rights pass it, all others are
/// refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_enforces_the_table_of_roles() {
    let cluster = Cluster::start(EXE, &one_coordinator());
    let leader = cluster.coordinator_addresses()[cluster.wait_leader().0].clone();
    let servers = [leader, cluster.node_address("athens").to_owned()];
    let (mut refused, mut let_through) = (0, 0);
    for role in Role::ALL {
        let name = if role == Role::Coordinator { "9" } else { "matrix" };
        let transport = Tls::open(&cluster.credentials(role, name)).map(Transport::Tls).expect("credentials");
        for server in &servers {
            let mut caller = tonic::client::Grpc::new(channel(&transport, server));
            for call in rights::known_calls() {
                caller.ready().await.expect("the server is there");
                let path = call.parse().expect("a path");
                // An empty message: its further fate is not tested here.
                let codec = tonic_prost::ProstCodec::<(), ()>::default();
                let called = caller.unary(tonic::Request::new(()), path, codec);
                let expected = !rights::callers(&call).contains(&role);
                // A refusal is waited for; an accepted stream has no end.
                let within = if expected { TIMEOUT } else { Duration::from_millis(500) };
                let said = tokio::time::timeout(within, called).await.ok().and_then(Result::err);
                let said = said.map(|status| status.message().to_owned()).unwrap_or_default();
                assert_eq!(said.contains(": that is for "), expected, "{role} called {call} of {server}: {said}");
                *(if expected { &mut refused } else { &mut let_through }) += 1;
            }
        }
    }
    assert!(refused > 300 && let_through > 100, "{refused} refused, {let_through} let through");
}

/// Name and role are verified, not only the issuer: an address that leads to another member is not accepted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dialling_a_member_verifies_its_identity() {
    let cluster = Cluster::start(EXE, &one_coordinator());
    let (transport, address) = (cluster.transport(Role::Admin), cluster.node_address("athens"));
    let dial = async |expected: ExpectedPeer| transport.connect(address, &expected, Protocol::Frames, TIMEOUT).await;
    dial(ExpectedPeer::Node("athens".into())).await.expect("it is athens");
    let said = dial(ExpectedPeer::Node("cyrene".into())).await.expect_err("it is athens, not cyrene").to_string();
    assert!(said.contains("node/athens") && said.contains("node/cyrene"), "{said}");
    let said = dial(ExpectedPeer::Coordinators).await.expect_err("a node is no coordinator").to_string();
    assert!(said.contains("node/athens") && said.contains("a coordinator"), "{said}");
    // The host is verified as well.
    let port = address.rsplit_once(':').expect("host:port").1;
    let elsewhere =
        transport.connect(&format!("localhost:{port}"), &ExpectedPeer::Servers, Protocol::Frames, TIMEOUT).await;
    let said = elsewhere.expect_err("its certificate does not name localhost").to_string();
    assert!(said.contains("localhost") && said.contains("--host"), "{said}");
}

#[test]
fn member_with_foreign_certificate_does_not_start() {
    let cluster = Cluster::start(EXE, &one_coordinator());
    let credentials = cluster.credentials(Role::Node, "delphi");
    let data = tempfile::tempdir().expect("a directory");
    let data = data.path().to_str().expect("paths of tests are text");
    let node = ["node", "--name", "olympia", "--listen", "127.0.0.1:0", "--data-dir", data];
    let (code, said) = archon_as(&cluster, Some(&credentials), &node);
    assert!(code == Some(2) && said.contains("node/olympia") && said.contains("node/delphi"), "{code:?}: {said}");
    std::fs::set_permissions(credentials.join("tls.key"), Permissions::from_mode(0o644)).expect("the file is ours");
    let (code, said) = archon_as(&cluster, Some(&credentials), &["kv", "get", "a"]);
    assert!(code == Some(2) && said.contains("others may read this key"), "{code:?}: {said}");
}

/// Regression: others rejected the process at that address without a message, and partitions waited for it.
#[test]
fn member_with_certificate_for_other_address_is_refused() {
    let cluster = Cluster::start(EXE, &one_coordinator());
    let (coordinators, directory) = (cluster.coordinator_list(), cluster.directory().join("unnamed"));
    std::fs::create_dir_all(&directory).expect("a directory");
    let listen = free_addresses(1).remove(0);
    let ends = |name: &str, credentials: &Path, arguments: &[&str]| {
        let data = directory.join(format!("data-{name}")).display().to_string();
        let arguments = [&[EXE], arguments, &["--listen", &listen, "--data-dir", &data]].concat();
        let environment = [("ARCHON_TLS_DIR", credentials.display().to_string())];
        let mut started = Process::start(name, &arguments, &environment, &directory).expect("started");
        (started.wait_exit(Duration::from_secs(60)).code(), started.log_tail(20))
    };
    let issued = |role, name| cluster.issuer().credentials(role, name, ["localhost:1"]).expect("issued");
    let (sparta, four) = (issued(Role::Node, "sparta"), issued(Role::Coordinator, "4"));
    let node = &["node", "--name", "sparta", "--coordinators", &coordinators];
    let names = "and the certificate names only localhost: ";
    for (arguments, told) in
        [(&node[..], listen.as_str()), (&[node, &["--advertise", "other:7"][..]].concat(), "other:7")]
    {
        let (code, said) = ends("node", &sparta, arguments);
        let said_so = said.contains(&format!("error: others connect to {told}, {names}give --advertise localhost:"));
        assert!(code == Some(2) && said_so, "{code:?}: {said}");
    }
    let redis = ["--advertise", "localhost:7", "--redis-listen", "127.0.0.1:0", "--redis-advertise", "other:7"];
    let (code, said) = ends("node", &sparta, &[node, &redis[..]].concat());
    assert!(code == Some(2) && said.contains(&format!("{names}give --redis-advertise localhost:7")), "{said}");
    let (code, said) = ends("joins", &four, &["coordinator", "--id", "4", "--join", &coordinators, "--learner"]);
    assert!(code == Some(2) && said.contains(names) && said.contains("issue it again with --host 127.0.0.1"), "{said}");
    // It was refused before it sent a request: no change of the quorum waits for it.
    assert_eq!(cluster.json(&["quorum", "list"]).expect("a quorum")["pending"], serde_json::Value::Null);
    let (code, said) = ends("founds", &four, &["coordinator", "--id", "4", "--peers", "4=127.0.0.1:7"]);
    assert!(code == Some(2) && said.contains(names) && said.contains("use 4=localhost:7 in --peers"), "{said}");
}

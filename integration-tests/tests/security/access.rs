//! Access rights of clients to the rows of tables, with certificates as identity.

use crate::EXE;
use archon_client::{Admin, Client, Error, ErrorKind, Right, Role, Tls, Transport};
use archon_integration_tests::cluster::CommandOutput;
use archon_integration_tests::{Cluster, Options};
use archon_proto::v1;
use archon_testkit::{check, wait_for, wait_for_async};
use std::path::PathBuf;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(60);

fn start() -> Cluster {
    start_with(1)
}

fn start_with(coordinators: usize) -> Cluster {
    Cluster::start(EXE, &Options { coordinators, tls: true, replication: 3, clients_may: false, ..Options::default() })
}

fn credentials(cluster: &Cluster, name: &str) -> PathBuf {
    cluster.credentials(Role::Client, name)
}

/// Runs the command line as a client.
fn as_client(cluster: &Cluster, name: &str, arguments: &[&str]) -> CommandOutput {
    cluster.archon_as(Some(&credentials(cluster, name)), arguments)
}

fn may(cluster: &Cluster, name: &str, arguments: &[&str]) {
    let ran = as_client(cluster, name, arguments);
    assert_eq!(ran.code, 0, "client/{name} {arguments:?}: {ran:?}");
}

fn may_not(cluster: &Cluster, name: &str, arguments: &[&str]) -> String {
    let ran = as_client(cluster, name, arguments);
    assert_eq!(ran.code, 4, "client/{name} {arguments:?}: {ran:?}");
    ran.stderr
}

#[test]
fn client_gets_granted_access_and_reasons_for_refusals() {
    let cluster = start();
    cluster.done(&["table", "create", "orders", "--range", "--split-at", "m", "--replication", "3"]);
    cluster.done(&["kv", "put", "--table", "orders", "a", "1"]);
    // No right at first, and the refusal names the command that grants one.
    let said = may_not(&cluster, "shop", &["kv", "get", "--table", "orders", "a"]);
    assert!(said.contains("client/shop may not read table orders"), "{said}");
    assert!(said.contains("archon access grant read --client shop --table orders"), "{said}");
    // The named command grants it, at once: it returns when every node applies it.
    let said = cluster.done(&["access", "grant", "read", "--client", "shop", "--table", "orders"]);
    assert_eq!(said.trim(), "client/shop may read table orders");
    may(&cluster, "shop", &["kv", "get", "--table", "orders", "a"]);
    may(&cluster, "shop", &["kv", "scan", "--table", "orders"]);
    for write in [
        &["kv", "put", "--table", "orders", "a", "2"][..],
        &["kv", "del", "--table", "orders", "a"],
        &["kv", "incr", "--table", "orders", "z"],
        &["kv", "cas", "--table", "orders", "a", "2", "--revision", "0"],
    ] {
        let said = may_not(&cluster, "shop", write);
        assert!(said.contains("may not write to table orders: it may read it only"), "{said}");
    }
    // For no other table, and for no other client.
    may_not(&cluster, "shop", &["kv", "get", "a"]);
    may_not(&cluster, "shopper", &["kv", "get", "--table", "orders", "a"]);
    cluster.done(&["access", "grant", "write", "--client", "client/shop", "--table", "orders"]);
    may(&cluster, "shop", &["kv", "put", "--table", "orders", "a", "2"]);
    cluster.done(&["access", "grant", "read", "--every-client", "--all-tables"]);
    may(&cluster, "shopper", &["kv", "get", "--table", "orders", "a"]);
    // A revoked right is gone, except where another right implies it.
    let said = cluster.done(&["access", "revoke", "read", "--client", "shop", "--table", "orders"]);
    assert!(said.contains("but may still read it"), "{said}");
    may_not(&cluster, "shop", &["kv", "put", "--table", "orders", "a", "3"]);
    may(&cluster, "shop", &["kv", "get", "--table", "orders", "a"]);
    let listed = cluster.json(&["access", "list", "--client", "shop", "--table", "orders"]).expect("a document");
    assert_eq!((&listed["rights"].as_array().map(Vec::len), &listed["may"]), (&Some(1), &"read".into()), "{listed}");
    // Events, and the answers to wrong usage.
    let events = cluster.done(&["events"]);
    assert!(
        events.contains("client/shop may write to it") && events.contains("every client may read every table"),
        "{events}"
    );
    for (arguments, code) in [
        (&["access", "grant", "read", "--client", "shop"][..], 2),
        (&["access", "grant", "read", "--all-tables"], 2),
        (&["access", "grant", "own", "--every-client", "--all-tables"], 2),
        (&["access", "grant", "read", "--client", "shop", "--table", "nowhere"], 3),
        (&["access", "list", "--table", "nowhere"], 3),
    ] {
        assert_eq!(cluster.archon(arguments).code, code, "{arguments:?}");
    }
    for role in [Role::Operator, Role::Client] {
        let credentials = cluster.credentials(role, "somebody");
        let grant = ["access", "grant", "write", "--client", "somebody", "--all-tables"];
        assert_eq!(cluster.archon_as(Some(&credentials), &grant).code, 4, "{role} grants itself everything");
    }
}

/// Covers each way by which a client reaches rows without the library: unchecked requests would be open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_path_to_rows_checks_rights() {
    let cluster = start();
    cluster.done(&["table", "create", "orders", "--partitions", "3", "--replication", "3"]);
    cluster.done(&["kv", "put", "k", "1"]);
    cluster.done(&["kv", "put", "--table", "orders", "k", "1"]);
    cluster.done(&["access", "grant", "write", "--client", "shop", "--table", "orders"]);
    let transport = Tls::open(&credentials(&cluster, "shop")).map(Transport::Tls).expect("credentials");
    let status = cluster.json(&["status"]).expect("status");
    let id: uuid::Uuid = status["cluster_id"].as_str().and_then(|id| id.parse().ok()).expect("a cluster id");
    let named = Some(v1::ClusterRef { cluster_id: id.as_bytes().to_vec().into() });
    let tables = cluster.json(&["table", "list"]).expect("tables");
    let default =
        tables.as_array().into_iter().flatten().find(|table| table["table"] == "default").expect("it is there");
    let default_id = default["table_id"].as_u64().expect("a number");
    let key = bytes::Bytes::from_static(b"k");
    for node in ["athens", "byzantium", "cyrene"] {
        let address = cluster.node_address(node);
        let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{address}")).expect("an address");
        let channel = transport.channel(&endpoint, address, archon_security::ExpectedPeer::Servers, TIMEOUT);
        let mut kv = v1::kv_client::KvClient::new(channel.clone());
        let (cluster, table) = (named.clone(), String::new());
        let mut refused = Vec::new();
        let get = v1::GetRequest { cluster: cluster.clone(), table: table.clone(), key: key.clone() };
        refused.push(kv.get(get.clone()).await.map(drop));
        let stale = v1::GetStaleRequest { cluster: cluster.clone(), table: table.clone(), key: key.clone() };
        refused.push(kv.get_stale(stale).await.map(drop));
        let put =
            v1::PutRequest { cluster: cluster.clone(), table: table.clone(), key: key.clone(), ..Default::default() };
        refused.push(kv.put(put).await.map(drop));
        let delete = v1::DeleteRequest {
            cluster: cluster.clone(),
            table: table.clone(),
            key: key.clone(),
            ..Default::default()
        };
        refused.push(kv.delete(delete).await.map(drop));
        let set = v1::CompareAndSetRequest { cluster: cluster.clone(), key: key.clone(), ..Default::default() };
        refused.push(kv.compare_and_set(set).await.map(drop));
        let add = v1::IncrementRequest { cluster: cluster.clone(), key: key.clone(), by: 1, ..Default::default() };
        refused.push(kv.increment(add).await.map(drop));
        let scan = v1::ScanRequest { cluster: cluster.clone(), partition: Some(0), limit: 9, ..Default::default() };
        refused.push(kv.scan(scan).await.map(drop));
        let snapshot = v1::SnapshotRequest { cluster: cluster.clone(), ..Default::default() };
        refused.push(kv.snapshot(snapshot).await.map(drop));
        let mut of_table = v1::table_client::TableClient::new(channel.clone());
        let routes = v1::GetTableRequest { cluster: cluster.clone(), ..Default::default() };
        refused.push(of_table.get_table(routes).await.map(drop));
        for (number, answer) in refused.into_iter().enumerate() {
            let said = answer.expect_err(&format!("call {number} at {node} went past the rights"));
            assert!(said.message().contains("may not") && said.message().contains("table default"), "{number}: {said}");
        }
        // A request that names the table that it may write to, and a partition of the other one.
        let op = |partition| v1::Op {
            tag: 1,
            partition,
            op: Some(v1::op::Op::Get(v1::OpGet { key: key.clone() })),
            ..Default::default()
        };
        let elsewhere = Some(v1::PartitionId { table: default_id, index: 0 });
        let batch =
            |partition| v1::BatchRequest { cluster: cluster.clone(), table: "orders".into(), ops: vec![op(partition)] };
        let replies = kv.batch(batch(elsewhere)).await.expect("an answer").into_inner().replies;
        let said = format!("{replies:?}");
        assert!(said.contains("may not read table default"), "{said}");
        let replies = kv.batch(batch(None)).await.expect("an answer").into_inner().replies;
        assert!(!format!("{replies:?}").contains("may not"), "{replies:?}");
        let own = v1::GetRequest { table: "orders".into(), ..get };
        kv.get(own).await.expect("what was granted");
    }
}

/// A running client, with its routes and its streams, is refused at its next operation.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn revoked_right_applies_to_connected_clients() {
    let cluster = start();
    let transport = Tls::open(&credentials(&cluster, "shop")).map(Transport::Tls).expect("credentials");
    let admin: Admin = cluster.admin(TIMEOUT);
    admin.grant(Right::Write, Some("shop"), None).await.expect("granted");
    let client: Client =
        Client::builder(cluster.coordinator_addresses()).transport(transport).build().await.expect("a client");
    for number in 0..100 {
        client.put(format!("k{number}"), "v").await.expect("it may");
    }
    let changed = admin.revoke(Right::Write, Some("shop"), None).await.expect("taken back");
    assert_eq!((changed.changed, changed.nodes_behind_count), (true, 0), "{changed:?}");
    for number in 0..100 {
        let key = format!("k{number}");
        let refused = client.put(key.clone(), "w").await.expect_err("it may not any more");
        assert_eq!(refused.kind(), ErrorKind::Refused, "{refused}");
        let found = client.get(key).await.expect("it reads").expect("a value");
        assert_eq!(found.value.as_ref(), b"v");
    }
    admin.revoke(Right::Read, Some("shop"), None).await.expect("taken back");
    let refused: Error = client.get("k1").await.expect_err("nothing is left");
    assert_eq!(refused.kind(), ErrorKind::Refused, "{refused}");
    // A right granted again works without a new client.
    admin.grant(Right::Write, Some("shop"), None).await.expect("granted");
    client.put("k1", "x").await.expect("it may again");
}

/// Nodes do not apply changes that they have not received: the answer says so.
#[test]
fn access_change_names_lagging_nodes_and_reaches_new_ones() {
    let mut cluster = start_with(3);
    cluster.node("cyrene").pause();
    let (said, _) = wait_for("the change to be made while a node is silent", TIMEOUT, || {
        let ran = cluster.archon(&["access", "grant", "write", "--client", "shop", "--all-tables", "-o", "json"]);
        if ran.code == 0 { Ok(ran.stdout) } else { Err(format!("{ran:?}")) }
    });
    let changed: serde_json::Value = serde_json::from_str(&said).expect("a document");
    let behind = changed["nodes_behind"].as_array().cloned().unwrap_or_default();
    // It may have failed by then, which ends its service.
    assert!(behind.is_empty() || behind == ["cyrene"], "{changed}");
    cluster.node("cyrene").resume();
    cluster.wait_online();
    cluster.take_node("athens").kill();
    cluster.start_node("athens");
    cluster.wait_online();
    may(&cluster, "shop", &["kv", "put", "a", "1"]);
    // The whole quorum restarts: the rights are part of its durable state.
    for index in 0..3 {
        cluster.take_coordinator(index).kill();
    }
    for index in 0..3 {
        cluster.start_coordinator(index);
    }
    cluster.wait_online();
    may(&cluster, "shop", &["kv", "put", "a", "2"]);
    let listed = cluster.json(&["access", "list"]).expect("a document");
    assert_eq!(listed["rights"].as_array().map(Vec::len), Some(1), "{listed}");
}

/// Sends inline commands to a node's Redis listener, and returns the line of each reply.
async fn redis_replies(cluster: &Cluster, (role, name): (Role, &str), commands: &[&str]) -> Vec<String> {
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
    let transport = Tls::open(&cluster.credentials(role, name)).map(Transport::Tls).expect("credentials");
    let address = cluster.redis_address("athens");
    let (expected, protocol) = (archon_security::ExpectedPeer::Servers, archon_security::Protocol::Frames);
    let stream = transport.connect(address, &expected, protocol, TIMEOUT).await.expect("a connection");
    let mut stream = BufReader::new(stream);
    let mut replies = Vec::new();
    for command in commands {
        // The node closes the connection of a caller that it refuses.
        let _ = stream.get_mut().write_all(format!("{command}\r\n").as_bytes()).await;
        let mut line = String::new();
        let _ = stream.read_line(&mut line).await;
        replies.push(line.trim_end().to_owned());
    }
    replies
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_clients_have_the_rights_of_their_certificates() {
    let options = Options {
        coordinators: 1,
        tls: true,
        replication: 3,
        clients_may: false,
        redis: &["athens"],
        ..Options::default()
    };
    let cluster = Cluster::start(EXE, &options);
    let commands = ["PING", "SET k v", "STRLEN k", "CLUSTER SLOTS"];
    let replies = redis_replies(&cluster, (Role::Client, "shop"), &commands).await;
    assert_eq!(replies[0], "+PONG");
    assert!(replies[1..].iter().all(|reply| reply.starts_with("-NOPERM client/shop may not")), "{replies:?}");
    // Neither keys nor their number are shown.
    let keyspace = [
        "SCAN 0",
        "KEYS *",
        "RANDOMKEY",
        "DBSIZE",
        "CLUSTER COUNTKEYSINSLOT 1",
        "CLUSTER GETKEYSINSLOT 1 1",
        "DIGEST k",
    ];
    let replies = redis_replies(&cluster, (Role::Client, "shop"), &keyspace).await;
    assert!(replies.iter().all(|reply| reply.starts_with("-NOPERM client/shop may not read")), "{replies:?}");
    cluster.done(&["access", "grant", "write", "--client", "shop", "--table", "default"]);
    cluster.done(&["access", "grant", "read", "--client", "reports", "--table", "default"]);
    let expected = ["+PONG", "+OK", ":1", "*1"];
    eventually(&cluster, "shop", &commands, |replies| replies == expected).await;
    eventually(&cluster, "reports", &commands, |replies| {
        replies[1].starts_with("-NOPERM client/reports may not write") && replies[2..] == [":1", "*1"]
    })
    .await;
    let replies = redis_replies(&cluster, (Role::Node, "byzantium"), &["GET k"]).await;
    assert!(replies[0].starts_with("-NOPERM node/byzantium"), "{replies:?}");
}

/// Waits until a grant has reached the node.
async fn eventually(cluster: &Cluster, client: &str, commands: &[&str], holds: impl Fn(&[String]) -> bool) {
    wait_for_async("a grant to reach the node", TIMEOUT, async || {
        let replies = redis_replies(cluster, (Role::Client, client), commands).await;
        check(holds(&replies), || format!("{client}: {replies:?}"))
    })
    .await;
}

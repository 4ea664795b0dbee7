//! Redis commands on all keys of a node, and further commands on strings.

use crate::EXE;
use crate::redis::{NODES, knows_listeners_at, ok, options, start};
use crate::redis_client::{ClusterClient, Connection, Reply};
use crate::redis_pipeline::{alone, replies, words};
use archon_integration_tests::cluster::TIMEOUT;
use archon_integration_tests::{Cluster, Options};
use archon_testkit::wait_for;
use std::collections::BTreeSet;

fn text(reply: &Reply) -> String {
    match reply {
        Reply::Bulk(bytes) => String::from_utf8(bytes.clone()).expect("text"),
        other => panic!("no string: {other:?}"),
    }
}

/// Calls `SCAN` once; returns where to go on, and the keys.
fn scan_once(connection: &mut Connection, cursor: &str, options: &[&str]) -> (String, Vec<String>) {
    let reply = connection.ask(&[&["SCAN", cursor], options].concat()).expect("a reply");
    let [cursor, keys] = reply.array() else { panic!("{reply:?}") };
    (text(cursor), keys.array().iter().map(text).collect())
}

/// Iterates over the keys of a node. `between` is called after each step.
fn scan_node(address: &str, options: &[&str], mut between: impl FnMut(usize)) -> Vec<String> {
    let mut connection = Connection::open(address).expect("a connection");
    let (mut cursor, mut found) = ("0".to_owned(), Vec::new());
    for step in 0.. {
        let keys;
        (cursor, keys) = scan_once(&mut connection, &cursor, options);
        found.extend(keys);
        if cursor == "0" {
            break;
        }
        between(step);
    }
    found
}

fn scan_all(cluster: &Cluster, options: &[&str]) -> Vec<String> {
    NODES.iter().flat_map(|node| scan_node(cluster.redis_address(node), options, |_| {})).collect()
}

fn set(of: impl IntoIterator<Item = String>) -> BTreeSet<String> {
    of.into_iter().collect()
}

#[test]
fn scans_of_all_nodes_return_every_key() {
    const KEYS: usize = 300;
    let cluster = start(&options(NODES));
    // A node serves the partitions of leaders with unknown listeners as its own, and keys come twice.
    NODES.iter().for_each(|node| knows_listeners_at(&cluster, node, NODES));
    let mut client = ClusterClient::new(cluster.redis_address("athens"));
    let all = set((0..KEYS).map(|number| format!("user:{number:03}")));
    for key in &all {
        assert_eq!(client.ask_until_answered(&["SET", key, "v"]), ok());
    }
    assert_eq!(client.ask_until_answered(&["SET", "short", "v", "PX", "1"]), ok());
    for options in [&[][..], &["COUNT", "7"], &["COUNT", "1000000", "TYPE", "string"], &["MATCH", "user:*"]] {
        let mut found = scan_all(&cluster, options);
        found.retain(|key| key != "short");
        assert_eq!(set(found), all, "{options:?}");
    }
    assert_eq!(set(scan_all(&cluster, &["MATCH", "user:?[0-4]7", "COUNT", "50"])).len(), 15);
    assert_eq!(scan_all(&cluster, &["TYPE", "hash"]), [] as [String; 0]);
    // A value that has expired is no key.
    assert_eq!(client.ask_until_answered(&["GET", "short"]), Reply::Null);
    assert_eq!(set(scan_all(&cluster, &[])), all);
    let open = |node: &&str| Connection::open(cluster.redis_address(node)).expect("a connection");
    let mut each: Vec<Connection> = NODES.iter().map(open).collect();
    wait_for("the keys to be counted", TIMEOUT, || {
        let sizes: Vec<i64> = each.iter_mut().map(|node| node.ask(&["DBSIZE"]).expect("a reply").integer()).collect();
        if sizes.iter().sum::<i64>() == KEYS as i64 { Ok(()) } else { Err(format!("{sizes:?}")) }
    });
    let keys = each.iter_mut().flat_map(|node| {
        let reply = node.ask(&["KEYS", "user:*"]).expect("a reply");
        reply.array().iter().map(text).collect::<Vec<_>>()
    });
    assert_eq!(set(keys), all);
    for node in &mut each {
        match node.ask(&["RANDOMKEY"]).expect("a reply") {
            // It may lead nothing.
            Reply::Null => {}
            key => assert!(all.contains(&text(&key)), "{key:?}"),
        }
    }
    let slot = each[0].ask(&["CLUSTER", "KEYSLOT", "user:007"]).expect("a reply").integer().to_string();
    let in_slot = set(each.iter_mut().flat_map(|node| {
        let count = node.ask(&["CLUSTER", "COUNTKEYSINSLOT", &slot]).expect("a reply").integer();
        let keys = node.ask(&["CLUSTER", "GETKEYSINSLOT", &slot, "100"]).expect("a reply");
        let keys: Vec<String> = keys.array().iter().map(text).collect();
        assert_eq!(keys.len() as i64, count);
        keys
    }));
    assert!(in_slot.contains("user:007") && in_slot.is_subset(&all), "{in_slot:?}");
}

#[test]
fn cursor_of_former_process_begins_its_partition_again() {
    let mut cluster = Cluster::start(EXE, &Options { partitions: 1, ..alone() });
    let mut client = ClusterClient::new(cluster.redis_address("athens"));
    for number in 0..20 {
        assert_eq!(client.ask_until_answered(&["SET", &format!("{number:02}"), "v"]), ok());
    }
    let mut connection = Connection::open(cluster.redis_address("athens")).expect("a connection");
    let (cursor, first) = scan_once(&mut connection, "0", &["COUNT", "5"]);
    let (cursor, next) = scan_once(&mut connection, &cursor, &["COUNT", "5"]);
    assert_eq!((first.concat(), next.concat()), ("0001020304".to_owned(), "0506070809".to_owned()));
    cluster.kill_and_return("athens");
    assert!(!ClusterClient::new(cluster.redis_address("athens")).ask_until_answered(&["GET", "00"]).is_error(""));
    let mut returned = Connection::open(cluster.redis_address("athens")).expect("a connection");
    let (next, again) = scan_once(&mut returned, &cursor, &["COUNT", "5"]);
    assert_eq!(again, first);
    assert_eq!(scan_once(&mut returned, &next, &["COUNT", "20"]).1.len(), 15);
}

#[test]
fn scan_returns_keys_that_stay_while_others_change() {
    const KEYS: usize = 200;
    let cluster = start(&options(NODES));
    let mut client = ClusterClient::new(cluster.redis_address("athens"));
    let kept = set((0..KEYS).map(|number| format!("{number:03}")));
    for key in &kept {
        assert_eq!(client.ask_until_answered(&["SET", key, "v"]), ok());
        assert_eq!(client.ask_until_answered(&["SET", &format!("{key}-passing"), "v"]), ok());
    }
    let mut found = Vec::new();
    for node in NODES {
        found.extend(scan_node(cluster.redis_address(node), &["COUNT", "3"], |step| {
            let number = step % KEYS;
            let _ = client.ask_until_answered(&["DEL", &format!("{number:03}-passing")]);
            let _ = client.ask_until_answered(&["SET", &format!("{number:03}-new"), "v"]);
        }));
    }
    assert!(set(found).is_superset(&kept));
}

#[test]
fn keys_refuses_to_read_too_many() {
    let cluster = Cluster::start(EXE, &alone());
    let address = cluster.redis_address("athens");
    let rows: Vec<_> = (0..10_001).map(|number| words(&format!("SET k{number} v"))).collect();
    for part in rows.chunks(500) {
        wait_for("the rows to be written", TIMEOUT, || replies(address, part));
    }
    let mut connection = Connection::open(address).expect("a connection");
    assert!(connection.ask(&["KEYS", "*"]).expect("a reply").is_error("ERR this command reads at most 10000 keys"));
    assert_eq!(connection.ask(&["KEYS", "k77?"]).expect("a reply").array().len(), 10);
    assert!(connection.ask(&["KEYS", &format!("*{}", "a?".repeat(200))]).expect("a reply").is_error("ERR the pattern"));
    assert!(connection.ask(&["FLUSHALL"]).expect("a reply").is_error("ERR 'flushall' is not supported"));
}

#[test]
fn string_commands_answer_as_redis_does() {
    let cluster = start(&options(NODES));
    let mut client = ClusterClient::new(cluster.redis_address("athens"));
    let mut ask = |request: &[&str]| client.ask_until_answered(request);
    assert_eq!(ask(&["SETRANGE", "k", "6", "Redis"]), Reply::Integer(11));
    assert_eq!(ask(&["GET", "k"]), Reply::bulk("\0\0\0\0\0\0Redis"));
    assert_eq!(ask(&["SETRANGE", "k", "0", "Hello "]), Reply::Integer(11));
    assert_eq!(ask(&["SUBSTR", "k", "-5", "-1"]), Reply::bulk("Redis"));
    assert_eq!(ask(&["SETRANGE", "k", "100", ""]), Reply::Integer(11));
    assert!(ask(&["SETRANGE", "k", "-1", "x"]).is_error("ERR offset is out of range"));
    assert!(ask(&["SETRANGE", "k", "1048576", "x"]).is_error("ERR string exceeds maximum allowed size"));
    assert_eq!(ask(&["OBJECT", "ENCODING", "k"]), Reply::bulk("embstr"));
    assert_eq!(ask(&["OBJECT", "REFCOUNT", "absent"]), Reply::Null);
    assert!(ask(&["OBJECT", "FREQ", "k"]).is_error("ERR the node does not record"));
    assert!(ask(&["INCRBYFLOAT", "k", "1"]).is_error("ERR value is not a valid float"));
    assert_eq!(ask(&["SET", "f", "10.50", "EX", "1000"]), ok());
    assert_eq!(ask(&["INCRBYFLOAT", "f", "0.1"]), Reply::bulk("10.6"));
    assert_eq!(ask(&["INCRBYFLOAT", "f", "-5e0"]), Reply::bulk("5.6"));
    assert!(ask(&["TTL", "f"]).integer() > 900, "the expiry is kept");
    assert_eq!(ask(&["SET", "d", "Hello world"]), ok());
    assert_eq!(ask(&["DIGEST", "d"]), Reply::bulk("b6acb9d84a38ff74"));
    assert_eq!(ask(&["DIGEST", "absent"]), Reply::Null);
    assert_eq!(ask(&["SET", "d", "x", "IFEQ", "other"]), Reply::Null);
    assert_eq!(ask(&["SET", "d", "x", "IFDEQ", "B6ACB9D84A38FF74", "GET"]), Reply::bulk("Hello world"));
    assert_eq!(ask(&["SET", "d", "y", "IFNE", "x"]), Reply::Null);
    assert_eq!(ask(&["SET", "new", "y", "IFEQ", "x"]), Reply::Null);
    assert_eq!(ask(&["SET", "new", "y", "IFNE", "x"]), ok());
    assert_eq!(ask(&["DELEX", "new", "IFEQ", "x"]), Reply::Integer(0));
    assert_eq!(ask(&["DELEX", "new", "IFEQ", "y"]), Reply::Integer(1));
    assert_eq!(ask(&["DELEX", "new", "IFNE", "y"]), Reply::Integer(0));
    assert_eq!(ask(&["DELEX", "d"]), Reply::Integer(1));
    assert_eq!(ask(&["EXISTS", "d"]), Reply::Integer(0));
}

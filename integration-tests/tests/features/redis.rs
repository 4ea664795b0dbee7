//! Redis clients on clusters of real processes: redirections, order, atomicity, failover, and malformed requests.

use crate::EXE;
use crate::redis_client::{ClusterClient, Connection, Reply, packed};
use archon_integration_tests::cluster::TIMEOUT;
use archon_integration_tests::{Cluster, Options};
use archon_testkit::wait_for;
use std::thread;

pub(crate) const NODES: &[&str] = &["athens", "byzantium", "cyrene"];

/// Returns options of a cluster with Redis listeners. The test's own client does not speak TLS.
pub(crate) fn options(redis: &'static [&'static str]) -> Options {
    Options { coordinators: 1, redis, tls: false, ..Options::default() }
}

/// Starts a cluster, and waits until its first node with a listener knows the listeners of the others: it forwards to
/// them before.
pub(crate) fn start(options: &Options) -> Cluster {
    let cluster = Cluster::start(EXE, options);
    knows_listeners(&cluster, options.redis);
    cluster
}

pub(crate) fn knows_listeners(cluster: &Cluster, listeners: &[&str]) {
    knows_listeners_at(cluster, listeners[0], listeners);
}

/// Waits until a node knows the listeners of others.
pub(crate) fn knows_listeners_at(cluster: &Cluster, node: &str, listeners: &[&str]) {
    let mut connection = Connection::open(cluster.redis_address(node)).expect("a connection");
    wait_for("the listeners to be known", TIMEOUT, || {
        let Ok(Reply::Bulk(nodes)) = connection.ask(&["CLUSTER", "NODES"]) else { return Err("no nodes".to_owned()) };
        let nodes = String::from_utf8_lossy(&nodes).into_owned();
        let masters = nodes.lines().filter(|line| line.split(' ').nth(3) == Some("-")).count();
        if masters == listeners.len() { Ok(()) } else { Err(nodes) }
    });
}

pub(crate) fn ok() -> Reply {
    Reply::status("OK")
}

#[test]
fn redis_client_follows_redirections_to_leaders() {
    let cluster = start(&options(NODES));
    let mut client = ClusterClient::new(cluster.redis_address("athens"));
    let every_byte: Vec<u8> = (0..=255).collect();
    for number in 0..60 {
        let key = format!("clé {number}");
        let value = [every_byte.as_slice(), key.as_bytes()].concat();
        assert_eq!(client.ask_until_answered(&[b"SET", key.as_bytes(), &value]), ok());
        assert_eq!(client.ask_until_answered(&["GET", &key]), Reply::bulk(&value));
    }
    assert!(client.redirections > 0, "no request was redirected");
    // The same keys, by the other ways in.
    assert!(cluster.done(&["kv", "get", "clé 7", "-o", "json"]).contains("value"));
    let mut own = Connection::open(cluster.redis_address("byzantium")).unwrap();
    let slots = own.ask(&["CLUSTER", "SLOTS"]).unwrap();
    let mut next = 0;
    for range in slots.array() {
        let [begin, end] = [0, 1].map(|at| range.array()[at].integer());
        assert_eq!(begin, next, "no slot is left out");
        next = end + 1;
    }
    assert_eq!(next, 16_384);
    let Reply::Bulk(info) = own.ask(&["CLUSTER", "INFO"]).unwrap() else { panic!("no information") };
    assert!(String::from_utf8_lossy(&info).contains("cluster_state:ok"));
    assert!(own.ask(&["ECHO", &"long".repeat(2_000)]).unwrap().is_error("ERR string exceeds"));
    assert_eq!(own.ask(&["WAIT", "1", "0"]).unwrap(), Reply::Integer(0), "there is one copy");
    assert_eq!(client.ask(&["DEL", "clé 7"]).unwrap(), Reply::Integer(1));
    assert_eq!(client.ask(&["GET", "clé 7"]).unwrap(), Reply::Null);
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let cluster = start(&options(NODES));
    let leader = cluster.leader_of("{t}0");
    let mut attempts = 0;
    // A lease that expires may leave the outcome of a write open: that ends the connection, and the attempt.
    wait_for("a pipeline without a lost connection", TIMEOUT, || {
        attempts += 1;
        pipeline(cluster.redis_address(&leader), &format!("{{t}}{attempts}")).map_err(|error| error.to_string())
    });
}

/// Sends 1,000 increments of a key, each before a ping, and checks the replies.
fn pipeline(address: &str, key: &str) -> std::io::Result<()> {
    let mut connection = Connection::open(address)?;
    let mut sent = Vec::new();
    for number in 0..1_000 {
        sent.extend(packed(&["INCR", key]));
        sent.extend(packed(&["PING", &number.to_string()]));
    }
    sent.extend_from_slice(format!("NONSENSE\r\nGET {key}\r\n").as_bytes());
    // In pieces that end anywhere.
    for piece in sent.chunks(777) {
        connection.send_bytes(piece)?;
    }
    let mut done = 0;
    for number in 0..1_000 {
        match connection.reply()? {
            reply if reply.is_not_done() => {}
            reply => {
                done += 1;
                assert_eq!(reply, Reply::Integer(done));
            }
        }
        assert_eq!(connection.reply()?, Reply::bulk(number.to_string()));
    }
    assert!(connection.reply()?.is_error("ERR unknown command 'NONSENSE'"));
    let last = connection.reply()?;
    assert!(last == Reply::bulk(done.to_string()) || last.is_not_done(), "{last:?}");
    Ok(())
}

/// Results of one writer.
#[derive(Default)]
struct Writes {
    /// Names that were appended, with certainty and perhaps.
    appended: Vec<String>,
    perhaps: Vec<String>,
    added: i64,
    perhaps_added: i64,
    locks: usize,
    perhaps_locks: usize,
}

#[test]
fn conditional_redis_writes_are_atomic() {
    const THREADS: usize = 4;
    const EACH: usize = 25;
    let cluster = start(&options(NODES));
    let address = cluster.redis_address("athens");
    let write = |thread: usize| {
        let (mut client, mut writes) = (ClusterClient::new(address), Writes::default());
        for number in 0..EACH {
            let name = format!("{thread}-{number}");
            match client.ask(&["APPEND", "log", &format!("{name};")]) {
                Ok(length) => {
                    assert!(length.integer() > 0);
                    writes.appended.push(name.clone());
                }
                Err(_) => writes.perhaps.push(name.clone()),
            }
            match client.ask(&["INCRBY", "sum", "2"]) {
                Ok(sum) => writes.added += sum.integer().min(2),
                Err(_) => writes.perhaps_added += 2,
            }
            match client.ask(&["SET", &format!("lock-{number}"), &name, "NX"]) {
                Ok(reply) => writes.locks += usize::from(reply == ok()),
                Err(_) => writes.perhaps_locks += 1,
            }
        }
        writes
    };
    let mut all = Writes::default();
    thread::scope(|scope| {
        let writers: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || write(thread))).collect();
        for writer in writers {
            let writes = writer.join().expect("a writer");
            all.appended.extend(writes.appended);
            all.perhaps.extend(writes.perhaps);
            all.added += writes.added;
            all.perhaps_added += writes.perhaps_added;
            all.locks += writes.locks;
            all.perhaps_locks += writes.perhaps_locks;
        }
    });
    let mut client = ClusterClient::new(address);
    assert!(all.locks <= EACH && all.locks + all.perhaps_locks >= EACH, "{} of {EACH} locks", all.locks);
    let Reply::Bulk(sum) = client.ask_until_answered(&["GET", "sum"]) else { panic!("no sum") };
    let sum: i64 = String::from_utf8(sum).unwrap().parse().unwrap();
    assert!((all.added..=all.added + all.perhaps_added).contains(&sum), "{sum}, and {} was added", all.added);
    let Reply::Bulk(log) = client.ask_until_answered(&["GET", "log"]) else { panic!("no log") };
    let log = String::from_utf8(log).unwrap();
    let mut names: Vec<&str> = log.split_terminator(';').collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count, "an addition was repeated");
    assert!(all.appended.iter().all(|name| names.contains(&name.as_str())), "an addition was lost");
    assert!(count <= all.appended.len() + all.perhaps.len());
}

#[test]
fn condition_that_does_not_hold_changes_nothing() {
    let cluster = start(&options(NODES));
    let mut client = ClusterClient::new(cluster.redis_address("athens"));
    let mut ask = |request: &[&str]| client.ask_until_answered(request);
    assert_eq!(ask(&["SET", "absent", "x", "XX"]), Reply::Null);
    assert_eq!(ask(&["GET", "absent"]), Reply::Null);
    assert_eq!(ask(&["SET", "k", "1"]), ok());
    assert_eq!(ask(&["SET", "k", "2", "NX"]), Reply::Null);
    assert_eq!(ask(&["SET", "k", "2", "NX", "GET"]), Reply::bulk("1"));
    assert_eq!(ask(&["SETNX", "k", "2"]), Reply::Integer(0));
    assert_eq!(ask(&["SET", "k", "y", "IFEQ", "2"]), Reply::Null);
    assert!(ask(&["SET", "k", "y", "EX", "0"]).is_error("ERR invalid expire time in 'set' command"));
    assert_eq!(ask(&["GET", "k"]), Reply::bulk("1"));
    assert_eq!(ask(&["SET", "k", "word", "XX"]), ok());
    assert!(ask(&["INCR", "k"]).is_error("ERR value is not an integer"));
    assert_eq!(ask(&["STRLEN", "k"]), Reply::Integer(4));
    assert_eq!(ask(&["TYPE", "k"]), Reply::status("string"));
}

#[test]
fn redis_client_goes_on_after_its_leader_is_killed() {
    let three = Options { partitions: 9, replication: 3, ..options(NODES) };
    let mut cluster = Cluster::start_whole(EXE, &three);
    knows_listeners(&cluster, NODES);
    let addresses: Vec<String> = NODES.iter().map(|node| cluster.redis_address(node).to_owned()).collect();
    let mut client = ClusterClient::new(&addresses[0]);
    for number in 0..30 {
        assert_eq!(client.ask_until_answered(&["SET", &format!("k{number}"), "before"]), ok());
    }
    assert_eq!(client.ask(&["WAIT", "2", "0"]).unwrap(), Reply::Integer(2));
    let victim = cluster.leader_of("k0");
    cluster.take_node(&victim).kill();
    let other = NODES.iter().find(|node| **node != victim).expect("two others");
    let mut client = ClusterClient::new(cluster.redis_address(other));
    for number in 0..30 {
        let key = format!("k{number}");
        // Refused, or redirected to the killed node, for a moment; then answered with the acknowledged value.
        assert_eq!(client.ask_until_answered(&["GET", &key]), Reply::bulk("before"));
        assert_eq!(client.ask_until_answered(&["SET", &key, "after"]), ok());
    }
    cluster.start_node(&victim);
    cluster.wait_node(&victim, "alive");
    let mut returned = ClusterClient::new(cluster.redis_address(&victim));
    assert_eq!(returned.ask_until_answered(&["GET", "k0"]), Reply::bulk("after"));
}

#[test]
fn node_forwards_to_leaders_without_redis_listener() {
    let cluster = start(&options(&["athens"]));
    let mut client = ClusterClient::new(cluster.redis_address("athens"));
    for number in 0..30 {
        let key = format!("k{number}");
        assert_eq!(client.ask_until_answered(&["SET", &key, &key]), ok());
        assert_eq!(client.ask_until_answered(&["GET", &key]), Reply::bulk(&key));
    }
    assert_eq!(client.redirections, 0);
    let mut connection = Connection::open(cluster.redis_address("athens")).unwrap();
    let slots = connection.ask(&["CLUSTER", "SLOTS"]).unwrap();
    assert_eq!(slots.array().len(), 1, "the only listener serves all slots");
}

#[test]
fn malformed_redis_requests_close_only_their_connection() {
    let cluster = start(&options(&["athens"]));
    let address = cluster.redis_address("athens");
    let mut unharmed = Connection::open(address).unwrap();
    assert_eq!(ClusterClient::new(address).ask_until_answered(&["SET", "k", "v"]), ok());
    let long = vec![b'a'; 70_000];
    let cases: [(&[u8], &str); 9] = [
        (b"*1000000\r\n", "ERR Protocol error: invalid multibulk length"),
        (b"*99999999999999999999\r\n", "ERR Protocol error: invalid multibulk length"),
        (b"*2\r\n$3\r\nGET\r\n$-5\r\n", "ERR Protocol error: invalid bulk length"),
        (b"*2\r\n$3\r\nGET\r\n$536870912\r\n", "ERR Protocol error: invalid bulk length"),
        (b"*2\r\n$3\r\nGET\r\n:1\r\n", "ERR Protocol error: expected '$', got ':'"),
        (b"*2\r\n$3\r\nGET\r\n*1\r\n", "ERR Protocol error: expected '$', got '*'"),
        (b"GET \"k\r\n", "ERR Protocol error: unbalanced quotes in request"),
        (&long, "ERR Protocol error: too big inline request"),
        // A valid request before is answered.
        (b"PING\r\n*x\r\n", "PONG"),
    ];
    for (bytes, text) in cases {
        let mut connection = Connection::open(address).unwrap();
        // The node may close the connection before it has read everything.
        let _ = connection.send_bytes(bytes);
        match connection.reply().unwrap() {
            Reply::Error(found) => assert_eq!(found, text),
            Reply::Status(found) => {
                assert_eq!(found, text);
                assert!(connection.reply().unwrap().is_error("ERR Protocol error: invalid multibulk length"));
            }
            other => panic!("{other:?}"),
        }
        assert!(connection.is_closed(), "{text}");
        assert_eq!(unharmed.ask(&["GET", "k"]).unwrap(), Reply::bulk("v"));
    }
    // Wrong commands leave the connection open.
    for (request, text) in [
        (vec!["GET"], "ERR wrong number of arguments for 'get' command"),
        (vec!["LPUSH", "l", "1"], "ERR unknown command 'LPUSH', with args beginning with: 'l' '1' "),
        (vec!["TTL"], "ERR wrong number of arguments for 'ttl' command"),
        (vec!["MGET", "a", "b"], "CROSSSLOT Keys in request don't hash to the same slot"),
        (vec!["SELECT", "1"], "ERR SELECT is not allowed in cluster mode"),
    ] {
        assert_eq!(unharmed.ask(&request).unwrap(), Reply::Error(text.trim_end().to_owned()));
    }
    // Half a request waits for the other half, and delays no other client.
    let mut half = Connection::open(address).unwrap();
    half.send_bytes(b"*2\r\n$3\r\nGET\r\n$1\r\n").unwrap();
    assert_eq!(unharmed.ask(&["GET", "k"]).unwrap(), Reply::bulk("v"));
    half.send_bytes(b"k\r\n").unwrap();
    assert_eq!(half.reply().unwrap(), Reply::bulk("v"));
}

/// Resident memory of a process, in bytes.
fn resident_bytes(pid: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a running process");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    let kilobytes = line.split_whitespace().nth(1).and_then(|number| number.parse::<usize>().ok());
    kilobytes.expect("the size of the process") * 1_024
}

#[test]
fn redis_client_that_does_not_read_holds_bounded_memory() {
    const VALUE_BYTES: usize = 400_000;
    const GETS: usize = 500;
    const KEYS: usize = 10;
    let cluster = start(&options(&["athens"]));
    let address = cluster.redis_address("athens");
    let value = vec![b'v'; VALUE_BYTES];
    let mut other = Connection::open(address).unwrap();
    // Gets of different keys are in progress at once.
    let keys: Vec<String> = (0..KEYS).map(|number| format!("k{number}")).collect();
    for key in &keys {
        assert_eq!(ClusterClient::new(address).ask_until_answered(&[&b"SET"[..], key.as_bytes(), &value]), ok());
        assert!(other.ask(&["GET", key]).unwrap() == Reply::bulk(&value));
    }
    let pid = cluster.node("athens").pid();
    let before = resident_bytes(pid);
    // 200 MB of replies that are not read.
    let mut greedy = Connection::open(address).unwrap();
    let gets: Vec<u8> = keys.iter().flat_map(|key| packed(&["GET", key])).collect();
    greedy.send_bytes(&gets.repeat(GETS / KEYS)).unwrap();
    let mut most = before;
    for _ in 0..100 {
        assert_eq!(other.ask(&["STRLEN", "k0"]).unwrap().integer(), VALUE_BYTES as i64);
        most = most.max(resident_bytes(pid));
    }
    assert!(most < before + 60_000_000, "{most} bytes, and {before} before");
    let value = Reply::bulk(&value);
    for _ in 0..GETS {
        // A client that took nothing for 3 s has lost its connection.
        let Ok(reply) = greedy.reply() else { break };
        assert!(reply == value || reply.is_not_done(), "another reply than the value");
    }
}

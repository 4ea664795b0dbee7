//! Pipelines of Redis clients: requests that overlap keep the order of each slot, and share batches of the log.

use crate::redis::{ok, options, start};
use crate::redis_client::{ClusterClient, Connection, Reply, packed};
use archon_integration_tests::cluster::TIMEOUT;
use archon_integration_tests::{Cluster, Options, ProcessExt as _, Scrape, http};
use archon_testkit::wait_for;
use std::collections::BTreeMap;
use std::io::{Error, ErrorKind, Result};

/// One node, which leads all partitions.
pub(crate) fn alone() -> Options {
    Options { nodes: vec!["athens"], nodes_min: 1, metrics: true, ..options(&["athens"]) }
}

/// Sends all requests at once, and returns their replies.
pub(crate) fn replies(address: &str, requests: &[Vec<String>]) -> Result<Vec<Reply>> {
    let mut connection = Connection::open(address)?;
    let sent: Vec<u8> = requests.iter().flat_map(|request| packed(request)).collect();
    connection.send_bytes(&sent)?;
    let replies: Vec<Reply> = requests.iter().map(|_| connection.reply()).collect::<Result<_>>()?;
    // A lease that expires on a busy machine: some requests were not done.
    match replies.iter().find(|reply| reply.is_not_done()) {
        Some(reply) => Err(Error::other(format!("{reply:?}"))),
        None => Ok(replies),
    }
}

pub(crate) fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

/// Executes a request on a map, as Redis does.
fn expected(rows: &mut BTreeMap<String, String>, request: &[String]) -> Reply {
    let key = request[1].clone();
    match (request[0].as_str(), rows.get(&key).cloned()) {
        ("GET", found) => found.map_or(Reply::Null, Reply::bulk),
        ("SET", _) => {
            rows.insert(key, request[2].clone());
            ok()
        }
        ("GETSET", found) => {
            rows.insert(key, request[2].clone());
            found.map_or(Reply::Null, Reply::bulk)
        }
        ("APPEND", found) => {
            let whole = found.unwrap_or_default() + &request[2];
            let length = whole.len() as i64;
            rows.insert(key, whole);
            Reply::Integer(length)
        }
        ("DEL", found) => {
            rows.remove(&key);
            Reply::Integer(found.is_some().into())
        }
        ("INCR", found) => {
            let sum = found.map_or(0, |found| found.parse::<i64>().expect("digits")) + 1;
            rows.insert(key, sum.to_string());
            Reply::Integer(sum)
        }
        (other, _) => panic!("no model of {other}"),
    }
}

/// Draws requests on a few keys, of which some share a slot.
fn drawn(seed: u64) -> Vec<Vec<String>> {
    let mut state = seed;
    let mut draw = |end: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % end
    };
    let request = |_| {
        let key = format!("{{{seed}-{}}}{}", draw(4), draw(4));
        match draw(8) {
            0 | 1 => format!("GET {key}"),
            2 => format!("SET {key} {}", draw(100)),
            3 => format!("GETSET {key} {}", draw(100)),
            // Short, so that a value stays a number.
            4 if draw(4) == 0 => format!("APPEND {key} 1"),
            5 => format!("DEL {key}"),
            _ => format!("INCR {key}"),
        }
    };
    (0..600).map(request).map(|text| words(&text)).collect()
}

/// Checks that pipelines get the replies that their requests would get one after the other.
fn check_pipelines(address: &str) {
    assert_eq!(ClusterClient::new(address).ask_until_answered(&["SET", "k", "v"]), ok());
    for seed in 0..5 {
        let mut last = seed * 1_000;
        wait_for("a pipeline without a lost connection", TIMEOUT, || {
            last += 1;
            let requests = drawn(last);
            let found = replies(address, &requests)?;
            let mut rows = BTreeMap::new();
            for (number, (request, reply)) in requests.iter().zip(found).enumerate() {
                assert_eq!(reply, expected(&mut rows, request), "{number}: {request:?}, seed {last}");
            }
            Ok::<_, Error>(())
        });
    }
}

#[test]
fn pipelined_requests_see_each_other_in_order() {
    let cluster = Cluster::start(crate::EXE, &alone());
    check_pipelines(cluster.redis_address("athens"));
}

#[test]
fn pipelined_requests_keep_their_order_at_other_leaders() {
    // It forwards to nodes without a listener.
    let cluster = start(&options(&["athens"]));
    check_pipelines(cluster.redis_address("athens"));
}

#[test]
fn errors_inside_pipeline_keep_order_of_replies() {
    // Windows have at most 128 requests, and each error is refused at another place.
    const ROUNDS: usize = 300;
    let cluster = Cluster::start(crate::EXE, &alone());
    let address = cluster.redis_address("athens");
    assert_eq!(ClusterClient::new(address).ask_until_answered(&["SET", "k", "v"]), ok());
    let long = "k".repeat(5_000);
    let mut attempt = 0;
    wait_for("a pipeline without a lost connection", TIMEOUT, || {
        attempt += 1;
        let (mut requests, mut expected) = (Vec::new(), Vec::new());
        for round in 0..ROUNDS {
            let key = format!("{attempt}-{round}");
            let mut add = |text: String, reply: std::result::Result<Reply, &'static str>| {
                requests.push(words(&text));
                expected.push(reply);
            };
            add(format!("SET {key} v{round}"), Ok(ok()));
            add(format!("GET {long}"), Err("ERR "));
            add(format!("GET {key}"), Ok(Reply::bulk(format!("v{round}"))));
            add(format!("INCR {key}"), Err("ERR value is not an integer"));
            add(format!("GETRANGE {key} a b"), Err("ERR value is not an integer"));
            add("GET".to_owned(), Err("ERR wrong number of arguments"));
            add(format!("GET {key}x"), Ok(Reply::Null));
            add(format!("SET {key} v EX 0"), Err("ERR invalid expire time"));
            add(format!("LPUSH {key} v"), Err("ERR unknown command"));
            add(format!("DECRBY {key} {}", i64::MIN), Err("ERR decrement would overflow"));
            add(format!("PING {round}"), Ok(Reply::bulk(round.to_string())));
            add(format!("MGET {key} other"), Err("CROSSSLOT"));
            add(format!("STRLEN {key}"), Ok(Reply::Integer(round.to_string().len() as i64 + 1)));
        }
        for (number, (reply, expected)) in replies(address, &requests)?.into_iter().zip(&expected).enumerate() {
            let fits = match expected {
                Ok(expected) => reply == *expected,
                Err(begin) => reply.is_error(begin),
            };
            assert!(fits, "{number}: {:?} got {reply:?}", requests[number]);
        }
        Ok::<_, Error>(())
    });
}

/// Returns the next reply; `None` if the connection ended.
fn reply_until_end(connection: &mut Connection) -> Option<Reply> {
    match connection.reply() {
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            panic!("no reply: {error}")
        }
        reply => reply.ok(),
    }
}

#[test]
fn pipelines_lose_no_acknowledged_write_while_partitions_move() {
    const NODES: &[&str] = &["athens", "byzantium"];
    const PIPELINE: usize = 400;
    let two = Options { nodes: NODES.to_vec(), nodes_min: 2, partitions: 8, replication: 2, ..options(NODES) };
    let mut cluster = start(&two);
    cluster.wait_whole(2);
    let addresses: Vec<String> = NODES.iter().map(|node| cluster.redis_address(node).to_owned()).collect();
    let (mut written, mut redirected, mut done) = (Vec::new(), 0, 0);
    let mut write_round = |written: &mut Vec<String>| {
        let mut redirections = 0;
        for address in &addresses {
            let keys: Vec<String> = (done..done + PIPELINE).map(|number| format!("k{number}")).collect();
            done += PIPELINE;
            let mut sent = Vec::new();
            for key in &keys {
                sent.extend(packed(&["SET", key, key]));
                sent.extend(packed(&["GET", key]));
            }
            let Ok(mut connection) = Connection::open(address) else { continue };
            if connection.send_bytes(&sent).is_err() {
                continue;
            }
            for key in keys {
                // The connection ends where the outcome of a write is unknown, and while its node is down.
                let Some(set) = reply_until_end(&mut connection) else { break };
                if set == ok() {
                    written.push(key.clone());
                }
                let Some(get) = reply_until_end(&mut connection) else { break };
                let is_refused = get.is_error("MOVED") || get.is_not_done();
                assert!(is_refused || set != ok() || get == Reply::bulk(&key), "{key}: {set:?}, then {get:?}");
                redirections += usize::from(set.is_error("MOVED"));
            }
        }
        redirections
    };
    redirected += write_round(&mut written);
    for node in NODES {
        // Its leaderships move to the other node, and some return.
        let stopped = cluster.take_node(node);
        std::thread::scope(|threads| {
            let stopping = threads.spawn(move || stopped.terminate(TIMEOUT));
            while !stopping.is_finished() {
                redirected += write_round(&mut written);
            }
            assert!(stopping.join().expect("the node stops").success());
        });
        cluster.start_node(node);
        cluster.wait_node(node, "alive");
        cluster.wait_whole(2);
    }
    assert!(redirected > 0 && written.len() > PIPELINE, "{redirected} redirections, {} writes", written.len());
    let mut client = ClusterClient::new(&addresses[0]);
    for key in &written {
        assert_eq!(client.ask_until_answered(&["GET", key]), Reply::bulk(key), "{key}");
    }
}

#[test]
fn pipelined_writes_share_batches_of_the_log() {
    const WRITES: usize = 2_000;
    let cluster = Cluster::start(crate::EXE, &alone());
    let address = cluster.redis_address("athens");
    assert_eq!(ClusterClient::new(address).ask_until_answered(&["SET", "k", "v"]), ok());
    let batches = || {
        let answer = http::get(cluster.metrics_address("athens"), "/metrics").expect("the metrics of the node");
        Scrape::read(&answer.body).expect("metrics").get("archon_node_log_batches_total")
    };
    let mut attempt = 0;
    wait_for("a pipeline without a lost connection", TIMEOUT, || {
        attempt += 1;
        let requests: Vec<_> = (0..WRITES).map(|number| words(&format!("SET {attempt}-{number} v"))).collect();
        let before = batches();
        let found = replies(address, &requests)?;
        assert!(found.iter().all(|reply| *reply == ok()));
        let taken = batches() - before;
        assert!(taken > 0.0 && taken < WRITES as f64 / 4.0, "{taken} batches for {WRITES} writes");
        Ok::<_, Error>(())
    });
}

#[test]
fn client_chooses_the_replies_it_gets() {
    let cluster = Cluster::start(crate::EXE, &alone());
    let address = cluster.redis_address("athens");
    assert_eq!(ClusterClient::new(address).ask_until_answered(&["SET", "a", "0"]), ok());
    let requests = ["CLIENT REPLY SKIP", "SET a 1", "GET a", "CLIENT REPLY OFF", "SET a 2", "CLIENT REPLY ON", "GET a"];
    let sent: Vec<u8> = requests.iter().flat_map(|request| packed(&words(request))).collect();
    // A write without a reply may not be done, on a busy machine.
    wait_for("all requests to be done", TIMEOUT, || {
        let mut connection = Connection::open(address)?;
        connection.send_bytes(&sent)?;
        let found: Vec<Reply> = (0..3).map(|_| connection.reply()).collect::<Result<_>>()?;
        let expected = [Reply::bulk("1"), ok(), Reply::bulk("2")];
        if found == expected { Ok(()) } else { Err(Error::other(format!("{found:?}"))) }
    });
    let mut connection = Connection::open(address).unwrap();
    assert!(connection.ask(&["CLIENT", "PAUSE", "100"]).unwrap().is_error("ERR clients cannot end or pause others"));
}

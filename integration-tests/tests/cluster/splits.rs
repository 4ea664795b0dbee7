//! Splits of partitions by range, on real processes: under load, under kills, and refused ones.

use crate::EXE;
use archon_client::{Role, Transport};
use archon_integration_tests::strike::{Phase, Striker, Victim, wait_served};
use archon_integration_tests::{COUNTERS, Cluster, CounterLoad, CounterResult, Options, counter_key as key};
use archon_proto::v1::kv_client::KvClient;
use archon_proto::v1::reply::Answer;
use archon_proto::v1::{BatchRequest, ClusterRef, Op, OpGet, OpId, OpIncrement, PartitionId, Reply, op};
use archon_security::ExpectedPeer;
use archon_testkit::wait_for;
use serde_json::Value;
use std::time::Duration;
use tokio::runtime::Runtime;
use tonic::transport::Endpoint;

const NODES: [&str; 3] = ["athens", "byzantium", "cyrene"];
const TIMEOUT: Duration = Duration::from_secs(60);

fn cluster(coordinators: usize) -> Cluster {
    let options = Options { coordinators, nodes: NODES.to_vec(), partitions: 4, ..Options::replicated() };
    let cluster = Cluster::start(EXE, &options);
    cluster.wait_whole(3);
    cluster.done(&["table", "create", "times", "--range", "--replication", "3"]);
    wait_served(&cluster, "times", 1);
    cluster
}

fn split(cluster: &Cluster, partition: &str, at: &str) {
    cluster.done(&["partition", "split", partition, "--table", "times", "--at", at, "--wait"]);
}

#[test]
fn splits_under_load_apply_every_write_once() {
    let cluster = cluster(1);
    let counting = CounterLoad::begin(&cluster, "times");
    for (partition, at, count) in [("0", "key-12", 2), ("1", "key-18", 3), ("0", "key-06", 4), ("2", "key-21", 5)] {
        split(&cluster, partition, at);
        wait_served(&cluster, "times", count);
    }
    let seen = counting.end();
    let longest = |seen: &[CounterResult]| seen.iter().map(|seen| seen.longest_ms).max();
    // Those below every split point, and those above all of them.
    let (kept, moved) = (longest(&seen[..6]), longest(&seen[21..]));
    let all = seen.iter().map(|seen| seen.done).sum::<i64>();
    println!("{all} increments; the longest of keys that stayed took {kept:?} ms, of keys that moved {moved:?} ms");
    assert!(seen.iter().all(|seen| seen.open == 0), "nothing failed, so nothing is open: {seen:?}");
    let begins: Vec<Value> = cluster.partitions("times").iter().map(|row| row["range"]["begin"].clone()).collect();
    assert_eq!(begins.iter().filter_map(Value::as_str).collect::<std::collections::BTreeSet<_>>().len(), 5);
    let events = cluster.done(&["events"]);
    assert!(events.contains("is split: times/1 has the keys from \"key-12\" on"), "{events}");
}

#[test]
fn split_without_key_halves_the_bytes() {
    let cluster = cluster(1);
    let put = |key: &str, bytes: usize| drop(cluster.done(&["kv", "put", key, &"x".repeat(bytes), "--table", "times"]));
    ["a", "b", "c", "d"].into_iter().for_each(|key| put(key, 100));
    put("e", 300);
    put("f", 100);
    // Of 800 bytes the half is before `e`.
    let planned = cluster.done(&["partition", "split", "0", "--table", "times", "--dry-run"]);
    assert!(planned.contains("would be split") && planned.contains("from \"e\" on"), "{planned}");
    assert_eq!(cluster.partitions("times").len(), 1, "nothing was changed");
    cluster.done(&["partition", "split", "0", "--table", "times", "--wait"]);
    wait_served(&cluster, "times", 2);
    let begins: Vec<Value> = cluster.partitions("times").iter().map(|row| row["range"]["begin"].clone()).collect();
    assert!(begins.contains(&Value::from("e")), "{begins:?}");
}

/// Number of attempts to hit a phase that lasts for milliseconds.
const TRIES: usize = 4;

/// Kills a process in each of these phases of splits, each time in the rightmost partition, while counters are incremented.
fn kill_during_splits(victim: Victim, phases: &[Phase]) {
    let mut cluster = cluster(3);
    let striker = Striker::new(&cluster, "times");
    let counting = CounterLoad::begin(&cluster, "times");
    let mut counters = 1..COUNTERS;
    let mut tries = 0;
    for phase in phases {
        let strike = (victim, *phase);
        let met = (0..TRIES).any(|_| {
            tries += 1;
            let listed = cluster.partitions("times");
            let last = listed.iter().max_by_key(|row| row["range"]["begin"].to_string()).expect("a partition");
            let left = last["partition"].as_u64().and_then(|left| u32::try_from(left).ok()).expect("a number");
            let at = key(counters.next().expect("a counter to split at"));
            let met = striker.strike(&mut cluster, strike, (left, None), |striker| striker.split(left, &at));
            cluster.wait_settled("times", "the table to be served", TIMEOUT, |_| true);
            met
        });
        assert!(met, "{strike:?} was never met in {TRIES} tries: it was over before");
    }
    let seen = counting.end();
    let count = cluster.partitions("times").len();
    let all = seen.iter().map(|seen| seen.done).sum::<i64>();
    println!("{} strikes in {tries} tries, {count} partitions, {all} increments", phases.len());
    // The split that was completed when the process died stays.
    assert!(count > 1, "{count} partitions");
}

const PHASES: [Phase; 3] = [Phase::Begun, Phase::GivenUp, Phase::Done];

#[test]
fn killed_leader_of_a_split_loses_and_repeats_no_write() {
    kill_during_splits(Victim::LeftLeader, &PHASES);
}

#[test]
fn killed_follower_during_splits_loses_and_repeats_no_write() {
    kill_during_splits(Victim::OtherCopy, &PHASES);
}

#[test]
fn killed_coordinator_during_splits_loses_and_repeats_no_write() {
    kill_during_splits(Victim::Coordinator, &PHASES);
}

/// The right half has no leader before it is a partition.
#[test]
fn killed_leader_of_the_right_half_loses_and_repeats_no_write() {
    kill_during_splits(Victim::RightLeader, &[Phase::Done]);
}

#[test]
fn client_ten_splits_behind_finds_and_scans_every_key() {
    let cluster = cluster(1);
    let runtime = Runtime::new().expect("a runtime");
    let client = cluster.client().table("times");
    let client = runtime.block_on(client.build()).expect("a client");
    for counter in 0..COUNTERS {
        runtime.block_on(client.put(key(counter), "before")).expect("a put");
    }
    for split_point in 1..=10 {
        let listed = cluster.partitions("times");
        let last = listed.iter().max_by_key(|row| row["range"]["begin"].to_string()).expect("a partition");
        split(&cluster, &last["partition"].to_string(), &key(2 * split_point));
        wait_served(&cluster, "times", split_point + 1);
    }
    for counter in 0..COUNTERS {
        let found = runtime.block_on(client.get(key(counter))).expect("a get").expect("a value");
        assert_eq!(found.value.as_ref(), b"before", "{}", key(counter));
        runtime.block_on(client.put(key(counter), "after")).expect("a put");
    }
    let listed = cluster.done(&["kv", "scan", "--table", "times", "--limit", "1000"]);
    let after = listed.lines().filter(|line| line.contains("after")).count();
    assert_eq!(after, COUNTERS, "{listed}");
}

#[test]
fn nodes_killed_right_after_a_split_keep_both_halves() {
    let mut cluster = cluster(1);
    cluster.put_all("times", (0..100).map(|number| (format!("key-{number:02}"), "value")));
    split(&cluster, "0", "key-50");
    for node in NODES {
        cluster.take_node(node).kill();
    }
    for node in NODES {
        cluster.start_node(node);
    }
    wait_served(&cluster, "times", 2);
    let listed = cluster.done(&["kv", "scan", "--table", "times", "--limit", "1000"]);
    assert_eq!(listed.lines().filter(|line| line.contains("key-")).count(), 100, "{listed}");
    let back = cluster.done(&["kv", "scan", "--table", "times", "--reverse", "--limit", "3"]);
    assert!(back.contains("key-99"), "{back}");
}

#[test]
fn half_formed_copies_survive_a_kill_undamaged() {
    let mut cluster = cluster(3);
    let runtime = Runtime::new().expect("a runtime");
    let client = cluster.client().table("times");
    let client = runtime.block_on(client.build()).expect("a client");
    let value = vec![7_u8; 16 * 1024];
    for batch in 0..32 {
        let put = |number: u32| client.put(format!("key-{number:04}"), value.clone());
        let puts: Vec<_> = (batch * 64..(batch + 1) * 64).map(put).collect();
        runtime.block_on(futures::future::try_join_all(puts)).expect("puts");
    }
    let striker = Striker::new(&cluster, "times");
    let counted = |cluster: &Cluster, name: &str| NODES.map(|node| striker.counted(cluster.node_address(node), name));
    let formed = |cluster: &Cluster| counted(cluster, "archon_node_formed_bytes_total").into_iter().min();
    let syncs = |cluster: &Cluster| counted(cluster, "archon_engine_syncs_total");
    cluster.done(&["partition", "split", "0", "--table", "times", "--at", "key-0100"]);
    wait_for("some rows to be copied", TIMEOUT, || match formed(&cluster) {
        Some(bytes) if bytes > 0 => Ok(()),
        bytes => Err(format!("{bytes:?} bytes")),
    });
    let before = syncs(&cluster);
    wait_for("them to be on the disks", TIMEOUT, || {
        let now = syncs(&cluster);
        if now.iter().zip(before).all(|(now, before)| *now > before) { Ok(()) } else { Err(format!("{now:?}")) }
    });
    // One after the other, so that the split continues.
    for node in NODES {
        cluster.take_node(node).kill();
        cluster.start_node(node);
        cluster.wait_node(node, "alive");
    }
    let ended = |listed: &Value| {
        let rows = listed.as_array();
        rows.is_some_and(|rows| !rows.is_empty() && rows.iter().all(|row| row["splits_into"].is_null()))
    };
    cluster.wait_json("the split to end", TIMEOUT, &["partition", "list", "--table", "times"], ended);
    let count = cluster.partitions("times").len();
    println!("{count} partitions");
    wait_served(&cluster, "times", count);
    let listed = cluster.done(&["kv", "scan", "--table", "times", "--limit", "10000"]);
    assert_eq!(listed.lines().filter(|line| line.contains("key-")).count(), 2_048);
    let events = cluster.done(&["events"]);
    assert!(!events.contains("damaged"), "{events}");
}

#[test]
fn invalid_split_is_refused_with_the_reason() {
    let mut cluster = cluster(1);
    let refused = |cluster: &Cluster, arguments: &[&str]| {
        let ran = cluster.archon(&[&["partition", "split"], arguments].concat());
        (ran.code, ran.stderr)
    };
    let says = |cluster: &Cluster, arguments: &[&str], code: i32, text: &str| {
        let (found, stderr) = refused(cluster, arguments);
        assert!(found == code && stderr.contains(text), "{arguments:?}: {found} {stderr}");
    };
    says(&cluster, &["0", "--at", "m"], 2, "hash table");
    says(&cluster, &["7", "--table", "times", "--at", "m"], 3, "has no partition 7");
    says(&cluster, &["0", "--table", "nowhere", "--at", "m"], 3, "nowhere");
    says(&cluster, &["0", "--table", "times", "--at", ""], 2, "empty");
    says(&cluster, &["0"], 2, "hash table");
    says(&cluster, &["0", "--table", "times"], 4, "has fewer than two rows");
    says(&cluster, &["0", "--table", "times", "--cancel"], 4, "not being split");
    says(&cluster, &["0", "--table", "times", "--at", "m", "--cancel"], 2, "cannot be used with");
    let planned = cluster.done(&["partition", "split", "0", "--table", "times", "--at", "m", "--dry-run"]);
    assert!(planned.contains("would be split") && planned.contains("from \"m\" on"), "{planned}");
    assert_eq!(cluster.partitions("times").len(), 1, "nothing was changed");
    split(&cluster, "0", "m");
    wait_served(&cluster, "times", 2);
    says(&cluster, &["0", "--table", "times", "--at", "m"], 4, "its keys are those");
    says(&cluster, &["1", "--table", "times", "--at", "a"], 4, "its keys are those");
    cluster.take_node("cyrene").kill();
    cluster.wait_node("cyrene", "failed");
    says(&cluster, &["1", "--table", "times", "--at", "t"], 4, "cyrene");
}

/// Sends a batch of one operation on key `z` to the process at this address.
async fn ask(transport: &Transport, address: &str, cluster: &ClusterRef, op: Op) -> Reply {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address");
    let mut node = KvClient::new(transport.channel(&endpoint, address, ExpectedPeer::Servers, Duration::from_secs(5)));
    let request = BatchRequest { cluster: Some(cluster.clone()), table: "times".into(), ops: vec![op] };
    node.batch(request).await.expect("an answer").into_inner().replies.pop().expect("a reply")
}

#[test]
fn identified_write_retried_after_a_split_is_applied_once() {
    let cluster = cluster(1);
    let runtime = Runtime::new().expect("a runtime");
    let status = cluster.json(&["status"]).expect("status");
    let id: uuid::Uuid = status["cluster_id"].as_str().and_then(|id| id.parse().ok()).expect("a cluster id");
    let here = ClusterRef { cluster_id: id.as_bytes().to_vec().into() };
    let transport = cluster.transport(Role::Client);
    let ask = |op: Op| runtime.block_on(ask(&transport, cluster.node_address("athens"), &here, op));
    let table = cluster.partitions("times")[0]["table_id"].as_u64().expect("a number");
    let get = Some(op::Op::Get(OpGet { key: "z".into() }));
    let stamp_ms = Some(ask(Op { op: get, ..Op::default() }).log_time_ms);
    let ask = |op: Op| ask(op).answer.expect("it says something");
    let named = |partition: Option<u32>| Op {
        tag: 1,
        partition: partition.map(|index| PartitionId { table, index }),
        id: Some(OpId { client: vec![7; 16].into(), number: 1, done_below: 1, stamp_ms }),
        op: Some(op::Op::Increment(OpIncrement { key: "z".into(), by: 1 })),
    };
    let refused = |answer: Answer| match answer {
        Answer::Error(error) => error.message,
        other => panic!("{other:?}"),
    };
    let why = refused(ask(named(None)));
    assert!(why.contains("would not know this write by its name"), "{why}");
    let first = ask(named(Some(0)));
    assert!(matches!(&first, Answer::Counter(counter) if counter.value == 1), "{first:?}");
    split(&cluster, "0", "m");
    wait_served(&cluster, "times", 2);
    assert_eq!(ask(named(Some(0))), first, "the partition where it began still knows it");
    refused(ask(named(None)));
    assert_eq!(cluster.done(&["kv", "get", "z", "--table", "times"]), "1");
}

//! Partitions of tables by ranges, split on real processes: under load, under kills, and where it cannot be done.

use archon_client::{Client, Error};
use archon_integration_tests::{Cluster, Options, wait_for};
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

const EXE: &str = env!("CARGO_BIN_EXE_archon-under-test");
const NODES: [&str; 3] = ["athens", "byzantium", "cyrene"];
const PATIENCE: Duration = Duration::from_secs(60);
/// Keys that are counted up, each by a task of its own.
const COUNTERS: usize = 24;

fn cluster() -> Cluster {
    let cluster = Cluster::start(EXE, &Options { nodes: NODES.to_vec(), partitions: 4, ..Options::replicated() });
    cluster.wait_whole(3);
    done(&cluster, &["table", "create", "times", "--range", "--replication", "3"]);
    wait_served(&cluster, 1);
    cluster
}

fn done(cluster: &Cluster, arguments: &[&str]) -> String {
    let ran = cluster.archon(arguments);
    assert_eq!(ran.code, 0, "{arguments:?}: {}", ran.stderr);
    ran.stdout
}

fn partitions(cluster: &Cluster) -> Vec<Value> {
    let listed = cluster.json(&["partition", "list", "--table", "times"]).unwrap_or_default();
    listed.as_array().cloned().unwrap_or_default()
}

/// Waits until so many partitions are served with three copies each, and none is being split.
fn wait_served(cluster: &Cluster, count: usize) {
    wait_for("the table to be served", PATIENCE, || {
        let listed = partitions(cluster);
        let whole = |row: &Value| {
            let live = |copy: &&Value| copy["state"] == "live" && copy["node_status"] == "alive";
            let copies = row["copies"].as_array().map_or(0, |copies| copies.iter().filter(live).count());
            row["status"] == "online" && row["splits_into"].is_null() && copies == 3
        };
        let served = listed.len() == count && listed.iter().all(whole);
        if served { Ok(()) } else { Err(format!("{listed:?}")) }
    });
}

fn split(cluster: &Cluster, partition: &str, at: &str) {
    done(cluster, &["partition", "split", partition, "--table", "times", "--at", at, "--wait"]);
}

fn key(counter: usize) -> String {
    format!("key-{counter:02}")
}

/// What one task has seen of its counter.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// Increments that were acknowledged.
    done: i64,
    /// Those of which nobody can say whether they were done.
    open: i64,
    /// The longest time that one took, in milliseconds.
    longest_ms: u128,
}

/// Counters that are counted up all the while, each by one task after the other: whoever is told of a sum is told of each once.
struct Counting {
    runtime: Runtime,
    client: Arc<Client>,
    stop: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<Seen>>,
}

impl Counting {
    fn begin(cluster: &Cluster) -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let client = Client::builder(cluster.coordinator_addresses()).table("times").timeout(Duration::from_secs(20));
        let client = Arc::new(runtime.block_on(client.build()).expect("a client"));
        let stop = Arc::new(AtomicBool::new(false));
        let task = |counter| runtime.spawn(count_up(Arc::clone(&client), key(counter), Arc::clone(&stop)));
        let tasks = (0..COUNTERS).map(task).collect();
        Self { runtime, client, stop, tasks }
    }

    /// Stops, and holds what was acknowledged against what is there.
    fn end(self) -> Vec<Seen> {
        self.stop.store(true, Ordering::Relaxed);
        let seen: Vec<Seen> =
            self.tasks.into_iter().map(|task| self.runtime.block_on(task).expect("no panic")).collect();
        for (counter, seen) in seen.iter().enumerate() {
            let found = self.runtime.block_on(self.client.get(key(counter))).expect("readable").expect("counted");
            let sum: i64 = String::from_utf8_lossy(&found.value).parse().expect("a number");
            assert!((seen.done..=seen.done + seen.open).contains(&sum), "{}: {sum}, but {seen:?}", key(counter));
            assert!(seen.done > 0, "{}: {seen:?}", key(counter));
        }
        seen
    }
}

async fn count_up(client: Arc<Client>, key: String, stop: Arc<AtomicBool>) -> Seen {
    let mut seen = Seen::default();
    while !stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        match client.increment(key.clone(), 1).await {
            Ok(counter) => {
                seen.done += 1;
                let sums = seen.done..=seen.done + seen.open;
                assert!(sums.contains(&counter.value), "{key}: {counter:?}, but {seen:?}");
            }
            Err(Error::MaybeApplied { .. } | Error::DeadlineExceeded { .. }) => seen.open += 1,
            Err(error) => panic!("{key}: {error}"),
        }
        seen.longest_ms = seen.longest_ms.max(began.elapsed().as_millis());
    }
    seen
}

#[test]
fn partitions_are_split_under_load_and_every_write_counts_once() {
    let cluster = cluster();
    let counting = Counting::begin(&cluster);
    for (partition, at, count) in [("0", "key-12", 2), ("1", "key-18", 3), ("0", "key-06", 4), ("2", "key-21", 5)] {
        split(&cluster, partition, at);
        wait_served(&cluster, count);
    }
    let seen = counting.end();
    let longest = |seen: &[Seen]| seen.iter().map(|seen| seen.longest_ms).max();
    // Those below every split point, and those beyond all.
    let (kept, moved) = (longest(&seen[..6]), longest(&seen[21..]));
    let all = seen.iter().map(|seen| seen.done).sum::<i64>();
    println!("{all} increments; the longest of keys that stayed took {kept:?} ms, of keys that moved {moved:?} ms");
    assert!(seen.iter().all(|seen| seen.open == 0), "nothing failed, so nothing is open: {seen:?}");
    let begins: Vec<Value> = partitions(&cluster).iter().map(|row| row["range"]["begin"].clone()).collect();
    assert_eq!(begins.iter().filter_map(Value::as_str).collect::<std::collections::BTreeSet<_>>().len(), 5);
    let events = done(&cluster, &["events"]);
    assert!(events.contains("is split: times/1 has the keys from \"key-12\" on"), "{events}");
}

#[test]
fn whoever_is_killed_while_partitions_are_split_nothing_is_lost_or_done_twice() {
    let mut cluster = cluster();
    let counting = Counting::begin(&cluster);
    let mut count = 1;
    for (round, node) in NODES.iter().cycle().take(6).enumerate() {
        let listed = partitions(&cluster);
        let last = listed.iter().max_by_key(|row| row["range"]["begin"].to_string()).expect("a partition");
        let (partition, at) = (last["partition"].to_string(), key(3 * round + 3));
        let begun = cluster.archon(&["partition", "split", &partition, "--table", "times", "--at", &at]);
        assert_eq!(begun.code, 0, "{}", begun.stderr);
        // In all phases: before anything is sealed, while copies are formed, when it is done.
        std::thread::sleep(Duration::from_millis(40 * round as u64));
        cluster.take_node(node).kill();
        cluster.start_node(node);
        cluster.wait_node(node, "alive");
        wait_for("the split to end", PATIENCE, || {
            let listed = partitions(&cluster);
            let ends = !listed.is_empty() && listed.iter().all(|row| row["splits_into"].is_null());
            if ends { Ok(()) } else { Err(format!("{listed:?}")) }
        });
        count = partitions(&cluster).len();
        wait_served(&cluster, count);
    }
    let seen = counting.end();
    println!("{count} partitions, {} increments", seen.iter().map(|seen| seen.done).sum::<i64>());
    assert!(count > 1, "none was split");
}

#[test]
fn all_nodes_killed_right_after_a_split_have_both_halves() {
    let mut cluster = cluster();
    for number in 0..100 {
        done(&cluster, &["kv", "put", &format!("key-{number:02}"), "value", "--table", "times"]);
    }
    split(&cluster, "0", "key-50");
    for node in NODES {
        cluster.take_node(node).kill();
    }
    for node in NODES {
        cluster.start_node(node);
    }
    wait_served(&cluster, 2);
    let listed = done(&cluster, &["kv", "scan", "--table", "times", "--limit", "1000"]);
    assert_eq!(listed.lines().filter(|line| line.contains("key-")).count(), 100, "{listed}");
    let back = done(&cluster, &["kv", "scan", "--table", "times", "--reverse", "--limit", "3"]);
    assert!(back.contains("key-99"), "{back}");
}

#[test]
fn what_cannot_be_split_is_refused_with_the_reason() {
    let mut cluster = cluster();
    let refused = |cluster: &Cluster, arguments: &[&str]| {
        let ran = cluster.archon(&[&["partition", "split"], arguments].concat());
        (ran.code, ran.stderr)
    };
    let says = |cluster: &Cluster, arguments: &[&str], code: i32, text: &str| {
        let (found, stderr) = refused(cluster, arguments);
        assert!(found == code && stderr.contains(text), "{arguments:?}: {found} {stderr}");
    };
    says(&cluster, &["0", "--at", "m"], 2, "hashed");
    says(&cluster, &["7", "--table", "times", "--at", "m"], 3, "has no partition 7");
    says(&cluster, &["0", "--table", "nowhere", "--at", "m"], 3, "nowhere");
    says(&cluster, &["0", "--table", "times", "--at", ""], 2, "empty");
    says(&cluster, &["0", "--table", "times"], 2, "--at");
    says(&cluster, &["0", "--table", "times", "--cancel"], 4, "not being split");
    says(&cluster, &["0", "--table", "times", "--at", "m", "--cancel"], 2, "cannot be used with");
    let planned = done(&cluster, &["partition", "split", "0", "--table", "times", "--at", "m", "--dry-run"]);
    assert!(planned.contains("would be split") && planned.contains("from \"m\" on"), "{planned}");
    assert_eq!(partitions(&cluster).len(), 1, "nothing was changed");
    split(&cluster, "0", "m");
    wait_served(&cluster, 2);
    says(&cluster, &["0", "--table", "times", "--at", "m"], 2, "its keys are those");
    says(&cluster, &["1", "--table", "times", "--at", "a"], 2, "its keys are those");
    cluster.take_node("cyrene").kill();
    cluster.wait_node("cyrene", "failed");
    says(&cluster, &["1", "--table", "times", "--at", "t"], 4, "cyrene");
}

//! Merges of partitions by range, on real processes: under load, under kills, and refused ones.

use crate::EXE;
use archon_integration_tests::strike::{Phase, Striker, Victim, wait_served};
use archon_integration_tests::{Cluster, CounterLoad, Options};
use serde_json::Value;
use std::time::Duration;

const NODES: [&str; 3] = ["athens", "byzantium", "cyrene"];
const TIMEOUT: Duration = Duration::from_secs(60);

/// Starts a cluster with a table by ranges, split at these keys.
pub(crate) fn cluster(coordinators: usize, split_at: &str) -> Cluster {
    let options = Options { coordinators, nodes: NODES.to_vec(), partitions: 4, ..Options::replicated() };
    let cluster = Cluster::start(EXE, &options);
    cluster.wait_whole(3);
    cluster.done(&["table", "create", "times", "--range", "--replication", "3", "--split-at", split_at]);
    wait_served(&cluster, "times", split_at.split(',').count() + 1);
    cluster
}

fn merge(cluster: &Cluster, partition: &str) {
    cluster.done(&["partition", "merge", partition, "--table", "times", "--wait"]);
}

#[test]
fn merges_under_load_apply_every_write_once() {
    let cluster = cluster(1, "key-06,key-12,key-18");
    let counting = CounterLoad::begin(&cluster, "times");
    let mut count = 4;
    for partition in ["1", "0", "0"] {
        merge(&cluster, partition);
        count -= 1;
        wait_served(&cluster, "times", count);
    }
    // One partition becomes two and one again: revisions and client records survive all of it.
    for at in ["key-10", "key-15"] {
        cluster.done(&["partition", "split", "0", "--table", "times", "--at", at, "--wait"]);
        wait_served(&cluster, "times", 2);
        counting.wait_heard();
        merge(&cluster, "0");
        wait_served(&cluster, "times", 1);
    }
    let gone = cluster.archon(&["partition", "describe", "2", "--table", "times"]);
    let says = "has no partition 2; it has been merged with its left neighbour, times/1";
    assert!(gone.code == 3 && gone.stderr.contains(says), "{gone:?}");
    let seen = counting.end();
    let longest = seen.iter().map(|seen| seen.longest_ms).max();
    let all = seen.iter().map(|seen| seen.done).sum::<i64>();
    let open = seen.iter().map(|seen| seen.open).sum::<i64>();
    println!("{all} increments, {open} open; the longest took {longest:?} ms");
    assert_eq!(open, 0, "nothing failed, so nothing is open: {seen:?}");
    let events = cluster.done(&["events"]);
    assert!(events.contains("is merged: it has the keys of times/2, from \"key-12\" on"), "{events}");
}

/// Number of attempts to hit a phase that lasts for milliseconds.
const TRIES: usize = 4;
/// The split point.
const AT: &str = "key-12";
/// Rows of the right partition, so that their transfer takes a while.
const ROWS: usize = 100;
const ROW_BYTES: usize = 60_000;

/// Writes the rows that make a merge take time.
fn fill(cluster: &Cluster) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let client = cluster.client().table("times").build().await.expect("a client");
        for row in 0..ROWS {
            client.put(format!("{AT}/{row:03}"), vec![b'v'; ROW_BYTES]).await.expect("a put");
        }
    });
}

/// Returns the numbers of the left and the right partition, each with another leader, once there are two again.
fn two_with_leaders_of_their_own(cluster: &mut Cluster) -> (u32, u32) {
    if cluster.partitions("times").len() == 1 {
        cluster.done(&["partition", "split", "0", "--table", "times", "--at", AT, "--wait"]);
    }
    for _ in 0..TRIES {
        let rows = cluster.wait_settled("times", "the two to be served", TIMEOUT, |rows| rows.len() == 2);
        let number = |row: &Value| row["partition"].as_u64().and_then(|number| u32::try_from(number).ok());
        let (one, other) = (number(&rows[0]).expect("a number"), number(&rows[1]).expect("a number"));
        let leader = rows[0]["leader"].as_str().expect("it is led");
        if rows[1]["leader"] != leader {
            return if rows[0]["range"]["begin"] == "" { (one, other) } else { (other, one) };
        }
        // Its two leaderships go to the two others.
        cluster.take_node(leader).kill();
        cluster.wait_node(leader, "failed");
        cluster.start_node(leader);
    }
    panic!("one node leads both: {:?}", cluster.partitions("times"));
}

/// Kills a process in each phase of merges, while counters are incremented.
fn kill_during_merges(victim: Victim) {
    let mut cluster = cluster(3, AT);
    fill(&cluster);
    let striker = Striker::new(&cluster, "times");
    let counting = CounterLoad::begin(&cluster, "times");
    let phases = [Phase::Begun, Phase::GivenUp, Phase::Done];
    let mut tries = 0;
    for phase in phases {
        let strike = (victim, phase);
        let met = (0..TRIES).any(|_| {
            tries += 1;
            let (left, right) = two_with_leaders_of_their_own(&mut cluster);
            let met = striker.strike(&mut cluster, strike, (left, Some(right)), |striker| striker.merge(left));
            cluster.wait_settled("times", "the table to be served", TIMEOUT, |_| true);
            met
        });
        assert!(met, "{strike:?} was never met in {TRIES} tries: it was over before");
    }
    let seen = counting.end();
    let increments = seen.iter().map(|seen| seen.done).sum::<i64>();
    println!("{} strikes in {tries} tries, {increments} increments", phases.len());
    let listed = cluster.done(&["kv", "scan", "--table", "times", "--limit", "1000"]);
    assert_eq!(listed.lines().filter(|line| line.contains('/')).count(), ROWS, "{} lines", listed.lines().count());
}

#[test]
fn killed_leader_of_a_merge_target_loses_and_repeats_no_write() {
    kill_during_merges(Victim::LeftLeader);
}

#[test]
fn killed_leader_of_a_merge_source_loses_and_repeats_no_write() {
    kill_during_merges(Victim::RightLeader);
}

#[test]
fn killed_follower_during_merges_loses_and_repeats_no_write() {
    kill_during_merges(Victim::OtherCopy);
}

#[test]
fn killed_coordinator_during_merges_loses_and_repeats_no_write() {
    kill_during_merges(Victim::Coordinator);
}

#[test]
fn nodes_killed_right_after_a_merge_keep_all_keys() {
    let mut cluster = cluster(1, "key-50");
    cluster.put_all("times", (0..100).map(|number| (format!("key-{number:02}"), "value")));
    merge(&cluster, "0");
    for node in NODES {
        cluster.take_node(node).kill();
    }
    for node in NODES {
        cluster.start_node(node);
    }
    wait_served(&cluster, "times", 1);
    let listed = cluster.done(&["kv", "scan", "--table", "times", "--limit", "1000"]);
    assert_eq!(listed.lines().filter(|line| line.contains("key-")).count(), 100, "{listed}");
    let back = cluster.done(&["kv", "scan", "--table", "times", "--reverse", "--limit", "3"]);
    assert!(back.contains("key-99"), "{back}");
}

/// Rows of the left and of the right partition. A page of the right one, bounded by bytes alone, had more rows than a
/// log entry takes.
const TINY_ROWS: (usize, usize) = (1_000, 20_000);

#[test]
fn merge_of_many_tiny_rows_keeps_every_row_over_restart() {
    let mut cluster = cluster(1, "m");
    let row = |letter: char, number: usize| format!("{letter}{number:06},1\n");
    let left = (0..TINY_ROWS.0).map(|number| row('a', number));
    let rows: String = left.chain((0..TINY_ROWS.1).map(|number| row('n', number))).collect();
    let csv = format!("key,value\n{rows}");
    let file = cluster.directory().join("tiny.csv");
    std::fs::write(&file, &csv).expect("a file");
    cluster.done(&["kv", "import", "times", file.to_str().expect("text")]);
    merge(&cluster, "0");
    wait_served(&cluster, "times", 1);
    let whole = |cluster: &Cluster| {
        let rows = cluster.wait_settled("times", "three in-sync replicas", TIMEOUT, |rows| rows.len() == 1);
        let held = rows[0]["copies"].as_array().expect("replicas");
        assert!(held.len() == 3 && held.iter().all(|replica| replica["state"] == "live"), "{rows:?}");
        let exported = cluster.done(&["kv", "export", "times", "--format", "csv"]);
        // Its columns are key, key_hex, value and value_hex.
        let pair = |line: &str| [0, 2].map(|column| line.split(',').nth(column).unwrap_or_default()).join(",");
        assert!(exported.lines().map(pair).eq(csv.lines()), "{} lines", exported.lines().count());
    };
    whole(&cluster);
    for node in NODES {
        cluster.take_node(node).kill();
    }
    for node in NODES {
        cluster.start_node(node);
    }
    wait_served(&cluster, "times", 1);
    whole(&cluster);
    cluster.done(&["kv", "put", "a000001", "2", "--table", "times"]);
}

#[test]
fn invalid_merge_is_refused_with_the_reason() {
    let mut cluster = cluster(1, "m");
    let says = |cluster: &Cluster, arguments: &[&str], code: i32, text: &str| {
        let ran = cluster.archon(&[&["partition", "merge"], arguments].concat());
        assert!(ran.code == code && ran.stderr.contains(text), "{arguments:?}: {} {}", ran.code, ran.stderr);
    };
    says(&cluster, &["0"], 2, "hash table");
    says(&cluster, &["7", "--table", "times"], 3, "has no partition 7");
    says(&cluster, &["0", "--table", "nowhere"], 3, "nowhere");
    says(&cluster, &["1", "--table", "times"], 4, "no right neighbour");
    says(&cluster, &["0", "--table", "times", "--cancel"], 4, "not being merged");
    says(&cluster, &["0", "--table", "times", "--wait", "--cancel"], 2, "cannot be used with");
    let planned = cluster.done(&["partition", "merge", "0", "--table", "times", "--dry-run"]);
    assert!(planned.contains("would receive all keys of times/1"), "{planned}");
    assert_eq!(cluster.partitions("times").len(), 2, "nothing was changed");
    cluster.take_node("cyrene").kill();
    cluster.wait_node("cyrene", "failed");
    says(&cluster, &["0", "--table", "times"], 4, "cyrene");
    cluster.start_node("cyrene");
    wait_served(&cluster, "times", 2);
    merge(&cluster, "0");
    wait_served(&cluster, "times", 1);
}

#[test]
fn merge_is_abandoned_if_too_large_or_cancelled() {
    let cluster = cluster(3, "m");
    cluster.done(&["kv", "put", "a", "first", "--table", "times"]);
    // Larger than the limit: refused if the nodes have reported the size by then, otherwise abandoned.
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let client = cluster.client().table("times");
    let client = runtime.block_on(client.build()).expect("a client");
    for number in 0..19 {
        let put = client.put(format!("n-{number:02}"), vec![b'v'; 900 * 1024]);
        runtime.block_on(put).expect("written");
    }
    let ran = cluster.archon(&["partition", "merge", "0", "--table", "times", "--wait"]);
    assert_eq!(ran.code, 4, "{}", ran.stderr);
    let given_up = cluster.done(&["events"]);
    assert!(ran.stderr.contains("16.0 MiB") || given_up.contains("16.0 MiB"), "{}\n{given_up}", ran.stderr);
    wait_served(&cluster, "times", 2);
    // Small enough, and too large to complete before the cancellation.
    cluster.done(&["partition", "split", "1", "--table", "times", "--at", "n-10", "--wait"]);
    wait_served(&cluster, "times", 3);
    let striker = Striker::new(&cluster, "times");
    let merge = striker.merge(1).expect("a merge");
    striker.cancel(&merge).expect("it is not done yet");
    let end = striker.end(&merge);
    assert!(end.message.contains("the merge was abandoned: cancelled by an operator"), "{end:?}");
    wait_served(&cluster, "times", 3);
    cluster.done(&["kv", "put", "z", "last", "--table", "times"]);
    let listed = cluster.done(&["kv", "scan", "--table", "times", "--limit", "1000"]);
    assert_eq!(listed.lines().filter(|line| line.contains("n-")).count(), 19, "{listed}");
}

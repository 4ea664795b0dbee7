//! Three copies of everything, on real processes: the cost of a node's death, of a planned stop and of a cluster
//! without coordinators, and that no acknowledged write is lost.

use crate::EXE;
use archon_client::Client;
use archon_integration_tests::{Cluster, Load, LoadReport, Options, ProcessExt};
use archon_testkit::{check, wait_for};
use futures::stream::{self, StreamExt, TryStreamExt};
use serde_json::Value;
use std::time::{Duration, Instant};

const NAMES: [&str; 3] = ["athens", "byzantium", "cyrene"];

fn three_copies() -> Options {
    Options::replicated()
}

async fn client(cluster: &Cluster, timeout: Duration) -> Client {
    cluster.client().timeout(timeout).build().await.expect("a client")
}

fn is_live(copy: &Value) -> bool {
    copy["state"] == "live"
}

/// Returns true if every partition has three Live copies and a serving leader.
fn is_whole(rows: &[Value]) -> bool {
    let live = |row: &Value| row["copies"].as_array().into_iter().flatten().filter(|copy| is_live(copy)).count();
    rows.iter().all(|row| live(row) == 3 && row["status"] == "online")
}

/// Waits for that state.
fn wait_whole(cluster: &Cluster) -> Duration {
    cluster.wait_partitions("every partition to have three Live copies", is_whole)
}

/// Returns true if it is so now, as far as is known.
fn is_whole_now(cluster: &Cluster) -> bool {
    let list = cluster.json(&["partition", "list", "--timeout", "2s"]);
    list.is_ok_and(|list| list.as_array().is_some_and(|rows| is_whole(rows)))
}

async fn ends_well(load: Load, client: &Client, what: &str) -> LoadReport {
    let report = load.stop().await;
    println!("{what}: {} operations, longest gap {} ms", report.operations, report.longest_gap.as_millis());
    report.assert_no_failure();
    let missing = report.missing(client).await;
    assert!(missing.is_empty(), "{what}: acknowledged and lost: {missing:#?}");
    report
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_node_costs_a_pause_and_rejoins_every_live_set() {
    let mut cluster = Cluster::start(EXE, &Options { coordinators: 1, ..three_copies() });
    println!("whole after {:?}", wait_whole(&cluster));
    let client = client(&cluster, Duration::from_secs(30)).await;
    for name in NAMES {
        let load = Load::start(&client, name, 16);
        tokio::task::block_in_place(|| {
            load.wait_more(200);
            cluster.take_node(name).kill();
            let failed = cluster.wait_node(name, "failed");
            let online = cluster.wait_online();
            println!("{name} failed after {failed:?}, Online after {online:?}");
            load.wait_more(200);
        });
        ends_well(load, &client, &format!("kill of {name}")).await;
        let load = Load::start(&client, &format!("{name}-returns"), 16);
        tokio::task::block_in_place(|| {
            cluster.start_node(name);
            let whole = wait_whole(&cluster);
            println!("{name} is back in every Live set after {whole:?}");
            load.wait_more(200);
        });
        ends_well(load, &client, &format!("return of {name}")).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn planned_stop_hands_over_without_a_failed_operation() {
    let mut cluster = Cluster::start(EXE, &Options { coordinators: 1, ..three_copies() });
    wait_whole(&cluster);
    let client = client(&cluster, Duration::from_secs(30)).await;
    for name in NAMES {
        let load = Load::start(&client, name, 16);
        tokio::task::block_in_place(|| {
            load.wait_more(200);
            let began = Instant::now();
            let status = cluster.take_node(name).terminate(Duration::from_secs(60));
            assert!(status.success(), "{status}");
            println!("{name} ended after {:?}", began.elapsed());
            cluster.wait_online();
            load.wait_more(200);
        });
        ends_well(load, &client, &format!("stop of {name}")).await;
        let load = Load::start(&client, &format!("{name}-returns"), 16);
        tokio::task::block_in_place(|| {
            cluster.start_node(name);
            println!("whole after {:?}", wait_whole(&cluster));
            load.wait_more(200);
        });
        ends_well(load, &client, &format!("return of {name}")).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_and_writes_continue_without_coordinators() {
    let mut cluster = Cluster::start(EXE, &three_copies());
    wait_whole(&cluster);
    let client = client(&cluster, Duration::from_secs(30)).await;
    let load = Load::start(&client, "alone", 16);
    tokio::task::block_in_place(|| {
        load.wait_more(200);
        for index in 0..3 {
            cluster.take_coordinator(index).kill();
        }
        let began = Instant::now();
        // Every lease ends after a second; answers long after that rest on the followers alone.
        wait_for("ten seconds of traffic", Duration::from_secs(60), || {
            check(began.elapsed() > Duration::from_secs(10), || format!("{:?}", began.elapsed()))
        });
        load.wait_more(500);
    });
    ends_well(load, &client, "no coordinator").await;
    let load = Load::start(&client, "quorum-returns", 16);
    tokio::task::block_in_place(|| {
        load.wait_more(200);
        for index in 0..3 {
            cluster.start_coordinator(index);
        }
        cluster.wait_leader();
        wait_whole(&cluster);
        load.wait_more(500);
    });
    ends_well(load, &client, "return of the quorum").await;
}

/// So many large values (53 MiB a partition, where at most 32 MiB of log are kept) that no leader keeps its log for a
/// copy that misses them, and that a copy takes a while.
const LARGE: usize = 1_250;
/// Operations on large values at a time.
const AT_ONCE: usize = 8;

fn large(number: usize) -> Vec<u8> {
    format!("{number:08}").repeat(16 * 1024).into_bytes()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loader_killed_during_copy_restarts_by_itself() {
    let mut cluster = Cluster::start(EXE, &Options { coordinators: 1, partitions: 3, ..three_copies() });
    wait_whole(&cluster);
    let client = client(&cluster, Duration::from_secs(30)).await;
    tokio::task::block_in_place(|| {
        cluster.take_node("cyrene").kill();
        cluster.wait_node("cyrene", "failed");
    });
    let put = |number: usize| client.put(format!("large-{number}"), large(number));
    stream::iter(0..LARGE).map(put).buffer_unordered(AT_ONCE).try_collect::<Vec<_>>().await.expect("puts");
    wait_for("a leader to keep its log no longer", Duration::from_secs(60), || {
        let given_up =
            ["athens", "byzantium"].iter().any(|name| cluster.node(name).log().contains("no longer kept for a copy"));
        check(given_up, || "all logs are kept".to_owned())
    });
    let copies = |cluster: &Cluster| cluster.node("cyrene").log().matches("pulling a copy").count();
    // The logs no longer reach back: it must copy, and is killed as soon as it does, several times.
    let mut interrupted = 0;
    for _ in 0..4 {
        let timeout = Duration::from_secs(60);
        tokio::task::block_in_place(|| {
            let before = interrupted;
            cluster.start_node("cyrene");
            wait_for("cyrene to pull a copy or to be whole", timeout, || {
                let state = is_whole_now(&cluster);
                check(copies(&cluster) > before || state, || "neither".to_owned())
            });
            interrupted = copies(&cluster);
            cluster.take_node("cyrene").kill();
        });
    }
    assert!(interrupted > 0, "it never had to copy, so nothing was shown");
    println!("{interrupted} copies were begun and cut off");
    tokio::task::block_in_place(|| {
        cluster.start_node("cyrene");
        wait_whole(&cluster);
        // Its copy is the one that is read now.
        for name in ["athens", "byzantium"] {
            let status = cluster.take_node(name).terminate(Duration::from_secs(60));
            assert!(status.success(), "{status}");
            cluster.start_node(name);
            wait_whole(&cluster);
        }
    });
    let client = &client;
    let get = |number: usize| async move { (number, client.get(format!("large-{number}")).await) };
    let mut found = stream::iter(0..LARGE).map(get).buffer_unordered(AT_ONCE);
    while let Some((number, found)) = found.next().await {
        let found = found.expect("a get").expect("a value");
        assert!(found.value == large(number), "large-{number}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_cluster_drops_dead_follower_before_the_next_write() {
    let mut cluster = Cluster::start(EXE, &Options { coordinators: 1, ..three_copies() });
    wait_whole(&cluster);
    let client = client(&cluster, Duration::from_secs(30)).await;
    let key = "written-later";
    client.put(key, "before").await.expect("a put");
    let leader = cluster.leader_of(key);
    let follower = NAMES.into_iter().find(|name| *name != leader).expect("one of three");
    tokio::task::block_in_place(|| {
        cluster.take_node(follower).kill();
        // Without writes, every leader still asks for it to be dropped.
        cluster.wait_partitions("the dead node to count nowhere", |rows| {
            let copies = rows.iter().flat_map(|row| row["copies"].as_array().into_iter().flatten());
            !copies.into_iter().any(|copy| copy["node"] == follower && is_live(copy))
        });
    });
    let began = Instant::now();
    client.put(key, "after").await.expect("a put");
    println!("the first write after that took {:?}", began.elapsed());
}

//! Full, failing and slow disks. The faults come from outside, by a small file system and by `strace`; a machine that
//! allows neither skips these tests with a message.

use crate::EXE;
use archon_client::Client;
use archon_integration_tests::disk::{DURABLE_CALLS, Injection, SmallDisk, fill};
use archon_integration_tests::{Cluster, Load, Options, ProcessExt, Room};
use archon_testkit::{check, skipped, wait_for_async};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

const NODE: &str = "athens";
const SIGABRT: i32 = 6;

async fn client(cluster: &Cluster, timeout: Duration) -> Client {
    cluster.client().timeout(timeout).build().await.expect("a client")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_disk_refuses_writes_answers_reads_and_recovers() {
    let options =
        Options { coordinators: 1, nodes: vec!["byzantium"], partitions: 8, nodes_min: 2, ..Options::default() };
    let mut cluster = Cluster::start(EXE, &options);
    let data = cluster.directory().join(format!("node-{NODE}"));
    let Some(_disk) = SmallDisk::mount(&data, 256) else {
        skipped("this machine does not let a test mount a file system");
        return;
    };
    cluster.start_node(NODE);
    cluster.wait_online();
    let patient = client(&cluster, Duration::from_secs(30)).await;
    let hasty = client(&cluster, Duration::from_millis(700)).await;
    let mut written = BTreeMap::new();
    for number in 0..200 {
        let (key, value) = (format!("before-{number}"), format!("value-{number}"));
        patient.put(key.clone().into_bytes(), value.clone().into_bytes()).await.expect("a put");
        written.insert(key, value);
    }
    let ballast = fill(&data);
    // Writes continue until the log needs space that is missing; then they are refused with the reason.
    let large = "x".repeat(200_000);
    let mut unknown = 0;
    let mut refusal = String::new();
    for number in 0..2_000 {
        let (key, value) = (format!("during-{number}"), format!("{number}-{large}"));
        match hasty.put(key.clone().into_bytes(), value.clone().into_bytes()).await {
            Ok(_) => drop(written.insert(key, value)),
            Err(error) => {
                unknown += 1;
                refusal = format!("{error:?}");
                if unknown > 3 {
                    break;
                }
            }
        }
    }
    println!("{} writes passed; then: {refusal}", written.len() - 200);
    assert!(refusal.contains("ReadOnly"), "{refusal}\n{}", cluster.node(NODE).log_tail(40));
    for (key, value) in &written {
        let found = patient.get(key.clone().into_bytes()).await.expect("a read on a full disk");
        assert!(found.is_some_and(|found| found.value == value.as_bytes()), "{key} while the disk is full");
    }
    fs::remove_file(ballast).expect("removed");
    for number in 0..100 {
        let (key, value) = (format!("after-{number}"), format!("value-{number}"));
        patient.put(key.clone().into_bytes(), value.clone().into_bytes()).await.expect("a put after there is space");
        written.insert(key, value);
    }
    cluster.take_node(NODE).kill();
    cluster.start_node(NODE);
    for (key, value) in &written {
        let found = patient.get(key.clone().into_bytes()).await.expect("a read after a restart");
        assert!(found.is_some_and(|found| found.value == value.as_bytes()), "{key} after a restart");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_fsync_ends_process_without_losing_writes() {
    let options =
        Options { coordinators: 1, nodes: vec![NODE, "byzantium"], partitions: 8, nodes_min: 2, ..Options::default() };
    let mut cluster = Cluster::start(EXE, &options);
    let client = client(&cluster, Duration::from_secs(30)).await;
    for round in 0..3 {
        let load = Load::start_at_full_speed(&client, &format!("fsync-{round}"), 8);
        let inject = format!("{DURABLE_CALLS}:error=EIO:when={}", 5 + round);
        let injection = Injection::start(cluster.node(NODE).pid(), &[&inject]);
        if injection.is_none() {
            skipped("this machine does not let a test trace a process");
            return;
        }
        let mut process = cluster.take_node(NODE);
        let status = process.wait_exit(Duration::from_secs(60));
        assert_eq!(status.signal(), Some(SIGABRT), "{status}: {}", process.log_tail(20));
        drop(injection);
        cluster.start_node(NODE);
        cluster.wait_node(NODE, "alive");
        load.wait_more(200);
        let report = load.stop().await;
        report.assert_no_failure();
        assert_eq!(report.missing(&client).await, Vec::<String>::new());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_disk_moves_coordinator_leadership_without_node_failure() {
    let cluster = Cluster::start(EXE, &Options { room: Room::Calm, ..Options::default() });
    let client = client(&cluster, Duration::from_secs(30)).await;
    let (leader, _) = cluster.wait_leader();
    let load = Load::start(&client, "slow", 4);
    let slow = format!("{DURABLE_CALLS}:delay_enter=5000000");
    let Some(injection) = Injection::start(cluster.coordinator(leader).pid(), &[&slow]) else {
        skipped("this machine does not let a test trace a process");
        return;
    };
    // Something to commit, so that there is a sync to be slow.
    let _ = cluster.archon(&["table", "create", "slow", "--partitions", "3", "--replication", "1", "--timeout", "2s"]);
    let other = |status: &Value| status["leader_id"].as_u64().is_some_and(|id| id != leader as u64 + 1);
    let (_, took) = cluster.wait_json("another coordinator to lead", Duration::from_secs(60), &["status"], other);
    println!("leadership moved after {took:?}");
    drop(injection);
    cluster.wait_online();
    let report = load.stop().await;
    report.assert_no_failure();
    println!("longest gap {:?}", report.longest_gap);
    assert_eq!(report.missing(&client).await, Vec::<String>::new());
    let events = cluster.json(&["events"]).expect("events");
    assert!(!events.to_string().contains("node_failed"), "{events}");
}

/// Compactions write more than anything else, and may meet a limit that the system does not report. The engine must not be
/// opened again for that: the next compaction would meet it, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compaction_on_full_disk_pauses_within_one_incarnation() {
    let options = Options {
        coordinators: 1,
        nodes: vec![NODE],
        partitions: 4,
        nodes_min: 1,
        replication: 1,
        ..Options::default()
    };
    let cluster = Cluster::start(EXE, &options);
    let client = client(&cluster, Duration::from_secs(30)).await;
    let before = cluster.wait_incarnation(NODE, 0);
    let full = ["fsync:error=ENOSPC"];
    let Some(injection) = Injection::start_on_threads(cluster.node(NODE).pid(), "compactor", &full) else {
        skipped("this machine does not let a test trace a process");
        return;
    };
    let logs = |text: &str| {
        let log = cluster.node(NODE).log_tail(1_000);
        check(log.contains(text), || cluster.node(NODE).log_tail(20))
    };
    let mut written = 0_u32;
    // The rows of each second become a table; some tables lead to a compaction.
    wait_for_async("a refused compaction", Duration::from_secs(120), async || {
        client.put(format!("key-{written}").into_bytes(), b"value".to_vec()).await.expect("a put");
        written += 1;
        logs("a compaction of the engine met a full disk")
    })
    .await;
    drop(injection);
    wait_for_async("compactions to go on", Duration::from_secs(120), async || logs("compactions of the engine go on"))
        .await;
    for number in 0..written {
        let found = client.get(format!("key-{number}").into_bytes()).await.expect("a read");
        assert!(found.is_some_and(|found| found.value == "value".as_bytes()), "key-{number}");
    }
    assert_eq!(cluster.wait_incarnation(NODE, 0), before, "{}", cluster.node(NODE).log_tail(40));
}

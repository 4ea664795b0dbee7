//! Data directories that are damaged, lost, rolled back or full: acknowledged data is served unchanged or not at all,
//! and never silently replaced by an older or empty copy.

use crate::EXE;
use archon_client::Client;
use archon_integration_tests::disk::log_trims;
use archon_integration_tests::{Cluster, Options, ProcessExt};
use archon_testkit::{check, wait_for_async};
use archon_types::{partition_of, slot_of};
use serde_json::Value;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const NODE: &str = "athens";
const PARTITIONS: usize = 8;

type WrittenRows = BTreeMap<String, String>;

fn options() -> Options {
    Options {
        coordinators: 1,
        nodes: vec![NODE, "byzantium"],
        partitions: PARTITIONS as u32,
        nodes_min: 2,
        ..Options::default()
    }
}

async fn client(cluster: &Cluster, timeout: Duration) -> Client {
    cluster.client().timeout(timeout).build().await.expect("a client")
}

/// Writes `count` keys of `bytes` bytes each and adds them to `written`.
async fn write(client: &Client, written: &mut WrittenRows, prefix: &str, count: usize, bytes: usize) {
    for number in 0..count {
        let (key, value) = (format!("key-{number}"), format!("{prefix}-{number}-{}", "x".repeat(bytes)));
        client.put(key.clone().into_bytes(), value.clone().into_bytes()).await.expect("a put");
        written.insert(key, value);
    }
}

/// Reads every key; returns the number that match. A different value fails the test; a missing answer does not.
async fn read_all(client: &Client, written: &WrittenRows) -> usize {
    let mut reads = tokio::task::JoinSet::new();
    for (key, value) in written.clone() {
        let client = client.clone();
        reads.spawn(async move {
            let found = client.get(key.clone().into_bytes()).await;
            (key, value, found)
        });
    }
    let short = |text: &str| text.chars().take(40).collect::<String>();
    let mut served = 0;
    while let Some(read) = reads.join_next().await {
        let (key, value, found) = read.expect("a read does not panic");
        match found {
            Ok(found) => {
                let found = found.map(|found| String::from_utf8_lossy(&found.value).into_owned());
                let shown = found.as_deref().map(short);
                assert!(found.as_ref() == Some(&value), "{key} was {}, now it is answered {shown:?}", short(&value));
                served += 1;
            }
            Err(error) => assert!(error.is_retryable(), "{key}: {error}"),
        }
    }
    served
}

/// Waits until the engine was synced after the last write: the log was trimmed since it was trimmed `before` times, and not
/// for longer than few rows gather.
async fn wait_flushed(cluster: &Cluster, before: u64) {
    const QUIET: Duration = Duration::from_millis(3_500);
    let last = Cell::new((before, Instant::now()));
    wait_for_async("the engine to be synced and quiet", Duration::from_secs(60), || async {
        let now = log_trims(cluster, NODE).await;
        if now != last.get().0 {
            last.set((now, Instant::now()));
        }
        let quiet = last.get().1.elapsed();
        check(now > before && quiet > QUIET, || {
            format!("{now} trims of the log, {before} before, the last {quiet:?} ago")
        })
    })
    .await;
}

fn data_of(cluster: &Cluster, name: &str) -> PathBuf {
    cluster.directory().join(format!("node-{name}"))
}

/// Returns all files below a directory.
fn files(directory: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(directory).expect("listed").map(|entry| entry.expect("an entry").path());
    paths.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// Returns the segments of a node's log, oldest first.
fn segments(data: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(data.join("wal")).expect("the log's directory");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.retain(|path| path.extension().is_some_and(|end| end == "seg"));
    files.sort();
    files
}

fn flip(path: &Path, offset: u64) {
    let file = OpenOptions::new().read(true).write(true).open(path).expect("the file opens");
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).expect("the byte is there");
    file.write_all_at(&[byte[0] ^ 0x10], offset).expect("the byte is written");
}

fn copy(from: &Path, to: &Path) {
    let status = Command::new("cp").arg("-a").arg(from).arg(to).status().expect("cp runs");
    assert!(status.success());
}

/// Waits until the node is back, every partition is either Online or permanently lost, and one write to each Online
/// partition succeeds: damage to one partition must not make the others unavailable.
async fn settle(cluster: &Cluster, client: &Client, before: u64) -> usize {
    cluster.wait_incarnation(NODE, before);
    cluster.wait_node(NODE, "alive");
    let is_online = |row: &Value| row["status"] == "online";
    let lives =
        |row: &Value| row["copies"].as_array().is_some_and(|all| all.iter().any(|copy| copy["state"] == "live"));
    let decided = |list: &Value| {
        let decided = |row: &Value| is_online(row) || !lives(row);
        list.as_array().is_some_and(|rows| !rows.is_empty() && rows.iter().all(decided))
    };
    let what = "each partition to be Online or to have no copy left";
    let (list, _) = cluster.wait_json(what, Duration::from_secs(60), &["partition", "list"], decided);
    let online = list.as_array().into_iter().flatten().filter(|row| is_online(row)).count();
    let list = cluster.json(&["partition", "list"]).expect("partition list");
    for row in list.as_array().into_iter().flatten().filter(|row| is_online(row)) {
        let found = (0..10_000).map(|number| format!("probe-{number}")).find(|key| {
            partition_of(slot_of(key.as_bytes()), PARTITIONS as u32)
                == u32::try_from(row["partition"].as_u64().unwrap_or(0)).unwrap_or(0)
        });
        let key = found.expect("a key of each partition");
        let put = client.put(key.into_bytes(), b"probe".to_vec()).await;
        assert!(put.is_ok(), "partition {} is Online but takes no write: {put:?}", row["partition"]);
    }
    // It must not keep the node from taking new partitions either.
    let created = cluster.archon(&["table", "create", "later", "--partitions", "4", "--replication", "1"]);
    assert_eq!(created.code, 0, "{}", created.stderr);
    let later = ["partition", "list", "--table", "later"];
    cluster.wait_json("a new table to be Online", Duration::from_secs(60), &later, |list| {
        list.as_array().is_some_and(|rows| rows.len() == 4 && rows.iter().all(is_online))
    });
    online
}

/// Fills a cluster, kills athens, lets `harm` change its directory, restarts it, and checks the served data. Returns
/// the number of Online partitions and of served keys.
async fn after(flushed: bool, harm: impl FnOnce(&Path, &Cluster)) -> (Cluster, WrittenRows, usize, usize) {
    let mut cluster = Cluster::start(EXE, &options());
    let patient = client(&cluster, Duration::from_secs(20)).await;
    let mut written = WrittenRows::new();
    let trims = log_trims(&cluster, NODE).await;
    // Few enough bytes for each partition that they reach the engine within seconds.
    write(&patient, &mut written, "first", 400, 800).await;
    if flushed {
        // So that recovery rests on the engine.
        wait_flushed(&cluster, trims).await;
        write(&patient, &mut written, "second", 40, 100).await;
    }
    let before = cluster.wait_incarnation(NODE, 0);
    cluster.take_node(NODE).kill();
    harm(&data_of(&cluster, NODE), &cluster);
    cluster.start_node(NODE);
    let online = settle(&cluster, &patient, before).await;
    // If each partition is Online, every read must be answered, however long a busy machine takes.
    let client = if online == PARTITIONS { patient } else { client(&cluster, Duration::from_secs(1)).await };
    let served = read_all(&client, &written).await;
    (cluster, written, online, served)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flipped_byte_in_the_log_is_not_served() {
    serves_no_flipped_byte(&[20, 40, 64, 90, 130, 250]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flipped_byte_in_later_log_records_is_not_served() {
    serves_no_flipped_byte(&[400, 700, 1_500, 4_196, 300_000]).await;
}

/// Flips a byte of the log at each of these offsets, each time in a new cluster.
async fn serves_no_flipped_byte(places: &[u64]) {
    for &place in places {
        let (cluster, written, online, served) = after(false, |data, _| {
            let log = segments(data).remove(0);
            flip(&log, place);
        })
        .await;
        println!("flipped at {place}: {online} of {PARTITIONS} Online, {served} of {} keys", written.len());
        assert!(online < PARTITIONS || served == written.len(), "{}", cluster.node(NODE).log_tail(40));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_engine_directory_is_never_served_as_empty() {
    for flushed in [false, true] {
        let (cluster, written, online, served) =
            after(flushed, |data, _| fs::remove_dir_all(data.join("engine")).expect("removed")).await;
        println!(
            "engine deleted (flushed {flushed}): {online} of {PARTITIONS} Online, {served} of {} keys",
            written.len()
        );
        assert!(online < PARTITIONS || served == written.len(), "{}", cluster.node(NODE).log_tail(40));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_engine_is_never_served_as_empty() {
    let (cluster, written, online, served) = after(true, |data, _| {
        for path in files(&data.join("engine")) {
            let bytes = fs::metadata(&path).expect("metadata").len();
            for offset in (0..bytes).step_by(512) {
                flip(&path, offset);
            }
        }
    })
    .await;
    println!("engine damaged: {online} of {PARTITIONS} Online, {served} of {} keys", written.len());
    assert!(online < PARTITIONS || served == written.len(), "{}", cluster.node(NODE).log_tail(40));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_log_directory_is_never_served_as_empty() {
    let (_cluster, written, online, served) =
        after(true, |data, _| fs::remove_dir_all(data.join("wal")).expect("removed")).await;
    println!("log deleted: {online} of {PARTITIONS} Online, {served} of {} keys", written.len());
    assert!(online < PARTITIONS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wiped_node_of_the_same_name_serves_no_former_copy() {
    let (cluster, written, online, served) = after(true, |data, cluster| {
        cluster.wait_node(NODE, "failed");
        fs::remove_dir_all(data).expect("removed");
        // Its copies were the last in-sync ones: a wrong path must not discard them.
        let listen = cluster.node_address(NODE).to_owned();
        let mut empty = cluster.spawn("empty", &cluster.node_arguments(NODE, &listen, data));
        assert_eq!(empty.wait_exit(Duration::from_secs(60)).code(), Some(4), "{}", empty.log_tail(20));
        let log = empty.log();
        for part in ["last in-sync replica", "(default/", "archon node lost athens --accept-data-loss"] {
            assert!(log.contains(part), "{part:?} is not in {log}");
        }
        cluster.wait_node(NODE, "failed");
        // The remedy named by the refusal works.
        let lost = cluster.json(&["node", "lost", NODE, "--accept-data-loss"]).expect("node lost");
        assert!(lost["loss"]["copies_lost"].as_u64() > Some(0), "{lost}");
        assert_eq!(lost["loss"]["copies_lost"], lost["loss"]["last_copies_lost"], "{lost}");
    })
    .await;
    println!("wiped: {online} of {PARTITIONS} Online, {served} of {} keys", written.len());
    assert!(online < PARTITIONS && served > 0, "{}", cluster.node(NODE).log_tail(40));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn directory_rolled_back_to_older_copy_is_not_served() {
    let mut cluster = Cluster::start(EXE, &options());
    let patient = client(&cluster, Duration::from_secs(20)).await;
    let mut written = WrittenRows::new();
    write(&patient, &mut written, "first", 200, 100).await;
    let data = data_of(&cluster, NODE);
    cluster.take_node(NODE).kill();
    let old = cluster.directory().join("old");
    copy(&data, &old);
    cluster.start_node(NODE);
    cluster.wait_online();
    write(&patient, &mut written, "second", 200, 100).await;
    let before = cluster.wait_incarnation(NODE, 0);
    cluster.take_node(NODE).kill();
    fs::remove_dir_all(&data).expect("removed");
    fs::rename(&old, &data).expect("renamed");
    cluster.start_node(NODE);
    let online = settle(&cluster, &patient, before).await;
    let hasty = client(&cluster, Duration::from_secs(1)).await;
    let served = read_all(&hasty, &written).await;
    println!("rolled back: {online} of {PARTITIONS} Online, {served} of {} keys", written.len());
    assert!(online < PARTITIONS);
}

//! Tables by ranges with automatic splits, on real processes: by size, under load, and invalid limits.

use crate::EXE;
use archon_client::{Client, Entry, Error};
use archon_integration_tests::{Cluster, Options, Room};
use archon_testkit::wait_for;
use futures::TryStreamExt;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

const NODES: [&str; 3] = ["athens", "byzantium", "cyrene"];
const TIMEOUT: Duration = Duration::from_secs(180);
const MIB: u64 = 1 << 20;
const WRITERS: u64 = 16;
/// Pause between two writes of a writer that rewrites its rows.
const SLOWLY: Duration = Duration::from_millis(50);
/// Bytes of a value.
const VALUE_BYTES: usize = 2 * 1024;
/// Keys written: six times what one partition may hold.
const KEYS: u64 = 3 * 1024;

fn cluster(coordinators: usize) -> Cluster {
    start(coordinators, Room::Part)
}

fn start(coordinators: usize, room: Room) -> Cluster {
    let options = Options { coordinators, nodes: NODES.to_vec(), partitions: 4, room, ..Options::replicated() };
    let cluster = Cluster::start(EXE, &options);
    cluster.wait_whole(3);
    cluster
}

/// Returns the bytes held by the leader of a partition, as far as is known.
fn bytes(cluster: &Cluster, row: &Value) -> u64 {
    let number = row["partition"].to_string();
    let found = cluster.asked(&["partition", "describe", &number, "--table", "times"]).unwrap_or_default();
    let leader = found["copies"].as_array().into_iter().flatten().find(|copy| copy["leads"] == true);
    leader.and_then(|copy| copy["bytes_stored"].as_u64()).unwrap_or(0)
}

/// Returns true if there are as many partitions as the rows need, each within its limit. Newly formed partitions are
/// not counted yet.
fn is_grown(cluster: &Cluster, rows: &[Value]) -> bool {
    rows.len() >= 6 && rows.iter().all(|row| (1..=MIB).contains(&bytes(cluster, row)))
}

async fn client(cluster: &Cluster, table: &str) -> Arc<Client> {
    let built = cluster.client().table(table);
    Arc::new(built.build().await.expect("a client"))
}

/// Returns the keys of one writer, scattered over the key space, each with its value.
fn rows(writer: u64) -> impl Iterator<Item = (String, String)> + Clone {
    (0..KEYS / WRITERS).map(move |number| {
        let place = (number * WRITERS + writer) * 7_919 % 100_000;
        (format!("{place:05}"), format!("{place:0width$}", width = VALUE_BYTES))
    })
}

/// Writers of all rows.
struct RowWriters {
    runtime: Runtime,
    client: Arc<Client>,
    /// Set once the writers can stop.
    is_enough: Arc<AtomicBool>,
    writers: Vec<JoinHandle<u32>>,
}

impl RowWriters {
    fn begin(cluster: &Cluster) -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let client = runtime.block_on(client(cluster, "times"));
        let is_enough = Arc::new(AtomicBool::new(false));
        let write = |writer| runtime.spawn(write(Arc::clone(&client), writer, Arc::clone(&is_enough)));
        let writers = (0..WRITERS).map(write).collect();
        Self { runtime, client, is_enough, writers }
    }

    /// Waits for all writers, and then for every partition to be within its limit. Compares stored and written rows;
    /// returns the partitions, and the number of writes repeated because their outcome was unknown.
    fn end(self, cluster: &Cluster) -> (Vec<Value>, u32) {
        self.is_enough.store(true, Ordering::Relaxed);
        let open = self.writers.into_iter().map(|writer| self.runtime.block_on(writer).expect("no panic")).sum();
        let grown = cluster
            .wait_settled("times", "every partition to be within the limit", TIMEOUT, |rows| is_grown(cluster, rows));
        let expected: BTreeMap<String, String> = (0..WRITERS).flat_map(rows).collect();
        let found: Vec<(String, String)> = self.runtime.block_on(async {
            let entries: Vec<Entry> = self.client.scan("").entries().try_collect().await.expect("a listing");
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            entries.iter().map(|entry| (text(&entry.key), text(&entry.value))).collect()
        });
        let same = found.iter().map(|(key, value)| (key, value)).eq(&expected);
        assert!(same, "{} rows were found of {}", found.len(), expected.len());
        // Each holds more than half of the split limit, except for the imbalance of the halves.
        let mib = KEYS * VALUE_BYTES as u64 / MIB;
        assert!((6..=14).contains(&grown.len()), "{} partitions of {mib} MiB", grown.len());
        (grown, open)
    }
}

/// Writes all rows at full speed, then repeatedly and slowly until told to stop: a fast machine may write all of them
/// before a coordinator learns that a split is due.
async fn write(client: Arc<Client>, writer: u64, is_enough: Arc<AtomicBool>) -> u32 {
    let mut open = 0;
    let again = rows(writer).cycle().take_while(|_| !is_enough.load(Ordering::Relaxed)).map(|row| (row, SLOWLY));
    for ((key, value), rest) in rows(writer).map(|row| (row, Duration::ZERO)).chain(again) {
        tokio::time::sleep(rest).await;
        // Writes with unknown outcome are repeated: the value is the same.
        loop {
            match client.put(key.clone(), value.clone()).await {
                Ok(_) => break,
                Err(Error::MaybeApplied { .. } | Error::DeadlineExceeded { .. }) => open += 1,
                Err(error) => panic!("{key}: {error}"),
            }
        }
    }
    open
}

/// Returns the sum of a counter over some members.
fn counted(cluster: &Cluster, addresses: &[String], name: &str) -> u64 {
    let runtime = Runtime::new().expect("a runtime");
    let admin = cluster.admin(Duration::from_secs(5));
    let read = |address: &String| runtime.block_on(admin.node_stats(address)).expect("counters").get(name);
    addresses.iter().map(read).sum()
}

#[test]
fn growing_table_splits_and_loses_no_write() {
    let cluster = cluster(1);
    let made = cluster
        .json(&[
            "table",
            "create",
            "times",
            "--range",
            "--split-at",
            "5",
            "--split-above",
            "1MiB",
            "--replication",
            "3",
        ])
        .expect("a table");
    assert_eq!((&made["split_above_bytes"], &made["split_above_rate"]), (&MIB.into(), &Value::Null));
    cluster.wait_settled("times", "the table", TIMEOUT, |rows| rows.len() == 2);
    let (grown, open) = RowWriters::begin(&cluster).end(&cluster);
    assert_eq!(open, 0, "nothing failed, so nothing is open");
    assert!(grown.iter().any(|row| row["range"]["begin"] == "5"), "where it was split from the start: {grown:?}");
    let events = cluster.done(&["events", "--limit", "1000"]);
    assert!(events.contains("is being split automatically, since it holds"), "{events}");
    let coordinators = cluster.coordinator_addresses();
    let splits = |how: &str| counted(&cluster, &coordinators, &format!("archon_coordinator_splits_{how}_total"));
    let (begun, ended) = (splits("begun_by_themselves"), splits("done"));
    assert!(ended >= grown.len() as u64 - 2 && begun >= ended, "{begun} splits have begun, {ended} are done");
    let nodes = cluster.json(&["node", "list"]).expect("a list");
    let nodes: Vec<String> =
        nodes.as_array().into_iter().flatten().filter_map(|node| Some(node["address"].as_str()?.to_owned())).collect();
    let of_nodes = |what: &str| counted(&cluster, &nodes, &format!("archon_node_{what}_total"));
    assert!(of_nodes("formed_bytes") > MIB, "{} bytes", of_nodes("formed_bytes"));
    let (pauses, paused_ms) = (of_nodes("split_pauses"), of_nodes("split_pauses_milliseconds"));
    println!("{} partitions; {ended} splits, {pauses} pauses of {} ms", grown.len(), paused_ms / pauses.max(1));
    assert!(pauses >= ended, "{pauses} pauses of {ended} splits");
    // A limit is removed the way it is set.
    let altered = cluster.json(&["table", "alter", "times", "--split-above", "none"]).expect("altered");
    assert_eq!(altered["split_above_bytes"], Value::Null);
    assert!(!cluster.done(&["table", "list"]).contains("MiB"));
    assert!(cluster.done(&["table", "alter", "times", "--split-above", "1.5GiB"]).contains("split above 1.5 GiB"));
    assert!(cluster.done(&["table", "list"]).contains("1.5 GiB"));
}

#[test]
fn kills_during_table_growth_lose_no_write() {
    let mut cluster = cluster(3);
    cluster.done(&["table", "create", "times", "--range", "--split-above", "1MiB", "--replication", "3"]);
    cluster.wait_settled("times", "the table", TIMEOUT, |rows| rows.len() == 1);
    let writing = RowWriters::begin(&cluster);
    // Each time while a split is in progress, or until none is left.
    let mut disturbed = 0;
    for round in 0..3 {
        wait_for("a split", TIMEOUT, || {
            let listed = cluster.asked(&["partition", "list", "--table", "times"])?;
            let rows = listed.as_array().map_or(&[][..], Vec::as_slice);
            let splitting = rows.iter().any(|row| !row["splits_into"].is_null());
            disturbed += u32::from(splitting);
            match splitting || is_grown(&cluster, rows) {
                true => Ok(()),
                false => Err(format!("{} partitions, of which none is being split", rows.len())),
            }
        });
        if round % 2 == 0 {
            let (leader, _) = cluster.wait_leader();
            cluster.take_coordinator(leader).kill();
            cluster.start_coordinator(leader);
            cluster.wait_leader();
        } else {
            cluster.take_node("byzantium").kill();
            cluster.start_node("byzantium");
            cluster.wait_node("byzantium", "alive");
        }
    }
    assert!(disturbed > 0, "nobody was killed in the middle of a split");
    let (grown, open) = writing.end(&cluster);
    println!("{} partitions; {open} writes were made again", grown.len());
}

/// Clients of each table, and their pause between two writes: about 700 writes per second, and more than the limit of 100 also
/// on a busy machine, where a write takes a tenth of a second.
const TASKS: u32 = 16;
const REST: Duration = Duration::from_millis(20);

#[test]
fn load_on_many_keys_splits_but_load_on_one_key_does_not() {
    // The machine's write rate decides.
    let cluster = start(1, Room::Calm);
    for table in ["times", "hot"] {
        cluster.done(&["table", "create", table, "--range", "--split-above-rate", "100", "--replication", "3"]);
        cluster.wait_settled(table, "the table", TIMEOUT, |rows| rows.len() == 1);
    }
    let runtime = Runtime::new().expect("a runtime");
    let stop = Arc::new(AtomicBool::new(false));
    let any_key: fn(u32) -> u32 = |number| number % 40;
    // Seven of eight.
    let mostly_one: fn(u32) -> u32 = |number| if number % 8 == 0 { number / 8 % 40 } else { 7 };
    let tasks: Vec<_> = [("times", any_key), ("hot", mostly_one)]
        .into_iter()
        .flat_map(|(table, key)| {
            let client = runtime.block_on(client(&cluster, table));
            (0..TASKS).map(move |task| (Arc::clone(&client), key, task))
        })
        .map(|(client, key, task)| {
            let stop = Arc::clone(&stop);
            runtime.spawn(async move {
                let mut number = task;
                while !stop.load(Ordering::Relaxed) {
                    client.put(format!("key-{:02}", key(number)), "value").await.expect("a put");
                    number += 7;
                    tokio::time::sleep(REST).await;
                }
            })
        })
        .collect();
    // Twice, so that the other table has had its time as well.
    cluster.wait_settled("times", "the partition to be split", TIMEOUT, |rows| rows.len() >= 3);
    stop.store(true, Ordering::Relaxed);
    tasks.into_iter().for_each(|task| runtime.block_on(task).expect("no panic"));
    let begins: Vec<Value> = cluster.partitions("times").iter().map(|row| row["range"]["begin"].clone()).collect();
    assert!(
        begins.iter().any(|begin| begin.as_str().is_some_and(|begin| ("key-10".."key-30").contains(&begin))),
        "{begins:?}"
    );
    assert_eq!(cluster.partitions("hot").len(), 1, "no split helps where one key gets most");
    let events = cluster.done(&["events", "--limit", "1000"]);
    assert!(events.contains("automatically, since it gets"), "{events}");
}

#[test]
fn invalid_split_limits_are_refused_with_the_valid_range() {
    let cluster = cluster(1);
    cluster.done(&["table", "create", "times", "--range", "--replication", "3"]);
    for (arguments, says) in [
        (&["create", "a", "--partitions", "4", "--replication", "3", "--split-above", "1GiB"][..], "--split-above"),
        (&["create", "a", "--range", "--replication", "3", "--split-above", "1"], "1MiB or 1GiB"),
        (&["create", "a", "--range", "--replication", "3", "--split-above", "1000KiB"], "the minimum is 1048576"),
        (&["create", "a", "--range", "--replication", "3", "--split-above", "much"], "not a unit of size"),
        (&["create", "a", "--range", "--replication", "3", "--split-above-rate", "99"], "the minimum is 100"),
        (&["create", "a", "--range", "--replication", "3", "--split-above", "none"], "leave the option out"),
        (&["alter", "times"], "--split-above"),
        (&["alter", "times", "--split-above", "0B"], "the minimum"),
        (&["alter", "default", "--split-above", "1GiB"], "only a range table (--range)"),
        (&["alter", "default", "--split-above-rate", "none"], "only a range table (--range)"),
    ] {
        let ran = cluster.archon(&[&["table"], arguments].concat());
        assert!(ran.code == 2 && ran.stderr.contains(says), "{arguments:?}: {} {}", ran.code, ran.stderr);
    }
    let found = cluster.archon(&["table", "alter", "nowhere", "--split-above", "1GiB"]);
    assert_eq!(found.code, 3, "{}", found.stderr);
    let tables = cluster.json(&["table", "list"]).expect("a list");
    let limited = |table: &Value| !table["split_above_bytes"].is_null() || !table["split_above_rate"].is_null();
    assert!(!tables.as_array().expect("an array").iter().any(limited), "nothing was changed: {tables}");
}

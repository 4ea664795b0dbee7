//! Log retention of healthy nodes while another one is away, on real processes with small disks.

use crate::EXE;
use archon_client::{Client, Error};
use archon_integration_tests::disk::SmallDisk;
use archon_integration_tests::{Cluster, Options, Scrape, http};
use archon_testkit::{check, skipped, wait_for};
use futures::stream::{self, StreamExt, TryStreamExt};
use std::fs::{self, File};
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

const NODES: [&str; 3] = ["athens", "byzantium", "cyrene"];
const HEALTHY: [&str; 2] = ["athens", "byzantium"];
const MIB: f64 = (1 << 20) as f64;
const DISK_MB: u32 = 640;
/// Bounds of the log on such a disk: a quarter is retained, an eighth is kept for reuse; the rest is unsynced in the
/// engine.
const LOG_BYTES_MAX: f64 = 440.0 * MIB;
const VALUE_BYTES: usize = 32 * 1024;
/// Keys that are overwritten repeatedly: 8 MiB.
const KEYS: u64 = 256;
/// Values written to the busy table: 700 MiB, more than the disk has.
const WRITES: u64 = 700 * 32;
const TIMEOUT: Duration = Duration::from_secs(60);

fn scrape(cluster: &Cluster, node: &str) -> Scrape {
    let answer = http::get(cluster.metrics_address(node), "/metrics").expect("the node tells its metrics");
    Scrape::read(&answer.body).expect("metrics")
}

fn data(cluster: &Cluster, node: &str) -> PathBuf {
    cluster.directory().join(format!("node-{node}"))
}

/// Starts three nodes with a small disk each, and a quiet table beside the default one. `None` if the machine does not
/// allow it.
fn start() -> Option<(Cluster, Vec<SmallDisk>)> {
    let options = Options {
        coordinators: 1,
        nodes: vec![],
        partitions: 4,
        replication: 3,
        metrics: true,
        memory: Some("256MiB"),
        ..Options::default()
    };
    let mut cluster = Cluster::start(EXE, &options);
    let mut disks = Vec::new();
    for node in NODES {
        disks.push(SmallDisk::mount(&data(&cluster, node), DISK_MB)?);
        cluster.start_node(node);
    }
    cluster.wait_online();
    cluster.wait_whole(3);
    cluster.done(&["table", "create", "quiet", "--partitions", "1", "--replication", "3"]);
    wait_quiet_copies(&cluster);
    Some((cluster, disks))
}

/// Waits until the quiet table has three in-sync copies.
fn wait_quiet_copies(cluster: &Cluster) {
    let quiet = ["partition", "list", "--table", "quiet"];
    cluster.wait_json("three copies of the quiet table", TIMEOUT, &quiet, |listed| {
        let rows = listed.as_array().into_iter().flatten();
        let copies = rows.flat_map(|row| row["copies"].as_array().into_iter().flatten());
        copies.filter(|copy| copy["state"] == "live").count() == 3
    });
}

/// Writes the values with these numbers to the busy table.
async fn overwrite_once(client: &Client, numbers: Range<u64>) -> Result<(), Error> {
    let writes = stream::iter(numbers)
        .map(|number| client.put(format!("key-{:03}", number % KEYS), vec![(number % 251) as u8; VALUE_BYTES]));
    writes.buffer_unordered(32).try_collect::<Vec<_>>().await.map(|_| ())
}

/// Creates a file as large as its disk allows.
fn fill(path: &Path) {
    let mut file = File::options().append(true).create(true).open(path).expect("a file");
    while file.write_all(&[1; 4096]).is_ok() {}
}

/// Overwrites the busy table, and checks the logs of the healthy nodes against their bound meanwhile.
async fn overwrite(cluster: &Cluster) {
    let client = cluster.client().timeout(TIMEOUT).build().await.expect("a client");
    for from in (0..WRITES).step_by(512) {
        overwrite_once(&client, from..from + 512).await.expect("every write is taken");
        for node in HEALTHY {
            let now = scrape(cluster, node);
            let log = now.get("archon_node_log_bytes");
            assert!(log <= LOG_BYTES_MAX, "{node} keeps {} MiB of log after {from} writes", log / MIB);
            assert_eq!(now.get("archon_node_disk_full"), 0.0, "{node} after {from} writes");
        }
    }
}

fn put(cluster: &Cluster, table: &str) -> Result<(), String> {
    let ran = cluster.archon(&["kv", "put", "probe", "v", "--table", table, "--timeout", "2s"]);
    check(ran.code == 0, || ran.stderr.clone())
}

/// Regression: one write to a quiet table while a node was away made the logs of the others grow by all writes to other
/// tables, until their disks were full; they stayed full when the node was back.
#[test]
fn quiet_write_does_not_fill_the_disks_of_other_nodes() {
    let Some((mut cluster, _disks)) = start() else {
        skipped("this machine does not let a test mount a file system");
        return;
    };
    cluster.take_node("cyrene").kill();
    cluster.wait_node("cyrene", "failed");
    wait_for("a write to the quiet table", TIMEOUT, || put(&cluster, "quiet"));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(overwrite(&cluster));
    let given_up: f64 = HEALTHY.iter().map(|node| scrape(&cluster, node).get("archon_node_logs_not_kept_total")).sum();
    assert!(given_up >= 1.0, "the log of the quiet table is kept for cyrene");

    // Disks filled by other files recover without a restart, also while the node is away.
    let ballast = HEALTHY.map(|node| data(&cluster, node).join("ballast"));
    wait_for("writes to be refused", TIMEOUT, || {
        // The log frees what it can spare meanwhile.
        ballast.iter().for_each(|file| fill(file));
        match put(&cluster, "default") {
            Err(error) if error.contains("ReadOnly") => Ok(()),
            other => {
                // Uses up the prepared log space; some writes may be refused already.
                let _ = runtime.block_on(async {
                    let client = cluster.client().timeout(Duration::from_secs(1)).build().await.expect("a client");
                    overwrite_once(&client, 0..KEYS).await
                });
                Err(format!("{other:?}"))
            }
        }
    });
    for file in ballast {
        fs::remove_file(file).expect("removed");
    }
    for table in ["default", "quiet"] {
        wait_for("writes to be taken again", TIMEOUT, || put(&cluster, table));
    }

    cluster.start_node("cyrene");
    cluster.wait_node("cyrene", "alive");
    cluster.wait_whole(3);
    wait_quiet_copies(&cluster);
    for node in NODES {
        let log = scrape(&cluster, node).get("archon_node_log_bytes");
        assert!(log <= LOG_BYTES_MAX, "{node} keeps {} MiB of log", log / MIB);
    }
}
